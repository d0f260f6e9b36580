// The parts that the host transports (NodeComm, MpiComm) share: the collective in flight, its checks, and the state
// after a failure.
//
// begin() posts as much of the rank's part as it can without waiting, and finish() ends the collective.
#pragma once

#include "dist/comm/backoff.h"
#include "dist/comm/communicator.h"
#include "dist/rank/rank_board.h"

#include <vector>

namespace entrodraft::dist {

enum class Collective { none, all_reduce, broadcast, gather };

const char* name_of(Collective kind); // the usual name, such as "all-reduce"

class HostComm : public Communicator {
  public:
    // `world_ranks`: the world ranks of the members in rank order, for messages. `board` may be null; it knows more of
    // the ranks, and is told of long waits.
    HostComm(int rank, std::vector<int> world_ranks, RankBoard* board);

    int rank() const final { return rank_; }
    int size() const final { return static_cast<int>(world_ranks_.size()); }
    void start_all_reduce_sum(void* data, std::size_t count, ElementType type) final;
    void start_broadcast(void* data, std::size_t bytes, int root) final;
    void start_gather(const void* mine, void* all, std::size_t bytes, int root) final;
    void wait(Deadline deadline) final;

    static constexpr std::chrono::milliseconds kRestingNap{12}; // a request after idleness waits for one or two

  protected:
    struct InFlight {
        Collective kind = Collective::none;
        const std::byte* in = nullptr; // this rank's part; equals `out` for all-reduce and broadcast
        std::byte* out = nullptr;
        std::size_t bytes = 0; // of one rank's part
        std::size_t done = 0;  // bytes already moved by earlier chunks
        int root = 0;
    };

    // A wait for one other rank, or for kEverybody: counted in the traffic, shown on the board while it lasts.
    class Wait {
      public:
        Wait(HostComm& comm, int rank, int spins, Deadline deadline);
        ~Wait();
        Wait(const Wait&) = delete;
        Wait& operator=(const Wait&) = delete;

        // Both are as in Backoff.
        bool step() {
            return step([&](std::chrono::nanoseconds longest) {
                comm_.rests_ ? nap(std::min<std::chrono::nanoseconds>(longest, kRestingNap)) : nap();
            });
        }
        template <typename Sleep> bool step(const Sleep& sleep) {
            return backoff_.step([&](std::chrono::nanoseconds longest) {
                show();
                sleep(longest);
            });
        }
        [[noreturn]] void time_out(); // throws Timeout with all that is known

      private:
        void show(); // on the board, because the wait is long
        double seconds() const;

        HostComm& comm_;
        int rank_;
        std::chrono::steady_clock::time_point began_;
        Backoff backoff_;
        bool is_shown_ = false;
    };

    virtual void begin() = 0;
    virtual void finish(Deadline deadline) = 0;

    bool is_root() const { return in_flight_.root == rank_; }
    std::size_t n_ranks() const { return world_ranks_.size(); }
    int world_rank_of(int rank) const { return world_ranks_[rank]; }

    InFlight in_flight_;

  private:
    void start(const InFlight& collective);
    std::string what_is_known_of(int rank) const;

    int rank_;
    std::vector<int> world_ranks_;
    RankBoard* board_;
    bool broken_ = false;
};

} // namespace entrodraft::dist
