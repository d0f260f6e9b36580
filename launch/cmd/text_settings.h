// Lists what makes the texts of a run of generate, for OUTPUT.settings: the target, and what a request has if its line
// says nothing. Where drafts have a say in the text, they and their rule are in it too. Ranks, batches and paths are
// not.
#pragma once

#include "launch/cli/options.h"
#include "launch/io/json_line.h"
#include "launch/load/model_pair.h"

namespace entrodraft::launch {

// The models were opened with ModelOptions::takes_digests. Local, on the writer.
Json text_settings(const GenerateOptions& options, const ModelPair& models, const PromptLimits& limits);

} // namespace entrodraft::launch
