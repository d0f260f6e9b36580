#include "model/gpu/memory.h"

#include "dist/comm/backoff.h"
#include "model/gpu/simt.cuh"

#include <utility>

namespace entrodraft::model::gpu {

namespace {

cudaStream_t of(const Stream& stream) {
    return static_cast<cudaStream_t>(stream.handle());
}

class OwnGraph {
  public:
    OwnGraph() { check(cudaGraphCreate(&graph_, 0), "cudaGraphCreate"); }
    OwnGraph(const OwnGraph&) = delete;
    OwnGraph& operator=(const OwnGraph&) = delete;
    ~OwnGraph() {
        if (graph_ != nullptr) cudaGraphDestroy(graph_);
    }
    cudaGraph_t get() const { return graph_; }
    cudaGraph_t release() const { return std::exchange(graph_, nullptr); }

  private:
    mutable cudaGraph_t graph_ = nullptr;
};

// Adds what `record` puts on the stream to the graph, behind a node or at its beginning; returns its last node. Other
// threads of the process may call CUDA meanwhile.
cudaGraphNode_t record_into(const Stream& stream, cudaGraph_t graph, const cudaGraphNode_t* behind,
                            const std::function<void()>& record) {
    check(cudaStreamBeginCaptureToGraph(of(stream), graph, behind, nullptr, behind != nullptr ? 1 : 0,
                                        cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCaptureToGraph");
    cudaGraph_t same = nullptr;
    cudaGraphNode_t last = nullptr;
    try {
        record();
        cudaStreamCaptureStatus status = {};
        const cudaGraphNode_t* ends = nullptr;
        const cudaGraphEdgeData* edges = nullptr;
        std::size_t n_ends = 0;
        check(cudaStreamGetCaptureInfo(of(stream), &status, nullptr, nullptr, &ends, &edges, &n_ends),
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
    handle_ = made;
}
Stream::Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
Stream::~Stream() {
    if (handle_ != nullptr) cudaStreamDestroy(of(*this));
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

// Takes the graph, which is then spent.
Graph::Graph(void* graph) {
    cudaGraphExec_t executable = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&executable, static_cast<cudaGraph_t>(graph), 0);
    cudaGraphDestroy(static_cast<cudaGraph_t>(graph));
    check(made, "cudaGraphInstantiate");
    executable_ = executable;
}

Graph::Graph(const Stream& stream, const std::function<void()>& record)
    : Graph([&] {
          const OwnGraph graph;
          record_into(stream, graph.get(), nullptr, record);
          return graph.release();
      }()) {}

Graph::Graph(const Stream& stream, const Repeated& parts)
    : Graph([&] {
          const OwnGraph graph;
          cudaGraphConditionalHandle condition = 0;
          check(cudaGraphConditionalHandleCreate(&condition, graph.get(), 0, 0), "cudaGraphConditionalHandleCreate");
          cudaGraphNode_t end_of_first = record_into(stream, graph.get(), nullptr, [&] { parts.first(condition); });
          cudaGraphNodeParams loop = {};
          loop.type = cudaGraphNodeTypeConditional;
          loop.conditional.handle = condition;
          loop.conditional.type = cudaGraphCondTypeWhile;
          loop.conditional.size = 1;
          cudaGraphNode_t repeated = nullptr;
          check(cudaGraphAddNode(&repeated, graph.get(), &end_of_first, nullptr, 1, &loop), "cudaGraphAddNode");
          record_into(stream, loop.conditional.phGraph_out[0], nullptr, [&] { parts.again(condition); });
          record_into(stream, graph.get(), &repeated, parts.last);
          return graph.release();
      }()) {}

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
    check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); // no stream of ours waits for that one
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
