// Every collective over shared memory and over MPI, at whatever number of ranks mpirun gave.
#include "tests/dist/session_of_tests.h"

#include "dist/comm/agreement.h"
#include "dist/rank/error.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace collectives_mpi {

using namespace entrodraft::dist;

Deadline far_off() {
    return Deadline::after_seconds(60);
}

// Values whose sum depends on the order of adding; the same function on every rank.
float value_of(int rank, std::size_t i, std::uint32_t salt) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(rank) * 40503U + salt;
    x ^= x >> 15U;
    x *= 2246822519U;
    x ^= x >> 13U;
    const float magnitude = (x & 7U) == 0 ? 1e6F : 1.0F;
    return magnitude * (static_cast<float>(x >> 8U) / 8388608.0F - 1.0F);
}

float rank_ordered_sum(int ranks, std::size_t i, std::uint32_t salt) {
    float sum = value_of(0, i, salt);
    for (int rank = 1; rank < ranks; ++rank)
        sum += value_of(rank, i, salt);
    return sum;
}

std::uint8_t byte_of(int rank, std::size_t i, std::uint32_t salt) {
    return static_cast<std::uint8_t>(static_cast<std::size_t>(rank) * 31 + i * 7 + salt);
}

void check_sum(Communicator& comm, std::size_t count, std::uint32_t salt) {
    std::vector<float> data(count + 1, 42.0F); // one more, which must stay
    for (std::size_t i = 0; i < count; ++i)
        data[i] = value_of(comm.rank(), i, salt);
    comm.all_reduce_sum(data.data(), count, far_off());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const float expected = rank_ordered_sum(comm.size(), i, salt);
        wrong += std::memcmp(&data[i], &expected, sizeof expected) == 0 ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0U) << "of " << count << " sums on rank " << comm.rank();
    EXPECT_EQ(data[count], 42.0F);
}

void check_broadcast(Communicator& comm, std::size_t bytes, int root, std::uint32_t salt) {
    std::vector<std::uint8_t> data(bytes + 1, 99);
    for (std::size_t i = 0; comm.rank() == root && i < bytes; ++i)
        data[i] = byte_of(root, i, salt);
    comm.broadcast(data.data(), bytes, root, far_off());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < bytes; ++i)
        wrong += data[i] == byte_of(root, i, salt) ? 0 : 1;
    EXPECT_EQ(wrong, 0U) << "of " << bytes << " bytes from " << root << " on rank " << comm.rank();
    EXPECT_EQ(data[bytes], 99);
}

void check_gather(Communicator& comm, std::size_t bytes, int root, std::uint32_t salt) {
    std::vector<std::uint8_t> mine(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
        mine[i] = byte_of(comm.rank(), i, salt);
    const bool is_root = comm.rank() == root;
    std::vector<std::uint8_t> all(is_root ? bytes * static_cast<std::size_t>(comm.size()) + 1 : 0, 99);
    comm.gather(mine.data(), is_root ? all.data() : nullptr, bytes, root, far_off());
    if (!is_root) return;
    std::size_t wrong = 0;
    for (int rank = 0; rank < comm.size(); ++rank) {
        for (std::size_t i = 0; i < bytes; ++i) {
            wrong += all[static_cast<std::size_t>(rank) * bytes + i] == byte_of(rank, i, salt) ? 0 : 1;
        }
    }
    EXPECT_EQ(wrong, 0U) << "of " << bytes << " bytes a rank";
    EXPECT_EQ(all.back(), 99);
}

enum class Transport { node, mpi };

class Collectives : public testing::TestWithParam<Transport> {
  protected:
    static std::unique_ptr<Communicator> split(int color) {
        return GetParam() == Transport::node ? session_of_tests().split(color)
                                             : session_of_tests().split_over_mpi(color);
    }
};

INSTANTIATE_TEST_SUITE_P(Over, Collectives, testing::Values(Transport::node, Transport::mpi),
                         [](const auto& suite) { return suite.param == Transport::node ? "SharedMemory" : "Mpi"; });

TEST_P(Collectives, RunOverTheTransportThatWasAsked) {
    const auto comm = split(0);
    const std::string expected = comm->size() == 1 ? "self" : GetParam() == Transport::node ? "node" : "mpi";
    EXPECT_EQ(comm->name(), expected);
    EXPECT_EQ(comm->rank(), session_of_tests().world_rank());
    EXPECT_EQ(comm->size(), session_of_tests().world_size());
}

TEST_P(Collectives, SumInRankOrderBitForBitAtEverySize) {
    const auto comm = split(0);
    for (std::size_t count : {0,    1,    2,    3,    5,    16,   17,   319,   320,   1023,  1024,  1025,
                              1600, 4095, 4096, 4097, 8191, 8192, 8193, 16385, 65536, 99999, 100000}) {
        check_sum(*comm, count, static_cast<std::uint32_t>(count));
    }
    check_sum(*comm, 2'500'001, 5); // more than one chunk of either transport
}

TEST_P(Collectives, BroadcastOddSizesFromEveryRoot) {
    const auto comm = split(0);
    for (int root = 0; root < comm->size(); ++root) {
        for (std::size_t bytes : {0, 1, 3, 255, 256, 4097, 32767, 32769, 300001})
            check_broadcast(*comm, bytes, root, 3);
    }
    check_broadcast(*comm, 9'000'001, comm->size() - 1, 4);
}

TEST_P(Collectives, GatherOddSizesToEveryRoot) {
    const auto comm = split(0);
    for (int root = 0; root < comm->size(); ++root) {
        for (std::size_t bytes : {0, 1, 3, 255, 256, 4097, 32767, 32769, 300001})
            check_gather(*comm, bytes, root, 3);
    }
    check_gather(*comm, 5'000'001, comm->size() - 1, 4);
}

TEST_P(Collectives, StayRightThroughThousandsInARow) {
    const auto comm = split(0);
    std::uint32_t random = 12345;
    for (int i = 0; i < 4000; ++i) {
        random = random * 1664525U + 1013904223U;
        const std::size_t size = (random >> 8U) % (i % 50 == 0 ? 40000U : 600U);
        const int root = static_cast<int>((random >> 24U) % static_cast<std::uint32_t>(comm->size()));
        switch ((random >> 5U) % 4U) {
        case 0:
            check_broadcast(*comm, size, root, random);
            break;
        case 1:
            check_gather(*comm, size, root, random);
            break;
        case 2:
            comm->barrier(far_off());
            break;
        default:
            check_sum(*comm, size, random);
        }
    }
}

TEST_P(Collectives, HoldBackNobodyBetweenStartAndWait) {
    const auto comm = split(0);
    std::vector<float> data(320, static_cast<float>(comm->rank() + 1));
    comm->start_all_reduce_sum(data.data(), data.size(), ElementType::float32);
    session_of_tests().world().barrier(far_off()); // every rank gets here although no one waits yet
    comm->wait(far_off());
    const auto ranks = static_cast<float>(comm->size());
    EXPECT_EQ(data.front(), ranks * (ranks + 1) / 2);
    EXPECT_EQ(data.back(), data.front());
}

TEST_P(Collectives, BarrierEndsAfterTheLastRankHasCome) {
    const auto comm = split(0);
    using Clock = std::chrono::steady_clock; // one clock for all processes of a host
    if (comm->rank() == comm->size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::int64_t came = Clock::now().time_since_epoch().count();
    comm->barrier(far_off());
    const std::int64_t left = Clock::now().time_since_epoch().count();
    comm->broadcast(&came, sizeof came, comm->size() - 1, far_off()); // when the last one came
    EXPECT_GE(left, came);
}

TEST_P(Collectives, SplitByColorAndKeepTheOthersOut) {
    const int world_rank = session_of_tests().world_rank();
    const int world_size = session_of_tests().world_size();
    const auto halves = split(world_rank % 2);
    EXPECT_EQ(halves->rank(), world_rank / 2);
    EXPECT_EQ(halves->size(), (world_size + 1 - world_rank % 2) / 2);
    float sum = static_cast<float>(world_rank);
    halves->all_reduce_sum(&sum, 1, far_off());
    float expected = 0;
    for (int rank = world_rank % 2; rank < world_size; rank += 2)
        expected += static_cast<float>(rank);
    EXPECT_EQ(sum, expected);

    const auto all_but_first = split(world_rank == 0 ? -1 : 3);
    EXPECT_EQ(all_but_first == nullptr, world_rank == 0);
    if (all_but_first) check_sum(*all_but_first, 77, 1);
}

TEST_P(Collectives, TimeOutWithAMessageWhenARankStaysAway) {
    const auto comm = split(0);
    const int absent = comm->size() - 1;
    if (comm->rank() != absent) {
        std::vector<float> data(10, 1.0F);
        const auto start = std::chrono::steady_clock::now();
        try {
            comm->all_reduce_sum(data.data(), data.size(), Deadline::after_seconds(0.3));
            ADD_FAILURE() << "an all-reduce ended without one of its ranks";
        } catch (const Timeout& timeout) {
            const std::string message = timeout.what();
            const std::string me = "rank " + std::to_string(session_of_tests().world_rank()) + " waited 0.";
            EXPECT_EQ(message.find(me), 0U) << message;
            EXPECT_NE(message.find("in all-reduce"), std::string::npos) << message;
            if (GetParam() == Transport::node) {
                EXPECT_NE(message.find("for rank " + std::to_string(absent)), std::string::npos) << message;
            }
        }
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        EXPECT_GE(seconds, 0.29);
        EXPECT_LT(seconds, 3.0);
        EXPECT_THROW(comm->barrier(far_off()), Error) << "it is unusable after a timeout";
    }
    session_of_tests().world().barrier(far_off());
}

TEST_P(Collectives, AgreeOnTheLowestFailure) {
    const auto comm = split(0);
    const int last = comm->size() - 1;
    EXPECT_TRUE(agree(*comm, {}, far_off()).ok());

    const Status common = agree(*comm, {"no such directory", 2}, far_off());
    EXPECT_EQ(common.message, "no such directory");
    EXPECT_EQ(common.exit_code, 2);

    Status mine;
    if (comm->rank() == last) mine = {"shard.safetensors: truncated", 1};
    const Status lone = agree(*comm, mine, far_off());
    const std::string prefix = comm->size() > 1 ? "[rank " + std::to_string(last) + "] " : "";
    EXPECT_EQ(lone.message, prefix + "shard.safetensors: truncated");
    EXPECT_EQ(lone.exit_code, 1);

    const Status several = agree(*comm, {"failed as " + std::to_string(comm->rank()), 3 + comm->rank()}, far_off());
    EXPECT_EQ(several.message, comm->size() > 1 ? "[rank 0] failed as 0" : "failed as 0");
    EXPECT_EQ(several.exit_code, 3);
}

TEST_P(Collectives, FindTheRankThatDiffers) {
    const auto comm = split(0);
    EXPECT_TRUE(same_on_all_ranks(*comm, 0xfeedULL << 32U, "the configuration", far_off()).ok());
    const int last = comm->size() - 1;
    const std::uint64_t checksum = comm->rank() == last ? 1ULL << 63U : 0;
    const Status status = same_on_all_ranks(*comm, checksum, "the configuration", far_off());
    EXPECT_EQ(status.ok(), comm->size() == 1);
    if (!status.ok()) {
        EXPECT_EQ(status.message.find("the configuration of rank " + std::to_string(last)), 0U) << status.message;
    }
}

TEST(Session, KnowsItsPlaceOnTheHost) {
    const Session& session = session_of_tests();
    EXPECT_EQ(session.node_local_size(), session.world_size()) << "these tests run on one host";
    EXPECT_EQ(session.node_local_rank(), session.world_rank());
    EXPECT_FALSE(session.host_name().empty());
}

} // namespace collectives_mpi
