// Options that several commands share. Each is declared once, with its checks. Private to files that declare commands.
#pragma once

#include "launch/cli/options.h"
#include "spec/draft/drafter.h"
#include "spec/protocol/packet.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

constexpr const char* kTargetAliases = "m model";
constexpr const char* kDraftAliases = "md draft-model model-draft";
constexpr Range kThreads = {1, 1024};
constexpr const char* kThreadsHelp =
    "threads of each rank [OMP_NUM_THREADS or SLURM_CPUS_PER_TASK, else cores / local ranks]";
constexpr const char* kStdoutIsForText = " writes a file; stdout is for text";
constexpr const char* kStdoutIsForJson = " writes a file; for stdout there is --json";

constexpr const char* kResumeHelp =
    "go on where --output FILE ends, with the same input; a file that does not exist is begun";
constexpr const char* kQuietHelp = "no progress, no warnings, no summary";
constexpr const char* kJsonHelp = "results as JSON on stdout, not as tables";

// Declares the models and their device. `draft_help`: the help of --draft for this command.
void declare_models(OptionSet& set, ModelOptions& models, const char* draft_help);
// Declares --draft-window, and the checks of --draft self.
void declare_draft_window(OptionSet& set, ModelOptions& models);
void declare_draft_vocab(OptionSet& set, ModelOptions& models);
// For commands whose recordings hold the draft's proposals after any text. Throws BadOption.
void refuse_self_draft(const ModelOptions& models, const char* command);
void declare_head(OptionSet& set, ModelOptions& models);
void declare_head(OptionSet& set, std::string& head, const char* help); // next to --draft
void refuse_sharded_head(dist::DraftPlacement placement, bool has_head);
// Returns the default of --drafter: "model", "head" or none.
std::string default_drafter(const ModelOptions& models);
// For commands that measure models. Also declares --max-context and --collective-timeout.
void declare_measured_models(OptionSet& set, ModelOptions& models, const char* draft_help);
void declare_kv_type(OptionSet& set, std::optional<model::WeightType>& field);
// Declares --dtype and --draft-dtype.
void declare_weight_types(OptionSet& set, std::optional<model::WeightType>& target,
                          std::optional<model::WeightType>& draft, const char* help);
// Throws BadOption if a type is float8 and the run uses no GPU.
void refuse_weight_types_of_others(std::optional<model::WeightType> target, std::optional<model::WeightType> draft,
                                   bool on_gpu);
OptionSpec& declare_max_context(OptionSet& set, int& positions);
void declare_timeout(OptionSet& set, double& seconds);
void declare_placement(OptionSet& set, dist::DraftPlacement& placement);

// Declares sampling, penalties, banned tokens and ends: the defaults of requests.
OptionSpec& declare_new_tokens(OptionSet& set, int& new_tokens);
void declare_ends(OptionSet& set, RequestDefaults& requests);
void declare_sampling(OptionSet& set, RequestDefaults& requests);
// Declares --generation-config, after the options that override the file. If a command has --temperatures, temperatures
// are always its own.
void declare_generation_config(OptionSet& set, RequestDefaults& requests);
// Notes which of these options were given; they have no effect on greedy text.
void note_sampling_options(const ParsedOptions& given, const Names& options, RequestDefaults& requests);
// For a run without temperatures on lines. Throws BadOption if such options were given, or leaves that to the reader of
// generation_config.json, which may ask for sampling.
void refuse_no_sampling(RequestDefaults& requests);
void declare_seed(OptionSet& set, std::uint64_t& seed);
// Lines with messages are conversations without --chat, too, so a template may be named without it.
void declare_chat(OptionSet& set, ModelOptions& models, RequestDefaults& requests);
// Does the same without --chat, for requests that are conversations or are not.
void declare_chat_template(OptionSet& set, ModelOptions& models, RequestDefaults& requests);

// Returns "model: --draft; without a model ngram, suffix: what followed the text's end before; ...". Neighbours that
// propose the same are named together.
std::string proposals_of_drafters();
// Reads trees of one draft model, and sets their stop rule if none is given. Runs after drafters and stop rules.
void read_tree(const ParsedOptions& given, const spec::AcceptanceOptions& acceptance, SpeculationOptions& speculation);
// Checks the options of a drafter that shapes its own trees and sets its rule. Runs after drafters and stop rules are
// read, too.
void read_own_trees(const ParsedOptions& given, const spec::AcceptanceOptions& acceptance,
                    SpeculationOptions& speculation);
// Declares --tree, which is repeated for several trees.
void declare_trees(OptionSet& set, std::vector<spec::TreeOptions>& trees, const std::string& help);
// Declares the sources of drafters without a model. check_sources() reads them when the drafters are known.
void declare_sources(OptionSet& set, DrafterSources& sources);
void check_sources(const ParsedOptions& given, const std::vector<DrafterChoice>& drafters, DrafterSources& sources);
constexpr const char* kAcceptanceHelp =
    "gumbel: sampled text that no draft changes; rejection, block: more tokens accepted, but another text at the same "
    "seed; typical, bild, and rejection with a lenience below 1: LOSSY, not the target's own text";
// Returns the values of the acceptances, as help has them.
std::string acceptance_values_help();
// Reads "typical:epsilon=0.1". Throws BadOption.
spec::AcceptanceOptions read_acceptance(const GivenValue& given);
// Reads a list of drafters with their values: "ngram:max=3,model".
DrafterChoice parse_drafter(const GivenValue& given, char separator, const ModelOptions& models);
// Returns the drafters' values with what they mean, as help has them.
std::string drafter_values_help();
// Reads "8", "auto:passes=2", or 0 for none.
std::optional<spec::AheadOptions> read_ahead(const GivenValue& given);
extern const char* const kAheadHelp; // what --draft-ahead takes
// Returns the drafters; a drafter that can draft ahead is returned with each setting of `ahead`. `needs` says what
// drafting ahead takes. A draft that is sharded across the ranks goes with no other drafter.
std::vector<DrafterChoice> with_ahead(const std::vector<DrafterChoice>& drafters, const ParsedOptions& given,
                                      dist::DraftPlacement placement, int batch_size, const AheadList& ahead,
                                      const char* needs);

// ---- stop rules: options made from the declarations in spec/stop ----

// Returns `names`, followed by the names of all rules.
Names with_stop_rules(Names names);
// Returns all rules with their defaults: "static:threshold=0.75, moving-average:factor=0.3:window=7, ...".
std::string stop_rule_forms(const char* between_forms = ", ");

// Declares --stop-rule, --max-draft-tokens and --costs, for each level of drafting. read_stop_rules() reads them.
void declare_stop_rules(OptionSet& set, SpeculationOptions& speculation);
// Declares a setting of all rules of a list.
OptionSpec& declare_min_draft_tokens(OptionSet& set, int& field);
void declare_drop_stop_token(OptionSet& set, bool& field);
extern const Names kEntropyNames; // "raw", "adjusted"
constexpr Range kDraftTokens = {1, spec::Packet::kMaxDraftTokens};
constexpr int kTreeTokens =
    spec::TreeOptions::kDefaultTokens; // size limit of a growing tree, unless --max-draft-tokens gives another

// Parses a rule that a line names in place of the run's. Throws BadOption.
spec::StopRuleOptions rule_of_line(const std::string& text, const RulesOfLines& of_run);
// Reads stop_rules and costs of `speculation`. Throws BadOption.
void read_stop_rules(const ParsedOptions& given, std::size_t n_levels, SpeculationOptions& speculation);
// Reads --rules of bench compare and simulate: "static:2.25" or, for a cascade, "static:2/constant:4". `common` has the
// settings of all rules: caps, and for rules that look at distributions, which distribution and whether the token that
// fires is dropped. `beside`: names that the caller handles itself, for messages. Throws BadOption.
std::vector<std::vector<spec::StopRuleOptions>> compared_rules(const std::string& rules,
                                                               const spec::StopRuleOptions& common,
                                                               std::size_t n_levels, const Names& beside = {});
// Does the same for a rule that has its values.
spec::StopRuleOptions with_common(spec::StopRuleOptions rule, const spec::StopRuleOptions& common);

} // namespace entrodraft::launch
