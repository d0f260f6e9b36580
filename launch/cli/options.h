// What each command was asked to do, as plain structs whose fields hold the defaults, and the declarations that bind
// their options to them (declare()).
//
// Every value is checked here; what is known but belongs to a later version is refused by name, and so is an
// option that would have no effect. Pure: opens no file but --config.
#pragma once

#include "dist/comm/communicator.h"
#include "dist/layout/layout.h"
#include "launch/cli/option_set.h"
#include "model/families/config.h"
#include "model/torch/trainer.h"
#include "spec/distill/training.h"
#include "spec/draft/drafter.h"
#include "spec/draft/lookup_index.h"
#include "spec/round/engine.h"
#include "spec/stop/stop_rule.h"
#include "spec/verify/logit_processing.h"
#include "spec/verify/sampling.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

enum class EntropyUnit { nats, bits };

// Which chat template turns conversations into prompts.
struct ChatTemplateOptions {
    bool is_needed = false; // --chat: having none is a failure before any line is read
    std::string name;       // empty: the target's own
    std::string date;       // empty: the template's own
};

enum class DeviceChoice { automatic, cpu, cuda, xpu }; // automatic: rank_device.h; xpu: of torch alone
enum class Backend { native, torch };                  // whose operations: our kernels', or ATen's

// The target itself, or its first layers, as the draft: --draft self, or self:layers=N.
struct SelfDraft {
    int n_layers = 0; // 0: all
};
// None: the name is of a checkpoint. Throws BadOption.
std::optional<SelfDraft> self_draft_of(const std::string& draft);

// What a draft with another vocabulary than the target's does: automatic: intersection; same: it is refused. See
// spec::OtherVocabulary.
enum class DraftVocabulary { automatic, same, intersection, retokenize };

// Which models, on what.
struct ModelOptions {
    std::string target;              // directory
    std::vector<std::string> drafts; // directories, the largest first; several: a cascade
    spec::DraftWindow draft_window;  // of one draft
    int draft_vocab = 0;             // tokens that one draft may propose, and its ends and special ones; 0: all
    std::string draft_vocab_counts;  // a file of build-table, whose most frequent they are; empty: the lowest ids
    std::string head;                // directory of a draft head; empty: none
    DraftVocabulary draft_vocabulary = DraftVocabulary::same;
    std::optional<model::WeightType> dtype; // empty: the file's
    std::optional<model::WeightType> draft_dtype;
    model::ActivationType activations = model::ActivationType::automatic;
    std::optional<model::WeightType> kv_type;    // of CPUs' keys and values; empty: model::kv_type_of()'s choice
    std::optional<std::uint64_t> random_weights; // seed of weights that are made up; empty: the files'
    DeviceChoice device = DeviceChoice::automatic;
    Backend backend = Backend::native;
    model::TensorParallelSum sum = model::TensorParallelSum::automatic;
    int threads = 0;     // 0: as gather_facts() counts them
    int max_context = 0; // positions of a sequence; 0: all that the target has
    double collective_timeout_seconds = dist::kDefaultTimeoutSeconds;
    ChatTemplateOptions chat_template;
    std::string needs_text;            // the option that a model without a tokenizer cannot honour; empty: none
    std::string needs_cpu;             // the option that our CPU kernels alone can honour; empty: none
    std::string needs_same_vocabulary; // the option that a draft of another one cannot honour; empty: none
    bool quiet = false;                // no bar while weights are read
    std::vector<std::string> notes;    // of the target's generation_config.json, for stderr
    bool takes_digests = false;        // of target and drafts, on the writer: OpenedPair::digests

    std::vector<std::string> draft_directories() const { return head.empty() ? drafts : std::vector{head}; }
};

// What lines of input are: found by the first of them, our own, or those of OpenAI's batch files.
enum class InputFormat { found, lines, openai };

// Which part of the target's generation_config.json counts: the fields that change greedy text; sampling and lengths
// too; nothing.
enum class GenerationConfigUse { greedy, all, none };

// Lengths that this file has, where neither a line nor an option says others; as transformers, `_length` is of prompt
// and text.
struct FileLengths {
    std::optional<int> min_new_tokens, max_new_tokens, max_length;
    int min_length = 0;
};

// What a request asks for where its line says nothing.
struct RequestDefaults {
    GenerationConfigUse generation_config = GenerationConfigUse::greedy;
    std::set<std::string> given; // options that say what this file says as well, and go before it
    FileLengths file_lengths;
    int max_new_tokens = spec::Request::kDefaultNewTokens;
    spec::SamplingOptions sampling;
    spec::LogitProcessing processing;
    spec::BeamOptions beams; // num_beams is the most that a line may ask for
    int num_samples = 1;
    std::optional<int> logprobs;
    // Bodies of OpenAI's API that say nothing have that API's defaults, but for options that were given.
    double body_temperature = 1;
    std::optional<int> body_new_tokens; // none: of a completion 16, of a chat what the context leaves
    // Options that were given and count for sampled text alone, where the run is greedy unless a line says otherwise:
    // "--top-k", ...
    std::vector<std::string> of_sampled_text;
    bool only_file_can_sample = false; // no line may have a temperature, and generation_config.json is yet to be read
    InputFormat format = InputFormat::found;
    bool has_results = false; // whether a line may ask for several samples, for log-probabilities, and be OpenAI's
    bool ignore_eos = false;
    std::vector<std::string> stop_strings;
    bool chat = false;                 // a prompt is one message of the user
    std::optional<std::string> system; // of conversations that bring no system message
};

// What proposes tokens: the first of these that has anything to propose. None: plain decoding.
struct DrafterChoice {
    std::vector<std::string> kinds;               // as spec::drafter_names()
    std::vector<std::size_t> drafts;              // of `model`: places in ModelOptions::drafts, a cascade of them
    std::optional<spec::TreeOptions> tree = {};   // of one model or head; none: chains
    std::optional<spec::AheadOptions> ahead = {}; // none: nothing is drafted ahead

    bool has(std::string_view kind) const;
    bool is_one_model() const;
    bool is_head() const; // alone
    bool runs_model() const { return has("model") || has("head"); }
    bool drafts_trees() const { return tree.has_value() || has("lookahead"); }
};
// Outcomes that it may draft for at once; 0: it does not draft ahead.
int outcomes_ahead(const DrafterChoice& drafter);

// Outcomes of a round to draft for, each number a setting, 0: none; no number: as many as fit. Likewise hidden passes.
struct AheadLists {
    std::vector<int> outcomes;
    int passes = 0;
};

// What drafters without a model draw on.
struct DrafterSources {
    spec::NgramOptions ngram;
    spec::LookupTexts lookup_texts = spec::LookupTexts::own;
    spec::LookaheadOptions lookahead;
    std::string lookup_corpus; // file of text, or of build-corpus, for suffix; empty: none
    std::string draft_table;   // file of build-table for bigram and unigram
};

struct SpeculationOptions {
    DrafterChoice drafter;
    DrafterSources sources;
    std::vector<spec::StopRuleOptions> stop_rules; // of each level of a cascade; thresholds in nats, whatever the unit
    spec::StopRuleOptions every_rule;              // what holds for all of them
    std::vector<std::string> costs; // files, of each level, for expected-gain; empty: measured as the run goes
    EntropyUnit entropy_unit = EntropyUnit::nats;
    spec::AcceptanceOptions acceptance;
};

// One of `of` contiguous chunks of a file, split between lines: number `index`, from 0.
struct InputShard {
    std::int64_t index = 0;
    std::int64_t of = 1;
};

struct GenerateOptions {
    ModelOptions models;
    RequestDefaults requests;
    SpeculationOptions speculation;
    std::optional<std::string> prompt;
    std::string input; // "-": stdin; empty: the prompt
    std::string output = "-";
    std::string trace;               // file of rounds; empty: none
    std::string timeline;            // file of steps by rank; empty: none
    std::string summary;             // file of the run's figures; empty: none
    std::optional<InputShard> shard; // of the input; empty: all of it
    bool resume = false;
    bool resume_anyway = false; // with other settings and lines than those of that run
    bool check = false;
    bool quiet = false;
    bool verbose = false;
    ParsedOptions given; // as they were given, for the summary
    int replicas = 1;
    int batch_size = 1; // sequences decoded together, by each replica
    AheadLists ahead;
    dist::DraftPlacement placement = dist::DraftPlacement::colocated;
};

struct TokenizeOptions {
    std::string model;
    std::optional<std::string> text;
    std::string input;
    bool decode = false;
    bool add_special_tokens = false;
    bool skip_special_tokens = false;
};

struct BuildTableOptions {
    std::string model;
    std::string input; // "-": stdin
    std::string output;
    bool quiet = false;
};

struct BuildCorpusOptions {
    std::string model;
    std::vector<std::string> inputs;  // texts or corpora; "-": stdin
    std::vector<std::string> results; // of generate
    std::string output;
    bool quiet = false;
};

// What is timed of passes.
struct LatencyPlan {
    std::vector<int> rows = {16}; // of a pass: 1 to so many; of several numbers, these alone
    std::vector<int> contexts;    // tokens in the cache before each pass, one after another; empty: default_context()
    int repetitions = 200;        // at most, within ...
    double max_seconds = 30;      // ... each context; 0: however long they take
    std::optional<spec::TreeOptions> tree; // whose first rows are timed beside chains of as many; a fixed one
    bool draft_levels = false;             // whether a draft's passes over a level of a tree are timed too

    int max_rows() const { return *std::ranges::max_element(rows); }
    bool times(int n_rows) const {
        return rows.size() == 1 ? n_rows <= rows.front() : std::ranges::count(rows, n_rows) > 0;
    }
};

struct LatencyOptions {
    ModelOptions models;
    dist::DraftPlacement placement = dist::DraftPlacement::colocated;
    LatencyPlan plan;
    std::vector<int> shards; // of so many ranks, each timed by itself
    std::string output;      // costs file; empty: none
    bool json = false;
};

struct CompareOptions {
    ModelOptions models;
    dist::DraftPlacement placement = dist::DraftPlacement::colocated;
    std::string input;
    int max_prompts = 0; // 0: all
    RequestDefaults requests;
    std::vector<double> temperatures = {0, 1};
    std::vector<DrafterChoice> drafters;
    AheadLists ahead;
    DrafterSources sources;
    std::string output; // results as JSON; empty: none
    bool json = false;
    bool quiet = false;
    std::vector<std::vector<spec::StopRuleOptions>> rules; // each for every level of a cascade
    std::vector<spec::TreeOptions> trees;                  // of the first --draft, beside chains
    int max_draft_tokens = spec::StopRuleOptions::kDefaultMaxTokens;
    spec::StopRuleOptions every_rule; // what holds for all of them
    std::vector<spec::Acceptance> acceptances = {spec::Acceptance::gumbel};
    double lenience = 1;            // of rejection
    std::vector<std::string> costs; // files, of each level; empty: measured first
    bool tune = false;
    std::optional<double> synthetic_acceptance; // drafted tokens are accepted by chance, and texts mean nothing
};

struct RecordOptions {
    ModelOptions models;
    RequestDefaults requests;
    std::string input;
    std::string output;
    std::vector<spec::TreeOptions> trees; // whose rows are recorded as well
    bool resume = false;
    int max_prompts = 0; // 0: all
    int max_draft_tokens = spec::StopRuleOptions::kDefaultMaxTokens;
    std::vector<std::string> costs; // files, of each draft; empty: measured first
    bool quiet = false;
};

// Costs in place of those of the recording; empty: its own.
struct CostsInstead {
    std::string file;
    std::optional<double> t_draft_ms, t_first_draft_ms, t_draft_row_ms, t_round_ms;
    std::vector<double> t_target_ms; // of passes of 1, 2, ... rows; the last goes on
};

// How rounds are made of recordings: imputed is the approximation of spec::ReplaySetting::imputed_from.
enum class ReplayMethod { exact, imputed };

struct SimulateOptions {
    std::vector<std::string> recordings;
    std::vector<spec::StopRuleOptions> rules;
    std::vector<spec::TreeOptions> trees;
    bool oracle = false; // and plain decoding, which every speed-up is over, always
    // The cap of all rules and of the oracle; none: that of the rules, or what the recording holds if that is less.
    std::optional<int> max_draft_tokens;
    bool best_of_each = false; // of each rule only the fastest setting is shown
    ReplayMethod method = ReplayMethod::exact;
    std::optional<int> imputed_from; // none: what the recording holds
    std::optional<int> draft;        // from 1; none: each
    CostsInstead costs;
    spec::StopRuleOptions every_rule; // what holds for all of them
    dist::DraftPlacement placement = dist::DraftPlacement::colocated;
    int outcomes_ahead = 8;    // of dedicated, that are drafted for; 0: none
    std::optional<int> ahead;  // the same where it has an effect
    int threads = 0;           // 0: all cores
    std::string output, trace; // files; empty: none
    bool json = false;
};

struct TuneOptions {
    ModelOptions models;
    RequestDefaults requests;
    std::string input;
    std::string recording;                // to choose by; empty: made of half the prompts
    std::string output;                   // --config file of the winner
    std::string report;                   // JSON; empty: none
    std::vector<spec::TreeOptions> trees; // that are tried beside the rules, with narrower ones
    int max_prompts = 0;
    int max_draft_tokens = spec::StopRuleOptions::kDefaultMaxTokens;
    int repetitions = 3; // real runs of each rule's best
    std::vector<std::string> costs;
    bool quiet = false;
};

struct DistillOptions {
    ModelOptions models; // of drafts the one that is trained, or none
    int layers = 0;      // of the draft, which is made of the target's first ones; 0: it is a checkpoint of its own
    int hidden_size = 0; // of a draft of so many layers whose weights begin random; 0: they are the target's
    std::string input;   // prompts; empty: of `texts`, or resumed
    std::string output;  // directory
    std::string texts;   // scored texts of an earlier run; empty: made of the input
    int max_prompts = 0;
    RequestDefaults requests;
    std::vector<double> temperatures = {0, 1}; // that each prompt is continued at
    int batch_size = 8;                        // texts decoded together
    int top_tokens = 64;                       // of a place, whose probabilities are kept
    int held_out_one_in = 10;                  // prompts
    int own_texts = 0;                         // how often, in training, texts of the draft's own join the target's
    model::torch::DistillLoss loss = model::torch::DistillLoss::forward_kl;
    bool half = false; // passes in training compute in bfloat16
    double weight_decay = 0;
    double max_gradient_norm = 1;
    spec::TrainingPlan plan;
    bool resume = false;
    bool quiet = false;
};

struct DoctorOptions {
    std::string target; // empty: none
    bool gpu = false;   // GPUs are looked at, and must be there
    std::vector<std::string> drafts;
    int threads = 0; // 0: as gather_facts() counts them
    int repetitions = 1000;
    double collective_timeout_seconds = dist::kDefaultTimeoutSeconds;
    bool json = false;
};

// How the model would be run: what each rank would then hold is computed, not tried.
struct InspectOptions {
    std::string model;
    std::string draft;                      // empty: none
    std::string head;                       // beside no draft
    std::optional<model::WeightType> dtype; // empty: the file's
    std::optional<model::WeightType> draft_dtype;
    std::optional<model::WeightType> kv_type; // as ModelOptions has it
    bool on_gpu = false;
    int ranks = 1;
    int threads = 1; // of each rank
    int batch = 1;
    int length = 0;                            // positions; 0: the model's context
    std::optional<std::uint64_t> memory_bytes; // of each rank; empty: whether it fits is not asked
    bool json = false;
};

// The options of each command, bound to its struct.
void declare(OptionSet& set, GenerateOptions& options);
void declare(OptionSet& set, TokenizeOptions& options);
void declare(OptionSet& set, BuildTableOptions& options);
void declare(OptionSet& set, BuildCorpusOptions& options);
void declare(OptionSet& set, LatencyOptions& options);
void declare(OptionSet& set, CompareOptions& options);
void declare(OptionSet& set, RecordOptions& options);
void declare(OptionSet& set, SimulateOptions& options);
void declare(OptionSet& set, TuneOptions& options);
void declare(OptionSet& set, DistillOptions& options);
void declare(OptionSet& set, DoctorOptions& options);
void declare(OptionSet& set, InspectOptions& options);

// Of a command, by its struct: what it declares, and the struct made of what was given. Throw BadOption.
template <typename Options> const std::vector<OptionGroup>& groups_of() {
    static Options defaults;
    static const OptionSet set = [] {
        OptionSet declared;
        declare(declared, defaults);
        return declared;
    }();
    return set.groups();
}
template <typename Options> Options options_of(const ParsedOptions& given) {
    Options options;
    OptionSet set;
    declare(set, options);
    set.read(given);
    return options;
}

// Says that options have no effect, for a run that samples no text; `what_is_greedy` follows "temperature 0". Empty: no
// such option was given.
std::string why_no_sampling(const RequestDefaults& requests, const char* what_is_greedy = "");

// Nothing to tune: it was about as fast as the best tuned threshold wherever that was measured (bench/NOTES.md).
constexpr const char* kDefaultStopRule = "expected-gain";

// Matches of fewer tokens leave the round to the next drafter of a combination.
constexpr int kShortestOfCombination = 3;

// Of the drafter lookahead: expected-gain, with which rounds draft where that pays, or constant, with which all do.
// `max_chain`: tokens of a draft of the other drafters in its list.
spec::StopRuleOptions lookahead_rule(const spec::LookaheadOptions& lookahead, const std::string& rule,
                                     int max_chain = 0);
// The drafter in a few words: "ngram+model", "draft1<draft2".
std::string describe(const DrafterChoice& drafter);
// The rule and its setting in a few words: "static, threshold 2.25 nats".
std::string describe(const spec::StopRuleOptions& rule, EntropyUnit unit);

} // namespace entrodraft::launch
