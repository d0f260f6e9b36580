// entrodraft simulate: replays any stop rules over recordings, without models. Counts are those of real runs; with
// --method imputed they are approximate. Times are counts multiplied by costs: the recording's costs, or other costs
// ("what if").
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cli/options.h"
#include "launch/io/results.h"
#include "launch/io/rule_figures.h"
#include "launch/load/drafters.h"
#include "launch/load/launch_check.h"
#include "launch/start/failure.h"
#include "launch/start/replaced_file.h"
#include "launch/start/statistics.h"
#include "spec/replay/simulate.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <stdexcept>
#include <thread>
#include <utility>

namespace entrodraft::launch {

namespace {

// Refuses, before anything is read, files that would be read twice or could not be written.
void check_files(const SimulateOptions& options) {
    for (std::size_t i = 0; i < options.recordings.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
            if (are_one_file(options.recordings[i], options.recordings[j]))
                throw BadOption(
                    fmt::format("--recording {} is given twice: its texts would count twice", options.recordings[i]));
    if (!options.output.empty()) require_replaceable(options.output);
}

// Returns the texts of all recordings as one recording with the first file's costs.
spec::Recording read_all(const std::vector<std::string>& files) {
    spec::Recording all;
    for (const std::string& file : files) {
        spec::Recording one = spec::read_recording(file);
        if (all.whole_bytes == 0) {
            all = std::move(one);
            continue;
        }
        spec::RecordingHead same = one.head; // sampling and the ends of texts may differ
        same.sampling = all.head.sampling;
        same.noisy = all.head.noisy;
        same.requests = all.head.requests;
        if (const auto difference = spec::first_difference(all.head, same))
            throw std::runtime_error(fmt::format("{0} and {1} cannot be one: {2} of {0} is {3}, of {1} {4}; simulate "
                                                 "them apart",
                                                 files.front(), file, difference->field, difference->a, difference->b));
        std::move(one.lines.begin(), one.lines.end(), std::back_inserter(all.lines));
    }
    if (all.texts().empty()) throw std::runtime_error(files.front() + ": holds no text");
    return all;
}

// Returns the costs of a draft. Warns if the costs that it uses were measured on a disturbed machine.
spec::Costs costs_of(const SimulateOptions& options, const spec::Costs& recorded) {
    const CostsInstead& instead = options.costs;
    spec::Costs costs = instead.file.empty() ? recorded : spec::read_costs(instead.file);
    if (instead.t_draft_ms && !instead.t_target_ms.empty())
        costs.disturbance.clear();
    else
        say_if_disturbed(costs, instead.file.empty() ? options.recordings.front() : instead.file);
    constexpr double kSecondsPerMs = 1e-3;
    if (instead.t_draft_ms) {
        costs.t_draft = *instead.t_draft_ms * kSecondsPerMs;
        costs.t_first_draft.reset();
        costs.t_draft_row = 0; // that time belongs to another draft
    }
    if (instead.t_draft_row_ms) costs.t_draft_row = *instead.t_draft_row_ms * kSecondsPerMs;
    if (instead.t_first_draft_ms) costs.t_first_draft = *instead.t_first_draft_ms * kSecondsPerMs;
    if (instead.t_round_ms) costs.t_round = *instead.t_round_ms * kSecondsPerMs;
    if (instead.t_target_ms.empty()) return costs;
    costs.t_target.clear();
    for (const double ms : instead.t_target_ms)
        costs.t_target.push_back(ms * kSecondsPerMs);
    if (!instead.t_round_ms && instead.file.empty()) costs.t_round.reset(); // that time belongs to another machine
    return costs;
}

// Wider passes would cost only as much as the widest timed pass. --t-target allows that: its last time goes on.
void require_rows(const spec::Costs& costs, const spec::TreeOptions& tree, int max_tokens) {
    if (static_cast<int>(costs.t_target.size()) <= max_tokens)
        throw BadOption(fmt::format("--tree {} may take passes of {} rows, and costs are of up to {}: give --costs of "
                                    "bench latency --rows {}, or fewer --max-draft-tokens",
                                    tree.name, max_tokens + 1, costs.t_target.size(), max_tokens + 1));
}

std::vector<spec::ReplaySetting> settings_of(const SimulateOptions& options, const spec::RecordingHead& head) {
    const int n_drafts = static_cast<int>(head.drafts.size());
    if (options.draft && *options.draft > n_drafts)
        throw BadOption(fmt::format("--draft {}: the recording has {}", *options.draft, counted(n_drafts, "draft")));
    if (!options.trace.empty() && !options.draft && n_drafts > 1)
        throw BadOption(fmt::format(
            "--trace shows the rounds of one draft; the recording has {}: name one with --draft", n_drafts));
    spec::StopRuleOptions any;
    any.max_tokens = options.max_draft_tokens.value_or(std::min(any.max_tokens, head.max_draft_tokens));
    int widest = any.max_tokens; // cap of the chains: the oracle bounds exactly these
    const int imputed_from =
        options.method == ReplayMethod::imputed ? options.imputed_from.value_or(head.max_draft_tokens) : 0;
    std::vector<spec::ReplaySetting> settings;
    for (std::size_t draft = 0; draft < head.drafts.size(); ++draft) {
        if (options.draft && static_cast<std::size_t>(*options.draft) != draft + 1) continue;
        const spec::Costs costs = costs_of(options, head.costs.at(draft));
        settings.push_back({spec::ReplayKind::plain, any, draft, costs});
        for (spec::StopRuleOptions rule : options.rules) {
            if (!options.max_draft_tokens)
                rule.max_tokens =
                    rule.is_persistent() ? head.max_draft_tokens : std::max(any.max_tokens, rule.min_tokens);
            widest = std::max(widest, rule.max_tokens);
            settings.push_back({spec::ReplayKind::rule, rule, draft, costs, options.ahead.value_or(0)});
        }
        for (const spec::TreeOptions& tree : options.trees) {
            const spec::StopRuleOptions rule =
                spec::tree_rule(tree, options.max_draft_tokens.value_or(spec::TreeOptions::kDefaultTokens));
            if (options.costs.t_target_ms.empty()) require_rows(costs, tree, rule.max_tokens);
            settings.push_back({spec::ReplayKind::rule, rule, draft, costs, 0, tree});
        }
        spec::StopRuleOptions of_oracle = any;
        of_oracle.max_tokens = widest;
        if (options.oracle) settings.push_back({spec::ReplayKind::oracle, of_oracle, draft, costs});
    }
    for (spec::ReplaySetting& setting : settings)
        setting.imputed_from = imputed_from;
    if (options.costs.file.empty() || !options.costs.t_target_ms.empty()) return settings;
    for (const spec::ReplaySetting& setting : settings)
        if (setting.kind != spec::ReplayKind::plain)
            require_wide_enough(setting.costs, options.costs.file, setting.rule.max_tokens);
    return settings;
}

// Writes the rounds of the last setting, which is the only one next to plain decoding, as generate --trace does.
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
            trace.draft_seconds = setting.costs.draft_seconds(round.draft->passes, round.draft->further_rows);
            trace.target_seconds = setting.costs.target_seconds(static_cast<int>(round.draft->tokens.size()) + 1) +
                                   setting.costs.t_round.value_or(0);
            writer.write_text(trace_line(request, trace) + "\n");
        });
    writer.keep();
}

// ---- figures ----

struct SimulatedSetting {
    spec::Simulated counts;
    Interval ms_per_token;
    double speedup = 0;        // ratio to plain decoding
    double oracle_speedup = 0; // speed-up of the draft's oracle; 0: not asked for, or no bound on this setting

    const spec::ReplaySetting& setting() const { return counts.setting; }
};

// Returns the draft and the rule. --best shows one setting for each such pair.
std::pair<std::size_t, std::string> kind_of(const SimulatedSetting& simulated) {
    const spec::ReplaySetting& setting = simulated.setting();
    return {setting.draft, setting.tree                               ? "tree"
                           : setting.kind == spec::ReplayKind::rule   ? setting.rule.name()
                           : setting.kind == spec::ReplayKind::oracle ? "oracle"
                                                                      : "plain"};
}

SimulatedSetting figures_of(spec::Simulated counts) {
    SimulatedSetting figures;
    std::vector<double> ms, tokens;
    for (const spec::SimulatedText& text : counts.texts) {
        ms.push_back(text.seconds * 1e3);
        tokens.push_back(static_cast<double>(text.new_tokens));
    }
    figures.ms_per_token = ratio_interval(ms, tokens);
    const spec::Costs& costs = counts.setting.costs;
    const double seconds = spec::predicted_seconds(counts.stats, costs);
    if (seconds > 0) figures.speedup = spec::predicted_plain_seconds(counts.stats.new_tokens, costs) / seconds;
    figures.counts = std::move(counts);
    return figures;
}

// Fills in the speed-up of each draft's oracle, if that is among the settings. The oracle bounds chains of a draft that
// waits for the verification (the options refuse it with drafting ahead), and no trees.
void compare_with_oracles(std::vector<SimulatedSetting>& settings) {
    std::map<std::size_t, double> oracles;
    for (const SimulatedSetting& each : settings)
        if (each.setting().kind == spec::ReplayKind::oracle) oracles[each.setting().draft] = each.speedup;
    for (SimulatedSetting& each : settings)
        if (const auto found = oracles.find(each.setting().draft); found != oracles.end() && !each.setting().tree)
            each.oracle_speedup = found->second;
}

// With several drafts, each has its own "draft 2, plain", because the target's costs are measured with each draft.
Columns simulation_row(const SimulatedSetting& simulated, bool names_draft) {
    const spec::ReplaySetting& setting = simulated.setting();
    const spec::Stats& stats = simulated.counts.stats;
    const double rounds = static_cast<double>(std::max<std::int64_t>(stats.rounds, 1));
    const Interval& ms = simulated.ms_per_token;
    const bool is_rule = setting.kind == spec::ReplayKind::rule;
    const std::string kind = kind_of(simulated).second;
    const auto of_rule = [&](const Json& value) { return is_rule ? value : Column::unknown(); };
    const auto [oracle, share_of_oracle, share_of_gain] = oracle_columns(simulated.speedup, simulated.oracle_speedup);
    return {{"setting", "setting",
             (names_draft ? fmt::format("draft {}, ", setting.draft + 1) : "") + (setting.tree
                                                                                      ? "tree " + setting.tree->name
                                                                                  : is_rule ? describe(setting.rule)
                                                                                            : kind)},
            {"rule", "", is_rule ? setting.rule.name() : kind},
            {"tree", "", setting.tree ? Json(setting.tree->name) : Column::unknown()},
            {"parameters", "", of_rule(parameters_json(setting.rule))},
            {"max_draft_tokens", "", of_rule(setting.rule.max_tokens)},
            {"min_draft_tokens", "", of_rule(setting.rule.min_tokens)},
            {"drop_stop_token", "", is_rule && setting.rule.drop_stop_token ? Json(true) : Column::unknown()},
            {"draft", "", setting.draft},
            {"texts", "", simulated.counts.texts.size()},
            {"ms_per_token", "ms/token", ms.mean, 4},
            {"interval_ms_per_token", "95 % interval", Json{ms.low, ms.high}, format_interval(ms, 4)},
            {"speedup", "speed-up", simulated.speedup, 3},
            oracle,
            share_of_oracle,
            share_of_gain,
            {"", "tokens/pass", stats.tokens_per_target_pass(), 2},
            {"", "drafted/round", static_cast<double>(stats.drafted) / rounds, 2},
            {"", "accepted/drafted", stats.draft_acceptance_rate(), 3},
            {"", "target passes", stats.target_passes},
            {"", "draft passes", stats.draft_passes},
            {"passes_of_rows", "", stats.passes_of_rows},
            {"rounds_of_accepted", "", stats.rounds_of_accepted}};
}

// "costs" has the costs of the draft, if one was simulated; else a list with one entry for each draft, in their order.
Json report_json(const SimulateOptions& options, std::size_t n_texts, const std::vector<SimulatedSetting>& settings,
                 const std::vector<Columns>& rows) {
    Json json = {{"command", "simulate"}, {"recordings", options.recordings}, {"texts", n_texts}};
    if (const int from = settings.front().setting().imputed_from; from > 0) json["imputed_from"] = from;
    Json costs = Json::array();
    for (const SimulatedSetting& each : settings)
        if (each.setting().kind == spec::ReplayKind::plain)
            costs.push_back(Json::parse(spec::to_json(each.setting().costs)));
    json["costs"] = costs.size() == 1 ? costs.front() : costs;
    if (options.ahead) json["draft_ahead"] = *options.ahead;
    json["settings"] = json_of(rows);
    for (std::size_t i = 0; i < settings.size(); ++i)
        json["settings"][i].update(counts_json(settings[i].counts.stats));
    return json;
}

std::string imputed_text(const spec::ReplaySetting& setting) {
    if (setting.imputed_from == 0) return {};
    return fmt::format("; an approximation: one run's entropies, of drafts of {}, stand for any run's",
                       counted(setting.imputed_from, "token"));
}

ExitCode simulate_all(const SimulateOptions& options) {
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
        figures.push_back(launch::figures_of(std::move(each)));
    compare_with_oracles(figures);
    if (options.best_of_each)
        figures = best_of_each(figures, kind_of, [](const SimulatedSetting& each) { return each.speedup; });
    const bool names_draft = recording.head.drafts.size() > 1 && !options.draft;
    const std::vector<Columns> rows =
        rows_of(figures, [&](const SimulatedSetting& each) { return simulation_row(each, names_draft); });
    if (!options.trace.empty()) write_trace(options.trace, recording, settings.back());
    const Json json = report_json(options, texts.size(), figures, rows);
    if (!options.output.empty()) replace_file(options.output, indented(json));
    std::int64_t tokens = 0;
    for (const spec::TextRecord* text : texts)
        tokens += text->new_tokens;
    const std::string text = fmt::format("{} of {}, {} in {:.1f} ms{}\n\n{}", counted(std::ssize(texts), "text"),
                                         counted(tokens, "new token"), counted(std::ssize(settings), "setting"),
                                         took.count(), imputed_text(settings.front()), table_of(rows));
    ResultWriter("-", Existing::refuse).write_text(options.json ? indented(json) : text);
    return kAllServed;
}

} // namespace

int run_simulate(dist::Session& session, const Arguments& arguments) {
    return run_on_first_rank(session, arguments, page_of("simulate"), simulate_all);
}

} // namespace entrodraft::launch
