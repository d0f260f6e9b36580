// A stand-in for the CUDA runtime on machines without a GPU: the project's .cu files, compiled as C++ against this
// header, run on the CPU, thread by thread, so that their logic is tested where no device is.
//
// Blocks run one after another; the threads of a block are fibers that switch at barriers and warp operations, in lane
// order. A barrier that not all threads of a block (lanes of a warp) reach ends the program with a message, as do reads
// and writes outside of what was allocated where the sanitizers watch. Streams do at once what they are told, unless
// they are being captured (then it is kept, and done by cudaGraphLaunch) or a collective is before it that not all
// ranks have come to (then whoever asks about the stream goes on with it). Ranks may be threads (nccl.cpp). Only what
// the project uses is here; nothing of speed or of memory ordering between running blocks can be learnt from it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>

#define ENTRODRAFT_CUDA_STAND_IN
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __shared__ static thread_local
#define __launch_bounds__(...)
#define __grid_constant__

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    constexpr dim3(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1) : x(of_x), y(of_y), z(of_z) {}
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

namespace cuda_stand_in {

using Work = std::function<bool()>; // whether it is done

// Where the running fiber is.
struct Place {
    dim3 thread, block, block_size, grid_size;
    unsigned char* dynamic_shared = nullptr;
    int lane = 0; // of its warp
};
extern constinit thread_local Place* running_place; // null outside of kernels
Place& place_outside();
inline Place& here() {
    return running_place != nullptr ? *running_place : place_outside();
}
inline int lane() {
    return here().lane;
}

// How many grids this thread has run, how many graphs it has made and launched, and how often it has found a stream
// without work.
long grids_run();
long graphs_made();
long graphs_launched();
long streams_awaited();

// Kernels are compiled for this from now on: below 90 they neither wait nor let others begin. 90 at first.
void compile_for(int virtual_architecture);
// Runs `kernel` for every thread of every block of the grid. One that may begin beside the kernel before has to wait.
void run_grid(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const std::function<void()>& kernel,
              bool may_begin_early = true);
void block_barrier();
void warp_barrier();
// That the running thread has waited for the kernels before: a thread that ends without ends the program.
void note_wait();
// That the running thread lets the next work of its stream begin, which it may do beside this kernel. Ours waits for
// the kernel's end, that of others may not: see begins_beside_a_kernel().
void note_start_of_next();
// In a work: whether the one before it on the stream is a kernel that let it begin, and may not have ended.
bool begins_beside_a_kernel();
// For a thread that waits for another rank, in a loop: the other threads of its block and other ranks go on.
void let_others_run();
std::uint64_t clock_ns();

// What the lanes of a warp have shown each other.
class Shown {
  public:
    static constexpr std::size_t kMaxBytes = 64;
    using OfWarp = unsigned char[32 * kMaxBytes];
    Shown(const OfWarp& bytes, std::size_t of_lane, unsigned lanes) : bytes_(bytes), of_lane_(of_lane), lanes_(lanes) {}
    // Null where the lane had ended.
    template <typename T> const T* of(int lane) const {
        return (lanes_ >> lane & 1) != 0
                   ? reinterpret_cast<const T*>(bytes_ + static_cast<std::size_t>(lane) * of_lane_)
                   : nullptr;
    }

  private:
    const OfWarp& bytes_;
    std::size_t of_lane_; // bytes of one
    unsigned lanes_;      // a bit each
};
// Every lane of a warp shows the others at most Shown::kMaxBytes; readable until the lane's next show.
Shown show_warp(const void* mine, std::size_t bytes);

template <typename T> T exchange(T value, int from) {
    const T* shown = show_warp(&value, sizeof value).template of<T>(from);
    return shown != nullptr ? *shown : value;
}

} // namespace cuda_stand_in

#define threadIdx (::cuda_stand_in::here().thread)
#define blockIdx (::cuda_stand_in::here().block)
#define blockDim (::cuda_stand_in::here().block_size)
#define gridDim (::cuda_stand_in::here().grid_size)

inline void __syncthreads() {
    cuda_stand_in::block_barrier();
}
// Whether the predicate holds on any thread of the block.
inline int __syncthreads_or(int predicate) {
    __shared__ int any;
    any = 0;
    cuda_stand_in::block_barrier();
    any |= predicate != 0;
    cuda_stand_in::block_barrier();
    const int of_block = any;
    cuda_stand_in::block_barrier(); // before the next one begins
    return of_block;
}
inline void __syncwarp(unsigned = 0xffffffffu) {
    cuda_stand_in::warp_barrier();
}
template <typename T> T __shfl_xor_sync(unsigned, T value, int mask) {
    return cuda_stand_in::exchange(value, cuda_stand_in::lane() ^ mask);
}
template <typename T> T __shfl_sync(unsigned, T value, int from) {
    return cuda_stand_in::exchange(value, from);
}
inline unsigned __ballot_sync(unsigned, bool predicate) {
    unsigned bits = 0;
    const cuda_stand_in::Shown shown = cuda_stand_in::show_warp(&predicate, sizeof predicate);
    for (int lane = 0; lane < 32; ++lane)
        if (const bool* of_lane = shown.of<bool>(lane); of_lane != nullptr && *of_lane) bits |= 1u << lane;
    return bits;
}
inline bool __any_sync(unsigned mask, bool predicate) {
    return __ballot_sync(mask, predicate) != 0;
}
template <typename Better> int reduce_warp(int value, const Better& better) {
    const cuda_stand_in::Shown shown = cuda_stand_in::show_warp(&value, sizeof value);
    for (int lane = 0; lane < 32; ++lane)
        if (const int* of_lane = shown.of<int>(lane); of_lane != nullptr) value = better(value, *of_lane);
    return value;
}
inline int __reduce_min_sync(unsigned, int value) {
    return reduce_warp(value, [](int a, int b) { return a < b ? a : b; });
}
inline int __reduce_max_sync(unsigned, int value) {
    return reduce_warp(value, [](int a, int b) { return a < b ? b : a; });
}
template <typename T> T __ldg(const T* from) {
    return *from;
}
template <typename T> T __ldcg(const T* from) {
    return *from;
}
inline int __popcll(unsigned long long bits) {
    return __builtin_popcountll(bits);
}
inline int __ffs(int bits) {
    return __builtin_ffs(bits);
}
inline void __threadfence() {}
inline int atomicAdd(int* to, int value) {
    return std::exchange(*to, *to + value);
}
inline unsigned atomicAdd(unsigned* to, unsigned value) {
    return std::exchange(*to, *to + value);
}
inline unsigned __float_as_uint(float value) {
    unsigned bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline float __uint_as_float(unsigned bits) {
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(high) << 32 | low;
    unsigned picked = 0;
    for (unsigned i = 0; i < 4; ++i)
        picked |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return picked;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline double __dadd_rn(double a, double b) {
    return a + b;
}
inline double __dmul_rn(double a, double b) {
    return a * b;
}
inline double __ddiv_rn(double a, double b) {
    return a / b;
}
inline long long __double_as_longlong(double value) {
    long long bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
inline double __longlong_as_double(long long bits) {
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
inline float rsqrtf(float x) {
    return 1.0f / std::sqrt(x);
}
inline float __fdividef(float a, float b) {
    return a / b;
}

// ---- the host's side ----

enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2, cudaErrorNotReady = 600, cudaErrorUnknown = 999 };
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum : unsigned {
    cudaHostAllocDefault = 0,
    cudaStreamNonBlocking = 1,
    cudaHostAllocMapped = 2,
    cudaEventDisableTiming = 2
};

enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaGraphNodeType { cudaGraphNodeTypeConditional = 13 };
enum cudaGraphConditionalNodeType { cudaGraphCondTypeIf, cudaGraphCondTypeWhile };

struct CudaStandInStream;
struct CudaStandInGraph;
struct CudaStandInEvent;
struct CudaStandInNode;
using cudaStream_t = CudaStandInStream*;
using cudaGraph_t = CudaStandInGraph*;
using cudaGraphExec_t = CudaStandInGraph*;
using cudaEvent_t = CudaStandInEvent*;
using cudaGraphNode_t = CudaStandInNode*;
using cudaGraphConditionalHandle = unsigned long long;
struct cudaGraphEdgeData {};
struct cudaConditionalNodeParams {
    cudaGraphConditionalHandle handle;
    cudaGraphConditionalNodeType type;
    unsigned size;
    cudaGraph_t* phGraph_out;
};
struct cudaGraphNodeParams {
    cudaGraphNodeType type;
    cudaConditionalNodeParams conditional;
};

struct cudaUUID_t {
    char bytes[16];
};
struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    std::size_t totalGlobalMem;
    int major, minor;
};

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetPCIBusId(char* address, int bytes, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
enum cudaDeviceAttr {
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81
};
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
struct cudaFuncAttributes {
    int ptxVersion;
};
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
template <typename... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
    return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
enum cudaDeviceP2PAttr { cudaDevP2PAttrNativeAtomicSupported = 3 };
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int device, int peer);
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* argument);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* behind,
                                          const cudaGraphEdgeData* edges, std::size_t n, cudaStreamCaptureMode mode);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** ends, const cudaGraphEdgeData** edges,
                                     std::size_t* n);
cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags);
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph, unsigned value,
                                             unsigned flags);
cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* behind,
                             const cudaGraphEdgeData* edges, std::size_t n, cudaGraphNodeParams* parameters);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

namespace cuda_stand_in {
// Does it, or keeps it where the stream is being captured.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
// The same of what may have to wait for others: false as long as it does. A graph that keeps it keeps `held` as well.
cudaError_t enqueue_collective(cudaStream_t stream, Work work, std::shared_ptr<void> held);
// What cudaGraphSetConditional does in a kernel.
void set_condition(cudaGraphConditionalHandle condition, bool goes_on);
} // namespace cuda_stand_in
