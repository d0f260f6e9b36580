// What the host transports share: the collective in flight, its checks, and the state after a failure.
//
// A transport posts what it can in begin() and ends the collective in finish(). Used by NodeComm and MpiComm.
#pragma once

#include "entrodraft/dist/communicator.h"

#include <vector>

namespace entrodraft::dist {

enum class Collective { none, all_reduce, broadcast, gather };

const char* name_of(Collective kind); // as people say it: "all-reduce"

class HostComm : public Communicator {
  public:
    // `world_ranks`: the members in rank order, for messages.
    HostComm(int rank, std::vector<int> world_ranks);

    int rank() const final { return rank_; }
    int size() const final { return static_cast<int>(world_ranks_.size()); }
    void start_all_reduce_sum(void* data, std::size_t count, ElementType type) final;
    void start_broadcast(void* data, std::size_t bytes, int root) final;
    void start_gather(const void* mine, void* all, std::size_t bytes, int root) final;
    void wait(Deadline deadline) final;

  protected:
    struct InFlight {
        Collective kind = Collective::none;
        const std::byte* in = nullptr; // this rank's part; equals `out` for all-reduce and broadcast
        std::byte* out = nullptr;
        std::size_t bytes = 0; // of one rank's part
        std::size_t done = 0;  // of them, through earlier chunks
        int root = 0;
    };

    virtual void begin() = 0;
    virtual void finish(Deadline deadline) = 0;

    bool is_root() const { return in_flight_.root == rank_; }
    std::size_t n_ranks() const { return world_ranks_.size(); }
    int world_rank_of(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }

    InFlight in_flight_;

  private:
    void start(const InFlight& collective);

    int rank_;
    std::vector<int> world_ranks_;
    bool broken_ = false;
};

} // namespace entrodraft::dist
