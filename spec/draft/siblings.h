// The children that a tree gives a token, out of the row of logits behind it.
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

// The row that follows `text`, as a pass has made it.
struct RowOfText {
    std::span<const float> logits; // [vocab]
    model::LogitStats summary;
    std::span<const TokenId> text;
};

// Of one sequence.
class Siblings {
  public:
    void begin_sequence(const Request& request, std::span<const TokenId> eos_tokens);
    // Whether verification needs the distributions that tokens were drawn from.
    bool draws(Acceptance acceptance) const { return chooser_.draws(acceptance); }

    // The `n` first choices, the best first, fewer where fewer can be emitted: by logit, with the noise that the target
    // will add.
    std::vector<TreeChild> best(const RowOfText& row, int n, Acceptance acceptance);
    // The same where a GPU has ranked the row's tokens, as the plan's noise has it.
    std::vector<TreeChild> best(const RankedRow& row, int n) const;
    // Whether a GPU can rank them: nothing is filtered, banned or weighed. Then the plan has what they are ranked by in
    // the row that follows `position` tokens.
    bool ranks_on_device(std::uint64_t position, Acceptance acceptance, DeviceTreePlan& plan) const;
    // As many, drawn one after another from what those before leave of the draft's distribution.
    std::vector<TreeChild> drawn(const RowOfText& row, int n, const ChoiceSetting& choice, std::size_t round_start);

  private:
    std::span<const float> values_of(const SeenLogits& row, std::uint64_t position, Acceptance acceptance);
    const std::vector<float>& noise_at(std::uint64_t position, std::size_t vocab);

    const Request* request_ = nullptr;
    TokenChooser chooser_;
    std::vector<float> values_;                         // [vocab]
    std::vector<float> left_;                           // [vocab]: what filters or earlier siblings leave
    std::map<std::uint64_t, std::vector<float>> noise_; // [vocab], by position
};

} // namespace entrodraft::spec
