// MPI collectives with deadlines: see mpi_comm.h.
//
// MPI_Iallreduce is not used. MPI only advises that its sum be the same on every rank and independent of the number of
// elements. Open MPI's algorithms give all ranks the same bits, but it chooses an algorithm by the buffer's size. Its
// ring adds each part of the buffer in a different order, so a row's sum would depend on the number of rows in the
// buffer. Here MPI only moves data, and each rank sums in rank order. For a small sum, every rank sends all of its data
// to every other rank. For a larger sum, rank r sums block r of all ranks, and then every rank gathers the blocks.
//
// All data goes through buffers of our own, never the caller's. After a timeout MPI may still use these buffers, so
// they are then kept for ever.
#include "dist/comm/mpi_comm.h"

#include "dist/comm/deferred_buffers.h"
#include "dist/comm/host_comm.h"
#include "dist/comm/rank_order_sum.h"
#include "dist/rank/check.h"

#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace entrodraft::dist {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{4} << 20; // of one rank: keeps MPI's counts far within an int
constexpr int kRestingLooks = 2;
constexpr std::size_t kSmallSumBytes = 16 * 1024; // of one rank: up to here one exchange beats two

struct Buffers {
    std::vector<std::byte> send;
    std::vector<std::byte> receive;
};

float* floats_of(std::vector<std::byte>& bytes) {
    return reinterpret_cast<float*>(bytes.data());
}

class MpiComm final : public HostComm {
  public:
    MpiComm(MPI_Comm comm, int rank, std::vector<int> world_ranks, RankBoard* board)
        : HostComm(rank, std::move(world_ranks), board), comm_(comm), buffers_(std::make_unique<Buffers>()),
          parts_(n_ranks(), nullptr) {}

    MpiComm(const MpiComm&) = delete;
    MpiComm& operator=(const MpiComm&) = delete;

    ~MpiComm() override {
        if (request_ != MPI_REQUEST_NULL) leave_with_mpi(std::move(buffers_)); // MPI may still write into the buffers
    }

    std::string name() const override { return "mpi"; }
    bool is_ready() override {
        int done = 0;
        check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
        return done != 0;
    }

  private:
    void begin() override { post(); }
    void finish(Deadline deadline) override;

    std::size_t chunk_bytes() const { return std::min(kChunkBytes, in_flight_.bytes - in_flight_.done); }
    bool sums_in_blocks() const { return in_flight_.kind == Collective::all_reduce && chunk_bytes() > kSmallSumBytes; }
    // Number of floats that a rank sums when the sum is made in blocks. The last blocks are padded.
    std::size_t block_floats() const { return (chunk_bytes() / sizeof(float) + n_ranks() - 1) / n_ranks(); }

    void post();
    void await_request(Deadline deadline);
    void sum_parts(float* out, std::size_t count);
    void sum_in_blocks(Deadline deadline);
    void take_result();

    MPI_Comm comm_;
    std::unique_ptr<Buffers> buffers_;
    std::vector<const float*> parts_; // per rank: its part in the receive buffer, while summing
    MPI_Request request_ = MPI_REQUEST_NULL;
};

void MpiComm::finish(Deadline deadline) {
    while (in_flight_.done < in_flight_.bytes) {
        await_request(deadline);
        if (sums_in_blocks()) sum_in_blocks(deadline);
        take_result();
        in_flight_.done += chunk_bytes();
        post();
    }
}

// Starts the exchange of the chunk at `done`, if there is one.
void MpiComm::post() {
    const std::size_t bytes = chunk_bytes();
    if (bytes == 0) return;
    auto& [send, receive] = *buffers_;
    const bool blocks = sums_in_blocks();
    const std::size_t block = block_floats();
    send.resize(std::max(bytes, blocks ? n_ranks() * block * sizeof(float) : 0));
    receive.resize(std::max(send.size(), n_ranks() * (blocks ? block * sizeof(float) : bytes)));

    const int count = static_cast<int>(bytes);
    if (in_flight_.kind != Collective::broadcast || is_root()) {
        std::memcpy(send.data(), in_flight_.in + in_flight_.done, bytes);
    }
    if (in_flight_.kind == Collective::broadcast) {
        check_mpi(MPI_Ibcast(send.data(), count, MPI_BYTE, in_flight_.root, comm_, &request_), "MPI_Ibcast");
    } else if (in_flight_.kind == Collective::gather) {
        check_mpi(MPI_Igather(send.data(), count, MPI_BYTE, receive.data(), count, MPI_BYTE, in_flight_.root, comm_,
                              &request_),
                  "MPI_Igather");
    } else if (blocks) {
        std::memset(send.data() + bytes, 0, send.size() - bytes);
        const int floats = static_cast<int>(block);
        check_mpi(MPI_Ialltoall(send.data(), floats, MPI_FLOAT, receive.data(), floats, MPI_FLOAT, comm_, &request_),
                  "MPI_Ialltoall");
    } else {
        check_mpi(MPI_Iallgather(send.data(), count, MPI_BYTE, receive.data(), count, MPI_BYTE, comm_, &request_),
                  "MPI_Iallgather");
    }
}

void MpiComm::await_request(Deadline deadline) {
    Wait wait(*this, RankBoard::kEverybody, Backoff::kCrowdedSpins, deadline); // MPI_Test polls by itself
    for (;;) {
        // A look moves Open MPI's collectives on by a step. So who looks seldom looks several times.
        for (int looks = rests_ ? kRestingLooks : 1; looks > 0; --looks)
            if (is_ready()) return;
        if (!wait.step()) wait.time_out();
    }
}

// Sums the parts in the receive buffer, which holds `count` floats of each rank.
void MpiComm::sum_parts(float* out, std::size_t count) {
    for (std::size_t r = 0; r < n_ranks(); ++r)
        parts_[r] = floats_of(buffers_->receive) + r * count;
    sum_in_rank_order(out, parts_, count);
}

// Sums this rank's block, then collects the blocks of all. The receive buffer then holds the whole chunk's sum.
void MpiComm::sum_in_blocks(Deadline deadline) {
    auto& [send, receive] = *buffers_;
    sum_parts(floats_of(send), block_floats());
    const int floats = static_cast<int>(block_floats());
    check_mpi(MPI_Iallgather(send.data(), floats, MPI_FLOAT, receive.data(), floats, MPI_FLOAT, comm_, &request_),
              "MPI_Iallgather");
    await_request(deadline);
}

void MpiComm::take_result() {
    const std::size_t bytes = chunk_bytes();
    std::byte* out = in_flight_.out ? in_flight_.out + in_flight_.done : nullptr; // in a gather only the root has one
    if (in_flight_.kind == Collective::broadcast) {
        if (!is_root()) std::memcpy(out, buffers_->send.data(), bytes);
    } else if (in_flight_.kind == Collective::gather) {
        for (std::size_t r = 0; is_root() && r < n_ranks(); ++r) {
            std::memcpy(out + r * in_flight_.bytes, buffers_->receive.data() + r * bytes, bytes);
        }
    } else if (sums_in_blocks()) {
        std::memcpy(out, buffers_->receive.data(), bytes);
    } else {
        sum_parts(reinterpret_cast<float*>(out), bytes / sizeof(float));
    }
}

} // namespace

std::unique_ptr<Communicator> make_mpi_comm(const void* mpi_comm, std::vector<int> world_ranks, RankBoard* board) {
    const MPI_Comm comm = *static_cast<const MPI_Comm*>(mpi_comm);
    int rank = 0;
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    return std::make_unique<MpiComm>(comm, rank, std::move(world_ranks), board);
}

} // namespace entrodraft::dist
