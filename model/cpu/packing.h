// From weights as files store them to weights as the kernels read them: 16 rows at a time, turned so that outputs lie
// in the lanes, converted or quantised where the types differ. Knows nothing of threads and slices. Called by
// packed_matrix, and by decoder for vectors.
#pragma once

#include "dist/layout/shard.h"
#include "model/cpu/kernels.h"
#include "model/families/config.h"
#include "model/files/quantized.h"
#include "model/files/tensor_view.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace entrodraft::model {

inline constexpr int kInt4Group = 64; // inputs that share a scale where weights are rounded when they are loaded

// Tells kernels where weights lie, and what their inputs are rounded to (kernels::LinearArgs).
struct PackedFormat {
    WeightType type = WeightType::float32;
    kernels::WeightGroups groups = {};
    std::vector<std::int32_t> order = {}; // of inputs as they are packed; empty: as they are stored
    int digits = 3;                       // of int4 and int8: LinearArgs::digits
    bool is_rounded = false;              // of numbers, whatever the file holds, when they are loaded
    int middle = 0;                       // what QuantizedMatrix::read_codes has less than codes of groups
    friend bool operator==(const PackedFormat&, const PackedFormat&) = default;
};
// The format of weights that are converted when they are loaded, of a stored row from `first_input` on.
PackedFormat format_of(WeightType type, std::int64_t first_input);
// The format of quantised ones, as they are, of [outputs][inputs] the inputs in `slice`: GGUF files keep their bits.
// Throws BadFile where a row's groups cannot be sliced so.
PackedFormat format_of(const TensorView& quantized, dist::Slice slice);
// The same with codes of 4 or 8 bits, and floats for scales.
PackedFormat wide_format_of(const TensorView& quantized, dist::Slice slice);
// As this, of what config.json says alone: in what order, and whether with the shorter scales, a file may say.
PackedFormat wide_format_of(const Quantization& quantization, std::int64_t first_input);

// Of a group of up to kInt4Group numbers the scale, in bfloat16, and the codes, 4 bits with a sign: the nearest, ties
// to even. A group with something that is no number has no number for a scale, a tiny one 0.
std::uint16_t quantise_group(const float* values, int count, std::uint8_t* codes);

// What k inputs of 16 outputs take.
std::size_t unit_bytes_of(const PackedFormat& format, int k);

// The stored weights of one output. Input i lies at element first + i * stride of the tensor.
struct StoredWeights {
    const TensorView* tensor = nullptr; // nullptr: all zeros
    std::int64_t first = 0;
    std::int64_t stride = 1;
    std::int64_t inputs = 0; // of the whole row
    dist::Slice wanted;      // the inputs to be packed; zeros behind them
};

// Packs k inputs of 16 outputs: a unit to `out`. Ungrouped int8: each row's scale, the largest magnitude of the WHOLE
// stored row / 127, goes to scales[16]. int4: the scale of a group of the stored row is its number of the largest
// magnitude / -8, in bfloat16; so any slice of inputs is rounded alike. What is quantised already keeps codes and
// scales. Throws BadFile on a stored type that holds no weights.
void pack_unit(const PackedFormat& format, const StoredWeights (&rows)[kernels::kLanes], int k, float* scales,
               std::byte* out);

// A packed unit of k inputs.
struct PackedUnit {
    const PackedFormat& format;
    int k;
    const std::byte* bytes;
};
// out[i - inputs.begin] = weight of (lane, input i), int8's with the lane's `scale`.
void unpack_row(const PackedUnit& unit, int lane, float scale, dist::Slice inputs, float* out);

} // namespace entrodraft::model
