// adaptive: drafts a number of tokens that changes by one after each round.
//
// Source: heuristic with a smaller step and a shorter first draft.
// Formula: t >= k; k += 1 after full acceptance, else max(1, k - 1); k stays in 1..cap.
// On a device: a chain of k rows.
#include "spec/stop/shared.h"

namespace entrodraft::spec {

namespace {

class Adaptive final : public DraftLength {
  public:
    using DraftLength::DraftLength;

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<Adaptive>(*this); }
    void end_round(const Drafting&, const RoundFeedback& round) override { move_k(round, 1, cap_); }
};

} // namespace

StopRuleType adaptive_rule() {
    return {.name = "adaptive",
            .position = 60,
            .looks_at = LooksAt::nothing,
            .parameters = {draft_length(3)},
            .make = make_stop_condition<Adaptive>};
}

} // namespace entrodraft::spec
