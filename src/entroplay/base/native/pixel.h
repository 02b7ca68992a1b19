// All channels of a pixel as one value that fits a register.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

// One binary serves all x86-64 processors: the better version is chosen when the library is loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ENTROPLAY_PLAIN)
#define MULTIVERSION __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define MULTIVERSION
#endif
#define INLINE static inline __attribute__((always_inline))

namespace entroplay {

// All channels of a pixel: three are padded to four, the width of a vector register.
typedef double Colour4 __attribute__((vector_size(32)));
typedef double Colour1;

template <int K> struct Pixel;
template <> struct Pixel<1> {
  using type = Colour1;
};
template <> struct Pixel<3> {
  using type = Colour4;
};

INLINE void load(Colour1& to, const double* from) { to = from[0]; }
INLINE void load(Colour4& to, const double* from) { to = Colour4{from[0], from[1], from[2], 0.0}; }
INLINE void load(Colour1& to, const float* from) { to = from[0]; }
INLINE void load(Colour4& to, const float* from) { to = Colour4{from[0], from[1], from[2], 0.0}; }
template <typename T> INLINE void store(const Colour1& from, T* to) {
  to[0] = static_cast<T>(from);
}
template <typename T> INLINE void store(const Colour4& from, T* to) {
  for (int c = 0; c < 3; ++c) to[c] = static_cast<T>(from[c]);
}

// Memory for `count` items, aligned to cache lines. (Inside XLA's process, std::vector was seen to
// ignore the alignment of vectors.)
template <typename T> class Room {
 public:
  explicit Room(size_t count)
      : data_(static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 63) / 64 * 64))) {
    if (data_ == nullptr) throw std::bad_alloc();
  }
  T* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
};

// The inner product over the channels.
INLINE double dot(Colour1 a, Colour1 b) { return a * b; }
INLINE double dot(const Colour4& a, const Colour4& b) {
  Colour4 product = a * b;
  return product[0] + product[1] + product[2];
}

// The colours (m, K) as one vector for each triangle.
template <int K, typename T>
Room<typename Pixel<K>::type> padded_colours(const T* colours, int64_t m) {
  Room<typename Pixel<K>::type> padded(m);
  for (int64_t r = 0; r < m; ++r) load(padded.get()[r], colours + K * r);
  return padded;
}

}  // namespace entroplay
