// Options of stop rules, made of what the rules' files in spec/stop declare: names, help, values of levels and of
// lists. Private to the files that declare commands, and to those that refuse fields of such names.
#pragma once

#include "launch/cli/options.h"
#include "spec/packet.h"

#include <string>

namespace entrodraft::launch {

// "entropy-threshold", ...: the options of all rules' parameters, each once, in the order of the rules.
const Names& stop_rule_parameter_names();
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

// stop_rules and costs of `speculation`. Throws BadOption. Local.
void read_stop_rules(const ParsedOptions& given, std::size_t n_levels, SpeculationOptions& speculation);
// "static:2.25" of --rules, with what `common` says of all rules: caps, and as far as the rule looks at distributions,
// which, and whether the token that fires is dropped. `beside`: names that the caller takes itself, for messages.
spec::StopRuleOptions parse_listed_rule(const std::string& text, const spec::StopRuleOptions& common,
                                        const Names& beside);
// The same for a rule that has its values. Throw BadOption. Local.
spec::StopRuleOptions with_common(spec::StopRuleOptions rule, const spec::StopRuleOptions& common);

} // namespace entrodraft::launch
