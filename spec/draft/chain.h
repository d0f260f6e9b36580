// One drafting phase of one text, a row of logits at a time: whoever makes the rows asks whether another is wanted and
// hands it in, so that phases of several texts can share the passes of one model.
//
// Called by the chain drafter (chain.cpp) and by the drafter that drafts ahead.
#pragma once

#include "spec/draft/drafter.h"

#include <span>
#include <vector>

namespace entrodraft::spec {

class ChainPhase {
  public:
    // Begins a round of the task's rule and clears its draft. `context` is the most tokens that the model reads. What
    // is handed over outlives the phase. Local.
    void begin(const DraftTask& task, std::size_t context, const DraftLimits& limits, TokenChooser& chooser);
    // Whether every row's distribution is looked at, as a rule would; before begin().
    void look_at_all(bool looks) { looks_at_all_ = looks; }
    // Whether it goes on; to be asked before each row. Where not, draft.end says why. Local.
    bool wants_row(const PassCost& cost = {});
    // The text with what is drafted so far: what the next row follows.
    std::span<const TokenId> text() const { return text_; }
    // What the next row needs: its noise and, of a source that is asked for this row alone on a GPU, `device`, how far
    // it is to go on by itself. Valid until the next call. Local.
    model::LogitNeeds needs(DeviceVerifier* device);
    // The row that was wanted; `logits` may be empty where the needs do not ask for them. Local.
    void take(std::span<const float> logits, const model::kernels::LogitStats& summary, const dist::Clock& clock,
              const model::NoisyToken* noisy = nullptr);
    // Draft::q is complete.
    void finish();
    // The draft is another's, and so is the end of the text. Local.
    void adopt();

  private:
    TokenId choose(const SeenLogits& row, const model::NoisyToken* noisy);
    DraftedToken seen_adjusted(const SeenLogits& row, TokenId token);

    DraftTask task_;
    const DraftLimits* limits_ = nullptr;
    TokenChooser* chooser_ = nullptr;
    int max_ = 0;
    bool looks_at_all_ = false;
    bool whole_ = false;    // whether distributions are looked at
    bool adjusted_ = false; // whether the rule looks at adjusted ones
    bool draws_ = false;
    std::vector<TokenId> text_;
    std::vector<float> q_;   // [drafted][vocab]
    std::vector<float> row_; // [vocab]: the adjusted distribution that the rule looks at, where none is drawn from
    model::RowNoise noise_;
};

} // namespace entrodraft::spec
