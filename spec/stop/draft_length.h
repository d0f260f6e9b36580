// Rules that draft k tokens, whatever these are; k stays, or moves with how rounds end. Private to the rules' files.
#pragma once

#include "spec/stop/stop_rule.h"

#include <algorithm>
#include <memory>

namespace entrodraft::spec {

// t >= k
class DraftLength : public StopCondition {
  public:
    explicit DraftLength(const StopRuleOptions& options)
        : first_k_(std::min(static_cast<int>(options.get("num-draft-tokens")), options.max_tokens)),
          cap_(options.max_tokens) {}

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<DraftLength>(*this); }
    void begin_sequence() override { k_ = first_k_; }
    bool fires(const Drafting& drafting) override { return drafting.drafted() >= k_; }
    void forecast(const Drafting& drafting, DeviceStopRule& rule) const override {
        rule.max_rows = std::clamp(std::max(k_ - drafting.drafted(), rule.first), 1, rule.max_rows);
    }

  protected:
    int k() const { return k_; }
    void set_k(int k) { k_ = k; }
    // k += `growth` after a round in which all drafted tokens were accepted, else k - 1, in 1..max. Rounds that were
    // cut short or drafted nothing leave it.
    void move_k(const RoundFeedback& round, int growth, int max) {
        if (round.cut_short || round.drafted == 0) return;
        k_ = std::clamp(round.accepted == round.drafted ? k_ + growth : k_ - 1, 1, max);
    }
    int cap() const { return cap_; }

  private:
    int first_k_;
    int cap_;
    int k_ = 0;
};

} // namespace entrodraft::spec
