// Timing collectives: see collective_times.h.
#include "launch/cmd/bench/collective_times.h"

#include <algorithm>

namespace entrodraft::launch {

std::vector<CollectiveTime> time_collectives(dist::Session& session, std::span<const NamedCollective> collectives,
                                             int repetitions, double timeout_seconds) {
    constexpr int kWarmUps = 50;
    const dist::SteadyClock clock;
    std::vector<CollectiveTime> times;
    for (const auto& [name, run, bytes] : collectives) {
        std::vector<double> samples;
        for (int i = 0; i < kWarmUps + repetitions; ++i) {
            const double begin = clock.now_seconds();
            run();
            if (i >= kWarmUps) samples.push_back(clock.now_seconds() - begin);
        }
        times.push_back({name, of_slowest_rank(session, quantiles_of(std::move(samples)), timeout_seconds), bytes});
    }
    return times;
}

std::string slower_sum(std::span<const CollectiveTime> over_shared_memory, std::span<const CollectiveTime> over_mpi) {
    constexpr double kMuch = 1.5, kMinSeconds = 5e-6; // less is noise of the two runs
    double largest = kMuch;
    std::string text;
    for (std::size_t i = 0; i < std::min(over_shared_memory.size(), over_mpi.size()); ++i) {
        const double shared = over_shared_memory[i].seconds.median, mpi = over_mpi[i].seconds.median;
        if (over_mpi[i].name.rfind("all-reduce", 0) != 0 || shared - mpi < kMinSeconds) continue;
        if (shared < largest * mpi) continue;
        largest = shared / mpi;
        text = over_mpi[i].name + ": " + format_number(shared * 1e6, 2) + " us over shared memory, " +
               format_number(mpi * 1e6, 2) + " us over MPI: ranks wait for cores that other work has, or share one";
    }
    return text;
}

} // namespace entrodraft::launch
