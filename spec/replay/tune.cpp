// The search for settings: see tune.h.
#include "spec/replay/tune.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>
#include <string>
#include <utility>

namespace entrodraft::spec {

namespace {

using Parameter = StopRuleParameter;

// Rounds to three digits: a best setting is not known better, and people read it.
double in_three_digits(double value) {
    if (value == 0) return 0;
    const double scale = std::pow(10.0, 2 - std::floor(std::log10(std::abs(value))));
    return std::round(value * scale) / scale;
}

// The first values to try for a parameter; without a grid only `value`.
std::vector<double> grid_of(const Parameter& parameter, double value, int max_tokens) {
    const bool is_length = parameter.kind == Parameter::Kind::draft_length;
    if (parameter.grid.empty()) return {is_length ? std::min<double>(value, max_tokens) : value};
    std::vector<double> values = parameter.grid;
    if (is_length) std::erase_if(values, [&](double each) { return each > max_tokens; });
    return values;
}

// Adds all values of the parameters from number `index` on; the last parameter varies fastest.
void add_settings(std::vector<StopRuleOptions>& grid, const StopRuleOptions& rule, std::size_t index) {
    const std::vector<Parameter>& parameters = rule.type().parameters;
    if (index == parameters.size()) {
        grid.push_back(rule);
        return;
    }
    for (const double value : grid_of(parameters[index], rule.values()[index], rule.max_tokens)) {
        StopRuleOptions setting = rule;
        setting.set(parameters[index].name, value);
        add_settings(grid, setting, index + 1);
    }
}

std::vector<double> values_beside(const Parameter& parameter, double value, double step, int max_tokens) {
    switch (parameter.kind) {
    case Parameter::Kind::number:
        return {in_three_digits(value * (1 - step)), in_three_digits(value * (1 + step))};
    case Parameter::Kind::whole_number:
        return {value - 1, value + 1};
    case Parameter::Kind::draft_length:
        return {std::min<double>(value - 1, max_tokens), std::min<double>(value + 1, max_tokens)};
    case Parameter::Kind::on_off:
        break;
    }
    return {};
}

} // namespace

std::vector<StopRuleOptions> tuning_grid(int max_tokens) {
    std::vector<StopRuleOptions> grid;
    for (const StopRuleType& type : all_stop_rules()) {
        StopRuleOptions rule(type.name);
        rule.max_tokens = max_tokens;
        add_settings(grid, rule, 0);
    }
    return grid;
}

std::vector<TreeOptions> narrower_trees(const TreeOptions& tree) {
    if (tree.shape == TreeOptions::Shape::fixed) return {tree};
    const auto up_to = [](int most) { // 2, 3, 5, 8, ...
        std::vector<int> values;
        for (int value = 2; value < most; value += (value + 1) / 2)
            values.push_back(value);
        values.push_back(most);
        return values;
    };
    std::vector<TreeOptions> trees;
    for (const int depth : up_to(tree.depth))
        for (const int top_k : up_to(tree.top_k))
            trees.push_back(
                parse_tree(fmt::format("{}:{}:{}", tree.name.substr(0, tree.name.find(':')), depth, top_k)));
    return trees;
}

std::vector<StopRuleOptions> neighbours(const StopRuleOptions& rule, double step) {
    std::vector<StopRuleOptions> all;
    const std::vector<Parameter>& parameters = rule.type().parameters;
    for (std::size_t i = parameters.size(); i-- > 0;)
        for (const double value : values_beside(parameters[i], rule.values()[i], step, rule.max_tokens)) {
            StopRuleOptions changed = rule;
            changed.set(parameters[i].name, value);
            if (why_invalid(changed).empty()) all.push_back(changed);
        }
    return all;
}

double seconds_per_token(const Stats& stats, const Costs& costs) {
    return predicted_seconds(stats, costs) / static_cast<double>(std::max<std::int64_t>(stats.new_tokens, 1));
}

namespace {

// Identifies a setting of a search: the rule and its values.
using SettingKey = std::pair<std::string, std::vector<double>>;
SettingKey key_of(const StopRuleOptions& rule) {
    return {rule.name(), {rule.values().begin(), rule.values().end()}};
}

// The name of the group that has a best setting: a rule, a fixed tree, or a kind of trees that grow.
std::string group_of(const ReplaySetting& setting) {
    if (!setting.tree) return setting.rule.name();
    return "tree " + setting.tree->name.substr(0, setting.tree->name.find(':'));
}

class Search {
  public:
    explicit Search(const TuningTask& task) : task_(task) {}

    // Tries rules whose parameters are fitted to the longest chains that may be drafted.
    void try_fitted() {
        const auto needs_examples = [](const StopRuleType& type) { return type.fit != nullptr; };
        if (std::ranges::none_of(all_stop_rules(), needs_examples)) return;
        const std::vector<DraftedChain> chains = longest_chains();
        std::vector<StopRuleOptions> rules;
        for (const StopRuleType& type : all_stop_rules()) {
            if (!needs_examples(type)) continue;
            StopRuleOptions rule(type.name);
            rule.max_tokens = task_.max_tokens;
            type.fit(chains, rule);
            for (const Parameter& parameter : type.parameters)
                rule.set(parameter.name, in_three_digits(rule.get(parameter.name)));
            add_settings(rules, rule, 0);
        }
        try_all(rules);
    }

    // Tries the settings that were not tried yet: whole numbers have the same neighbours at every step.
    void try_all(const std::vector<StopRuleOptions>& rules) {
        std::vector<ReplaySetting> settings;
        for (const StopRuleOptions& rule : rules)
            if (tried_.insert(key_of(rule)).second)
                settings.push_back({ReplayKind::rule, rule, task_.draft, task_.costs});
        for (Simulated& simulated : simulate(*task_.head, task_.texts, settings, task_.threads))
            note(std::move(simulated));
    }

    // Tries trees, each kind under its own name.
    void try_trees() {
        std::vector<ReplaySetting> settings;
        for (const TreeOptions& widest : task_.trees)
            for (const TreeOptions& tree : narrower_trees(widest))
                if (tried_.insert({tree.name, {}}).second)
                    settings.push_back({ReplayKind::rule, tree_rule(tree), task_.draft, task_.costs, 0, tree});
        for (Simulated& simulated : simulate(*task_.head, task_.texts, settings, task_.threads))
            note(std::move(simulated));
    }

    // Tries smaller and smaller steps around the best setting of each rule.
    void refine() {
        constexpr int kMaxSteps = 4;
        for (const double step : {0.25, 0.12, 0.06, 0.03})
            for (int i = 0; i < kMaxSteps; ++i) {
                std::vector<StopRuleOptions> next;
                for (const TunedRule& rule : best_)
                    for (const StopRuleOptions& each : neighbours(rule.best.setting.rule, step))
                        next.push_back(each);
                const std::size_t before = improved_;
                try_all(next);
                if (improved_ == before) break;
            }
    }

    std::vector<TunedRule> take() {
        std::stable_sort(best_.begin(), best_.end(), [](const TunedRule& a, const TunedRule& b) {
            return a.seconds_per_token < b.seconds_per_token;
        });
        return std::move(best_);
    }

  private:
    std::vector<DraftedChain> longest_chains() const {
        constexpr double kNoEntropy = 1e9; // above every entropy: the rule needs entropies, but never fires
        StopRuleOptions longest("static", {{"threshold", kNoEntropy}});
        longest.max_tokens = task_.max_tokens;
        Replay replay(*task_.head, {ReplayKind::rule, longest, task_.draft, task_.costs});
        std::vector<DraftedChain> chains;
        for (const TextRecord* text : task_.texts)
            replay.replay(*text, [&](const ReplayedRound& round) {
                DraftedChain& chain = chains.emplace_back();
                chain.accepted = round.accepted;
                for (std::size_t i = 0; i < round.draft->tokens.size(); ++i)
                    chain.tokens.push_back({round.draft->entropies_nats[i], round.draft->probabilities[i], 0});
            });
        return chains;
    }

    void note(Simulated simulated) {
        const double seconds = seconds_per_token(simulated.stats, task_.costs);
        const auto same_rule = [&](const TunedRule& rule) {
            return group_of(rule.best.setting) == group_of(simulated.setting);
        };
        const auto found = std::find_if(best_.begin(), best_.end(), same_rule);
        const TriedSetting tried = {simulated.setting.rule, simulated.setting.tree, simulated.stats, seconds};
        if (found == best_.end()) {
            best_.push_back({std::move(simulated), seconds, {tried}});
            return;
        }
        found->tried.push_back(tried);
        if (!(seconds < found->seconds_per_token)) return;
        found->best = std::move(simulated);
        found->seconds_per_token = seconds;
        ++improved_;
    }

    const TuningTask& task_;
    std::set<SettingKey> tried_;
    std::vector<TunedRule> best_; // of each rule
    std::size_t improved_ = 0;
};

} // namespace

std::vector<TunedRule> tune(const TuningTask& task) {
    Search search(task);
    search.try_all(tuning_grid(task.max_tokens));
    search.try_fitted();
    search.refine();
    search.try_trees();
    return search.take();
}

} // namespace entrodraft::spec
