// Sums of squared coverage, over pixels and over triangles. The work per triangle is proportional
// to its rows and to the pixels that its edges cross.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "geometry.h"
#include "pool.h"

namespace entroplay {
namespace {

// The sum over pixels of weight times squared coverage, for each triangle.
template <typename T>
void square_norm(ffi::ThreadPool& pool, const T* corners, const T* weights, int64_t m, int height,
                 int width, T* norms) {
  // The total weight left of each pixel, row by row: a run of constant coverage costs one
  // difference.
  std::vector<double> before(static_cast<size_t>(height) * (width + 1));
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
        const auto run = [&](int begin, int end, double c) {
          total += (weight[end] - weight[begin]) * c * c;
        };
        walk_row(
            triangle, number, width, row.data(), [&](int x, double c) { run(x, x + 1, c); }, run);
      }
      norms[r] = static_cast<T>(total);
    }
  });
}

// The sum over triangles of (q numbers of the triangle) times squared coverage, for each pixel.
template <typename T>
void deposit_squares(ffi::ThreadPool& pool, const T* corners, const T* numbers, int64_t m,
                     int height, int width, int q, T* sums) {
  const std::vector<Triangle> triangles = prepare_all(corners, m, height);
  parallel(pool, height, [&](int number) {
    std::vector<double> row(static_cast<size_t>(width) + 2), single(static_cast<size_t>(width) * q);
    // Runs of constant coverage are recorded as differences at their two ends.
    std::vector<double> lasting(static_cast<size_t>(width + 1) * q);
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

ffi::Error SquareNorm(ffi::ThreadPool pool, ffi::AnyBuffer corners, ffi::AnyBuffer weights,
                      ffi::Result<ffi::AnyBuffer> norms) {
  const auto size = weights.dimensions();
  if (size.size() != 2) return wrong("triangles: the weights must be (height, width)");
  if (corners.dimensions().size() != 2 || corners.dimensions()[1] != 6)
    return wrong("triangles: the corners must be (m, 6)");
  const int64_t m = corners.dimensions()[0];
  const int h = static_cast<int>(size[0]), w = static_cast<int>(size[1]);
  switch (corners.element_type()) {
    case ffi::F32:
      square_norm(pool, corners.typed_data<float>(), weights.typed_data<float>(), m, h, w,
                  norms->typed_data<float>());
      break;
    case ffi::F64:
      square_norm(pool, corners.typed_data<double>(), weights.typed_data<double>(), m, h, w,
                  norms->typed_data<double>());
      break;
    default: return wrong("triangles: the numbers must be float32 or float64");
  }
  return ffi::Error::Success();
}

ffi::Error DepositSquares(ffi::ThreadPool pool, ffi::AnyBuffer corners, ffi::AnyBuffer numbers,
                          ffi::Result<ffi::AnyBuffer> sums) {
  const auto size = sums->dimensions();
  if (corners.dimensions().size() != 2 || corners.dimensions()[1] != 6)
    return wrong("triangles: the corners must be (m, 6)");
  if (size.size() != 3 || numbers.dimensions().size() != 2 || numbers.dimensions()[1] != size[2])
    return wrong("triangles: the numbers must be (m, q)");
  const int64_t m = corners.dimensions()[0];
  const int h = static_cast<int>(size[0]), w = static_cast<int>(size[1]),
            q = static_cast<int>(size[2]);
  switch (corners.element_type()) {
    case ffi::F32:
      deposit_squares(pool, corners.typed_data<float>(), numbers.typed_data<float>(), m, h, w, q,
                      sums->typed_data<float>());
      break;
    case ffi::F64:
      deposit_squares(pool, corners.typed_data<double>(), numbers.typed_data<double>(), m, h, w, q,
                      sums->typed_data<double>());
      break;
    default: return wrong("triangles: the numbers must be float32 or float64");
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(entroplay_triangles_square_norm, SquareNorm,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()    // corners
                                  .Arg<ffi::AnyBuffer>()    // weights (height, width)
                                  .Ret<ffi::AnyBuffer>());  // (m,)

XLA_FFI_DEFINE_HANDLER_SYMBOL(entroplay_triangles_deposit_squares, DepositSquares,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()    // corners
                                  .Arg<ffi::AnyBuffer>()    // numbers (m, q)
                                  .Ret<ffi::AnyBuffer>());  // (height, width, q)

}  // namespace entroplay
