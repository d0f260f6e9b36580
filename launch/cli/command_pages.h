// Declares the commands: the texts of --help are written here, once, next to the options. reference.py gets these
// declarations as JSON. It makes the manual page, docs/cli.md and completion for shells from them.
#pragma once

#include "dist/session/session.h"
#include "launch/cli/option_set.h"

#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

using Arguments = std::vector<std::string>;

struct CommandPage {
    const char* name;                  // "bench latency"
    const char* summary;               // in a few words
    std::vector<const char*> usage;    // command lines, with placeholders
    const char* remarks;               // "" or whole lines
    std::vector<const char*> examples; // command lines
    const std::vector<OptionGroup>& (*groups)();
    int (*run)(dist::Session&, const Arguments&);
    bool is_for_one_rank = false; // run_on_first_rank() runs it: no other rank is needed
};

// Returns the pages in the order of --help.
const std::vector<CommandPage>& command_pages();
// Throws std::invalid_argument if no command has that name.
const CommandPage& page_of(std::string_view name);

// The commands (launch/cmd). Each takes the arguments after its name, and returns the exit code on every rank. A
// failure that all ranks know of is thrown as OrderlyFailure; any other exception belongs to one rank
// (cmd/program.cpp). Collective over the world.
int run_generate(dist::Session& session, const Arguments& arguments);
int run_serve(dist::Session& session, const Arguments& arguments);
int run_tokenize(dist::Session& session, const Arguments& arguments);
int run_build_table(dist::Session& session, const Arguments& arguments);
int run_build_corpus(dist::Session& session, const Arguments& arguments);
int run_record(dist::Session& session, const Arguments& arguments);
int run_simulate(dist::Session& session, const Arguments& arguments);
int run_tune(dist::Session& session, const Arguments& arguments);
int run_distill(dist::Session& session, const Arguments& arguments);
int run_doctor(dist::Session& session, const Arguments& arguments);
int run_inspect(dist::Session& session, const Arguments& arguments);
int run_bench_latency(dist::Session& session, const Arguments& arguments);
int run_bench_compare(dist::Session& session, const Arguments& arguments);

// Prints help_text(page, all), on the writer. Throws std::runtime_error.
void print_help(dist::Session& session, const CommandPage& page, bool all);

// Returns "entrodraft 0.1.0".
std::string version_text();
// Returns the text of `entrodraft --help`.
std::string overview_text();
// Returns the text of `entrodraft COMMAND --help`, or of --help=all.
std::string help_text(const CommandPage& page, bool all);
// Returns `entrodraft help --json`: commands with options, and exit codes. `version`: "entrodraft 0.1.0".
std::string declarations_as_json(const std::string& version);

} // namespace entrodraft::launch
