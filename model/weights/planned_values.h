// The small tensors of a plan, read into float32: norms, biases, positions and the like.
#pragma once

#include "model/files/checkpoint.h"
#include "model/weights/layer_plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace entrodraft::model {

// A norm's weights and bias, or another vector. No weight: there is none. RMSNorm has no bias.
struct VectorValues {
    std::vector<float> weight;
    std::vector<float> bias;
};

// Reads this rank's part of a planned vector: a norm with its offset and scale applied; decay rates below 0; a
// convolution by own key head, [n_convolved][convolved_size()]; relative biases by own head and distance, from
// -max_distance on. Throws BadFile.
VectorValues read_planned(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
                          const PlannedVector& vector);

// The biases of a matrix's outputs, in the order of its rows; none where this rank adds none.
std::vector<float> read_biases(const Checkpoint& checkpoint, const PlannedMatrix& matrix);

// All numbers of a tensor.
std::vector<float> read_vector(const Checkpoint& checkpoint, const std::string& name);

// Relative biases are stored as [n_buckets][n_heads]. The index of each of those that this rank holds.
std::vector<std::int64_t> relative_bias_indices(const ModelConfig& config, const RankShard& shard);

} // namespace entrodraft::model
