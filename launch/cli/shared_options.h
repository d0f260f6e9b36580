// Options that several commands have, each declared once, with the checks that go with them. Private to the files that
// declare commands.
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

// Models and what computes. `draft_help`: what --draft is to this command.
void declare_models(OptionSet& set, ModelOptions& models, const char* draft_help);
// --draft-window, --draft-sinks, and what --draft self goes with.
void declare_draft_window(OptionSet& set, ModelOptions& models);
void declare_draft_vocab(OptionSet& set, ModelOptions& models);
// Of commands whose recordings hold what a draft proposes behind any text. Throws BadOption.
void refuse_self_draft(const ModelOptions& models, const char* command);
void declare_head(OptionSet& set, ModelOptions& models);
void declare_head(OptionSet& set, std::string& head, const char* help); // beside --draft
void refuse_sharded_head(dist::DraftPlacement placement, bool has_head);
// Of --drafter, where it is not given: "model", "head" or none.
std::string default_drafter(const ModelOptions& models);
// The same of commands that are run on models for their figures, with --max-context and --collective-timeout.
void declare_measured_models(OptionSet& set, ModelOptions& models, const char* draft_help);
void declare_kv_type(OptionSet& set, std::optional<model::WeightType>& field);
// --dtype and --draft-dtype.
void declare_weight_types(OptionSet& set, std::optional<model::WeightType>& target,
                          std::optional<model::WeightType>& draft, const char* help);
// Throws BadOption where one of them is float8 and no GPU computes.
void refuse_weight_types_of_others(std::optional<model::WeightType> target, std::optional<model::WeightType> draft,
                                   bool on_gpu);
OptionSpec& declare_max_context(OptionSet& set, int& positions);
void declare_timeout(OptionSet& set, double& seconds);
void declare_placement(OptionSet& set, dist::DraftPlacement& placement);

// Sampling, penalties, banned tokens, ends: what a request asks for where its line says nothing.
OptionSpec& declare_new_tokens(OptionSet& set, int& new_tokens);
void declare_ends(OptionSet& set, RequestDefaults& requests);
void declare_sampling(OptionSet& set, RequestDefaults& requests);
// --generation-config, behind the options that go before the file. Temperatures are always the command's own where it
// has --temperatures.
void declare_generation_config(OptionSet& set, RequestDefaults& requests);
// Notes which of these options were given: they have no effect on greedy text.
void note_sampling_options(const ParsedOptions& given, const Names& options, RequestDefaults& requests);
// For a run in which no line may have a temperature: throws BadOption where such options were given, or leaves that to
// the reader of generation_config.json, which may ask for sampling.
void refuse_no_sampling(RequestDefaults& requests);
void declare_seed(OptionSet& set, std::uint64_t& seed);
// Lines with messages are conversations without --chat too, so that a template may be named without it.
void declare_chat(OptionSet& set, ModelOptions& models, RequestDefaults& requests);

// "model: --draft; without a model ngram, suffix: what followed the text's end before; ...": neighbours that propose
// the same are named together.
std::string proposals_of_drafters();
// Trees of one draft model, with the stop rule that goes with them where none is given. Read behind the drafters and
// the stop rules.
void read_tree(const ParsedOptions& given, const spec::AcceptanceOptions& acceptance, SpeculationOptions& speculation);
// What the drafter lookahead goes with, and its rule. Read behind drafters and stop rules too.
void read_lookahead(const ParsedOptions& given, const spec::AcceptanceOptions& acceptance,
                    SpeculationOptions& speculation);
// --tree, given once for each of several.
void declare_trees(OptionSet& set, std::vector<spec::TreeOptions>& trees, const std::string& help);
// What drafters without a model draw on; check_sources() reads it with the drafters in view.
void declare_sources(OptionSet& set, DrafterSources& sources);
void check_sources(const ParsedOptions& given, const std::vector<DrafterChoice>& drafters, DrafterSources& sources);
void declare_lenience(OptionSet& set, double& lenience);
// "ngram,model".
DrafterChoice parse_drafter(const GivenValue& given, char separator, const ModelOptions& models);
void declare_ahead_passes(OptionSet& set, AheadLists& ahead, const char* help);
// The drafters, those that can draft ahead with each setting of `ahead`; `needs` says what that takes. A draft that is
// sharded across the ranks goes with no other drafter.
std::vector<DrafterChoice> with_ahead(const std::vector<DrafterChoice>& drafters, const ParsedOptions& given,
                                      dist::DraftPlacement placement, int batch_size, const AheadLists& ahead,
                                      const char* needs);

// ---- stop rules: options made of what the rules' files in spec/stop declare ----

// The names, and those of all rules.
Names with_stop_rules(Names names);
// "static:TAU, moving-average:LAMBDA:N, ...", the forms of one rule joined by `between_forms`.
std::string stop_rule_forms(const char* between_forms = ", ");

// --stop-rule and what rules are set by, of each level of drafting; read_stop_rules() reads them.
void declare_stop_rules(OptionSet& set, SpeculationOptions& speculation);
// What holds for all rules of a list.
OptionSpec& declare_min_draft_tokens(OptionSet& set, int& field);
void declare_drop_stop_token(OptionSet& set, bool& field);
extern const Names kEntropyNames; // raw, adjusted
constexpr Range kDraftTokens = {1, spec::Packet::kMaxDraftTokens};
constexpr int kTreeTokens =
    spec::TreeOptions::kDefaultTokens; // of a tree that grows, at most, unless --max-draft-tokens says otherwise

// stop_rules and costs of `speculation`. Throws BadOption.
void read_stop_rules(const ParsedOptions& given, std::size_t n_levels, SpeculationOptions& speculation);
// --rules of bench compare and simulate: "static:2.25" or, of a cascade, "static:2/constant:4", with what `common` says
// of all rules: caps, and as far as the rule looks at distributions, which, and whether the token that fires is
// dropped. `beside`: names that the caller takes itself, for messages. Throws BadOption.
std::vector<std::vector<spec::StopRuleOptions>> compared_rules(const std::string& rules,
                                                               const spec::StopRuleOptions& common,
                                                               std::size_t n_levels, const Names& beside = {});
// The same for a rule that has its values.
spec::StopRuleOptions with_common(spec::StopRuleOptions rule, const spec::StopRuleOptions& common);

} // namespace entrodraft::launch
