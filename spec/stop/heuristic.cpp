// heuristic: drafts more tokens after rounds in which every token was accepted, and fewer after other rounds.
//
// Source: transformers' heuristic_transient. With `persistent`, it is the heuristic of transformers 4.37, the baseline
// of the thesis "Entropy Drafting" (2024).
// Formula: stop at t >= k drafted tokens; then k += 2 after full acceptance, else k = max(1, k - 1); k stays in 1..cap.
// With `persistent`, k is kept from text to text, its upper limit is 127, and a round that was cut short (by budget,
// context or end of text) counts as not fully accepted. On a device: a chain of k rows.
#include "spec/stop/shared.h"

namespace entrodraft::spec {

namespace {

class Heuristic final : public DraftLength {
  public:
    Heuristic(const StopRuleOptions& options, GainModel* gain)
        : DraftLength(options), kept_(options.is_persistent() ? gain : nullptr) {
        if (kept_ != nullptr) k_ = kept_->kept_draft_tokens.value_or(k_);
    }

    std::unique_ptr<StopCondition> clone() const override { return std::make_unique<Heuristic>(*this); }
    void end_round(const Drafting&, const RoundFeedback& round) override {
        if (kept_ != nullptr && round.cut_short) k_ = std::max(1, k_ - 1); // fewer than k were accepted
        move_k(round, 2, kept_ != nullptr ? Packet::kMaxDraftTokens : cap_);
        if (kept_ != nullptr && !round.is_foreseen) kept_->kept_draft_tokens = k_;
    }

  private:
    GainModel* kept_; // keeps k from text to text; nullptr: k is not kept
};

} // namespace

StopRuleType heuristic_rule() {
    return {.name = "heuristic",
            .position = 50,
            .looks_at = LooksAt::nothing,
            .parameters = {draft_length(5),
                           {.name = "persistent",
                            .kind = StopRuleParameter::Kind::on_off,
                            .max = 1,
                            .grid = {1, 0},
                            .is_persistence = true}},
            .make = make_stop_condition<Heuristic>};
}

} // namespace entrodraft::spec
