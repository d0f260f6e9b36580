// What options of other programs (vLLM, llama.cpp, transformers, SGLang) are called here, or why they are not here: for
// the message about an unknown option. Names that mean exactly an option of ours are its aliases, in option_tables.cpp.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace entrodraft::launch {

// The remedy for whoever gave `name` (without dashes) to a command that does not have it; empty where nothing is known.
// `has_option` tells which options the command has: no remedy names one that it lacks. Local.
std::string remedy_for_foreign_option(std::string_view name,
                                      const std::function<bool(std::string_view name)>& has_option);

} // namespace entrodraft::launch
