// The values that a round's plan is made of: what is known of a drafted token, of the pass to come and of a round that
// has ended.
//
// Plain values without behaviour. The models of this folder learn from them; stop rules and drafters fill them in.
#pragma once

#include <limits>
#include <optional>
#include <span>

namespace entrodraft::spec {

// What is known of a drafted token. NaN: the drafter has no distribution, and no rule fires on it. Floats, so that a
// recording holds exactly what rules go by.
struct DraftedToken {
    float entropy_nats = std::numeric_limits<float>::quiet_NaN(); // of the distribution it was drawn from, raw
    float probability = std::numeric_limits<float>::quiet_NaN();  // its own in that distribution
    int match_length = 0;                                         // tokens of the text that a look-up matched
    // By how much it is ahead of the second-best token: of greedy text in logits, under `gumbel` in logit / temperature
    // + noise. NaN: not known, or it was not chosen so.
    float margin = std::numeric_limits<float>::quiet_NaN();
};

// The other sequences of a target pass. A sequence alone has none.
struct BatchLoad {
    int rows_beside = 0; // rows of the other sequences
    int sequences = 1;   // with this one: they share what the pass costs
};

// What a round's draft begins with.
struct RoundContext {
    BatchLoad load = {}; // of the target's pass, as far as is known
    int texts = 1;       // in slots, also those whose prompts are still to be read
    int unread = 0;      // tokens of the text that the draft would have to read first, beyond the last ones
    int left = 0;        // tokens that the text may still have
};

// What drafting on costs, in draft passes. A look-up costs none; a pass of a cascade's middle model brings several
// tokens.
struct PassCost {
    double next = 1;                    // passes that have to be made now
    double each = 1;                    // passes a token, on average
    std::optional<BatchLoad> load = {}; // of the target's pass, where it has changed since the round began
};

// What the draft reads of a long text before it drafts: all of it, or its end, as if the text began there.
enum class Reading { all, end };

// One round of a sequence as it went.
struct RoundRecord {
    std::span<const DraftedToken> tokens; // the drafted ones
    double residual = 0;                  // of their text (TextResidual), as it was when they were verified
    int accepted = 0;
    double draft_passes = 0;
    double draft_seconds = 0;  // of all draft passes
    double target_seconds = 0; // of the pass over the rows of the whole batch, and of everything around it
    BatchLoad batch_load = {};
    int rows = 0;                                  // of this sequence in that pass; 0: one more than tokens
    int emitted = 0;                               // tokens; 0: one more than accepted
    double further_draft_rows = 0;                 // rows of the draft passes, beyond one each
    int caught_up = 0;                             // tokens that the draft read before its passes, ...
    double catch_up_seconds = 0;                   // ... which are not among draft_seconds
    std::optional<Reading> reading = std::nullopt; // none: the text is short

    int n_rows() const { return rows > 0 ? rows : static_cast<int>(tokens.size()) + 1; }
    int n_emitted() const { return emitted > 0 ? emitted : accepted + 1; }
    int n_drafted() const { return static_cast<int>(tokens.size()); }
};

} // namespace entrodraft::spec
