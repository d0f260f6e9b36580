// entrodraft bench compare: compares drafters, stop rules and acceptances on the same prompts, in one process.
//
// Times come from the engine's own statistics. Predictions come from the costs of passes, which are measured separately
// (bench latency). comparison.cpp runs the settings, and comparison_report.cpp computes the figures.
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cmd/bench/comparison.h"
#include "launch/cmd/bench/latency.h"
#include "launch/io/progress.h"
#include "launch/io/results.h"
#include "launch/load/drafters.h"
#include "launch/load/environment.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "launch/start/replaced_file.h"
#include "model/cpu/kernels.h"
#include "model/host/buffer.h"
#include "spec/draft/chain.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>
#include <vector>

namespace entrodraft::launch {

namespace {

std::vector<spec::Request> read_prompts(const CompareOptions& options, const ModelPair& models) {
    RequestDefaults defaults = options.requests;
    defaults.ignore_eos = options.synthetic_acceptance.has_value();
    return read_all_prompts(options.input, defaults, options.max_prompts, models.prompt_limits());
}

constexpr double kMaxSeconds = 15;     // for timing passes
constexpr double kOverheadSeconds = 5; // for timing a rule's decisions

// Fills in costs: those of the files, or else measured ones, which only the coordinator gets. Returns the spread of the
// target passes that were timed for them. Collective over the world.
double find_costs(ComparisonTask& task, const Json& environment) {
    const std::vector<std::string>& files = task.options.costs;
    in_agreement(task.session, [&] { require_readable(task.options.sources); });
    task.costs = read_costs(task.session, files);
    if (!files.empty()) {
        in_agreement(task.session, [&] { require_costs_of(environment, files.front()); });
        return 0;
    }
    LatencyPlan plan;
    int most_drafted =
        std::max(task.options.max_draft_tokens, task.options.trees.empty() ? 0 : spec::TreeOptions::kDefaultTokens);
    for (const DrafterChoice& drafter : task.options.drafters)
        most_drafted = std::max(most_drafted, drafter.own_tree_tokens());
    plan.rows = {std::max(plan.max_rows(), most_drafted + 1)};
    plan.draft_levels = !task.options.trees.empty();
    plan.max_seconds = kMaxSeconds;
    const PassTimes passes = measure_passes(task.session, task.models, plan, task.options.quiet).front();
    in_agreement(task.session, [&] { task.costs = level_costs(passes, task.models, plan); });
    return spread_of(passes.target.front());
}

constexpr int kTimedTokens = 4;
constexpr int kPairs = 2000; // at most
constexpr int kOverheadWarmUps = 50;

// Returns a rule that drafts kTimedTokens, whatever it sees of them.
spec::StopRule rule_of(const std::string& name, spec::GainModel& gain) {
    spec::StopRuleOptions options(name);
    options.max_tokens = kTimedTokens;
    if (options.takes("tokens")) options.set("tokens", kTimedTokens);
    if (options.takes("threshold")) options.set("threshold", 1e9);
    return spec::StopRule(options, &gain);
}

// Reads as many bytes as a target pass, so that a draft finds the caches as in a round.
class TargetTraffic {
  public:
    explicit TargetTraffic(ModelPair& models)
        : team_(*models.placed.team), floats_(models.loaded.target->weight_bytes() / sizeof(float) / n_threads()),
          memory_(floats_ * sizeof(float) * n_threads(), model::Pages::huge), sums_(16 * n_threads()) {
        std::fill_n(memory_.as<float>(), memory_.bytes() / sizeof(float), 1.0f);
    }

    void read() {
        team_.run([&](int thread) {
            const auto index = static_cast<std::size_t>(thread);
            sums_[16 * index] +=
                model::kernels::best_kernels().read_sum(memory_.as<float>() + index * floats_, floats_, true);
        });
    }

  private:
    std::size_t n_threads() const { return static_cast<std::size_t>(team_.size()); }

    model::ThreadTeam& team_;
    std::size_t floats_; // for each thread
    model::Buffer memory_;
    std::vector<float> sums_; // a cache line for each thread; the sum must be kept
};

// Drafts four tokens after a prompt, in turns with `constant`, which needs no entropy, and with a rule that does:
// static or expected-gain, set so that it never fires. Before each draft it reads as much memory as a target pass.
// Local, on the draft owner.
DraftOverhead measure_draft_overhead(ModelPair& models, const spec::Request& prompt, const std::string& rule) {
    spec::Request request = prompt;
    request.sampling = {};
    request.ignore_eos = true;
    const spec::DraftLimits limits = models.draft_limits();
    const std::unique_ptr<spec::Drafter> drafter = spec::make_chain_drafter(
        spec::make_model_source(*models.loaded.drafts.front(), limits.vocab_size, 1, models.loaded.device_round.get()),
        {limits, models.placed.clock});
    drafter->begin_sequence(0, request);
    drafter->prefill(0, request.prompt);
    spec::GainModel everything_pays({kTimedTokens, 0, spec::Costs{0, {1}}});
    spec::StopRule without = rule_of("constant", everything_pays);
    spec::StopRule with = rule_of(rule, everything_pays);
    spec::Draft draft;
    TargetTraffic traffic(models);
    const auto time = [&](spec::StopRule& timed) {
        traffic.read();
        const double begin = models.placed.clock.now_seconds();
        drafter->propose({0, request.prompt, kTimedTokens, &request, {}, &timed, &draft});
        return (models.placed.clock.now_seconds() - begin) / kTimedTokens;
    };
    std::vector<double> ratios, steps;
    const HasTime has_time = time_of_this_rank(kOverheadSeconds);
    bool is_warm = false;
    for (int pair = 0; std::ssize(ratios) < kPairs && (ratios.empty() || has_time(1)); ++pair) {
        double without_seconds = 0, with_seconds = 0;
        for (const bool is_with : {pair % 2 == 0, pair % 2 != 0})
            (is_with ? with_seconds : without_seconds) = time(is_with ? with : without);
        is_warm = is_warm || pair >= kOverheadWarmUps || !has_time(0.2);
        if (!is_warm) continue;
        ratios.push_back(with_seconds / without_seconds);
        steps.push_back(without_seconds);
    }
    const auto pairs = static_cast<int>(ratios.size());
    return {rule, 100 * (quantiles_of(ratios).median - 1), quantiles_of(steps).median, pairs};
}

void show(const CompareOptions& options, const ComparisonReport& report, const MachineLoad& machine) {
    for (const std::string& complaint : report.complaints)
        log_line(complaint);
    if (!options.output.empty()) replace_file(options.output, indented(report.json));
    if (!report.complaints.empty()) throw std::runtime_error("texts differ from plain decoding; no figure is shown");
    ResultWriter("-", Existing::refuse).write_text(options.json ? indented(report.json) : report.text);
    if (options.json && !options.quiet) warn_of(machine);
}

} // namespace

int run_bench_compare(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<CompareOptions>(session, arguments, page_of("bench compare"));
    if (!options) return kAllServed;
    session.set_timeout(options->models.collective_timeout_seconds);
    in_agreement(session, [&] {
        if (session.world_rank() == 0 && !options->output.empty()) require_replaceable(options->output);
    });
    Placement placement = {.draft = options->placement, .trees = !options->trees.empty()};
    for (const DrafterChoice& drafter : options->drafters) {
        placement.ahead = std::max(placement.ahead, outcomes_ahead(drafter));
        placement.trees = placement.trees || drafter.drafts_trees();
    }
    const auto models = open_models(session, options->models, placement);
    const bool coordinates = models->placed.layout.is_coordinator();
    const Drafters drafters(session, *models, options->sources, session.timeout_seconds());
    ComparisonTask task = {session, *models, drafters, *options, {}, {}};
    in_agreement(session, [&] { // errors in a file come before anything is timed
        if (coordinates) task.prompts = read_prompts(*options, *models);
    });
    ComparisonFacts facts;
    facts.environment = environment_of(session, *models);
    const MachineWatch watch(session, models->placed.team->size());
    const double spread = find_costs(task, facts.environment);
    in_agreement(session, [&] {
        if (!coordinates || models->loaded.drafts.empty()) return;
        facts.operations_ratio = operations_ratio(*models);
        // The timed draft step follows a pass of the target on the same cores.
        if (models->placed.layout.placement != dist::DraftPlacement::colocated) return;
        if (!options->quiet)
            log_line(fmt::format("measuring what stop decisions cost: at most {:g} s", 2 * kOverheadSeconds));
        for (const char* rule : {"static", kDefaultStopRule})
            facts.overheads.push_back(measure_draft_overhead(*models, task.prompts.front(), rule));
    });
    const std::vector<Temperature> results = compare(task);
    facts.machine = watch.stop(spread);
    in_agreement(session, [&] {
        if (coordinates) show(*options, report_of(task, results, facts), facts.machine);
    });
    return kAllServed;
}

} // namespace entrodraft::launch
