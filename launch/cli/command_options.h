// The first phase of every command: all ranks read the options in the same way, or print --help. No command overwrites
// its own input: all files that the options name are checked before any of them is opened.
#pragma once

#include "launch/cli/command_pages.h"
#include "launch/cli/generation_defaults.h"
#include "launch/cli/options.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"

#include <optional>
#include <string>

namespace entrodraft::launch {

// Throws BadOption if a file to be written is also read, under any name, as stdin or as a part of a model, or is
// written twice. Pipes and devices may be both read and written.
void refuse_output_conflicts(const ParsedOptions& given, const std::vector<OptionGroup>& groups);

// Returns nothing if --help was asked for and printed. Throws OrderlyFailure. Collective over the world.
template <typename Options>
std::optional<Options> read_options(dist::Session& session, const Arguments& arguments, const CommandPage& page) {
    const std::vector<OptionGroup>& groups = groups_of<Options>();
    session.watch().enter(dist::kNoRound, "options");
    std::optional<Options> options;
    std::string canonical, help;
    in_agreement(session, [&] {
        const ParsedOptions given = parse_options(groups, arguments);
        canonical = given.canonical_text();
        help = given.text("help");
        if (!help.empty()) return;
        try {
            options = options_of<Options>(given);
            refuse_output_conflicts(given, groups);
            if constexpr (requires { options->requests; }) take_generation_config(options->models, options->requests);
        } catch (const BadOption& error) {
            throw BadOption(given.with_places(error.what()));
        }
    });
    require_same(session, "the command line", canonical);
    if (!options) print_help(session, page, help == "all");
    return options;
}

// Runs a command that the first rank does alone while the others wait. `work` returns the exit code. Collective over
// the world.
template <typename Options>
int run_on_first_rank(dist::Session& session, const Arguments& arguments, const CommandPage& page,
                      ExitCode (*work)(const Options&)) {
    constexpr double kMaxSeconds = 24 * 3600.0;
    const auto options = read_options<Options>(session, arguments, page);
    if (!options) return kAllServed;
    int exit_code = kAllServed;
    in_agreement(session, kMaxSeconds, [&] {
        if (session.world_rank() == 0) exit_code = work(*options);
    });
    return static_cast<int>(from_writer(session, exit_code));
}

} // namespace entrodraft::launch
