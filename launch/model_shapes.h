// Shapes of public models that nobody has to have: what the extrapolation of bench scaling is made for. Pure.
#pragma once

#include "model/config.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

struct ModelShape {
    std::string name;
    model::ModelConfig config; // shapes alone: no positions, no token ids
};

// In bfloat16. Local.
const std::vector<ModelShape>& model_shapes();
// Throws std::invalid_argument where there is none of this name. Local.
const ModelShape& model_shape(const std::string& name);

// Bytes of weights that a pass reads on the rank that holds most, cut over `ranks`. Throws std::invalid_argument that
// names the most ranks possible. Local.
double pass_bytes(const model::ModelConfig& config, int ranks);

} // namespace entrodraft::launch
