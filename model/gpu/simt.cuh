// The parts that the kernels of this folder share: number types, warps, vector loads, the tensor cores' product.
//
// Only .cu files include it. nvcc compiles them. They are also compiled as C++ against tests/cuda_stand_in, where their
// threads run one after another on the CPU.
#pragma once

#include "dist/rank/error.h"
#include "dist/rank/kernel_launch.cuh"
#include "model/gpu/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace entrodraft::model::gpu {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

inline void check(cudaError_t code, const char* call) {
    if (code != cudaSuccess) throw dist::Error(std::string(call) + " failed: " + cudaGetErrorString(code));
}

using dist::begin_kernel;
using dist::Grid;
using dist::launch;
using dist::multiprocessors;
using dist::start_next_kernel;
using dist::wait_for_inputs;

constexpr unsigned blocks_for(std::size_t items, std::size_t per_block) {
    return static_cast<unsigned>((items + per_block - 1) / per_block);
}

#ifdef ENTRODRAFT_CUDA_STAND_IN
inline unsigned char* dynamic_shared() {
    return cuda_stand_in::here().dynamic_shared;
}
#else
__device__ inline unsigned char* dynamic_shared() {
    extern __shared__ __align__(16) unsigned char bytes[];
    return bytes;
}
#endif

// ---- numbers ----

__device__ inline float to_float(float x) {
    return x;
}
__device__ inline float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
__device__ inline float to_float(__half x) {
    return __half2float(x);
}
template <typename T> __device__ T from_float(float x);
template <> __device__ inline float from_float<float>(float x) {
    return x;
}
template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}
template <> __device__ inline __half from_float<__half>(float x) {
    return __float2half_rn(x);
}

// Calls f with a null pointer of the number type.
template <typename Function> void with_type(NumberType type, const Function& f) {
    switch (type) {
    case NumberType::float32:
        return f(static_cast<float*>(nullptr));
    case NumberType::bfloat16:
        return f(static_cast<__nv_bfloat16*>(nullptr));
    case NumberType::float16:
        return f(static_cast<__half*>(nullptr));
    }
}

// Loads 16 bytes of weights, which a pass reads once. They are not kept in the first-level cache and leave the second
// first, so activations, tables, keys and values stay there. These are not constant loads (.nc): ptxas would move loads
// that should run during wait_for_inputs() after it.
__device__ inline uint4 load_streaming(const void* from) {
#if defined(__CUDA_ARCH__)
    std::uint64_t leaves_first = 0;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(leaves_first));
    uint4 got;
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(got.x), "=r"(got.y), "=r"(got.z), "=r"(got.w)
                 : "l"(from), "l"(leaves_first));
    return got;
#else
    return *static_cast<const uint4*>(from);
#endif
}

// Starts to copy 16 bytes to shared memory without registers. They are there once the thread has waited for their group
// of copies; for other threads, after a barrier that follows. Both addresses are multiples of 16.
__device__ inline void copy_async(void* to_shared, const void* from) {
#if defined(__CUDA_ARCH__)
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to_shared))),
        "l"(from)
        : "memory");
#else
    *static_cast<uint4*>(to_shared) = *static_cast<const uint4*>(from);
#endif
}
// Ends a group of copies, which may be empty.
__device__ inline void end_copies() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until all but the thread's last kGroups groups are there.
template <int kGroups> __device__ inline void wait_for_copies() {
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#endif
}

// ---- warps ----

__device__ inline int lane_of_thread() {
    return static_cast<int>(threadIdx.x) % kWarp;
}
__device__ inline int warp_of_thread() {
    return static_cast<int>(threadIdx.x) / kWarp;
}

// Sums and maxima over a warp: the same on every lane, always added in the same order.
#ifdef ENTRODRAFT_CUDA_STAND_IN
inline float warp_sum(float x) { // the result of the shuffles below, in one exchange
    float of_lanes[kWarp] = {};
    const cuda_stand_in::Shown shown = cuda_stand_in::show_warp(&x, sizeof x);
    for (int lane = 0; lane < kWarp; ++lane)
        if (const float* of_lane = shown.of<float>(lane)) of_lanes[lane] = *of_lane;
    for (int step = kWarp / 2; step > 0; step /= 2)
        for (int lane = 0; lane < step; ++lane)
            of_lanes[lane] += of_lanes[lane + step];
    return of_lanes[0];
}
#else
__device__ inline float warp_sum(float x) {
    for (int step = kWarp / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(kAllLanes, x, step);
    return x;
}
#endif
__device__ inline double warp_sum(double x) {
    for (int step = kWarp / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(kAllLanes, x, step);
    return x;
}
__device__ inline float warp_max(float x) {
    for (int step = kWarp / 2; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(kAllLanes, x, step);
        x = other > x ? other : x;
    }
    return x;
}

// Returns the sum over the threads of a 1-D block of whole warps, on every thread, in one order. Has barriers inside.
__device__ inline float block_sum(float x) {
    __shared__ float of_warps[kWarp];
    const int n_warps = static_cast<int>(blockDim.x) / kWarp;
    x = warp_sum(x);
    __syncthreads(); // an earlier sum has been read
    if (lane_of_thread() == 0) of_warps[warp_of_thread()] = x;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < n_warps; ++i)
        sum += of_warps[i];
    return sum;
}

// ---- tensor cores ----

// Loads four 8 x 8 matrices of 16-bit numbers from shared memory, transposed. Lane 8 m + r names row r of the m-th, 16
// bytes. Lane 4 g + t gets of each the pair (rows 2t, 2t + 1, column g).
__device__ inline void load_transposed(const void* row, unsigned (&to)[4]) {
#if defined(ENTRODRAFT_CUDA_STAND_IN)
    const int g = lane_of_thread() / 4, t = lane_of_thread() % 4;
    const cuda_stand_in::Shown shown = cuda_stand_in::show_warp(&row, sizeof row);
    for (int m = 0; m < 4; ++m) {
        const auto number = [&](int r) { return (*shown.of<const std::uint16_t*>(8 * m + r))[g]; };
        to[m] = static_cast<unsigned>(number(2 * t + 1)) << 16 | number(2 * t);
    }
#elif defined(__CUDA_ARCH__)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
#endif
}

// c[16 x 8] += a[16 x 16] b[16 x 8] over a warp, float32 sums. Lane l = 4 g + t holds of a the pairs (row g, columns
// 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), of b the pairs (rows 2t, column g), (2t + 8, g), and of c (row g,
// columns 2t, 2t + 1), (g + 8, 2t, 2t + 1): the PTX manual's mma.m16n8k16.
#ifdef ENTRODRAFT_CUDA_STAND_IN
template <typename T> void multiply_16x8x16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    struct Fragments {
        float a[8], b[4];
    } mine; // converted once by its holder, not by each lane that reads it
    T of_a[8], of_b[4];
    std::memcpy(of_a, a, sizeof of_a);
    std::memcpy(of_b, b, sizeof of_b);
    for (int i = 0; i < 8; ++i)
        mine.a[i] = to_float(of_a[i]);
    for (int i = 0; i < 4; ++i)
        mine.b[i] = to_float(of_b[i]);
    const int g = lane_of_thread() / 4, t = lane_of_thread() % 4;
    const cuda_stand_in::Shown shown = cuda_stand_in::show_warp(&mine, sizeof mine);
    for (int half = 0; half < 2; ++half)
        for (int holder = 0; holder < 4; ++holder) { // of columns and rows 2 holder, 2 holder + 1 of that half
            const float* rows = shown.of<Fragments>(4 * g + holder)->a + 4 * half; // of g, then of g + 8
            const float* left = shown.of<Fragments>(4 * (2 * t) + holder)->b + 2 * half;
            const float* right = shown.of<Fragments>(4 * (2 * t + 1) + holder)->b + 2 * half;
            for (int k = 0; k < 2; ++k) {
                c[0] += rows[k] * left[k];
                c[1] += rows[k] * right[k];
                c[2] += rows[2 + k] * left[k];
                c[3] += rows[2 + k] * right[k];
            }
        }
}
#else
template <typename T> __device__ void multiply_16x8x16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]);
template <>
__device__ inline void multiply_16x8x16<__nv_bfloat16>(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <>
__device__ inline void multiply_16x8x16<__half>(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

} // namespace entrodraft::model::gpu
