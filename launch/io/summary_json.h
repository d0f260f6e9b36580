// The summary of a run as JSON, for generate --summary; docs/formats.md has its fields.
#pragma once

#include "launch/io/json_line.h"
#include "launch/io/summary.h"

namespace entrodraft::launch {

// `environment`: see environment.h. Local.
Json summary_json(const RunSummary& summary, const GenerateOptions& options, const Json& environment);

} // namespace entrodraft::launch
