// Checks, before weights are read, on which hosts, cores and builds the ranks of a job run, and how many threads each
// rank may use.
//
// A job that cannot work is refused on all ranks alike. A job that works slowly gets one warning with the remedy. The
// commands that decode call this, and so does doctor, which shows all findings.
#pragma once

#include "dist/rank/launch_environment.h"
#include "dist/session/session.h"

#include <cstdint>
#include <optional>
#include <sched.h>
#include <string>
#include <vector>

namespace entrodraft::launch {

// Returns the number in OMP_NUM_THREADS, or else in SLURM_CPUS_PER_TASK; nothing if both are unset or empty. Throws
// BadOption if it is not a number of threads.
std::optional<int> threads_of_environment(const dist::Environment& environment);

// Facts of one rank. Goes through a collective as it is.
struct RankFacts {
    char host[64] = {};   // zero-terminated
    cpu_set_t cores = {}; // cores that the rank may run on
    int host_cores = 1;   // cores of the host
    int threads = 1;      // threads that the rank is to have
    int gpus = -1;        // GPUs of its host; -1: not of interest
    std::uint64_t build = 0;
    std::uint64_t shared_memory_free = 0, shared_memory_wanted = 0; // bytes; 0 wanted: there is enough
};

struct Finding {
    bool is_error = false; // else it will only be slow
    std::string text;      // one line, with the remedy
};

// Returns the facts of all ranks, by rank. `threads`: the threads of each rank; 0: what its environment asks for, else
// a share of the CPUs it may run on, at least 1. Ranks of a host with exactly the same CPUs share them: bound ranks use
// what they are bound to, and unbound ranks use cores / local ranks. Throws OrderlyFailure. Collective over the world.
std::vector<RankFacts> gather_facts(dist::Session& session, int threads, int gpus = -1);

// Returns the same findings on every rank.
std::vector<Finding> findings_of(const std::vector<RankFacts>& ranks);

// Returns the cores of a set in the form "0-3,8".
std::string describe(const cpu_set_t& cores);

// Returns the number of threads that this rank is to have; `threads` as above. Throws OrderlyFailure if ranks cannot
// work together. The writer warns on stderr of what is slow, unless `quiet`. Collective over the world.
int check_launch(dist::Session& session, int threads, bool quiet);

} // namespace entrodraft::launch
