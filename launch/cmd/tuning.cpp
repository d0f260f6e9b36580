// Compares tuned rules by real runs: see tuning.h.
#include "launch/cmd/tuning.h"

#include "launch/cli/options.h"
#include "launch/io/rule_figures.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

void verify(std::vector<ConfirmedRule>& rules, const PromptTimes& plain) {
    const auto total_ms = [](const ConfirmedRule& rule) { return total_of(rule.times.ms); };
    const PromptTimes& fastest = std::ranges::min_element(rules, {}, total_ms)->times;
    for (ConfirmedRule& rule : rules) {
        rule.measured_ms = ratio_interval(rule.times.ms, rule.times.tokens);
        const Interval ratio = ratio_interval(rule.times.ms, fastest.ms); // prompt by prompt
        rule.behind = {ratio.mean - 1, ratio.low - 1, ratio.high - 1, ratio.prompts};
        rule.speedup = speedup_interval(plain, rule.times);
    }
    std::ranges::stable_sort(rules, {}, [](const ConfirmedRule& rule) { return rule.measured_ms.mean; });
}

const ConfirmedRule& winner_of(const std::vector<ConfirmedRule>& rules) {
    for (const auto is_good : {&ConfirmedRule::beats_plain, &ConfirmedRule::may_beat_plain}) {
        const ConfirmedRule* best = nullptr;
        for (const ConfirmedRule& rule : rules)
            if (!rule.is_slower() && (rule.*is_good)() && (!best || rule.simulated_ms() < best->simulated_ms()))
                best = &rule;
        if (best) return *best;
    }
    const auto adaptive = std::ranges::find_if(
        rules, [](const ConfirmedRule& rule) { return rule.setting().type().weighs_costs && !rule.tree(); });
    return adaptive != rules.end() ? *adaptive : rules.at(0);
}

std::vector<std::string> remarks_of(const ConfirmedRule& winner, const std::vector<ConfirmedRule>& rules) {
    if (!winner.may_beat_plain())
        return {
            fmt::format("nothing beats plain decoding here: leave --draft out; with one, {} drafts only where it pays",
                        winner.name())};
    std::vector<std::string> remarks;
    if (!winner.speedup.is_known())
        remarks.push_back("no difference from plain decoding can be seen on a single prompt: give more prompts");
    else if (!winner.beats_plain())
        remarks.push_back("no difference from plain decoding seen: give more prompts or --repetitions");
    if (&winner != &rules.front())
        remarks.push_back(
            fmt::format("the first row's rule was faster here, but at 95 % the runs do not tell the two apart; of such "
                        "rules {} this one has the lowest simulated time",
                        winner.beats_plain() ? "that beat plain decoding" : "with a speed-up above 1"));
    return remarks;
}

std::string ConfirmedRule::name() const {
    return tree() ? "tree " + tree()->name : describe(setting());
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

std::string config_text(const ConfirmedRule& confirmed, bool is_sampled, const std::vector<std::string>& remarks) {
    const spec::StopRuleOptions& rule = confirmed.setting();
    const char* const acceptance = is_sampled ? "acceptance = gumbel\n" : "";
    std::string text;
    for (const std::string& remark : remarks)
        text += fmt::format("# {}\n", remark);
    if (confirmed.tree()) return text + fmt::format("tree = {}\n{}", confirmed.tree()->name, acceptance);
    text += fmt::format("stop-rule = {}\n", describe(rule));
    return text + fmt::format("max-draft-tokens = {}\n{}", rule.max_tokens, acceptance);
}

Columns confirmed_row(const ConfirmedRule& rule) {
    const Interval& behind = rule.behind;
    const Interval percent = {100 * behind.mean, 100 * behind.low, 100 * behind.high, behind.prompts};
    return {{"setting", "best setting of each rule", rule.name()},
            {"rule", "", rule.setting().name()},
            {"tree", "", rule.tree() ? Json(rule.tree()->name) : Column::unknown()},
            {"parameters", "", parameters_json(rule.setting())},
            {"simulated_ms_per_token", "simulated ms/token", rule.simulated_ms(), 4},
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

} // namespace entrodraft::launch
