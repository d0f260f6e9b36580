// Completion of our command line by shells, as scripts made from the declared commands and options.
//
// Called by the command completion.
#pragma once

#include <string>

namespace entrodraft::launch {

// Commands, their options, and values where these are files, directories or of a closed set. Local.
std::string bash_completion();
std::string zsh_completion();

} // namespace entrodraft::launch
