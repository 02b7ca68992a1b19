// The transpose of the integral over triangles: a picture as the sum of coloured triangles.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "geometry.h"
#include "pool.h"

namespace entroplay {
namespace {

// Draws the bands group, group + GROUPS, ... of the picture. Every row belongs to one group, so the
// sums do not depend on the number of threads.
template <int K, typename T>
INLINE void deposit_group_inlined(int group, const Triangle* triangles,
                                  const typename Pixel<K>::type* colours, int64_t m, int height,
                                  int width, typename Pixel<K>::type* rows, T* picture) {
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
        // A positive triangle lacks the area right of an edge that runs upwards: hence the minus.
        const P colour = -e.sign * colours[r];
        for (int row = first; row <= last; ++row)
          deposit_piece<P>(piece_of(e, row), e.dy, width, colour, rows + (row - top) * stride);
      }
    }
    // The rows hold differences; their running sums are the picture.
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

// One multiversioned function for each number of channels and each precision.
#define DEPOSIT_GROUP(NAME, K, T)                                                              \
  MULTIVERSION void NAME(int group, const Triangle* triangles, const Pixel<K>::type* colours,  \
                         int64_t m, int height, int width, Pixel<K>::type* rows, T* picture) { \
    deposit_group_inlined<K, T>(group, triangles, colours, m, height, width, rows, picture);   \
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

template <int K, typename T>
void deposit(ffi::ThreadPool& pool, const T* corners, const T* colours, int64_t m, int height,
             int width, T* picture) {
  using P = typename Pixel<K>::type;
  const std::vector<Triangle> triangles = prepare_all(corners, m, height);
  const Room<P> padded = padded_colours<K>(colours, m);
  parallel(pool, std::min(GROUPS, (height + BAND - 1) / BAND), [&](int group) {
    const Room<P> rows(static_cast<size_t>(BAND) * (width + 2));
    deposit_group<K, T>()(group, triangles.data(), padded.get(), m, height, width, rows.get(),
                          picture);
  });
}

template <typename T>
ffi::Error deposit_any(ffi::ThreadPool& pool, ffi::AnyBuffer& corners, ffi::AnyBuffer& colours,
                       ffi::Result<ffi::AnyBuffer>& picture) {
  const auto size = picture->dimensions();
  auto run = size[2] == 1 ? deposit<1, T> : deposit<3, T>;
  run(pool, corners.typed_data<T>(), colours.typed_data<T>(), corners.dimensions()[0],
      static_cast<int>(size[0]), static_cast<int>(size[1]), picture->typed_data<T>());
  return ffi::Error::Success();
}

ffi::Error Deposit(ffi::ThreadPool pool, ffi::AnyBuffer corners, ffi::AnyBuffer colours,
                   ffi::Result<ffi::AnyBuffer> picture) {
  const auto size = picture->dimensions();
  if (size.size() != 3 || (size[2] != 1 && size[2] != 3))
    return wrong("triangles: the picture must be (height, width, 1 or 3)");
  if (corners.dimensions().size() != 2 || corners.dimensions()[1] != 6)
    return wrong("triangles: the corners must be (m, 6)");
  if (colours.dimensions().size() != 2 || colours.dimensions()[1] != size[2])
    return wrong("triangles: the colours must be (m, channels)");
  switch (corners.element_type()) {
    case ffi::F32: return deposit_any<float>(pool, corners, colours, picture);
    case ffi::F64: return deposit_any<double>(pool, corners, colours, picture);
    default: return wrong("triangles: the numbers must be float32 or float64");
  }
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    entroplay_triangles_deposit, Deposit,
    ffi::Ffi::Bind()
        .Ctx<ffi::ThreadPool>()
        .Arg<ffi::AnyBuffer>()    // corners
        .Arg<ffi::AnyBuffer>()    // colours, times weights
        .Ret<ffi::AnyBuffer>());  // sum of colour times coverage (height, width, channels)

}  // namespace entroplay
