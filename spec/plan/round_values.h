// Has the values from which a round is planned: facts about a drafted token, about the coming pass and about a past
// round.
//
// Plain values without behaviour. The models of this folder learn from them; stop rules and drafters fill them in.
#pragma once

#include <limits>
#include <optional>
#include <span>

namespace entrodraft::spec {

// The facts about a drafted token. NaN: the drafter has no distribution, and no rule fires on the token. Floats, so
// that a recording holds exactly the values that rules see.
struct DraftedToken {
    float entropy_nats = std::numeric_limits<float>::quiet_NaN(); // raw, of the distribution it was drawn from
    float probability = std::numeric_limits<float>::quiet_NaN();  // of the token, in that distribution
    int match_length = 0;                                         // tokens of the text that a look-up matched
    // The token's lead over the second-best token: in logits for greedy text, under `gumbel` in logit / temperature +
    // noise. NaN: not known, or the token was not chosen by these values.
    float margin = std::numeric_limits<float>::quiet_NaN();
};

// The other sequences of a target pass. A sequence alone has none.
struct BatchLoad {
    int rows_beside = 0; // rows of the other sequences
    int sequences = 1;   // this one included: they share the cost of the pass
};

// The state in which a round's draft begins.
struct RoundContext {
    BatchLoad load = {}; // of the target's pass, as far as is known
    int texts = 1;       // in slots, also those whose prompts are not read yet
    int unread = 0;      // tokens of the text that the draft has not read; the last one does not count
    int left = 0;        // tokens that the text may still have
    // The draft has read nothing of the text, and may read only its end.
    bool may_begin_within = false;
};

// The cost of drafting on, in draft passes. A look-up costs none. A pass of a cascade's middle model brings several
// tokens.
struct PassCost {
    double next = 1;                    // passes that must be made now
    double each = 1;                    // mean passes for a token
    std::optional<BatchLoad> load = {}; // of the target's pass, if it has changed since the round began
};

// The part of a long text that the draft reads before it drafts: all, or only its end, as if the text began there.
enum class Reading { all, end };

// The end of a round, for rules that learn.
struct RoundFeedback {
    int drafted = 0;             // tokens; of a tree, those on its best path, which rules have seen
    int accepted = 0;            // of the drafted tokens
    bool cut_short = false;      // by budget, context or end of text: rules learn nothing from its length
    double draft_seconds = 0;    // of all draft passes
    double target_seconds = 0;   // of everything in the round but drafting
    BatchLoad batch_load = {};   // of the target's pass
    int rows = 0;                // of this sequence in that pass; 0: drafted + 1
    int emitted = 0;             // emitted tokens, also off a tree's best path; 0: accepted + 1
    int caught_up = 0;           // tokens of the text that the draft read before its passes
    double catch_up_seconds = 0; // time of that reading, not in draft_seconds
    bool is_foreseen = false;    // true: the round has not ended, and may end otherwise
};

// The record of one round of a sequence.
struct RoundRecord : RoundFeedback {
    std::span<const DraftedToken> tokens; // the drafted tokens
    double residual = 0;                  // acceptance residual (TextResidual) of the text when they were verified
    double draft_passes = 0;
    double further_draft_rows = 0;                 // rows of the draft passes, beyond one for each pass
    std::optional<Reading> reading = std::nullopt; // none: the text is short

    int n_rows() const { return rows > 0 ? rows : static_cast<int>(tokens.size()) + 1; }
    int n_emitted() const { return emitted > 0 ? emitted : accepted + 1; }
    int n_drafted() const { return static_cast<int>(tokens.size()); }
};

} // namespace entrodraft::spec
