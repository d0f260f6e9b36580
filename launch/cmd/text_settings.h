// Lists the settings that determine the texts of a run of generate, for OUTPUT.settings: the target, and the defaults
// of requests. If drafts can change the text, the drafts and their rule are listed too. Ranks, batches and paths are
// not.
#pragma once

#include "launch/cli/options.h"
#include "launch/io/json_line.h"
#include "launch/load/model_pair.h"

namespace entrodraft::launch {

// The models must have been opened with ModelOptions::takes_digests. Local, on the writer.
Json text_settings(const GenerateOptions& options, const ModelPair& models, const PromptLimits& limits);

} // namespace entrodraft::launch
