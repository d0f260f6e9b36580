// The interface of drafters, which propose tokens. Also here: data that every drafter needs, drafters that combine
// other drafters, and functions that create a drafter by name.
//
// A drafter serves all sequences of a replica, each in its slot. It returns tokens and, if it samples from
// distributions, also the distribution of each token. Only the code of the round calls it, on the rank that owns the
// draft. Drafters that draw from a model's logits are in chain.h.
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
#include "spec/verify/verify.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::spec {

class DeviceRound;
struct HeadModules;
class LookupCorpus;
class TokenTable;
struct DrafterParameter;

// The result of one drafting phase: a chain, in which each token follows the one before, or a tree.
struct Draft {
    std::vector<TokenId> tokens;
    std::vector<std::int8_t> parents;  // of the tokens, see verify/token_tree.h; a token's best child comes first
    std::vector<float> entropies_nats; // of each token's raw distribution; NaN where not computed
    std::vector<float> probabilities;  // of each token in the raw distribution; NaN where not computed
    std::vector<float> margins;        // DraftedToken::margin of each token
    std::span<const float> q;          // [tokens.size()][vocab] adjusted distributions; empty if tokens were not drawn
    DraftEnd end = DraftEnd::none;
    int passes = 0;              // of the model that drafts for the target, except those during target passes
    int further_rows = 0;        // rows of these passes, beyond one for each pass
    DraftedAhead ahead;          // for this phase
    double seconds = 0;          // of the phase, without entropy_seconds
    int caught_up = 0;           // tokens of the text that were read before the first pass
    double catch_up_seconds = 0; // time of that reading, not in `seconds`
    double entropy_seconds = 0;  // on entropy and stop decision, beyond the sums that the head's pass keeps
    std::vector<Stats> levels;   // of a cascade: the work of its models among themselves, the largest first

    void clear();
    // Adds a token after the last one, or after `parent`.
    void add(TokenId token, const DraftedToken& seen);
    void add(TokenId token, const DraftedToken& seen, int parent);
    // The entropies of the accepted path, and of the first token on the best path after it, which was rejected.
    std::vector<float> entropies_on(std::span<const int> path) const;
};

// The facts of a round that rules learn from, without times. Rules have seen the best path of a tree.
RoundFeedback feedback_of(const Draft& draft, std::span<const int> accepted_path);

// The settings that all choices of a round share, next to the request.
struct ChoiceSetting {
    Acceptance acceptance = Acceptance::rejection;
    // For all random numbers but gumbel's: seed and sequence key, or a key of its own below a cascade's first level.
    std::uint64_t seed = 0;
    std::uint64_t random_key = 0;
    std::uint32_t level = 0; // of a cascade: 0 drafts for the target
};

// The drafting that one sequence of a round wants, and the place of its result. All of it outlives the round.
struct DraftTask {
    int slot = 0;
    std::span<const TokenId> tokens; // prompt and text so far; the last one is the round's next token
    int max_tokens = 0;              // most tokens of a chain: the limit of budget, target context and cap
    const Request* request = nullptr;
    ChoiceSetting choice;
    StopRule* rule = nullptr;
    Draft* draft = nullptr;
    int left_tokens = 0;               // the limit of budget and target context without the cap: a tree is no deeper
    bool verified_on_device = false;   // rows stay on the GPU, see packet.h; only if the drafter keeps rows
    const GainModel* gain = nullptr;   // what the replica has learnt of the costs of passes; null: nothing
    const BeamSearch* beams = nullptr; // of a beam search; max_tokens are then those of its tree
    int max_nodes = 0;                 // most tokens of a tree: the limit of the cap, the pass and the target's cache
    RoundContext round = {};           // as the rule is told
};

// The work of the target for one text: it has read a part of the prompt, or has verified the last draft.
struct TargetOutcome {
    // The target's states of facts().hidden_layers, [rows][layers][hidden_size of the target], from this position on:
    // of the rows that it has read, or of the next token and the accepted ones. Empty if no layers are wanted.
    int first_position = 0;
    std::span<const float> states = {};
    // The results of a verified draft. Without `token_after`, only `states` count.
    int accepted = 0; // tokens
    // The target's own token after drafted token `node`, or after the next token for -1; none if every token is banned.
    std::function<std::optional<TokenId>(int node)> token_after = nullptr;
};

// The properties of a drafter, whatever it drafts.
struct DrafterFacts {
    std::string name = {};
    std::size_t weight_bytes = 0;        // that a draft pass reads; 0 without weights
    std::vector<int> hidden_layers = {}; // layers of the target whose hidden states it wants
    bool keeps_logits_on_device = false; // true if rows that tokens are drawn from can stay on this rank's GPU
    // True if the prompt may be left to the first round that drafts, which decides if that is worth its time.
    bool reads_late = false;
};

class Drafter {
  public:
    virtual ~Drafter() = default;
    const DrafterFacts& facts() const { return facts_; }
    // A new sequence begins in the slot. Nothing of the old one is kept. `request` stays in place until the next call.
    virtual void begin_sequence(int slot, const Request& request) = 0;
    // Reads the tokens of the prompt that it has not read yet, but for the last one, so that the first round does not
    // pay for them. `prompt` may be only the part that the target has reached. Does nothing by default.
    virtual void prefill(int /*slot*/, std::span<const TokenId> /*prompt*/) {}
    // Takes the work of the target: of each chunk of a prompt before prefill(), then of each round. What `outcome`
    // points to is valid during the call. Does nothing by default.
    virtual void observe(int /*slot*/, const TargetOutcome& /*outcome*/) {}

    // Drafts for each task after its last token, until its rule fires or its budget ends. The tasks' slots increase.
    virtual void propose(std::span<const DraftTask> tasks) = 0;
    void propose(const DraftTask& task) { propose(std::span(&task, 1)); }
    // Called while the target scores the draft of a single task. Prepares the next draft for the round's most likely
    // outcomes, until `enough` returns true. If the outcome is among them, the next propose() begins with that draft.
    // Does nothing by default.
    virtual void draft_ahead(const std::function<bool()>& /*enough*/) {}

  protected:
    explicit Drafter(DrafterFacts facts) : facts_(std::move(facts)) {}

    DrafterFacts facts_;
};

// The states of these rows of a target pass, in the layout of TargetOutcome: [rows][layers][hidden_size].
std::vector<float> hidden_of_rows(const model::PassResult& result, std::span<const int> rows, std::size_t n_layers,
                                  const model::ModelConfig& target);

// The bounds of every draft.
struct DraftLimits {
    int vocab_size = 0;              // common to draft and target
    std::vector<TokenId> eos_tokens; // drafting ends after one, unless the request ignores them

    // Lets the rule decide on the token, and adds it to the draft unless the rule drops it. Sets draft.end to the
    // reason why the draft ends with it, or to none. `most`: tokens that may be drafted, as begin_draft() returned.
    // Returns whether the token is part of the draft.
    bool take(const DraftTask& task, int most, TokenId token, const DraftedToken& seen) const;
    // The reason why a draft ends with its last token, on which the rule has decided.
    DraftEnd why_end(const DraftTask& task, int most, DraftEnd rule_end) const;
};

// The limits of drafts for this target. `vocab_size`: tokens that target, draft and tokenizer know.
DraftLimits draft_limits_of(const model::ModelConfig& target, int vocab_size);

inline constexpr std::size_t kNoContext = std::size_t{1} << 40; // for a reader of any number of tokens
// Begins a round of the task's rule with an empty draft. Returns how many tokens may be drafted, limited by the task's
// budget, the rule's cap and `context`, the most tokens that the drafter reads. For 0, the draft's end says why.
int begin_draft(const DraftTask& task, std::size_t context, const RoundContext& round);
inline int begin_draft(const DraftTask& task, std::size_t context) {
    return begin_draft(task, context, task.round);
}

// The part of a text that a draft model's cache keeps, and that its passes read. It is the first `sinks` positions, the
// last `positions` (Xiao et al. 2023: StreamingLLM), and the best `chunks` between them (Sun et al. 2024: TriForce).
// Old positions leave in groups, between rounds. Chunks are chosen anew whenever the text has grown by one chunk. Keys
// stay rotated by their own positions.
struct DraftWindow {
    int positions = 0; // 0: all of the text
    int sinks = 4;
    int chunks = 0; // of RetrievalOptions::kChunk positions
    static constexpr int kMaxPositions = 1 << 24, kMaxSinks = 64, kMaxChunks = 1 << 20;

    bool is_on() const { return positions > 0; }
    int slack() const { return positions / 8; }                                   // growth before positions are dropped
    int head() const { return sinks + chunks * model::RetrievalOptions::kChunk; } // positions before the last ones
    model::RetrievalOptions retrieval() const { return {sinks, chunks}; }
    int max_kept() const { return head() + positions + slack() + model::Decoder::kMaxRows; } // with drafted tokens
};

// ---- drafters that use sources or other drafters ----

// The setting that all of them need. The clock must outlive them.
struct DraftSetting {
    DraftLimits limits;
    const dist::Clock& clock;
    int n_slots = 1;          // sequences decoded together
    bool takes_turns = false; // sequences draft one after another, even if they could share passes
};

// Proposes the tokens that followed an earlier occurrence of the text's end (prompt lookup, Saxena 2023). `make_index`
// makes an index for each sequence, which finds the occurrence. With LookupTexts::run the sequences also search each
// other's texts, for n-grams of `of_others`.
using MakeLookupIndex = std::function<std::unique_ptr<LookupIndex>()>;
std::unique_ptr<Drafter> make_lookup_drafter(std::string name, MakeLookupIndex make_index, LookupTexts texts,
                                             const NgramOptions& of_others, const DraftSetting& setting);
// The parameters of look-ups: the texts that they search, and the shortest match that counts.
DrafterParameter lookup_texts_parameter();
DrafterParameter shortest_match_parameter();

// Uses the first of these that drafts anything for a sequence in a round. Only this drafter is told of the target's
// tokens. Sequences take turns. Throws std::invalid_argument if the list is empty.
std::unique_ptr<Drafter> make_fallback_drafter(std::vector<std::unique_ptr<Drafter>> drafters);

struct AheadOptions {
    static constexpr int kMaxOutcomes = 32;
    int outcomes = 0; // outcomes prepared a round, 1 to kMaxOutcomes; 0: the number that fits into target passes
    int passes = 0;   // fixed number of passes ahead a round, for studies; 0: until the target is ready
};

// One model drafts ahead for one sequence while the target scores (see draft_ahead.cpp). `model` must outlive it, and
// has one slot more than outcomes (0: kMaxOutcomes). If no prepared outcome comes true, the cheap drafter `backup`
// drafts first, if there is one. The model drafts if the backup drafts nothing.
std::unique_ptr<Drafter> make_ahead_drafter(model::Decoder& model, const AheadOptions& options,
                                            const DraftSetting& setting, std::unique_ptr<Drafter> backup = nullptr);

// ---- trees ----

// The way in which a drafter makes a tree from a model's proposals. Siblings are the model's first choices, best first:
// by logit, with the noise that the target will add, or (fixed trees, `rejection`) drawn one after another.
struct TreeOptions {
    enum class Shape {
        fixed,         // the tree of `paths`
        eagle2,        // Li et al. 2024: the top_k most probable nodes of a level go on; the most probable are proposed
        expected_gain, // nodes that bring more expected tokens than their rows and passes cost
    };
    static constexpr int kDefaultTokens = 63; // of a tree that grows
    std::string name = "expected-gain";       // as the user gave it
    Shape shape = Shape::expected_gain;
    std::vector<std::vector<int>> paths; // of a fixed tree: each node's ranks among siblings, from the root
    int depth = 6;                       // most levels of a tree that grows
    int top_k = 8;                       // most nodes that go on from a level, and most siblings, of a tree that grows

    int most_children() const; // of a node
    int most_levels() const;
};
// The parents of a fixed tree's tokens, level by level.
std::vector<std::int8_t> parents_of(const TreeOptions& tree);
// The stop rule of the tree: expected-gain weighs costs, the other trees end by their shape. A tree that grows has up
// to `max_tokens`, a fixed tree its own number.
StopRuleOptions tree_rule(const TreeOptions& tree, int max_tokens = TreeOptions::kDefaultTokens);
// Parses "expected-gain" or "eagle2", each with an optional :DEPTH:TOP_K; "medusa-63" or "eagle-25" (published trees);
// "4,2,1" (children of each node of a level); else a JSON file of paths, [[0], [0, 0], [1], ...]. Throws
// std::invalid_argument, or std::runtime_error naming the file.
TreeOptions parse_tree(const std::string& text);
inline constexpr const char* kTreeNames = "expected-gain[:DEPTH:TOP_K], eagle2[:DEPTH:TOP_K], medusa-63, eagle-25, "
                                          "N,N,... (children by level) or a JSON file of paths";

// ---- drafters by name ----
//
// Each is one file of this folder, NAME_drafter.cpp. It declares a drafter's name, proposals, parameters and
// constructor as a DrafterType. The choices of --drafter, help, completion, refusals of options without effect and
// tests over all drafters are generated from these types.

// A value that sets a drafter: a whole number, or one of a few words.
struct DrafterParameter {
    const char* name;      // "max": --drafter ngram:max=4
    const char* help;      // the same wherever the name is the same
    int default_value = 0; // of words: the place of one of them
    int min = 0, max = 0;
    std::vector<std::string> words = {};
    std::optional<int> in_list = {}; // the default if other drafters are asked as well
};
using DrafterValues = std::map<std::string, int, std::less<>>; // by parameter

// A draft's own vocabulary. The map must outlive the drafter.
struct OtherVocabulary {
    enum class Use {
        intersection, // the draft's tokens that both know are drafted
        retokenize,   // the draft's text is drafted, in the target's tokens
    };
    const model::VocabularyMap* map = nullptr;
    Use use = Use::intersection;
    int context = 0; // of the draft, in its own tokens
};

// The parts of drafters. Each drafter uses those that it needs. All that this points to outlives the drafters.
struct DrafterParts : DraftSetting {
    std::vector<model::Decoder*> models = {};        // of `model`: several are a cascade, the largest first
    DraftWindow window = {};                         // of `model` with one model
    std::optional<OtherVocabulary> vocabulary = {};  // of the last model; none: the target's
    DeviceRound* device = nullptr;                   // of the models' GPU; null: they are on CPUs
    const HeadModules* head = nullptr;               // of `head`
    std::optional<TreeOptions> tree = {};            // of `head`, or of `model` with one model; none: chains
    std::vector<StopRuleOptions> rules = {};         // of the models; the first is the engine's
    std::vector<std::optional<Costs>> costs = {};    // of the models, for expected-gain
    std::shared_ptr<const LookupCorpus> corpus = {}; // of `suffix`; may be null
    const TokenTable* table = nullptr;               // of `bigram` and `unigram`
};

struct DrafterType {
    std::string name;
    int position = 1000;   // in lists; drafters with the same position go by name
    const char* help = ""; // text of its proposals; neighbours in lists with the same text share it
    std::vector<DrafterParameter> parameters = {};
    const char* file = ""; // the option of a file that it reads: "draft-table" is --draft-table
    // Gets the values of all parameters.
    std::unique_ptr<Drafter> (*make_of)(const DrafterParts& parts, const DrafterValues& values) = nullptr;
    // Returns why the values do not go together; "": they do. Null: they always do.
    std::string (*why_not)(const DrafterValues& values) = nullptr;
    // Returns the most tokens of the trees that it shapes by itself. Null: it drafts chains, or trees of DrafterParts.
    int (*most_tokens)(const DrafterValues& values) = nullptr;

    // Returns the values of all parameters: `given` ones, else defaults. `in_list`: other drafters are asked as well.
    // Throws std::invalid_argument for values that it does not take.
    DrafterValues all_values(const DrafterValues& given, bool in_list = false) const;
    std::unique_ptr<Drafter> make(const DrafterParts& parts, const DrafterValues& given = {}) const {
        return make_of(parts, all_values(given));
    }
};

// The types in the order of lists. Each file's own function, as CMake lists them, is called once.
const std::vector<DrafterType>& all_drafters();
const std::vector<std::string>& drafter_names();
// Throws std::invalid_argument if there is no such drafter.
const DrafterType& drafter_type(std::string_view name);

// A drafter with the values that were given for its parameters.
struct NamedDrafter {
    NamedDrafter(std::string its_name, DrafterValues its_values = {}) // NOLINT: a name is a drafter with its defaults
        : name(std::move(its_name)), values(std::move(its_values)) {}
    NamedDrafter(const char* its_name) : NamedDrafter(std::string(its_name)) {} // NOLINT: the same

    std::string name;
    DrafterValues values;

    const DrafterType& type() const { return drafter_type(name); }
    bool operator==(const NamedDrafter&) const = default;
};

// Uses the first of these that drafts anything in a round. `ahead`: the last of them, a model, drafts ahead, and those
// before it are its backup. Throws std::invalid_argument for an unknown name or an empty list.
std::unique_ptr<Drafter> make_drafter(std::span<const NamedDrafter> named, const DrafterParts& parts,
                                      const std::optional<AheadOptions>& ahead = std::nullopt);

} // namespace entrodraft::spec
