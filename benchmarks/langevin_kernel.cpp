// The limit for benchmarks/langevin_step.py: Langevin steps of the paper's network, fused by hand.
// With h(theta, x) = tanh(theta . x), one step of Algorithm 2 is
// theta <- theta - eta (sum_i v_i grad h_i + 2 l2 theta) + sqrt(2 eta temperature) xi.
#include <cmath>
#include <cstdint>

static inline float tanh_rational(float x) {
    // An odd polynomial over an even one on [-4.97, 4.97], from the continued fraction of tanh; its
    // error is below 1e-5.
    x = x > 4.97f ? 4.97f : (x < -4.97f ? -4.97f : x);
    const float s = x * x;
    const float odd = x * (135135.f + s * (17325.f + s * (378.f + s)));
    return odd / (135135.f + s * (62370.f + s * (3150.f + s * 28.f)));
}

static inline uint64_t mix(uint64_t z) {  // splitmix64
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// theta is (m, d), columns is (d, n), v is (n,); d is at most 8.
extern "C" void langevin(float* theta, const float* columns, const float* v, int m, int n, int d,
                         float eta, float l2, float temperature, uint64_t seed, int steps) {
    const float noise = std::sqrt(2 * eta * temperature);
#pragma omp parallel for schedule(static)
    for (int r = 0; r < m; ++r) {
        float* t = theta + r * d;
        for (int s = 0; s < steps; ++s) {
            float g[8] = {0};
            // Blocks of rows, whose z fits on the stack: the matrix of all z is never stored.
            for (int start = 0; start < n; start += 512) {
                const int count = n - start < 512 ? n - start : 512;
                float z[512];
                for (int i = 0; i < count; ++i) z[i] = 0;
                for (int j = 0; j < d; ++j) {
                    const float* x = columns + j * n + start;
                    const float tj = t[j];
                    for (int i = 0; i < count; ++i) z[i] += tj * x[i];
                }
                for (int i = 0; i < count; ++i) {
                    const float h = tanh_rational(z[i]);
                    z[i] = v[start + i] * (1 - h * h);
                }
                for (int j = 0; j < d; ++j) {
                    const float* x = columns + j * n + start;
                    float sum = 0;
                    for (int i = 0; i < count; ++i) sum += z[i] * x[i];
                    g[j] += sum;
                }
            }
            // Box and Muller: two uniform numbers of 24 bits make two normal ones.
            for (int j = 0; j < d; j += 2) {
                const uint64_t counter = uint64_t(s) * m * d + r * d + j + 1;
                const uint64_t bits = mix(seed + 0x9e3779b97f4a7c15ull * counter);
                const float u = (uint32_t(bits >> 40) + 1) * (1.f / 16777217.f);
                const float a = uint32_t(bits & 0xffffff) * (6.2831853f / 16777216.f);
                const float radius = std::sqrt(-2 * std::log(u));
                t[j] += noise * radius * std::cos(a) - eta * (g[j] + 2 * l2 * t[j]);
                if (j + 1 < d) {
                    t[j + 1] += noise * radius * std::sin(a) - eta * (g[j + 1] + 2 * l2 * t[j + 1]);
                }
            }
        }
    }
}
