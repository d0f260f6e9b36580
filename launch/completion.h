// A shell's completion of our command line, as a script made from the declared options.
//
// Called by the command completion.
#pragma once

#include "entrodraft/launch/options/option_set.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

struct CompletedCommand {
    std::string name; // "generate", "bench latency"
    const std::vector<OptionGroup>* groups = nullptr;
};

// For bash: commands, their options, and values where these are files, directories or a few words. Local.
std::string bash_completion(const std::vector<CompletedCommand>& commands);

} // namespace entrodraft::launch
