// Makes the children of a token in a tree, from the row of logits after the token.
//
// Called by the drafter of trees, and by the recorder.
#pragma once

#include "spec/draft/chain.h"
#include "spec/draft/tree_growth.h"

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace entrodraft::spec {

// The row that a pass has made after `text`.
struct RowOfText {
    std::span<const float> logits; // [vocab]
    model::LogitStats summary;
    std::span<const TokenId> text;
};

// The siblings of one sequence.
class Siblings {
  public:
    void begin_sequence(const Request& request, std::span<const TokenId> eos_tokens);
    // Returns whether verification needs the distributions that tokens were drawn from.
    bool draws(Acceptance acceptance) const { return chooser_.draws(acceptance); }

    // The `n` first choices, best first, or fewer if fewer can be emitted. By logit, with the noise that the target
    // will add.
    std::vector<TreeChild> best(const RowOfText& row, int n, Acceptance acceptance);
    // The same for a row whose tokens a GPU has ranked, with the plan's noise.
    std::vector<TreeChild> best(const RankedRow& row, int n) const;
    // Returns whether a GPU can rank them: no filter, ban or penalty applies. If so, sets how the plan ranks the tokens
    // of the row after `position` tokens.
    bool ranks_on_device(std::uint64_t position, Acceptance acceptance, DeviceTreePlan& plan) const;
    // Draws n siblings one after another, each from the part of the draft's distribution that the earlier ones leave.
    std::vector<TreeChild> drawn(const RowOfText& row, int n, const ChoiceSetting& choice, std::size_t round_start);

  private:
    std::span<const float> values_of(const SeenLogits& row, std::uint64_t position, Acceptance acceptance);
    const std::vector<float>& noise_at(std::uint64_t position, std::size_t vocab);

    const Request* request_ = nullptr;
    TokenChooser chooser_;
    std::vector<float> values_;                         // [vocab]
    std::vector<float> left_;                           // [vocab]: the part that filters or earlier siblings leave
    std::map<std::uint64_t, std::vector<float>> noise_; // [vocab], by position
};

} // namespace entrodraft::spec
