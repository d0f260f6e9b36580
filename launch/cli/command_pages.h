// The commands: what --help says of each, declared here, once, beside its options. reference.py makes the manual page,
// docs/cli.md and completion for shells of the same declarations, as JSON.
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
    bool is_for_one_rank = false; // by run_on_first_rank(): no other rank is needed
};

// In the order of --help.
const std::vector<CommandPage>& command_pages();
// Throws std::invalid_argument where there is none of that name.
const CommandPage& page_of(std::string_view name);

// The commands (launch/cmd). Each takes what follows its name, and returns the exit code on every rank. Failures that
// all ranks know of are thrown as OrderlyFailure; anything else is one rank's own (cmd/program.cpp). Collective over
// the world.
int run_generate(dist::Session& session, const Arguments& arguments);
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

// Prints help_text(page), on the writer. Throws std::runtime_error.
void print_help(dist::Session& session, const CommandPage& page);

// "entrodraft 0.1.0".
std::string version_text();
// `entrodraft --help`.
std::string overview_text();
// `entrodraft COMMAND --help`.
std::string help_text(const CommandPage& page);
// `entrodraft help --json`: commands with their options, and exit codes. `version`: "entrodraft 0.1.0".
std::string declarations_as_json(const std::string& version);

} // namespace entrodraft::launch
