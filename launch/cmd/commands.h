// Finds a command by its name and runs it.
#pragma once

#include "launch/cli/command_pages.h"

namespace entrodraft::launch {

// Returns whether the first rank alone does what the arguments ask for. It does so when it prints help, when it reports
// an unknown command, and when the command needs no other rank.
bool is_for_one_rank(const Arguments& arguments);
// Runs the command arguments[0]. Collective over the world.
int run_command(dist::Session& session, const Arguments& arguments);

} // namespace entrodraft::launch
