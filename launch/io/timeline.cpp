// Steps of all ranks in one timeline: see timeline.h.
#include "launch/io/timeline.h"

#include "launch/io/json_line.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

constexpr int kWriter = 0;

std::string name_event(const char* what, const dist::RankLayout& layout, const std::string& name) {
    return compact({{"ph", "M"},
                    {"name", what},
                    {"pid", layout.replica},
                    {"tid", layout.replica_rank},
                    {"args", {{"name", name}}}});
}

} // namespace

Timeline::Timeline(dist::Session& session, const dist::Clock& clock) : session_(session), clock_(clock) {
    // Ranks leave a barrier at the same moment, unless a rank gets its core late. The median of several barriers says
    // how far this rank's clock is ahead of the writer's.
    constexpr std::size_t kBarriers = 15;
    std::vector<double> ahead;
    double writers = 0;
    for (std::size_t i = 0; i < kBarriers; ++i) {
        session.world().barrier(session.deadline());
        const double own = clock.now_seconds();
        writers = own;
        session.world().broadcast(&writers, sizeof writers, kWriter, session.deadline());
        ahead.push_back(own - writers);
    }
    std::nth_element(ahead.begin(), ahead.begin() + kBarriers / 2, ahead.end());
    begin_seconds_ = writers + ahead[kBarriers / 2];
}

void Timeline::enter(std::uint64_t round, const char* step) {
    if (steps_.size() < kMaxSteps) steps_.push_back({clock_.now_seconds(), round, step});
    session_.watch().enter(round, step);
}

// Each step lasts until the next. The last step only ends the one before it.
std::string Timeline::events_of(const dist::RankLayout& layout) const {
    constexpr double kMicroseconds = 1e6;
    const std::string rank =
        fmt::format("rank {}{}{}", session_.world_rank(), layout.is_coordinator() ? ", coordinator" : "",
                    layout.holds_target() ? "" : ", drafts");
    std::string events = name_event("process_name", layout, fmt::format("replica {}", layout.replica)) + ",\n" +
                         name_event("thread_name", layout, rank);
    for (std::size_t i = 0; i + 1 < steps_.size(); ++i) {
        const Step& step = steps_[i];
        if (step.round == dist::kNoRound) continue;
        events += fmt::format(
            R"(,{}{{"ph":"X","name":"{}","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{},"args":{{"round":{}}}}})", '\n',
            step.name, (step.seconds - begin_seconds_) * kMicroseconds,
            (steps_[i + 1].seconds - step.seconds) * kMicroseconds, layout.replica, layout.replica_rank, step.round);
    }
    return events;
}

std::string Timeline::gather(const dist::RankLayout& layout) {
    std::string own = events_of(layout);
    const auto n_ranks = static_cast<std::size_t>(session_.world_size());
    std::vector<std::uint64_t> sizes(n_ranks);
    const std::uint64_t size = own.size();
    session_.world().gather(&size, sizes.data(), sizeof size, kWriter, session_.deadline());
    std::uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
    session_.world().broadcast(&longest, sizeof longest, kWriter, session_.deadline());
    own.resize(longest);
    std::string all(session_.world_rank() == kWriter ? longest * n_ranks : 0, '\0');
    session_.world().gather(own.data(), all.data(), longest, kWriter, session_.deadline());
    if (session_.world_rank() != kWriter) return "";
    std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    for (std::size_t rank = 0; rank < n_ranks; ++rank)
        text += (rank > 0 ? ",\n" : "") + all.substr(rank * longest, sizes[rank]);
    return text + "\n]}\n";
}

} // namespace entrodraft::launch
