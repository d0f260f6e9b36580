// Judging tuned rules by real runs: see tuning.h.
#include "entrodraft/launch/study/tuning.h"

#include "entrodraft/launch/environment.h"
#include "entrodraft/launch/generate/results.h"
#include "entrodraft/launch/options/options.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

double sum(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
}

// How much longer than `fastest` it took, prompt by prompt, as a share of the fastest.
Interval behind(const PromptTimes& times, const PromptTimes& fastest) {
    std::vector<double> differences;
    for (std::size_t i = 0; i < times.ms.size(); ++i)
        differences.push_back(times.ms[i] - fastest.ms[i]);
    return ratio_interval(differences, fastest.ms);
}

std::string percent(double share) {
    return format_number(100 * share, 2);
}

} // namespace

void PromptTimes::add(const std::vector<spec::Stats>& stats_of_prompts) {
    ms.resize(stats_of_prompts.size());
    tokens.resize(stats_of_prompts.size());
    for (std::size_t i = 0; i < stats_of_prompts.size(); ++i) {
        const spec::StepSeconds& seconds = stats_of_prompts[i].seconds;
        ms[i] += (seconds.total - seconds.prefill) * 1e3;
        tokens[i] += static_cast<double>(stats_of_prompts[i].new_tokens);
    }
}

void judge(std::vector<ConfirmedRule>& rules, const std::vector<PromptTimes>& times, const PromptTimes& plain) {
    if (rules.empty() || rules.size() != times.size()) throw std::invalid_argument("no rules, or not the times of all");
    std::size_t fastest = 0;
    for (std::size_t i = 1; i < times.size(); ++i)
        if (sum(times[i].ms) < sum(times[fastest].ms)) fastest = i;
    for (std::size_t i = 0; i < rules.size(); ++i) {
        rules[i].measured_ms = ratio_interval(times[i].ms, times[i].tokens);
        rules[i].behind = behind(times[i], times[fastest]);
        rules[i].speedup = sum(plain.ms) / sum(times[i].ms);
    }
    std::stable_sort(rules.begin(), rules.end(), [](const ConfirmedRule& a, const ConfirmedRule& b) {
        return a.measured_ms.mean < b.measured_ms.mean;
    });
}

const ConfirmedRule& winner_of(const std::vector<ConfirmedRule>& rules) {
    const ConfirmedRule* winner = &rules.at(0);
    for (const ConfirmedRule& rule : rules)
        if (!rule.is_slower() && rule.simulated_ms < winner->simulated_ms) winner = &rule;
    return *winner;
}

std::string config_text(const spec::StopRuleOptions& rule, bool is_sampled, const std::vector<std::string>& remarks) {
    std::ostringstream text;
    text.precision(17);
    for (const std::string& remark : remarks)
        text << "# " << remark << '\n';
    text << "stop-rule = " << to_string(rule.kind) << '\n';
    const Json parameters = parameters_json(rule);
    for (const auto& [name, value] : parameters.items()) {
        std::string option = name;
        std::replace(option.begin(), option.end(), '_', '-');
        text << option << " = " << value.dump() << '\n';
    }
    text << "max-draft-tokens = " << rule.max_tokens << '\n';
    if (is_sampled) text << "acceptance = gumbel\n";
    return text.str();
}

std::string tuning_table(const std::vector<ConfirmedRule>& rules) {
    std::vector<std::vector<std::string>> table = {
        {"best setting of each rule", "simulated ms/token", "measured ms/token", "95 % interval", "speed-up",
         "behind the fastest, %", "95 % interval", "counts x costs", "tokens/pass", "settings tried"}};
    for (const ConfirmedRule& rule : rules)
        table.push_back({describe(rule.tuned.best.setting.rule, EntropyUnit::nats), format_number(rule.simulated_ms, 4),
                         format_number(rule.measured_ms.mean, 4),
                         format_number(rule.measured_ms.low, 4) + " to " + format_number(rule.measured_ms.high, 4),
                         format_number(rule.speedup, 3), percent(rule.behind.mean),
                         percent(rule.behind.low) + " to " + percent(rule.behind.high),
                         format_number(rule.predicted_ms, 4), format_number(rule.stats.tokens_per_target_pass(), 2),
                         std::to_string(rule.tuned.tried.size())});
    return format_table(table);
}

Json tuning_json(const std::vector<ConfirmedRule>& rules) {
    Json list = Json::array();
    for (const ConfirmedRule& rule : rules) {
        const spec::StopRuleOptions& setting = rule.tuned.best.setting.rule;
        Json json;
        json["setting"] = describe(setting, EntropyUnit::nats);
        json["rule"] = to_string(setting.kind);
        json["parameters"] = parameters_json(setting);
        json["settings_tried"] = rule.tuned.tried.size();
        json["simulated_ms_per_token"] = rule.simulated_ms;
        json["measured_ms_per_token"] = rule.measured_ms.mean;
        json["interval_ms_per_token"] = {rule.measured_ms.low, rule.measured_ms.high};
        json["behind_fastest"] = rule.behind.mean;
        json["interval_behind_fastest"] = {rule.behind.low, rule.behind.high};
        json["counts_times_costs_ms_per_token"] = rule.predicted_ms;
        json["speedup"] = rule.speedup;
        json.update(counts_json(rule.stats));
        list.push_back(json);
    }
    return list;
}

Json tried_json(const std::vector<ConfirmedRule>& rules, const spec::Costs& costs) {
    Json list = Json::array();
    for (const ConfirmedRule& rule : rules)
        for (const spec::TriedSetting& tried : rule.tuned.tried) {
            Json json;
            json["setting"] = describe(tried.rule, EntropyUnit::nats);
            json["rule"] = to_string(tried.rule.kind);
            json["parameters"] = parameters_json(tried.rule);
            json["draft"] = 0;
            json.update(counts_json(tried.stats));
            json["ms_per_token"] = tried.seconds_per_token * 1e3;
            json["speedup"] = spec::predicted_plain_seconds(1, costs) / tried.seconds_per_token;
            list.push_back(json);
        }
    return list;
}

} // namespace entrodraft::launch
