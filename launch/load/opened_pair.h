// Opens the models of a run. Checks, before anything is placed or loaded, that they go together and fit the options.
// Called by model_pair.
#pragma once

#include "dist/layout/layout.h"
#include "launch/load/opened_model.h"

namespace entrodraft::launch {

// `records`: the run records drafts after every place of a text. Throws BadOption, model::BadFile.
OpenedPair open_for_run(const ModelOptions& options, const dist::RankLayout& layout, bool records);

// Logs, on the writer, what people should know of these models before they are loaded.
void say_what_was_opened(const OpenedPair& opened, const ModelOptions& options);

} // namespace entrodraft::launch
