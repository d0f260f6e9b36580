#include "spec/replay/chain_bound.h"

#include <algorithm>
#include <limits>

namespace entrodraft::spec {

std::vector<int> cheapest_drafts(std::span<const PlaceChain> places, const Costs& costs) {
    constexpr double kLess = 1 - 1e-12; // of drafts that differ by rounding alone, the shorter one is taken
    std::vector<int> drafts(places.size());
    std::vector<double> rest(places.size() + 1); // seconds from each place to the end of the text
    for (std::size_t place = places.size(); place-- > 0;) {
        rest[place] = std::numeric_limits<double>::infinity();
        for (int drafted = 0; drafted <= places[place].longest; ++drafted) {
            const auto emitted = static_cast<std::size_t>(std::min(drafted, places[place].accepted) + 1);
            const double seconds = costs.draft_seconds(drafted) + costs.target_seconds(drafted + 1) +
                                   costs.t_round.value_or(0) + rest[std::min(place + emitted, places.size())];
            if (seconds >= rest[place] * kLess) continue;
            rest[place] = seconds;
            drafts[place] = drafted;
        }
    }
    return drafts;
}

} // namespace entrodraft::spec
