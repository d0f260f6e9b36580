// Decides if a round of a text drafts. It decides if it pays that the draft reads the text, and if drafting is tried
// where it did not pay.
//
// Each sequence has one, inside the stop rule expected-gain. DraftPolicy decides for the whole replica.
#pragma once

#include "spec/plan/worth.h"

#include <optional>

namespace entrodraft::spec {

class TextPolicy {
  public:
    // `gain` is the replica's and must outlive this object. `cap`: the most tokens of a draft.
    TextPolicy(GainModel* gain, int cap) : gain_(gain), cap_(cap) {}

    void begin_round() { is_probe_ = false; }
    // The number of the text's unread tokens that the draft should read: all, or only the last ones.
    int tokens_to_read(const RoundContext& round);
    // Returns whether it pays that the draft reads the tokens it has not read, at first the prompt. It pays if drafting
    // is expected to save more time in the rest of the text than the reading takes.
    bool reading_pays(const RoundContext& round, const PassCost& cost) const;
    // Returns whether a round drafts its first token. `drafting_pays`: as far as is known, without the reading.
    bool begins(const Worth& worth, const RoundContext& round, const PassCost& cost, bool drafting_pays, bool reads);
    // True if this round drafts one token only to learn from it.
    bool is_probe() const { return is_probe_; }

    // The part of a long text that the draft has read, if any. `caught_up`: tokens that it read in this round.
    std::optional<Reading> reading_after(int caught_up);
    // Teaches the replica when to probe, from a round with `drafted` tokens. `reads_on`: the draft only read in it.
    void teach(int drafted, bool reads_on);
    // Teaches this text from the same round.
    void settle(int drafted, bool was_asked, bool reads_on);

  private:
    bool reads_all(const RoundContext& round) const;
    bool wants_probe(const Worth& worth, const RoundContext& round, const PassCost& cost);

    GainModel* gain_;
    int cap_;
    int plain_rounds_ = -1;          // rounds of this text since its last draft; -1: no round yet
    bool is_probe_ = false;          // this round is one
    bool is_near_ = false;           // a little more acceptance would make drafting pay
    std::optional<Reading> wanted_;  // the part of this text to read, if it is long
    std::optional<Reading> reading_; // the same, once it was read
};

} // namespace entrodraft::spec
