// What --help and the man page say of each command: declared here, once, beside its options.
#pragma once

#include "launch/cli/option_set.h"

#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

struct CommandPage {
    const char* name;                  // "bench latency"
    const char* summary;               // in a few words
    std::vector<const char*> usage;    // command lines, with placeholders
    const char* remarks;               // "" or whole lines
    std::vector<const char*> examples; // command lines
    const std::vector<OptionGroup>& (*groups)();
};

// In the order of --help.
const std::vector<CommandPage>& command_pages();
// Throws std::invalid_argument where there is none of that name.
const CommandPage& page_of(std::string_view name);

// `entrodraft --help`. Local.
std::string overview_text();
// `entrodraft COMMAND --help`. Local.
std::string help_text(const CommandPage& page);

} // namespace entrodraft::launch
