// Threads of a rank: see cores.h.
#include "launch/load/cores.h"

#include "launch/failure.h"
#include "launch/phase.h"
#include "spec/verify/philox.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <sched.h>
#include <string>
#include <vector>

namespace entrodraft::launch {

namespace {

struct Affinity {
    std::uint64_t host = 0;
    cpu_set_t cpus{};
};

} // namespace

std::optional<int> threads_of_environment(const dist::Environment& environment) {
    constexpr int kMax = 1024; // as --threads has it
    for (const char* name : {"OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"}) {
        const std::optional<std::string> text = environment(name);
        if (!text) continue;
        // "4,2": of each level of nested parallelism, as OpenMP has it; there is one level here.
        const char* const end = text->data() + std::min(text->find(','), text->size());
        int threads = 0;
        const auto read = std::from_chars(text->data(), end, threads);
        if (read.ec != std::errc{} || read.ptr != end || threads < 1 || threads > kMax)
            throw BadOption(std::string(name) + "=" + *text + " in the environment: must be a whole number from 1 to " +
                            std::to_string(kMax) + "; unset it, or give --threads N");
        return threads;
    }
    return std::nullopt;
}

int default_threads(dist::Session& session, double timeout_seconds) {
    std::optional<int> asked;
    in_agreement(session, timeout_seconds, [&] { asked = threads_of_environment(dist::process_environment()); });
    Affinity mine;
    mine.host = spec::hash_bytes(session.host_name().data(), session.host_name().size());
    if (sched_getaffinity(0, sizeof mine.cpus, &mine.cpus) != 0) CPU_SET(0, &mine.cpus); // more than 1,024 CPUs
    std::vector<Affinity> all(static_cast<std::size_t>(session.world_size()));
    const auto deadline = dist::Deadline::after_seconds(timeout_seconds);
    session.world().gather(&mine, all.data(), sizeof mine, 0, deadline);
    session.world().broadcast(all.data(), all.size() * sizeof mine, 0, deadline);
    const auto sharers = std::count_if(all.begin(), all.end(), [&](const Affinity& other) {
        return other.host == mine.host && CPU_EQUAL(&other.cpus, &mine.cpus);
    });
    if (asked) return *asked; // by this rank's launcher: the others may have none
    return std::max(1, static_cast<int>(CPU_COUNT(&mine.cpus) / sharers));
}

} // namespace entrodraft::launch
