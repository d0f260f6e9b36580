// Figures of replays: see simulation_report.h.
#include "launch/cmd/simulation_report.h"

#include "launch/cli/options.h"
#include "launch/environment.h"
#include "launch/io/results.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace entrodraft::launch {

namespace {

// Which draft, and of a rule which one: what --best shows one setting of.
using Kind = std::pair<std::size_t, std::string>;
Kind kind_of(const spec::ReplaySetting& setting) {
    switch (setting.kind) {
    case spec::ReplayKind::plain:
        return {setting.draft, "plain"};
    case spec::ReplayKind::oracle:
        return {setting.draft, "oracle"};
    case spec::ReplayKind::rule:
        return {setting.draft, setting.rule.name()};
    }
    throw std::invalid_argument("no such kind of replay");
}

} // namespace

std::string name_of(const spec::ReplaySetting& setting, bool names_draft) {
    const std::string draft = names_draft ? "draft " + std::to_string(setting.draft + 1) + ", " : "";
    if (setting.kind == spec::ReplayKind::plain) return draft + "plain";
    if (setting.kind == spec::ReplayKind::oracle) return draft + "oracle";
    return draft + describe(setting.rule, EntropyUnit::nats);
}

SimulatedSetting figures_of(spec::Simulated counts) {
    SimulatedSetting setting;
    std::vector<double> ms, tokens;
    for (const spec::SimulatedText& text : counts.texts) {
        ms.push_back(text.seconds * 1e3);
        tokens.push_back(static_cast<double>(text.new_tokens));
    }
    setting.ms_per_token = ratio_interval(ms, tokens);
    const spec::Costs& costs = counts.setting.costs;
    const double seconds = spec::predicted_seconds(counts.stats, costs);
    if (seconds > 0) setting.speedup = spec::predicted_plain_seconds(counts.stats.new_tokens, costs) / seconds;
    setting.counts = std::move(counts);
    return setting;
}

void compare_with_oracles(std::vector<SimulatedSetting>& settings) {
    std::map<std::size_t, double> oracles;
    for (const SimulatedSetting& setting : settings)
        if (setting.counts.setting.kind == spec::ReplayKind::oracle)
            oracles[setting.counts.setting.draft] = setting.speedup;
    for (SimulatedSetting& setting : settings)
        if (const auto found = oracles.find(setting.counts.setting.draft);
            found != oracles.end() && setting.counts.setting.ahead == 0)
            setting.oracle_speedup = found->second;
}

std::vector<SimulatedSetting> best_of_each_rule(const std::vector<SimulatedSetting>& settings) {
    std::map<Kind, std::size_t> best;
    for (std::size_t i = 0; i < settings.size(); ++i) {
        const auto [found, is_new] = best.emplace(kind_of(settings[i].counts.setting), i);
        if (!is_new && settings[i].speedup > settings[found->second].speedup) found->second = i;
    }
    std::set<std::size_t> kept;
    for (const auto& [kind, i] : best)
        kept.insert(i);
    std::vector<SimulatedSetting> shown;
    for (const std::size_t i : kept)
        shown.push_back(settings[i]);
    return shown;
}

std::string simulation_table(const std::vector<SimulatedSetting>& settings, bool names_draft) {
    std::vector<std::vector<std::string>> table = {{"setting", "ms/token", "95 % interval", "speed-up",
                                                    "share of oracle", "of its gain", "tokens/pass", "drafted/round",
                                                    "accepted/drafted", "target passes", "draft passes"}};
    const auto or_dash = [](double value) { return value > 0 ? format_number(value, 3) : "-"; };
    for (const SimulatedSetting& setting : settings) {
        const spec::Stats& stats = setting.counts.stats;
        const double rounds = static_cast<double>(std::max<std::int64_t>(stats.rounds, 1));
        table.push_back({name_of(setting.counts.setting, names_draft), format_number(setting.ms_per_token.mean, 4),
                         format_interval(setting.ms_per_token, 4), format_number(setting.speedup, 3),
                         or_dash(setting.share_of_oracle()), or_dash(setting.share_of_oracle_gain()),
                         format_number(stats.tokens_per_target_pass(), 2),
                         format_number(static_cast<double>(stats.drafted) / rounds, 2),
                         format_number(stats.draft_acceptance_rate(), 3), std::to_string(stats.target_passes),
                         std::to_string(stats.draft_passes)});
    }
    return format_table(table);
}

Json parameters_json(const spec::StopRuleOptions& rule) {
    using Kind = spec::StopRuleParameter::Kind;
    Json json = Json::object();
    const std::vector<spec::StopRuleParameter>& parameters = rule.type().parameters;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        std::string name = parameters[i].option;
        std::replace(name.begin(), name.end(), '-', '_');
        const double value = rule.values()[i];
        if (parameters[i].kind != Kind::on_off)
            json[name] = parameters[i].is_whole() ? Json(static_cast<std::int64_t>(value)) : Json(value);
        else if (value != 0)
            json[name] = true;
    }
    return json;
}

Json to_json(const SimulatedSetting& setting, bool names_draft) {
    const spec::ReplaySetting& replayed = setting.counts.setting;
    Json json;
    json["setting"] = name_of(replayed, names_draft);
    json["rule"] = kind_of(replayed).second;
    if (replayed.kind == spec::ReplayKind::rule) {
        json["parameters"] = parameters_json(replayed.rule);
        json["max_draft_tokens"] = replayed.rule.max_tokens;
        json["min_draft_tokens"] = replayed.rule.min_tokens;
        if (replayed.rule.drop_stop_token) json["drop_stop_token"] = true;
    }
    json["draft"] = replayed.draft;
    json["texts"] = setting.counts.texts.size();
    json.update(counts_json(setting.counts.stats));
    json["passes_of_rows"] = setting.counts.stats.passes_of_rows;
    json["rounds_of_accepted"] = setting.counts.stats.rounds_of_accepted;
    json["ms_per_token"] = setting.ms_per_token.mean;
    json["interval_ms_per_token"] = {setting.ms_per_token.low, setting.ms_per_token.high};
    json["speedup"] = setting.speedup;
    if (setting.oracle_speedup > 0) {
        json["oracle_speedup"] = setting.oracle_speedup;
        json["share_of_oracle_speedup"] = setting.share_of_oracle();
        json["share_of_oracle_gain"] = setting.share_of_oracle_gain();
    }
    return json;
}

} // namespace entrodraft::launch
