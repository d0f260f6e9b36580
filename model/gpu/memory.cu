#include "model/gpu/memory.h"

#include "dist/comm/backoff.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

namespace {

#if defined(CUDART_VERSION) && CUDART_VERSION < 13000 // before version 13 the forms with edges have other names
constexpr auto get_capture_info = cudaStreamGetCaptureInfo_v3;
constexpr auto add_node = cudaGraphAddNode_v2;
#else
constexpr auto get_capture_info = cudaStreamGetCaptureInfo;
constexpr auto add_node = cudaGraphAddNode;
#endif

cudaStream_t of(const Stream& stream) {
    return static_cast<cudaStream_t>(stream.handle());
}

void destroy_recording(void* graph) {
    cudaGraphDestroy(static_cast<cudaGraph_t>(graph));
}
Held<destroy_recording> new_recording() {
    cudaGraph_t made = nullptr;
    check(cudaGraphCreate(&made, 0), "cudaGraphCreate");
    return Held<destroy_recording>(made);
}

constexpr unsigned kCopyThreads = 256;

__global__ void copy_words(unsigned* to, const unsigned* from, std::size_t count) {
    begin_kernel();
    const std::size_t i = static_cast<std::size_t>(blockIdx.x) * kCopyThreads + threadIdx.x;
    if (i < count) to[i] = from[i];
}

// Adds the work that `record` puts on the stream to the graph: after node `behind`, or at the start if it is null.
// Returns its last node. Other threads of the process may call CUDA meanwhile.
cudaGraphNode_t record_into(const Stream& stream, void* graph, const cudaGraphNode_t* behind,
                            const std::function<void()>& record) {
    check(cudaStreamBeginCaptureToGraph(of(stream), static_cast<cudaGraph_t>(graph), behind, nullptr,
                                        behind != nullptr ? 1 : 0, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCaptureToGraph");
    cudaGraph_t same = nullptr;
    cudaGraphNode_t last = nullptr;
    try {
        record();
        cudaStreamCaptureStatus status = {};
        const cudaGraphNode_t* ends = nullptr;
        const cudaGraphEdgeData* edges = nullptr;
        std::size_t n_ends = 0;
        check(get_capture_info(of(stream), &status, nullptr, nullptr, &ends, &edges, &n_ends),
              "cudaStreamGetCaptureInfo");
        if (n_ends != 1) throw dist::Error("work of a stream ends in " + std::to_string(n_ends) + " places");
        last = ends[0];
    } catch (...) {
        cudaStreamEndCapture(of(stream), &same);
        throw;
    }
    check(cudaStreamEndCapture(of(stream), &same), "cudaStreamEndCapture");
    return last;
}

} // namespace

Stream::Stream() {
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    handle_.reset(made);
}
void destroy_stream(void* stream) {
    cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}

void Stream::wait(double timeout_seconds) const {
    dist::Backoff backoff(dist::Deadline::after_seconds(timeout_seconds), dist::Backoff::kSpins,
                          dist::Backoff::kPassPatience);
    for (;;) {
        const cudaError_t state = cudaStreamQuery(of(*this));
        if (state == cudaSuccess) return;
        if (state != cudaErrorNotReady) check(state, "cudaStreamQuery");
        if (!backoff.step())
            throw dist::Timeout("the GPU has not ended its work in " + std::to_string(timeout_seconds) + " s");
    }
}

void Graph::instantiate(void* recording) {
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, static_cast<cudaGraph_t>(recording), 0), "cudaGraphInstantiate");
    executable_.reset(executable);
}

Graph::Graph(const Stream& stream, const std::function<void()>& record) {
    const auto recording = new_recording();
    record_into(stream, recording.get(), nullptr, record);
    instantiate(recording.get());
}

Graph::Graph(const Stream& stream, const Repeated& parts) {
    const auto recording = new_recording();
    const auto graph = static_cast<cudaGraph_t>(recording.get());
    cudaGraphConditionalHandle condition = 0;
    check(cudaGraphConditionalHandleCreate(&condition, graph, 0, 0), "cudaGraphConditionalHandleCreate");
    cudaGraphNode_t end_of_first = record_into(stream, graph, nullptr, [&] { parts.first(condition); });
    cudaGraphNodeParams loop = {};
    loop.type = cudaGraphNodeTypeConditional;
    loop.conditional.handle = condition;
    loop.conditional.type = cudaGraphCondTypeWhile;
    loop.conditional.size = 1;
    cudaGraphNode_t repeated = nullptr;
    check(add_node(&repeated, graph, &end_of_first, nullptr, 1, &loop), "cudaGraphAddNode");
    record_into(stream, loop.conditional.phGraph_out[0], nullptr, parts.again);
    record_into(stream, graph, &repeated, parts.last);
    instantiate(graph);
}

void destroy_graph(void* executable) {
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable));
}

void Graph::launch(const Stream& stream) const {
    check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_.get()), of(stream)), "cudaGraphLaunch");
}

DeviceBytes::DeviceBytes(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* memory = nullptr;
    const cudaError_t made = cudaMalloc(&memory, bytes);
    if (made != cudaSuccess) cudaGetLastError(); // clears the error: it is reported here, not by the next call
    if (made == cudaErrorMemoryAllocation)
        throw dist::Error("the GPU has no " + std::to_string(bytes >> 20) +
                          " MiB left: " + std::to_string(device_memory().free_bytes >> 20) + " MiB are free");
    check(made, "cudaMalloc");
    data_.reset(memory);
    check(cudaMemset(memory, 0, bytes), "cudaMemset");
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); // our streams do not wait for the null stream
}
void free_device(void* bytes) {
    cudaFree(bytes);
}

PinnedBytes::PinnedBytes(std::size_t bytes) {
    if (bytes == 0) return;
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped), "cudaHostAlloc");
    data_.reset(memory);
}
void free_pinned(void* bytes) {
    cudaFreeHost(bytes);
}

void copy(const Stream& stream, void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, of(stream)), "cudaMemcpyAsync");
}

void copy_by_kernel(const Stream& stream, void* to, const void* from, std::size_t bytes) {
    launch(stream.handle(), {blocks_for(bytes, kCopyThreads * sizeof(unsigned)), kCopyThreads}, copy_words,
           static_cast<unsigned*>(to), static_cast<const unsigned*>(from), bytes / sizeof(unsigned));
}

DeviceMemory device_memory() {
    DeviceMemory memory;
    check(cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes), "cudaMemGetInfo");
    return memory;
}

} // namespace entrodraft::model::gpu
