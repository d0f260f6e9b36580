// Runs settings one after another: see comparison.h.
#include "launch/cmd/bench/comparison.h"

#include "launch/io/progress.h"
#include "launch/load/pair_engine.h"
#include "launch/start/phase.h"
#include "spec/replay/tune.h"

#include <algorithm>

namespace entrodraft::launch {

namespace {

// Greedy text is the same with every acceptance that is not lossy. Exact rejection, which names leave out, stands for
// all of them.
std::vector<spec::AcceptanceOptions> acceptances_at(const CompareOptions& options, double temperature) {
    std::vector<spec::AcceptanceOptions> acceptances;
    for (spec::AcceptanceOptions one : options.acceptances) {
        if (temperature == 0 && !one.is_lossy()) one.kind = spec::Acceptance::rejection;
        if (std::ranges::count(acceptances, one) == 0) acceptances.push_back(one);
    }
    return acceptances;
}

// Returns whether one run shows what every chain of the drafter would meet. The text must not depend on the draft. The
// draft for a place must not depend on where the round began, as it does with look-ups, heads and windows.
bool has_oracle(const ComparisonTask& task, double temperature, const DrafterChoice& drafter,
                const spec::AcceptanceOptions& acceptance) {
    const bool is_one_text =
        !acceptance.is_lossy() && (temperature == 0 || acceptance.kind == spec::Acceptance::gumbel);
    return is_one_text && drafter.is_one_model() && !drafter.tree && outcomes_ahead(drafter) == 0 &&
           !task.models.opened.draft_window.is_on() && !task.options.synthetic_acceptance;
}

// Returns the settings, plain decoding first.
std::vector<Setting> settings_at(const ComparisonTask& task, double temperature) {
    const CompareOptions& options = task.options;
    const std::vector<spec::StopRuleOptions> any_rule(1);
    const std::size_t n_levels = std::max<std::size_t>(1, options.models.drafts.size());
    std::vector<std::vector<spec::StopRuleOptions>> rules = options.rules;
    if (options.tune) {
        rules.clear();
        for (const spec::StopRuleOptions& rule : spec::tuning_grid(options.max_draft_tokens))
            rules.emplace_back(n_levels, rule);
    }
    spec::StopRuleOptions to_the_cap("constant", {{"tokens", options.max_draft_tokens}});
    to_the_cap.max_tokens = options.max_draft_tokens;
    const std::vector<spec::StopRuleOptions> longest(n_levels, to_the_cap);
    const auto of_tree = [&](const spec::TreeOptions& tree) {
        DrafterChoice drafter = draft_alone(task.models, 0);
        drafter.tree = tree;
        return drafter;
    };
    std::vector<Setting> settings = {{SettingKind::plain, {}, any_rule, {spec::Acceptance::rejection, 1, {}}}};
    for (const spec::AcceptanceOptions& acceptance : acceptances_at(options, temperature)) {
        if (acceptance.kind == spec::Acceptance::gumbel)
            settings.push_back({SettingKind::plain, {}, any_rule, acceptance});
        for (const DrafterChoice& drafter : options.drafters) {
            if (const int own = drafter.own_tree_tokens(); own > 0) {
                const int longest_chain = drafter.kinds.size() > 1 ? options.max_draft_tokens : 0;
                settings.push_back({SettingKind::speculative,
                                    drafter,
                                    {own_tree_rule("expected-gain", std::max(own, longest_chain))},
                                    acceptance});
                continue;
            }
            for (const auto& levels : rules)
                settings.push_back({SettingKind::speculative, drafter, levels, acceptance});
            if (has_oracle(task, temperature, drafter, acceptance))
                settings.push_back({SettingKind::longest, drafter, longest, acceptance});
        }
        for (const spec::TreeOptions& tree : options.trees)
            settings.push_back({SettingKind::speculative, of_tree(tree), {spec::tree_rule(tree)}, acceptance});
    }
    return settings;
}

// A setting that is running.
struct Running {
    Outcome outcome;
    PairEngine engine;
};

std::vector<Running> start_all(const ComparisonTask& task, double temperature) {
    std::vector<Running> running;
    for (Setting& setting : settings_at(task, temperature)) {
        std::vector<std::optional<spec::Costs>> fixed(setting.rules.size());
        if (!task.options.costs.empty()) {
            const std::vector<spec::Costs> own = costs_of(task, setting.drafter);
            std::copy_n(own.begin(), std::min(own.size(), fixed.size()), fixed.begin());
        }
        PairEngine engine(
            task.session, task.models, task.drafters,
            {setting.drafter, setting.rules, fixed, setting.acceptance, task.options.synthetic_acceptance});
        running.push_back({{std::move(setting), {}, {}, {}, {}}, std::move(engine)});
    }
    return running;
}

spec::Completion decode(const ComparisonTask& task, PairEngine& engine, std::size_t prompt, double temperature,
                        int max_new_tokens, const PairEngine::OnRound& on_round = {}) {
    const bool coordinates = task.models.placed.layout.is_coordinator();
    spec::Request request;
    if (coordinates) request = task.prompts[prompt];
    request.sampling.temperature = temperature;
    request.max_new_tokens = std::min(request.max_new_tokens, max_new_tokens);
    return engine.decode(coordinates ? &request : nullptr, kNoSignal, on_round).completion;
}

// Decodes the prompt and adds the results to the outcome.
void run(const ComparisonTask& task, Running& running, std::size_t prompt, double temperature) {
    Outcome& outcome = running.outcome;
    std::vector<bool> rejected; // [place]
    const auto on_round = [&](const spec::Request& request, const spec::RoundTrace& round) {
        const auto place = static_cast<std::size_t>(round.position) - request.prompt.size();
        const auto accepted = static_cast<std::size_t>(round.verification.accepted);
        rejected.resize(place + accepted + 1);
        rejected.back() = round.draft->tokens.size() > accepted;
    };
    const bool is_longest = outcome.setting.kind == SettingKind::longest;
    spec::Completion completion =
        decode(task, running.engine, prompt, temperature, task.options.requests.max_new_tokens,
               is_longest ? on_round : PairEngine::OnRound());
    if (is_longest) {
        rejected.resize(completion.tokens.size());
        rejected.flip();
        outcome.agreements.push_back(std::move(rejected));
    }
    outcome.stats += completion.stats;
    outcome.stats_of_prompts.push_back(completion.stats);
    outcome.texts.push_back(std::move(completion.tokens));
}

} // namespace

std::string Setting::name() const {
    if (!drafts()) return is_gumbel() ? "plain, gumbel" : "plain";
    std::string text = describe(drafter) + ", ";
    for (std::size_t level = 0; level < std::max<std::size_t>(1, drafter.drafts.size()); ++level)
        if (level == 0 || drafter.has("model")) text += (level > 0 ? " / " : "") + describe(rules.at(level));
    const std::string accepted_by = describe(acceptance);
    return accepted_by == to_string(spec::Acceptance::rejection) ? text : text + ", " + accepted_by;
}

const Outcome& Temperature::plain_of(const Setting& setting) const {
    const auto found = std::ranges::find_if(outcomes, [&](const Outcome& outcome) {
        return !outcome.setting.drafts() && outcome.setting.is_gumbel() == setting.is_gumbel();
    });
    return found != outcomes.end() ? *found : outcomes.front();
}

// Level i of all drafts is drafts[i], which drafts for the model above it. A choice may take only some of them.
std::vector<spec::Costs> costs_of(const ComparisonTask& task, const DrafterChoice& drafter) {
    std::vector<spec::Costs> levels;
    if (task.costs.empty()) return levels;
    if (!drafter.has("model")) {
        levels.push_back(task.costs.front());
        if (drafter.has("head")) return levels;
        levels.front().t_draft = levels.front().t_draft_row = 0;
        levels.front().t_first_draft.reset();
        return levels;
    }
    for (std::size_t level = 0; level < drafter.drafts.size(); ++level) {
        const spec::Costs& own = task.costs.at(drafter.drafts[level]);
        const spec::Costs& above = level == 0 ? task.costs.front() : task.costs.at(drafter.drafts[level - 1] + 1);
        levels.emplace_back(own).t_target = above.t_target;
    }
    return levels;
}

std::optional<int> different_texts(const CompareOptions& options, const Temperature& result, const Outcome& outcome) {
    const Setting& setting = outcome.setting;
    const bool draft_decides_nothing = result.temperature == 0 || setting.is_gumbel();
    if (options.synthetic_acceptance || (setting.drafts() && setting.acceptance.is_lossy()) || !draft_decides_nothing)
        return std::nullopt;
    const Outcome& plain = result.plain_of(setting);
    int different = 0;
    for (std::size_t i = 0; i < plain.texts.size(); ++i)
        different += outcome.texts[i] == plain.texts[i] ? 0 : 1;
    return different;
}

std::vector<Temperature> compare(const ComparisonTask& task) {
    constexpr int kWarmUpTokens = 16;
    const CompareOptions& options = task.options;
    const auto n_prompts = static_cast<std::size_t>(from_writer(task.session, std::ssize(task.prompts)));
    Progress progress(options.quiet || !task.models.placed.layout.is_writer());
    std::vector<Temperature> results;
    std::int64_t new_tokens = 0, done = 0;
    for (const double temperature : options.temperatures) {
        // The warm-up has its own engines, so that nothing is learnt before the clock runs.
        for (Running& warming_up : start_all(task, temperature))
            decode(task, warming_up.engine, 0, temperature, kWarmUpTokens);
        std::vector<Running> running = start_all(task, temperature);
        for (std::size_t prompt = 0; prompt < n_prompts; ++prompt) {
            for (std::size_t turn = 0; turn < running.size(); ++turn) {
                Running& one = running[(prompt + turn) % running.size()];
                run(task, one, prompt, temperature);
                new_tokens += one.outcome.stats_of_prompts.back().new_tokens;
            }
            ++done;
            progress.update(static_cast<double>(done) / static_cast<double>(options.temperatures.size() * n_prompts),
                            done, new_tokens);
        }
        Temperature& result = results.emplace_back(Temperature{temperature, {}});
        for (Running& each : running)
            result.outcomes.push_back(std::move(each.outcome));
    }
    return results;
}

} // namespace entrodraft::launch
