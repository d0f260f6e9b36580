// entrodraft bench alpha: how well drafters foresee a target, whatever stop rule or machine they would draft with.
//
// The measuring is alpha_run.cpp's.
#include "launch/cli/command_options.h"
#include "launch/cmd/bench/alpha_run.h"
#include "launch/cmd/bench/bench_prompts.h"
#include "launch/commands.h"
#include "launch/counted.h"
#include "launch/environment.h"
#include "launch/failure.h"
#include "launch/io/results.h"
#include "launch/replaced_file.h"

namespace entrodraft::launch {

namespace {

void show(const DrafterBenchOptions& options, const Json& environment, const std::vector<AlphaFigure>& figures) {
    Json json = {{"command", "alpha"}, {"environment", environment}, {"max_new_tokens", options.max_new_tokens}};
    for (const AlphaFigure& figure : figures)
        json["figures"].push_back(to_json(figure));
    if (!options.output.empty()) replace_file(options.output, indented(json));
    const std::string text = environment_line(environment) + "\n" + "every other place of texts of at most " +
                             counted(options.max_new_tokens, "new token") + "\n\n" + alpha_table(figures);
    ResultWriter("-", Existing::refuse).write_text(options.json ? indented(json) : text);
}

} // namespace

int run_bench_alpha(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options(session, arguments, page_of("bench alpha"), alpha_options);
    if (!options) return kAllServed;
    const double timeout = options->models.collective_timeout_seconds;
    in_agreement(session, timeout, [&] {
        require_readable(options->sources);
        if (session.world_rank() == 0 && !options->output.empty()) require_replaceable(options->output);
    });
    const auto models = open_models(session, options->models, {.draft = options->placement});
    const Drafters drafters(session, *models, options->sources, timeout);
    const Json environment = environment_of(session, *models);
    RequestDefaults defaults;
    defaults.max_new_tokens = options->max_new_tokens;
    defaults.sampling.seed = options->seed;
    const auto prompts =
        read_bench_prompts(session, *models, {options->input, defaults, options->most_prompts}, timeout);
    const AlphaPlan plan = {options->drafters, options->temperatures, options->max_new_tokens, timeout, options->quiet};
    const std::vector<AlphaFigure> figures = measure_alpha(session, *models, drafters, prompts, plan);
    in_agreement(session, timeout, [&] {
        if (models->layout.is_coordinator()) show(*options, environment, figures);
    });
    return kAllServed;
}

} // namespace entrodraft::launch
