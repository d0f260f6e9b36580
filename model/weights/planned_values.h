// Reads the small tensors of a plan into float32: norms, biases, positions and the like.
#pragma once

#include "model/files/checkpoint.h"
#include "model/weights/layer_plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace entrodraft::model {

// A norm's weights and bias, or another vector. An empty weight means that there is none. RMSNorm has no bias.
struct VectorValues {
    std::vector<float> weight;
    std::vector<float> bias;
};

// Reads this rank's part of a planned vector. A norm has its offset and scale applied; decay rates are below 0; a
// convolution is by own key head, [n_convolved][convolved_size()]; relative biases are by own head and distance, from
// -max_distance on. Throws BadFile.
VectorValues read_planned(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
                          const PlannedVector& vector);

// Returns the biases of a matrix's outputs, in the order of its rows; empty where this rank adds none.
std::vector<float> read_biases(const Checkpoint& checkpoint, const PlannedMatrix& matrix);

// Returns all numbers of a tensor.
std::vector<float> read_vector(const Checkpoint& checkpoint, const std::string& name);

// Relative biases are stored as [n_buckets][n_heads]. Returns the index of each one that this rank holds.
std::vector<std::int64_t> relative_bias_indices(const ModelConfig& config, const RankShard& shard);

} // namespace entrodraft::model
