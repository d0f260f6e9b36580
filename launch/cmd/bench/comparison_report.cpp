// Figures of a comparison as tables and JSON: see comparison.h.
#include "launch/cmd/bench/comparison.h"

#include "launch/io/results.h"
#include "launch/io/rule_figures.h"
#include "launch/load/environment.h"
#include "launch/start/statistics.h"
#include "spec/replay/chain_bound.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

// Returns the speed-up of the best chains of up to `most` tokens. `longest`, a run that drafted to its cap, shows where
// the draft agrees with the text.
double oracle_speedup(const Outcome& longest, int most, spec::Costs costs) {
    costs.t_round.reset(); // predictions do not include it
    spec::Stats best;
    for (const std::vector<bool>& agreements : longest.agreements) {
        std::vector<spec::PlaceChain> places(agreements.size());
        for (std::size_t place = agreements.size(), run = 0; place-- > 0;) {
            run = agreements[place] ? run + 1 : 0;
            places[place] = {most, std::min(most, static_cast<int>(run))};
        }
        const std::vector<int> drafts = spec::cheapest_drafts(places, costs);
        for (std::size_t place = 0; place < places.size();) {
            const int accepted = std::min(drafts[place], places[place].accepted);
            best.count_round(drafts[place], accepted, drafts[place]);
            place += static_cast<std::size_t>(accepted) + 1;
        }
    }
    best.new_tokens = longest.stats.new_tokens;
    return spec::predicted_speedup(best, std::span(&costs, 1));
}

constexpr int kNgram = 8;

// Figures that follow from an outcome's counts and times.
struct Figures {
    const Outcome* outcome = nullptr;
    PromptTimes times;
    Interval speedup;                   // over all prompts together
    double predicted = 0;               // counts times costs
    double median_speedup = 0;          // median over prompts: a burst of noise on a few of them does not move it
    double median_over_predicted = 0;   // median over prompts of speed-up / prediction
    double oracle = 0;                  // predicted speed-up of the drafter's best chains; 0: there is no such bound
    std::optional<int> different_texts; // from plain decoding, where they must be equal
    Columns row, phases;                // rows of the tables
    std::optional<Columns> iid;
};

double repeated_share(const Outcome& outcome) {
    double sum = 0;
    for (const auto& text : outcome.texts)
        sum += spec::repeated_ngram_share(text, kNgram);
    return outcome.texts.empty() ? 0 : sum / static_cast<double>(outcome.texts.size());
}

// Returns the oracle's speed-up if the drafter has run to the cap; else 0.
double oracle_of(const ComparisonTask& task, const Temperature& result, const Setting& setting,
                 const spec::Costs& costs) {
    int most = task.options.max_draft_tokens;
    for (const Outcome& outcome : result.outcomes)
        if (outcome.setting.drafts() && !outcome.setting.drafter.tree)
            for (const spec::StopRuleOptions& rule : outcome.setting.rules)
                most = std::max(most, rule.max_tokens);
    for (const Outcome& outcome : result.outcomes)
        if (outcome.setting.kind == SettingKind::longest && outcome.setting.acceptance == setting.acceptance &&
            describe(outcome.setting.drafter) == describe(setting.drafter))
            return oracle_speedup(outcome, most, costs);
    return 0;
}

// Returns the costs of a setting's passes. A drafter without a model has no measured pass; its own passes' time stands
// in.
std::vector<spec::Costs> costs_of(const ComparisonTask& task, const Outcome& outcome) {
    const DrafterChoice& drafter = outcome.setting.drafter;
    std::vector<spec::Costs> levels = costs_of(task, drafter);
    const spec::Stats& stats = outcome.stats;
    if (!drafter.has("model") && stats.draft_passes > 0)
        levels.front().t_draft = stats.seconds.draft / static_cast<double>(stats.draft_passes);
    return levels;
}

// Says how an outcome's decoding time was spent.
Columns phases_row(const std::string& name, const spec::StepSeconds& seconds) {
    const double decoding = seconds.total - seconds.prefill;
    Columns row = {{"", "share of time, %", name}};
    for (const auto& [phase, taken] : phase_seconds(seconds, decoding))
        row.emplace_back(phase, phase, taken / decoding, 2, 100);
    return row;
}

Json to_json(const spec::Stats& stats) {
    Json json = counts_json(stats);
    json["tokens_per_target_pass"] = stats.tokens_per_target_pass();
    json["passes_of_rows"] = stats.passes_of_rows;
    json["rounds_of_accepted"] = stats.rounds_of_accepted;
    for (const spec::Acceptances& at : stats.by_position)
        json["by_position"].push_back({{"verified", at.verified}, {"accepted", at.accepted}});
    for (const spec::Acceptances& bin : stats.by_entropy)
        json["by_entropy_bin"].push_back({{"verified", bin.verified}, {"accepted", bin.accepted}});
    for (const spec::Stats& level : stats.levels)
        json["levels"].push_back(to_json(level));
    return json;
}

// Returns the interval of alpha over prompts. A drafted token's chance is at most 1.
Interval alpha_interval(const Outcome& outcome) {
    std::vector<double> overlaps, counts;
    for (const spec::Stats& text : outcome.stats_of_prompts) {
        overlaps.push_back(text.overlap);
        counts.push_back(static_cast<double>(text.overlaps));
    }
    Interval interval = ratio_interval(overlaps, counts);
    interval.high = std::min(interval.high, 1.0);
    return interval;
}

// Compares the i.i.d. model, at this outcome's alpha and mean draft length, with the measurement. Returns nothing if
// alpha is not known or is not the model's.
//
// The model has one drafter that makes a token a pass. For a cascade, c is the time of a drafted token. Operations are
// counted only for a single model.
std::optional<Columns> iid_row(spec::Costs costs, const Figures& figures, double operations_ratio) {
    const spec::Stats& stats = figures.outcome->stats;
    const DrafterChoice& drafter = figures.outcome->setting.drafter;
    if (!figures.outcome->setting.drafts() || !stats.alpha() || stats.rounds == 0 ||
        figures.outcome->setting.acceptance.is_lossy())
        return std::nullopt;
    if (!stats.levels.empty() && stats.drafted > 0)
        costs.t_draft = stats.seconds.draft / static_cast<double>(stats.drafted);
    const bool is_first_draft = drafter.is_one_model() && drafter.drafts[0] == 0;
    const spec::IidFigures iid = spec::iid_figures(stats, costs, is_first_draft ? operations_ratio : 0);
    const Interval interval = alpha_interval(*figures.outcome);
    return Columns{{"", "i.i.d. model", figures.outcome->setting.name()},
                   {"alpha", "alpha", *stats.alpha(), 3},
                   {"interval_alpha", "95 % interval", Json{interval.low, interval.high}, format_interval(interval, 3)},
                   {"c", "c", iid.c, 3},
                   {"mean_drafted", "mean drafted", iid.mean_drafted, 2},
                   {"expected_tokens_per_pass", "tokens/pass", iid.expected_tokens, 2},
                   {"", "measured", stats.tokens_per_target_pass(), 2},
                   {"walltime_factor", "walltime factor", iid.walltime_factor, 3},
                   {"", "measured", figures.speedup.mean, 3},
                   {"operations_factor", "operations factor", iid.operations_factor, or_dash(iid.operations_factor, 2)},
                   {"measured_operations_factor", "measured", iid.measured_operations_factor,
                    or_dash(iid.measured_operations_factor, 2)}};
}

Columns figures_row(const Figures& figures) {
    const spec::Stats& stats = figures.outcome->stats;
    const Setting& setting = figures.outcome->setting;
    const Interval& speedup = figures.speedup;
    const auto [oracle, share_of_oracle, share_of_gain] = oracle_columns(figures.predicted, figures.oracle);
    return {{"setting", "setting", setting.name()},
            {"kind", "", setting.kind == SettingKind::longest ? "longest, for the oracle" : ""},
            {"tokens_per_second", "tokens/s", 1e3 / stats.ms_per_token(), 1},
            {"ms_per_token", "ms/token", stats.ms_per_token(), 4},
            {"speedup", "speed-up", speedup.mean, 3},
            {"interval_speedup", "95 % interval",
             setting.drafts() ? Json{speedup.low, speedup.high} : Column::unknown(),
             setting.drafts() ? format_speedup_interval(speedup) : ""},
            {"predicted_speedup", "predicted", figures.predicted, 3},
            {"measured_over_predicted", "measured/pred.", speedup.mean / figures.predicted, 3},
            {"median_speedup", "median speed-up", figures.median_speedup, 3},
            {"median_measured_over_predicted", "median meas./pred.", figures.median_over_predicted, 3},
            oracle,
            share_of_oracle,
            share_of_gain,
            {"", "accepted/drafted", stats.draft_acceptance_rate(), 3}, // the counts have it exactly
            {"tokens_per_target_pass", "tokens/pass", stats.tokens_per_target_pass(), 2},
            {"", "mean length", stats.mean_acceptance_length(), 2},
            {"repeated_8gram_share", "repeated 8-grams", repeated_share(*figures.outcome), 3}};
}

Columns level_row(const std::string& name, const spec::Stats& stats) {
    return {{"", "level of a cascade", name},
            {"", "rounds", stats.rounds},
            {"", "drafted", stats.drafted},
            {"", "accepted/drafted", stats.draft_acceptance_rate(), 3},
            {"", "tokens/pass", stats.tokens_per_target_pass(), 2},
            {"", "draft passes", stats.draft_passes}};
}

Figures figures_of(const ComparisonTask& task, const Temperature& result, const Outcome& outcome,
                   double operations_ratio) {
    const Setting& setting = outcome.setting;
    const Outcome& plain = result.plain_of(setting);
    const std::vector<spec::Costs> costs = costs_of(task, outcome);
    Figures figures;
    figures.outcome = &outcome;
    PromptTimes plain_times;
    plain_times.add(plain.stats_of_prompts);
    figures.times.add(outcome.stats_of_prompts);
    figures.speedup = speedup_interval(plain_times, figures.times);
    figures.predicted = spec::predicted_speedup(outcome.stats, costs);
    std::vector<double> speedups, over_predicted;
    for (std::size_t i = 0; i < outcome.stats_of_prompts.size(); ++i) {
        const spec::Stats& stats = outcome.stats_of_prompts[i];
        speedups.push_back(plain.stats_of_prompts[i].ms_per_token() / stats.ms_per_token());
        over_predicted.push_back(speedups.back() / spec::predicted_speedup(stats, costs));
    }
    figures.median_speedup = quantiles_of(speedups).median;
    figures.median_over_predicted = quantiles_of(over_predicted).median;
    if (setting.drafts()) figures.oracle = oracle_of(task, result, setting, costs.front());
    figures.different_texts = different_texts(task.options, result, outcome);
    figures.row = figures_row(figures);
    figures.phases = phases_row(setting.name(), outcome.stats.seconds);
    figures.iid = iid_row(costs.front(), figures, operations_ratio);
    return figures;
}

Json to_json(const Figures& figures) {
    Json json = to_json(figures.outcome->stats);
    json.update(json_of(figures.row));
    json["ms_of_texts"] = figures.times.ms;
    if (figures.different_texts) json["texts_different_from_plain"] = *figures.different_texts;
    if (figures.outcome->setting.drafts()) json["iid"] = figures.iid ? json_of(*figures.iid) : Json();
    json["time_share"] = json_of(figures.phases);
    return json;
}

std::string tables_of(const std::vector<Figures>& shown) {
    std::vector<Columns> settings, phases, iid, levels;
    for (const Figures& figures : shown) {
        settings.push_back(figures.row);
        phases.push_back(figures.phases);
        if (figures.iid) iid.push_back(*figures.iid);
        const std::vector<spec::Stats>& drafting = figures.outcome->stats.levels;
        for (std::size_t level = 0; level < drafting.size(); ++level)
            levels.push_back(
                level_row(fmt::format("{}, level {}", figures.outcome->setting.name(), level + 2), drafting[level]));
    }
    return table_of(settings) + "\n" + table_of(phases) + "\n" + table_of(iid) + (levels.empty() ? "" : "\n") +
           table_of(levels);
}

// Returns the group of a setting: the rule of a drafter and acceptance. --tune shows the fastest setting of each group.
std::string group_of(const Figures& figures) {
    const Setting& setting = figures.outcome->setting;
    if (!setting.drafts()) return setting.name();
    return fmt::format("{}, {}, {}", describe(setting.drafter), describe(setting.acceptance),
                       setting.rules.front().name());
}

std::string to_text(double temperature, const std::vector<Figures>& all, bool best_alone) {
    std::vector<Figures> shown = all;
    std::erase_if(shown, [](const Figures& each) { return each.outcome->setting.kind == SettingKind::longest; });
    if (best_alone) shown = best_of_each(shown, group_of, [](const Figures& each) { return each.predicted; });
    std::string text = fmt::format("Temperature {:.2f}", temperature);
    const auto is_lossy = [](const Figures& figures) { return figures.outcome->setting.acceptance.is_lossy(); };
    const auto is_compared = [](const Figures& figures) {
        return figures.different_texts && figures.outcome->setting.drafts();
    };
    if (std::ranges::any_of(all, is_compared))
        text += temperature > 0                      ? ", every gumbel text equal to plain sampling with the same seed"
                : std::ranges::any_of(all, is_lossy) ? ", every text that is not lossy equal to plain decoding"
                                                     : ", every text equal to plain decoding";
    for (const Figures& figures : all)
        if (figures.outcome->setting.kind == SettingKind::longest && figures.oracle > 0)
            text += fmt::format("\noracle of {}, {}: {:.3f}", describe(figures.outcome->setting.drafter),
                                describe(figures.outcome->setting.acceptance), figures.oracle);
    return text + "\n" + tables_of(shown) + "\n";
}

std::string head_of(const ComparisonTask& task, const Json& environment) {
    std::string text = fmt::format("{}\n{}, at most {} each", environment_line(environment),
                                   counted(std::ssize(task.prompts), "prompt"),
                                   counted(task.options.requests.max_new_tokens, "new token"));
    for (std::size_t level = 0; level < task.costs.size(); ++level) {
        const spec::Costs& costs = task.costs[level];
        text += level == 0 ? "; " : fmt::format("; level {}: ", level + 1);
        text += fmt::format("t_draft {:.4f} ms (first of a round {:.4f}), t_target(1) {:.4f} ms", 1e3 * costs.t_draft,
                            1e3 * costs.first_draft_seconds(), 1e3 * costs.target_seconds(1));
        const int rows = std::min(5, static_cast<int>(costs.t_target.size())); // wider passes were not timed
        if (rows > 1) text += fmt::format(", t_target({}) {:.4f} ms", rows, 1e3 * costs.target_seconds(rows));
    }
    if (task.options.synthetic_acceptance)
        text +=
            fmt::format("; drafted tokens are accepted with probability {:.3f}, whatever they are: texts mean nothing",
                        *task.options.synthetic_acceptance);
    return text + "\n\n";
}

} // namespace

ComparisonReport report_of(const ComparisonTask& task, const std::vector<Temperature>& results,
                           const ComparisonFacts& facts) {
    ComparisonReport report;
    report.json["environment"] = facts.environment;
    report.json["machine"] = to_json(facts.machine);
    report.json["prompts"] = task.prompts.size();
    report.json["max_new_tokens"] = task.options.requests.max_new_tokens;
    if (task.options.synthetic_acceptance) report.json["synthetic_acceptance"] = *task.options.synthetic_acceptance;
    for (const spec::Costs& costs : task.costs)
        report.json["costs"].push_back(Json::parse(spec::to_json(costs)));
    report.text = head_of(task, facts.environment);
    for (const Temperature& result : results) {
        std::vector<Figures> all;
        Json settings = Json::array();
        for (const Outcome& outcome : result.outcomes) {
            all.push_back(figures_of(task, result, outcome, facts.operations_ratio));
            settings.push_back(to_json(all.back()));
            if (const int different = all.back().different_texts.value_or(0); different > 0)
                report.complaints.push_back(fmt::format("{}: {} of {} texts differ from plain decoding",
                                                        outcome.setting.name(), different, outcome.texts.size()));
        }
        report.json["temperatures"].push_back({{"temperature", result.temperature}, {"settings", settings}});
        report.text += to_text(result.temperature, all, task.options.tune);
    }
    for (const DraftOverhead& overhead : facts.overheads) {
        report.json["entropy_overhead"].push_back({{"rule", overhead.rule},
                                                   {"percent_of_a_draft_step", overhead.percent},
                                                   {"draft_step_ms", overhead.step_seconds * 1e3},
                                                   {"pairs", overhead.pairs}});
        report.text +=
            fmt::format("entropy and stop decision of {} add {:.2f} % to a draft step of {:.4f} ms (median of "
                        "{} interleaved pairs)\n",
                        overhead.rule, overhead.percent, overhead.step_seconds * 1e3, overhead.pairs);
    }
    report.text += facts.machine.warning_line();
    return report;
}

} // namespace entrodraft::launch
