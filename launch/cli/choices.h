// Options with a closed set of values: the sets, each declared once, for help, completion and parsing.
#pragma once

#include <string>
#include <vector>

namespace entrodraft::launch {

using Names = std::vector<std::string>;

const Names& device_choices(); // auto, cpu, cuda
const Names& dtype_choices();
const Names& cpu_dtype_choices(); // of commands that know CPUs alone
const Names& placement_choices(); // colocated, dedicated, sharded
const Names& replayed_placement_choices();
const Names& drafter_choices();
const Names& ngram_match_choices(); // latest, first
const Names& stop_rule_choices();
const Names& compared_rule_choices(); // with all and none
const Names& replayed_rule_choices(); // with all, oracle and grid
const Names& entropy_unit_choices();  // nats, bits
const Names& entropy_of_choices();    // raw, adjusted
const Names& acceptance_choices();
const Names& chat_template_choices();

} // namespace entrodraft::launch
