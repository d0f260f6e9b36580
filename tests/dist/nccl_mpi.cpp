// NcclComm on as many GPUs as there are ranks; skipped with a message where there are fewer. One rank on one GPU
// runs all of its code as well, and several do that NCCL_HOSTID makes look like ranks of several hosts.
#ifdef ENTRODRAFT_CUDA
#include "tests/dist/late_writes.h"
#include "tests/dist/session_of_tests.h"

#include "dist/comm/nccl_comm.h"
#include "dist/rank/device.h"
#include "dist/rank/error.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>

namespace nccl_mpi {

using namespace entrodraft::dist;

Deadline far_off() {
    return Deadline::after_seconds(60);
}

constexpr unsigned kSeconds = 120; // a test that hangs ends its process

// Collectives of a stream of its own, kept to be launched.
class CapturedWork {
  public:
    explicit CapturedWork(const std::function<void(cudaStream_t)>& enqueue) {
        EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
        EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
        enqueue(stream_);
        cudaGraph_t graph = nullptr;
        EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
        count_early_edges(graph);
        EXPECT_EQ(cudaGraphInstantiate(&executable_, graph, 0), cudaSuccess);
        cudaGraphDestroy(graph);
    }
    CapturedWork(const CapturedWork&) = delete;
    CapturedWork& operator=(const CapturedWork&) = delete;
    ~CapturedWork() {
        forget();
        cudaStreamDestroy(stream_);
    }
    cudaStream_t launch() const {
        EXPECT_EQ(cudaGraphLaunch(executable_, stream_), cudaSuccess);
        return stream_;
    }
    // Edges over which a node may begin before the one in front of it has ended.
    std::size_t early_edges() const { return early_edges_; }
    void forget() {
        if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
        executable_ = nullptr;
    }

  private:
    void count_early_edges(cudaGraph_t graph) {
        std::size_t n = 0;
#if CUDART_VERSION >= 13000
        const auto get_edges = cudaGraphGetEdges;
#else
        const auto get_edges = cudaGraphGetEdges_v2;
#endif
        EXPECT_EQ(get_edges(graph, nullptr, nullptr, nullptr, &n), cudaSuccess);
        std::vector<cudaGraphNode_t> from(n), to(n);
        std::vector<cudaGraphEdgeData> edges(n);
        EXPECT_EQ(get_edges(graph, from.data(), to.data(), edges.data(), &n), cudaSuccess);
        for (const cudaGraphEdgeData& edge : edges)
            early_edges_ += edge.type == cudaGraphDependencyTypeProgrammatic ? 1 : 0;
    }

    std::size_t early_edges_ = 0;
    cudaStream_t stream_ = nullptr;
    cudaGraphExec_t executable_ = nullptr;
};

class NcclCollectives : public testing::Test {
  protected:
    void SetUp() override {
        const Session& session = session_of_tests();
        const int devices = device_count();
        if (devices == 0 || (devices < session.node_local_size() && std::getenv("NCCL_HOSTID") == nullptr)) {
            GTEST_SKIP() << "needs a GPU a rank, " << session.node_local_size() << " here; this machine has "
                         << devices;
        }
        alarm(kSeconds);
        device_ = session.node_local_rank() % devices;
        use_device(device_);
        comm_ = make_nccl_comm(session_of_tests().world(), {.device = device_}, far_off());
    }

    void TearDown() override {
        comm_.reset();
        alarm(0);
    }

    int ranks() const { return comm_->size(); }

    DeviceBuffer on_device(const std::vector<float>& values) const {
        DeviceBuffer buffer(device_, values.size() * sizeof(float));
        EXPECT_EQ(cudaMemcpy(buffer.data(), values.data(), buffer.bytes(), cudaMemcpyHostToDevice), cudaSuccess);
        return buffer;
    }

    static std::vector<float> on_host(const DeviceBuffer& buffer) {
        std::vector<float> values(buffer.bytes() / sizeof(float));
        EXPECT_EQ(cudaMemcpy(values.data(), buffer.data(), buffer.bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
        return values;
    }

    int device_ = 0;
    std::unique_ptr<Communicator> comm_;
};

TEST_F(NcclCollectives, SumOverAllDevices) {
    for (std::size_t count : {1, 320, 4097, 100000}) {
        std::vector<float> values(count);
        for (std::size_t i = 0; i < count; ++i)
            values[i] = static_cast<float>(i % 1000) * static_cast<float>(comm_->rank() + 1);
        const DeviceBuffer data = on_device(values);
        comm_->start_all_reduce_sum(data.data(), count, ElementType::float32);
        comm_->wait(far_off());
        const std::vector<float> sums = on_host(data);
        std::size_t wrong = 0;
        const auto factor = static_cast<float>(ranks() * (ranks() + 1) / 2);
        for (std::size_t i = 0; i < count; ++i)
            wrong += sums[i] == static_cast<float>(i % 1000) * factor ? 0 : 1;
        EXPECT_EQ(wrong, 0U) << "of " << count;
    }
}

// As a pass does it: in the order of a stream, here the default one, waited for once.
TEST_F(NcclCollectives, SumInTheOrderOfAStream) {
    const DeviceBuffer data = on_device(std::vector<float>(4097, 1.0F));
    for (int i = 0; i < 2; ++i)
        comm_->enqueue_all_reduce_sum(data.data(), 4097, ElementType::float32, nullptr);
    EXPECT_THROW(comm_->enqueue_all_reduce_sum(data.data(), 4097, static_cast<ElementType>(9), nullptr), Error);
    comm_->await_stream(nullptr, far_off());
    const auto factor = static_cast<float>(ranks() * ranks());
    EXPECT_EQ(on_host(data), std::vector<float>(4097, factor));
    comm_->barrier(far_off());
}

// In memory of the communicator's own, of the sizes of passes: zeros, then what every rank hands over, summed twice.
TEST_F(NcclCollectives, SumInRegisteredMemory) {
    for (const std::size_t part : {1, 4096, 65536}) {
        const std::size_t count = part * static_cast<std::size_t>(ranks());
        const std::unique_ptr<SymmetricBuffer> memory = comm_->make_symmetric_buffer(count * sizeof(float), far_off());
        if (!memory) GTEST_SKIP() << "this NCCL has no windows";
        const auto expect_everywhere = [&](float value) {
            const DeviceBuffer all = on_device(std::vector<float>(count * static_cast<std::size_t>(ranks()), -1.0F));
            for (int root = 0; root < ranks(); ++root) {
                comm_->start_gather(memory->data(), all.data(), count * sizeof(float), root);
                comm_->wait(far_off());
            }
            EXPECT_EQ(on_host(all), std::vector<float>(all.bytes() / sizeof(float), value));
        };
        expect_everywhere(0);
        const DeviceBuffer ones = on_device(std::vector<float>(part, 1.0F));
        for (int root = 0; root < ranks(); ++root) {
            comm_->start_gather(ones.data(), memory->data(), ones.bytes(), root);
            comm_->wait(far_off());
        }
        for (int i = 0; i < 2; ++i)
            comm_->enqueue_all_reduce_sum(memory->data(), count, ElementType::float32, nullptr);
        comm_->await_stream(nullptr, far_off());
        expect_everywhere(static_cast<float>(ranks() * ranks()));
        comm_->barrier(far_off());
    }
}

TEST_F(NcclCollectives, BroadcastFromEveryRootAndGatherToEveryRoot) {
    for (int root = 0; root < ranks(); ++root) {
        const std::vector<float> mine(33, static_cast<float>(comm_->rank() + 1));
        const DeviceBuffer data = on_device(mine);
        const DeviceBuffer all = on_device(std::vector<float>(33 * static_cast<std::size_t>(ranks()), -1.0F));
        comm_->start_gather(data.data(), all.data(), data.bytes(), root);
        comm_->wait(far_off());
        if (comm_->rank() == root) {
            const std::vector<float> gathered = on_host(all);
            for (std::size_t i = 0; i < gathered.size(); ++i)
                EXPECT_EQ(gathered[i], static_cast<float>(i / 33 + 1));
        }
        comm_->start_broadcast(data.data(), data.bytes(), root);
        comm_->wait(far_off());
        EXPECT_EQ(on_host(data), std::vector<float>(33, static_cast<float>(root + 1)));
        comm_->barrier(far_off());
    }
}

TEST_F(NcclCollectives, TimeOutWithAMessageWhenARankStaysAway) {
    if (ranks() == 1) GTEST_SKIP() << "one rank waits for nobody";
    const DeviceBuffer data = on_device({1.0F});
    comm_->barrier(far_off());
    if (comm_->rank() != 0) {
        comm_->start_all_reduce_sum(data.data(), 1, ElementType::float32);
        EXPECT_THROW(comm_->wait(Deadline::after_seconds(0.5)), Timeout);
        EXPECT_THROW(comm_->start_all_reduce_sum(data.data(), 1, ElementType::float32), Error);
    }
    session_of_tests().world().barrier(far_off());
}

// As a pass is: once at once, then as a graph. What is gathered is small enough to be pushed (push.h) where the GPUs
// reach each other's memory.
TEST_F(NcclCollectives, CapturedCollectivesAreLaunchedAgainAndAgain) {
    const std::vector<float> mine(4096, static_cast<float>(comm_->rank() + 1));
    const DeviceBuffer summed = on_device(std::vector<float>(4096, 1.0F)), part = on_device(mine);
    const DeviceBuffer all = on_device(std::vector<float>(4096 * static_cast<std::size_t>(ranks()), -1.0F));
    const auto enqueue = [&](cudaStream_t stream) {
        comm_->enqueue_all_reduce_sum(summed.data(), 4096, ElementType::float32, stream);
        comm_->enqueue_all_gather(part.data(), all.data(), part.bytes(), stream);
    };
    enqueue(nullptr);
    comm_->await_stream(nullptr, far_off());
    const CapturedWork work(enqueue);
    float expected = static_cast<float>(ranks());
    for (int i = 0; i < 3; ++i) {
        comm_->await_stream(work.launch(), far_off());
        expected *= static_cast<float>(ranks());
        EXPECT_EQ(on_host(summed), std::vector<float>(4096, expected));
    }
    const std::vector<float> gathered = on_host(all);
    for (std::size_t i = 0; i < gathered.size(); ++i)
        ASSERT_EQ(gathered[i], static_cast<float>(i / 4096 + 1));
    comm_->barrier(far_off());
}

// NCCL's own abort waits for as long as a graph holds a collective.
TEST_F(NcclCollectives, AnAbortReturnsWithAGraphDestroyedOrAlive) {
    if (ranks() == 1) GTEST_SKIP() << "one rank waits for nobody";
    for (const bool is_destroyed : {true, false}) {
        const DeviceBuffer data = on_device(std::vector<float>(4096, 1.0F));
        CapturedWork work([&](cudaStream_t stream) {
            comm_->enqueue_all_reduce_sum(data.data(), 4096, ElementType::float32, stream);
        });
        comm_->await_stream(work.launch(), far_off());
        comm_->barrier(far_off());
        if (comm_->rank() != 0) {
            const auto began = std::chrono::steady_clock::now();
            EXPECT_THROW(comm_->await_stream(work.launch(), Deadline::after_seconds(0.5)), Timeout);
            if (is_destroyed) work.forget();
            comm_->abort();
            EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), 10);
            EXPECT_THROW(comm_->enqueue_all_reduce_sum(data.data(), 1, ElementType::float32, nullptr), Error);
        }
        work.forget();
        session_of_tests().world().barrier(far_off());
        comm_.reset();
        comm_ = make_nccl_comm(session_of_tests().world(), {.device = device_}, far_off());
    }
}

// A kernel of ours lets what follows begin and writes late (dist/comm/nccl_guard.h): what NCCL reads at once is old.
class NcclBehindAKernel : public NcclCollectives {
  protected:
    static constexpr std::size_t kCount = 4096; // of a pass's row: NCCL sums it in one shot where it can
    static constexpr int kLaunches = 1000;

    // In how many launches some element of data[0 .. kCount), which every rank sets to the launch's number late and
    // `sum` sums, is not what it has to be.
    int wrong_launches(const char* what, float* data, const std::function<void(cudaStream_t)>& sum) {
        const DeviceBuffer value(device_, sizeof(float));
        const CapturedWork work([&](cudaStream_t stream) {
            test::enqueue_late_writes(stream, data, kCount, static_cast<float*>(value.data()));
            sum(stream);
        });
        int wrong = 0;
        std::vector<float> sums(kCount);
        for (int i = 1; i <= kLaunches; ++i) {
            const auto number = static_cast<float>(i);
            EXPECT_EQ(cudaMemcpy(value.data(), &number, sizeof number, cudaMemcpyHostToDevice), cudaSuccess);
            comm_->await_stream(work.launch(), far_off());
            EXPECT_EQ(cudaMemcpy(sums.data(), data, kCount * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
            wrong += sums == std::vector<float>(kCount, number * static_cast<float>(ranks())) ? 0 : 1;
        }
        if (comm_->rank() == 0)
            std::printf("%s: %zu early edges, %d of %d launches wrong\n", what, work.early_edges(), wrong, kLaunches);
        comm_->barrier(far_off());
        return wrong;
    }
};

TEST_F(NcclBehindAKernel, SumsAreOfWhatTheKernelHasWritten) {
    if (comm_->rank() == 0) std::printf("%s\n", describe_nccl().c_str());
    const auto memory = comm_->make_symmetric_buffer(kCount * sizeof(float), far_off());
    if (!memory) GTEST_SKIP() << "this NCCL has no windows";
    auto* data = static_cast<float*>(memory->data());
    EXPECT_EQ(wrong_launches("guarded", data,
                             [&](cudaStream_t stream) {
                                 comm_->enqueue_all_reduce_sum(data, kCount, ElementType::float32, stream);
                             }),
              0);
}

// The same calls of NCCL alone: only printed, for whether a version that does not wait reads too early is a race.
TEST_F(NcclBehindAKernel, SumsWithoutAGuardAreCounted) {
    ncclUniqueId id = {};
    if (comm_->rank() == 0) {
        ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    }
    session_of_tests().world().broadcast(&id, sizeof id, 0, far_off());
    ncclComm_t comm = nullptr;
    ASSERT_EQ(ncclCommInitRank(&comm, ranks(), id, comm_->rank()), ncclSuccess);
    void* memory = nullptr;
    ncclWindow_t window = nullptr;
    ASSERT_EQ(ncclMemAlloc(&memory, kCount * sizeof(float)), ncclSuccess);
    ASSERT_EQ(ncclCommWindowRegister(comm, memory, kCount * sizeof(float), &window, NCCL_WIN_COLL_SYMMETRIC),
              ncclSuccess);
    wrong_launches("unguarded", static_cast<float*>(memory), [&](cudaStream_t stream) {
        EXPECT_EQ(ncclAllReduce(memory, memory, kCount, ncclFloat32, ncclSum, comm, stream), ncclSuccess);
    });
    if (window != nullptr) ncclCommWindowDeregister(comm, window);
    ncclCommDestroy(comm);
    ncclMemFree(memory);
}

TEST_F(NcclCollectives, RefuseACollectiveBesideAnother) {
    const DeviceBuffer data = on_device({1.0F, 2.0F});
    comm_->start_all_reduce_sum(data.data(), 2, ElementType::float32);
    EXPECT_THROW(comm_->start_broadcast(data.data(), 4, 0), Error);
    comm_->wait(far_off());
    EXPECT_THROW(comm_->wait(far_off()), Error);
}

} // namespace nccl_mpi
#endif
