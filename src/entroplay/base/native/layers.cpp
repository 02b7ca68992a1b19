// Triangles laid over each other as a viewer of vector graphics does, I <- I + a c (C - I) with
// opacity a, coverage c and colour C, and the gradient of half the squared distance from a target
// in colours and opacities.
//
// Pixels do not interact. Each row is composed from the lowest triangle to the highest, and the
// pixels under every span are recorded. The row is then differentiated in the opposite order.
// Viewers that round or truncate after every layer can be imitated; the gradient ignores that.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "geometry.h"
#include "pool.h"

namespace entroplay {
namespace {

// Pixels that one triangle covers to the same extent.
struct Span {
  int64_t triangle;
  int begin, end;
  double coverage;
};

// Gradients of one triangle, summed over the rows of a group.
template <typename P> struct Slopes {
  P colour;
  P opacity;  // channel by channel, to be summed
};

// The sum over the channels.
INLINE double sum(Colour1 value) { return value; }
INLINE double sum(const Colour4& value) { return value[0] + value[1] + value[2]; }

// Memory that grows, for the pixels under the spans of a row.
template <typename P> class Pile {
 public:
  explicit Pile(size_t count) : capacity_(count), data_(count) {}
  P* get() const { return data_.get(); }
  void reserve(size_t used, size_t more) {
    if (used + more <= capacity_) return;
    const size_t larger = 2 * (used + more);
    Room<P> moved(larger);
    std::copy(data_.get(), data_.get() + used, moved.get());
    data_ = std::move(moved);
    capacity_ = larger;
  }

 private:
  size_t capacity_;
  Room<P> data_;
};

INLINE void round_to(Colour1& value, double levels) {
  value = std::nearbyint(value * levels) / levels;
}
INLINE void round_to(Colour4& value, double levels) {
  for (int c = 0; c < 3; ++c) value[c] = std::nearbyint(value[c] * levels) / levels;
}

// The triangles, the background and the target.
template <int K, typename T> struct Layers {
  using P = typename Pixel<K>::type;
  const Triangle* triangles;
  const P* colours;
  const T* opacities;
  const T* background;
  const T* target;
  double
      levels;   // after every layer colours are rounded to multiples of 1 / levels, unless it is 0
  double lost;  // what every layer subtracts where it covers
  int64_t m;
  int height, width;
};

// Composes and differentiates the bands group, group + GROUPS, ... of the picture.
template <int K, typename T>
INLINE void lay_group_inlined(int group, const Layers<K, T>& layers, T* picture,
                              Slopes<typename Pixel<K>::type>* slopes) {
  using P = typename Pixel<K>::type;
  const int width = layers.width;
  const Room<P> row(width);
  P* line = row.get();
  std::vector<double> differences(static_cast<size_t>(width) + 2);
  std::vector<Span> spans;
  Pile<P> below(static_cast<size_t>(width) * 64);
  P background;
  load(background, layers.background);
  std::fill(slopes, slopes + layers.m, Slopes<P>{});
  for (int top = group * BAND; top < layers.height; top += GROUPS * BAND)
    for (int number = top; number < std::min(top + BAND, layers.height); ++number) {
      std::fill(line, line + width, background);
      spans.clear();
      size_t used = 0;
      for (int64_t r = 0; r < layers.m; ++r) {
        const Triangle& triangle = layers.triangles[r];
        if (triangle.last < number || triangle.first > number) continue;
        const P colour = layers.colours[r];
        const double opacity = layers.opacities[r];
        // Ample for one triangle, whose spans cover at most the row.
        below.reserve(used, 3 * static_cast<size_t>(width));
        P* under = below.get() + used;
        const auto run = [&](int begin, int end, double coverage) {
          spans.push_back(Span{r, begin, end, coverage});
          const double share = opacity * coverage, lost = coverage > 1e-9 ? layers.lost : 0.0;
          for (int x = begin; x < end; ++x) {
            *under++ = line[x];
            line[x] = line[x] + share * (colour - line[x]) - lost;
            if (layers.levels > 0) round_to(line[x], layers.levels);
          }
        };
        walk_row(
            triangle, number, width, differences.data(), [&](int x, double c) { run(x, x + 1, c); },
            run);
        used = under - below.get();
      }
      // Store the row; the slope of half the squared distance is the difference from the target.
      const int64_t start = static_cast<int64_t>(number) * width * K;
      for (int x = 0; x < width; ++x) {
        store(line[x], picture + start + x * K);
        P wanted;
        load(wanted, layers.target + start + x * K);
        line[x] = line[x] - wanted;
      }
      // Reverse differentiation, the highest layer first: `line` is the slope in the picture
      // composed up to that layer, and (1 - share) times it the slope in the picture below.
      const P* under = below.get() + used;
      for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
        const P colour = layers.colours[span->triangle];
        const double coverage = span->coverage, share = layers.opacities[span->triangle] * coverage;
        P in_colour{}, in_opacity{};
        for (int x = span->end - 1; x >= span->begin; --x) {
          --under;
          in_colour = in_colour + line[x];
          in_opacity = in_opacity + line[x] * (colour - *under);
          line[x] = line[x] - share * line[x];
        }
        Slopes<P>& found = slopes[span->triangle];
        found.colour = found.colour + share * in_colour;
        found.opacity = found.opacity + coverage * in_opacity;
      }
    }
}

// One multiversioned function for each number of channels and each precision.
#define LAY_GROUP(NAME, K, T)                                               \
  MULTIVERSION void NAME(int group, const Layers<K, T>& layers, T* picture, \
                         Slopes<Pixel<K>::type>* slopes) {                  \
    lay_group_inlined<K, T>(group, layers, picture, slopes);                \
  }
LAY_GROUP(lay_group_1f, 1, float)
LAY_GROUP(lay_group_1d, 1, double)
LAY_GROUP(lay_group_3f, 3, float)
LAY_GROUP(lay_group_3d, 3, double)
template <int K, typename T> constexpr auto lay_group();
template <> constexpr auto lay_group<1, float>() { return lay_group_1f; }
template <> constexpr auto lay_group<1, double>() { return lay_group_1d; }
template <> constexpr auto lay_group<3, float>() { return lay_group_3f; }
template <> constexpr auto lay_group<3, double>() { return lay_group_3d; }

template <int K, typename T>
void lay(ffi::ThreadPool& pool, const T* corners, const T* colours, const T* opacities,
         const T* background, const T* target, double levels, double lost, int64_t m, int height,
         int width, T* picture, T* in_colours, T* in_opacities) {
  using P = typename Pixel<K>::type;
  const std::vector<Triangle> triangles = prepare_all(corners, m, height);
  const Room<P> padded = padded_colours<K>(colours, m);
  const Layers<K, T> layers{triangles.data(), padded.get(), opacities, background, target,
                            levels,           lost,         m,         height,     width};
  const int groups = std::min(GROUPS, (height + BAND - 1) / BAND);
  const Room<Slopes<P>> slopes(static_cast<size_t>(groups) * m);
  parallel(pool, groups,
           [&](int group) { lay_group<K, T>()(group, layers, picture, slopes.get() + group * m); });
  for (int64_t r = 0; r < m; ++r) {
    Slopes<P> total{};
    for (int group = 0; group < groups; ++group) {
      total.colour = total.colour + slopes.get()[group * m + r].colour;
      total.opacity = total.opacity + slopes.get()[group * m + r].opacity;
    }
    store(total.colour, in_colours + K * r);
    in_opacities[r] = static_cast<T>(sum(total.opacity));
  }
}

template <typename T>
ffi::Error lay_any(ffi::ThreadPool& pool, ffi::AnyBuffer& corners, ffi::AnyBuffer& colours,
                   ffi::AnyBuffer& opacities, ffi::AnyBuffer& background, ffi::AnyBuffer& target,
                   double levels, double lost, ffi::Result<ffi::AnyBuffer>& picture,
                   ffi::Result<ffi::AnyBuffer>& in_colours,
                   ffi::Result<ffi::AnyBuffer>& in_opacities) {
  const auto size = target.dimensions();
  auto run = size[2] == 1 ? lay<1, T> : lay<3, T>;
  run(pool, corners.typed_data<T>(), colours.typed_data<T>(), opacities.typed_data<T>(),
      background.typed_data<T>(), target.typed_data<T>(), levels, lost, corners.dimensions()[0],
      static_cast<int>(size[0]), static_cast<int>(size[1]), picture->typed_data<T>(),
      in_colours->typed_data<T>(), in_opacities->typed_data<T>());
  return ffi::Error::Success();
}

ffi::Error Lay(ffi::ThreadPool pool, ffi::AnyBuffer corners, ffi::AnyBuffer colours,
               ffi::AnyBuffer opacities, ffi::AnyBuffer background, ffi::AnyBuffer target,
               ffi::Result<ffi::AnyBuffer> picture, ffi::Result<ffi::AnyBuffer> in_colours,
               ffi::Result<ffi::AnyBuffer> in_opacities, double levels, double lost) {
  const auto size = target.dimensions();
  if (size.size() != 3 || (size[2] != 1 && size[2] != 3))
    return wrong("triangles: the target must be (height, width, 1 or 3)");
  if (corners.dimensions().size() != 2 || corners.dimensions()[1] != 6)
    return wrong("triangles: the corners must be (m, 6)");
  const int64_t m = corners.dimensions()[0];
  if (static_cast<int64_t>(colours.element_count()) != m * size[2])
    return wrong("triangles: the colours must be (m, channels)");
  if (static_cast<int64_t>(opacities.element_count()) != m)
    return wrong("triangles: the opacities must be (m,)");
  if (static_cast<int64_t>(background.element_count()) != size[2])
    return wrong("triangles: the background must be (channels,)");
  switch (corners.element_type()) {
    case ffi::F32:
      return lay_any<float>(pool, corners, colours, opacities, background, target, levels, lost,
                            picture, in_colours, in_opacities);
    case ffi::F64:
      return lay_any<double>(pool, corners, colours, opacities, background, target, levels, lost,
                             picture, in_colours, in_opacities);
    default: return wrong("triangles: the numbers must be float32 or float64");
  }
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    entroplay_triangles_lay, Lay,
    ffi::Ffi::Bind()
        .Ctx<ffi::ThreadPool>()
        .Arg<ffi::AnyBuffer>()  // corners (m, 6), in pixels, the lowest first
        .Arg<ffi::AnyBuffer>()  // colours (m, channels)
        .Arg<ffi::AnyBuffer>()  // opacities (m,)
        .Arg<ffi::AnyBuffer>()  // background (channels,)
        .Arg<ffi::AnyBuffer>()  // target (height, width, channels)
        .Ret<ffi::AnyBuffer>()  // the picture (height, width, channels)
        .Ret<ffi::AnyBuffer>()  // gradient in the colours
        .Ret<ffi::AnyBuffer>()  // gradient in the opacities
        .Attr<double>("levels")
        .Attr<double>("lost"));

}  // namespace entroplay
