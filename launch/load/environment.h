// Describes the environment of a run: hardware, ranks, types and build.
#pragma once

#include "launch/io/json_line.h"
#include "launch/load/model_pair.h"

#include <string>

namespace entrodraft::launch {

// CPU, cores, ranks, threads, types, version and compiler, as fields and as one line.
Json environment_of(const dist::Session& session, const ModelPair& models);
std::string environment_line(const Json& environment);
// Throws BadOption if the costs file says that it was measured with other ranks, threads or types.
void require_costs_of(const Json& environment, const std::string& costs_file);

} // namespace entrodraft::launch
