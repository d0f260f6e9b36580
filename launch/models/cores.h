// How many threads a rank may use where --threads says nothing.
#pragma once

#include "entrodraft/dist/session.h"

namespace entrodraft::launch {

// The CPUs this process may run on, shared among the ranks of its host that may run on the very same ones; at
// least 1. So bound ranks use what they are bound to, and unbound ones cores / local ranks. Collective over the world.
int default_threads(dist::Session& session, double timeout_seconds);

} // namespace entrodraft::launch
