// Compiles row_kernels.inl for each instruction set, and chooses one at run time. See row_kernels.h.
#include "spec/verify/row_kernels.h"

#include <cstdint>
#include <cstring>
#include <limits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace entrodraft::spec {

namespace {
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
} // namespace

namespace portable {
namespace {
constexpr std::size_t kWidth = 4;
typedef std::uint64_t Longs __attribute__((vector_size(16)));
inline Longs multiply_low_halves(const Longs& a, const Longs& b) {
#if defined(__SSE2__)
    return (Longs)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xFFFFFFFFU) * (b & 0xFFFFFFFFU);
#endif
}
#include "spec/verify/row_kernels.inl"
} // namespace
} // namespace portable

#if defined(__x86_64__) && !defined(__clang__) // clang does not know this pragma
#define ENTRODRAFT_ROW_KERNELS_X86
#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {
namespace {
constexpr std::size_t kWidth = 8;
typedef std::uint64_t Longs __attribute__((vector_size(32)));
inline Longs multiply_low_halves(const Longs& a, const Longs& b) {
    return (Longs)_mm256_mul_epu32((__m256i)a, (__m256i)b);
}
#include "spec/verify/row_kernels.inl"
} // namespace
} // namespace avx2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
namespace avx512 {
namespace {
constexpr std::size_t kWidth = 16;
typedef std::uint64_t Longs __attribute__((vector_size(64)));
inline Longs multiply_low_halves(const Longs& a, const Longs& b) {
    return (Longs)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, (__m512i)b); // the unmasked one makes GCC 12 warn
}
#include "spec/verify/row_kernels.inl"
} // namespace
} // namespace avx512
#pragma GCC pop_options
#endif

std::vector<const SamplingKernels*> all_row_kernels() {
    std::vector<const SamplingKernels*> all = {&portable::kKernels};
#ifdef ENTRODRAFT_ROW_KERNELS_X86
    if (__builtin_cpu_supports("avx2")) all.push_back(&avx2::kKernels);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        all.push_back(&avx512::kKernels);
#endif
    return all;
}

const SamplingKernels& row_kernels() {
    static const SamplingKernels* const chosen = all_row_kernels().back();
    return *chosen;
}

} // namespace entrodraft::spec
