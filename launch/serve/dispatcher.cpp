// Reading, handing out and writing: see dispatcher.h.
#include "launch/serve/dispatcher.h"

#include "launch/failure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <stdexcept>
#include <utility>

namespace entrodraft::launch {

namespace {

constexpr double kReadSeconds = 0.002; // at the input, before other replicas have their turn again

} // namespace

Dispatcher::Dispatcher(const GenerateOptions& options)
    : options_(&options), writer_(options.output, options.resume ? Existing::resume : Existing::refuse),
      progress_(options.quiet || options.prompt.has_value()) {
    if (!streams()) lines_ = std::make_unique<LineReader>(options.input);
    if (!options.trace.empty()) trace_.emplace(options.trace, Existing::refuse, "--trace");
    if (!options.timeline.empty()) timeline_.emplace(options.timeline, Existing::refuse, "--timeline");
}

void Dispatcher::read_first(const PromptLimits& limits) {
    if (const std::string why = spec::why_invalid(options_->requests.processing, limits.vocab_size); !why.empty())
        throw BadOption(why);
    if (streams()) {
        InputItem item = request_of_prompt(*options_->prompt, options_->requests, limits);
        if (const auto* bad = std::get_if<BadLine>(&item)) throw BadOption("--prompt: " + bad->error);
        ready_.push_back({state_, next_order_++, std::move(std::get<spec::Request>(item))});
        input_ended_ = true;
        return;
    }
    reader_.emplace(std::move(lines_), options_->requests, limits);
    if (options_->shard) reader_->keep(*options_->shard);
    skip_served(*reader_, writer_, options_->output);
    next_order_ = std::ssize(writer_.served());
}

void Dispatcher::start(dist::Channel* channel, int replicas, int slots) {
    writer_.keep();
    if (trace_) trace_->keep();
    channel_ = channel;
    replicas_.resize(static_cast<std::size_t>(replicas));
    slots_ = slots;
}

std::optional<Assignment> Dispatcher::receive(double wait_seconds) {
    const auto deadline = dist::Deadline::after_seconds(wait_seconds);
    const double glance = channel_ ? std::min(wait_seconds, kReadSeconds) : wait_seconds;
    for (;;) {
        double channel_wait = can_read() ? 0 : glance; // at the one or at the other
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

// With one replica a line is read when it is asked for; with several, some lie ready, so that it is known in time
// whether there are enough for all.
bool Dispatcher::can_read() const {
    const std::int64_t max_ready = channel_ ? n_slots() + 1 : 1;
    return state_ == RunState::serving && !input_ended_ && std::ssize(ready_) < max_ready &&
           next_order_ - writer_.written() < kMaxResultsAhead * n_slots();
}

void Dispatcher::read(double wait_seconds) {
    while (can_read()) {
        const double patience = ready_.empty() ? wait_seconds : 0;
        reader_->lines().set_patience(std::chrono::milliseconds(std::lround(patience * 1e3)));
        std::optional<InputItem> item = reader_->next();
        if (!item) {
            input_ended_ = !reader_->lines().waiting() && !reader_->lines().interrupted();
            return;
        }
        if (const auto* bad = std::get_if<BadLine>(&*item)) {
            ++bad_lines_;
            progress_.clear();
            writer_.put(next_order_++, error_line(*bad));
            continue;
        }
        ready_.push_back({state_, next_order_++, std::move(std::get<spec::Request>(*item))});
    }
}

// To the replica with the fewest texts under way: for a free slot, or in advance while there is one ready for each
// slot.
void Dispatcher::hand_out() {
    while (!interrupted_) {
        read(0);
        const bool plenty = std::ssize(ready_) > n_slots();
        const auto freest = std::min_element(replicas_.begin(), replicas_.end(), [](const auto& a, const auto& b) {
            return a.under_way() < b.under_way();
        });
        if (ready_.empty() || freest->under_way() >= (plenty ? 2 : 1) * slots_) return;
        const int replica = static_cast<int>(freest - replicas_.begin());
        ++freest->unanswered;
        assigned_.emplace(ready_.front().order, replica);
        send(replica, std::move(ready_.front()));
        ready_.pop_front();
    }
}

// That of the replicas follows from what they have reported.
void Dispatcher::update_state() {
    const auto is_all = [&](auto holds) { return std::all_of(replicas_.begin(), replicas_.end(), holds); };
    RunState state = RunState::serving;
    if (input_ended_ && ready_.empty() && is_all([](const Replica& replica) { return replica.under_way() == 0; }))
        state = RunState::finished;
    if (interrupted_) state = RunState::interrupted;
    if (is_all([](const Replica& replica) { return replica.tally.has_value(); })) state = RunState::closed;
    if (state == std::exchange(state_, state)) return;
    for (int replica = 0; replica < std::ssize(replicas_); ++replica)
        send(replica, {state});
}

void Dispatcher::send(int replica, Assignment assignment) {
    if (replica == 0) return to_own_.push_back(std::move(assignment));
    channel_->send(replica, pack(std::move(assignment)));
}

void Dispatcher::handle(int replica, const Report& report) {
    Replica& from = replicas_.at(static_cast<std::size_t>(replica));
    from.replays = report.replays;
    if (!report.text.empty()) writer_.write_text(report.text);
    if (!report.trace.empty()) trace_->write_text(report.trace + "\n");
    if (!report.result.empty()) write(replica, report);
    if (!report.note.empty()) print(report.note);
    if (report.tally) from.tally = report.tally;
    interrupted_ = interrupted_ || report.interrupted;
}

void Dispatcher::write(int replica, const Report& report) {
    const auto assigned = assigned_.find(report.order);
    if (assigned == assigned_.end() || assigned->second != replica)
        throw std::runtime_error(
            fmt::format("replica {} has a result of prompt {}, which it was not given", replica, report.order));
    assigned_.erase(assigned);
    --replicas_[static_cast<std::size_t>(replica)].unanswered;
    if (streams()) return writer_.write_text("\n");
    progress_.clear();
    writer_.put(report.order, report.result);
    new_tokens_ += report.new_tokens;
    progress_.update(reader_->fraction(), next_order_, new_tokens_);
}

RunSummary Dispatcher::finish() {
    progress_.clear();
    if (streams() && interrupted_) writer_.write_text("\n");
    writer_.require_intact();
    if (trace_) trace_->require_intact();
    RunSummary summary;
    for (const Replica& replica : replicas_) {
        static_cast<Tally&>(summary) += *replica.tally;
        summary.replicas_busy_seconds.push_back(replica.tally->busy_seconds);
    }
    summary.with_error += bad_lines_;
    summary.resumed = std::ssize(writer_.served());
    summary.interrupted = interrupted_;
    summary.resumable = !streams() && writer_.is_plain_file();
    return summary;
}

void Dispatcher::write_timeline(std::string_view text) {
    try {
        timeline_->write_text(text);
    } catch (...) {
        timeline_->cut_to(0); // half of it is no JSON
        throw;
    }
}

void Dispatcher::print(const std::string& text) {
    progress_.clear();
    log_line(text);
}

} // namespace entrodraft::launch
