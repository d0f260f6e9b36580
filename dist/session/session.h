// The process among its peers: MPI from start to end, the communicators of its layout, and how it leaves.
//
// One Session per process, made first in main and destroyed last. It hides MPI from everything else. While it lives,
// every rank shows the others of its host where it is (rank_board.h), and a watchdog ends what does not end itself.
#pragma once

#include "dist/comm/channel.h"
#include "dist/comm/communicator.h"
#include "dist/rank/step_watch.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace entrodraft::dist {

struct StartOptions {
    // How long MPI may take to start, and how long ranks wait for each other before they have read their options.
    double timeout_seconds = kDefaultTimeoutSeconds;
    // Called on a thread of its own when that, or a bounded step, takes too long: "rank 2, host n1, round 17, score"
    // and the reason. It is to say so and to end the process. Empty: nothing is bounded.
    std::function<void(const std::string& place, const std::string& reason)> on_stuck;
    StepWatch* observer = nullptr; // told of every step; outlives the session
    bool is_alone = false;         // what is to be done needs no other rank: MPI is not started, whatever the launcher
};

// Of a host whose ranks exchange messages over MPI because its shared memory is too small for all groups that they made
// at once.
struct SharedMemoryShortage {
    std::uint64_t free_bytes = 0;   // when it was first seen
    std::uint64_t wanted_bytes = 0; // by all groups that did without
};

class Session {
  public:
    // Starts MPI where a launcher (mpirun, srun) started this process and it is not to be alone; else a world of one,
    // without MPI. Throws Error when MPI does not give what is needed, or when this rank could not reach the others.
    // Collective over the world.
    static Session start(const StartOptions& options = {});
    Session(Session&&) noexcept;
    Session& operator=(Session&&) noexcept;
    // Frees nothing that needs the other ranks: a process that ends without leave() ends the whole job.
    ~Session();

    int world_rank() const;
    int world_size() const;
    int node_local_rank() const; // rank among the processes of this host
    int node_local_size() const;
    const std::string& host_name() const;

    // Of this rank's host, as far as communicators were made; the same on all its ranks. None: there is enough.
    const std::optional<SharedMemoryShortage>& shared_memory_shortage() const;

    // How long ranks wait for each other: as StartOptions says until they have read how long they should.
    double timeout_seconds() const;
    void set_timeout(double seconds);
    Deadline deadline() const { return Deadline::after_seconds(timeout_seconds()); } // of a collective that begins now

    // All ranks of the launch. Shared memory where all of them are on one host that has enough of it, MPI otherwise.
    Communicator& world();
    // A communicator of the ranks that pass the same color, ordered by world rank. Ranks with a negative
    // color get none (nullptr). Collective over the world.
    std::unique_ptr<Communicator> split(int color);
    // The same, but over MPI even where shared memory would do: for tests, and to measure what a group across
    // hosts would run. Collective over the world.
    std::unique_ptr<Communicator> split_over_mpi(int color);
    // The channel of the coordinators of replicas; null on other ranks, and where there is one replica. `clock`
    // outlives it. Collective over the world.
    std::unique_ptr<Channel> channel(const RankLayout& layout, const Clock& clock, double timeout_seconds);

    // Whom to tell of each step: the board, then the observer. As long as the session.
    StepWatch& watch();
    // "rank 2, host n1, round 17, score": this rank, where it is.
    std::string position() const;

    // While it lives, a step of this rank that takes longer ends the job by on_stuck. One at a time.
    class BoundedSteps {
      public:
        explicit BoundedSteps(Session& session, double seconds);
        ~BoundedSteps();
        BoundedSteps(const BoundedSteps&) = delete;
        BoundedSteps& operator=(const BoundedSteps&) = delete;

      private:
        Session& session_;
    };

    // Whether this rank is the first of its host to report a failure that ends the job; the others then keep silent,
    // and leave with its code, which failure() tells even to a signal handler.
    bool claim_failure(int exit_code);
    const std::atomic<int>& failure() const;

    // Tears the whole job down at once, for errors inside a round: unwinding alone while others wait would
    // hang. Prints nothing. Does not return.
    [[noreturn]] void abort(int exit_code);
    // The orderly end: last barrier, MPI_Finalize, flush, _exit(exit_code), the same code on every rank.
    // SIGTERM, SIGINT, SIGUSR1 and SIGHUP are ignored from here on. Ranks that do not come within seconds are not
    // waited for (a code of 0 then becomes 1). Collective over the world; does not return.
    [[noreturn]] void leave(int exit_code);

  private:
    struct State;
    explicit Session(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

} // namespace entrodraft::dist
