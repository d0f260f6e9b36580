// Judging tuned rules by real runs: see tuning.h.
#include "launch/cmd/tuning.h"

#include "launch/cli/options.h"
#include "launch/io/results.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

// How much longer than `fastest` it took, prompt by prompt, as a share of the fastest.
Interval behind(const PromptTimes& times, const PromptTimes& fastest) {
    const Interval ratio = ratio_interval(times.ms, fastest.ms);
    return {ratio.mean - 1, ratio.low - 1, ratio.high - 1, ratio.prompts};
}

const ConfirmedRule& lowest_simulated(const std::vector<const ConfirmedRule*>& rules) {
    return **std::min_element(rules.begin(), rules.end(), [](const ConfirmedRule* a, const ConfirmedRule* b) {
        return a->simulated_ms < b->simulated_ms;
    });
}

} // namespace

void verify(std::vector<ConfirmedRule>& rules, const std::vector<PromptTimes>& times, const PromptTimes& plain) {
    if (rules.empty() || rules.size() != times.size()) throw std::invalid_argument("no rules, or not the times of all");
    std::size_t fastest = 0;
    for (std::size_t i = 1; i < times.size(); ++i)
        if (total_of(times[i].ms) < total_of(times[fastest].ms)) fastest = i;
    for (std::size_t i = 0; i < rules.size(); ++i) {
        rules[i].measured_ms = ratio_interval(times[i].ms, times[i].tokens);
        rules[i].behind = behind(times[i], times[fastest]);
        rules[i].speedup = speedup_interval(plain, times[i]);
    }
    std::stable_sort(rules.begin(), rules.end(), [](const ConfirmedRule& a, const ConfirmedRule& b) {
        return a.measured_ms.mean < b.measured_ms.mean;
    });
}

Winner winner_of(const std::vector<ConfirmedRule>& rules) {
    std::vector<const ConfirmedRule*> faster, maybe_faster;
    for (const ConfirmedRule& rule : rules) {
        if (rule.is_slower()) continue;
        if (rule.beats_plain()) faster.push_back(&rule);
        if (rule.speedup.mean > 1) maybe_faster.push_back(&rule);
    }
    if (!faster.empty()) return {&lowest_simulated(faster), AgainstPlain::faster};
    if (!maybe_faster.empty()) return {&lowest_simulated(maybe_faster), AgainstPlain::no_difference_seen};
    const auto adaptive = std::find_if(rules.begin(), rules.end(), [](const ConfirmedRule& rule) {
        return rule.tuned.best.setting.rule.type().weighs_costs;
    });
    return {adaptive != rules.end() ? &*adaptive : &rules.at(0), AgainstPlain::nothing_is_faster};
}

std::vector<std::string> remarks_of(const Winner& winner, const std::vector<ConfirmedRule>& rules) {
    switch (winner.against_plain) {
    case AgainstPlain::nothing_is_faster:
        return {
            fmt::format("nothing beats plain decoding here: leave --draft out; with one, {} drafts only where it pays",
                        describe(winner.rule->tuned.best.setting.rule, EntropyUnit::nats))};
    case AgainstPlain::no_difference_seen:
    case AgainstPlain::faster:
        break;
    }
    std::vector<std::string> remarks;
    const bool is_faster = winner.against_plain == AgainstPlain::faster;
    if (!winner.rule->speedup.is_known())
        remarks.push_back("no difference from plain decoding can be seen on a single prompt: give more prompts");
    else if (!is_faster)
        remarks.push_back("no difference from plain decoding seen: give more prompts or --repetitions");
    if (winner.rule != &rules.front())
        remarks.push_back(
            fmt::format("it is not the first row: at 95 % the runs do not tell it from that one, and of such "
                        "rules {} it has the lowest simulated time",
                        is_faster ? "also seen to beat plain decoding" : "with a speed-up above 1"));
    return remarks;
}

std::string prediction_warning(const std::vector<ConfirmedRule>& rules) {
    constexpr double kFar = 1.25;
    std::vector<double> ratios;
    for (const ConfirmedRule& rule : rules)
        if (rule.predicted_ms > 0) ratios.push_back(rule.measured_ms.mean / rule.predicted_ms);
    if (ratios.empty()) return "";
    const double ratio = quantiles_of(ratios).median;
    if (ratio <= kFar && ratio >= 1 / kFar) return "";
    return fmt::format(
        "warning: measured times are {:.2f} times counts x costs: the machine was busy, or the costs are "
        "not of this run\n",
        ratio);
}

std::string config_text(const spec::StopRuleOptions& rule, bool is_sampled, const std::vector<std::string>& remarks) {
    std::string text;
    for (const std::string& remark : remarks)
        text += fmt::format("# {}\n", remark);
    text += fmt::format("stop-rule = {}\n", rule.name());
    const Json parameters = parameters_json(rule);
    for (const auto& [name, value] : parameters.items()) {
        std::string option = name;
        std::replace(option.begin(), option.end(), '_', '-');
        text += fmt::format("{} = {}\n", option, value.dump());
    }
    return text + fmt::format("max-draft-tokens = {}\n{}", rule.max_tokens, is_sampled ? "acceptance = gumbel\n" : "");
}

namespace {

Columns confirmed_row(const ConfirmedRule& rule) {
    const Interval& behind = rule.behind;
    const Interval percent = {100 * behind.mean, 100 * behind.low, 100 * behind.high, behind.prompts};
    return {{"setting", "best setting of each rule", describe(rule.tuned.best.setting.rule, EntropyUnit::nats)},
            {"simulated_ms_per_token", "simulated ms/token", rule.simulated_ms, 4},
            {"measured_ms_per_token", "measured ms/token", rule.measured_ms.mean, 4},
            {"interval_ms_per_token", "", Json{rule.measured_ms.low, rule.measured_ms.high}},
            {"counts_times_costs_ms_per_token", "counts x costs", rule.predicted_ms, 4},
            {"speedup", "speed-up", rule.speedup.mean, 3},
            {"interval_speedup", "95 % interval", Json{rule.speedup.low, rule.speedup.high},
             format_speedup_interval(rule.speedup)},
            {"behind_fastest", "behind the fastest, %", behind.mean, 2, 100},
            {"interval_behind_fastest", "95 % interval", Json{behind.low, behind.high}, format_interval(percent, 2)},
            {"", "tokens/pass", rule.stats.tokens_per_target_pass(), 2},
            {"settings_tried", "settings tried", rule.tuned.tried.size()}};
}

} // namespace

std::string tuning_table(const std::vector<ConfirmedRule>& rules) {
    return table_of(rows_of(rules, confirmed_row));
}

Json tuning_json(const ConfirmedRule& rule) {
    const spec::StopRuleOptions& setting = rule.tuned.best.setting.rule;
    Json json = json_of(confirmed_row(rule));
    json["rule"] = setting.name();
    json["parameters"] = parameters_json(setting);
    json.update(counts_json(rule.stats));
    return json;
}

Json tried_json(const spec::TriedSetting& tried, const spec::Costs& costs) {
    Json json = {{"setting", describe(tried.rule, EntropyUnit::nats)},
                 {"rule", tried.rule.name()},
                 {"parameters", parameters_json(tried.rule)},
                 {"draft", 0}};
    json.update(counts_json(tried.stats));
    json["ms_per_token"] = tried.seconds_per_token * 1e3;
    json["speedup"] = spec::predicted_plain_seconds(1, costs) / tried.seconds_per_token;
    return json;
}

} // namespace entrodraft::launch
