// Connects the process with the other ranks: starts and ends MPI, makes the communicators of its layout, and ends the
// process.
//
// There is one Session per process, made first in main and destroyed last. It hides MPI from all other code. During its
// life, every rank shows its position to the other ranks of its host (rank_board.h), and a watchdog ends a step that
// hangs.
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
    // The limit for MPI's start, and for waits of ranks for each other before they have read their options.
    double timeout_seconds = kDefaultTimeoutSeconds;
    // Called on a thread of its own when the start or a bounded step takes too long, with a place such as "rank 2, host
    // n1, round 17, score" and the reason. It must report this and end the process. Empty: time is not limited.
    std::function<void(const std::string& place, const std::string& reason)> on_stuck;
    StepWatch* observer = nullptr; // told of every step; outlives the session
    bool is_alone = false;         // the task needs no other rank: MPI is not started, whatever the launcher
};

// On this host, ranks exchange messages over MPI, because shared memory is too small for all groups that they made at
// once.
struct SharedMemoryShortage {
    std::uint64_t free_bytes = 0;   // when the shortage was first seen
    std::uint64_t wanted_bytes = 0; // by all groups that use MPI instead
};

class Session {
  public:
    // Starts MPI where a launcher (mpirun, srun) started this process and `is_alone` is not set. Else makes a world of
    // one, without MPI. Throws Error when MPI lacks something that is needed, or when this rank could not reach the
    // others. Collective over the world.
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

    // The shortage of this rank's host for the communicators made so far; the same on all its ranks. Or none.
    const std::optional<SharedMemoryShortage>& shared_memory_shortage() const;

    // The time that ranks wait for each other. It is the StartOptions value until the ranks have read their options.
    double timeout_seconds() const;
    void set_timeout(double seconds);
    Deadline deadline() const { return Deadline::after_seconds(timeout_seconds()); } // for a collective that begins now

    // All ranks of the launch. They use shared memory if all of them are on one host with enough of it, else MPI.
    Communicator& world();
    // Makes a communicator of the ranks that pass the same color, ordered by world rank. Ranks with a negative color
    // get nullptr. Collective over the world.
    std::unique_ptr<Communicator> split(int color);
    // The same, but over MPI even where shared memory would do. It is for tests, and to measure a group across hosts.
    // Collective over the world.
    std::unique_ptr<Communicator> split_over_mpi(int color);
    // Makes the channel of the coordinators of replicas. It is null on other ranks, and where there is one replica.
    // `clock` outlives it. Collective over the world.
    std::unique_ptr<Channel> channel(const RankLayout& layout, const Clock& clock, double timeout_seconds);

    // Reports each step to the board, then to the observer. Lives as long as the session.
    StepWatch& watch();
    // Returns this rank's position, as "rank 2, host n1, round 17, score".
    std::string position() const;

    // While it lives, a step of this rank that takes longer ends the job by on_stuck. At most one exists at a time.
    class BoundedSteps {
      public:
        explicit BoundedSteps(Session& session, double seconds);
        ~BoundedSteps();
        BoundedSteps(const BoundedSteps&) = delete;
        BoundedSteps& operator=(const BoundedSteps&) = delete;

      private:
        Session& session_;
    };

    // Returns true for the first rank of this host that reports a failure that ends the job. The other ranks then print
    // nothing and leave with its code, which failure() gives also to signal handlers.
    bool claim_failure(int exit_code);
    const std::atomic<int>& failure() const;

    // Ends the whole job at once, for errors inside a round: if one rank unwinds alone while others wait, the job
    // hangs. Prints nothing. Does not return.
    [[noreturn]] void abort(int exit_code);
    // The orderly end: last barrier, MPI_Finalize, flush, _exit(exit_code), the same code on every rank. From here on,
    // SIGTERM, SIGINT, SIGUSR1 and SIGHUP are ignored. It waits only seconds for ranks that do not come (a code of 0
    // then becomes 1). Collective over the world; does not return.
    [[noreturn]] void leave(int exit_code);

  private:
    struct State;
    explicit Session(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

} // namespace entrodraft::dist
