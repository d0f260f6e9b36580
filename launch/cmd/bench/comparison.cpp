// Running settings in turn: see comparison.h.
#include "launch/cmd/bench/comparison.h"

#include "launch/decode_one.h"
#include "launch/io/progress.h"
#include "launch/phase.h"
#include "spec/replay/tune.h"

#include <algorithm>
#include <fmt/format.h>

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
    if (!drafts()) return is_gumbel() ? "plain, gumbel" : "plain";
    std::string text = describe(drafter) + ", ";
    for (std::size_t level = 0; level < std::max<std::size_t>(1, drafter.drafts.size()); ++level)
        if (level == 0 || drafter.has("model"))
            text += (level > 0 ? " / " : "") + describe(rules.at(level), EntropyUnit::nats);
    return acceptance.kind == spec::Acceptance::rejection && acceptance.lenience == 1 ? text
                                                                                      : text + ", " + acceptance_name();
}

std::string Setting::acceptance_name() const {
    return to_string(acceptance.kind) +
           (acceptance.lenience < 1 ? fmt::format(", lenience {:g}", acceptance.lenience) : "");
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
    setting.acceptance = acceptance;
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
    engine.timeout_seconds = session_.timeout_seconds();
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

const Outcome& plain_of(const Temperature& result, const Setting& setting) {
    const auto is_plain = [&](const Outcome& outcome) {
        return !outcome.setting->drafts() && outcome.setting->is_gumbel() == setting.is_gumbel();
    };
    const auto found = std::find_if(result.outcomes.begin(), result.outcomes.end(), is_plain);
    return found != result.outcomes.end() ? *found : result.outcomes.front();
}

std::optional<int> Comparison::different_texts(const Temperature& result, const Outcome& outcome) const {
    const Setting& setting = *outcome.setting;
    const bool draft_decides_nothing = result.temperature == 0 || setting.is_gumbel();
    if (options_.synthetic_acceptance || (setting.drafts() && setting.acceptance.is_lossy()) || !draft_decides_nothing)
        return std::nullopt;
    const Outcome& plain = plain_of(result, setting);
    int different = 0;
    for (std::size_t i = 0; i < plain.texts.size(); ++i)
        different += outcome.texts[i] == plain.texts[i] ? 0 : 1;
    return different;
}

void Comparison::read_prompts() {
    RequestDefaults defaults;
    defaults.max_new_tokens = options_.max_new_tokens;
    defaults.sampling.seed = options_.seed;
    defaults.ignore_eos = options_.synthetic_acceptance.has_value();
    std::vector<spec::Request> given;
    in_agreement(session_, [&] {
        if (models_.layout.is_coordinator())
            given = read_all_prompts(options_.input, defaults, options_.max_prompts, models_.prompt_limits());
    });
    take_prompts(std::move(given));
}

void Comparison::take_prompts(std::vector<spec::Request> given) {
    prompts = std::move(given);
    n_prompts_ = static_cast<std::size_t>(from_writer(session_, std::ssize(prompts)));
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
