// Groups of options that several commands have. Private to the tables of options.
#pragma once

#include "launch/cli/option_set.h"

#include <initializer_list>
#include <string>
#include <vector>

namespace entrodraft::launch {

// What --help says of an option of `generate`, for commands whose option means the same.
const char* help_of_generate(const std::string& name);

const OptionGroup& general_group();
const OptionGroup& sampling_group();
const OptionGroup& chat_group();

// Of commands that are run on models for their figures. `draft_help`: what --draft is to this one, which outlives them.
std::vector<OptionSpec> bench_model_options(const char* draft_help);
// Of those of them that can do without colocation.
const std::vector<OptionSpec>& placement_options();
// Of benches that decode prompts, and of those that take several drafters for it.
const std::vector<OptionSpec>& bench_prompt_options();
const std::vector<OptionSpec>& drafter_source_options();
const std::vector<OptionSpec>& bench_result_options();

OptionGroup joined(const char* title, std::initializer_list<std::vector<OptionSpec>> parts);

} // namespace entrodraft::launch
