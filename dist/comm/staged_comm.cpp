// Copies, a host function, copies: see staged_comm.h.
#include "dist/comm/staged_comm.h"

#include "dist/comm/backoff.h"
#include "dist/comm/check.h"
#include "dist/error.h"

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
        for (auto& [count, sum] : sums_)
            cudaFreeHost(sum.numbers);
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
    void await_stream(void* stream, Deadline deadline) override;

  private:
    // Of so many numbers; stays where it is, graphs point to it.
    struct Sum {
        StagedComm* comm = nullptr;
        std::size_t count = 0;
        float* numbers = nullptr; // pinned
    };

    Sum& sum_of(std::size_t count);
    static void add_up(void* sum);

    std::unique_ptr<Communicator> host_;
    double timeout_seconds_;
    std::map<std::size_t, Sum> sums_; // by count: those of one stream come one after another
    std::mutex failing_;
    std::exception_ptr failure_; // of a sum on CUDA's thread; the others are left out from then on
};

StagedComm::Sum& StagedComm::sum_of(std::size_t count) {
    Sum& sum = sums_[count];
    if (sum.numbers != nullptr) return sum;
    sum.comm = this;
    sum.count = count;
    void* memory = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed; // memory may be asked for under capture
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    const cudaError_t made = cudaHostAlloc(&memory, count * sizeof(float), cudaHostAllocDefault);
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    check_cuda(made, "cudaHostAlloc");
    sum.numbers = static_cast<float*>(memory);
    return sum;
}

void StagedComm::enqueue_all_reduce_sum(void* data, std::size_t count, ElementType type, void* stream) {
    if (type != ElementType::float32) throw Error("all-reduce on the host takes float32 only");
    Sum& sum = sum_of(count);
    const auto on = static_cast<cudaStream_t>(stream);
    const std::size_t bytes = count * sizeof(float);
    count_all_reduce(bytes);
    check_cuda(cudaMemcpyAsync(sum.numbers, data, bytes, cudaMemcpyDeviceToHost, on), "cudaMemcpyAsync");
    check_cuda(cudaLaunchHostFunc(on, &StagedComm::add_up, &sum), "cudaLaunchHostFunc");
    check_cuda(cudaMemcpyAsync(data, sum.numbers, bytes, cudaMemcpyHostToDevice, on), "cudaMemcpyAsync");
}

// On a thread of CUDA's.
void StagedComm::add_up(void* sum) {
    const Sum& what = *static_cast<Sum*>(sum);
    StagedComm& self = *what.comm;
    {
        const std::lock_guard lock(self.failing_);
        if (self.failure_) return;
    }
    try {
        self.host_->all_reduce_sum(what.numbers, what.count, Deadline::after_seconds(self.timeout_seconds_));
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
