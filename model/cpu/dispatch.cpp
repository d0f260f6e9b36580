// Chooses the kernel table that this processor runs; also has the parts of the kernels that need no vectors.
#include "model/cpu/kernels.h"

#include <cstring>
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace entrodraft::model::kernels {

namespace portable {
extern const Kernels kTable;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels kTable;
}
namespace avx512 {
extern const Kernels kTable;
}
namespace avx512vnni {
extern const Kernels kTable;
extern const Kernels kPairsTable;
extern const Kernels kTilesTable;
} // namespace avx512vnni
#endif

namespace {

bool has_avx512() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

bool has_vnni() {
#if defined(__x86_64__)
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

bool has_pairs() {
#if defined(__x86_64__)
    return has_vnni() && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

// Returns whether the processor has pairs and tiles, and Linux lets this process use tiles. Asking more than once is
// allowed.
bool has_amx() {
#if defined(__x86_64__) && defined(__linux__)
    constexpr unsigned kTileBit = 1u << 24, kInt8Bit = 1u << 25; // in leaf 7's EDX
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM and the state component
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (!has_pairs() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    if ((edx & kTileBit) == 0 || (edx & kInt8Bit) == 0) return false;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}

bool has_avx2() {
#if defined(__x86_64__)
    constexpr unsigned kHalfBit = 1u << 29; // in leaf 1's ECX: F16C, whose name some compilers do not know
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && (ecx & kHalfBit) != 0;
#else
    return false;
#endif
}

} // namespace

const Kernels* kernels_named(const char* name) {
    if (std::strcmp(name, "portable") == 0) return &portable::kTable;
#if defined(__x86_64__)
    if (std::strcmp(name, "avx2") == 0) return has_avx2() ? &avx2::kTable : nullptr;
    if (std::strcmp(name, "avx512") == 0) return has_avx512() ? &avx512::kTable : nullptr;
    if (std::strcmp(name, "amx") == 0) return has_amx() ? &avx512vnni::kTilesTable : nullptr;
    if (std::strcmp(name, "avx512bf16") == 0) return has_pairs() ? &avx512vnni::kPairsTable : nullptr;
    if (std::strcmp(name, "avx512vnni") == 0) return has_vnni() ? &avx512vnni::kTable : nullptr;
#endif
    return nullptr;
}

const Kernels& best_kernels() {
    static const Kernels& best = []() -> const Kernels& { // asked once: in a virtual machine it takes 60 us
        for (const char* name : {"amx", "avx512bf16", "avx512vnni", "avx512", "avx2"})
            if (const Kernels* table = kernels_named(name)) return *table;
        return portable::kTable;
    }();
    return best;
}

void LaneStats::clear() {
    for (int lane = 0; lane < kLanes; ++lane) {
        max[lane] = -3.0e38f; // below any logit, but finite
        sum_exp[lane] = 0;
        sum_shifted_exp[lane] = 0;
    }
}

} // namespace entrodraft::model::kernels
