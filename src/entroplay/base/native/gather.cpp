// The integral of a picture over every triangle, and its gradient in the triangle's corners.
//
// By Green's theorem, the integral of a picture over a triangle is the sum over its three edges of
// integrals of S dy, where S is the picture's running integral along a row. On the part of an edge
// inside one row, S and its running integral SS give that in closed form, and the gradient too:
// O(width + height) work per triangle, whatever its area.
//
// Rows are processed in bands whose tables stay in cache. Bands belong to a fixed number of groups,
// threads take group after group, and sums over groups are formed in a fixed order: the results do
// not depend on the number of threads.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "geometry.h"
#include "pool.h"

namespace entroplay {
namespace {

// S and SS at the left border of a pixel. P holds all channels.
template <typename P> struct Entry {
  P s, ss;
};

// Fills the table of one row, for pixels -1 ... width + 1. S is linear within a pixel, so the
// trapezoidal rule integrates it exactly.
template <int K, typename T>
INLINE void integrate_row(const T* pixels, int width, Entry<typename Pixel<K>::type>* table) {
  using P = typename Pixel<K>::type;
  P s{}, ss{};
  table[0] = Entry<P>{s, ss};
  for (int x = 0; x < width; ++x) {
    P r;
    load(r, pixels + x * K);
    table[x + 1] = Entry<P>{s, ss};
    ss = ss + s + 0.5 * r;
    s = s + r;
  }
  table[width + 1] = Entry<P>{s, ss};
  table[width + 2] = Entry<P>{s, ss + s};
}

// Sums over the pieces of an edge: the integrals of S dy, of R dt and of t R dt, R the picture.
template <typename P> struct EdgeSums {
  P value, plain, tilted;
};

// Adds the part of an edge inside one row, x from p to q.
template <typename P>
INLINE void add_piece(const Piece& piece, double dy, const Entry<P>* table, int width,
                      EdgeSums<P>& sums) {
  const double p = piece.p, q = piece.q, span = q - p;
  const int i = pixel_of(p, width), j = pixel_of(q, width);
  const Entry<P>* at_p = table + i + 1;
  const Entry<P>* at_q = table + j + 1;
  const P r_p = at_p[1].s - at_p[0].s, r_q = at_q[1].s - at_q[0].s;
  // The means of S and R over the piece, and the integral of (x - p) R dx / span^2.
  P mean_s, mean_r, tilt;
  if (i == j) {
    // One pixel: S is linear, so its mean is its value in the middle.
    mean_s = at_p[0].s + (0.5 * (p + q) - i) * r_p;
    mean_r = r_p;
    tilt = 0.5 * r_p;
  } else if (i - j == 1 || j - i == 1) {
    // Two adjacent pixels: shares alpha and beta of the piece lie on either side of their border.
    // There is no difference of SS, hence no loss of digits however short the piece.
    const int border = std::max(i, j);
    const double alpha = (border - p) / span, beta = 1.0 - alpha;
    mean_s = table[border + 1].s + (0.5 * span) * (beta * beta * r_q - alpha * alpha * r_p);
    mean_r = alpha * r_p + beta * r_q;
    tilt = (0.5 * beta * beta + alpha * beta) * r_q + (0.5 * alpha * alpha) * r_p;
  } else {
    // More pixels: differences of S and SS between p and q; the tilt follows by parts.
    const double inverse = 1.0 / span, f = p - i, g = q - j;
    const P s_p = at_p[0].s + f * r_p, s_q = at_q[0].s + g * r_q;
    const P ss_p = at_p[0].ss + f * at_p[0].s + (0.5 * f * f) * r_p;
    const P ss_q = at_q[0].ss + g * at_q[0].s + (0.5 * g * g) * r_q;
    mean_s = (ss_q - ss_p) * inverse;
    mean_r = (s_q - s_p) * inverse;
    tilt = (s_q - mean_s) * inverse;
  }
  sums.value = sums.value + (piece.dt * dy) * mean_s;
  sums.plain = sums.plain + piece.dt * mean_r;
  sums.tilted = sums.tilted + (piece.t0 * piece.dt) * mean_r + (piece.dt * piece.dt) * tilt;
}

// Adds all rows that an edge crosses from border to border. Their pieces have the same length, and
// sums of S and SS at their ends are all that is needed. Differences of SS keep their digits while
// the pieces are not too short; see FEWEST_PIXELS.
template <typename P>
INLINE void add_whole_rows(const Edge& e, int first, int last, const Entry<P>* table, int stride,
                           int width, EdgeSums<P>& sums) {
  const double dt = e.inverse, span = e.dx * dt;
  double t = (first - e.y0) * dt, p = e.x0 + t * e.dx;
  int i = pixel_of(p, width);
  P values{}, differences{}, ends{}, tilted{};
  for (int row = first; row <= last; ++row, table += stride) {
    const double q = e.x0 + (t + dt) * e.dx;
    const int j = pixel_of(q, width);
    const Entry<P>* at_p = table + i + 1;
    const Entry<P>* at_q = table + j + 1;
    const double f = p - i, g = q - j;
    const P r_p = at_p[1].s - at_p[0].s, r_q = at_q[1].s - at_q[0].s;
    const P s_q = at_q[0].s + g * r_q, difference = s_q - (at_p[0].s + f * r_p);
    values = values + ((at_q[0].ss - at_p[0].ss) + g * (at_q[0].s + (0.5 * g) * r_q) -
                       f * (at_p[0].s + (0.5 * f) * r_p));
    differences = differences + difference;
    ends = ends + s_q;
    tilted = tilted + t * difference;
    t = (row + 1 - e.y0) * dt;
    p = q;
    i = j;
  }
  const double inverse = 1.0 / span;
  const P mean_s = inverse * values;
  sums.value = sums.value + mean_s;
  sums.plain = sums.plain + (dt * inverse) * differences;
  sums.tilted = sums.tilted + (dt * inverse) * tilted + (dt * dt * inverse) * (ends - mean_s);
}

// Minimum length of a piece, in pixels, for `add_whole_rows`. Its differences of SS lose
// 1e-11 / FEWEST_PIXELS^2 of the gradient, which does not matter in single precision. In double
// precision every piece is computed separately.
template <typename T> constexpr double FEWEST_PIXELS = 1e300;
template <> constexpr double FEWEST_PIXELS<float> = 0.02;

// Sums of one triangle over the bands of a group: the integral of the picture, and for each edge
// the integrals of R dt and of t R dt, times the triangle's colour.
template <typename P> struct Gathered {
  P value;
  double plain[3], tilted[3];
};

// Gathers for all triangles from the bands group, group + GROUPS, ... of the picture.
template <int K, typename T>
INLINE void gather_group_inlined(int group, const T* picture, int height, int width,
                                 const Triangle* triangles, const typename Pixel<K>::type* colours,
                                 int64_t m, Entry<typename Pixel<K>::type>* tables,
                                 Gathered<typename Pixel<K>::type>* gathered) {
  using P = typename Pixel<K>::type;
  const int stride = width + 3;
  std::memset(static_cast<void*>(gathered), 0, m * sizeof(Gathered<P>));
  for (int top = group * BAND; top < height; top += GROUPS * BAND) {
    const int bottom = std::min(top + BAND, height) - 1;
    for (int row = top; row <= bottom; ++row)
      integrate_row<K>(picture + static_cast<int64_t>(row) * width * K, width,
                       tables + (row - top) * stride);
    for (int64_t r = 0; r < m; ++r) {
      const Triangle& triangle = triangles[r];
      if (triangle.last < top || triangle.first > bottom) continue;
      Gathered<P>& found = gathered[r];
      for (int v = 0; v < 3; ++v) {
        const Edge& e = triangle.edges[v];
        int first = std::max(e.first, top), last = std::min(e.last, bottom);
        if (first > last) continue;
        EdgeSums<P> sums{};
        if (std::abs(e.dx) > FEWEST_PIXELS<T> * e.dy) {
          // The rows that hold an end of the edge separately, all others together.
          if (first == e.first) {
            add_piece<P>(piece_of(e, first), e.dy, tables + (first - top) * stride, width, sums);
            ++first;
          }
          if (last == e.last && first <= last) {
            add_piece<P>(piece_of(e, last), e.dy, tables + (last - top) * stride, width, sums);
            --last;
          }
          if (first <= last)
            add_whole_rows<P>(e, first, last, tables + (first - top) * stride, stride, width, sums);
        } else {
          for (int row = first; row <= last; ++row)
            add_piece<P>(piece_of(e, row), e.dy, tables + (row - top) * stride, width, sums);
        }
        found.value = found.value + e.sign * sums.value;
        found.plain[v] += dot(colours[r], sums.plain);
        found.tilted[v] += dot(colours[r], sums.tilted);
      }
    }
  }
}

// One multiversioned function for each number of channels and each precision.
#define GATHER_GROUP(NAME, K, T)                                                              \
  MULTIVERSION void NAME(int group, const T* picture, int height, int width,                  \
                         const Triangle* triangles, const Pixel<K>::type* colours, int64_t m, \
                         Entry<Pixel<K>::type>* tables, Gathered<Pixel<K>::type>* gathered) { \
    gather_group_inlined<K, T>(group, picture, height, width, triangles, colours, m, tables,  \
                               gathered);                                                     \
  }
GATHER_GROUP(gather_group_1f, 1, float)
GATHER_GROUP(gather_group_1d, 1, double)
GATHER_GROUP(gather_group_3f, 3, float)
GATHER_GROUP(gather_group_3d, 3, double)
template <int K, typename T> constexpr auto gather_group();
template <> constexpr auto gather_group<1, float>() { return gather_group_1f; }
template <> constexpr auto gather_group<1, double>() { return gather_group_1d; }
template <> constexpr auto gather_group<3, float>() { return gather_group_3f; }
template <> constexpr auto gather_group<3, double>() { return gather_group_3d; }

template <int K, typename T>
void gather(ffi::ThreadPool& pool, const T* corners, const T* colours, const T* picture, int64_t m,
            int height, int width, T* values, T* gradients) {
  using P = typename Pixel<K>::type;
  const std::vector<Triangle> triangles = prepare_all(corners, m, height);
  const Room<P> padded = padded_colours<K>(colours, m);
  const int groups = std::min(GROUPS, (height + BAND - 1) / BAND);
  const Room<Gathered<P>> gathered(static_cast<size_t>(groups) * m);
  parallel(pool, groups, [&](int group) {
    const Room<Entry<P>> tables(static_cast<size_t>(BAND) * (width + 3));
    gather_group<K, T>()(group, picture, height, width, triangles.data(), padded.get(), m,
                         tables.get(), gathered.get() + group * m);
  });
  for (int64_t r = 0; r < m; ++r) {
    // Always in the order of the groups, whichever thread has worked on them.
    Gathered<P> total{};
    for (int group = 0; group < groups; ++group) {
      const Gathered<P>& part = gathered.get()[group * m + r];
      total.value = total.value + part.value;
      for (int v = 0; v < 3; ++v) {
        total.plain[v] += part.plain[v];
        total.tilted[v] += part.tilted[v];
      }
    }
    // Moving one end of an edge moves its points in proportion to t, or to 1 - t, and sweeps area
    // along the normal (dy, -dx).
    double gradient[6] = {0, 0, 0, 0, 0, 0};
    for (int v = 0; v < 3; ++v) {
      const Edge& e = triangles[r].edges[v];
      const double at_low = e.sign * (total.plain[v] - total.tilted[v]),
                   at_high = e.sign * total.tilted[v];
      gradient[2 * e.low] += e.dy * at_low;
      gradient[2 * e.low + 1] -= e.dx * at_low;
      gradient[2 * e.high] += e.dy * at_high;
      gradient[2 * e.high + 1] -= e.dx * at_high;
    }
    store(total.value, values + K * r);
    for (int c = 0; c < 6; ++c) gradients[6 * r + c] = static_cast<T>(gradient[c]);
  }
}

template <typename T>
ffi::Error gather_any(ffi::ThreadPool& pool, ffi::AnyBuffer& corners, ffi::AnyBuffer& colours,
                      ffi::AnyBuffer& picture, ffi::Result<ffi::AnyBuffer>& values,
                      ffi::Result<ffi::AnyBuffer>& gradients) {
  const auto size = picture.dimensions();
  auto run = size[2] == 1 ? gather<1, T> : gather<3, T>;
  run(pool, corners.typed_data<T>(), colours.typed_data<T>(), picture.typed_data<T>(),
      corners.dimensions()[0], static_cast<int>(size[0]), static_cast<int>(size[1]),
      values->typed_data<T>(), gradients->typed_data<T>());
  return ffi::Error::Success();
}

ffi::Error Gather(ffi::ThreadPool pool, ffi::AnyBuffer corners, ffi::AnyBuffer colours,
                  ffi::AnyBuffer picture, ffi::Result<ffi::AnyBuffer> values,
                  ffi::Result<ffi::AnyBuffer> gradients) {
  const auto size = picture.dimensions();
  if (size.size() != 3 || (size[2] != 1 && size[2] != 3))
    return wrong("triangles: the picture must be (height, width, 1 or 3)");
  if (corners.dimensions().size() != 2 || corners.dimensions()[1] != 6)
    return wrong("triangles: the corners must be (m, 6)");
  if (colours.dimensions().size() != 2 || colours.dimensions()[1] != size[2])
    return wrong("triangles: the colours must be (m, channels)");
  switch (corners.element_type()) {
    case ffi::F32: return gather_any<float>(pool, corners, colours, picture, values, gradients);
    case ffi::F64: return gather_any<double>(pool, corners, colours, picture, values, gradients);
    default: return wrong("triangles: the numbers must be float32 or float64");
  }
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    entroplay_triangles_gather, Gather,
    ffi::Ffi::Bind()
        .Ctx<ffi::ThreadPool>()
        .Arg<ffi::AnyBuffer>()    // corners (m, 6), in pixels
        .Arg<ffi::AnyBuffer>()    // colours (m, channels)
        .Arg<ffi::AnyBuffer>()    // picture (height, width, channels)
        .Ret<ffi::AnyBuffer>()    // integral over each triangle (m, channels)
        .Ret<ffi::AnyBuffer>());  // gradient of <colour, integral> (m, 6)

}  // namespace entroplay
