// Columns of replays: see simulation_report.h.
#include "launch/cmd/simulation_report.h"

#include "launch/cli/options.h"
#include "launch/io/results.h"

#include <algorithm>
#include <fmt/format.h>
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
    const std::string draft = names_draft ? fmt::format("draft {}, ", setting.draft + 1) : "";
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

Columns simulation_row(const SimulatedSetting& setting, bool names_draft) {
    const spec::Stats& stats = setting.counts.stats;
    const double rounds = static_cast<double>(std::max<std::int64_t>(stats.rounds, 1));
    const Interval& ms = setting.ms_per_token;
    const auto of_oracle = [&](double share) { return setting.oracle_speedup > 0 ? Json(share) : Column::unknown(); };
    return {{"setting", "setting", name_of(setting.counts.setting, names_draft)},
            {"ms_per_token", "ms/token", ms.mean, 4},
            {"interval_ms_per_token", "95 % interval", Json{ms.low, ms.high}, format_interval(ms, 4)},
            {"speedup", "speed-up", setting.speedup, 3},
            {"oracle_speedup", "", of_oracle(setting.oracle_speedup)},
            {"share_of_oracle_speedup", "share of oracle", of_oracle(setting.share_of_oracle()),
             or_dash(setting.share_of_oracle(), 3)},
            {"share_of_oracle_gain", "of its gain", of_oracle(setting.share_of_oracle_gain()),
             or_dash(setting.share_of_oracle_gain(), 3)},
            {"", "tokens/pass", stats.tokens_per_target_pass(), 2},
            {"", "drafted/round", static_cast<double>(stats.drafted) / rounds, 2},
            {"", "accepted/drafted", stats.draft_acceptance_rate(), 3},
            {"", "target passes", stats.target_passes},
            {"", "draft passes", stats.draft_passes}};
}

Json to_json(const SimulatedSetting& setting, bool names_draft) {
    const spec::ReplaySetting& replayed = setting.counts.setting;
    Json json = {{"setting", name_of(replayed, names_draft)}, {"rule", kind_of(replayed).second}};
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
    json.update(json_of(simulation_row(setting, names_draft)));
    return json;
}

} // namespace entrodraft::launch
