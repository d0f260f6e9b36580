#include "entrodraft/model/gpu/memory.h"

#include "entrodraft/dist/backoff.h"
#include "entrodraft/model/gpu/simt.cuh"

#include <utility>

namespace entrodraft::model::gpu {

namespace {

cudaStream_t of(const Stream& stream) {
    return static_cast<cudaStream_t>(stream.handle());
}

} // namespace

Stream::Stream() {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    handle_ = made;
}
Stream::Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
Stream::~Stream() {
    if (handle_ != nullptr) cudaStreamDestroy(of(*this));
}

void Stream::wait(double timeout_seconds) const {
    dist::Backoff backoff(dist::Deadline::after_seconds(timeout_seconds));
    for (;;) {
        const cudaError_t state = cudaStreamQuery(of(*this));
        if (state == cudaSuccess) return;
        if (state != cudaErrorNotReady) check(state, "cudaStreamQuery");
        if (!backoff.step())
            throw dist::Timeout("the GPU has not ended its work in " + std::to_string(timeout_seconds) + " s");
    }
}

Graph::Graph(const Stream& stream, const std::function<void()>& record) {
    // Other threads of the process may call CUDA meanwhile.
    check(cudaStreamBeginCapture(of(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
        record();
    } catch (...) {
        cudaStreamEndCapture(of(stream), &graph);
        if (graph != nullptr) cudaGraphDestroy(graph);
        throw;
    }
    check(cudaStreamEndCapture(of(stream), &graph), "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    check(made, "cudaGraphInstantiate");
    executable_ = executable;
}
Graph::Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
Graph& Graph::operator=(Graph&& other) noexcept {
    std::swap(executable_, other.executable_);
    return *this;
}
Graph::~Graph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
}

void Graph::launch(const Stream& stream) const {
    check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), of(stream)), "cudaGraphLaunch");
}

DeviceBytes::DeviceBytes(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* memory = nullptr;
    const cudaError_t made = cudaMalloc(&memory, bytes);
    if (made != cudaSuccess) cudaGetLastError(); // it is told here, not by the next call
    if (made == cudaErrorMemoryAllocation)
        throw dist::Error("the GPU has no " + std::to_string(bytes >> 20) +
                          " MiB left: " + std::to_string(device_memory().free_bytes >> 20) + " MiB are free");
    check(made, "cudaMalloc");
    data_ = static_cast<std::byte*>(memory);
    check(cudaMemset(memory, 0, bytes), "cudaMemset");
}
DeviceBytes::DeviceBytes(DeviceBytes&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
DeviceBytes& DeviceBytes::operator=(DeviceBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}
DeviceBytes::~DeviceBytes() {
    if (data_ != nullptr) cudaFree(data_);
}

PinnedBytes::PinnedBytes(std::size_t bytes) {
    if (bytes == 0) return;
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped), "cudaHostAlloc");
    data_ = static_cast<std::byte*>(memory);
}
PinnedBytes::PinnedBytes(PinnedBytes&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
PinnedBytes& PinnedBytes::operator=(PinnedBytes&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
}
PinnedBytes::~PinnedBytes() {
    if (data_ != nullptr) cudaFreeHost(data_);
}

void copy(const Stream& stream, void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, of(stream)), "cudaMemcpyAsync");
}

DeviceMemory device_memory() {
    DeviceMemory memory;
    check(cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes), "cudaMemGetInfo");
    return memory;
}

} // namespace entrodraft::model::gpu
