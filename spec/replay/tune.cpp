// The search for settings: see tune.h.
#include "spec/replay/tune.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

namespace entrodraft::spec {

std::vector<StopRuleOptions> tuning_grid(int max_tokens) {
    std::vector<StopRuleOptions> grid;
    StopRuleOptions rule;
    rule.max_tokens = max_tokens;
    const auto add = [&](StopRuleKind kind) {
        rule.kind = kind;
        grid.push_back(rule);
    };
    for (double tau : {0.5, 1.0, 1.5, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0}) {
        rule.threshold = tau;
        add(StopRuleKind::static_threshold);
    }
    for (double tau : {2.0, 5.0, 10.0, 15.0, 20.0, 30.0}) {
        rule.threshold = tau;
        add(StopRuleKind::cumulative);
    }
    rule.threshold.reset();
    for (int lambda = 4; lambda <= 12; ++lambda)
        for (int window : {1, 3, 7}) {
            rule.factor = lambda / 10.0;
            rule.window = window;
            add(StopRuleKind::moving_average);
        }
    for (int k = 1; k <= std::min(8, max_tokens); ++k) {
        rule.num_draft_tokens = k;
        add(StopRuleKind::constant);
    }
    rule.num_draft_tokens = std::min(5, max_tokens);
    for (const bool persistent : {true, false}) {
        rule.persistent = persistent;
        add(StopRuleKind::heuristic);
    }
    rule.num_draft_tokens = std::min(3, max_tokens);
    add(StopRuleKind::adaptive);
    for (double c : {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}) {
        rule.confidence = c;
        add(StopRuleKind::confidence);
    }
    for (double h : {0.3, 0.4, 0.5, 0.6, 0.7, 0.8}) {
        rule.svip_threshold = h;
        add(StopRuleKind::svip);
    }
    for (double gamma : {0.02, 0.05, 0.1, 0.2}) {
        rule.adaedl_gamma = gamma;
        add(StopRuleKind::adaedl);
    }
    add(StopRuleKind::expected_gain);
    return grid;
}

namespace {

// To three digits: no more is known of a best setting, and people read it.
double in_three_digits(double value) {
    if (value == 0) return 0;
    const double scale = std::pow(10.0, 2 - std::floor(std::log10(std::abs(value))));
    return std::round(value * scale) / scale;
}

void add_if_valid(std::vector<StopRuleOptions>& to, const StopRuleOptions& rule) {
    if (why_invalid(rule).empty()) to.push_back(rule);
}

// With a number of the rule a share up and down.
template <typename Change>
void add_scaled(std::vector<StopRuleOptions>& to, const StopRuleOptions& rule, double step, const Change& change) {
    for (const double factor : {1 - step, 1 + step}) {
        StopRuleOptions changed = rule;
        change(changed, factor);
        add_if_valid(to, changed);
    }
}

void add_counted(std::vector<StopRuleOptions>& to, const StopRuleOptions& rule) {
    for (const int more : {-1, 1}) {
        StopRuleOptions changed = rule;
        changed.num_draft_tokens = std::min(rule.num_draft_tokens_or_default() + more, rule.max_tokens);
        add_if_valid(to, changed);
    }
}

void add_windows(std::vector<StopRuleOptions>& to, const StopRuleOptions& rule) {
    for (const int more : {-1, 1}) {
        StopRuleOptions changed = rule;
        changed.window += more;
        add_if_valid(to, changed);
    }
}

} // namespace

std::vector<StopRuleOptions> neighbours(const StopRuleOptions& rule, double step) {
    std::vector<StopRuleOptions> all;
    const auto scale_threshold = [](StopRuleOptions& r, double factor) {
        r.threshold = in_three_digits(r.threshold_or_default() * factor);
    };
    switch (rule.kind) {
    case StopRuleKind::cumulative:
        add_windows(all, rule);
        [[fallthrough]];
    case StopRuleKind::static_threshold:
        add_scaled(all, rule, step, scale_threshold);
        break;
    case StopRuleKind::moving_average:
        add_windows(all, rule);
        add_scaled(all, rule, step,
                   [](StopRuleOptions& r, double factor) { r.factor = in_three_digits(r.factor * factor); });
        break;
    case StopRuleKind::constant:
    case StopRuleKind::heuristic:
    case StopRuleKind::adaptive:
        add_counted(all, rule);
        break;
    case StopRuleKind::confidence:
        add_scaled(all, rule, step,
                   [](StopRuleOptions& r, double factor) { r.confidence = in_three_digits(r.confidence * factor); });
        break;
    case StopRuleKind::svip:
        add_scaled(all, rule, step, [](StopRuleOptions& r, double factor) {
            r.svip_threshold = in_three_digits(r.svip_threshold * factor);
        });
        break;
    case StopRuleKind::adaedl:
        add_scaled(all, rule, step, [](StopRuleOptions& r, double factor) {
            r.adaedl_gamma = in_three_digits(r.adaedl_gamma * factor);
        });
        break;
    case StopRuleKind::expected_gain:
        break; // nothing to tune
    }
    return all;
}

double seconds_per_token(const Stats& stats, const Costs& costs) {
    return predicted_seconds(stats, costs) / static_cast<double>(std::max<std::int64_t>(stats.new_tokens, 1));
}

namespace {

// What tells settings of a search apart: the rule, and all numbers that a grid or a neighbour changes.
using Numbers = std::tuple<StopRuleKind, double, double, int, int, bool, double, double, double>;
Numbers numbers_of(const StopRuleOptions& rule) {
    return {rule.kind,
            rule.threshold_or_default(),
            rule.factor,
            rule.window,
            rule.num_draft_tokens_or_default(),
            rule.persistent,
            rule.confidence,
            rule.svip_threshold,
            rule.adaedl_gamma};
}

class Search {
  public:
    explicit Search(const TuningTask& task) : task_(task) {}

    // Those that were not tried yet: whole numbers have the same neighbours at every step.
    void try_all(const std::vector<StopRuleOptions>& rules) {
        std::vector<ReplaySetting> settings;
        for (const StopRuleOptions& rule : rules)
            if (tried_.insert(numbers_of(rule)).second)
                settings.push_back({ReplayKind::rule, rule, task_.draft, task_.costs});
        for (Simulated& simulated : simulate(*task_.head, task_.texts, settings, task_.threads))
            note(std::move(simulated));
    }

    // Smaller and smaller steps around the best of each rule.
    void refine() {
        constexpr int kMostSteps = 4;
        for (const double step : {0.25, 0.12, 0.06, 0.03})
            for (int i = 0; i < kMostSteps; ++i) {
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
    void note(Simulated simulated) {
        const double seconds = seconds_per_token(simulated.stats, task_.costs);
        const auto same_rule = [&](const TunedRule& rule) {
            return rule.best.setting.rule.kind == simulated.setting.rule.kind;
        };
        const auto found = std::find_if(best_.begin(), best_.end(), same_rule);
        const TriedSetting tried = {simulated.setting.rule, simulated.stats, seconds};
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
    std::set<Numbers> tried_;
    std::vector<TunedRule> best_; // of each rule
    std::size_t improved_ = 0;
};

} // namespace

std::vector<TunedRule> tune(const TuningTask& task) {
    Search search(task);
    search.try_all(tuning_grid(task.max_tokens));
    search.refine();
    return search.take();
}

} // namespace entrodraft::spec
