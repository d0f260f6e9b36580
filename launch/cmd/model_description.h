// What a model's config says, for people and for programs. Pure. Called by inspect.
#pragma once

#include "launch/io/report.h"
#include "model/families/config.h"

namespace entrodraft::launch {

// All together docs/formats.md's model.shape; those with a heading are lines of text.
Columns description_of(const model::ModelConfig& config);

} // namespace entrodraft::launch
