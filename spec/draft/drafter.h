// What proposes tokens: the interface, what every drafter needs for it, drafters that are made of others, and drafters
// by name.
//
// A drafter works for all sequences of a replica, each in its slot. It returns tokens and, where it has one, the
// distribution each was drawn from. Called by the round, on the draft owner only. Those that draw from a
// model's logits are in chain.h.
#pragma once

#include "dist/rank/clock.h"
#include "model/pass/decoder.h"
#include "model/text/tokenizer/vocabulary_map.h"
#include "spec/beams/beam_search.h"
#include "spec/draft/lookahead.h"
#include "spec/draft/lookup_index.h"
#include "spec/protocol/packet.h"
#include "spec/protocol/request.h"
#include "spec/stop/stop_rule.h"
#include "spec/verify/token_tree.h"
#include "spec/verify/verify.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::spec {

class DeviceVerifier;
struct HeadModules;
class LookupCorpus;
class TokenTable;
struct DrafterParts;

// One drafting phase's result: a chain, each token after the one before, or a tree.
struct Draft {
    std::vector<TokenId> tokens;
    std::vector<std::int8_t> parents;  // of the tokens, see verify/token_tree.h; the best child of a token comes first
    std::vector<float> entropies_nats; // of each token's raw distribution; NaN where not computed
    std::vector<float> probabilities;  // of each token in the raw distribution; NaN where not computed
    std::vector<float> margins;        // DraftedToken::margin of each token
    std::span<const float> q;          // [tokens.size()][vocab] adjusted distributions; empty where none is drawn from
    DraftEnd end = DraftEnd::none;
    int passes = 0;              // of the model that drafts for the target, but for those hidden behind its passes
    int further_rows = 0;        // of these passes, beyond one each
    DraftedAhead ahead;          // for this phase
    double seconds = 0;          // of the phase, but for entropy_seconds
    int caught_up = 0;           // tokens of the text that were read before the first pass, ...
    double catch_up_seconds = 0; // ... which are not among `seconds`
    double entropy_seconds = 0;  // on entropy and stop decision, beyond the sums that the head's pass keeps
    std::vector<Stats> levels;   // of a cascade: what its models did among themselves, the largest first

    void clear();
    // One more token, behind those there are, or after `parent`.
    void add(TokenId token, const DraftedToken& seen);
    void add(TokenId token, const DraftedToken& seen, int parent);
    // Of the accepted path's tokens, and of the first behind it, on the best path, which was not accepted.
    std::vector<float> entropies_on(std::span<const int> path) const;
};

// What rules learn of a round but its times: they have seen a tree's best path.
RoundFeedback feedback_of(const Draft& draft, std::span<const int> accepted_path);

// What all of a round's choices have in common, beside the request.
struct ChoiceSetting {
    Acceptance acceptance = Acceptance::rejection;
    // Of all numbers but gumbel's: seed and sequence key, or a key of its own below a cascade's first level.
    std::uint64_t seed = 0;
    std::uint64_t random_key = 0;
    std::uint32_t level = 0; // of a cascade: 0 drafts for the target
};

// What one sequence of a round wants drafted, and where that goes. All of it outlives the round.
struct DraftTask {
    int slot = 0;
    std::span<const TokenId> tokens; // prompt and text so far; the last one is the round's next token
    int max_tokens = 0;              // of a chain, at most: what budget, target context and the cap leave
    const Request* request = nullptr;
    ChoiceSetting choice;
    StopRule* rule = nullptr;
    Draft* draft = nullptr;
    int left_tokens = 0;               // what budget and target context leave, the cap apart: a tree is no deeper
    bool verified_on_device = false;   // rows stay on the GPU, see packet.h: only where the drafter keeps rows
    const GainModel* gain = nullptr;   // what the replica has learnt of the costs of passes; null: nothing
    const BeamSearch* beams = nullptr; // of a beam search; max_tokens are then those of its tree
    int max_nodes = 0;                 // of a tree, at most: what the cap, the pass and the target's cache leave
    RoundContext round = {};           // as the rule is told of it
};

// The target's own token behind drafted token `node`, -1: behind the next token; none where every token is banned.
using TargetTokenAfter = std::function<std::optional<TokenId>(int node)>;

// What a drafter is, whatever it drafts.
struct DrafterFacts {
    std::string name = {};
    std::size_t weight_bytes = 0;        // that a draft pass reads; 0 where there are none
    std::vector<int> hidden_layers = {}; // layers of the target whose hidden states it wants
    bool keeps_logits_on_device = false; // whether rows that tokens are drawn from can stay on the GPU of this rank
    // Whether the prompt may be left to the first round that drafts, which says whether that is worth its time.
    bool reads_late = false;
};

class Drafter {
  public:
    virtual ~Drafter() = default;
    const DrafterFacts& facts() const { return facts_; }
    // The states of facts().hidden_layers, [rows][layers][hidden_size of the target], at the positions from
    // `first_position` on: of each chunk of a prompt before prefill(), then of each round's accepted rows.
    virtual void take_hidden(int /*slot*/, int /*first_position*/, std::span<const float> /*states*/) {}
    // How the round of its last draft in this slot ended: how many of its tokens were accepted, and what the target
    // itself would emit after each. Called before the next propose().
    virtual void take_target_tokens(int /*slot*/, int /*accepted*/, const TargetTokenAfter& /*after*/) {}

    // A new sequence begins in the slot; nothing of the one before is kept. `request` stays where it is until the next.
    virtual void begin_sequence(int slot, const Request& request) = 0;
    // The prompt, or as much of it as the target reads next: reads all but the last of these tokens that it has not
    // read yet, so that the first round does not pay for them. Nothing by default.
    virtual void prefill(int /*slot*/, std::span<const TokenId> /*prompt*/) {}
    // The sequence in the slot has ended. Nothing by default.
    virtual void end_sequence(int /*slot*/) {}

    // Drafts for each task, after the last of its tokens, until its rule fires or its budget ends. Tasks are of slots
    // that increase.
    virtual void propose(std::span<const DraftTask> tasks) = 0;
    void propose(const DraftTask& task) { propose(std::span(&task, 1)); }
    // While the target scores what the last propose() of a single task drafted, prepares what comes next for its most
    // likely outcomes, until `enough` says so; the next propose() then begins with what was prepared, if the outcome
    // was among them. Nothing by default.
    virtual void draft_ahead(const std::function<bool()>& /*enough*/) {}

  protected:
    explicit Drafter(DrafterFacts facts) : facts_(std::move(facts)) {}

    DrafterFacts facts_;
};

// Of these rows of a pass of the target, the states as take_hidden() has them: [rows][layers][hidden_size].
std::vector<float> hidden_of_rows(const model::PassResult& result, std::span<const int> rows, std::size_t n_layers,
                                  const model::ModelConfig& target);

// What bounds every draft.
struct DraftLimits {
    int vocab_size = 0;              // common to draft and target
    std::vector<TokenId> eos_tokens; // drafting ends after one, unless the request ignores them

    // The rule decides on the token, which becomes part of the draft unless it drops it. Then draft.end is why the
    // draft ends with it; none where it goes on. `most` is how many tokens may be drafted, as begin_draft() returned.
    // Whether the token is part of the draft.
    bool take(const DraftTask& task, int most, TokenId token, const DraftedToken& seen) const;
    // Why a draft ends with its last token, on which the rule has decided.
    DraftEnd why_end(const DraftTask& task, int most, DraftEnd rule_end) const;
};

// Those of drafts for this target; `vocab_size`: tokens that target, draft and tokenizer know.
DraftLimits draft_limits_of(const model::ModelConfig& target, int vocab_size);

inline constexpr std::size_t kNoContext = std::size_t{1} << 40; // of what reads any number of tokens
// Begins `round` of the task's rule with an empty draft. Returns how many tokens may be drafted: by the task's budget,
// its rule's cap, and `context`, the most tokens that the drafter reads. Where that is 0, the draft's end says why.
int begin_draft(const DraftTask& task, std::size_t context, const RoundContext& round);
inline int begin_draft(const DraftTask& task, std::size_t context) {
    return begin_draft(task, context, task.round);
}

// What of a text the cache of a draft model keeps, and so what its passes read: the first `sinks` positions and the
// last `positions` (Xiao et al. 2023: StreamingLLM), which drop old ones some at a time, between rounds; and the best
// `chunks` of what lies between them (Sun et al. 2024: TriForce), chosen anew whenever the text has grown by one. Keys
// stay rotated by their own positions.
struct DraftWindow {
    int positions = 0; // 0: all of the text
    int sinks = 4;
    int chunks = 0; // of RetrievalOptions::kChunk positions
    static constexpr int kMaxPositions = 1 << 24, kMaxSinks = 64, kMaxChunks = 1 << 20;

    bool is_on() const { return positions > 0; }
    int slack() const { return positions / 8; } // by which it grows before it drops any
    int head() const { return sinks + chunks * model::RetrievalOptions::kChunk; } // positions in front of the last
    model::RetrievalOptions retrieval() const { return {sinks, chunks}; }
    int max_kept() const { return head() + positions + slack() + model::Decoder::kMaxRows; } // with what is drafted
};

// ---- drafters made of sources and of other drafters ----

// What all of them need. The clock outlives them.
struct DraftSetting {
    DraftLimits limits;
    const dist::Clock& clock;
    int n_slots = 1;          // sequences decoded together
    bool takes_turns = false; // sequences draft one after another, also where they could share passes
};

// What followed the end of the text when it appeared earlier (prompt lookup, Saxena 2023), whatever finds it:
// `make_index` makes an index for each sequence. With LookupTexts::run they look in each other's texts too, for n-grams
// of `of_others`.
using MakeLookupIndex = std::function<std::unique_ptr<LookupIndex>()>;
std::unique_ptr<Drafter> make_lookup_drafter(std::string name, const MakeLookupIndex& make_index,
                                             const NgramOptions& of_others, const DrafterParts& parts);

// The first of these that drafts anything for a sequence in a round, which alone is told of the target's tokens.
// Sequences take turns. Throws std::invalid_argument where there is none.
std::unique_ptr<Drafter> make_fallback_drafter(std::vector<std::unique_ptr<Drafter>> drafters);

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

// ---- trees ----

// How a drafter makes a tree of what a model proposes. Siblings are the model's first choices, the best first: by
// logit, with the noise that the target will add, or (fixed trees, `rejection`) as drawn one after another.
struct TreeOptions {
    enum class Shape {
        fixed,         // `paths` says which
        eagle2,        // Li et al. 2024: the top_k most probable nodes of a level go on; the most probable are proposed
        expected_gain, // nodes that buy more expected tokens than their rows and passes cost
    };
    static constexpr int kDefaultTokens = 63; // of one that grows
    std::string name = "expected-gain";       // as it was given
    Shape shape = Shape::expected_gain;
    std::vector<std::vector<int>> paths; // of a fixed one: each node's ranks among siblings, from the root
    int depth = 6;                       // levels of the others, at most
    int top_k = 8;                       // their nodes that go on from a level, and their siblings, at most

    int most_children() const; // of a node
    int most_levels() const;
};
// Of the tokens of a fixed tree, level by level.
std::vector<std::int8_t> parents_of(const TreeOptions& tree);
// The stop rule that goes with the tree: expected-gain weighs costs, the others end by their shape. Up to `max_tokens`
// of a tree that grows; of a fixed one as many as it has.
StopRuleOptions tree_rule(const TreeOptions& tree, int max_tokens = TreeOptions::kDefaultTokens);
// "expected-gain", "eagle2", each with :DEPTH:TOP_K behind it; "medusa-63" or "eagle-25" (their published trees);
// "4,2,1" (children of each node of a level); else a JSON file of paths, [[0], [0, 0], [1], ...]. Throws
// std::invalid_argument, std::runtime_error naming the file.
TreeOptions parse_tree(const std::string& text);
inline constexpr const char* kTreeNames = "expected-gain[:DEPTH:TOP_K], eagle2[:DEPTH:TOP_K], medusa-63, eagle-25, "
                                          "N,N,... (children by level) or a JSON file of paths";

// ---- drafters by name ----
//
// Each is one file of this folder, NAME_drafter.cpp, which holds its name, what it proposes, the options that it takes
// and how it is made, as a DrafterType; the choices of --drafter, help, completion, refusals of options without effect
// and tests over all drafters are made of these.

// A draft's own vocabulary. The map outlives the drafter.
struct OtherVocabulary {
    enum class Use {
        intersection, // tokens that both know are drafted
        retokenize,   // what the draft writes is drafted, as the target's tokenizer writes it
    };
    const model::VocabularyMap* map = nullptr;
    Use use = Use::intersection;
    int context = 0; // of the draft, in its own tokens
};

// What drafters are made of, whichever need it. All that it points to outlives them.
struct DrafterParts : DraftSetting {
    std::vector<model::Decoder*> models = {};        // of `model`: several are a cascade, the largest first
    DraftWindow window = {};                         // of `model` with one model
    std::optional<OtherVocabulary> vocabulary = {};  // of the last of them; none: the target's
    DeviceVerifier* device = nullptr;                // of the GPU that the models are on; null: of CPUs
    const HeadModules* head = nullptr;               // of `head`
    std::optional<TreeOptions> tree = {};            // of `head`, or of `model` with one model; none: chains
    std::vector<StopRuleOptions> rules = {};         // of the models; the first is the engine's
    std::vector<std::optional<Costs>> costs = {};    // of the models, for expected-gain
    NgramOptions ngram = {};                         // of the look-ups
    LookupTexts lookup_texts = LookupTexts::own;     // of the look-ups
    LookaheadOptions lookahead = {};                 // of `lookahead`
    std::shared_ptr<const LookupCorpus> corpus = {}; // of `suffix`; may be null
    const TokenTable* table = nullptr;               // of `bigram` and `unigram`
};

struct DrafterType {
    std::string name;
    int position = 1000;                   // in lists; drafters of one position by name
    const char* help = "";                 // what it proposes; neighbours in lists that say the same share it
    std::vector<const char*> options = {}; // that have an effect with it: "ngram-max" is --ngram-max
    std::unique_ptr<Drafter> (*make)(const DrafterParts& parts) = nullptr;

    bool takes(std::string_view option) const;
};

// The types in the order of lists. The files' own functions, as CMake lists them, are called once.
const std::vector<DrafterType>& all_drafters();
const std::vector<std::string>& drafter_names();
// Throws std::invalid_argument where there is no such drafter.
const DrafterType& drafter_type(std::string_view name);

// The first of these that drafts anything in a round; `ahead`: the last of them, a model, drafts ahead, and those
// before it are its backup. Throws std::invalid_argument for an unknown name, or none.
std::unique_ptr<Drafter> make_drafter(std::span<const std::string> names, const DrafterParts& parts,
                                      const std::optional<AheadOptions>& ahead = std::nullopt);

} // namespace entrodraft::spec
