// The parts of a run that generate and serve share: the rounds whose graphs are captured, and the engine's loop.
#pragma once

#include "launch/load/pair_engine.h"
#include "launch/serve/request_tracker.h"

namespace entrodraft::launch {

// Captures the rounds of requests that have only the default settings. Collective over the replica.
void capture_rounds(dist::Session& session, ModelPair& models, const Drafters& drafters, PairEngine::Setting setting,
                    const RequestDefaults& requests);

// Serves requests until there are none. `tracker` is null on ranks that do not coordinate. Returns whether a signal
// ended the run first. Collective over the replica.
bool run_engine(dist::Session& session, spec::Engine& engine, RequestTracker* tracker, const volatile int& stop_signal);

} // namespace entrodraft::launch
