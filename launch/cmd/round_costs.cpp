// Costs from rounds: see round_costs.h.
#include "launch/cmd/round_costs.h"

#include "launch/cmd/bench/measuring_time.h"
#include "launch/load/pair_engine.h"
#include "launch/start/phase.h"
#include "launch/start/statistics.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

// A machine is faster or slower for seconds at a time. A measurement within one such period does not match real runs.
constexpr double kMaxSeconds = 15; // for each draft
constexpr double kNever = 1e300;   // nats: a threshold that no entropy reaches

// A tree with one level of one row and one level of four rows.
constexpr char kTimedTree[] = "4,1";
constexpr int kTimedFurtherRows = 3;

// Rounds with drafts of that many tokens, made in that many passes.
struct Timed {
    std::size_t tokens = 0;
    int passes = 0;
    std::vector<double> draft;  // seconds of drafting, with entropy and stop decision
    std::vector<double> target; // seconds of everything after drafting
};

// Rounds of one draft with the target.
struct Rounds {
    std::vector<Timed> by_length; // by the draft's length
    Timed trees;                  // of kTimedTree, if trees are timed
    double inside = 0;            // seconds of broadcast, gather, verify
    double around = 0;            // seconds between rounds
    std::int64_t count = 0;

    explicit Rounds(int n_lengths) : trees{spec::parents_of(spec::parse_tree(kTimedTree)).size(), 2, {}, {}} {
        for (int length = 0; length < n_lengths; ++length)
            by_length.push_back({static_cast<std::size_t>(length), length, {}, {}});
    }
    // Returns the rounds of an engine: there is one engine for each length, then the engine of trees.
    Timed& of(std::size_t engine) { return engine < by_length.size() ? by_length[engine] : trees; }
};

// Drops rounds that were interrupted, which take more than three times the median.
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

// Interruptions are rare, long, and hit a round at any point. In the mean of one length they would be noise, so their
// time is shared out. Returns all seconds over those of steady rounds.
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

// Drafts as many tokens as the budget allows. With length 0 it is plain decoding.
PairEngine::Setting setting_of_length(const DrafterChoice& drafter, int length) {
    spec::StopRuleOptions rule("static", {{"threshold", kNever}});
    rule.max_tokens = std::max(length, 1);
    return {length > 0 ? drafter : DrafterChoice{}, {rule}, {std::nullopt}, {}};
}

// Fits t_first + (k - 1) t_next by least squares to the lengths k that came up.
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
    const double next = spread > 0 ? std::max((n * xy - x * y) / spread, 0.0) : y / (n + x); // for one length: its mean
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

// Decodes texts with one draft: all lengths in turn, as often as there is time.
class RoundTiming {
  public:
    RoundTiming(const CostTask& task, std::size_t draft, int n_lengths)
        : task_(task), rounds_(n_lengths), n_lengths_(n_lengths) {
        const DrafterChoice drafter = draft_alone(task.models, draft);
        for (int length = 0; length < n_lengths; ++length)
            engines_.emplace_back(task.session, task.models, task.drafters, setting_of_length(drafter, length));
        if (task.with_trees) engines_.emplace_back(task.session, task.models, task.drafters, setting_of_trees(drafter));
    }

    // Returns false if a signal came. Collective over the world.
    bool run(std::int64_t n_prompts) {
        MeasuringTime time(task_.session, "what rounds cost", kMaxSeconds, task_.quiet);
        for (std::int64_t turn = -1; turn < n_prompts; ++turn) {
            const bool has_warmed_up = turn == 0 && time.has_left(kWarmUpShare);
            if (has_warmed_up) rounds_ = Rounds(n_lengths_); // without time to repeat it, the warm-up counts
            const std::vector<std::size_t> order = order_of(turn);
            for (std::size_t i = 0; i < order.size(); ++i) {
                if (!time.has_left(turn < 0 && i < kInAnyCaseTimed ? kInAnyCase : 1)) return true;
                if (!time_text(order[i], turn)) return false;
            }
        }
        return true;
    }

    const Rounds& rounds() const { return rounds_; } // on the coordinator

  private:
    static constexpr double kWarmUpShare = 0.25;      // share of the time
    static constexpr std::size_t kInAnyCaseTimed = 3; // plain decoding, the longest draft, and a shorter one or trees
    static constexpr std::size_t kFirstPrompt = 64, kLeastPrompt = 16; // tokens

    // In the first turn, whose order is coarse to fine, trees come early. Each later turn begins with another engine.
    std::vector<std::size_t> order_of(std::int64_t turn) const {
        std::vector<std::size_t> order;
        for (const int length : coarse_to_fine(n_lengths_))
            order.push_back(static_cast<std::size_t>(length));
        if (task_.with_trees)
            order.insert(order.begin() + std::min<std::ptrdiff_t>(2, std::ssize(order)), engines_.size() - 1);
        if (turn <= 0) return order;
        for (std::size_t i = 0; i < order.size(); ++i)
            order[i] = (i + static_cast<std::size_t>(turn)) % engines_.size();
        return order;
    }

    // If the target reads slowly, only the end of the prompt is read.
    spec::Request request_of(std::int64_t turn) const {
        spec::Request request = task_.prompts[std::max<std::int64_t>(turn, 0)];
        request.max_new_tokens =
            std::min(request.max_new_tokens, turn < 0 ? task_.max_draft_tokens + 2 : spec::Request::kDefaultNewTokens);
        if (request.prompt.size() > most_read_)
            request.prompt.erase(request.prompt.begin(),
                                 request.prompt.end() - static_cast<std::ptrdiff_t>(most_read_));
        return request;
    }

    // Returns false if a signal ended it.
    bool time_text(std::size_t engine, std::int64_t turn) {
        constexpr double kTurns = 4; // turns that should fit into the time
        const double seconds = kMaxSeconds / kTurns / static_cast<double>(engines_.size());
        const bool coordinates = task_.models.placed.layout.is_coordinator();
        Timed& timed = rounds_.of(engine);
        std::optional<double> began; // end of the first round
        const auto on_round = [&](const spec::Request&, const spec::RoundTrace& trace) {
            if (trace.draft->tokens.size() != timed.tokens || trace.draft->passes != timed.passes) return;
            if (timed.tokens > 0) timed.draft.push_back(trace.draft_seconds);
            timed.target.push_back(trace.target_seconds);
        };
        const auto ends_text = [&](const spec::Request&) {
            const double now = task_.models.placed.clock.now_seconds();
            if (!began) began = now;
            return now - *began > seconds;
        };
        const spec::Request request = coordinates ? request_of(turn) : spec::Request();
        const DecodedText text =
            engines_[engine].decode(coordinates ? &request : nullptr, task_.stop_signal, on_round, ends_text);
        const spec::Stats& stats = text.completion.stats;
        const spec::StepSeconds& s = stats.seconds;
        rounds_.inside += s.broadcast + s.gather + s.verify;
        rounds_.around += s.total - s.prefill - s.draft - s.entropy - s.broadcast - s.score - s.gather - s.verify;
        rounds_.count += stats.rounds;
        if (s.prefill > 0)
            most_read_ = static_cast<std::size_t>(std::clamp(
                static_cast<double>(request.prompt.size()) / s.prefill * seconds, double{kLeastPrompt}, 1e9));
        return text.end == spec::RunEnd::finished;
    }

    const CostTask& task_;
    std::vector<PairEngine> engines_; // in the order of Rounds::of
    Rounds rounds_;
    int n_lengths_;
    std::size_t most_read_ = kFirstPrompt; // tokens of a prompt
};

} // namespace

std::optional<std::vector<spec::Costs>> measure_round_costs(const CostTask& task) {
    const ModelPair& models = task.models;
    const int longest = models.opened.draft_head() && models.opened.draft_head()->max_tokens > 0
                            ? std::min(models.opened.draft_head()->max_tokens, task.max_draft_tokens)
                            : task.max_draft_tokens;
    const std::int64_t n_prompts =
        std::min<std::int64_t>(from_writer(task.session, std::ssize(task.prompts)), kMaxCostPrompts);
    const std::int64_t n_drafts =
        from_writer(task.session, models.opened.draft_head() ? 1 : std::ssize(models.loaded.drafts));
    std::vector<spec::Costs> all;
    for (std::int64_t draft = 0; draft < n_drafts; ++draft) {
        RoundTiming timing(task, static_cast<std::size_t>(draft), longest + 1);
        if (!timing.run(n_prompts)) return std::nullopt;
        in_agreement(task.session, [&] {
            if (models.placed.layout.is_coordinator()) all.push_back(costs_of(timing.rounds()));
        });
    }
    return all;
}

void add_wider_passes(const PassTimes& passes, spec::Costs& costs) {
    if (costs.t_target.empty()) return;
    const spec::Costs alone = passes.costs(); // lacks some rows if time was short
    const auto narrow = static_cast<int>(costs.t_target.size());
    const double beyond = costs.target_seconds(narrow) - alone.target_seconds(narrow);
    for (int rows = narrow + 1; rows <= static_cast<int>(alone.t_target.size()); ++rows)
        costs.t_target.push_back(std::max(costs.target_seconds(rows - 1), alone.target_seconds(rows) + beyond));
}

} // namespace entrodraft::launch
