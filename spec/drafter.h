// What proposes tokens: the Drafter interface and the model drafter.
//
// A drafter returns tokens with parents and, where it has one, the distribution each was drawn from.
// Called by the round, on the draft owner only.
#pragma once

#include "entrodraft/dist/clock.h"
#include "entrodraft/model/decoder.h"
#include "entrodraft/spec/ngram_index.h"
#include "entrodraft/spec/packet.h"
#include "entrodraft/spec/request.h"
#include "entrodraft/spec/stop_rule.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::spec {

// One drafting phase's result. Chains only, for now: parents[i] == i - 1.
struct Draft {
    std::vector<TokenId> tokens;
    std::vector<int> parents;
    std::vector<float> entropies_nats; // of each token's unadjusted distribution; NaN where not computed
    std::vector<float> probabilities;  // of each token in the unadjusted distribution; NaN where not computed
    std::span<const float> q;          // [tokens.size()][vocab] adjusted distributions; empty when greedy
    DraftEnd end = DraftEnd::none;
    int passes = 0;
    double seconds = 0;         // of the phase, but for entropy_seconds
    double entropy_seconds = 0; // on entropy and stop decision, beyond the sums that the head's pass keeps

    void clear();
};

struct DraftRequest {
    std::span<const TokenId> tokens; // prompt and text so far; the last one is the round's next token
    int most_tokens = 0;             // what budget and target context leave
    const Request* request = nullptr;
    // [hidden_layers()][hidden_size of the target]: its states at the last row that stood, whose token stands before
    // the next token; empty in a sequence's first round.
    std::span<const float> target_hidden;
};

class Drafter {
  public:
    virtual ~Drafter() = default;
    virtual std::string name() const = 0;
    // Layers of the target whose hidden states draft() wants. None by default.
    virtual std::vector<int> hidden_layers() const { return {}; }
    // Bytes of weights that a draft pass reads; 0 where there are none.
    virtual std::size_t weight_bytes() const { return 0; }
    // A new sequence begins; nothing of the one before stands.
    virtual void begin_sequence() = 0;
    // Reads the prompt, all but its last token, so that the first round does not pay for it.
    virtual void prefill(std::span<const TokenId> prompt) = 0;
    // Drafts after the last of request.tokens until the rule fires or the budget ends. Local.
    virtual void draft(const DraftRequest& request, StopRule& rule, Draft& draft) = 0;
};

// What bounds every draft.
struct DraftLimits {
    int vocab_size = 0;              // common to draft and target
    std::vector<TokenId> eos_tokens; // drafting ends after one, unless the request ignores them

    // Why a draft ends with its last token, which the rule has judged; none where it goes on. `most` is how many
    // tokens may be drafted, by budget or by the drafter's own context. Local.
    DraftEnd why_end(const DraftRequest& request, const Draft& draft, int most, DraftEnd rule_end) const;
};

// A draft model on this rank alone. `decoder` is owned by the caller and outlives the drafter.
std::unique_ptr<Drafter> make_model_drafter(model::Decoder& decoder, const DraftLimits& limits,
                                            const dist::Clock& clock);

// What followed the longest n-gram of prompt and text that ends the text (prompt lookup, Saxena 2023).
std::unique_ptr<Drafter> make_ngram_drafter(const NgramOptions& ngram, const DraftLimits& limits,
                                            const dist::Clock& clock);

} // namespace entrodraft::spec
