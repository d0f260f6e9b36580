// Waits of ranks, compared: see slowest_rank.h.
#include "launch/serve/slowest_rank.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <map>

namespace entrodraft::launch {

namespace {

constexpr double kMinShare = 0.1; // below it, ranks are as even as ranks are

} // namespace

std::vector<RankWait> gather_waits(dist::Session& session, const dist::RankLayout& layout, const dist::Communicator* tp,
                                   double run_seconds, double timeout_seconds) {
    RankWait mine;
    if (tp) mine = {{}, layout.replica, tp->traffic().waited_seconds, run_seconds};
    std::strncpy(mine.host, session.host_name().c_str(), sizeof mine.host - 1);
    std::vector<RankWait> all(layout.is_writer() ? static_cast<std::size_t>(session.world_size()) : 0);
    session.world().gather(&mine, all.data(), sizeof mine, 0, dist::Deadline::after_seconds(timeout_seconds));
    return all;
}

std::string describe_slowest(const std::vector<RankWait>& ranks) {
    struct Group {
        std::size_t slowest = 0; // who waited least
        std::size_t size = 0;
        double waited = 0; // all of them together
    };
    std::map<int, Group> groups;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        if (ranks[rank].replica < 0) continue;
        Group& group = groups[ranks[rank].replica];
        if (group.size++ == 0) group.slowest = rank;
        if (ranks[rank].waited_seconds < ranks[group.slowest].waited_seconds) group.slowest = rank;
        group.waited += ranks[rank].waited_seconds;
    }
    double worst = kMinShare;
    std::string text;
    for (const auto& [replica, group] : groups) {
        const RankWait& slowest = ranks[group.slowest];
        if (group.size < 2 || slowest.run_seconds <= 0) continue;
        const double others = (group.waited - slowest.waited_seconds) / static_cast<double>(group.size - 1);
        const double share = (others - slowest.waited_seconds) / slowest.run_seconds;
        if (share < worst) continue;
        worst = share;
        text = fmt::format("rank {} (host {}): the others waited {} % of the time for it", group.slowest, slowest.host,
                           std::lround(100 * share));
    }
    return text;
}

} // namespace entrodraft::launch
