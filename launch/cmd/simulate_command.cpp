// entrodraft simulate: any stop rules over recordings, without models. Counts are those of real runs; times are counts
// times costs, the recording's or others ("what if").
#include "launch/cli/command_options.h"
#include "launch/cli/replay_options.h"
#include "launch/cmd/simulation_report.h"
#include "launch/commands.h"
#include "launch/failure.h"
#include "launch/io/results.h"
#include "launch/load/drafters.h"
#include "launch/load/launch_check.h"
#include "launch/replaced_file.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <stdexcept>
#include <thread>

namespace entrodraft::launch {

namespace {

// What would read a file twice, or could not be written, before anything is read.
void check_files(const SimulateOptions& options) {
    for (std::size_t i = 0; i < options.recordings.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
            if (are_one_file(options.recordings[i], options.recordings[j]))
                throw BadOption(
                    fmt::format("--recording {} is given twice: its texts would count twice", options.recordings[i]));
    if (!options.output.empty()) require_replaceable(options.output);
}

// The texts of all recordings, as one.
spec::Recording read_all(const std::vector<std::string>& files) {
    spec::Recording all;
    for (const std::string& file : files) {
        spec::Recording one = spec::read_recording(file);
        if (all.whole_bytes == 0) {
            all = std::move(one);
            continue;
        }
        spec::RecordingHead same = one.head; // costs are the first file's
        same.costs = all.head.costs;
        same.environment = all.head.environment;
        same.collectives = all.head.collectives;
        same.input = all.head.input;
        same.sampling = all.head.sampling;
        same.noisy = all.head.noisy;
        same.requests = all.head.requests;
        if (spec::pack(same) != spec::pack(all.head))
            throw std::runtime_error(fmt::format(
                "{} is of other models, drafts or lengths than {}; simulate them apart", file, files.front()));
        std::move(one.lines.begin(), one.lines.end(), std::back_inserter(all.lines));
    }
    if (all.texts().empty()) throw std::runtime_error(files.front() + ": holds no text");
    return all;
}

spec::Costs costs_of(const CostsInstead& instead, const spec::Costs& recorded) {
    spec::Costs costs = instead.file.empty() ? recorded : spec::read_costs(instead.file);
    say_if_disturbed(costs, instead.file);
    constexpr double kSecondsPerMs = 1e-3;
    if (instead.t_draft_ms) {
        costs.t_draft = *instead.t_draft_ms * kSecondsPerMs;
        costs.t_first_draft.reset();
    }
    if (instead.t_first_draft_ms) costs.t_first_draft = *instead.t_first_draft_ms * kSecondsPerMs;
    if (instead.t_round_ms) costs.t_round = *instead.t_round_ms * kSecondsPerMs;
    if (instead.t_target_ms.empty()) return costs;
    costs.t_target.clear();
    for (const double ms : instead.t_target_ms)
        costs.t_target.push_back(ms * kSecondsPerMs);
    if (!instead.t_round_ms && instead.file.empty()) costs.t_round.reset(); // another machine's
    return costs;
}

std::vector<spec::ReplaySetting> settings_of(const SimulateOptions& options, const spec::RecordingHead& head) {
    const int n_drafts = static_cast<int>(head.drafts.size());
    if (options.draft && *options.draft > n_drafts)
        throw BadOption(fmt::format("--draft {}: the recording has {}", *options.draft, counted(n_drafts, "draft")));
    if (!options.trace.empty() && !options.draft && n_drafts > 1)
        throw BadOption(fmt::format(
            "--trace shows the rounds of one draft; the recording has {}: name one with --draft", n_drafts));
    spec::StopRuleOptions any; // under the rules' own cap, or the oracle would bound others than these
    any.max_tokens = options.max_draft_tokens.value_or(std::min(any.max_tokens, head.max_draft_tokens));
    std::vector<spec::ReplaySetting> settings;
    for (std::size_t draft = 0; draft < head.drafts.size(); ++draft) {
        if (options.draft && static_cast<std::size_t>(*options.draft) != draft + 1) continue;
        const spec::Costs costs = costs_of(options.costs, head.costs.at(draft));
        settings.push_back({spec::ReplayKind::plain, any, draft, costs});
        for (spec::StopRuleOptions rule : options.rules) {
            if (!options.max_draft_tokens)
                rule.max_tokens =
                    rule.is_persistent() ? head.max_draft_tokens : std::max(any.max_tokens, rule.min_tokens);
            settings.push_back({spec::ReplayKind::rule, rule, draft, costs, options.ahead.value_or(0)});
        }
        if (options.oracle) settings.push_back({spec::ReplayKind::oracle, any, draft, costs});
    }
    if (options.costs.file.empty() || !options.costs.t_target_ms.empty()) return settings;
    for (const spec::ReplaySetting& setting : settings)
        if (setting.kind != spec::ReplayKind::plain)
            require_wide_enough(setting.costs, options.costs.file, setting.rule.max_tokens);
    return settings;
}

// The rounds of the last setting, the only one beside plain decoding, in the form of generate --trace.
void write_trace(const std::string& file, const spec::Recording& recording, const spec::ReplaySetting& setting) {
    ResultWriter writer(file, Existing::refuse, "--trace");
    spec::Replay replay(recording.head, setting);
    std::uint64_t number = 0;
    for (const spec::TextRecord* text : recording.texts())
        replay.replay(*text, [&](const spec::ReplayedRound& round) {
            spec::Request request;
            request.id = text->id;
            const auto emitted = static_cast<std::size_t>(round.place + round.accepted);
            spec::RoundTrace trace;
            trace.number = number++;
            trace.position = static_cast<int>(text->prompt.size()) + round.place;
            trace.draft = round.draft;
            trace.verification = {round.accepted, emitted < text->places() ? text->token[emitted] : -1};
            trace.draft_seconds = setting.costs.draft_seconds(round.draft->passes);
            trace.target_seconds = setting.costs.target_seconds(static_cast<int>(round.draft->tokens.size()) + 1) +
                                   setting.costs.t_round.value_or(0);
            writer.write_text(trace_line(request, trace) + "\n");
        });
    writer.keep();
}

// "costs" are those of the draft, if one was simulated; of several a list, one for each draft, in their order.
Json report_json(const SimulateOptions& options, const spec::Recording& recording,
                 const std::vector<SimulatedSetting>& settings, bool names_draft) {
    Json list = Json::array(), costs = Json::array();
    for (const SimulatedSetting& setting : settings) {
        list.push_back(to_json(setting, names_draft));
        if (setting.counts.setting.kind == spec::ReplayKind::plain)
            costs.push_back(Json::parse(spec::to_json(setting.counts.setting.costs)));
    }
    Json json = {{"command", "simulate"}, {"recordings", options.recordings}, {"texts", recording.texts().size()}};
    json["costs"] = costs.size() == 1 ? costs.front() : costs;
    if (options.ahead) json["draft_ahead"] = *options.ahead;
    json["settings"] = std::move(list);
    return json;
}

void simulate_all(const SimulateOptions& options) {
    check_files(options);
    const spec::Recording recording = read_all(options.recordings);
    const std::vector<const spec::TextRecord*> texts = recording.texts();
    const std::vector<spec::ReplaySetting> settings = settings_of(options, recording.head);
    const int cores = static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
    const int threads =
        options.threads > 0 ? options.threads : threads_of_environment(dist::process_environment()).value_or(cores);
    const auto began = std::chrono::steady_clock::now();
    auto counts = spec::simulate(recording.head, texts, settings, threads);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    std::vector<SimulatedSetting> figures;
    for (spec::Simulated& each : counts)
        figures.push_back(figures_of(std::move(each)));
    compare_with_oracles(figures);
    if (options.best_of_each) figures = best_of_each_rule(figures);
    const bool names_draft = recording.head.drafts.size() > 1 && !options.draft;
    if (!options.trace.empty()) write_trace(options.trace, recording, settings.back());
    const Json json = report_json(options, recording, figures, names_draft);
    if (!options.output.empty()) replace_file(options.output, indented(json));
    if (options.json) return ResultWriter("-", Existing::refuse).write_text(indented(json));
    std::int64_t tokens = 0;
    for (const spec::TextRecord* text : texts)
        tokens += text->new_tokens;
    const auto row = [&](const SimulatedSetting& setting) { return simulation_row(setting, names_draft); };
    ResultWriter("-", Existing::refuse)
        .write_text(fmt::format("{} of {}, {} in {:.1f} ms\n\n{}", counted(std::ssize(texts), "text"),
                                counted(tokens, "new token"), counted(std::ssize(settings), "setting"), took.count(),
                                table_of(rows_of(figures, row))));
}

} // namespace

int run_simulate(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<SimulateOptions>(session, arguments, page_of("simulate"));
    if (!options) return kAllServed;
    in_agreement(session, 24 * 3600.0, [&] { // the other ranks have nothing to do
        if (session.world_rank() == 0) simulate_all(*options);
    });
    return kAllServed;
}

} // namespace entrodraft::launch
