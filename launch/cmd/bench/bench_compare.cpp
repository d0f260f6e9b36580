// entrodraft bench compare: drafters, stop rules and acceptances side by side on the same prompts, in one process.
//
// Times come from the engine's own statistics, predictions from the costs of passes measured apart (bench latency).
// The running is comparison.cpp's, the figures are comparison_report.cpp's.
#include "launch/cli/command_options.h"
#include "launch/cmd/bench/bench_latency.h"
#include "launch/cmd/bench/comparison_report.h"
#include "launch/commands.h"
#include "launch/failure.h"
#include "launch/io/report.h"
#include "launch/io/results.h"
#include "launch/load/drafters.h"
#include "launch/phase.h"
#include "launch/replaced_file.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

struct CompareCosts {
    std::vector<spec::Costs> costs;
    double spread = 0; // of measured ones
};

// Those of the files, or measured. Empty on ranks that do not coordinate. Collective over the world.
CompareCosts costs_of(dist::Session& session, ModelPair& models, const CompareOptions& options,
                      const Json& environment) {
    const double timeout = options.models.collective_timeout_seconds;
    CompareCosts found;
    std::vector<spec::Costs>& costs = found.costs;
    in_agreement(session, timeout, [&] {
        require_readable(options.sources);
        for (const std::string& file : options.costs)
            costs.push_back(spec::read_costs(file));
        if (!costs.empty()) require_costs_of(environment, options.costs.front());
    });
    for (std::size_t level = 0; session.world_rank() == 0 && level < costs.size(); ++level)
        say_if_disturbed(costs[level], options.costs[level]);
    if (!costs.empty()) return found;
    LatencyPlan plan;
    plan.timeout_seconds = timeout;
    plan.rows = std::max(plan.rows, options.max_draft_tokens + 1);
    const Latency latency = measure_latency(session, models, plan);
    found.spread = spread_of(latency.target.front());
    in_agreement(session, timeout, [&] { costs = level_costs(latency, models, plan); });
    return found;
}

void show(const CompareOptions& options, const ComparisonReport& report, const MachineLoad& machine) {
    for (const std::string& complaint : report.complaints)
        say(complaint);
    if (!options.output.empty()) replace_file(options.output, indented(report.json));
    if (report.different_texts > 0) throw std::runtime_error("texts differ from plain decoding; no figure is shown");
    ResultWriter("-", Existing::refuse).write_text(options.json ? indented(report.json) : report.text);
    if (options.json && !options.quiet) warn_of(machine);
}

} // namespace

int run_bench_compare(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<CompareOptions>(session, arguments, page_of("bench compare"));
    if (!options) return kAllServed;
    const double timeout = options->models.collective_timeout_seconds;
    in_agreement(session, timeout, [&] {
        if (session.world_rank() == 0 && !options->output.empty()) require_replaceable(options->output);
    });
    Placement placement = {.draft = options->placement};
    for (const DrafterChoice& drafter : options->drafters)
        placement.ahead = std::max(placement.ahead, outcomes_ahead(drafter));
    const auto models = open_models(session, options->models, placement);
    const bool coordinates = models->layout.is_coordinator();
    const Drafters drafters(session, *models, options->sources, timeout);
    ComparisonFacts facts;
    facts.environment = environment_of(session, *models);
    facts.best_of_each_rule = options->tune;
    Comparison comparison(session, *models, drafters, *options, facts.costs, !options->costs.empty());
    comparison.read_prompts(); // what may be wrong in a file is said before anything is timed
    const MachineWatch watch(session, timeout);
    const CompareCosts found = costs_of(session, *models, *options, facts.environment);
    facts.costs = found.costs;
    in_agreement(session, timeout, [&] {
        if (!coordinates || models->drafts.empty()) return;
        facts.operations_ratio = operations_ratio(*models);
        // A step of the draft alone is timed, after a pass of the target on the same cores.
        if (models->layout.placement != dist::DraftPlacement::colocated) return;
        for (const char* rule : {"static", kDefaultStopRule})
            facts.overheads.push_back(measure_draft_overhead(*models, comparison.prompts.front(), rule));
    });
    comparison.run();
    facts.machine = watch.stop(found.spread);
    in_agreement(session, timeout, [&] {
        if (coordinates) show(*options, report_of(comparison, *options, facts), facts.machine);
    });
    return kAllServed;
}

} // namespace entrodraft::launch
