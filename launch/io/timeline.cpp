// Steps of all ranks beside each other: see timeline.h.
#include "launch/io/timeline.h"

#include "launch/environment.h"
#include "launch/io/json_line.h"

#include <algorithm>

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

Timeline::Timeline(dist::Session& session, const dist::Clock& clock, double timeout_seconds)
    : session_(session), clock_(clock), timeout_seconds_(timeout_seconds) {
    // Ranks leave a barrier at one moment but for who is late to a core: the middle one of several says how far this
    // rank's clock is ahead of the writer's.
    constexpr std::size_t kBarriers = 15;
    const auto deadline = [&] { return dist::Deadline::after_seconds(timeout_seconds); };
    std::vector<double> ahead;
    double writers = 0;
    for (std::size_t i = 0; i < kBarriers; ++i) {
        session.world().barrier(deadline());
        const double own = clock.now_seconds();
        writers = own;
        session.world().broadcast(&writers, sizeof writers, kWriter, deadline());
        ahead.push_back(own - writers);
    }
    std::nth_element(ahead.begin(), ahead.begin() + kBarriers / 2, ahead.end());
    begin_seconds_ = writers + ahead[kBarriers / 2];
}

void Timeline::enter(std::uint64_t round, const char* step) {
    if (steps_.size() < kMaxSteps) steps_.push_back({clock_.now_seconds(), round, step});
    session_.watch().enter(round, step);
}

// Each step lasts until the next; the last one only ends the one before.
std::string Timeline::events_of(const dist::RankLayout& layout) const {
    constexpr double kMicroseconds = 1e6;
    std::string rank = "rank " + std::to_string(session_.world_rank());
    if (layout.is_coordinator()) rank += ", coordinator";
    if (!layout.holds_target()) rank += ", drafts";
    std::string events = name_event("process_name", layout, "replica " + std::to_string(layout.replica)) + ",\n" +
                         name_event("thread_name", layout, rank);
    for (std::size_t i = 0; i + 1 < steps_.size(); ++i) {
        const Step& step = steps_[i];
        if (step.round == dist::kNoRound) continue;
        events += ",\n{\"ph\":\"X\",\"name\":\"" + std::string(step.name) +
                  "\",\"ts\":" + format_number((step.seconds - begin_seconds_) * kMicroseconds, 3) +
                  ",\"dur\":" + format_number((steps_[i + 1].seconds - step.seconds) * kMicroseconds, 3) +
                  ",\"pid\":" + std::to_string(layout.replica) + ",\"tid\":" + std::to_string(layout.replica_rank) +
                  ",\"args\":{\"round\":" + std::to_string(step.round) + "}}";
    }
    return events;
}

std::string Timeline::gather(const dist::RankLayout& layout) {
    const auto deadline = [&] { return dist::Deadline::after_seconds(timeout_seconds_); };
    std::string own = events_of(layout);
    const auto n_ranks = static_cast<std::size_t>(session_.world_size());
    std::vector<std::uint64_t> sizes(n_ranks);
    const std::uint64_t size = own.size();
    session_.world().gather(&size, sizes.data(), sizeof size, kWriter, deadline());
    std::uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
    session_.world().broadcast(&longest, sizeof longest, kWriter, deadline());
    own.resize(longest);
    std::string all(session_.world_rank() == kWriter ? longest * n_ranks : 0, '\0');
    session_.world().gather(own.data(), all.data(), longest, kWriter, deadline());
    if (session_.world_rank() != kWriter) return "";
    std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    for (std::size_t rank = 0; rank < n_ranks; ++rank)
        text += (rank > 0 ? ",\n" : "") + all.substr(rank * longest, sizes[rank]);
    return text + "\n]}\n";
}

} // namespace entrodraft::launch
