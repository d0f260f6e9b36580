// Declares the options of each command. They are plain structs, whose fields have the default values. declare() binds
// the options to these fields.
//
// Every value is checked here. Two kinds of options are refused by name: known options of a later version, and options
// that would have no effect.
#pragma once

#include "dist/comm/communicator.h"
#include "dist/layout/layout.h"
#include "launch/cli/option_set.h"
#include "model/families/config.h"
#include "spec/distill/training.h"
#include "spec/draft/drafter.h"
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

// The chat template that turns conversations into prompts.
struct ChatTemplateOptions {
    bool is_needed = false; // --chat: a missing template is a failure before any line is read
    std::string name;       // empty: the target's own
    std::string date;       // empty: the template's own
};

enum class DeviceChoice { automatic, cpu, cuda, xpu }; // automatic: see rank_device.h; xpu: only with torch
enum class Backend { native, torch };                  // operations of our kernels, or of ATen

// The target itself, or its first layers, as the draft: --draft self, or self:layers=N.
struct SelfDraft {
    int n_layers = 0; // 0: all
};
// Returns nothing if the name is a checkpoint's. Throws BadOption.
std::optional<SelfDraft> self_draft_of(const std::string& draft);

// The use of a draft with another vocabulary than the target's. automatic means intersection; same refuses the draft.
// See spec::OtherVocabulary.
enum class DraftVocabulary { automatic, same, intersection, retokenize };

// The models and their device.
struct ModelOptions {
    std::string target;              // directory
    std::vector<std::string> drafts; // directories, the largest first; several: a cascade
    spec::DraftWindow draft_window;  // for one draft
    int draft_vocab = 0;             // tokens that one draft may propose, besides its ends and special ones; 0: all
    std::string draft_vocab_counts;  // file of build-table: its most frequent tokens; empty: the lowest ids
    std::string head;                // directory of a draft head; empty: none
    DraftVocabulary draft_vocabulary = DraftVocabulary::same;
    std::optional<model::WeightType> dtype; // empty: the file's
    std::optional<model::WeightType> draft_dtype;
    model::ActivationType activations = model::ActivationType::automatic;
    std::optional<model::WeightType> kv_type;    // for CPUs' keys and values; empty: model::kv_type_of() chooses
    std::optional<std::uint64_t> random_weights; // seed of made-up weights; empty: the files' weights
    DeviceChoice device = DeviceChoice::automatic;
    Backend backend = Backend::native;
    model::TensorParallelSum sum = model::TensorParallelSum::automatic;
    int threads = 0;     // 0: gather_facts() counts them
    int max_context = 0; // positions of a sequence; 0: all that the target has
    double collective_timeout_seconds = dist::kDefaultTimeoutSeconds;
    ChatTemplateOptions chat_template;
    std::string needs_text;            // an option that a model without a tokenizer cannot honour; empty: none
    std::string needs_cpu;             // an option that only our CPU kernels can honour; empty: none
    std::string needs_same_vocabulary; // an option that needs a draft of the same vocabulary; empty: none
    bool quiet = false;                // no bar while weights are read
    std::vector<std::string> notes;    // about the target's generation_config.json, for stderr
    bool takes_digests = false;        // digests of target and drafts, on the writer: OpenedPair::digests

    std::vector<std::string> draft_directories() const { return head.empty() ? drafts : std::vector{head}; }
};

// The form of input lines: the first line decides, our own lines, or lines of OpenAI's batch files.
enum class InputFormat { found, lines, openai };

// The part of the target's generation_config.json that counts: fields that change greedy text; sampling and lengths,
// too; or nothing.
enum class GenerationConfigUse { greedy, all, none };

// Lengths of this file, if neither a line nor an option gives others. As in transformers, `_length` includes the
// prompt.
struct FileLengths {
    std::optional<int> min_new_tokens, max_new_tokens, max_length;
    int min_length = 0;
};

// The run's limits for a stop rule that a line names.
struct RulesOfLines {
    int max_draft_tokens = 0;
    spec::Acceptance acceptance = spec::Acceptance::gumbel;
};

// The defaults of requests, for when a line says nothing.
struct RequestDefaults {
    GenerationConfigUse generation_config = GenerationConfigUse::greedy;
    std::set<std::string> given; // options that override this file
    FileLengths file_lengths;
    int max_new_tokens = spec::Request::kDefaultNewTokens;
    spec::SamplingOptions sampling;
    spec::LogitProcessing processing;
    spec::BeamOptions beams; // a line may ask for at most num_beams
    int num_samples = 1;
    std::optional<int> logprobs;
    // If a body of OpenAI's API says nothing, that API's defaults count, unless options were given.
    double body_temperature = 1;
    std::optional<int> body_new_tokens; // none: 16 for a completion, the rest of the context for a chat
    // Options that were given and affect only sampled text, in a run that is greedy unless a line says otherwise:
    // "--top-k", ...
    std::vector<std::string> of_sampled_text;
    bool only_file_can_sample = false; // no line may have a temperature; generation_config.json is not read yet
    InputFormat format = InputFormat::found;
    bool has_results = false; // lines may ask for samples and log-probabilities, and may be OpenAI's
    bool ignore_eos = false;
    std::optional<RulesOfLines> stop_rules; // none: lines may not name a rule
    std::vector<std::string> stop_strings;
    bool chat = false;                 // a prompt is one message of the user
    std::optional<std::string> system; // for conversations without a system message
};

// The drafters. The first that has a proposal proposes tokens. None: plain decoding.
struct DrafterChoice {
    std::vector<spec::NamedDrafter> kinds;
    std::vector<std::size_t> drafts;              // for `model`: places in ModelOptions::drafts, a cascade of them
    std::optional<spec::TreeOptions> tree = {};   // for one model or head; none: chains
    std::optional<spec::AheadOptions> ahead = {}; // none: nothing is drafted ahead

    bool has(std::string_view kind) const;
    bool is_one_model() const;
    bool is_head() const; // true if it is the only drafter
    bool runs_model() const { return has("model") || has("head"); }
    bool drafts_trees() const { return tree.has_value() || own_tree_tokens() > 0; }
    // Returns the most tokens of the trees that one of them shapes by itself, as lookahead does; 0: none does.
    int own_tree_tokens() const;
};
// Returns the number of outcomes that it may draft for at once; 0: it does not draft ahead.
int outcomes_ahead(const DrafterChoice& drafter);

// Settings of drafting ahead that were given; none: nothing is drafted ahead.
using AheadList = std::vector<std::optional<spec::AheadOptions>>;

// The files of drafters without a model.
struct DrafterSources {
    std::string lookup_corpus; // file of text, or of build-corpus, for suffix; empty: none
    std::string draft_table;   // file of build-table for bigram and unigram
};

struct SpeculationOptions {
    DrafterChoice drafter;
    DrafterSources sources;
    std::vector<spec::StopRuleOptions> stop_rules; // for each level of a cascade; thresholds in nats, in any unit
    spec::StopRuleOptions every_rule;              // settings of all rules
    std::vector<std::string> costs; // files, one for each level, for expected-gain; empty: measured during the run
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
    std::optional<InputShard> shard; // part of the input; empty: all of it
    bool resume = false;
    bool resume_anyway = false; // settings and lines may differ from that run's
    bool check = false;
    bool quiet = false;
    bool verbose = false;
    ParsedOptions given; // for the summary
    int replicas = 1;
    int batch_size = 1; // sequences decoded together, by each replica
    AheadList ahead;
    dist::DraftPlacement placement = dist::DraftPlacement::colocated;
};

// A server decodes as generate does. It takes its requests by HTTP.
struct ServeOptions : GenerateOptions {
    std::string address = "127.0.0.1";
    int port = 8000;
    std::string api_key_file; // keys that clients give, a line each; empty: none is asked for
    std::string served_name;  // of the model; empty: the last part of the target's name
    int max_waiting = 256;    // requests that wait for a free place
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
    std::vector<std::string> results; // results of generate
    std::string output;
    bool quiet = false;
};

// The plan of timing passes.
struct LatencyPlan {
    std::vector<int> rows = {16}; // rows of a pass: from 1 to that number; several numbers: only these
    std::vector<int> contexts;    // tokens in the cache before each pass, one after another; empty: default_context()
    int repetitions = 200;        // at most, within ...
    double max_seconds = 30;      // ... each context; 0: however long they take
    std::optional<spec::TreeOptions> tree; // its first rows are timed next to chains of the same length; fixed
    bool draft_levels = false;             // true: a draft's passes over a level of a tree are timed, too

    int max_rows() const { return *std::ranges::max_element(rows); }
    bool times(int n_rows) const {
        return rows.size() == 1 ? n_rows <= rows.front() : std::ranges::count(rows, n_rows) > 0;
    }
};

struct LatencyOptions {
    ModelOptions models;
    dist::DraftPlacement placement = dist::DraftPlacement::colocated;
    LatencyPlan plan;
    std::vector<int> shards; // for each number of ranks, one shard is timed alone
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
    AheadList ahead;
    DrafterSources sources;
    std::string output; // results as JSON; empty: none
    bool json = false;
    bool quiet = false;
    std::vector<std::vector<spec::StopRuleOptions>> rules; // each for every level of a cascade
    std::vector<spec::TreeOptions> trees;                  // for the first --draft, compared with chains
    int max_draft_tokens = spec::StopRuleOptions::kDefaultMaxTokens;
    spec::StopRuleOptions every_rule; // settings of all rules
    std::vector<spec::AcceptanceOptions> acceptances = {{}};
    std::vector<std::string> costs; // files, one for each level; empty: measured first
    bool tune = false;
    std::optional<double> synthetic_acceptance; // drafted tokens are accepted by chance; texts mean nothing
};

struct RecordOptions {
    ModelOptions models;
    RequestDefaults requests;
    std::string input;
    std::string output;
    std::vector<spec::TreeOptions> trees; // their rows are recorded, too
    bool resume = false;
    int max_prompts = 0; // 0: all
    int max_draft_tokens = spec::StopRuleOptions::kDefaultMaxTokens;
    std::vector<std::string> costs; // files, one for each draft; empty: measured first
    bool quiet = false;
};

// Costs that replace those of the recording; empty: the recording's.
struct CostsInstead {
    std::string file;
    std::optional<double> t_draft_ms, t_first_draft_ms, t_draft_row_ms, t_round_ms;
    std::vector<double> t_target_ms; // for passes of 1, 2, ... rows; the last goes on
};

// The way in which rounds are made of recordings. imputed is the approximation of spec::ReplaySetting::imputed_from.
enum class ReplayMethod { exact, imputed };

struct SimulateOptions {
    std::vector<std::string> recordings;
    std::vector<spec::StopRuleOptions> rules;
    std::vector<spec::TreeOptions> trees;
    bool oracle = false; // plain decoding, the base of every speed-up, always runs
    // The cap of all rules and of the oracle. None: the rules' own cap, or the recording's if that is lower.
    std::optional<int> max_draft_tokens;
    bool best_of_each = false; // only the fastest setting of each rule is shown
    ReplayMethod method = ReplayMethod::exact;
    std::optional<int> imputed_from; // none: the number in the recording
    std::optional<int> draft;        // from 1; none: each draft
    CostsInstead costs;
    spec::StopRuleOptions every_rule; // settings of all rules
    dist::DraftPlacement placement = dist::DraftPlacement::colocated;
    int outcomes_ahead = 8;    // outcomes to draft for with dedicated; 0: none
    std::optional<int> ahead;  // outcomes_ahead, if it has an effect
    int threads = 0;           // 0: all cores
    std::string output, trace; // files; empty: none
    bool json = false;
};

struct TuneOptions {
    ModelOptions models;
    RequestDefaults requests;
    std::string input;
    std::string recording;                // to choose settings by; empty: made from half the prompts
    std::string output;                   // --config file of the winner
    std::string report;                   // JSON; empty: none
    std::vector<spec::TreeOptions> trees; // tried next to the rules, with narrower ones
    int max_prompts = 0;
    int max_draft_tokens = spec::StopRuleOptions::kDefaultMaxTokens;
    int repetitions = 3; // real runs of each rule's best
    std::vector<std::string> costs;
    bool quiet = false;
};

struct DistillOptions {
    ModelOptions models; // its draft is the one to train, or there is none
    int layers = 0;      // layers of the draft, the target's first ones; 0: the draft is a checkpoint
    int hidden_size = 0; // for a draft of `layers` layers with random weights; 0: the target's weights
    std::string input;   // prompts; empty: from `texts`, or resumed
    std::string output;  // directory
    std::string texts;   // scored texts of an earlier run; empty: made from the input
    int max_prompts = 0;
    RequestDefaults requests;
    std::vector<double> temperatures = {0, 1}; // each prompt is continued at each temperature
    int batch_size = 8;                        // texts decoded together
    int top_tokens = 64;                       // likely tokens of a place whose probabilities are kept
    int held_out_one_in = 10;                  // one in that many prompts is held out
    int own_texts = 0;                         // number of times in training that the draft's own texts join
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
    bool gpu = false;   // GPUs are checked, and must exist
    std::vector<std::string> drafts;
    int threads = 0; // 0: gather_facts() counts them
    int repetitions = 1000;
    double collective_timeout_seconds = dist::kDefaultTimeoutSeconds;
    bool json = false;
};

// The way in which the model would be run. The needs of each rank are computed, not tried.
struct InspectOptions {
    std::string model;
    std::string draft;                      // empty: none
    std::string head;                       // directory of a draft head in place of a draft; empty: none
    std::optional<model::WeightType> dtype; // empty: the file's
    std::optional<model::WeightType> draft_dtype;
    std::optional<model::WeightType> kv_type; // as in ModelOptions
    bool on_gpu = false;
    int ranks = 1;
    int threads = 1; // of each rank
    int batch = 1;
    int length = 0;                            // positions; 0: the model's context
    std::optional<std::uint64_t> memory_bytes; // memory of each rank; empty: not checked
    bool json = false;
};

// The options of each command, bound to its struct.
void declare(OptionSet& set, GenerateOptions& options);
void declare(OptionSet& set, ServeOptions& options);
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

// For the struct of a command: its declarations, and the struct filled from the given values. Throw BadOption.
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

// Says that given options have no effect in a run that samples no text. `what_is_greedy` follows "temperature 0".
// Empty: no such option was given.
std::string why_no_sampling(const RequestDefaults& requests, const char* what_is_greedy = "");

// Nothing to tune: it was about as fast as the best tuned threshold wherever that was measured (bench/NOTES.md).
constexpr const char* kDefaultStopRule = "expected-gain";

// Returns the rule of a drafter that shapes its own trees: expected-gain drafts only in rounds where that pays,
// constant in all. `max_tokens`: of a draft, also of a chain by the other drafters in its list.
spec::StopRuleOptions own_tree_rule(const std::string& rule, int max_tokens);
// Describes the drafter in a few words: "ngram+model", "draft1<draft2".
std::string describe(const DrafterChoice& drafter);
// Returns the rule as --stop-rule takes it: "static:threshold=2.25".
std::string describe(const spec::StopRuleOptions& rule);

} // namespace entrodraft::launch
