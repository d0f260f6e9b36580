// Threads of a rank: see cores.h.
#include "entrodraft/launch/models/cores.h"

#include "entrodraft/spec/philox.h"

#include <algorithm>
#include <cstring>
#include <sched.h>
#include <vector>

namespace entrodraft::launch {

namespace {

struct Affinity {
    std::uint64_t host = 0;
    cpu_set_t cpus{};
};

} // namespace

int default_threads(dist::Session& session, double timeout_seconds) {
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
    return std::max(1, static_cast<int>(CPU_COUNT(&mine.cpus) / sharers));
}

} // namespace entrodraft::launch
