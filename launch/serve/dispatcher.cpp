// Requests to replicas, and their reports: see dispatcher.h.
#include "launch/serve/dispatcher.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace entrodraft::launch {

namespace {

// Time at the input, before other replicas have their turn: while they have work, and while nobody has.
constexpr double kReadSeconds = 0.002, kIdleReadSeconds = 0.05;

} // namespace

std::optional<Assignment> Dispatcher::receive(double wait_seconds) {
    const auto deadline = dist::Deadline::after_seconds(wait_seconds);
    for (;;) {
        const double turn = n_under_way() > 0 ? kReadSeconds : kIdleReadSeconds;
        const double glance = channel_ ? std::min(wait_seconds, turn) : wait_seconds;
        double channel_wait = can_read() ? 0 : glance; // waits at the input or at the channel
        read(glance);
        while (auto message = channel_ ? channel_->receive(channel_wait) : std::nullopt) {
            handle(message->from, unpack<Report>(std::move(message->bytes)));
            channel_wait = 0;
        }
        hand_out();
        update_state();
        if (!to_own_.empty()) {
            Assignment own = std::move(to_own_.front());
            to_own_.pop_front();
            return own;
        }
        if (deadline.passed()) return std::nullopt;
    }
}

// Hands requests to the replica with the fewest texts in progress: for a free slot, or in advance while there is a
// request ready for each slot.
void Dispatcher::hand_out() {
    while (!is_interrupted_) {
        read(0);
        const bool plenty = std::ssize(ready_) > n_slots();
        const auto freest = std::ranges::min_element(replicas_, {}, &Replica::under_way);
        if (ready_.empty() || freest->under_way >= (plenty ? 2 : 1) * batch_) return;
        ++freest->under_way;
        send(static_cast<int>(freest - replicas_.begin()), std::move(ready_.front()));
        ready_.pop_front();
    }
}

// The state of the replicas follows from their reports.
void Dispatcher::update_state() {
    RunState state = RunState::serving;
    if (input_ended_ && ready_.empty() && n_under_way() == 0) state = RunState::finished;
    if (is_interrupted_) state = RunState::interrupted;
    if (std::ranges::all_of(replicas_, &Replica::has_ended)) state = RunState::closed;
    if (state != std::exchange(state_, state)) send_all({state});
}

std::int64_t Dispatcher::n_under_way() const {
    std::int64_t n = 0;
    for (const Replica& replica : replicas_)
        n += replica.under_way;
    return n;
}

std::vector<double> Dispatcher::busy_seconds() const {
    std::vector<double> seconds;
    for (const Replica& replica : replicas_)
        seconds.push_back(replica.busy_seconds);
    return seconds;
}

void Dispatcher::send(int replica, Assignment assignment) {
    if (replica == 0) return to_own_.push_back(std::move(assignment));
    channel_->send(replica, pack(std::move(assignment)));
}

void Dispatcher::send_all(const Assignment& assignment) {
    for (int replica = 0; replica < std::ssize(replicas_); ++replica)
        send(replica, assignment);
}

void Dispatcher::handle(int replica, const Report& report) {
    Replica& from = replicas_.at(static_cast<std::size_t>(replica));
    take(report);
    if (report.ends_request) --from.under_way;
    if (report.busy_seconds) {
        from.has_ended = true;
        from.busy_seconds = *report.busy_seconds;
    }
    is_interrupted_ |= report.interrupted;
}

} // namespace entrodraft::launch
