#include "tests/cuda_stand_in/cuda_runtime.h"

#include <boost/context/fiber.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

struct CudaStandInGraph {
    std::vector<cuda_stand_in::Work> work;
    std::vector<std::shared_ptr<void>> held; // as long as the graph
    std::vector<std::shared_ptr<unsigned>> conditions;
};
struct CudaStandInStream {
    CudaStandInGraph* captured = nullptr;    // while it is being captured
    std::deque<cuda_stand_in::Work> waiting; // behind a collective that others have not come to
    std::uint64_t put = 0, done = 0;         // how much work it was ever given, and has ended
    bool last_lets_next_begin = false;       // of what was done last

    bool progress();
    void put_on(cuda_stand_in::Work work) {
        ++put;
        waiting.push_back(std::move(work));
        progress();
    }
};
struct CudaStandInEvent {
    CudaStandInStream* stream = nullptr;
    std::uint64_t put = 0; // on the stream when it was recorded

    bool has_come() const { return stream == nullptr || stream->progress() || stream->done >= put; }
};
struct CudaStandInNode {};

namespace cuda_stand_in {

namespace {

// The default stream is each thread's own.
CudaStandInStream& stream_of(cudaStream_t stream) {
    static thread_local CudaStandInStream of_thread;
    return stream != nullptr ? *stream : of_thread;
}

// A device with a fault, for what has to find it: of weights, which come in large copies, bytes here and there are
// others.
void spoil(void* copied, std::size_t bytes) {
    static const bool has_fault = std::getenv("CUDA_STAND_IN_FAULT") != nullptr;
    constexpr std::size_t kWeights = 8192, kStep = 509;
    for (std::size_t i = 1; has_fault && bytes >= kWeights && i < bytes; i += kStep)
        static_cast<unsigned char*>(copied)[i] ^= 0x81;
}

// For tests of the program: a line in that file for each graph that is made.
void note_graph() {
    static const char* const file = std::getenv("CUDA_STAND_IN_GRAPHS");
    if (file != nullptr) std::ofstream(file, std::ios::app) << "graph\n";
}

constexpr std::size_t kWarp = 32;
constexpr std::size_t kStackBytes = 128 * 1024, kLine = 64;

[[noreturn]] void fail(const char* what, const Place& place = here()) {
    std::fprintf(stderr, "CUDA stand-in: %s (block %u,%u,%u, thread %u,%u,%u)\n", what, place.block.x, place.block.y,
                 place.block.z, place.thread.x, place.thread.y, place.thread.z);
    std::abort();
}

// Stacks of fibers, kept from grid to grid. Those of a warp begin in different sets of a cache, or they would drive
// each other out of it at every switch.
class Stacks {
  public:
    boost::context::stack_context allocate() {
        if (free_.empty()) {
            const std::size_t bytes = kStackBytes + memory_.size() % kWarp * 3 * kLine;
            memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
            free_.emplace_back();
            free_.back().size = bytes;
            free_.back().sp = memory_.back().get() + bytes;
        }
        const boost::context::stack_context stack = free_.back();
        free_.pop_back();
        return stack;
    }
    void deallocate(const boost::context::stack_context& stack) { free_.push_back(stack); }

  private:
    std::vector<std::unique_ptr<std::byte[]>> memory_;
    std::vector<boost::context::stack_context> free_;
};
struct StacksOfThread {
    Stacks* stacks;
    boost::context::stack_context allocate() const { return stacks->allocate(); }
    void deallocate(boost::context::stack_context& stack) const { stacks->deallocate(stack); }
};

enum class Waits { no, for_warp, for_block, done };

struct Lane {
    boost::context::fiber fiber;
    Place place;
    unsigned shows = 0;      // times that it has shown something to its warp
    bool has_waited = false; // for the kernels before
};

struct Warp {
    unsigned waiting[4]; // lanes, a bit each, by what they wait for
    // What they show: the last time and the one before, as a lane may be one ahead of another, not two.
    alignas(16) Shown::OfWarp bytes[2];
    unsigned shows[2]; // of which show the bytes are
    unsigned shown[2]; // lanes that have shown theirs

    unsigned& lanes_waiting(Waits what) { return waiting[static_cast<int>(what)]; }
    void begin(std::size_t lanes) {
        std::ranges::fill(waiting, 0);
        lanes_waiting(Waits::no) = lanes < kWarp ? (1u << lanes) - 1 : ~0u;
        shows[0] = shows[1] = shown[0] = shown[1] = 0;
    }
    // Those that wait for it go on.
    void let_go(Waits what) { lanes_waiting(Waits::no) |= std::exchange(lanes_waiting(what), 0); }
};

// The block that runs, a warp at a time: its lanes hand over to each other until none can go on, and the last to the
// scheduler, which is the last of `lanes`.
class Block {
  public:
    Block(dim3 grid, dim3 size, unsigned char* shared, const std::function<void()>& kernel, bool has_to_wait,
          StacksOfThread stacks);
    ~Block();

    void run(unsigned x, unsigned y, unsigned z);

    Lane& running() { return lanes_[current_]; }
    Warp& warp() { return warps_[current_ / kWarp]; }
    void pause(Waits what) {
        const unsigned lane = 1u << current_ % kWarp;
        warp().lanes_waiting(Waits::no) &= ~lane;
        warp().lanes_waiting(what) |= lane;
        hand_over(next_of_warp());
    }

  private:
    std::size_t threads() const { return lanes_.size() - 1; }
    std::size_t next_of_warp();
    void hand_over(std::size_t next);
    bool release();

    const std::function<void()>& kernel_;
    const bool has_to_wait_;
    std::vector<Lane> lanes_;
    std::vector<Warp> warps_;
    std::size_t current_, before_ = 0; // the lane that runs, and the one that handed over to it
    bool over_ = false;
};

constexpr int kCodeThatWaits = 90;
std::atomic<int> code_for{kCodeThatWaits};
thread_local Block* block_of_thread = nullptr;
thread_local CudaStandInStream* stream_at_work = nullptr;
thread_local bool lets_next_begin = false; // the work that runs
thread_local long n_grids = 0, n_graphs = 0, n_launches = 0, n_waits = 0;

Block& block() {
    return *block_of_thread;
}

Block::Block(dim3 grid, dim3 size, unsigned char* shared, const std::function<void()>& kernel, bool has_to_wait,
             StacksOfThread stacks)
    : kernel_(kernel), has_to_wait_(has_to_wait), lanes_(static_cast<std::size_t>(size.x) * size.y * size.z + 1),
      warps_((threads() + kWarp - 1) / kWarp), current_(threads()) {
    for (std::size_t i = 0; i < threads(); ++i) {
        const auto n = static_cast<unsigned>(i);
        lanes_[i].place = {{n % size.x, n / size.x % size.y, n / (size.x * size.y)},
                           {},
                           size,
                           grid,
                           shared,
                           static_cast<int>(i % kWarp)};
        lanes_[i].fiber = boost::context::fiber(std::allocator_arg, stacks, [this](boost::context::fiber&& from) {
            lanes_[before_].fiber = std::move(from);
            while (!over_) {
                kernel_();
                if (has_to_wait_ && !running().has_waited) fail("a thread has not waited for the kernels before");
                pause(Waits::done);
            }
            current_ = threads();
            return std::move(lanes_[current_].fiber);
        });
    }
}

Block::~Block() {
    over_ = true;
    for (std::size_t i = 0; i < threads(); ++i)
        hand_over(i);
    running_place = nullptr;
}

void Block::hand_over(std::size_t next) {
    if (next == current_) return;
    before_ = std::exchange(current_, next);
    running_place = next == threads() ? nullptr : &lanes_[next].place;
    boost::context::fiber from = std::move(lanes_[next].fiber).resume();
    lanes_[before_].fiber = std::move(from);
}

// Who goes on after the lane that runs: one of its warp that can, or the scheduler.
std::size_t Block::next_of_warp() {
    const std::size_t lane = current_ % kWarp, first = current_ - lane;
    const unsigned behind = ~0u << lane << 1, ready = warp().lanes_waiting(Waits::no);
    if ((ready & behind) != 0) return first + static_cast<std::size_t>(std::countr_zero(ready & behind));
    const bool all_wait = (ready | warp().lanes_waiting(Waits::for_block)) == 0;
    if (!all_wait || warp().lanes_waiting(Waits::for_warp) == 0) return threads();
    warp().let_go(Waits::for_warp);
    return first + static_cast<std::size_t>(std::countr_zero(warp().lanes_waiting(Waits::no)));
}

// Lets those go on that all wait for the block; false where nobody can. Lanes that poll go on by themselves.
bool Block::release() {
    unsigned waiting[4] = {};
    for (const Warp& warp : warps_)
        for (int what = 0; what < 4; ++what)
            waiting[what] |= warp.waiting[what];
    if (waiting[static_cast<int>(Waits::no)] != 0) {
        std::this_thread::yield(); // what they wait for, another thread does
        return true;
    }
    if (waiting[static_cast<int>(Waits::for_block)] == 0 || waiting[static_cast<int>(Waits::for_warp)] != 0)
        return false;
    for (Warp& warp : warps_)
        warp.let_go(Waits::for_block);
    return true;
}

void Block::run(unsigned x, unsigned y, unsigned z) {
    for (std::size_t i = 0; i < warps_.size(); ++i)
        warps_[i].begin(threads() - i * kWarp);
    for (Lane& lane : lanes_) {
        lane.place.block = {x, y, z};
        lane.shows = 0;
        lane.has_waited = false;
    }
    do {
        for (std::size_t i = 0; i < warps_.size(); ++i)
            if (const unsigned ready = warps_[i].lanes_waiting(Waits::no); ready != 0)
                hand_over(i * kWarp + static_cast<std::size_t>(std::countr_zero(ready)));
    } while (release());
    for (std::size_t i = 0; i < threads(); ++i)
        if ((warps_[i / kWarp].lanes_waiting(Waits::done) >> i % kWarp & 1) == 0)
            fail("threads wait for others that never come to their barrier", lanes_[i].place);
}

} // namespace

constinit thread_local Place* running_place = nullptr;

Place& place_outside() {
    static thread_local Place outside;
    return outside;
}

void compile_for(int virtual_architecture) {
    code_for = virtual_architecture;
}

void note_wait() {
    block().running().has_waited |= code_for >= kCodeThatWaits;
}

void note_start_of_next() {
    lets_next_begin |= code_for >= kCodeThatWaits;
}

bool begins_beside_a_kernel() {
    return stream_at_work->last_lets_next_begin;
}

void let_others_run() {
    block().pause(Waits::no);
}

std::uint64_t clock_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

void block_barrier() {
    block().pause(Waits::for_block);
}
void warp_barrier() {
    block().pause(Waits::for_warp);
}

Shown show_warp(const void* mine, std::size_t bytes) {
    if (bytes > Shown::kMaxBytes) fail("a lane shows more than it may");
    const auto lane = static_cast<unsigned>(running_place->lane);
    Warp& warp = block().warp();
    const unsigned show = ++block().running().shows, i = show % 2;
    if (std::exchange(warp.shows[i], show) != show) warp.shown[i] = 0; // the first lane to show
    warp.shown[i] |= 1u << lane;
    std::memcpy(warp.bytes[i] + lane * bytes, mine, bytes);
    warp_barrier();
    return {warp.bytes[i], bytes, warp.shown[i]};
}

long grids_run() {
    return n_grids;
}

long graphs_made() {
    return n_graphs;
}

long graphs_launched() {
    return n_launches;
}

long streams_awaited() {
    return n_waits;
}

void run_grid(dim3 grid, dim3 size, std::size_t dynamic_shared_bytes, const std::function<void()>& kernel,
              bool may_begin_early) {
    static thread_local Stacks stacks;
    const std::unique_ptr<void, decltype(&std::free)> shared(
        std::aligned_alloc(128, (dynamic_shared_bytes + 128) / 128 * 128), &std::free);
    ++n_grids;
    Block all(grid, size, static_cast<unsigned char*>(shared.get()), kernel, may_begin_early, {&stacks});
    block_of_thread = &all;
    for (unsigned z = 0; z < grid.z; ++z)
        for (unsigned y = 0; y < grid.y; ++y)
            for (unsigned x = 0; x < grid.x; ++x) {
                std::memset(shared.get(), 0xff, dynamic_shared_bytes); // what is read before it is written has to show
                all.run(x, y, z);
            }
    block_of_thread = nullptr;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
    return enqueue_collective(
        stream,
        [work = std::move(work)] {
            work();
            return true;
        },
        nullptr);
}

cudaError_t enqueue_collective(cudaStream_t stream, Work work, std::shared_ptr<void> held) {
    CudaStandInStream& on = stream_of(stream);
    if (on.captured != nullptr) {
        on.captured->work.push_back(std::move(work));
        if (held) on.captured->held.push_back(std::move(held));
    } else {
        on.put_on(std::move(work));
    }
    return cudaSuccess;
}

void set_condition(cudaGraphConditionalHandle condition, bool goes_on) {
    *reinterpret_cast<unsigned*>(condition) = goes_on ? 1 : 0;
}

} // namespace cuda_stand_in

// Does what can be done. Whether that was all.
bool CudaStandInStream::progress() {
    using namespace cuda_stand_in;
    CudaStandInStream* const outer = std::exchange(stream_at_work, this);
    const bool outer_lets_next_begin = lets_next_begin;
    while (!waiting.empty()) {
        lets_next_begin = false;
        if (!waiting.front()()) break;
        last_lets_next_begin = lets_next_begin;
        waiting.pop_front();
        ++done;
    }
    stream_at_work = outer;
    lets_next_begin = outer_lets_next_begin;
    return waiting.empty();
}

const char* cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : error == cudaErrorMemoryAllocation ? "out of memory" : "error";
}
cudaError_t cudaGetLastError() {
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    *properties = {"CUDA stand-in", {"only one"}, std::size_t{4} << 30, 9, 0};
    return cudaSetDevice(device);
}
cudaError_t cudaDeviceGetPCIBusId(char* address, int bytes, int device) {
    std::snprintf(address, static_cast<std::size_t>(bytes), "none");
    return cudaSetDevice(device);
}
cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : cudaErrorUnknown;
}
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        *value = 3; // some items share a block of threads, some are shared among several
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = 228 << 10;
        return cudaSuccess;
    }
    return cudaErrorUnknown;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    attributes->ptxVersion = cuda_stand_in::code_for;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    *can = 0;
    return device == peer ? cudaSetDevice(device) : cudaErrorUnknown;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int device, int peer) {
    return cudaDeviceCanAccessPeer(value, device, peer);
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    // Never zero: what is read before it is written has to show.
    *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
    if (*memory == nullptr) return cudaErrorMemoryAllocation;
    std::memset(*memory, 0xff, bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
    std::free(memory);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
    return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
    return cudaFree(memory);
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
    *free_bytes = *total_bytes = std::size_t{4} << 30;
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
    std::memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    return cuda_stand_in::enqueue(stream, [=] {
        std::memcpy(to, from, bytes);
        cuda_stand_in::spoil(to, bytes);
    });
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
    std::memset(memory, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
    return cuda_stand_in::enqueue(stream, [=] { std::memset(memory, value, bytes); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    *stream = new CudaStandInStream;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    if (!cuda_stand_in::stream_of(stream).progress()) return cudaErrorNotReady;
    ++cuda_stand_in::n_waits;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    while (!cuda_stand_in::stream_of(stream).progress())
        std::this_thread::yield();
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* argument) {
    return cuda_stand_in::enqueue(stream, [=] { function(argument); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    return cuda_stand_in::enqueue_collective(
        stream, [recorded = *event] { return recorded.has_come(); }, nullptr);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
    *event = new CudaStandInEvent;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    CudaStandInStream& on = cuda_stand_in::stream_of(stream);
    *event = {&on, on.put};
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return event->has_come() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
    return cudaSuccess;
}
// What is recorded is done in the order in which it was: whatever is said of nodes.
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t*,
                                          const cudaGraphEdgeData*, std::size_t, cudaStreamCaptureMode) {
    if (stream == nullptr || stream->captured != nullptr) return cudaErrorUnknown;
    stream->captured = graph;
    return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*,
                                     cudaGraph_t*, const cudaGraphNode_t** ends, const cudaGraphEdgeData**,
                                     std::size_t* n) {
    static CudaStandInNode node;
    static const cudaGraphNode_t end = &node;
    *status = stream->captured != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    *ends = &end;
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    if (stream == nullptr || stream->captured == nullptr) return cudaErrorUnknown;
    *graph = std::exchange(stream->captured, nullptr);
    return cudaSuccess;
}
cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
    *graph = new CudaStandInGraph;
    return cudaSuccess;
}
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph, unsigned value,
                                             unsigned) {
    graph->conditions.push_back(std::make_shared<unsigned>(value));
    *handle = reinterpret_cast<cudaGraphConditionalHandle>(graph->conditions.back().get());
    return cudaSuccess;
}
cudaError_t cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t graph, const cudaGraphNode_t*, const cudaGraphEdgeData*,
                             std::size_t, cudaGraphNodeParams* parameters) {
    struct Body {
        CudaStandInGraph graph;
        cudaGraph_t pointer = &graph;
    };
    const auto body = std::make_shared<Body>();
    parameters->conditional.phGraph_out = &body->pointer;
    graph->work.push_back([body, handle = parameters->conditional.handle] { // no collectives in it
        while (*reinterpret_cast<unsigned*>(handle) != 0)
            for (const auto& work : body->graph.work)
                work();
        return true;
    });
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    cuda_stand_in::note_graph();
    *executable = new CudaStandInGraph(*graph);
    ++cuda_stand_in::n_graphs;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    ++cuda_stand_in::n_launches;
    for (const cuda_stand_in::Work& work : executable->work) // not what it holds: it may be destroyed meanwhile
        cuda_stand_in::enqueue_collective(stream, work, nullptr);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    delete executable;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
