// Options of stop rules, made of what the rules' files in spec/stop declare: names, help, values of levels and of
// lists. Private to the files that make options into structs and help, and to those that refuse fields of such names.
#pragma once

#include "launch/cli/options.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

// ---- names and help ----

// "entropy-threshold", ...: the options of all rules' parameters, each once, in the order of the rules.
const std::vector<std::string>& stop_rule_parameter_names();
// These options. What they point to lasts as long as the program.
const std::vector<OptionSpec>& stop_rule_parameter_options();
// "static:TAU", "moving-average:LAMBDA:N", ..., joined by `between`; the forms of one rule by `between_forms`.
std::string stop_rule_forms(const std::string& between, const std::string& between_forms);
// Rules that take --costs, and "--entropy-threshold": options that --entropy-unit is for.
std::string rules_that_weigh_costs();
std::string options_in_entropy_units();
// "--heuristic-persistent": options with which --max-draft-tokens is as large as it can be.
std::string options_without_a_cap();

// ---- values ----

// All throw BadOption. Local.

// --stop-rule and the options of rules, for each level of drafting: stop_rules, costs and entropy_unit of
// `speculation`.
void read_stop_rules(const ParsedOptions& given, std::size_t n_levels, SpeculationOptions& speculation);
// "static:2.25" of --rules, with the options of `given` that all rules share. `beside`: names that the caller takes
// itself, for messages.
spec::StopRuleOptions parse_listed_rule(const std::string& text, const ParsedOptions& given,
                                        const std::vector<std::string>& beside);
// --drop-stop-token, for a rule that looks at what was drafted, but not at the token; false for others.
bool drop_stop_token(const ParsedOptions& given, const spec::StopRuleType& rule);

} // namespace entrodraft::launch
