// Requests out, results in: see request_tracker.h.
#include "launch/serve/request_tracker.h"

#include "launch/io/results.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

namespace entrodraft::launch {

namespace {

// "check: id 7 differs from decoding without a draft at new token 3 (from 0), where the best logit leads by 0.01".
std::string difference(const spec::Request& request, const std::vector<spec::TokenId>& drafted,
                       const spec::Completion& plain) {
    const auto parting = std::mismatch(drafted.begin(), drafted.end(), plain.tokens.begin(), plain.tokens.end());
    const auto first = static_cast<std::size_t>(parting.first - drafted.begin());
    std::ostringstream text;
    text << "check: id " << request.id << " differs from decoding without a draft at new token " << first
         << " (from 0)";
    if (first < plain.logit_margins.size() && !std::isnan(plain.logit_margins[first]))
        text << ", where the best " << (request.sampling.greedy() ? "logit" : "logit and noise") << " leads by "
             << plain.logit_margins[first];
    return text.str();
}

} // namespace

double idle_wait_seconds(double collective_timeout_seconds) {
    return std::clamp(collective_timeout_seconds / 4, 0.001, 0.2);
}

RequestTracker::RequestTracker(Dispatcher* dispatcher, dist::Channel* channel, const GenerateOptions& options,
                               const dist::Clock& clock)
    : dispatcher_(dispatcher), channel_(channel), options_(&options), clock_(&clock) {}

bool RequestTracker::is_checkable(const spec::Request& request) const {
    return options_->check &&
           (request.sampling.greedy() || options_->speculation.acceptance.kind == spec::Acceptance::gumbel);
}

spec::EngineCallbacks RequestTracker::callbacks() {
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [this] { return next_request(); };
    callbacks.waiting = [this] { return !is_idle() || state_ == RunState::serving; };
    if (options_->prompt)
        callbacks.on_text = [this](const spec::Request& request, std::string_view text) {
            if (!request.plain) send({.text = std::string(text)});
        };
    if (!options_->trace.empty())
        callbacks.on_round = [this](const spec::Request& request, const spec::RoundTrace& trace) {
            send({.trace = trace_line(request, trace)});
        };
    callbacks.on_complete = [this](const spec::Request& request, spec::Completion completion) {
        if (request.plain) return compare(request, completion);
        on_complete(request, std::move(completion));
    };
    callbacks.on_step = [this] {
        receive(0);
        return state_ != RunState::interrupted;
    };
    return callbacks;
}

// What is to be decoded again goes first, so that little is kept for comparison.
std::optional<spec::Request> RequestTracker::next_request() {
    if (!to_replay_.empty()) {
        spec::Request again = std::move(to_replay_.front());
        to_replay_.pop_front();
        again.plain = true;
        return again;
    }
    if (assigned_.empty() && state_ == RunState::serving)
        receive(is_idle() ? idle_wait_seconds(options_->models.collective_timeout_seconds) : 0);
    if (assigned_.empty()) return std::nullopt;
    if (is_idle()) busy_since_ = clock_->now_seconds();
    spec::Request request = std::move(*assigned_.front().request);
    orders_.emplace(request.id, assigned_.front().order);
    assigned_.pop_front();
    return request;
}

void RequestTracker::on_complete(const spec::Request& request, spec::Completion completion) {
    Report report = {.order = orders_.extract(request.id).mapped()};
    if (completion.failure.empty()) {
        ++tally_.served;
        tally_.stats += completion.stats;
        tally_.latencies.add(completion.stats);
        report.new_tokens = completion.stats.new_tokens;
        report.result = result_line(request, completion);
        if (is_checkable(request)) {
            to_replay_.push_back(request);
            unchecked_.emplace(request.id, std::move(completion.tokens));
        }
    } else { // a text that could not go on
        ++tally_.with_error;
        report.result = error_line({request.id, std::nullopt, completion.failure});
        if (options_->prompt) report.note = "--prompt: " + completion.failure;
    }
    if (is_idle()) tally_.busy_seconds += clock_->now_seconds() - busy_since_;
    send(std::move(report));
}

void RequestTracker::compare(const spec::Request& request, const spec::Completion& plain) {
    const std::vector<spec::TokenId> drafted = std::move(unchecked_.extract(request.id).mapped());
    if (is_idle()) tally_.busy_seconds += clock_->now_seconds() - busy_since_;
    ++tally_.checked;
    const bool differs = drafted != plain.tokens;
    tally_.check_differs += differs ? 1 : 0;
    send({.note = differs ? difference(request, drafted, plain) : ""});
}

void RequestTracker::send(Report report) {
    report.replays = static_cast<std::int64_t>(unchecked_.size());
    if (dispatcher_) return dispatcher_->handle(0, report);
    channel_->send(0, pack(std::move(report)));
}

void RequestTracker::receive(double wait_seconds) {
    for (bool waited = false;; waited = true) {
        const double wait = waited ? 0 : wait_seconds;
        std::optional<Assignment> next;
        if (dispatcher_)
            next = dispatcher_->receive(wait);
        else if (auto message = channel_->receive(wait))
            next = unpack<Assignment>(std::move(message->bytes));
        if (!next) return;
        state_ = next->state;
        if (next->request) assigned_.push_back(std::move(*next));
    }
}

void RequestTracker::close(bool interrupted) {
    if (!is_idle()) tally_.busy_seconds += clock_->now_seconds() - busy_since_;
    send({.tally = tally_, .interrupted = interrupted});
    const double timeout = options_->models.collective_timeout_seconds;
    while (state_ != RunState::closed)
        receive(idle_wait_seconds(timeout));
    if (channel_) channel_->flush(dist::Deadline::after_seconds(timeout));
}

} // namespace entrodraft::launch
