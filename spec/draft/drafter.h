// What proposes tokens: the Drafter interface and the drafters there are.
//
// A drafter returns tokens with parents and, where it has one, the distribution each was drawn from.
// Called by the turns drafter and by drafters made of others, on the draft owner only.
#pragma once

#include "dist/clock.h"
#include "spec/draft/lookup_index.h"
#include "spec/logit_source.h"
#include "spec/packet.h"
#include "spec/request.h"
#include "spec/stop/stop_rule.h"
#include "spec/verify/token_choice.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::spec {

// One drafting phase's result. Chains only, for now: parents[i] == i - 1.
struct Draft {
    std::vector<TokenId> tokens;
    std::vector<int> parents;
    std::vector<float> entropies_nats; // of each token's raw distribution; NaN where not computed
    std::vector<float> probabilities;  // of each token in the raw distribution; NaN where not computed
    std::span<const float> q;          // [tokens.size()][vocab] adjusted distributions; empty where none is drawn from
    std::vector<const float*> kept;    // of texts verified on the device, [tokens.size()]: PassResult::kept of the rows
    DraftEnd end = DraftEnd::none;
    int passes = 0;             // of the model that drafts for the target, but for those hidden behind its passes
    DraftedAhead ahead;         // for this phase
    double seconds = 0;         // of the phase, but for entropy_seconds
    double entropy_seconds = 0; // on entropy and stop decision, beyond the sums that the head's pass keeps
    std::vector<Stats> levels;  // of a cascade: what its models did among themselves, the largest first

    void clear();
    // One more token, behind those there are.
    void add(TokenId token, const DraftedToken& seen);
};

struct DraftRequest {
    std::span<const TokenId> tokens; // prompt and text so far; the last one is the round's next token
    int max_tokens = 0;              // at most: what budget, target context and the cap leave
    const Request* request = nullptr;
    ChoiceSetting choice;
    // [hidden_layers()][hidden_size of the target]: its states at the last accepted row, whose token is before
    // the next token; empty in a sequence's first round.
    std::span<const float> target_hidden;
    int left_tokens = 0;             // what budget and target context leave, the cap apart
    bool verified_on_device = false; // rows stay on the GPU, see admission.h: only where the drafter keeps rows
};

class Drafter {
  public:
    virtual ~Drafter() = default;
    virtual std::string name() const = 0;
    // Layers of the target whose hidden states draft() wants. None by default.
    virtual std::vector<int> hidden_layers() const { return {}; }
    // Bytes of weights that a draft pass reads; 0 where there are none.
    virtual std::size_t weight_bytes() const { return 0; }
    // Whether rows that tokens are drawn from can stay on the GPU of this rank. Not by default.
    virtual bool keeps_logits_on_device() const { return false; }
    // A new sequence begins; nothing of the one before is kept. `request` stays where it is until the next.
    virtual void begin_sequence(const Request& request) = 0;
    // The prompt, or as much of it as the target reads next: reads all but the last of these tokens that it has not
    // read yet, so that the first round does not pay for them.
    virtual void prefill(std::span<const TokenId> prompt) = 0;
    // Drafts after the last of request.tokens until the rule fires or the budget ends. Local.
    virtual void draft(const DraftRequest& request, StopRule& rule, Draft& draft) = 0;
};

// What bounds every draft.
struct DraftLimits {
    int vocab_size = 0;              // common to draft and target
    std::vector<TokenId> eos_tokens; // drafting ends after one, unless the request ignores them

    // Why a draft ends with its last token, which the rule has verified; none where it goes on. `most` is how many
    // tokens may be drafted, by budget or by the drafter's own context. Local.
    DraftEnd why_end(const DraftRequest& request, const Draft& draft, int most, DraftEnd rule_end) const;
};

// Those of drafts for this target; `vocab_size`: tokens that target, draft and tokenizer know. Local.
DraftLimits draft_limits_of(const model::ModelConfig& target, int vocab_size);

// Tokens that a drafter may draft: by the request's budget, the rule's cap, and `context`, the most tokens it reads.
// Where that is 0, `end` says why. Local.
int max_drafted(const DraftRequest& request, const StopRule& rule, std::size_t context, DraftEnd& end);

// One pass a token over a source of logits.
std::unique_ptr<Drafter> make_chain_drafter(std::unique_ptr<LogitSource> source, const DraftLimits& limits,
                                            const dist::Clock& clock);

// What followed the end of the text when it appeared earlier (prompt lookup, Saxena 2023), whatever finds it.
std::unique_ptr<Drafter> make_lookup_drafter(std::string name, std::unique_ptr<LookupIndex> index,
                                             const DraftLimits& limits, const dist::Clock& clock);

// The first of these that drafts anything in a round.
std::unique_ptr<Drafter> make_fallback_drafter(std::vector<std::unique_ptr<Drafter>> drafters);

// A middle model that drafts by verifying, in passes of its own, what `inner` drafts for it.
struct CascadeLevel {
    std::unique_ptr<LogitSource> source;
    std::unique_ptr<Drafter> inner;
    StopRuleOptions inner_rule;
    std::optional<Costs> inner_costs; // for the rule expected-gain; none: measured as the run goes
};
std::unique_ptr<Drafter> make_cascade_drafter(CascadeLevel level, const DraftLimits& limits, const dist::Clock& clock);

} // namespace entrodraft::spec
