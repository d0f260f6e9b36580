// Timing collectives: see collective_times.h.
#include "entrodraft/launch/bench/collective_times.h"

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

} // namespace entrodraft::launch
