// Describes a model by its config, for people and for programs. Pure. Called by inspect.
#pragma once

#include "launch/io/report.h"
#include "model/families/config.h"

namespace entrodraft::launch {

// All columns together are model.shape of docs/formats.md; a column with a heading is a line of text.
Columns description_of(const model::ModelConfig& config);

} // namespace entrodraft::launch
