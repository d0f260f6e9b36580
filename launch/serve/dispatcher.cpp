// Reading, handing out and writing: see dispatcher.h.
#include "launch/serve/dispatcher.h"

#include "launch/start/failure.h"
#include "launch/start/replaced_file.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <utility>

namespace entrodraft::launch {

namespace {

constexpr double kReadSeconds = 0.002; // time at the input, before other replicas have their turn

} // namespace

Dispatcher::Dispatcher(const GenerateOptions& options)
    : options_(&options), writer_(options.output, options.resume ? Existing::resume : Existing::refuse),
      progress_(options.quiet || options.prompt.has_value()), replicas_(static_cast<std::size_t>(options.replicas)) {
    summary_.replicas_busy_seconds.resize(replicas_.size());
    if (!streams()) reader_.emplace(options.input, options.requests);
    if (!streams() && writer_.is_plain_file() && options.output != "-") settings_.emplace(options.output);
    refuse_if(
        settings_ && !options.summary.empty() && are_one_file(options.summary, settings_->file()),
        fmt::format("--summary {} is where the settings of --output are kept; name another file", options.summary));
    if (!options.trace.empty()) trace_.emplace(options.trace, Existing::refuse, "--trace");
    if (!options.timeline.empty()) timeline_.emplace(options.timeline, Existing::refuse, "--timeline");
}

void Dispatcher::read_first(const PromptLimits& limits, const Json& settings) {
    if (const std::string why = spec::why_invalid(options_->requests.processing, limits.vocab_size); !why.empty())
        throw BadOption(why);
    if (streams()) {
        InputItem item = request_of_prompt(*options_->prompt, options_->requests, limits);
        if (const auto* bad = std::get_if<BadLine>(&item)) throw BadOption("--prompt: " + bad->error);
        ready_.push_back({state_, next_order_++, std::move(std::get<spec::Request>(item))});
        input_ended_ = true;
        return;
    }
    reader_->set_limits(limits);
    if (options_->shard) reader_->keep(*options_->shard);
    std::vector<std::uint64_t> known;
    if (settings_)
        known = settings_->compare(settings, writer_.served().size(), {options_->resume_anyway, options_->quiet});
    served_lines_ = skip_served(*reader_, writer_, options_->output, known);
    next_order_ = std::ssize(writer_.served());
}

void Dispatcher::start(dist::Channel* channel) {
    writer_.keep();
    if (settings_) {
        settings_->begin(served_lines_);
        writer_.before_each_line([this] { settings_->write_next(); });
    }
    if (trace_) trace_->keep();
    channel_ = channel;
    if (reader_) progress_.begin(reader_->fraction(), 0);
}

std::optional<Assignment> Dispatcher::receive(double wait_seconds) {
    const auto deadline = dist::Deadline::after_seconds(wait_seconds);
    const double glance = channel_ ? std::min(wait_seconds, kReadSeconds) : wait_seconds;
    for (;;) {
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

// With one replica, a line is read when it is asked for. With several, some lines are read in advance, to know in time
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
        if (settings_) settings_->expect(reader_->last_hash());
        if (const auto* bad = std::get_if<BadLine>(&*item)) {
            ++summary_.with_error;
            progress_.clear();
            writer_.put(next_order_++, error_line(*bad));
            continue;
        }
        ready_.push_back({state_, next_order_++, std::move(std::get<spec::Request>(*item))});
    }
}

// Hands requests to the replica with the fewest texts in progress: for a free slot, or in advance while there is a
// request ready for each slot.
void Dispatcher::hand_out() {
    while (!summary_.interrupted) {
        read(0);
        const bool plenty = std::ssize(ready_) > n_slots();
        const auto freest = std::ranges::min_element(replicas_, {}, &Replica::under_way);
        if (ready_.empty() || freest->under_way >= (plenty ? 2 : 1) * options_->batch_size) return;
        ++freest->under_way;
        send(static_cast<int>(freest - replicas_.begin()), std::move(ready_.front()));
        ready_.pop_front();
    }
}

// The state of the replicas follows from their reports.
void Dispatcher::update_state() {
    RunState state = RunState::serving;
    if (input_ended_ && ready_.empty() && std::ranges::all_of(replicas_, std::logical_not{}, &Replica::under_way))
        state = RunState::finished;
    if (summary_.interrupted) state = RunState::interrupted;
    if (std::ranges::all_of(replicas_, &Replica::has_ended)) state = RunState::closed;
    if (state == std::exchange(state_, state)) return;
    for (int replica = 0; replica < std::ssize(replicas_); ++replica)
        send(replica, {state});
}

void Dispatcher::send(int replica, Assignment assignment) {
    if (replica == 0) return to_own_.push_back(std::move(assignment));
    channel_->send(replica, pack(std::move(assignment)));
}

void Dispatcher::handle(int replica, const Report& report) {
    const auto index = static_cast<std::size_t>(replica);
    Replica& from = replicas_.at(index);
    if (!report.text.empty()) writer_.write_text(report.text);
    if (!report.trace.empty()) trace_->write_text(report.trace + "\n");
    if (!report.result.empty()) write(report);
    if (!report.note.empty()) print(report.note);
    if (report.checked) ++summary_.checked;
    if (report.checked && !report.note.empty()) ++summary_.check_differs;
    if (report.ends_request) --from.under_way;
    if (report.busy_seconds) {
        from.has_ended = true;
        summary_.replicas_busy_seconds[index] = *report.busy_seconds;
    }
    summary_.interrupted |= report.interrupted;
}

void Dispatcher::write(const Report& report) {
    if (report.stats) {
        ++summary_.served;
        summary_.stats += *report.stats;
        summary_.latencies.add(*report.stats);
    } else {
        ++summary_.with_error;
    }
    if (streams()) return writer_.write_text("\n");
    progress_.clear();
    writer_.put(report.order, report.result);
    progress_.update(reader_->fraction(), next_order_, summary_.stats.new_tokens);
}

RunSummary Dispatcher::finish() {
    progress_.clear();
    if (streams() && summary_.interrupted) writer_.write_text("\n");
    writer_.require_intact();
    if (trace_) trace_->require_intact();
    summary_.resumed = std::ssize(writer_.served());
    summary_.resumable = !streams() && writer_.is_plain_file();
    return summary_;
}

void Dispatcher::write_timeline(std::string_view text) {
    try {
        timeline_->write_text(text);
    } catch (...) {
        timeline_->cut_to(0); // half of a timeline is not JSON
        throw;
    }
}

void Dispatcher::print(const std::string& text) {
    progress_.clear();
    log_line(text);
}

} // namespace entrodraft::launch
