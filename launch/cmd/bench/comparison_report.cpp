// Figures of a comparison and their forms: see comparison_report.h.
#include "launch/cmd/bench/comparison_report.h"

#include "launch/counted.h"
#include "launch/environment.h"
#include "launch/intervals.h"
#include "launch/io/results.h"

#include <algorithm>
#include <cmath>

namespace entrodraft::launch {

namespace {

// Of drafting that stops exactly before each token that falls, read off a run that drafted to the cap; 0 where there is
// nothing to read.
double oracle_speedup(const spec::Stats& longest, const spec::Costs& costs) {
    const double passes_a_token =
        longest.drafted > 0 ? static_cast<double>(longest.draft_passes) / static_cast<double>(longest.drafted) : 0;
    double seconds = 0;
    for (std::size_t accepted = 0; accepted < longest.rounds_of_accepted.size(); ++accepted) {
        const double first = accepted > 0 ? costs.first_draft_seconds() - costs.t_draft : 0;
        const double drafting = first + static_cast<double>(accepted) * costs.t_draft;
        seconds += static_cast<double>(longest.rounds_of_accepted[accepted]) *
                   (passes_a_token * drafting + costs.target_seconds(static_cast<int>(accepted) + 1));
    }
    return seconds > 0 ? static_cast<double>(longest.new_tokens) * costs.target_seconds(1) / seconds : 0;
}

constexpr int kNgram = 8;

// What is made of an outcome's counts and times.
struct Figures {
    const Outcome* outcome = nullptr;
    const Setting* setting = nullptr;
    Interval speedup;                 // over all prompts together
    double predicted = 0;             // counts times costs
    double median_speedup = 0;        // of the prompts' own: what a burst of noise on a few of them does not move
    double median_over_predicted = 0; // of each prompt's speed-up over its prediction
    double oracle = 0;                // predicted speed-up of the same drafter stopped at each first mismatch; 0: none
    int different_texts = 0;          // from plain decoding, where they must be equal
    bool must_be_plain = false;

    double share_of_oracle() const { return oracle > 0 ? predicted / oracle : 0; }
    double share_of_oracle_gain() const { return oracle > 1 ? (predicted - 1) / (oracle - 1) : 0; }
};

double repeated_share(const Outcome& outcome) {
    double sum = 0;
    for (const auto& text : outcome.texts)
        sum += spec::repeated_ngram_share(text, kNgram);
    return outcome.texts.empty() ? 0 : sum / static_cast<double>(outcome.texts.size());
}

const Outcome& plain_of(const Temperature& result, spec::Acceptance acceptance) {
    const auto is_plain = [&](const Outcome& outcome) {
        return !outcome.setting->drafts() &&
               (outcome.setting->acceptance == spec::Acceptance::gumbel) == (acceptance == spec::Acceptance::gumbel);
    };
    const auto found = std::find_if(result.outcomes.begin(), result.outcomes.end(), is_plain);
    return found != result.outcomes.end() ? *found : result.outcomes.front();
}

// A cascade's drafting costs more than passes of one model, and its oracle would stop on every level: none is shown.
double oracle_of(const Temperature& result, const Setting& setting, const spec::Costs& costs) {
    if (setting.drafter.has("model") && setting.drafter.drafts.size() > 1) return 0;
    for (const Outcome& outcome : result.outcomes)
        if (outcome.setting->kind == SettingKind::longest &&
            outcome.setting->acceptance_name() == setting.acceptance_name() &&
            describe(outcome.setting->drafter) == describe(setting.drafter))
            return oracle_speedup(outcome.stats, costs);
    return 0;
}

// Costs of a setting's passes. A drafter without a model has no measured pass; what its own passes took stands in.
std::vector<spec::Costs> costs_of(const Comparison& comparison, const Outcome& outcome) {
    const DrafterChoice& drafter = outcome.setting->drafter;
    std::vector<spec::Costs> levels = comparison.costs_of(drafter);
    const spec::Stats& stats = outcome.stats;
    if (!drafter.has("model") && stats.draft_passes > 0)
        levels.front().t_draft = stats.seconds.draft / static_cast<double>(stats.draft_passes);
    return levels;
}

// The i.i.d. model knows one drafter that makes a token a pass: of a cascade c is what a drafted token took, and
// operations are counted for a single model alone.
spec::IidFigures iid_of(const Comparison& comparison, const Outcome& outcome, double operations_ratio) {
    spec::Costs costs = costs_of(comparison, outcome).front();
    const spec::Stats& stats = outcome.stats;
    if (!stats.levels.empty() && stats.drafted > 0)
        costs.t_draft = stats.seconds.draft / static_cast<double>(stats.drafted);
    const DrafterChoice& drafter = outcome.setting->drafter;
    const bool is_first_draft = drafter.is_one_model() && drafter.drafts[0] == 0;
    return spec::iid_figures(stats, costs, is_first_draft ? operations_ratio : 0);
}

Figures figures_of(const Comparison& comparison, const Temperature& result, const Outcome& outcome) {
    Figures figures;
    figures.outcome = &outcome;
    figures.setting = outcome.setting;
    const Setting& setting = *outcome.setting;
    const Outcome& plain = plain_of(result, setting.acceptance);
    const std::vector<spec::Costs> costs = costs_of(comparison, outcome);
    PromptTimes times, plain_times;
    times.add(outcome.stats_of_prompts);
    plain_times.add(plain.stats_of_prompts);
    figures.speedup = speedup_interval(plain_times, times);
    figures.predicted = spec::predicted_speedup(outcome.stats, costs);
    std::vector<double> speedups, over_predicted;
    for (std::size_t i = 0; i < outcome.stats_of_prompts.size(); ++i) {
        const spec::Stats& stats = outcome.stats_of_prompts[i];
        speedups.push_back(plain.stats_of_prompts[i].ms_per_token() / stats.ms_per_token());
        over_predicted.push_back(speedups.back() / spec::predicted_speedup(stats, costs));
    }
    figures.median_speedup = quantiles_of(speedups).median;
    figures.median_over_predicted = quantiles_of(over_predicted).median;
    if (setting.drafts()) figures.oracle = oracle_of(result, setting, costs.front());
    const bool draft_decides_nothing = result.temperature == 0 || setting.acceptance == spec::Acceptance::gumbel;
    figures.must_be_plain = !comparison.may_differ_from_plain(setting) && draft_decides_nothing;
    for (std::size_t i = 0; figures.must_be_plain && i < plain.texts.size(); ++i)
        figures.different_texts += outcome.texts[i] == plain.texts[i] ? 0 : 1;
    return figures;
}

// With --tune only the fastest setting of each rule of a drafter and acceptance stays, plain decoding aside.
std::vector<Figures> best_of_each_rule(const std::vector<Figures>& all) {
    std::vector<Figures> best;
    for (const Figures& figures : all) {
        const auto same_rule = [&](const Figures& other) {
            return other.setting->kind == SettingKind::speculative && figures.setting->kind == other.setting->kind &&
                   describe(other.setting->drafter) == describe(figures.setting->drafter) &&
                   other.setting->acceptance_name() == figures.setting->acceptance_name() &&
                   other.setting->rules.front().name() == figures.setting->rules.front().name();
        };
        const auto found = std::find_if(best.begin(), best.end(), same_rule);
        if (found == best.end())
            best.push_back(figures);
        else if (figures.predicted > found->predicted)
            *found = figures;
    }
    return best;
}

struct Share {
    const char* name;
    double seconds;
};

// Where the decoding time of an outcome went.
std::vector<Share> shares_of(const spec::StepSeconds& seconds) {
    std::vector<Share> shares = {{"draft", seconds.draft},         {"entropy", seconds.entropy},
                                 {"broadcast", seconds.broadcast}, {"score", seconds.score},
                                 {"gather", seconds.gather},       {"verify", seconds.verify}};
    double other = seconds.total - seconds.prefill;
    for (const Share& share : shares)
        other -= share.seconds;
    shares.push_back({"other", other});
    return shares;
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

// Of alpha, over prompts. A drafted token's chance is at most 1.
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

// the i.i.d. model at this outcome's alpha and mean draft length, beside what was measured.
Json theory_json(const Comparison& comparison, const Outcome& outcome, double operations_ratio) {
    const auto alpha = outcome.stats.alpha();
    if (!alpha || outcome.stats.rounds == 0 || outcome.setting->is_lossy) return {};
    const spec::IidFigures theory = iid_of(comparison, outcome, operations_ratio);
    const Interval interval = alpha_interval(outcome);
    return {{"alpha", *alpha},
            {"interval_alpha", {interval.low, interval.high}},
            {"c", theory.c},
            {"mean_drafted", theory.mean_drafted},
            {"expected_tokens_per_pass", theory.expected_tokens},
            {"walltime_factor", theory.walltime_factor},
            {"operations_factor", theory.operations_factor},
            {"measured_operations_factor", theory.measured_operations_factor}};
}

Json to_json(const Comparison& comparison, const Figures& figures, double operations_ratio) {
    const Outcome& outcome = *figures.outcome;
    Json json = to_json(outcome.stats);
    json["setting"] = figures.setting->name();
    json["kind"] = figures.setting->kind == SettingKind::longest ? "longest, for the oracle" : "";
    json["tokens_per_second"] = 1e3 / outcome.stats.ms_per_token();
    json["ms_per_token"] = outcome.stats.ms_per_token();
    json["speedup"] = figures.speedup.mean;
    if (figures.setting->drafts()) json["interval_speedup"] = {figures.speedup.low, figures.speedup.high};
    json["predicted_speedup"] = figures.predicted;
    json["measured_over_predicted"] = figures.speedup.mean / figures.predicted;
    json["median_speedup"] = figures.median_speedup;
    json["median_measured_over_predicted"] = figures.median_over_predicted;
    json["repeated_8gram_share"] = repeated_share(outcome);
    if (figures.oracle > 0) {
        json["oracle_speedup"] = figures.oracle;
        json["share_of_oracle_speedup"] = figures.share_of_oracle();
        json["share_of_oracle_gain"] = figures.share_of_oracle_gain();
    }
    for (const spec::Stats& text : outcome.stats_of_prompts)
        json["ms_of_texts"].push_back((text.seconds.total - text.seconds.prefill) * 1e3);
    if (figures.must_be_plain) json["texts_different_from_plain"] = figures.different_texts;
    if (figures.setting->drafts()) json["iid"] = theory_json(comparison, outcome, operations_ratio);
    const double decoding = outcome.stats.seconds.total - outcome.stats.seconds.prefill;
    for (const Share& share : shares_of(outcome.stats.seconds))
        json["time_share"][share.name] = share.seconds / decoding;
    return json;
}

std::string or_dash(double value, int decimals) {
    return value > 0 ? format_number(value, decimals) : "-";
}

std::string figures_table(const std::vector<Figures>& shown) {
    std::vector<std::vector<std::string>> table = {
        {"setting", "tokens/s", "ms/token", "speed-up", "95 % interval", "predicted", "measured/pred.",
         "median speed-up", "median meas./pred.", "share of oracle", "of its gain", "accepted/drafted", "tokens/pass",
         "mean length", "repeated 8-grams"}};
    for (const Figures& figures : shown) {
        const spec::Stats& stats = figures.outcome->stats;
        table.push_back(
            {figures.setting->name(), format_number(1e3 / stats.ms_per_token(), 1),
             format_number(stats.ms_per_token(), 4), format_number(figures.speedup.mean, 3),
             figures.setting->drafts() ? format_speedup_interval(figures.speedup) : "",
             format_number(figures.predicted, 3), format_number(figures.speedup.mean / figures.predicted, 3),
             format_number(figures.median_speedup, 3), format_number(figures.median_over_predicted, 3),
             or_dash(figures.share_of_oracle(), 3), or_dash(figures.share_of_oracle_gain(), 3),
             format_number(stats.draft_acceptance_rate(), 3), format_number(stats.tokens_per_target_pass(), 2),
             format_number(stats.mean_acceptance_length(), 2), format_number(repeated_share(*figures.outcome), 3)});
    }
    return format_table(table);
}

std::string times_table(const std::vector<Figures>& shown) {
    std::vector<std::vector<std::string>> table = {{"share of time, %"}};
    for (const Share& share : shares_of({}))
        table[0].push_back(share.name);
    for (const Figures& figures : shown) {
        const spec::StepSeconds& seconds = figures.outcome->stats.seconds;
        table.push_back({figures.setting->name()});
        for (const Share& share : shares_of(seconds))
            table.back().push_back(format_number(100 * share.seconds / (seconds.total - seconds.prefill), 2));
    }
    return format_table(table);
}

std::string theory_table(const Comparison& comparison, const std::vector<Figures>& shown, double operations_ratio) {
    std::vector<std::vector<std::string>> table = {{"i.i.d. model", "alpha", "95 % interval", "c", "mean drafted",
                                                    "tokens/pass", "measured", "walltime factor", "measured",
                                                    "operations factor", "measured"}};
    for (const Figures& figures : shown) {
        const spec::Stats& stats = figures.outcome->stats;
        if (!figures.setting->drafts() || !stats.alpha() || figures.setting->is_lossy) continue;
        const spec::IidFigures theory = iid_of(comparison, *figures.outcome, operations_ratio);
        table.push_back({figures.setting->name(), format_number(*stats.alpha(), 3),
                         format_interval(alpha_interval(*figures.outcome), 3), format_number(theory.c, 3),
                         format_number(theory.mean_drafted, 2), format_number(theory.expected_tokens, 2),
                         format_number(stats.tokens_per_target_pass(), 2), format_number(theory.walltime_factor, 3),
                         format_number(figures.speedup.mean, 3), or_dash(theory.operations_factor, 2),
                         or_dash(theory.measured_operations_factor, 2)});
    }
    return table.size() > 1 ? format_table(table) : "";
}

std::string levels_table(const std::vector<Figures>& shown) {
    std::vector<std::vector<std::string>> table = {
        {"level of a cascade", "rounds", "drafted", "accepted/drafted", "tokens/pass", "draft passes"}};
    for (const Figures& figures : shown)
        for (std::size_t level = 0; level < figures.outcome->stats.levels.size(); ++level) {
            const spec::Stats& stats = figures.outcome->stats.levels[level];
            table.push_back({figures.setting->name() + ", level " + std::to_string(level + 2),
                             std::to_string(stats.rounds), std::to_string(stats.drafted),
                             format_number(stats.draft_acceptance_rate(), 3),
                             format_number(stats.tokens_per_target_pass(), 2), std::to_string(stats.draft_passes)});
        }
    return table.size() > 1 ? "\n" + format_table(table) : "";
}

std::string to_text(const Comparison& comparison, const Temperature& result, const std::vector<Figures>& all,
                    const ComparisonFacts& facts) {
    std::vector<Figures> shown;
    for (const Figures& figures : facts.best_of_each_rule ? best_of_each_rule(all) : all)
        if (figures.setting->kind != SettingKind::longest) shown.push_back(figures);
    std::string text = "Temperature " + format_number(result.temperature, 2);
    const bool is_any_lossy =
        std::any_of(all.begin(), all.end(), [](const Figures& figures) { return figures.setting->is_lossy; });
    if (std::any_of(all.begin(), all.end(),
                    [](const Figures& figures) { return figures.must_be_plain && figures.setting->drafts(); }))
        text += result.temperature > 0 ? ", every gumbel text equal to plain sampling with the same seed"
                : is_any_lossy         ? ", every text that is not lossy equal to plain decoding"
                                       : ", every text equal to plain decoding";
    for (const Figures& figures : all)
        if (figures.setting->kind == SettingKind::longest && figures.oracle > 0)
            text += "\noracle of " + describe(figures.setting->drafter) + ", " + figures.setting->acceptance_name() +
                    ": " + format_number(figures.oracle, 3);
    return text + "\n" + figures_table(shown) + "\n" + times_table(shown) + "\n" +
           theory_table(comparison, shown, facts.operations_ratio) + levels_table(shown) + "\n";
}

std::string head_of(const CompareOptions& options, const Comparison& comparison, const ComparisonFacts& facts) {
    std::string text = environment_line(facts.environment) + "\n" +
                       counted(static_cast<std::int64_t>(comparison.prompts.size()), "prompt") + ", at most " +
                       counted(options.max_new_tokens, "new token") + " each";
    const auto ms = [](double seconds) { return format_number(seconds * 1e3, 4); };
    for (std::size_t level = 0; level < facts.costs.size(); ++level) {
        const spec::Costs& costs = facts.costs[level];
        text += level == 0 ? "; " : "; level " + std::to_string(level + 1) + ": ";
        text += "t_draft " + ms(costs.t_draft) + " ms (first of a round " + ms(costs.first_draft_seconds()) +
                "), t_target(1) " + ms(costs.target_seconds(1)) + " ms";
        const int rows = std::min(5, static_cast<int>(costs.t_target.size())); // wider passes were not timed
        if (rows > 1) text += ", t_target(" + std::to_string(rows) + ") " + ms(costs.target_seconds(rows)) + " ms";
    }
    if (options.synthetic_acceptance)
        text += "; drafted tokens are accepted with probability " + format_number(*options.synthetic_acceptance, 3) +
                ", whatever they are: texts mean nothing";
    return text + "\n\n";
}

} // namespace

ComparisonReport report_of(Comparison& comparison, const CompareOptions& options, const ComparisonFacts& facts) {
    ComparisonReport report;
    report.json["environment"] = facts.environment;
    report.json["machine"] = to_json(facts.machine);
    report.json["prompts"] = comparison.prompts.size();
    report.json["max_new_tokens"] = options.max_new_tokens;
    if (options.synthetic_acceptance) report.json["synthetic_acceptance"] = *options.synthetic_acceptance;
    for (const spec::Costs& costs : facts.costs)
        report.json["costs"].push_back(Json::parse(spec::to_json(costs)));
    report.text = head_of(options, comparison, facts);
    for (const Temperature& result : comparison.results) {
        std::vector<Figures> all;
        Json settings = Json::array();
        for (const Outcome& outcome : result.outcomes) {
            all.push_back(figures_of(comparison, result, outcome));
            settings.push_back(to_json(comparison, all.back(), facts.operations_ratio));
            if (all.back().different_texts == 0) continue;
            report.different_texts += all.back().different_texts;
            report.complaints.push_back(outcome.setting->name() + ": " + std::to_string(all.back().different_texts) +
                                        " of " + std::to_string(outcome.texts.size()) +
                                        " texts differ from plain decoding");
        }
        report.json["temperatures"].push_back({{"temperature", result.temperature}, {"settings", settings}});
        report.text += to_text(comparison, result, all, facts);
    }
    for (const DraftOverhead& overhead : facts.overheads) {
        report.json["entropy_overhead"].push_back({{"rule", overhead.rule},
                                                   {"percent_of_a_draft_step", overhead.percent},
                                                   {"draft_step_ms", overhead.step_seconds * 1e3},
                                                   {"pairs", overhead.pairs}});
        report.text += "entropy and stop decision of " + overhead.rule + " add " + format_number(overhead.percent, 2) +
                       " % to a draft step of " + format_number(overhead.step_seconds * 1e3, 4) + " ms (median of " +
                       std::to_string(overhead.pairs) + " interleaved pairs)\n";
    }
    report.text += facts.machine.warning_line();
    return report;
}

} // namespace entrodraft::launch
