// Costs out of rounds: see round_costs.h.
#include "launch/cmd/round_costs.h"

#include "launch/decode_one.h"
#include "launch/phase.h"
#include "launch/statistics.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

// A machine is now faster, now slower, for seconds on end: what is measured in one of them is not what runs meet.
constexpr double kMaxSeconds = 15;
constexpr std::int64_t kMinTurns = 2;
constexpr double kNever = 1e300; // nats: a threshold that no entropy reaches

// Rounds of one draft length.
struct Timed {
    std::vector<double> draft;  // seconds of drafting, entropy and stop decision included
    std::vector<double> target; // of everything after it
};

struct Overhead {
    double in_rounds = 0; // seconds of broadcast, gather, verify
    double around = 0;    // and of what lies between rounds
    std::int64_t rounds = 0;
};

// Without what the machine did meanwhile: a round that took three times the median was interrupted.
std::vector<double> steady(std::vector<double> seconds) {
    if (seconds.empty()) return seconds;
    const double most = 3 * quantiles_of(seconds).median;
    std::erase_if(seconds, [&](double value) { return value > most; });
    return seconds;
}

double steady_mean(const std::vector<double>& seconds) {
    const std::vector<double> kept = steady(seconds);
    if (kept.empty()) return std::numeric_limits<double>::quiet_NaN();
    return total_of(kept) / static_cast<double>(kept.size());
}

// Interruptions are rare, long, and come whatever the round is doing: in one length's mean they would be noise, so
// what they take is shared out. All seconds over those of steady rounds.
double interruption_factor(const std::vector<Timed>& by_length) {
    double all = 0, kept = 0;
    for (const Timed& timed : by_length)
        for (const std::vector<double>* seconds : {&timed.draft, &timed.target}) {
            all += total_of(*seconds);
            kept += total_of(steady(*seconds));
        }
    return kept > 0 ? all / kept : 1;
}

// An engine whose drafts are all as long as budgets allow, and their drafter. Nothing drafted: plain decoding.
struct LengthEngine {
    LengthEngine(ModelPair& models, const Drafters& drafters, std::size_t draft, int length,
                 spec::EngineOptions options) {
        options.stop_rule = {"static", {{"entropy-threshold", kNever}}};
        options.stop_rule.max_tokens = std::max(length, 1);
        const std::optional<spec::Costs> none;
        if (length > 0)
            drafter = drafters.make({{"model"}, {draft}, {}}, std::span(&options.stop_rule, 1), std::span(&none, 1));
        spec::EngineParts parts = models.engine_parts(drafter.get());
        if (length == 0) parts.sharded_draft = nullptr;
        engine.emplace(options, parts);
    }

    std::unique_ptr<spec::Drafter> drafter;
    std::optional<spec::Engine> engine;
};

// False where a signal ended it.
bool time_text(LengthEngine& engine, int length, const spec::Request* request, const volatile int& stop_signal,
               Timed& timed, Overhead& overhead) {
    const auto on_round = [&](const spec::Request&, const spec::RoundTrace& trace) {
        if (static_cast<int>(trace.draft->tokens.size()) != length || trace.draft->passes != length) return;
        if (length > 0) timed.draft.push_back(trace.draft_seconds);
        timed.target.push_back(trace.target_seconds);
    };
    const DecodedText text = decode_one(*engine.engine, request, stop_signal, on_round);
    const spec::Stats& stats = text.completion.stats;
    const spec::StepSeconds& s = stats.seconds;
    overhead.in_rounds += s.broadcast + s.gather + s.verify;
    overhead.around += s.total - s.prefill - s.draft - s.entropy - s.broadcast - s.score - s.gather - s.verify;
    overhead.rounds += stats.rounds;
    return text.end == spec::RunEnd::finished;
}

// Least squares of t_first + (k - 1) t_next over the lengths k that came up.
void fit_draft(const std::vector<Timed>& by_length, spec::Costs& costs) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (std::size_t length = 1; length < by_length.size(); ++length) {
        const double seconds = steady_mean(by_length[length].draft), further = static_cast<double>(length) - 1;
        if (!(seconds > 0)) continue;
        n += 1;
        x += further;
        y += seconds;
        xx += further * further;
        xy += further * seconds;
    }
    if (n == 0) throw std::runtime_error("the costs of drafting cannot be measured: every text ends at once");
    const double spread = n * xx - x * x;
    const double next = spread > 0 ? std::max((n * xy - x * y) / spread, 0.0) : y / n;
    costs.t_draft = next;
    costs.t_first_draft = std::max((y - next * x) / n, next);
}

spec::Costs costs_of(const std::vector<Timed>& by_length, const Overhead& overhead) {
    if (overhead.rounds == 0) throw std::runtime_error("the costs of rounds cannot be measured: every text fails");
    const auto rounds = static_cast<double>(overhead.rounds);
    const double in_round = overhead.in_rounds / rounds;
    spec::Costs costs;
    costs.t_round = in_round + std::max(overhead.around / rounds, 0.0);
    for (const Timed& timed : by_length)
        costs.t_target.push_back(std::max(steady_mean(timed.target) - in_round, 1e-9));
    if (!(costs.t_target.front() > 0)) throw std::runtime_error("no round without a draft could be timed");
    fit_draft(by_length, costs);
    const double factor = interruption_factor(by_length);
    costs.t_draft *= factor;
    *costs.t_first_draft *= factor;
    for (double& seconds : costs.t_target)
        seconds *= factor;
    return costs;
}

// Rounds of one draft with the target, by the lengths of its drafts.
struct Rounds {
    std::vector<Timed> by_length;
    Overhead overhead;
};

// All ranks know how many prompts there are. Nothing where a signal came first.
std::optional<Rounds> time_rounds(dist::Session& session, ModelPair& models, const Drafters& drafters,
                                  std::size_t draft, std::span<const spec::Request> prompts, std::int64_t n_prompts,
                                  const RoundCostPlan& plan, const volatile int& stop_signal) {
    const int n_lengths = plan.max_draft_tokens + 1;
    spec::EngineOptions options;
    options.acceptance.kind = plan.acceptance;
    options.vocab_size = models.vocab_size;
    options.timeout_seconds = session.timeout_seconds();
    std::deque<LengthEngine> engines;
    for (int length = 0; length < n_lengths; ++length)
        engines.emplace_back(models, drafters, draft, length, options);
    Rounds rounds, warm_up;
    rounds.by_length.resize(engines.size());
    warm_up.by_length.resize(engines.size());
    const double begin = models.clock.now_seconds();
    const auto goes_on = [&](std::int64_t turn) {
        const bool has_time = turn < kMinTurns || models.clock.now_seconds() - begin < kMaxSeconds;
        return from_writer(session, turn < n_prompts && has_time ? 1 : 0) == 1;
    };
    for (std::int64_t turn = -1; goes_on(turn); ++turn) { // the first warms up
        Rounds& taken = turn < 0 ? warm_up : rounds;
        const std::int64_t text = std::max<std::int64_t>(turn, 0);
        for (int i = 0; i < n_lengths; ++i) {
            const auto length = static_cast<std::size_t>((i + text) % n_lengths);
            const bool coordinates = models.layout.is_coordinator();
            spec::Request request;
            if (coordinates) request = prompts[static_cast<std::size_t>(text)];
            request.max_new_tokens =
                std::min(request.max_new_tokens, turn < 0 ? plan.max_draft_tokens + 2 : plan.max_new_tokens);
            if (!time_text(engines[length], static_cast<int>(length), coordinates ? &request : nullptr, stop_signal,
                           taken.by_length[length], taken.overhead))
                return std::nullopt;
        }
    }
    return rounds;
}

} // namespace

std::optional<std::vector<spec::Costs>> measure_round_costs(dist::Session& session, ModelPair& models,
                                                            const Drafters& drafters,
                                                            std::span<const spec::Request> prompts,
                                                            const RoundCostPlan& plan,
                                                            const volatile int& stop_signal) {
    const std::int64_t n_prompts =
        from_writer(session, std::min<std::int64_t>(plan.max_prompts, static_cast<std::int64_t>(prompts.size())));
    const std::int64_t n_drafts = from_writer(session, static_cast<std::int64_t>(models.drafts.size()));
    std::vector<spec::Costs> all;
    for (std::int64_t draft = 0; draft < n_drafts; ++draft) {
        const std::optional<Rounds> rounds = time_rounds(session, models, drafters, static_cast<std::size_t>(draft),
                                                         prompts, n_prompts, plan, stop_signal);
        if (!rounds) return std::nullopt;
        in_agreement(session, [&] {
            if (models.layout.is_coordinator()) all.push_back(costs_of(rounds->by_length, rounds->overhead));
        });
    }
    return all;
}

} // namespace entrodraft::launch
