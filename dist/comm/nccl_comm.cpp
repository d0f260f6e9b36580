// NCCL with deadlines: see nccl_comm.h.
//
// NCCL has no timeout of its own: its kernels spin until they are aborted. So the communicator is non-blocking (every
// call may return "in progress"), and the host polls. A failure, a deadline or an unwinding stack aborts the
// communicator.
#include "dist/comm/nccl_comm.h"

#include "dist/comm/agreement.h"
#include "dist/comm/backoff.h"
#include "dist/comm/nccl_guard.h"
#include "dist/comm/push.h"
#include "dist/rank/check.h"
#include "dist/rank/device.h"
#include "dist/rank/error.h"

#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <future>
#include <string>
#include <thread>
#include <utility>

namespace entrodraft::dist {
namespace {

ncclDataType_t nccl_type(ElementType type) {
    switch (type) {
    case ElementType::float32:
        return ncclFloat32;
    case ElementType::bfloat16:
        return ncclBfloat16;
    case ElementType::float16:
        return ncclFloat16;
    }
    throw Error("unknown element type in all-reduce");
}

// NCCL can keep captured collectives apart from others that run at the same time. That costs two graph nodes for each.
// Our collectives never overlap, because a rank has all of them on one stream.
constexpr const char* kGraphMixing = "NCCL_GRAPH_MIXING_SUPPORT"; // from 2.30 on it overrules the config

// Must run before the first NCCL call that reads variables.
void turn_graph_mixing_off() {
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 30, 0)
    static const int status = setenv(kGraphMixing, "0", 0); // unless the user has set it
    if (status != 0) throw Error(std::string(kGraphMixing) + " cannot be set");
#endif
}

ncclConfig_t config_of_connection() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
    config.graphUsageMode = 1; // graphs run one after another
#endif
    return config;
}

int nccl_version() {
    int version = 0;
    check_nccl(ncclGetVersion(&version), "ncclGetVersion");
    return version;
}

// A word of host memory that the device reads and writes too; 0 at first.
class SharedWord {
  public:
    SharedWord() {
        void* memory = nullptr;
        check_cuda(cudaHostAlloc(&memory, sizeof(unsigned), cudaHostAllocMapped), "cudaHostAlloc");
        word_.reset(static_cast<unsigned*>(memory));
        *word_ = 0;
    }
    volatile unsigned* get() const { return word_.get(); }

  private:
    struct Free {
        void operator()(unsigned* word) const { cudaFreeHost(word); }
    };
    std::unique_ptr<unsigned, Free> word_;
};

class NcclComm final : public Communicator {
  public:
    NcclComm(int rank, int size, const NcclOptions& options);
    NcclComm(const NcclComm&) = delete;
    NcclComm& operator=(const NcclComm&) = delete;
    ~NcclComm() override;

    // Collective over the group.
    void connect(const ncclUniqueId& id, Deadline deadline);
    // Returns whether this rank can write to the memory of all others. Either all ranks push or none does.
    bool can_push() const { return inbox_ != nullptr; }
    void refrain_from_pushing() { inbox_.reset(); }

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::string name() const override { return "nccl"; }
    void start_all_reduce_sum(void* data, std::size_t count, ElementType type) override;
    void start_broadcast(void* data, std::size_t bytes, int root) override;
    void start_gather(const void* mine, void* all, std::size_t bytes, int root) override;
    void wait(Deadline deadline) override;
    void barrier(Deadline deadline) override;
    void enqueue_all_reduce_sum(void* data, std::size_t count, ElementType type, void* stream) override;
    bool enqueued_sums_are_ordered() const override { return size_ <= 2; } // a + b = b + a
    void enqueue_all_gather(const void* mine, void* all, std::size_t bytes, void* stream) override;
    std::size_t fast_gather_bytes() const override { return can_push() ? kMaxPushedBytes : 0; }
    void abort() override { abort_connection(); }
    void await_stream(void* stream, Deadline deadline) override;
    std::unique_ptr<SymmetricBuffer> make_symmetric_buffer(std::size_t bytes, Deadline deadline) override;

  private:
    class Window;

    void make_inbox(Deadline deadline);
    void require_idle(const char* what) const;
    void begin_on(void* stream) const;
    void begin(const char* what);
    bool nccl_is_idle();
    void await_nccl(const char* what, Deadline deadline);
    template <typename Query> void await_device(const char* what, Deadline deadline, const Query& query);
    [[noreturn]] void throw_timeout(const char* what, double seconds);
    void close_connection();
    void abort_connection();

    int rank_;
    int size_;
    NcclOptions options_;
    bool begins_too_early_ = begins_too_early(nccl_version());
    int exceptions_at_start_ = std::uncaught_exceptions();
    DeviceBuffer barrier_token_;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t work_done_ = nullptr; // on the work stream: the collective's inputs are final
    cudaEvent_t finished_ = nullptr;  // on our stream: the collective has ended
    ncclComm_t comm_ = nullptr;       // null before connect and after an abort
    const char* in_flight_ = nullptr; // name of the running collective, for messages
    SharedWord has_ended_;            // a gather ended before all parts had come
    std::unique_ptr<Window> inbox_;   // for words that others push; null: NCCL gathers
    DeviceBuffer push_state_;         // freed first; freeing it waits for the device
};

// A symmetric window: memory registered on every rank. NCCL may then sum small messages in one shot over the ranks'
// memory (within a node with NVLink; elsewhere it sums as usual), and a kernel may write to other ranks' memory.
class NcclComm::Window final : public SymmetricBuffer {
  public:
    Window(NcclComm& owner, std::size_t bytes, Deadline deadline) : owner_(owner) {
        void* memory = nullptr;
        check_nccl(ncclMemAlloc(&memory, bytes), "ncclMemAlloc");
        memory_.reset(memory);
        check_cuda(cudaMemset(memory, 0, bytes), "cudaMemset");
        check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); // our streams do not wait for it
        try {
            check_nccl(ncclCommWindowRegister(owner.comm_, memory, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC),
                       "ncclCommWindowRegister");
            owner.await_nccl("registering memory", deadline);
        } catch (...) { // NCCL may still write into both members
            owner.abort_connection();
            throw;
        }
    }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;
    ~Window() override {
        if (owner_.comm_ != nullptr && window_ != nullptr) ncclCommWindowDeregister(owner_.comm_, window_);
    }
    void* data() const override { return memory_.get(); }
    ncclWindow_t handle() const { return window_; } // null where windows are not supported

  private:
    struct Free {
        void operator()(void* memory) const { ncclMemFree(memory); }
    };

    NcclComm& owner_;
    std::unique_ptr<void, Free> memory_;
    ncclWindow_t window_ = nullptr;
};

NcclComm::NcclComm(int rank, int size, const NcclOptions& options)
    : rank_(rank), size_(size), options_(options), barrier_token_(options.device, sizeof(float)),
      push_state_(options.device, sizeof(PushState)) {
    check_cuda(cudaMemset(barrier_token_.data(), 0, barrier_token_.bytes()), "cudaMemset");
    check_cuda(cudaMemset(push_state_.data(), 0, push_state_.bytes()), "cudaMemset");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); // our streams do not wait for it
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check_cuda(cudaEventCreateWithFlags(&work_done_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check_cuda(cudaEventCreateWithFlags(&finished_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

NcclComm::~NcclComm() {
    const bool unwinding = std::uncaught_exceptions() > exceptions_at_start_;
    if (comm_ != nullptr && (unwinding || in_flight_ != nullptr)) abort_connection();
    if (comm_ != nullptr) {
        inbox_.reset();
        close_connection();
    }
    if (finished_ != nullptr) cudaEventDestroy(finished_);
    if (work_done_ != nullptr) cudaEventDestroy(work_done_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void NcclComm::connect(const ncclUniqueId& id, Deadline deadline) {
    ncclConfig_t config = config_of_connection();
    check_nccl(ncclCommInitRankConfig(&comm_, size_, id, rank_, &config), "ncclCommInitRankConfig");
    await_nccl("connecting", deadline);
    barrier(deadline); // the first collective sets up things that cannot be set up under capture
    if (size_ > 1) make_inbox(deadline);
}

void NcclComm::make_inbox(Deadline deadline) {
    auto inbox = std::make_unique<Window>(*this, inbox_bytes(size_), deadline);
    if (inbox->handle() != nullptr && ncclTeamLsa(comm_).nRanks == size_) inbox_ = std::move(inbox);
}

void NcclComm::start_all_reduce_sum(void* data, std::size_t count, ElementType type) {
    const ncclDataType_t element = nccl_type(type);
    begin("all-reduce");
    count_all_reduce(count * (type == ElementType::float32 ? sizeof(float) : sizeof(std::uint16_t)));
    check_nccl(ncclAllReduce(data, data, count, element, ncclSum, comm_, stream_), "ncclAllReduce");
}

void NcclComm::start_broadcast(void* data, std::size_t bytes, int root) {
    begin("broadcast");
    count_broadcast(bytes);
    check_nccl(ncclBroadcast(data, data, bytes, ncclInt8, root, comm_, stream_), "ncclBroadcast");
}

void NcclComm::start_gather(const void* mine, void* all, std::size_t bytes, int root) {
    begin("gather");
    count_gather(bytes);
    auto* places = static_cast<std::byte*>(all);
    if (rank_ == root) {
        std::byte* own = places + static_cast<std::size_t>(rank_) * bytes;
        if (own != mine) {
            check_cuda(cudaMemcpyAsync(own, mine, bytes, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync");
        }
    }
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    if (rank_ != root) check_nccl(ncclSend(mine, bytes, ncclInt8, root, comm_, stream_), "ncclSend");
    for (int peer = 0; rank_ == root && peer < size_; ++peer) {
        if (peer == root) continue;
        check_nccl(ncclRecv(places + static_cast<std::size_t>(peer) * bytes, bytes, ncclInt8, peer, comm_, stream_),
                   "ncclRecv");
    }
    check_nccl(ncclGroupEnd(), "ncclGroupEnd");
}

void NcclComm::wait(Deadline deadline) {
    if (in_flight_ == nullptr) throw Error("wait without a collective in flight");
    try {
        await_nccl(in_flight_, deadline);
        check_cuda(cudaEventRecord(finished_, stream_), "cudaEventRecord");
        await_device(in_flight_, deadline, [this] { return cudaEventQuery(finished_); });
    } catch (...) {
        abort_connection();
        throw;
    }
    in_flight_ = nullptr;
}

void NcclComm::barrier(Deadline deadline) {
    start_all_reduce_sum(barrier_token_.data(), 1, ElementType::float32);
    wait(deadline);
}

void NcclComm::enqueue_all_reduce_sum(void* data, std::size_t count, ElementType type, void* stream) {
    const ncclDataType_t element = nccl_type(type);
    require_idle("all-reduce");
    count_all_reduce(count * (type == ElementType::float32 ? sizeof(float) : sizeof(std::uint16_t)));
    begin_on(stream);
    check_nccl(ncclAllReduce(data, data, count, element, ncclSum, comm_, static_cast<cudaStream_t>(stream)),
               "ncclAllReduce");
    await_nccl("all-reduce", Deadline::after_seconds(options_.enqueue_seconds));
}

void NcclComm::enqueue_all_gather(const void* mine, void* all, std::size_t bytes, void* stream) {
    require_idle("all-gather");
    count_gather(bytes);
    if (inbox_ && bytes <= kMaxPushedBytes && bytes % kPushedWord == 0) {
        PushCall call;
        call.mine = mine;
        call.all = all;
        call.bytes = bytes;
        call.rank = rank_;
        call.ranks = size_;
        call.inbox = inbox_->handle();
        call.state = static_cast<PushState*>(push_state_.data());
        call.has_ended = has_ended_.get();
        call.limit_ns = static_cast<std::uint64_t>(options_.gather_seconds * 1e9);
        return push_and_collect(stream, call);
    }
    begin_on(stream);
    check_nccl(ncclAllGather(mine, all, bytes, ncclInt8, comm_, static_cast<cudaStream_t>(stream)), "ncclAllGather");
    await_nccl("all-gather", Deadline::after_seconds(options_.enqueue_seconds));
}

std::unique_ptr<SymmetricBuffer> NcclComm::make_symmetric_buffer(std::size_t bytes, Deadline deadline) {
    require_idle("making memory for sums");
    check_cuda(cudaSetDevice(options_.device), "cudaSetDevice");
    return std::make_unique<Window>(*this, bytes, deadline);
}

void NcclComm::await_stream(void* stream, Deadline deadline) {
    require_idle("waiting for a pass");
    await_device("a pass", deadline, [&] {
        const cudaError_t state = cudaStreamQuery(static_cast<cudaStream_t>(stream));
        if (*has_ended_.get() != 0) throw_timeout("a pass", options_.gather_seconds);
        return state;
    });
}

void NcclComm::require_idle(const char* what) const {
    if (comm_ == nullptr) throw Error(std::string(what) + " on a communicator that has failed before");
    if (in_flight_ != nullptr) throw Error(std::string(what) + " started while a " + in_flight_ + " is in flight");
}

// Runs before an NCCL collective on a stream that has kernels of ours.
void NcclComm::begin_on(void* stream) const {
    if (begins_too_early_) end_all_before(stream);
}

// The collective waits, on the device, for the current work of the work stream. A kernel never begins before an event
// that it waits for.
void NcclComm::begin(const char* what) {
    require_idle(what);
    check_cuda(cudaSetDevice(options_.device), "cudaSetDevice");
    check_cuda(cudaEventRecord(work_done_, static_cast<cudaStream_t>(options_.work_stream)), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(stream_, work_done_, 0), "cudaStreamWaitEvent");
    in_flight_ = what;
}

bool NcclComm::nccl_is_idle() {
    ncclResult_t state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    check_nccl(state, "NCCL");
    return state != ncclInProgress;
}

// Waits until the calls made so far have done their part on the host.
void NcclComm::await_nccl(const char* what, Deadline deadline) {
    Backoff backoff(deadline);
    while (!nccl_is_idle()) {
        if (!backoff.step()) throw_timeout(what, backoff.waited_seconds());
    }
}

// Waits until `query` says that the device is done.
template <typename Query> void NcclComm::await_device(const char* what, Deadline deadline, const Query& query) {
    Backoff backoff(deadline, Backoff::kSpins, Backoff::kPassPatience);
    for (;;) {
        const cudaError_t state = query();
        if (state == cudaSuccess) return;
        if (state != cudaErrorNotReady) check_cuda(state, what);
        nccl_is_idle(); // throws the errors that NCCL has noticed meanwhile
        if (!backoff.step()) throw_timeout(what, backoff.waited_seconds());
    }
}

void NcclComm::throw_timeout(const char* what, double seconds) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "rank %d waited %.1f s for the other %d ranks in %s over NCCL: one is dead, stopped or stuck",
                  world_rank_or_zero(), seconds, size_ - 1, what);
    throw Timeout(text);
}

// Closes in order; if a peer does not come, aborts instead.
void NcclComm::close_connection() {
    try {
        const Deadline deadline = Deadline::after_seconds(options_.close_seconds);
        check_nccl(ncclCommFinalize(comm_), "ncclCommFinalize");
        await_nccl("closing", deadline);
        ncclCommDestroy(comm_);
        comm_ = nullptr;
    } catch (const Error&) {
        abort_connection();
    }
}

// ncclCommAbort waits as long as a graph holds a collective of this communicator, even on a non-blocking one. So it
// runs on a thread of its own; if it has not ended in time, that thread is left running.
void NcclComm::abort_connection() {
    if (comm_ == nullptr) return;
    *has_ended_.get() = 1;
    if (inbox_) std::this_thread::sleep_for(std::chrono::duration<double>(kLookSeconds)); // NCCL unmaps the inboxes
    std::promise<void> ended;
    const std::future<void> waits = ended.get_future();
    std::thread([ended = std::move(ended), comm = std::exchange(comm_, nullptr), device = options_.device]() mutable {
        cudaSetDevice(device);
        ncclCommAbort(comm);
        ended.set_value();
    }).detach();
    waits.wait_for(std::chrono::duration<double>(options_.close_seconds));
}

} // namespace

bool nccl_shares_gpus() {
    const char* allowed = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return nccl_version() >= 23000 && allowed != nullptr && std::string(allowed) == "1";
}

std::string describe_nccl() {
    const int version = nccl_version();
    Dl_info file = {};
    const bool is_known =
        dladdr(reinterpret_cast<const void*>(&ncclGetVersion), &file) != 0 && file.dli_fname != nullptr;
    std::string text = "NCCL " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
                       std::to_string(version % 100) + " (" + (is_known ? file.dli_fname : "unknown file") + ")";
    const char* mixing = std::getenv(kGraphMixing);
    if (mixing != nullptr) text += std::string(", ") + kGraphMixing + "=" + mixing;
    if (begins_too_early(version)) text += ", each of its calls behind a kernel that waits, which 2.30.7 does not need";
    return text;
}

std::unique_ptr<Communicator> make_nccl_comm(Communicator& host, const NcclOptions& options, Deadline deadline) {
    // Steps that can fail on one rank alone come first. All ranks learn of such a failure before any of them connects.
    std::unique_ptr<NcclComm> comm;
    ncclUniqueId id = {};
    Status mine;
    try {
        turn_graph_mixing_off();
        comm = std::make_unique<NcclComm>(host.rank(), host.size(), options);
        if (host.rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    } catch (const Error& error) {
        mine = {error.what(), 1};
    }
    const Status all = agree(host, mine, deadline);
    if (!all.ok()) throw Error(all.message);
    host.broadcast(&id, sizeof id, 0, deadline);
    try {
        comm->connect(id, deadline);
    } catch (const Error& error) {
        mine = {error.what(), 1};
    }
    // Ranks that wait for a failed rank reach the deadline themselves. They then need some time to agree.
    constexpr std::chrono::seconds kTimeToAgree{10};
    const bool bounded = deadline.at < std::chrono::steady_clock::time_point::max() - kTimeToAgree;
    const Status connected = agree(host, mine, bounded ? Deadline{deadline.at + kTimeToAgree} : deadline);
    if (!connected.ok()) throw Error(connected.message);
    float can_push = comm->can_push() ? 1 : 0;
    host.all_reduce_sum(&can_push, 1, deadline);
    if (can_push < static_cast<float>(host.size())) comm->refrain_from_pushing();
    return comm;
}

} // namespace entrodraft::dist
