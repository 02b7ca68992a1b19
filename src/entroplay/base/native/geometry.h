// Triangles as three edges that run upwards in y, and their coverage of a row of pixels.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "pixel.h"

namespace entroplay {

constexpr int BAND = 16;    // number of rows whose tables are built and used at once
constexpr int GROUPS = 16;  // number of portions of work, whatever the number of threads

// An edge that runs upwards in y: x = x0 + t dx, y = y0 + t dy with dy >= 0 and t from 0 to 1.
struct Edge {
  double x0, y0, dx, dy;
  double inverse;   // 1 / dy, or a large number for a horizontal edge, which lies in a single row
  double sign;      // +-1: the triangle's orientation, times -1 if the edge was reversed
  int first, last;  // the rows of the canvas that it crosses; last < first if there are none
  int low, high;    // the corners of the triangle that it connects
};

struct Triangle {
  Edge edges[3];
  int first, last;  // the rows of the canvas that its edges cross
};

// Turns six numbers, the corners in pixels, into edges.
template <typename T> void prepare(const T* corners, int64_t height, Triangle& triangle) {
  double x[3], y[3];
  for (int v = 0; v < 3; ++v) {
    x[v] = corners[2 * v];
    y[v] = corners[2 * v + 1];
  }
  double area = (x[1] - x[0]) * (y[2] - y[0]) - (x[2] - x[0]) * (y[1] - y[0]);
  // A collapsed triangle counts as positive; otherwise it could never move.
  double orientation = area < 0 ? -1.0 : 1.0;
  triangle.first = static_cast<int>(height);
  triangle.last = -1;
  for (int v = 0; v < 3; ++v) {
    int a = v, b = (v + 1) % 3;
    double sign = orientation;
    if (y[b] < y[a]) {
      std::swap(a, b);
      sign = -sign;
    }
    Edge& e = triangle.edges[v];
    e = Edge{x[a], y[a], x[b] - x[a], y[b] - y[a], 1.0 / std::max(y[b] - y[a], 1e-300), sign,
             0, -1, a, b};
    bool finite =
        std::isfinite(e.x0) && std::isfinite(e.y0) && std::isfinite(e.dx) && std::isfinite(e.dy);
    // An edge that is not finite, above or below the canvas crosses no row.
    if (!finite || y[b] < 0 || y[a] >= height) continue;
    e.first = static_cast<int>(std::max(0.0, std::floor(y[a])));
    e.last = static_cast<int>(std::min(static_cast<double>(height - 1), std::floor(y[b])));
    triangle.first = std::min(triangle.first, e.first);
    triangle.last = std::max(triangle.last, e.last);
  }
}

// The part of an edge inside one row: t from t0 to t0 + dt, x from p to q.
struct Piece {
  double t0, dt, p, q;
};

INLINE Piece piece_of(const Edge& e, int row) {
  double t0 = std::min(std::max((row - e.y0) * e.inverse, 0.0), 1.0);
  double t1 = std::min(std::max((row + 1 - e.y0) * e.inverse, 0.0), 1.0);
  return Piece{t0, t1 - t0, e.x0 + t0 * e.dx, e.x0 + t1 * e.dx};
}

// The pixel that holds x: -1 left of the canvas, `width` right of it.
INLINE int pixel_of(double x, int width) {
  double clamped = std::min(std::max(x, -1.0), static_cast<double>(width));
  return static_cast<int>(clamped + 1.0) - 1;  // truncation rounds down, since clamped >= -1
}

template <typename T>
std::vector<Triangle> prepare_all(const T* corners, int64_t m, int64_t height) {
  std::vector<Triangle> triangles(m);
  for (int64_t r = 0; r < m; ++r) prepare(corners + 6 * r, height, triangles[r]);
  return triangles;
}

// Adds differences along a row whose running sum is the area to the right of a piece, as in the
// scan conversion of fonts.
template <typename P>
INLINE void deposit_piece(const Piece& piece, double dy, int width, const P& colour, P* row) {
  double left = std::min(piece.p, piece.q), right = std::max(piece.p, piece.q),
         height = piece.dt * dy;
  if (left < 0 || right > width) {
    // Parts beyond the sides of the canvas: of a piece left of it, the whole row lies to the right;
    // of a piece right of it, nothing does.
    const double limit = width, span = right - left,
                 inner_left = std::min(std::max(left, 0.0), limit);
    const double inner_right = std::min(std::max(right, 0.0), limit);
    if (span > 0) {
      row[0] = row[0] + (height * std::max(0.0, std::min(0.0, right) - left) / span) * colour;
      if (inner_right <= inner_left) return;
      height *= (inner_right - inner_left) / span;
    }
    left = inner_left;
    right = inner_right;
  }
  const P weight = height * colour;
  const int i = static_cast<int>(left), j = static_cast<int>(right);
  const double f = left - i, g = right - j;
  // One pixel: the part of it right of the middle of the piece, and all later pixels completely.
  if (i == j) {
    const double mean = 0.5 * (f + g);
    row[i] = row[i] + (1 - mean) * weight;
    row[i + 1] = row[i + 1] + mean * weight;
    return;
  }
  // Several pixels: the coverage grows quadratically in the first and the last of them, where the
  // piece cuts off a small triangle, and linearly in between.
  const double slope = 1.0 / (right - left);
  const double first = 0.5 * slope * (1 - f) * (1 - f), last = 0.5 * slope * g * g;
  row[i] = row[i] + first * weight;
  if (j == i + 1) {
    row[i + 1] = row[i + 1] + (1 - first - last) * weight;
  } else {
    const double second = slope * (1.5 - f);
    row[i + 1] = row[i + 1] + (second - first) * weight;
    const P step = slope * weight;
    for (int x = i + 2; x < j; ++x) row[x] = row[x] + step;
    row[j] = row[j] + (1 - (second + (j - i - 2) * slope) - last) * weight;
  }
  row[j + 1] = row[j + 1] + last * weight;
}

// Visits the coverage of one row by one triangle from left to right: `pixel(x, coverage)` where an
// edge passes, and `run(begin, end, coverage)` where the coverage is constant. `row` must hold
// width + 2 zeros, and does so again afterwards.
template <typename OnPixel, typename OnRun>
INLINE void walk_row(const Triangle& triangle, int number, int width, double* row,
                     const OnPixel& pixel, const OnRun& run) {
  int begin[3], end[3], count = 0;
  for (const Edge& e : triangle.edges) {
    if (number < e.first || number > e.last) continue;
    const Piece piece = piece_of(e, number);
    deposit_piece<double>(piece, e.dy, width, -e.sign, row);
    const int i = std::max(0, pixel_of(std::min(piece.p, piece.q), width));
    const int j = std::min(width, std::max(0, pixel_of(std::max(piece.p, piece.q), width)) + 2);
    // Insertion sort of the stretches [i, j) that the edges touch.
    int place = count++;
    for (; place > 0 && begin[place - 1] > i; --place) {
      begin[place] = begin[place - 1];
      end[place] = end[place - 1];
    }
    begin[place] = i;
    end[place] = j;
  }
  // The running sum of the differences is the coverage. It is constant between the stretches.
  int x = 0;
  double coverage = 0;
  for (int k = 0; k < count; ++k) {
    if (begin[k] > x) {
      if (std::abs(coverage) > 1e-12) run(x, begin[k], coverage);
      x = begin[k];
    }
    for (; x < end[k]; ++x) {
      coverage += row[x];
      row[x] = 0;
      pixel(x, coverage);
    }
  }
  if (x < width && std::abs(coverage) > 1e-12) run(x, width, coverage);
  row[width] = row[width + 1] = 0;
}

}  // namespace entroplay
