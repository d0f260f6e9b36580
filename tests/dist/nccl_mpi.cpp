// NcclComm on as many GPUs as there are ranks; skipped with a message where there are fewer. One rank on one GPU
// runs all of its code as well.
#ifdef ENTRODRAFT_CUDA
#include "tests/dist/session_of_tests.h"

#include "dist/comm/nccl_comm.h"
#include "dist/device.h"
#include "dist/error.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nccl_mpi {

using namespace entrodraft::dist;

Deadline far_off() {
    return Deadline::after_seconds(60);
}

class NcclCollectives : public testing::Test {
  protected:
    void SetUp() override {
        const Session& session = session_of_tests();
        const int devices = device_count();
        if (devices < session.node_local_size()) {
            GTEST_SKIP() << "needs a GPU a rank, " << session.node_local_size() << " here; this machine has "
                         << devices;
        }
        device_ = session.node_local_rank();
        comm_ = make_nccl_comm(session_of_tests().world(), {.device = device_}, far_off());
    }

    int ranks() const { return comm_->size(); }

    DeviceBuffer on_device(const std::vector<float>& values) const {
        DeviceBuffer buffer(device_, values.size() * sizeof(float));
        buffer.copy_from_host(values.data());
        return buffer;
    }

    static std::vector<float> on_host(const DeviceBuffer& buffer) {
        std::vector<float> values(buffer.bytes() / sizeof(float));
        buffer.copy_to_host(values.data());
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

TEST_F(NcclCollectives, RefuseACollectiveBesideAnother) {
    const DeviceBuffer data = on_device({1.0F, 2.0F});
    comm_->start_all_reduce_sum(data.data(), 2, ElementType::float32);
    EXPECT_THROW(comm_->start_broadcast(data.data(), 4, 0), Error);
    comm_->wait(far_off());
    EXPECT_THROW(comm_->wait(far_off()), Error);
}

} // namespace nccl_mpi
#endif
