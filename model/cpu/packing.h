// From weights as files store them to weights as the kernels read them: 16 rows at a time, turned so that outputs lie
// in the lanes, converted or quantised where the types differ. Knows nothing of threads and slices. Called by
// packed_matrix, and by decoder for vectors.
#pragma once

#include "dist/shard.h"
#include "model/checkpoint/tensor_view.h"
#include "model/config.h"
#include "model/cpu/kernels.h"

#include <cstddef>
#include <cstdint>

namespace entrodraft::model {

// How many inputs of 16 outputs a line of 64 bytes holds.
int inputs_of_line(WeightType type);
// What k inputs of 16 outputs take (kernels::LinearArgs).
std::size_t unit_bytes_of(WeightType type, kernels::WeightGroups groups, int k);

// The stored weights of one output. Input i lies at element first + i * stride of the tensor.
struct StoredWeights {
    const TensorView* tensor = nullptr; // nullptr: all zeros
    std::int64_t first = 0;
    std::int64_t stride = 1;
    std::int64_t inputs = 0; // of the whole row
    dist::Slice wanted;      // the inputs to be packed; zeros behind them
};

// Packs k inputs of 16 outputs: a unit to `out`. int8: each row's scale, the largest magnitude of the WHOLE stored row
// / 127, goes to scales[16]. int4: the scale of a group of the stored row is its number of the largest magnitude / -8,
// in bfloat16; so any slice of inputs is rounded alike. Throws BadFile on a stored type that holds no weights. Local.
void pack_unit(WeightType type, kernels::WeightGroups groups, const StoredWeights (&rows)[kernels::kLanes], int k,
               float* scales, std::byte* out);

// A packed unit.
struct PackedUnit {
    WeightType type;
    kernels::WeightGroups groups;
    int k;
    const std::byte* bytes;
};
// out[i - inputs.begin] = weight of (lane, input i), int8's with the lane's `scale`. Local.
void unpack_row(const PackedUnit& unit, int lane, float scale, dist::Slice inputs, float* out);

// Elements [begin, end) of a stored tensor, as float32. Throws BadFile on a type that holds no weights. Local.
void read_floats(const TensorView& tensor, dist::Slice range, float* out);

} // namespace entrodraft::model
