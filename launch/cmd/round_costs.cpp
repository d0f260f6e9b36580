// Costs out of rounds: see round_costs.h.
#include "launch/cmd/round_costs.h"

#include "launch/pair_engine.h"
#include "launch/phase.h"
#include "launch/statistics.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

// A machine is now faster, now slower, for seconds on end: what is measured in one of them is not what runs meet.
constexpr double kMaxSeconds = 15;
constexpr std::int64_t kMinTurns = 2;
constexpr double kNever = 1e300; // nats: a threshold that no entropy reaches

// A tree of a level of one row and of one of four.
constexpr char kTimedTree[] = "4,1";
constexpr int kTimedFurtherRows = 3;

// Rounds whose drafts have so many tokens, of so many passes.
struct Timed {
    std::size_t tokens = 0;
    int passes = 0;
    std::vector<double> draft;  // seconds of drafting, entropy and stop decision included
    std::vector<double> target; // of everything after it
};

// Rounds of one draft with the target.
struct Rounds {
    std::vector<Timed> by_length; // of the draft
    Timed trees;                  // of kTimedTree, where there are any
    double inside = 0;            // seconds of broadcast, gather, verify
    double around = 0;            // and of what lies between rounds
    std::int64_t count = 0;

    explicit Rounds(int n_lengths) : trees{spec::parents_of(spec::parse_tree(kTimedTree)).size(), 2, {}, {}} {
        for (int length = 0; length < n_lengths; ++length)
            by_length.push_back({static_cast<std::size_t>(length), length, {}, {}});
    }
    // By its engine: one for each length, then that of trees.
    Timed& of(std::size_t engine) { return engine < by_length.size() ? by_length[engine] : trees; }
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

PairEngine::Setting setting_of_trees(DrafterChoice drafter) {
    drafter.tree = spec::parse_tree(kTimedTree);
    return {drafter, {spec::tree_rule(*drafter.tree)}, {std::nullopt}, {}};
}

// Drafts that are all as long as budgets allow. Nothing drafted: plain decoding.
PairEngine::Setting setting_of_length(const DrafterChoice& drafter, int length) {
    spec::StopRuleOptions rule("static", {{"entropy-threshold", kNever}});
    rule.max_tokens = std::max(length, 1);
    return {length > 0 ? drafter : DrafterChoice{}, {rule}, {std::nullopt}, {}};
}

// `timed`: of `rounds`, that of the engine. False where a signal ended it.
bool time_text(PairEngine& engine, const spec::Request* request, const volatile int& stop_signal, Rounds& rounds,
               Timed& timed) {
    const auto on_round = [&](const spec::Request&, const spec::RoundTrace& trace) {
        if (trace.draft->tokens.size() != timed.tokens || trace.draft->passes != timed.passes) return;
        if (timed.tokens > 0) timed.draft.push_back(trace.draft_seconds);
        timed.target.push_back(trace.target_seconds);
    };
    const DecodedText text = engine.decode(request, stop_signal, on_round);
    const spec::Stats& stats = text.completion.stats;
    const spec::StepSeconds& s = stats.seconds;
    rounds.inside += s.broadcast + s.gather + s.verify;
    rounds.around += s.total - s.prefill - s.draft - s.entropy - s.broadcast - s.score - s.gather - s.verify;
    rounds.count += stats.rounds;
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

spec::Costs costs_of(const Rounds& rounds) {
    if (rounds.count == 0) throw std::runtime_error("the costs of rounds cannot be measured: every text fails");
    const auto count = static_cast<double>(rounds.count);
    const double in_round = rounds.inside / count;
    spec::Costs costs;
    costs.t_round = in_round + std::max(rounds.around / count, 0.0);
    for (const Timed& timed : rounds.by_length)
        costs.t_target.push_back(std::max(steady_mean(timed.target) - in_round, 1e-9));
    if (!(costs.t_target.front() > 0)) throw std::runtime_error("no round without a draft could be timed");
    fit_draft(rounds.by_length, costs);
    if (const double tree = steady_mean(rounds.trees.draft); tree > 0)
        costs.t_draft_row = std::max(tree - costs.draft_seconds(2), 0.0) / kTimedFurtherRows;
    const double factor = interruption_factor(rounds.by_length);
    costs.t_draft *= factor;
    costs.t_draft_row *= factor;
    *costs.t_first_draft *= factor;
    for (double& seconds : costs.t_target)
        seconds *= factor;
    return costs;
}

} // namespace

std::optional<std::vector<spec::Costs>> measure_round_costs(dist::Session& session, ModelPair& models,
                                                            const Drafters& drafters,
                                                            std::span<const spec::Request> prompts,
                                                            int max_draft_tokens, bool with_trees,
                                                            const volatile int& stop_signal) {
    const bool coordinates = models.layout.is_coordinator();
    const int longest = models.head && models.head->max_tokens > 0 ? std::min(models.head->max_tokens, max_draft_tokens)
                                                                   : max_draft_tokens;
    const int n_lengths = longest + 1;
    const std::int64_t n_prompts = std::min<std::int64_t>(from_writer(session, std::ssize(prompts)), kMaxCostPrompts);
    const auto n_drafts = static_cast<std::size_t>(from_writer(session, models.head ? 1 : std::ssize(models.drafts)));
    std::vector<spec::Costs> all;
    for (std::size_t draft = 0; draft < n_drafts; ++draft) {
        std::vector<PairEngine> engines; // as Rounds::of
        const DrafterChoice drafter = draft_alone(models, draft);
        for (int length = 0; length < n_lengths; ++length)
            engines.emplace_back(session, models, drafters, setting_of_length(drafter, length));
        if (with_trees) engines.emplace_back(session, models, drafters, setting_of_trees(drafter));
        Rounds rounds(n_lengths);
        const double begin = models.clock.now_seconds();
        const auto goes_on = [&](std::int64_t turn) {
            const bool has_time = turn < kMinTurns || models.clock.now_seconds() - begin < kMaxSeconds;
            return from_writer(session, turn < n_prompts && has_time ? 1 : 0) == 1;
        };
        for (std::int64_t turn = -1; goes_on(turn); ++turn) {
            if (turn == 0) rounds = Rounds(n_lengths); // the first turn has warmed up
            const auto text = static_cast<std::size_t>(std::max<std::int64_t>(turn, 0));
            for (std::size_t i = 0; i < engines.size(); ++i) {
                const std::size_t engine = (i + text) % engines.size();
                spec::Request request;
                if (coordinates) request = prompts[text];
                request.max_new_tokens = std::min(request.max_new_tokens,
                                                  turn < 0 ? max_draft_tokens + 2 : spec::Request::kDefaultNewTokens);
                const spec::Request* own = coordinates ? &request : nullptr;
                if (!time_text(engines[engine], own, stop_signal, rounds, rounds.of(engine))) return std::nullopt;
            }
        }
        in_agreement(session, [&] {
            if (coordinates) all.push_back(costs_of(rounds));
        });
    }
    return all;
}

void add_wider_passes(const PassTimes& passes, spec::Costs& costs) {
    if (costs.t_target.empty()) return;
    const std::size_t narrow = costs.t_target.size();
    const double beyond = costs.t_target.back() - passes.target.at(narrow - 1).median;
    for (std::size_t rows = narrow; rows < passes.target.size(); ++rows)
        costs.t_target.push_back(std::max(costs.t_target.back(), passes.target[rows].median + beyond));
}

} // namespace entrodraft::launch
