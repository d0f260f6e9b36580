// Converts weights in files into weights for the kernels: 16 rows at a time, transposed so that outputs lie in the
// lanes, and converted or quantised if the types differ. It knows nothing of threads and slices. Called by
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

inline constexpr int kInt4Group = 64; // inputs that share a scale if weights are rounded when they are loaded

// Tells kernels where weights lie, and to what precision their inputs are rounded (kernels::LinearArgs).
struct PackedFormat {
    WeightType type = WeightType::float32;
    kernels::WeightGroups groups = {};
    std::vector<std::int32_t> order = {}; // order of inputs in the packed form; empty: as stored
    int digits = 3;                       // for int4 and int8: LinearArgs::digits
    bool is_rounded = false;              // numbers are rounded when they are loaded, whatever the file holds
    int middle = 0;                       // added to QuantizedMatrix::read_codes to get codes of groups
    friend bool operator==(const PackedFormat&, const PackedFormat&) = default;
};
// Returns the format of weights that are converted at load time, for a stored row from `first_input` on.
PackedFormat format_of(WeightType type, std::int64_t first_input);
// Returns the format of quantised weights as they are stored, for the inputs in `slice` of [outputs][inputs]. GGUF
// files keep their bits. Throws BadFile if a row's groups cannot be sliced at these inputs.
PackedFormat format_of(const TensorView& quantized, dist::Slice slice);
// The same, with codes of 4 or 8 bits, and float scales.
PackedFormat wide_format_of(const TensorView& quantized, dist::Slice slice);
// The same from config.json alone. The order, and whether scales have the shorter type, are up to the file.
PackedFormat wide_format_of(const Quantization& quantization, std::int64_t first_input);

// Returns the scale, in bfloat16, of a group of up to kInt4Group numbers, and writes their signed 4-bit codes: the
// nearest, ties to even. A group with a NaN or an infinity has a NaN scale; a tiny group has scale 0.
std::uint16_t quantise_group(const float* values, int count, std::uint8_t* codes);

// Returns the bytes of k inputs of 16 outputs.
std::size_t unit_bytes_of(const PackedFormat& format, int k);

// The stored weights of one output. Input i lies at element first + i * stride of the tensor.
struct StoredWeights {
    const TensorView* tensor = nullptr; // nullptr: all zeros
    std::int64_t first = 0;
    std::int64_t stride = 1;
    std::int64_t inputs = 0; // of the whole row
    dist::Slice wanted;      // the inputs to pack, followed by zeros
};

// Packs k inputs of 16 outputs: a unit to `out`. Ungrouped int8: each row's scale goes to scales[16]; it is the largest
// magnitude of the WHOLE stored row / 127. int4: a group's scale is its number of the largest magnitude in the stored
// row / -8, in bfloat16. So any slice of inputs is rounded alike. Quantised weights keep codes and scales. Throws
// BadFile on a stored type that holds no weights.
void pack_unit(const PackedFormat& format, const StoredWeights (&rows)[kernels::kLanes], int k, float* scales,
               std::byte* out);

// A packed unit of k inputs.
struct PackedUnit {
    const PackedFormat& format;
    int k;
    const std::byte* bytes;
};
// out[i - inputs.begin] = weight of (lane, input i); for int8 with the lane's `scale`.
void unpack_row(const PackedUnit& unit, int lane, float scale, dist::Slice inputs, float* out);

} // namespace entrodraft::model
