// Which shape of a draft is worth training: each is trained for a while and timed, and its acceptance after all steps
// predicted.
//
// Called by distill.
#pragma once

#include "dist/session/session.h"
#include "launch/cli/options.h"

namespace entrodraft::launch {

// The exit code. Collective over the world.
int search_shapes(dist::Session& session, const DistillOptions& options);

} // namespace entrodraft::launch
