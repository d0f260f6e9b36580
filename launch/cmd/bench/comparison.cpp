// Running settings in turn: see comparison.h.
#include "launch/cmd/bench/comparison.h"

#include "launch/cmd/bench/bench_prompts.h"
#include "launch/counted.h"
#include "launch/decode_one.h"
#include "launch/io/report.h"
#include "launch/phase.h"
#include "spec/replay/tune.h"

#include <algorithm>

namespace entrodraft::launch {

namespace {

spec::StopRuleOptions longest_rule(int max_tokens) {
    spec::StopRuleOptions rule("constant", {{"num-draft-tokens", max_tokens}});
    rule.max_tokens = max_tokens;
    return rule;
}

spec::AcceptanceOptions verified_by(spec::Acceptance kind, double lenience = 1) {
    spec::AcceptanceOptions acceptance;
    acceptance.kind = kind;
    acceptance.lenience = lenience;
    return acceptance;
}

} // namespace

std::string Setting::name() const {
    if (!drafts()) return acceptance == spec::Acceptance::gumbel ? "plain, gumbel" : "plain";
    std::string text = describe(drafter) + ", ";
    for (std::size_t level = 0; level < std::max<std::size_t>(1, drafter.drafts.size()); ++level)
        if (level == 0 || drafter.has("model"))
            text += (level > 0 ? " / " : "") + describe(rules.at(level), EntropyUnit::nats);
    return acceptance == spec::Acceptance::rejection && lenience == 1 ? text : text + ", " + acceptance_name();
}

std::string Setting::acceptance_name() const {
    return to_string(acceptance) + (lenience < 1 ? formatted(", lenience %g", lenience) : "");
}

Comparison::Comparison(dist::Session& session, ModelPair& models, const Drafters& drafters,
                       const CompareOptions& options, const std::vector<spec::Costs>& costs, bool costs_are_fixed)
    : session_(session), models_(models), drafters_(drafters), options_(options), costs_(costs),
      costs_are_fixed_(costs_are_fixed) {}

// Greedy text is the same with every acceptance that is not lossy: exact rejection, which goes unnamed, stands for
// them.
std::vector<spec::AcceptanceOptions> Comparison::acceptances_at(double temperature) const {
    std::vector<spec::AcceptanceOptions> acceptances;
    for (const spec::Acceptance kind : options_.acceptances) {
        spec::AcceptanceOptions one = verified_by(kind, kind == spec::Acceptance::rejection ? options_.lenience : 1);
        if (temperature == 0 && !one.is_lossy()) one.kind = spec::Acceptance::rejection;
        if (std::none_of(acceptances.begin(), acceptances.end(), [&](const spec::AcceptanceOptions& other) {
                return other.kind == one.kind && other.lenience == one.lenience;
            }))
            acceptances.push_back(one);
    }
    return acceptances;
}

std::vector<Setting> Comparison::make_settings(double temperature) const {
    std::vector<Setting> settings;
    add(settings, SettingKind::plain, {}, {spec::StopRuleOptions{}}, verified_by(spec::Acceptance::rejection));
    const std::size_t n_levels = std::max<std::size_t>(1, options_.models.drafts.size());
    std::vector<std::vector<spec::StopRuleOptions>> rules = options_.rules;
    if (options_.tune) {
        rules.clear();
        for (const spec::StopRuleOptions& rule : spec::tuning_grid(options_.max_draft_tokens))
            rules.emplace_back(n_levels, rule);
    }
    for (const spec::AcceptanceOptions& acceptance : acceptances_at(temperature)) {
        if (acceptance.kind == spec::Acceptance::gumbel)
            add(settings, SettingKind::plain, {}, {spec::StopRuleOptions{}}, acceptance);
        for (const DrafterChoice& drafter : options_.drafters) {
            for (const auto& levels : rules)
                add(settings, SettingKind::speculative, drafter, levels, acceptance);
            add(settings, SettingKind::longest, drafter, {n_levels, longest_rule(options_.max_draft_tokens)},
                acceptance);
        }
    }
    return settings;
}

void Comparison::add(std::vector<Setting>& settings, SettingKind kind, const DrafterChoice& drafter,
                     const std::vector<spec::StopRuleOptions>& rules, const spec::AcceptanceOptions& acceptance) const {
    Setting& setting = settings.emplace_back();
    setting.kind = kind;
    setting.drafter = drafter;
    setting.rules = rules;
    setting.acceptance = acceptance.kind;
    setting.lenience = acceptance.lenience;
    setting.is_lossy = acceptance.is_lossy();
    std::vector<std::optional<spec::Costs>> fixed(rules.size());
    if (costs_are_fixed_) {
        const std::vector<spec::Costs> own = costs_of(drafter);
        std::copy_n(own.begin(), std::min(own.size(), fixed.size()), fixed.begin());
    }
    setting.own_drafter = drafters_.make(drafter, rules, fixed);
    spec::EngineOptions engine;
    engine.acceptance = acceptance;
    engine.stop_rule = rules.front();
    engine.costs = fixed.front();
    engine.n_slots = models_.batch_size;
    engine.vocab_size = models_.vocab_size;
    engine.timeout_seconds = options_.models.collective_timeout_seconds;
    spec::EngineParts parts = models_.engine_parts(setting.own_drafter.get());
    if (kind == SettingKind::plain) parts.sharded_draft = nullptr; // nobody has to wait for drafts
    engine.synthetic_acceptance = options_.synthetic_acceptance;
    setting.engine = std::make_unique<spec::Engine>(engine, parts);
}

// Level i of all drafts is drafts[i] drafting for what is above it; a choice may take only some of them.
std::vector<spec::Costs> Comparison::costs_of(const DrafterChoice& drafter) const {
    std::vector<spec::Costs> levels;
    if (costs_.empty()) return levels;
    if (!drafter.has("model")) {
        levels.push_back(costs_.front());
        levels.front().t_draft = 0;
        levels.front().t_first_draft.reset();
        return levels;
    }
    for (std::size_t level = 0; level < drafter.drafts.size(); ++level) {
        const spec::Costs& own = costs_.at(drafter.drafts[level]);
        const spec::Costs& above = level == 0 ? costs_.front() : costs_.at(drafter.drafts[level - 1] + 1);
        levels.push_back({own.t_draft, above.t_target, own.t_first_draft, own.t_round});
    }
    return levels;
}

void Comparison::require_plain_texts() const {
    for (const Temperature& result : results)
        for (const Outcome& outcome : result.outcomes) {
            const spec::Acceptance acceptance = outcome.setting->acceptance;
            const bool is_greedy = result.temperature == 0;
            if (may_differ_from_plain(*outcome.setting) || (!is_greedy && acceptance != spec::Acceptance::gumbel))
                continue;
            const auto plain = std::find_if(result.outcomes.begin(), result.outcomes.end(), [&](const Outcome& each) {
                return !each.setting->drafts() && (is_greedy || each.setting->acceptance == acceptance);
            });
            if (plain == result.outcomes.end() || outcome.texts != plain->texts)
                throw std::runtime_error(outcome.setting->name() +
                                         ": texts differ from plain decoding; no figure is shown");
        }
}

bool Comparison::may_differ_from_plain(const Setting& setting) const {
    return options_.synthetic_acceptance || (setting.drafts() && setting.is_lossy);
}

void Comparison::read_prompts() {
    RequestDefaults defaults;
    defaults.max_new_tokens = options_.max_new_tokens;
    defaults.sampling.seed = options_.seed;
    defaults.ignore_eos = options_.synthetic_acceptance.has_value();
    take_prompts(read_bench_prompts(session_, models_, {options_.input, defaults, options_.max_prompts},
                                    options_.models.collective_timeout_seconds));
}

void Comparison::take_prompts(std::vector<spec::Request> given) {
    prompts = std::move(given);
    n_prompts_ = static_cast<std::size_t>(
        from_writer(session_, options_.models.collective_timeout_seconds, static_cast<std::int64_t>(prompts.size())));
}

spec::Completion Comparison::decode(Setting& setting, std::size_t prompt, double temperature, int max_new_tokens) {
    if (!models_.layout.is_coordinator()) return decode_one(*setting.engine, nullptr, kNoSignal).completion;
    spec::Request request = prompts[prompt];
    request.sampling.temperature = temperature;
    request.max_new_tokens = std::min(request.max_new_tokens, max_new_tokens);
    return decode_one(*setting.engine, &request, kNoSignal).completion;
}

// With settings of its own, so that nothing is learnt before the clock runs.
void Comparison::warm_up(double temperature) {
    constexpr int kTokens = 16;
    std::vector<Setting> settings = make_settings(temperature);
    for (Setting& setting : settings)
        decode(setting, 0, temperature, kTokens);
}

void Comparison::run() {
    Progress progress(options_.quiet || !models_.layout.is_writer());
    std::int64_t new_tokens = 0;
    for (double temperature : options_.temperatures) {
        warm_up(temperature);
        Temperature& result = results.emplace_back(Temperature{temperature, {}});
        std::vector<Setting>& running = settings_.emplace_back(make_settings(temperature));
        result.outcomes.resize(running.size());
        for (std::size_t prompt = 0; prompt < n_prompts_; ++prompt) {
            for (std::size_t turn = 0; turn < running.size(); ++turn) {
                const std::size_t i = (prompt + turn) % running.size();
                spec::Completion completion = decode(running[i], prompt, temperature, options_.max_new_tokens);
                Outcome& outcome = result.outcomes[i];
                outcome.setting = &running[i];
                outcome.stats += completion.stats;
                outcome.stats_of_prompts.push_back(completion.stats);
                outcome.texts.push_back(std::move(completion.tokens));
                new_tokens += completion.stats.new_tokens;
            }
            const auto done = static_cast<double>((results.size() - 1) * n_prompts_ + prompt + 1);
            progress.update(done / static_cast<double>(options_.temperatures.size() * n_prompts_),
                            static_cast<std::int64_t>(done), new_tokens);
        }
    }
}

} // namespace entrodraft::launch
