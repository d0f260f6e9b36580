// Hands out requests and takes in results: see request_tracker.h.
#include "launch/serve/request_tracker.h"

#include "launch/cli/shared_options.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

namespace entrodraft::launch {

namespace {

// "check: id 7 differs from decoding without a draft at new token 3 (from 0), where the best logit leads by 0.01".
std::string difference(const spec::Request& request, const std::vector<spec::TokenId>& drafted,
                       const spec::Completion& plain) {
    const auto parting = std::mismatch(drafted.begin(), drafted.end(), plain.tokens.begin(), plain.tokens.end());
    const auto first = static_cast<std::size_t>(parting.first - drafted.begin());
    std::string text =
        fmt::format("check: id {} differs from decoding without a draft at new token {} (from 0)", request.id, first);
    if (first < plain.logit_margins.size() && !std::isnan(plain.logit_margins[first]))
        text += fmt::format(", where the best {} leads by {:g}",
                            request.sampling.greedy() ? "logit" : "logit and noise", plain.logit_margins[first]);
    return text;
}

// Returns how long a coordinator without work waits before it tells its other ranks that there is none yet. That is far
// less than they wait. It is also short enough that a signal to any rank ends the wait within SIGTERM's half second.
double idle_wait_seconds(double collective_timeout_seconds) {
    return std::clamp(collective_timeout_seconds / 4, 0.001, 0.2);
}

} // namespace

RequestTracker::RequestTracker(Dispatcher* dispatcher, dist::Channel* channel, const GenerateOptions& options,
                               const dist::Clock& clock, ResultOf result_of)
    : dispatcher_(dispatcher), channel_(channel), options_(&options), clock_(&clock), result_of_(std::move(result_of)) {
}

bool RequestTracker::is_checkable(const spec::Request& request) const {
    return options_->check &&
           (request.sampling.greedy() || options_->speculation.acceptance.kind == spec::Acceptance::gumbel);
}

spec::EngineCallbacks RequestTracker::callbacks() {
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [this] { return next_request(); };
    callbacks.rule_of = [this](const spec::Request& request) {
        return rule_of_line(request.stop_rule, options_->requests.stop_rules.value());
    };
    callbacks.waiting = [this] { return !under_way_.empty() || state_ == RunState::serving; };
    callbacks.on_text = [this](const spec::Request& request, const spec::TextPiece& piece) {
        if (!request.streams || request.plain) return;
        std::vector<spec::TokenLogProbs> logprobs(piece.logprobs_of_given.begin(), piece.logprobs_of_given.end());
        logprobs.insert(logprobs.end(), piece.logprobs.begin(), piece.logprobs.end());
        send({.order = under_way_.at(request.id).order,
              .sample = request.sample,
              .text = std::string(piece.text),
              .logprobs = std::move(logprobs)});
    };
    callbacks.ends_text = [this](const spec::Request& request) { return under_way_.at(request.id).is_cancelled; };
    if (!options_->trace.empty())
        callbacks.on_round = [this](const spec::Request& request, const spec::RoundTrace& trace) {
            send({.trace = trace_line(request, trace)});
        };
    callbacks.on_complete = [this](const spec::Request& request, spec::Completion completion) {
        on_complete(request, std::move(completion));
    };
    callbacks.on_step = [this] {
        receive(0);
        return state_ != RunState::interrupted;
    };
    return callbacks;
}

std::optional<spec::Request> RequestTracker::next_request() {
    if (assigned_.empty() && state_ == RunState::serving)
        receive(under_way_.empty() ? idle_wait_seconds(options_->models.collective_timeout_seconds) : 0);
    if (assigned_.empty()) return std::nullopt;
    if (under_way_.empty()) busy_since_ = clock_->now_seconds();
    Assignment next = std::move(assigned_.front());
    assigned_.pop_front();
    const int n_samples = next.request->plain ? 1 : next.request->num_samples;
    if (next.request->sample == 0)
        under_way_.try_emplace(next.request->id, UnderWay{next.order, {}, {}, n_samples, clock_->now_seconds()});
    if (next.request->sample + 1 < n_samples) { // the next sample decodes like a line with the next seed
        Assignment& more = assigned_.emplace_front(next);
        ++more.request->sample;
        ++more.request->sampling.seed;
    }
    return std::move(next.request);
}

// Returns a line's completion once the last of its samples has come: the first sample, with the texts and counts of
// all, and the failure of the first sample that failed.
std::optional<spec::Completion> RequestTracker::all_samples(UnderWay& line, const spec::Request& request,
                                                            spec::Completion completion) {
    if (request.num_samples == 1 || request.plain) return completion;
    line.samples.resize(static_cast<std::size_t>(request.num_samples));
    line.samples[request.sample] = std::move(completion);
    if (--line.n_open > 0) return std::nullopt;
    spec::Completion all = line.samples.front();
    const spec::Stats first = all.stats;
    for (std::size_t i = 0; i < line.samples.size(); ++i) {
        spec::Completion& one = line.samples[i];
        if (i > 0) all.stats += one.stats;
        if (all.failure.empty()) all.failure = one.failure;
        all.found.push_back(
            {std::move(one.tokens), std::move(one.text), one.finish_reason, 0, std::move(one.logprobs)});
    }
    all.stats.sequences = first.sequences;
    all.stats.prompt_tokens = first.prompt_tokens;
    all.stats.seconds.first_token = first.seconds.first_token;
    all.stats.seconds.total = clock_->now_seconds() - line.begun;
    return all;
}

void RequestTracker::on_complete(const spec::Request& request, spec::Completion completed) {
    const auto text = under_way_.find(request.id);
    std::optional<spec::Completion> whole = all_samples(text->second, request, std::move(completed));
    if (!whole) return;
    spec::Completion completion = std::move(*whole);
    Report report = {.order = text->second.order, .ends_request = true};
    if (request.plain) {
        report.checked = true;
        if (text->second.drafted != completion.tokens)
            report.note = difference(request, text->second.drafted, completion);
    } else if (!completion.failure.empty()) { // the text could not go on
        report.result =
            error_line({request.id, std::nullopt, completion.failure, request.response != spec::ResponseFormat::line});
        if (options_->prompt) report.note = "--prompt: " + completion.failure;
    } else {
        report.result = result_of_(request, completion);
        report.stats = std::move(completion.stats);
        if (is_checkable(request)) {
            report.ends_request = false;
            text->second.drafted = std::move(completion.tokens);
            Assignment again = {state_, report.order, request}; // goes first, so that few tokens are kept
            again.request->plain = true;
            again.request->sampling.seed -= static_cast<std::uint64_t>(request.sample); // seed of the first sample
            again.request->sample = 0;
            assigned_.push_front(std::move(again));
        }
    }
    if (report.ends_request) under_way_.erase(text);
    if (under_way_.empty()) busy_seconds_ += clock_->now_seconds() - busy_since_;
    send(std::move(report));
}

// Samples that are not begun are dropped: the next of them stands in assigned_ for all. A text under way ends after its
// round (ends_text).
void RequestTracker::cancel(std::int64_t order) {
    int dropped = 0; // samples
    std::erase_if(assigned_, [&](const Assignment& each) {
        const bool is_of_it = each.order == order && !each.request->plain;
        if (is_of_it) dropped += each.request->num_samples - each.request->sample;
        return is_of_it;
    });
    const auto found =
        std::ranges::find_if(under_way_, [order](const auto& each) { return each.second.order == order; });
    if (found != under_way_.end()) {
        found->second.is_cancelled = true;
        found->second.n_open -= dropped;
        if (found->second.n_open > 0) return;
        under_way_.erase(found);
        if (under_way_.empty()) busy_seconds_ += clock_->now_seconds() - busy_since_;
        send({.order = order, .ends_request = true});
    } else if (dropped > 0) {
        send({.order = order, .ends_request = true});
    }
}

void RequestTracker::send(Report report) {
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
        if (next->cancels)
            cancel(next->order);
        else if (next->request)
            assigned_.push_back(std::move(*next));
    }
}

void RequestTracker::close(bool interrupted) {
    if (!under_way_.empty()) busy_seconds_ += clock_->now_seconds() - busy_since_;
    send({.busy_seconds = busy_seconds_, .interrupted = interrupted});
    const double timeout = options_->models.collective_timeout_seconds;
    while (state_ != RunState::closed)
        receive(idle_wait_seconds(timeout));
    if (channel_) channel_->flush(dist::Deadline::after_seconds(timeout));
}

} // namespace entrodraft::launch
