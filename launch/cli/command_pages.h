// What --help, the manual page and docs/cli.md say of each command: declared here, once, beside its options; and what
// is made of that.
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

struct Term {
    const char* name;
    const char* meaning;
};

struct Section {
    const char* title;
    std::vector<const char*> paragraphs; // with `code` between backticks
};

// In the order of --help.
const std::vector<CommandPage>& command_pages();
// Throws std::invalid_argument where there is none of that name.
const CommandPage& page_of(std::string_view name);

// What can be asked for in place of a command.
const std::vector<Term>& other_commands();
const std::vector<Term>& exit_codes();
// What holds for all commands: written by hand, for the manual page and docs/cli.md.
const std::vector<Section>& reference_preface();

// `entrodraft --help`. Local.
std::string overview_text();
// `entrodraft COMMAND --help`. Local.
std::string help_text(const CommandPage& page);
// `entrodraft help --man`, in roff with the macros of man(7), and `entrodraft help --markdown`, docs/cli.md: how
// options are read, exit codes, then each command with its options and examples. `version`: "entrodraft 0.1.0". Local.
std::string manual_page(const std::string& version);
std::string markdown_page();
// Scripts that complete commands, their options, and values where these are files, directories or of a closed set.
std::string bash_completion();
std::string zsh_completion();

} // namespace entrodraft::launch
