// Has the parts that several rules share: parameters under one option, a number of tokens as the rule, and sums over
// the entropies of the last tokens. Private to the rules' files.
#pragma once

#include "spec/stop/stop_rule.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

namespace entrodraft::spec {

inline StopRuleParameter entropy_window(std::vector<double> grid = {}) {
    return {.name = "window",
            .kind = StopRuleParameter::Kind::whole_number,
            .default_value = 7,
            .min = 1,
            .max = INT_MAX,
            .grid = std::move(grid)};
}

inline StopRuleParameter draft_length(double default_value, std::vector<double> grid = {}) {
    return {.name = "tokens",
            .kind = StopRuleParameter::Kind::draft_length,
            .default_value = default_value,
            .min = 1,
            .max = Packet::kMaxDraftTokens,
            .grid = std::move(grid)};
}

// t >= k: drafts k tokens, whatever these are. k is fixed, or moves with the end of rounds.
class DraftLength : public StopCondition {
  public:
    explicit DraftLength(const StopRuleOptions& options)
        : cap_(options.max_tokens), k_(std::min(static_cast<int>(options.get("tokens")), cap_)) {}

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<DraftLength>(*this); }
    bool fires(const Drafting& drafting) override { return drafting.drafted() >= k_; }
    void forecast(const Drafting& drafting, DeviceStopRule& rule) const override {
        rule.max_rows = std::clamp(std::max(k_ - drafting.drafted(), rule.first), 1, rule.max_rows);
    }

  protected:
    // After a round in which all drafted tokens were accepted, k grows by `growth`, else it falls by 1. It stays in
    // 1..max. Rounds that were cut short or drafted nothing do not change it.
    void move_k(const RoundFeedback& round, int growth, int max) {
        if (round.cut_short || round.drafted == 0) return;
        k_ = std::clamp(round.accepted == round.drafted ? k_ + growth : k_ - 1, 1, max);
    }

    int cap_;
    int k_;
};

// The squared entropies of the last tokens, as rules with --entropy-window compare them. An unknown latest entropy is
// NaN, so that no comparison holds. An unknown earlier one adds nothing.
struct EntropyWindow {
    double latest = 0;  // x_t^2
    double earlier = 0; // sum(x_{t-i}^2, i = 1..before)
    int before = 0;     // min(n, t - 1)

    EntropyWindow(const Drafting& drafting, int n) : before(std::min(n, drafting.drafted() - 1)) {
        const auto square = [&](int t) {
            const auto x = static_cast<double>(drafting.tokens[t].entropy_nats);
            return x * x;
        };
        latest = square(drafting.drafted() - 1);
        for (int t = drafting.drafted() - 1 - before; t < drafting.drafted() - 1; ++t)
            if (const double each = square(t); !std::isnan(each)) earlier += each;
    }
};

} // namespace entrodraft::spec
