#include "launch/cmd/bench/measuring_time.h"

#include "launch/start/phase.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <utility>

namespace entrodraft::launch {

MeasuringTime::MeasuringTime(dist::Session& session, std::string what, double limit_seconds, bool quiet)
    : session_(session), what_(std::move(what)), limit_seconds_(limit_seconds), begin_(clock_.now_seconds()),
      status_(quiet || session.world_rank() != 0) {
    if (!quiet && session.world_rank() == 0 && limit_seconds > 0)
        log_line(fmt::format("measuring {}: at most {:g} s", what_, limit_seconds));
}

bool MeasuringTime::has_left(double share) {
    const double spent = clock_.now_seconds() - begin_;
    status_.update(-1, [&](double seconds) {
        return limit_seconds_ > 0 ? fmt::format("measuring {}, {} left", what_, format_duration(limit_seconds_ - spent))
                                  : fmt::format("measuring {}, {}", what_, format_duration(seconds));
    });
    return from_writer(session_, limit_seconds_ == 0 || spent < share * limit_seconds_ ? 1 : 0) == 1;
}

HasTime time_of_this_rank(double limit_seconds) {
    const dist::SteadyClock clock;
    return [clock, limit_seconds, begin = clock.now_seconds()](double share) {
        return limit_seconds == 0 || clock.now_seconds() - begin < share * limit_seconds;
    };
}

std::vector<int> coarse_to_fine(int count) {
    if (count == 0) return {};
    std::vector<int> order;
    std::deque<std::pair<int, int>> between; // pairs of numbers that are in the order already
    for (const int end : {0, count - 1})
        if (std::ranges::count(order, end) == 0) order.push_back(end);
    for (between.emplace_back(0, count - 1); !between.empty(); between.pop_front()) {
        const auto [low, high] = between.front();
        if (high - low < 2) continue;
        const int middle = (low + high) / 2;
        order.push_back(middle);
        between.emplace_back(low, middle);
        between.emplace_back(middle, high);
    }
    return order;
}

} // namespace entrodraft::launch
