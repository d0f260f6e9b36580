// Decides about the drafting of a whole replica: if it has paid so far, if it may be tried where it did not pay, and
// which sequence may begin.
//
// Worth, not this file, weighs single tokens. Decisions for one text are in text_policy.h.
#pragma once

#include "spec/plan/cost_model.h"
#include "spec/plan/round_values.h"

#include <array>
#include <cstdint>

namespace entrodraft::spec {

// Tokens a second over the rounds so far. Older rounds count less.
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
    // With fixed costs everything is affordable, so that such runs can be repeated exactly.
    explicit DraftPolicy(bool costs_are_fixed) : costs_are_fixed_(costs_are_fixed) {}

    // Returns whether `seconds` may be spent on drafts that may bring nothing. They may if all drafts together, these
    // seconds included, have lost at most 0.5 % of the run's time.
    bool affords(double seconds) const;
    // Returns whether this sequence may draft. Until a few tokens are verified, only one sequence of a batch does.
    bool may_begin(const BatchLoad& load, int n_verified);
    // The run's pace over the long texts that were read in this way.
    const Pace& pace_of(Reading reading) const { return paces_[static_cast<std::size_t>(reading)]; }
    // The likely number of tokens to come, if at most `left` may come. It is judged by the texts that have ended.
    double expected_left(int left) const { return left * length_share_; }
    void learn_length(int new_tokens, int max_new_tokens);
    // Rounds without a draft after which a text is probed. The number grows with each probe, and is small again once
    // drafting pays.
    int probe_gap() const { return probe_gap_; }
    // A round had a draft: because drafting paid, or as a probe.
    void drafted(bool as_probe);
    // A round of a batch has no draft because of its cost. `for_reading`: because of the reading alone.
    void decline(int sequences, bool for_reading);

    std::int64_t n_declined() const { return declined_; }
    std::int64_t n_declined_for_reading() const { return declined_for_reading_; }
    int last_sequences() const { return sequences_; } // in the batch of the last declined round

    // To be called after `costs` has learnt from the round.
    void learn(const RoundRecord& round, const CostModel& costs);

  private:
    static constexpr int kFirstGap = 8, kLastGap = 2048;

    void learn_balance(const RoundRecord& round, const CostModel& costs);

    bool costs_are_fixed_;
    int probe_gap_ = kFirstGap;
    std::array<Pace, 2> paces_;                            // [Reading]
    double length_share_ = 1;                              // mean of a text's new tokens / max_new_tokens
    double spent_seconds_ = 0;                             // of the run, by the cost model
    double balance_ = 0;                                   // seconds of these that drafts have saved; below 0: lost
    std::int64_t declined_ = 0, declined_for_reading_ = 0; // rounds
    int sequences_ = 1;
    bool one_begins_ = false; // may_begin() has let a sequence of this round begin
};

} // namespace entrodraft::spec
