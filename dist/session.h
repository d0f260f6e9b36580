// The process among its peers: MPI from start to end, the communicators of its layout, and how it leaves.
//
// One Session per process, made first in main and destroyed last. It hides MPI from everything else.
#pragma once

#include "entrodraft/dist/communicator.h"
#include "entrodraft/dist/layout.h"
#include "entrodraft/dist/mailbox.h"

#include <memory>
#include <string>

namespace entrodraft::dist {

class Session {
  public:
    // Starts MPI where a launcher (mpirun, srun) started this process; else a world of one, without MPI. Leaves
    // argv as it is. Throws Error when MPI does not give what is needed. Collective over the world.
    static Session start(int* argc, char*** argv);
    Session(Session&&) noexcept;
    Session& operator=(Session&&) noexcept;
    // Frees nothing that needs the other ranks: a process that ends without leave() ends the whole job. Local.
    ~Session();

    int world_rank() const;
    int world_size() const;
    int node_local_rank() const; // rank among the processes of this host
    int node_local_size() const;
    const std::string& host_name() const;

    // All ranks of the launch. Shared memory where all of them are on one host, MPI otherwise.
    Communicator& world();
    // A communicator of the ranks that pass the same color, ordered by world rank. Ranks with a negative
    // color get none (nullptr). Collective over the world.
    std::unique_ptr<Communicator> split(int color);
    // The same, but over MPI even where shared memory would do: for tests, and to measure what a group across
    // hosts would run. Collective over the world.
    std::unique_ptr<Communicator> split_over_mpi(int color);
    // A mailbox of the ranks that pass the same color, as split() has it. Collective over the world.
    std::unique_ptr<Mailbox> mailbox(int color);

    // Tears the whole job down at once, for errors inside a round: unwinding alone while others wait would
    // hang. Prints nothing. Does not return. Local.
    [[noreturn]] void abort(int exit_code);
    // The orderly end: last barrier, MPI_Finalize, flush, _exit(exit_code), the same code on every rank.
    // SIGTERM, SIGINT and SIGUSR1 are ignored from here on. Ranks that do not come within seconds are not waited
    // for (a code of 0 then becomes 1). Collective over the world; does not return.
    [[noreturn]] void leave(int exit_code);

  private:
    struct State;
    explicit Session(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

} // namespace entrodraft::dist
