// How the ranks of a job lie on hosts, cores and builds, how many threads each may use, and what is wrong with that:
// looked at before weights are read.
//
// What cannot work is refused, on all ranks alike; what works but slowly is said once, with what mends it. Called by
// the commands that decode, and by doctor, which shows all of it.
#pragma once

#include "dist/rank/launch_environment.h"
#include "dist/session/session.h"

#include <cstdint>
#include <optional>
#include <sched.h>
#include <string>
#include <vector>

namespace entrodraft::launch {

// The number of OMP_NUM_THREADS, or else of SLURM_CPUS_PER_TASK; nothing where neither is set, or both are empty.
// Throws BadOption where it is not a number of threads.
std::optional<int> threads_of_environment(const dist::Environment& environment);

// Of one rank; goes through a collective as it is.
struct RankFacts {
    char host[64] = {};   // zero-terminated
    cpu_set_t cores = {}; // that it may run on
    int host_cores = 1;   // that are there
    int threads = 1;      // that it is to have
    int gpus = -1;        // of its host; -1: not of interest
    std::uint64_t build = 0;
    std::uint64_t shared_memory_free = 0, shared_memory_wanted = 0; // bytes; 0 wanted: there is enough
};

struct Finding {
    bool is_error = false; // else it will only be slow
    std::string text;      // one line, with the remedy
};

// Those of the world, by rank. `threads`: what each is to have; 0: what its environment asks for, else the CPUs it may
// run on, shared among the ranks of its host that may run on the very same ones, at least 1: bound ranks use what they
// are bound to, and unbound ones cores / local ranks. Throws OrderlyFailure. Collective over the world.
std::vector<RankFacts> gather_facts(dist::Session& session, int threads, int gpus = -1);

// The same on every rank.
std::vector<Finding> findings_of(const std::vector<RankFacts>& ranks);

// "0-3,8": the cores of a set.
std::string describe(const cpu_set_t& cores);

// How many threads this rank is to have: `threads`, as above. Throws OrderlyFailure where ranks cannot work together;
// warns on stderr of what is slow, unless `quiet`, on the writer. Collective over the world.
int check_launch(dist::Session& session, int threads, bool quiet);

} // namespace entrodraft::launch
