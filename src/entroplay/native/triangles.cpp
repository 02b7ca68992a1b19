// Triangles with exact area coverage: the mean picture, and the gradient of <picture, triangle> in every triangle.
//
// By Green's theorem the integral of a picture over a triangle is a sum over its three edges of integrals of S dy, where S is
// the picture's running integral along a row. On the part of an edge inside one row, S and its own integral SS give that in
// closed form, and the gradient too: O(width + height) work per triangle, whatever its area.
//
// Rows are worked in bands whose tables stay in cache. Bands belong to a fixed number of groups, threads take group after
// group, and sums over groups are formed in a fixed order: the numbers do not depend on the number of threads.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

// One binary for all processors of a kind: the better version is chosen when the library is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ENTROPLAY_PLAIN)
#define MULTIVERSION __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define MULTIVERSION
#endif
#define INLINE static inline __attribute__((always_inline))

namespace {

constexpr int BAND = 16;    // rows whose tables are built and used at once
constexpr int GROUPS = 16;  // portions of work, whatever the number of threads

// All channels of a pixel: three are padded to four, the width of a vector register.
typedef double Colour4 __attribute__((vector_size(32)));
typedef double Colour1;

template <int K> struct Pixel;
template <> struct Pixel<1> { using type = Colour1; };
template <> struct Pixel<3> { using type = Colour4; };

INLINE void load(Colour1& to, const double* from) { to = from[0]; }
INLINE void load(Colour4& to, const double* from) { to = Colour4{from[0], from[1], from[2], 0.0}; }
INLINE void load(Colour1& to, const float* from) { to = from[0]; }
INLINE void load(Colour4& to, const float* from) { to = Colour4{from[0], from[1], from[2], 0.0}; }
template <typename T> INLINE void store(const Colour1& from, T* to) { to[0] = static_cast<T>(from); }
template <typename T> INLINE void store(const Colour4& from, T* to) {
  for (int c = 0; c < 3; ++c) to[c] = static_cast<T>(from[c]);
}
// Room for `count` items, aligned to cache lines. (std::vector was seen to ignore the alignment of vectors inside XLA's process.)
template <typename T> class Room {
 public:
  explicit Room(size_t count) : data_(static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 63) / 64 * 64))) {
    if (data_ == nullptr) throw std::bad_alloc();
  }
  T* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
};

INLINE double dot(Colour1 a, Colour1 b) { return a * b; }
INLINE double dot(const Colour4& a, const Colour4& b) {
  Colour4 product = a * b;
  return product[0] + product[1] + product[2];
}

// An edge that runs upwards in y: x = x0 + t dx, y = y0 + t dy with dy >= 0 and t from 0 to 1.
struct Edge {
  double x0, y0, dx, dy;
  double inverse;   // 1 / dy; for a horizontal edge, which lies in one row as a whole, large enough to find that row
  double sign;      // of the edge's own direction times that of the triangle: +-1
  int first, last;  // the rows of the canvas that it crosses; last < first where there are none
  int low, high;    // which corners of the triangle it connects
};

struct Triangle {
  Edge edges[3];
  int first, last;
};

template <typename T> void prepare(const T* corners, int64_t height, Triangle& triangle) {
  double x[3], y[3];
  for (int v = 0; v < 3; ++v) {
    x[v] = corners[2 * v];
    y[v] = corners[2 * v + 1];
  }
  double area = (x[1] - x[0]) * (y[2] - y[0]) - (x[2] - x[0]) * (y[1] - y[0]);
  double orientation = area < 0 ? -1.0 : 1.0;  // a collapsed triangle counts as positive, or it could never move
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
    e = Edge{x[a], y[a], x[b] - x[a], y[b] - y[a], 1.0 / std::max(y[b] - y[a], 1e-300), sign, 0, -1, a, b};
    bool finite = std::isfinite(e.x0) && std::isfinite(e.y0) && std::isfinite(e.dx) && std::isfinite(e.dy);
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

// Pixel -1 stands for all that is left of the canvas, pixel `width` for all that is right of it.
INLINE int pixel_of(double x, int width) {
  double clamped = std::min(std::max(x, -1.0), static_cast<double>(width));
  return static_cast<int>(clamped + 1.0) - 1;
}

// S and SS at the left border of a pixel.
template <typename P> struct Entry {
  P s, ss;
};

// The tables of one row, for pixels -1 ... width + 1.
template <int K, typename T> INLINE void integrate_row(const T* pixels, int width, Entry<typename Pixel<K>::type>* table) {
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

// Sums over the pieces of an edge: the integral of S dy, and of R dt and t R dt.
template <typename P> struct EdgeSums {
  P value, plain, tilted;
};

template <typename P>
INLINE void add_piece(const Piece& piece, double dy, const Entry<P>* table, int width, EdgeSums<P>& sums) {
  const double p = piece.p, q = piece.q, span = q - p;
  const int i = pixel_of(p, width), j = pixel_of(q, width);
  const Entry<P>* at_p = table + i + 1;
  const Entry<P>* at_q = table + j + 1;
  const P r_p = at_p[1].s - at_p[0].s, r_q = at_q[1].s - at_q[0].s;
  P mean_s, mean_r, tilt;  // of S and R over the piece, and the integral of (x - p) R dx / span^2
  if (i == j) {
    mean_s = at_p[0].s + (0.5 * (p + q) - i) * r_p;
    mean_r = r_p;
    tilt = 0.5 * r_p;
  } else if (i - j == 1 || j - i == 1) {
    // Two pixels with a border between them: no difference of SS, hence no loss of digits however short the piece.
    const int border = std::max(i, j);
    const double alpha = (border - p) / span, beta = 1.0 - alpha;
    mean_s = table[border + 1].s + (0.5 * span) * (beta * beta * r_q - alpha * alpha * r_p);
    mean_r = alpha * r_p + beta * r_q;
    tilt = (0.5 * beta * beta + alpha * beta) * r_q + (0.5 * alpha * alpha) * r_p;
  } else {
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

// All rows of an edge that it crosses from border to border: every piece has the same length, so that sums of S and SS at its
// ends are all that is needed. Differences of SS keep their digits while the pieces are not too short; see FEWEST_PIXELS.
template <typename P>
INLINE void add_whole_rows(const Edge& e, int first, int last, const Entry<P>* table, int stride, int width, EdgeSums<P>& sums) {
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
    values = values + ((at_q[0].ss - at_p[0].ss) + g * (at_q[0].s + (0.5 * g) * r_q) - f * (at_p[0].s + (0.5 * f) * r_p));
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

// The shortest pieces, in pixels, for which differences of SS serve: they lose 1e-11 / FEWEST^2 of the gradient's digits, which
// single precision does not notice. In double precision every piece is worked by itself.
template <typename T> constexpr double FEWEST_PIXELS = 1e300;
template <> constexpr double FEWEST_PIXELS<float> = 0.02;

// What a triangle collects from the bands of a group: for each edge the integrals of R dt and t R dt, times its colour.
template <typename P> struct Gathered {
  P value;
  double plain[3], tilted[3];
};

template <int K, typename T>
INLINE void gather_group_inlined(int group, const T* picture, int height, int width, const Triangle* triangles,
                                 const typename Pixel<K>::type* colours, int64_t m, Entry<typename Pixel<K>::type>* tables,
                                 Gathered<typename Pixel<K>::type>* gathered) {
  using P = typename Pixel<K>::type;
  const int stride = width + 3;
  std::memset(static_cast<void*>(gathered), 0, m * sizeof(Gathered<P>));
  for (int top = group * BAND; top < height; top += GROUPS * BAND) {
    const int bottom = std::min(top + BAND, height) - 1;
    for (int row = top; row <= bottom; ++row)
      integrate_row<K>(picture + static_cast<int64_t>(row) * width * K, width, tables + (row - top) * stride);
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
          // The rows where an end of the edge lies by themselves, all others together.
          if (first == e.first) {
            add_piece<P>(piece_of(e, first), e.dy, tables + (first - top) * stride, width, sums);
            ++first;
          }
          if (last == e.last && first <= last) {
            add_piece<P>(piece_of(e, last), e.dy, tables + (last - top) * stride, width, sums);
            --last;
          }
          if (first <= last) add_whole_rows<P>(e, first, last, tables + (first - top) * stride, stride, width, sums);
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

#define GATHER_GROUP(NAME, K, T)                                                                                       \
  MULTIVERSION void NAME(int group, const T* picture, int height, int width, const Triangle* triangles,                \
                         const Pixel<K>::type* colours, int64_t m, Entry<Pixel<K>::type>* tables,                      \
                         Gathered<Pixel<K>::type>* gathered) {                                                         \
    gather_group_inlined<K, T>(group, picture, height, width, triangles, colours, m, tables, gathered);                \
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

// Differences along a row whose running sum is the area to the right of a piece, as in scan conversion of fonts.
template <typename P> INLINE void deposit_piece(const Piece& piece, double dy, int width, const P& colour, P* row) {
  double left = std::min(piece.p, piece.q), right = std::max(piece.p, piece.q), height = piece.dt * dy;
  if (left < 0 || right > width) {
    // The parts beyond the canvas's sides: left of it the whole row lies to the right, right of it nothing does.
    const double limit = width, span = right - left, inner_left = std::min(std::max(left, 0.0), limit);
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
  if (i == j) {
    const double mean = 0.5 * (f + g);
    row[i] = row[i] + (1 - mean) * weight;
    row[i + 1] = row[i + 1] + mean * weight;
    return;
  }
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

template <int K, typename T>
INLINE void deposit_group_inlined(int group, const Triangle* triangles, const typename Pixel<K>::type* colours, int64_t m,
                                  int height, int width, typename Pixel<K>::type* rows, T* picture) {
  using P = typename Pixel<K>::type;
  const int stride = width + 2;
  for (int top = group * BAND; top < height; top += GROUPS * BAND) {
    const int bottom = std::min(top + BAND, height) - 1;
    std::fill(rows, rows + static_cast<int64_t>(BAND) * stride, P{});
    for (int64_t r = 0; r < m; ++r) {
      const Triangle& triangle = triangles[r];
      if (triangle.last < top || triangle.first > bottom) continue;
      for (int v = 0; v < 3; ++v) {
        const Edge& e = triangle.edges[v];
        const int first = std::max(e.first, top), last = std::min(e.last, bottom);
        // The area right of an edge that runs upwards is missing from a positive triangle: hence the minus.
        const P colour = -e.sign * colours[r];
        for (int row = first; row <= last; ++row)
          deposit_piece<P>(piece_of(e, row), e.dy, width, colour, rows + (row - top) * stride);
      }
    }
    for (int row = top; row <= bottom; ++row) {
      P sum{};
      T* out = picture + static_cast<int64_t>(row) * width * K;
      for (int x = 0; x < width; ++x) {
        sum = sum + rows[(row - top) * stride + x];
        store(sum, out + x * K);
      }
    }
  }
}

#define DEPOSIT_GROUP(NAME, K, T)                                                                                      \
  MULTIVERSION void NAME(int group, const Triangle* triangles, const Pixel<K>::type* colours, int64_t m, int height,   \
                         int width, Pixel<K>::type* rows, T* picture) {                                                \
    deposit_group_inlined<K, T>(group, triangles, colours, m, height, width, rows, picture);                           \
  }
DEPOSIT_GROUP(deposit_group_1f, 1, float)
DEPOSIT_GROUP(deposit_group_1d, 1, double)
DEPOSIT_GROUP(deposit_group_3f, 3, float)
DEPOSIT_GROUP(deposit_group_3d, 3, double)
template <int K, typename T> constexpr auto deposit_group();
template <> constexpr auto deposit_group<1, float>() { return deposit_group_1f; }
template <> constexpr auto deposit_group<1, double>() { return deposit_group_1d; }
template <> constexpr auto deposit_group<3, float>() { return deposit_group_3f; }
template <> constexpr auto deposit_group<3, double>() { return deposit_group_3d; }

// Runs work(0), ..., work(count - 1) on the threads of XLA's pool and on this one. Helpers that come late find nothing to do,
// so that a pool that is busy elsewhere costs time but never the result.
void parallel(ffi::ThreadPool& pool, int count, const std::function<void(int)>& work) {
  struct Shared {
    std::atomic<int> next{0};
    int done = 0;
    std::mutex mutex;
    std::condition_variable all_done;
  };
  auto shared = std::make_shared<Shared>();
  const std::function<void(int)>* job = &work;  // used only for numbers below count, all of which end before this returns
  auto help = [shared, job, count]() {
    for (int i = shared->next++; i < count; i = shared->next++) {
      (*job)(i);
      std::lock_guard<std::mutex> lock(shared->mutex);
      if (++shared->done == count) shared->all_done.notify_all();
    }
  };
  const int64_t helpers = std::min<int64_t>(pool.num_threads() - 1, count - 1);
  for (int64_t i = 0; i < helpers; ++i) pool.Schedule(std::function<void()>(help));
  help();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->all_done.wait(lock, [&] { return shared->done == count; });
}

template <int K, typename T> Room<typename Pixel<K>::type> padded_colours(const T* colours, int64_t m) {
  Room<typename Pixel<K>::type> padded(m);
  for (int64_t r = 0; r < m; ++r) load(padded.get()[r], colours + K * r);
  return padded;
}

template <typename T> std::vector<Triangle> prepare_all(const T* corners, int64_t m, int64_t height) {
  std::vector<Triangle> triangles(m);
  for (int64_t r = 0; r < m; ++r) prepare(corners + 6 * r, height, triangles[r]);
  return triangles;
}

template <int K, typename T>
void gather(ffi::ThreadPool& pool, const T* corners, const T* colours, const T* picture, int64_t m, int height, int width,
            T* values, T* gradients) {
  using P = typename Pixel<K>::type;
  const std::vector<Triangle> triangles = prepare_all(corners, m, height);
  const Room<P> padded = padded_colours<K>(colours, m);
  const int groups = std::min(GROUPS, (height + BAND - 1) / BAND);
  const Room<Gathered<P>> gathered(static_cast<size_t>(groups) * m);
  parallel(pool, groups, [&](int group) {
    const Room<Entry<P>> tables(static_cast<size_t>(BAND) * (width + 3));
    gather_group<K, T>()(group, picture, height, width, triangles.data(), padded.get(), m, tables.get(), gathered.get() + group * m);
  });
  for (int64_t r = 0; r < m; ++r) {
    Gathered<P> total{};
    for (int group = 0; group < groups; ++group) {
      const Gathered<P>& part = gathered.get()[group * m + r];
      total.value = total.value + part.value;
      for (int v = 0; v < 3; ++v) {
        total.plain[v] += part.plain[v];
        total.tilted[v] += part.tilted[v];
      }
    }
    double gradient[6] = {0, 0, 0, 0, 0, 0};
    for (int v = 0; v < 3; ++v) {
      const Edge& e = triangles[r].edges[v];
      const double at_low = e.sign * (total.plain[v] - total.tilted[v]), at_high = e.sign * total.tilted[v];
      gradient[2 * e.low] += e.dy * at_low;
      gradient[2 * e.low + 1] -= e.dx * at_low;
      gradient[2 * e.high] += e.dy * at_high;
      gradient[2 * e.high + 1] -= e.dx * at_high;
    }
    store(total.value, values + K * r);
    for (int c = 0; c < 6; ++c) gradients[6 * r + c] = static_cast<T>(gradient[c]);
  }
}

template <int K, typename T>
void deposit(ffi::ThreadPool& pool, const T* corners, const T* colours, int64_t m, int height, int width, T* picture) {
  using P = typename Pixel<K>::type;
  const std::vector<Triangle> triangles = prepare_all(corners, m, height);
  const Room<P> padded = padded_colours<K>(colours, m);
  parallel(pool, std::min(GROUPS, (height + BAND - 1) / BAND), [&](int group) {
    const Room<P> rows(static_cast<size_t>(BAND) * (width + 2));
    deposit_group<K, T>()(group, triangles.data(), padded.get(), m, height, width, rows.get(), picture);
  });
}

// The coverage of one row by one triangle, from left to right: `pixel(x, coverage)` where an edge passes, and
// `run(begin, end, coverage)` where it stays the same. `row` has width + 2 zeros, before and afterwards.
template <typename OnPixel, typename OnRun>
INLINE void walk_row(const Triangle& triangle, int number, int width, double* row, const OnPixel& pixel, const OnRun& run) {
  int begin[3], end[3], count = 0;
  for (const Edge& e : triangle.edges) {
    if (number < e.first || number > e.last) continue;
    const Piece piece = piece_of(e, number);
    deposit_piece<double>(piece, e.dy, width, -e.sign, row);
    const int i = std::max(0, pixel_of(std::min(piece.p, piece.q), width));
    const int j = std::min(width, std::max(0, pixel_of(std::max(piece.p, piece.q), width)) + 2);
    int place = count++;
    for (; place > 0 && begin[place - 1] > i; --place) {
      begin[place] = begin[place - 1];
      end[place] = end[place - 1];
    }
    begin[place] = i;
    end[place] = j;
  }
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

// sum over pixels of weight times squared coverage, triangle by triangle.
template <typename T>
void square_norm(ffi::ThreadPool& pool, const T* corners, const T* weights, int64_t m, int height, int width, T* norms) {
  std::vector<double> before(static_cast<size_t>(height) * (width + 1));  // the weights left of each pixel, row by row
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      double* total = before.data() + static_cast<size_t>(y) * (width + 1) + x;
      total[1] = total[0] + weights[static_cast<size_t>(y) * width + x];
    }
  const int64_t portions = std::min<int64_t>(m, 64);
  parallel(pool, static_cast<int>(portions), [&](int portion) {
    std::vector<double> row(static_cast<size_t>(width) + 2);
    for (int64_t r = m * portion / portions; r < m * (portion + 1) / portions; ++r) {
      Triangle triangle;
      prepare(corners + 6 * r, height, triangle);
      double total = 0;
      for (int number = triangle.first; number <= triangle.last; ++number) {
        const double* weight = before.data() + static_cast<size_t>(number) * (width + 1);
        const auto run = [&](int begin, int end, double c) { total += (weight[end] - weight[begin]) * c * c; };
        walk_row(triangle, number, width, row.data(), [&](int x, double c) { run(x, x + 1, c); }, run);
      }
      norms[r] = static_cast<T>(total);
    }
  });
}

// sum over triangles of (q numbers of the triangle) times squared coverage, pixel by pixel.
template <typename T>
void deposit_squares(ffi::ThreadPool& pool, const T* corners, const T* numbers, int64_t m, int height, int width, int q, T* sums) {
  const std::vector<Triangle> triangles = prepare_all(corners, m, height);
  parallel(pool, height, [&](int number) {
    std::vector<double> row(static_cast<size_t>(width) + 2), single(static_cast<size_t>(width) * q);
    std::vector<double> lasting(static_cast<size_t>(width + 1) * q);  // noted where they begin and where they end to count
    for (int64_t r = 0; r < m; ++r) {
      if (triangles[r].last < number || triangles[r].first > number) continue;
      const T* own = numbers + r * q;
      const auto add = [&](std::vector<double>& table, int x, double factor) {
        for (int c = 0; c < q; ++c) table[static_cast<size_t>(x) * q + c] += factor * own[c];
      };
      walk_row(
          triangles[r], number, width, row.data(), [&](int x, double c) { add(single, x, c * c); },
          [&](int begin, int end, double c) {
            add(lasting, begin, c * c);
            add(lasting, end, -c * c);
          });
    }
    T* out = sums + static_cast<int64_t>(number) * width * q;
    for (int i = 0; i < width * q; ++i) {
      if (i >= q) lasting[i] += lasting[i - q];
      out[i] = static_cast<T>(single[i] + lasting[i]);
    }
  });
}

ffi::Error wrong(const char* what) { return ffi::Error(ffi::ErrorCode::kInvalidArgument, what); }

template <typename T>
ffi::Error gather_any(ffi::ThreadPool& pool, ffi::AnyBuffer& corners, ffi::AnyBuffer& colours, ffi::AnyBuffer& picture,
                      ffi::Result<ffi::AnyBuffer>& values, ffi::Result<ffi::AnyBuffer>& gradients) {
  const auto size = picture.dimensions();
  auto run = size[2] == 1 ? gather<1, T> : gather<3, T>;
  run(pool, corners.typed_data<T>(), colours.typed_data<T>(), picture.typed_data<T>(), corners.dimensions()[0],
      static_cast<int>(size[0]), static_cast<int>(size[1]), values->typed_data<T>(), gradients->typed_data<T>());
  return ffi::Error::Success();
}

ffi::Error Gather(ffi::ThreadPool pool, ffi::AnyBuffer corners, ffi::AnyBuffer colours, ffi::AnyBuffer picture,
                  ffi::Result<ffi::AnyBuffer> values, ffi::Result<ffi::AnyBuffer> gradients) {
  const auto size = picture.dimensions();
  if (size.size() != 3 || (size[2] != 1 && size[2] != 3)) return wrong("triangles: the picture must be (height, width, 1 or 3)");
  if (corners.dimensions().size() != 2 || corners.dimensions()[1] != 6) return wrong("triangles: the corners must be (m, 6)");
  if (colours.dimensions().size() != 2 || colours.dimensions()[1] != size[2]) return wrong("triangles: the colours must be (m, channels)");
  switch (corners.element_type()) {
    case ffi::F32: return gather_any<float>(pool, corners, colours, picture, values, gradients);
    case ffi::F64: return gather_any<double>(pool, corners, colours, picture, values, gradients);
    default: return wrong("triangles: the numbers must be float32 or float64");
  }
}

template <typename T>
ffi::Error deposit_any(ffi::ThreadPool& pool, ffi::AnyBuffer& corners, ffi::AnyBuffer& colours, ffi::Result<ffi::AnyBuffer>& picture) {
  const auto size = picture->dimensions();
  auto run = size[2] == 1 ? deposit<1, T> : deposit<3, T>;
  run(pool, corners.typed_data<T>(), colours.typed_data<T>(), corners.dimensions()[0], static_cast<int>(size[0]),
      static_cast<int>(size[1]), picture->typed_data<T>());
  return ffi::Error::Success();
}

ffi::Error Deposit(ffi::ThreadPool pool, ffi::AnyBuffer corners, ffi::AnyBuffer colours, ffi::Result<ffi::AnyBuffer> picture) {
  const auto size = picture->dimensions();
  if (size.size() != 3 || (size[2] != 1 && size[2] != 3)) return wrong("triangles: the picture must be (height, width, 1 or 3)");
  if (corners.dimensions().size() != 2 || corners.dimensions()[1] != 6) return wrong("triangles: the corners must be (m, 6)");
  if (colours.dimensions().size() != 2 || colours.dimensions()[1] != size[2]) return wrong("triangles: the colours must be (m, channels)");
  switch (corners.element_type()) {
    case ffi::F32: return deposit_any<float>(pool, corners, colours, picture);
    case ffi::F64: return deposit_any<double>(pool, corners, colours, picture);
    default: return wrong("triangles: the numbers must be float32 or float64");
  }
}

ffi::Error SquareNorm(ffi::ThreadPool pool, ffi::AnyBuffer corners, ffi::AnyBuffer weights, ffi::Result<ffi::AnyBuffer> norms) {
  const auto size = weights.dimensions();
  if (size.size() != 2) return wrong("triangles: the weights must be (height, width)");
  if (corners.dimensions().size() != 2 || corners.dimensions()[1] != 6) return wrong("triangles: the corners must be (m, 6)");
  const int64_t m = corners.dimensions()[0];
  const int h = static_cast<int>(size[0]), w = static_cast<int>(size[1]);
  switch (corners.element_type()) {
    case ffi::F32:
      square_norm(pool, corners.typed_data<float>(), weights.typed_data<float>(), m, h, w, norms->typed_data<float>());
      break;
    case ffi::F64:
      square_norm(pool, corners.typed_data<double>(), weights.typed_data<double>(), m, h, w, norms->typed_data<double>());
      break;
    default: return wrong("triangles: the numbers must be float32 or float64");
  }
  return ffi::Error::Success();
}

ffi::Error DepositSquares(ffi::ThreadPool pool, ffi::AnyBuffer corners, ffi::AnyBuffer numbers, ffi::Result<ffi::AnyBuffer> sums) {
  const auto size = sums->dimensions();
  if (corners.dimensions().size() != 2 || corners.dimensions()[1] != 6) return wrong("triangles: the corners must be (m, 6)");
  if (size.size() != 3 || numbers.dimensions().size() != 2 || numbers.dimensions()[1] != size[2]) return wrong("triangles: the numbers must be (m, q)");
  const int64_t m = corners.dimensions()[0];
  const int h = static_cast<int>(size[0]), w = static_cast<int>(size[1]), q = static_cast<int>(size[2]);
  switch (corners.element_type()) {
    case ffi::F32:
      deposit_squares(pool, corners.typed_data<float>(), numbers.typed_data<float>(), m, h, w, q, sums->typed_data<float>());
      break;
    case ffi::F64:
      deposit_squares(pool, corners.typed_data<double>(), numbers.typed_data<double>(), m, h, w, q, sums->typed_data<double>());
      break;
    default: return wrong("triangles: the numbers must be float32 or float64");
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(entroplay_triangles_gather, Gather,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()   // corners (m, 6), in pixels
                                  .Arg<ffi::AnyBuffer>()   // colours (m, channels)
                                  .Arg<ffi::AnyBuffer>()   // picture (height, width, channels)
                                  .Ret<ffi::AnyBuffer>()   // its integral over each triangle (m, channels)
                                  .Ret<ffi::AnyBuffer>()); // the gradient of <colour, integral> in the corners (m, 6)

XLA_FFI_DEFINE_HANDLER_SYMBOL(entroplay_triangles_deposit, Deposit,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()   // corners
                                  .Arg<ffi::AnyBuffer>()   // colours, times weights
                                  .Ret<ffi::AnyBuffer>()); // the sum of colour times coverage (height, width, channels)

XLA_FFI_DEFINE_HANDLER_SYMBOL(entroplay_triangles_square_norm, SquareNorm,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()   // corners
                                  .Arg<ffi::AnyBuffer>()   // weights (height, width)
                                  .Ret<ffi::AnyBuffer>()); // (m,)

XLA_FFI_DEFINE_HANDLER_SYMBOL(entroplay_triangles_deposit_squares, DepositSquares,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()   // corners
                                  .Arg<ffi::AnyBuffer>()   // numbers (m, q)
                                  .Ret<ffi::AnyBuffer>()); // (height, width, q)
