// From the command's name to the command.
#pragma once

#include "launch/cli/command_pages.h"

namespace entrodraft::launch {

// True where the first rank alone does what the arguments ask for: it prints help, says that there is no such command,
// or runs a command that needs no other rank.
bool is_for_one_rank(const Arguments& arguments);
// arguments[0] is the command. Collective over the world.
int run_command(dist::Session& session, const Arguments& arguments);

} // namespace entrodraft::launch
