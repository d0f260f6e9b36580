// Puts kernels on a stream, and defines the first calls of every kernel.
//
// Only .cu files include it. nvcc compiles them. They are also compiled as C++ against tests/cuda_stand_in, where their
// threads run one after another on the CPU.
#pragma once

#include "dist/rank/check.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace entrodraft::dist {

struct Grid {
    dim3 blocks;
    dim3 threads;
    std::size_t shared_bytes = 0;
    int blocks_together = 0; // of a multiprocessor, which gets just enough shared memory for them, so that the rest
                             // stays a cache; 0: the driver's choice
};

// Kernels of a stream overlap where the device can (programmatic dependent launch, from compute capability 9.0 on;
// captured as programmatic edges). The next kernel starts once all blocks of this one have called start_next_kernel().
// So every kernel calls that at its beginning. It calls wait_for_inputs() before it writes, and before it reads
// anything but weights. The wait ends when the previous kernel has ended and its writes are visible. That kernel did
// not end before its own wait, so all earlier kernels have ended too. For this reason every thread of every kernel
// waits, even if it reads nothing. A copy starts after the end of all earlier work, and our next kernel starts after
// the end of the copy. Before NCCL's kernels, comm/nccl_guard.h takes care of the order.
#if !defined(ENTRODRAFT_CUDA_STAND_IN)
__device__ inline void start_next_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ inline void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#else
inline void start_next_kernel() {
    cuda_stand_in::note_start_of_next();
}
inline void wait_for_inputs() {
    cuda_stand_in::note_wait();
}
#endif
// For a kernel that has nothing to read before it waits.
__device__ inline void begin_kernel() {
    start_next_kernel();
    wait_for_inputs();
}

// Returns an attribute of the current device, which a process does not change. Throws Error.
inline int device_attribute(cudaDeviceAttr attribute) {
    int device = 0, value = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
    return value;
}
inline int multiprocessors() {
    static const int count = device_attribute(cudaDevAttrMultiProcessorCount);
    return count;
}
inline std::size_t shared_bytes_of_multiprocessor() {
    static const int bytes = device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    return static_cast<std::size_t>(bytes);
}

// Builds with ENTRODRAFT_GPU_SWITCHES can measure what a feature gains: ENTRODRAFT_GPU_OFF names the feature to leave
// out, "overlap" or "carve-out". Other builds leave nothing out.
#ifdef ENTRODRAFT_GPU_SWITCHES
inline bool is_off(std::string_view what) {
    static const char* const named = std::getenv("ENTRODRAFT_GPU_OFF");
    return named != nullptr && named == what;
}
#else
constexpr bool is_off(std::string_view) {
    return false;
}
#endif

// Returns true where kernels of this program may overlap: on a device of capability 9.0 or later, with code for it.
// Code compiled for an earlier capability does not wait, though this device runs it.
template <typename... Parameters> bool overlaps_kernels(void (*kernel)(Parameters...)) {
    constexpr int kCodeThatWaits = 90, kDeviceThatOverlaps = 9;
    const auto ask = [&] {
        cudaFuncAttributes code = {};
        check_cuda(cudaFuncGetAttributes(&code, kernel), "cudaFuncGetAttributes");
        return !is_off("overlap") && code.ptxVersion >= kCodeThatWaits &&
               device_attribute(cudaDevAttrComputeCapabilityMajor) >= kDeviceThatOverlaps;
    };
#ifdef ENTRODRAFT_CUDA_STAND_IN // a test may change it
    return ask();
#else
    static const bool overlaps = ask(); // all kernels are compiled for the same capability
    return overlaps;
#endif
}

// Puts kernel(arguments...) on the stream. Throws Error where it cannot be launched.
template <typename... Parameters, typename... Arguments>
void launch(void* stream, const Grid& grid, void (*kernel)(Parameters...), const Arguments&... arguments) {
    if (grid.blocks.x == 0 || grid.blocks.y == 0) return; // CUDA refuses a grid of nothing
    const auto on = static_cast<cudaStream_t>(stream);
#ifdef ENTRODRAFT_CUDA_STAND_IN
    check_cuda(cuda_stand_in::enqueue(on,
                                      [=, overlaps = overlaps_kernels(kernel)] {
                                          cuda_stand_in::run_grid(
                                              grid.blocks, grid.threads, grid.shared_bytes,
                                              [&] { kernel(static_cast<Parameters>(arguments)...); }, overlaps);
                                      }),
               "a kernel's launch");
#else
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = grid.blocks;
    how.blockDim = grid.threads;
    how.dynamicSmemBytes = grid.shared_bytes;
    how.stream = on;
    how.attrs = &overlap;
    how.numAttrs = overlaps_kernels(kernel) ? 1 : 0;
    const auto set = [&](cudaFuncAttribute attribute, std::size_t value) {
        check_cuda(cudaFuncSetAttribute(kernel, attribute, static_cast<int>(value)), "cudaFuncSetAttribute");
    };
    if (constexpr std::size_t kUnasked = 48 << 10; grid.shared_bytes > kUnasked) // more must be requested
        set(cudaFuncAttributeMaxDynamicSharedMemorySize, grid.shared_bytes);
    if (grid.blocks_together > 0 && !is_off("carve-out")) { // percent, rounded up
        constexpr std::size_t kBeside = 4 << 10;            // a block's static arrays, and the system's part
        const std::size_t bytes = static_cast<std::size_t>(grid.blocks_together) * (grid.shared_bytes + kBeside);
        set(cudaFuncAttributePreferredSharedMemoryCarveout,
            std::min<std::size_t>(100, 100 * bytes / shared_bytes_of_multiprocessor() + 1));
    }
    check_cuda(cudaLaunchKernelEx(&how, kernel, static_cast<Parameters>(arguments)...), "a kernel's launch");
#endif
}

} // namespace entrodraft::dist
