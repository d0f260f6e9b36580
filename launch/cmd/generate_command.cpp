// entrodraft generate: streams the answer to one prompt to stdout, or reads JSON lines and writes JSON lines.
//
// Opens files and models, and runs the engine of each replica. The replica's request tracker gets requests from the
// run's dispatcher and reports results to it (request_tracker.h, dispatcher.h).
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cmd/repeatability.h"
#include "launch/cmd/served_run.h"
#include "launch/cmd/text_settings.h"
#include "launch/io/openai_batch.h"
#include "launch/io/progress.h"
#include "launch/io/summary.h"
#include "launch/io/timeline.h"
#include "launch/load/drafters.h"
#include "launch/load/environment.h"
#include "launch/load/model_pair.h"
#include "launch/load/pair_engine.h"
#include "launch/serve/input_dispatcher.h"
#include "launch/serve/request_tracker.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "launch/start/replaced_file.h"
#include "launch/start/signals.h"
#include "spec/round/engine.h"

#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace entrodraft::launch {

namespace {

// Adds the run's settings to the counts of the replicas.
void add_settings(RunSummary& summary, const GenerateOptions& options, const ModelPair& models) {
    summary.batch_size = models.placed.cache.sequences;
    summary.num_beams = models.placed.cache.num_beams;
    summary.ranks = models.placed.layout.world_size;
    summary.load_seconds = models.loaded.seconds;
    summary.load_bytes = models.loaded.bytes;
    summary.speculation = options.speculation;
    const DrafterChoice& drafter = options.speculation.drafter;
    if (drafter.is_one_model()) summary.operations_ratio = operations_ratio(models);
}

void print_summary(InputDispatcher& dispatcher, const RunSummary& summary, bool verbose) {
    std::string text = format_summary(summary, verbose);
    text.pop_back(); // print() ends the last line
    dispatcher.print(text);
}

// Warns of options for sampled text, after a run that served its whole input and sampled nothing.
void warn_of_no_sampling(InputDispatcher& dispatcher, const RunSummary& summary, const RequestDefaults& requests) {
    if (summary.interrupted || dispatcher.any_samples() || summary.served + summary.resumed == 0) return;
    const std::string why = why_no_sampling(requests, ", and no line has another");
    if (!why.empty()) dispatcher.print("warning: " + why);
}

// Returns how long each rank waited for the others in passes of the target. Collective over the world.
std::vector<RankWait> gather_waits(dist::Session& session, const ModelPair& models, double run_seconds) {
    RankWait mine;
    if (models.placed.tp)
        mine = {{}, models.placed.layout.replica, models.placed.tp->traffic().waited_seconds, run_seconds};
    std::strncpy(mine.host, session.host_name().c_str(), sizeof mine.host - 1);
    return from_all(session, mine);
}

// Warns of why a text may differ from another run's, and of costs files that were measured on a disturbed machine.
void warn_before_the_run(const GenerateOptions& options, const std::vector<std::optional<spec::Costs>>& costs) {
    const std::string note = why_text_varies(options);
    if (!note.empty()) log_line(note);
    for (std::size_t level = 0; level < costs.size(); ++level)
        if (costs[level]) say_if_disturbed(*costs[level], options.speculation.costs[level]);
}

int exit_code_of(const RunSummary& summary, std::int64_t resumed_with_error) {
    if (summary.interrupted) return kStopped;
    if (summary.check_differs > 0) return kFailure;
    return summary.with_error + resumed_with_error > 0 ? kSomeLinesFailed : kAllServed;
}

struct RunFiles {
    std::optional<InputDispatcher> dispatcher; // on the writer
    std::vector<std::optional<spec::Costs>> costs;
};

// Runs before models are loaded, so that a mistake in a file does not cost the loading. Collective over the world.
void open_files(dist::Session& session, const GenerateOptions& options, const Placement& placement, RunFiles& files) {
    in_agreement(session, [&] {
        if (layout_of(session, placement).is_writer()) files.dispatcher.emplace(options);
        if (files.dispatcher && !options.summary.empty()) require_replaceable(options.summary);
        files.costs = read_costs_files(options.speculation);
        require_readable(options.speculation.sources);
    });
    if (files.dispatcher && !options.quiet) warn_before_the_run(options, files.costs);
}

void read_first_lines(dist::Session& session, const GenerateOptions& options, const ModelPair& models,
                      RunFiles& files) {
    in_agreement(session, [&] {
        if (!files.dispatcher) return;
        const PromptLimits limits = models.prompt_limits();
        Json settings = Json::object();
        if (options.models.takes_digests) settings = text_settings(options, models, limits);
        files.dispatcher->read_first(limits, settings);
    });
}

// Serves all requests. Returns the summary on the writer, and only the seconds elsewhere. Collective over the world.
RunSummary serve(dist::Session& session, const GenerateOptions& options, const ModelPair& models, spec::Engine& engine,
                 RunFiles& files) {
    const PlacedPair& placed = models.placed;
    InputDispatcher* const dispatcher = files.dispatcher ? &*files.dispatcher : nullptr;
    const std::unique_ptr<dist::Channel> channel =
        session.channel(placed.layout, placed.clock, session.timeout_seconds());
    if (dispatcher) dispatcher->start(channel.get());
    const auto result_of = [&](const spec::Request& request, const spec::Completion& completion) {
        if (request.response == spec::ResponseFormat::line) return result_line(request, completion);
        return openai_result_line(request, completion, *models.opened.target.tokenizer, options.models.target,
                                  std::time(nullptr));
    };
    std::optional<RequestTracker> tracker;
    if (placed.layout.is_coordinator()) tracker.emplace(dispatcher, channel.get(), options, placed.clock, result_of);
    const MachineWatch machine(session, placed.team->size());
    const double start = placed.clock.now_seconds();
    const bool interrupted = run_engine(session, engine, tracker ? &*tracker : nullptr, stop_signal());
    session.watch().enter(dist::kNoRound, "end");
    cancel_abort_timer();
    if (tracker) tracker->close(interrupted);
    RunSummary summary;
    if (dispatcher) summary = dispatcher->finish();
    summary.wall_seconds = placed.clock.now_seconds() - start;
    summary.machine = machine.stop();
    return summary;
}

// On the writer.
void report(dist::Session& session, const GenerateOptions& options, const ModelPair& models,
            InputDispatcher& dispatcher, RunSummary& summary) {
    add_settings(summary, options, models);
    if (!options.quiet) warn_of_no_sampling(dispatcher, summary, options.requests);
    if (!options.quiet) print_summary(dispatcher, summary, options.verbose);
    if (!options.summary.empty())
        replace_file(options.summary, indented(summary_json(summary, options, environment_of(session, models))));
}

} // namespace

int run_generate(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<GenerateOptions>(session, arguments, page_of("generate"));
    if (!options) return kAllServed;
    install_signal_handlers(session.world_rank() == 0);
    session.set_timeout(options->models.collective_timeout_seconds);
    const Placement placement = {options->replicas,
                                 options->placement,
                                 options->batch_size,
                                 outcomes_ahead(options->speculation.drafter),
                                 options->requests.beams.num_beams,
                                 options->speculation.drafter.drafts_trees()};
    RunFiles files;
    open_files(session, *options, placement, files);
    const auto models = open_models(session, options->models, placement);
    read_first_lines(session, *options, *models, files);
    const SpeculationOptions& speculation = options->speculation;
    const Drafters drafters(session, *models, speculation.sources, session.timeout_seconds());
    std::optional<Timeline> timeline;
    if (!options->timeline.empty()) timeline.emplace(session, models->placed.clock);
    const PairEngine::Setting setting = {.drafter = speculation.drafter,
                                         .rules = speculation.stop_rules,
                                         .costs = files.costs,
                                         .acceptance = speculation.acceptance,
                                         .watch = timeline ? &*timeline : nullptr};
    capture_rounds(session, *models, drafters, setting, options->requests);
    PairEngine engine(session, *models, drafters, setting);
    RunSummary summary = serve(session, *options, *models, engine.engine(), files);
    if (timeline) {
        const std::string events = timeline->gather(models->placed.layout);
        if (files.dispatcher) files.dispatcher->write_timeline(events);
    }
    const std::vector<RankWait> waits = gather_waits(session, *models, summary.wall_seconds);
    int exit_code = kAllServed; // the writer's exit code
    in_agreement(session, [&] {
        if (!files.dispatcher) return;
        summary.slowest_rank = describe_slowest(waits);
        summary.costs = files.costs.front();
        if (speculation.stop_rules.front().type().weighs_costs) summary.draft_worth = engine.engine().draft_worth();
        report(session, *options, *models, *files.dispatcher, summary);
        exit_code = exit_code_of(summary, files.dispatcher->resumed_with_error());
    });
    return static_cast<int>(from_writer(session, exit_code));
}

} // namespace entrodraft::launch
