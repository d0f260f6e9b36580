// Whether a text's round drafts: whether the draft's reading pays, and whether drafting is tried where it did not pay.
//
// One for each sequence, inside the stop rule expected-gain; the replica's share of the decision is DraftPolicy.
#pragma once

#include "spec/plan/worth.h"

#include <optional>

namespace entrodraft::spec {

class TextPolicy {
  public:
    // `gain` is the replica's and outlives it; `cap`: most tokens of a draft.
    TextPolicy(GainModel* gain, int cap) : gain_(gain), cap_(cap) {}

    void begin_text();
    void begin_round() { is_probe_ = false; }
    // How many of the text's unread tokens the draft is to read: all, or its last ones alone.
    int tokens_to_read(const RoundContext& round);
    // Whether what drafting is expected to save in all that is left of the text exceeds the time in which the draft
    // reads what it has not read of it: at first the prompt.
    bool reading_pays(const RoundContext& round, const PassCost& cost) const;
    // Whether a round drafts its first token. `drafting_pays`: as far as is known, without the reading.
    bool begins(const Worth& worth, const RoundContext& round, const PassCost& cost, bool drafting_pays, bool reads);
    // Whether this round drafts one token to learn from.
    bool is_probe() const { return is_probe_; }

    // What the draft has read of a long text, if it read some in a round with this many tokens caught up.
    std::optional<Reading> reading_after(int caught_up);
    // A round with so many drafted tokens teaches the replica when to probe.
    void teach(int drafted, bool reads_on);
    // The same round teaches this text.
    void settle(int drafted, bool was_asked, bool reads_on);

  private:
    bool reads_all(const RoundContext& round) const;
    bool wants_probe(const Worth& worth, const RoundContext& round, const PassCost& cost);

    GainModel* gain_;
    int cap_;
    int plain_rounds_ = -1;          // rounds of this text since anything was drafted; -1: none yet
    bool is_probe_ = false;          // this round
    bool is_near_ = false;           // where it does not draft, little is missing
    std::optional<Reading> wanted_;  // of this text, if it is long
    std::optional<Reading> reading_; // that, once it was read
};

} // namespace entrodraft::spec
