// What a replica knows of drafting as a whole: whether it has paid so far, whether it may be tried where it did not,
// and whose turn it is.
//
// It asks nothing of a single token: Worth does. What is asked for a text is in text_policy.h.
#pragma once

#include "spec/plan/cost_model.h"
#include "spec/plan/round_values.h"

#include <array>
#include <cstdint>

namespace entrodraft::spec {

// Tokens a second over rounds that fade.
class Pace {
  public:
    static constexpr int kFirstRounds = 20;

    void learn(int tokens, double seconds);
    bool is_known() const { return rounds_ >= kFirstRounds && seconds_ > 0; }
    double tokens_per_second() const { return is_known() ? tokens_ / seconds_ : 0; }
    double seconds_per_token() const { return is_known() ? seconds_ / tokens_ : 0; }

  private:
    double tokens_ = 0, seconds_ = 0; // decayed sums
    int rounds_ = 0;
};

class DraftPolicy {
  public:
    // Where costs are fixed, all is affordable: such runs are to be repeated exactly.
    explicit DraftPolicy(bool costs_are_fixed) : costs_are_fixed_(costs_are_fixed) {}

    // Whether so many seconds may be spent on drafts that may bring nothing: then what all drafts have cost beyond what
    // they brought is at most half a hundredth of the run.
    bool affords(double seconds) const;
    // While next to nothing is known of acceptance, one sequence of a batch drafts at a time: whether it is this one.
    bool may_begin(const BatchLoad& load, int n_verified);
    // The run's pace over long texts of which so much was read.
    const Pace& pace_of(Reading reading) const { return paces_[reading]; }
    // How many of the `left` tokens that a text may still have it is likely to have, by those that have ended.
    double expected_left(int left) const { return left * length_share_; }
    void learn_length(int new_tokens, int max_new_tokens);
    // Rounds without drafting after which a text is probed: more after each probe, few again once drafting pays.
    int probe_gap() const { return probe_gap_; }
    // A round had a draft, because that paid or as a probe.
    void drafted(bool as_probe);
    // A round of a batch of so many sequences has no draft, for what it would cost.
    void decline(int sequences, bool for_reading);

    std::int64_t n_declined() const { return declined_; }
    std::int64_t n_declined_for_reading() const { return declined_for_reading_; }
    int last_sequences() const { return sequences_; } // of the last declined round

    // `costs` have learnt from the round already.
    void learn(const RoundRecord& round, const CostModel& costs);

  private:
    static constexpr int kFirstGap = 8, kLastGap = 2048;

    void learn_balance(const RoundRecord& round, const CostModel& costs);

    bool costs_are_fixed_;
    int probe_gap_ = kFirstGap;
    std::array<Pace, 2> paces_;                            // [Reading]
    double length_share_ = 1;                              // of max_new_tokens that texts come to
    double spent_seconds_ = 0;                             // of the run, in the model's own times
    double balance_ = 0;                                   // of these, what drafts have saved; below 0: lost
    std::int64_t declined_ = 0, declined_for_reading_ = 0; // rounds
    int sequences_ = 1;
    bool one_begins_ = false; // a sequence of this round, by may_begin()
};

} // namespace entrodraft::spec
