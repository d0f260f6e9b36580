// One drafting phase of one text, a row of logits at a time: whoever makes the rows asks whether another is wanted and
// hands it in, so that phases of several texts can share the passes of one model.
//
// Called by the chain drafter (one text) and by the drafter of shared passes.
#pragma once

#include "spec/draft/drafter.h"

#include <span>
#include <vector>

namespace entrodraft::spec {

class ChainPhase {
  public:
    // Begins a round of `rule` and clears `draft`. `context` is the most tokens that the model reads. What is handed
    // over outlives the phase. Local.
    void begin(const DraftRequest& request, std::size_t context, const DraftLimits& limits, TokenChooser& chooser,
               StopRule& rule, Draft& draft);
    // Whether every row's distribution is looked at, as a rule would; before begin().
    void look_at_all(bool looks) { looks_at_all_ = looks; }
    // Whether it goes on; to be asked before each row. Where not, draft.end says why. Local.
    bool wants_row(const PassCost& cost = {});
    // The row that was wanted takes so much more of a pass. Local.
    void charge(double passes) { rule_->charge(passes); }
    // The text with what is drafted so far: what the next row follows.
    std::span<const TokenId> text() const { return text_; }
    model::LogitNeeds needs() const;
    // The same for a source that is asked for this phase's row alone: with its noise, and, where the source goes on
    // with chains, with how far this one is likely to go. Valid until the next call. Local.
    model::LogitNeeds needs_alone(bool has_device_draft_loop);
    // The row that was wanted; `logits` may be empty where the needs do not ask for them. Local.
    void take(std::span<const float> logits, const model::kernels::LogitStats& summary, const dist::Clock& clock,
              const model::NoisyToken* noisy = nullptr, const float* kept = nullptr);
    // Draft::q is complete.
    void finish();
    // The draft is another's, and so is the end of the text. Local.
    void adopt();

  private:
    TokenId choose(const SeenRow& row, const model::NoisyToken* noisy);
    DraftedToken seen_adjusted(const SeenRow& row, TokenId token);

    DraftRequest request_;
    const DraftLimits* limits_ = nullptr;
    TokenChooser* chooser_ = nullptr;
    StopRule* rule_ = nullptr;
    Draft* draft_ = nullptr;
    int max_ = 0;
    bool looks_at_all_ = false;
    bool whole_ = false;    // whether distributions are looked at
    bool adjusted_ = false; // whether the rule looks at adjusted ones
    bool draws_ = false;
    std::vector<TokenId> text_;
    std::vector<float> q_;   // [drafted][vocab]
    std::vector<float> row_; // [vocab]: the adjusted distribution that the rule looks at, where none is drawn from
    model::RowNoise noise_;
    model::Chain chain_;
};

} // namespace entrodraft::spec
