// What proposes tokens: the interface, what every drafter needs for it, and drafters that are made of others. Drafters
// by name are in drafter_type.h.
//
// A drafter works for all sequences of a replica, each in its slot. It returns tokens with parents and, where it has
// one, the distribution each was drawn from. Called by the round, on the draft owner only.
#pragma once

#include "dist/clock.h"
#include "spec/draft/logit_source.h"
#include "spec/packet.h"
#include "spec/request.h"
#include "spec/stop/stop_rule.h"
#include "spec/verify/token_choice.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::spec {

class LookupIndex;

// One drafting phase's result. Chains only, for now: parents[i] == i - 1.
struct Draft {
    std::vector<TokenId> tokens;
    std::vector<int> parents;
    std::vector<float> entropies_nats; // of each token's raw distribution; NaN where not computed
    std::vector<float> probabilities;  // of each token in the raw distribution; NaN where not computed
    std::span<const float> q;          // [tokens.size()][vocab] adjusted distributions; empty where none is drawn from
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

// What one sequence of a round wants drafted, and where that goes. All of it outlives the round.
struct DraftTask {
    int slot = 0;
    std::span<const TokenId> tokens; // prompt and text so far; the last one is the round's next token
    int max_tokens = 0;              // at most: what budget, target context and the cap leave
    const Request* request = nullptr;
    ChoiceSetting choice;
    StopRule* rule = nullptr;
    Draft* draft = nullptr;
    int left_tokens = 0; // what budget and target context leave, the cap apart
    // [hidden_layers()][hidden_size of the target]: its states at the last accepted row, whose token is before
    // the next token; empty in a sequence's first round.
    std::span<const float> target_hidden = {};
    bool verified_on_device = false; // rows stay on the GPU, see packet.h: only where the drafter keeps rows
};

class Drafter {
  public:
    virtual ~Drafter() = default;
    virtual std::string name() const = 0;
    // Bytes of weights that a draft pass reads; 0 where there are none.
    virtual std::size_t weight_bytes() const { return 0; }
    // Layers of the target whose hidden states propose() wants. None by default.
    virtual std::vector<int> hidden_layers() const { return {}; }
    // Whether rows that tokens are drawn from can stay on the GPU of this rank. Not by default.
    virtual bool keeps_logits_on_device() const { return false; }

    // A new sequence begins in the slot; nothing of the one before is kept. `request` stays where it is until the next.
    virtual void begin_sequence(int slot, const Request& request) = 0;
    // The prompt, or as much of it as the target reads next: reads all but the last of these tokens that it has not
    // read yet, so that the first round does not pay for them. Nothing by default.
    virtual void prefill(int /*slot*/, std::span<const TokenId> /*prompt*/) {}
    // The sequence in the slot has ended. Nothing by default.
    virtual void end_sequence(int /*slot*/) {}

    // Drafts for each task, after the last of its tokens, until its rule fires or its budget ends. Tasks are of slots
    // that increase. Local.
    virtual void propose(std::span<const DraftTask> tasks) = 0;
    void propose(const DraftTask& task) { propose(std::span(&task, 1)); }
    // While the target scores what the last propose() of a single task drafted, prepares what comes next for its most
    // likely outcomes, until `enough` says so; the next propose() then begins with what was prepared, if the outcome
    // was among them. Nothing by default. Local.
    virtual void draft_ahead(const std::function<bool()>& /*enough*/) {}
};

// What bounds every draft.
struct DraftLimits {
    int vocab_size = 0;              // common to draft and target
    std::vector<TokenId> eos_tokens; // drafting ends after one, unless the request ignores them

    // Why a draft ends with its last token, which the rule has verified; none where it goes on. `most` is how many
    // tokens may be drafted, by budget or by the drafter's own context. Local.
    DraftEnd why_end(const DraftTask& task, int most, DraftEnd rule_end) const;
};

// Those of drafts for this target; `vocab_size`: tokens that target, draft and tokenizer know. Local.
DraftLimits draft_limits_of(const model::ModelConfig& target, int vocab_size);

// Tokens that a drafter may draft: by the task's budget, its rule's cap, and `context`, the most tokens it reads.
// Where that is 0, the draft's end says why. Local.
int max_drafted(const DraftTask& task, std::size_t context);

// ---- drafters made of sources and of other drafters ----

// What all of them need. The clock outlives them.
struct DraftSetting {
    DraftLimits limits;
    const dist::Clock& clock;
    int n_slots = 1;          // sequences decoded together
    bool takes_turns = false; // sequences draft one after another, also where they could share passes
};

// One pass a token over a source of logits: of all sequences at once where these share its passes.
std::unique_ptr<Drafter> make_chain_drafter(std::unique_ptr<LogitSource> source, const DraftSetting& setting);

// What followed the end of the text when it appeared earlier (prompt lookup, Saxena 2023), whatever finds it:
// `make_index` makes an index for each sequence.
using MakeLookupIndex = std::function<std::unique_ptr<LookupIndex>()>;
std::unique_ptr<Drafter> make_lookup_drafter(std::string name, const MakeLookupIndex& make_index,
                                             const DraftSetting& setting);

// The first of these that drafts anything for a sequence in a round. Sequences take turns. Throws std::invalid_argument
// where there is none.
std::unique_ptr<Drafter> make_fallback_drafter(std::vector<std::unique_ptr<Drafter>> drafters);

// A middle model that drafts by verifying, in passes of its own, what `inner` drafts for it. Sequences take turns.
struct CascadeLevel {
    std::unique_ptr<LogitSource> source;
    std::unique_ptr<Drafter> inner;
    StopRuleOptions inner_rule;
    std::optional<Costs> inner_costs; // for the rule expected-gain; none: measured as the run goes
};
std::unique_ptr<Drafter> make_cascade_drafter(CascadeLevel level, const DraftSetting& setting);

struct AheadOptions {
    static constexpr int kMaxOutcomes = 32;
    int outcomes = 0; // prepared a round, 1 to kMaxOutcomes; 0: as many as the target's passes leave time for
    int passes = 0;   // exactly so many hidden passes a round, however long the target takes: to study; 0: as they fit
};

// One model for one sequence that drafts ahead while the target scores (see draft_ahead.cpp). `model` has
// as many slots as outcomes (0: kMaxOutcomes) and one more, and outlives it. Where no outcome was the one foreseen,
// `backup`, a drafter that costs next to nothing, goes first, if there is one: the model drafts where it has nothing.
std::unique_ptr<Drafter> make_ahead_drafter(model::Decoder& model, const AheadOptions& options,
                                            const DraftSetting& setting, std::unique_ptr<Drafter> backup = nullptr);

} // namespace entrodraft::spec
