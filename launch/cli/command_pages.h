// The commands: what --help says of each, declared here, once, beside its options. reference.py makes the manual page,
// docs/cli.md and completion for shells of the same declarations, as JSON.
#pragma once

#include "launch/cli/option_set.h"
#include "launch/commands.h"

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
    int (*run)(dist::Session&, const Arguments&);
    bool is_for_one_rank = false; // by run_on_first_rank(): no other rank is needed
};

// In the order of --help.
const std::vector<CommandPage>& command_pages();
// Throws std::invalid_argument where there is none of that name.
const CommandPage& page_of(std::string_view name);

// `entrodraft --help`. Local.
std::string overview_text();
// `entrodraft COMMAND --help`. Local.
std::string help_text(const CommandPage& page);
// `entrodraft help --json`: commands with their options, and exit codes. `version`: "entrodraft 0.1.0". Local.
std::string declarations_as_json(const std::string& version);

} // namespace entrodraft::launch
