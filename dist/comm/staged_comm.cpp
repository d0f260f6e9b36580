// A copy to the host, a function on the host, and a copy back: see staged_comm.h.
#include "dist/comm/staged_comm.h"

#include "dist/comm/backoff.h"
#include "dist/rank/check.h"
#include "dist/rank/error.h"

#include <cuda_runtime.h>

#include <exception>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace entrodraft::dist {
namespace {

class StagedComm final : public Communicator {
  public:
    StagedComm(std::unique_ptr<Communicator> host, double timeout_seconds)
        : host_(std::move(host)), timeout_seconds_(timeout_seconds) {}
    StagedComm(const StagedComm&) = delete;
    StagedComm& operator=(const StagedComm&) = delete;
    ~StagedComm() override {
        for (auto& [key, staged] : staged_)
            cudaFreeHost(staged.memory);
    }

    int rank() const override { return host_->rank(); }
    int size() const override { return host_->size(); }
    std::string name() const override { return "staged"; }
    void start_all_reduce_sum(void* data, std::size_t count, ElementType type) override {
        host_->start_all_reduce_sum(data, count, type);
    }
    void start_broadcast(void* data, std::size_t bytes, int root) override {
        host_->start_broadcast(data, bytes, root);
    }
    void start_gather(const void* mine, void* all, std::size_t bytes, int root) override {
        host_->start_gather(mine, all, bytes, root);
    }
    void wait(Deadline deadline) override { host_->wait(deadline); }
    bool is_ready() override { return host_->is_ready(); }
    void enqueue_all_reduce_sum(void* data, std::size_t count, ElementType type, void* stream) override;
    void enqueue_all_gather(const void* mine, void* all, std::size_t bytes, void* stream) override;
    void await_stream(void* stream, Deadline deadline) override;

  private:
    enum class Kind { sum, gather };
    // A collective of a given size. It stays at its address, because graphs point to it.
    struct Staged {
        StagedComm* comm = nullptr;
        Kind kind = Kind::sum;
        std::size_t bytes = 0;       // per rank
        std::byte* memory = nullptr; // pinned: this rank's bytes, in a gather followed by the bytes of all ranks

        std::byte* result() const { return kind == Kind::gather ? memory + bytes : memory; }
    };

    Staged& staged(Kind kind, std::size_t bytes);
    void enqueue(Staged& staged, const void* mine, void* result, std::size_t result_bytes, void* stream);
    void run(const Staged& staged);
    static void run_on_cuda_thread(void* staged);

    std::unique_ptr<Communicator> host_;
    double timeout_seconds_;
    std::map<std::pair<Kind, std::size_t>, Staged> staged_; // by bytes: collectives of one stream run one after another
    std::mutex failing_;
    std::exception_ptr failure_; // of CUDA's thread; later collectives are skipped
};

StagedComm::Staged& StagedComm::staged(Kind kind, std::size_t bytes) {
    Staged& staged = staged_[{kind, bytes}];
    if (staged.memory != nullptr) return staged;
    const std::size_t parts = kind == Kind::gather ? static_cast<std::size_t>(size()) + 1 : 1;
    void* memory = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed; // memory may be allocated under capture
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    const cudaError_t made = cudaHostAlloc(&memory, parts * bytes, cudaHostAllocDefault);
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    check_cuda(made, "cudaHostAlloc");
    staged = {this, kind, bytes, static_cast<std::byte*>(memory)};
    return staged;
}

void StagedComm::enqueue(Staged& staged, const void* mine, void* result, std::size_t result_bytes, void* stream) {
    const auto on = static_cast<cudaStream_t>(stream);
    check_cuda(cudaMemcpyAsync(staged.memory, mine, staged.bytes, cudaMemcpyDeviceToHost, on), "cudaMemcpyAsync");
    check_cuda(cudaLaunchHostFunc(on, &StagedComm::run_on_cuda_thread, &staged), "cudaLaunchHostFunc");
    check_cuda(cudaMemcpyAsync(result, staged.result(), result_bytes, cudaMemcpyHostToDevice, on), "cudaMemcpyAsync");
}

void StagedComm::enqueue_all_reduce_sum(void* data, std::size_t count, ElementType type, void* stream) {
    if (type != ElementType::float32) throw Error("all-reduce on the host takes float32 only");
    const std::size_t bytes = count * sizeof(float);
    count_all_reduce(bytes);
    enqueue(staged(Kind::sum, bytes), data, data, bytes, stream);
}

void StagedComm::enqueue_all_gather(const void* mine, void* all, std::size_t bytes, void* stream) {
    count_gather(bytes);
    enqueue(staged(Kind::gather, bytes), mine, all, static_cast<std::size_t>(size()) * bytes, stream);
}

void StagedComm::run(const Staged& staged) {
    const Deadline deadline = Deadline::after_seconds(timeout_seconds_);
    if (staged.kind == Kind::sum) {
        host_->all_reduce_sum(reinterpret_cast<float*>(staged.memory), staged.bytes / sizeof(float), deadline);
        return;
    }
    constexpr int kRoot = 0;
    host_->gather(staged.memory, staged.result(), staged.bytes, kRoot, deadline);
    host_->broadcast(staged.result(), static_cast<std::size_t>(size()) * staged.bytes, kRoot, deadline);
}

void StagedComm::run_on_cuda_thread(void* staged) {
    const Staged& what = *static_cast<Staged*>(staged);
    StagedComm& self = *what.comm;
    {
        const std::lock_guard lock(self.failing_);
        if (self.failure_) return;
    }
    try {
        self.run(what);
    } catch (...) {
        const std::lock_guard lock(self.failing_);
        self.failure_ = std::current_exception();
    }
}

void StagedComm::await_stream(void* stream, Deadline deadline) {
    Backoff backoff(deadline, Backoff::kCrowdedSpins); // the others need cores to sum
    for (;;) {
        const cudaError_t state = cudaStreamQuery(static_cast<cudaStream_t>(stream));
        if (state != cudaErrorNotReady) {
            check_cuda(state, "cudaStreamQuery");
            break;
        }
        if (!backoff.step())
            throw Timeout(fmt::format("rank {} waited {:f} s for a pass of its GPU", world_rank_or_zero(),
                                      backoff.waited_seconds()));
    }
    const std::lock_guard lock(failing_);
    if (failure_) std::rethrow_exception(failure_);
}

} // namespace

std::unique_ptr<Communicator> make_staged_comm(std::unique_ptr<Communicator> host, double timeout_seconds) {
    return std::make_unique<StagedComm>(std::move(host), timeout_seconds);
}

} // namespace entrodraft::dist
