// Requests out, results in: see clerk.h.
#include "launch/serve/clerk.h"

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

Clerk::Clerk(AnyDesk desk, const GenerateOptions& options, const dist::Clock& clock)
    : desk_(desk), options_(&options), clock_(&clock) {}

bool Clerk::is_checkable(const spec::Request& request) const {
    return options_->check &&
           (request.sampling.greedy() || options_->speculation.acceptance.kind == spec::Acceptance::gumbel);
}

spec::EngineCallbacks Clerk::callbacks() {
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [this] { return next_request(); };
    callbacks.waiting = [this] { return !is_idle() || std::visit([](auto* desk) { return desk->waiting(); }, desk_); };
    if (Desk** const desk = std::get_if<Desk*>(&desk_))
        callbacks.on_text = [desk = *desk](const spec::Request& request, std::string_view text) {
            if (!request.plain) desk->put_text(text);
        };
    if (!options_->trace.empty())
        callbacks.on_round = [this](const spec::Request& request, const spec::RoundTrace& trace) {
            std::visit([&](auto* desk) { desk->put_trace(trace_line(request, trace)); }, desk_);
        };
    callbacks.on_complete = [this](const spec::Request& request, spec::Completion completion) {
        on_complete(request, std::move(completion));
    };
    callbacks.on_step = [this] { return std::visit([](auto* desk) { return desk->step(); }, desk_); };
    return callbacks;
}

Tally Clerk::tally() const {
    Tally tally = tally_;
    if (!is_idle()) tally.busy_seconds += clock_->now_seconds() - busy_since_;
    return tally;
}

void Clerk::begin_one() {
    if (is_idle()) busy_since_ = clock_->now_seconds();
}

void Clerk::end_one() {
    if (is_idle()) tally_.busy_seconds += clock_->now_seconds() - busy_since_;
}

// What is to be said again goes first, so that little is kept for comparison.
std::optional<spec::Request> Clerk::next_request() {
    if (!to_replay_.empty()) {
        spec::Request again = std::move(to_replay_.front());
        to_replay_.pop_front();
        again.plain = true;
        begin_one();
        ++replays_under_way_;
        return again;
    }
    std::optional<Work> work = std::visit([&](auto* desk) { return desk->next(is_idle()); }, desk_);
    if (!work) return std::nullopt;
    begin_one();
    orders_.emplace(work->request.id, work->order);
    return std::move(work->request);
}

void Clerk::on_complete(const spec::Request& request, spec::Completion completion) {
    if (request.plain) return compare(request, completion);
    const auto order = orders_.find(request.id);
    Result result = {order->second, completion.stats.new_tokens, ""};
    orders_.erase(order);
    end_one();
    if (completion.failure.empty()) {
        tally_.stats += completion.stats;
        tally_.latencies.add(completion.stats);
        ++tally_.served;
        result.line = result_line(request, completion);
        if (is_checkable(request)) {
            to_replay_.push_back(request);
            said_.emplace(request.id, std::move(completion.tokens));
        }
    } else { // a text that could not go on
        ++tally_.with_error;
        result = {result.order, 0, error_line({request.id, std::nullopt, completion.failure})};
    }
    std::visit([&](auto* desk) { desk->put(result); }, desk_);
    if (options_->prompt && !completion.failure.empty())
        std::visit([&](auto* desk) { desk->note("--prompt: " + completion.failure); }, desk_);
}

void Clerk::compare(const spec::Request& request, const spec::Completion& plain) {
    --replays_under_way_;
    end_one();
    const std::vector<spec::TokenId> drafted = std::move(said_.extract(request.id).mapped());
    ++tally_.checked;
    if (drafted == plain.tokens) return;
    ++tally_.check_differs;
    std::visit([&](auto* desk) { desk->note(difference(request, drafted, plain)); }, desk_);
}

} // namespace entrodraft::launch
