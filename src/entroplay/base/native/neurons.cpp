// Potential and pull of hidden neurons f(w.x) under a dual vector v, where f is tanh or the
// positive part: the sums over all rows of v_k f(w.x), and of (a.v) f'(w.x) x.
//
// Rows are taken in blocks that stay in the fastest cache, column by column: every step is a
// product of whole vectors. One thread works on a particle from its first row to its last: the
// results depend neither on the number of threads nor on the other particles.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "pixel.h"
#include "pool.h"

namespace entroplay {
namespace {

constexpr int LANES = 8, UNROLLED = 4;
constexpr int BLOCK = 16 * LANES;       // maximum number of rows in a block
constexpr int STEP = UNROLLED * LANES;  // the number of rows in a block is a multiple of this
constexpr int PORTION = 16;             // number of particles that a thread takes at once
typedef float Lanes __attribute__((vector_size(4 * LANES)));

// tanh to six units in the last place, as z P(z^2) / Q(z^2) up to |z| = 9, where it is 1 in single
// precision. The coefficients minimise the largest relative error, 2e-8. NaN stays NaN.
INLINE Lanes hyperbolic_tangent(Lanes z) {
  const Lanes limit = Lanes{} + 9.0f;
  z = z > limit ? limit : z;
  z = z < -limit ? -limit : z;
  const Lanes s = z * z;
  const Lanes p =
      (((1.335323940310218e-08f * s + 2.0608067643479444e-05f) * s + 0.003495527897030115f) * s +
       0.13380976021289825f) * s + 1.0f;
  const Lanes q =
      (((7.775978474455769e-07f * s + 0.0003285535203758627f) * s + 0.025876754894852638f) * s +
       0.46714290976524353f) * s + 1.0f;
  return z * p / q;
}

// max(z, 0), where NaN stays NaN.
INLINE Lanes positive_part(Lanes z) { return z < 0.0f ? Lanes{} : z; }

// One number per row of a block, for two particles: they share every load of a column.
struct Pair {
  Lanes of[2][BLOCK / LANES];
};

// sums = sum_j factors[j] columns[j], for both particles of a pair.
INLINE void combine(const float* const factors[2], const Lanes* columns, int count, int vectors,
                    Pair& sums) {
  for (int i = 0; i < vectors; i += UNROLLED) {
    Lanes one[UNROLLED] = {}, two[UNROLLED] = {};
    for (int j = 0; j < count; ++j)
      for (int u = 0; u < UNROLLED; ++u) {
        const Lanes column = columns[j * vectors + i + u];
        one[u] += factors[0][j] * column;
        two[u] += factors[1][j] * column;
      }
    for (int u = 0; u < UNROLLED; ++u) {
      sums.of[0][i + u] = one[u];
      sums.of[1][i + u] = two[u];
    }
  }
}

// The sum over the lanes.
INLINE float total(Lanes x) {
  float sum = 0;
  for (int lane = 0; lane < LANES; ++lane) sum += x[lane];
  return sum;
}

// products[j] += <vector, columns[j]> for W columns from j on and both particles of a pair.
template <int W>
INLINE void project_some(const Pair& vector, const Lanes* columns, int vectors, int j,
                         double* const products[2]) {
  Lanes one[W] = {}, two[W] = {};
  for (int i = 0; i < vectors; ++i)
    for (int u = 0; u < W; ++u) {
      const Lanes column = columns[(j + u) * vectors + i];
      one[u] += vector.of[0][i] * column;
      two[u] += vector.of[1][i] * column;
    }
  for (int u = 0; u < W; ++u) {
    products[0][j + u] += total(one[u]);
    products[1][j + u] += total(two[u]);
  }
}

// products[j] += <vector, columns[j]> for all columns.
INLINE void project(const Pair& vector, const Lanes* columns, int count, int vectors,
                    double* const products[2]) {
  int j = 0;
  for (; j + UNROLLED <= count; j += UNROLLED)
    project_some<UNROLLED>(vector, columns, vectors, j, products);
  for (; j < count; ++j) project_some<1>(vector, columns, vectors, j, products);
}

// n, rounded up to whole steps.
int64_t whole_steps(int64_t n) { return (n + STEP - 1) / STEP * STEP; }

// The columns, block by block: (n, count) -> (count, BLOCK) for each block, with zeros after the
// last row.
Room<Lanes> in_blocks(const float* rows, int64_t n, int count) {
  const int64_t padded = whole_steps(n);
  Room<Lanes> room(static_cast<size_t>(padded) * count / LANES);
  float* to = reinterpret_cast<float*>(room.get());
  std::memset(to, 0, sizeof(float) * padded * count);
  for (int64_t first = 0; first < n; first += BLOCK) {
    const int64_t length = std::min<int64_t>(BLOCK, padded - first),
                  given = std::min<int64_t>(BLOCK, n - first);
    for (int64_t i = 0; i < given; ++i)
      for (int j = 0; j < count; ++j)
        to[first * count + j * length + i] = rows[(first + i) * count + j];
  }
  return room;
}

// The arguments and results of the kernel.
struct Neurons {
  const float* inner;  // (m, p)
  const float* outer;  // (m, k)
  const Lanes* rows;   // x (n, p) and v (n, k), in blocks
  const Lanes* vector;
  int64_t m, n;  // n in whole steps
  int p, k;
  bool rectified;  // the positive part instead of tanh
  float* slopes;   // (m, p), or null if they are not wanted
  float* values;   // (m, k)
};

// Works on particles first ... last - 1. Blocks of rows are summed in double precision.
MULTIVERSION void pull_portion(const Neurons& all, int64_t first, int64_t last) {
  const int p = all.p, k = all.k;
  const Room<double> sums(static_cast<size_t>(last - first) * (p + k));
  std::memset(sums.get(), 0, sizeof(double) * (last - first) * (p + k));
  Pair hidden, pulled;
  const Room<double> unused(p + k);  // written to, but never read
  for (int64_t row = 0; row < all.n; row += BLOCK) {
    const int vectors = static_cast<int>(std::min<int64_t>(BLOCK, all.n - row) / LANES);
    const Lanes* rows = all.rows + row / LANES * p;
    const Lanes* vector = all.vector + row / LANES * k;
    for (int64_t r = first; r < last; r += 2) {
      // The last of an odd number of particles is paired with itself.
      const int64_t other = std::min(r + 1, last - 1);
      const float* const inner[2] = {all.inner + r * p, all.inner + other * p};
      const float* const outer[2] = {all.outer + r * k, all.outer + other * k};
      double* const slopes[2] = {
          sums.get() + (r - first) * (p + k),
          other == r ? unused.get() : sums.get() + (other - first) * (p + k)};
      double* const values[2] = {slopes[0] + p, slopes[1] + p};
      // hidden = f(w.x), and values += sum_i v_i f(w.x_i).
      combine(inner, rows, p, vectors, hidden);
      for (auto& one : hidden.of)
        if (all.rectified)
          for (int i = 0; i < vectors; ++i) one[i] = positive_part(one[i]);
        else
          for (int i = 0; i < vectors; ++i) one[i] = hyperbolic_tangent(one[i]);
      project(hidden, vector, k, vectors, values);
      if (all.slopes == nullptr) continue;
      // pulled = (a.v) f'(w.x), with f' = 1 - f^2 for tanh, and slopes += sum_i pulled_i x_i.
      combine(outer, vector, k, vectors, pulled);
      for (int both = 0; both < 2; ++both)
        if (all.rectified)
          for (int i = 0; i < vectors; ++i)
            pulled.of[both][i] = hidden.of[both][i] > 0.0f ? pulled.of[both][i] : Lanes{};
        else
          for (int i = 0; i < vectors; ++i)
            pulled.of[both][i] *= 1.0f - hidden.of[both][i] * hidden.of[both][i];
      project(pulled, rows, p, vectors, slopes);
    }
  }
  for (int64_t r = first; r < last; ++r) {
    const double* sum = sums.get() + (r - first) * (p + k);
    if (all.slopes != nullptr)
      for (int j = 0; j < p; ++j) all.slopes[r * p + j] = static_cast<float>(sum[j]);
    for (int j = 0; j < k; ++j) all.values[r * k + j] = static_cast<float>(sum[p + j]);
  }
}

ffi::Error Pull(ffi::ThreadPool pool, ffi::Buffer<ffi::F32> inner, ffi::Buffer<ffi::F32> outer,
                ffi::Buffer<ffi::F32> rows, ffi::Buffer<ffi::F32> vector, bool rectified,
                ffi::Result<ffi::Buffer<ffi::F32>> slopes,
                ffi::Result<ffi::Buffer<ffi::F32>> values) {
  if (inner.dimensions().size() != 2 || outer.dimensions().size() != 2 ||
      rows.dimensions().size() != 2 || vector.dimensions().size() != 2)
    return wrong("neurons: all arrays must be matrices");
  const int64_t m = inner.dimensions()[0], n = rows.dimensions()[0];
  const int p = static_cast<int>(inner.dimensions()[1]),
            k = static_cast<int>(outer.dimensions()[1]);
  if (rows.dimensions()[1] != p || vector.dimensions()[1] != k || vector.dimensions()[0] != n ||
      outer.dimensions()[0] != m)
    return wrong("neurons: the shapes must be (m, p), (m, k), (n, p), (n, k)");
  const Room<Lanes> blocked_rows = in_blocks(rows.typed_data(), n, p),
                    blocked_vector = in_blocks(vector.typed_data(), n, k);
  const bool sloped = slopes->dimensions()[1] == p;
  const Neurons all{inner.typed_data(),
                    outer.typed_data(),
                    blocked_rows.get(),
                    blocked_vector.get(),
                    m,
                    whole_steps(n),
                    p,
                    k,
                    rectified,
                    sloped ? slopes->typed_data() : nullptr,
                    values->typed_data()};
  const int portions = static_cast<int>((m + PORTION - 1) / PORTION);
  parallel(pool, portions, [&](int portion) {
    pull_portion(all, static_cast<int64_t>(portion) * PORTION,
                 std::min<int64_t>(m, static_cast<int64_t>(portion + 1) * PORTION));
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    entroplay_neurons_pull, Pull,
    ffi::Ffi::Bind()
        .Ctx<ffi::ThreadPool>()
        .Arg<ffi::Buffer<ffi::F32>>()  // inner weights w (m, p)
        .Arg<ffi::Buffer<ffi::F32>>()  // outer weights a (m, k)
        .Arg<ffi::Buffer<ffi::F32>>()  // rows x (n, p)
        .Arg<ffi::Buffer<ffi::F32>>()  // vector v (n, k)
        .Attr<bool>("rectified")
        .Ret<ffi::Buffer<ffi::F32>>()    // sum_i (a.v_i) f'(w.x_i) x_i (m, p), or (m, 0)
        .Ret<ffi::Buffer<ffi::F32>>());  // sum_i v_i f(w.x_i) (m, k)

}  // namespace entroplay
