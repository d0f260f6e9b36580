// The summary of a run as JSON, for generate --summary; docs/SCHEMAS.md has its fields.
#pragma once

#include "entrodraft/launch/generate/summary.h"
#include "entrodraft/launch/json_line.h"

namespace entrodraft::launch {

// `environment`: see environment.h. Local.
Json summary_json(const RunSummary& summary, const GenerateOptions& options, const Json& environment);

} // namespace entrodraft::launch
