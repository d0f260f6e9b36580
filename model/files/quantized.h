// Matrices that a checkpoint stores as codes with scales: the stored tensors of each matrix, and the values of its
// elements.
//
// An element is scale * code - offset. The code is a signed whole number, a float8 or values[code]. Called by
// checkpoint, which shows such a matrix as one tensor, and by readers of weights.
#pragma once

#include "model/files/tensor_view.h"

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace entrodraft::model {

enum class QuantizedForm {
    gptq,   // X.qweight, words of 32 bits along the inputs, [inputs][outputs]
    awq,    // X.qweight, words along the outputs in an order of its own, [inputs][outputs]
    packed, // X.weight_packed, words along the inputs, [outputs][inputs] (compressed-tensors)
    int8,   // X.weight, whole numbers (compressed-tensors)
    float8, // X.weight, e4m3 (compressed-tensors, and with X.weight_scale_inv DeepSeek's)
    mxfp4,  // X_blocks, pairs of float4 along the inputs, [experts][outputs][inputs / 32][16] (gpt-oss)
    pairs,  // X.weight, pairs of codes along the inputs, the first above the second (bitsandbytes)
    blocks  // X.weight, blocks of inputs with their scales (GGUF; gguf_blocks.h)
};

// The values of codes of 4 bits, where codes are not values themselves.
enum class CodeValues {
    none,
    float4,       // e2m1
    float4_twice, // as whole numbers
    normal4,      // quantiles of a normal distribution (NF4; Dettmers et al. 2023)
    bitsandbytes  // its FP4
};
const float* table_of(CodeValues values); // [16]; none: nullptr

struct BlockType;

// The facts that config.json gives for all of them (quantization_config).
struct Quantization {
    QuantizedForm form = QuantizedForm::gptq;
    int bits = 4;
    int group = 0;         // inputs that share a scale; 0: all
    bool has_zeros = true; // stored zeros, or minima of groups: then there are offsets
    bool zeros_are_one_less = false;
    CodeValues values = CodeValues::none;
    bool of_experts = false;          // only experts; else all matrices of the layers
    const BlockType* block = nullptr; // of QuantizedForm::blocks
    // If not 0, matrices of different kinds have forms of their own, and these are the average bits per weight in the
    // memory of a CPU and of a GPU.
    double memory_bits = 0, gpu_memory_bits = 0;
    friend bool operator==(const Quantization&, const Quantization&) = default;
};

std::string to_string(const Quantization& quantization); // "gptq of 4 bits in groups of 128"
// Returns nothing where the object has no such field. Throws BadFile that names unsupported parts.
std::optional<Quantization> read_quantization(const nlohmann::json& config, const std::string& file);

// Scale and offset of the inputs that share them.
struct GroupFacts {
    float scale = 0, offset = 0;
};

struct QuantizedMatrix {
    Quantization of;
    std::int64_t outputs = 0, inputs = 0;
    TensorView codes, scales, zeros;
    std::int64_t scale_outputs = 1;                  // outputs that share a row of scales
    std::int64_t scale_stride = 0, group_stride = 0; // between outputs' and groups' scales, in elements
    std::vector<std::int32_t> group_of_input;        // of GPTQ with act-order; empty: groups follow each other
    float scale_factor = 1;                          // multiplies scales as they are stored
    // For scales that are bytes themselves: each stands for outer_values[byte] * outer_scales[place / kOuterGroup] +
    // outer_offset (bitsandbytes).
    static constexpr std::int64_t kOuterGroup = 256;
    TensorView outer_scales, outer_values;
    float outer_offset = 0;

    std::int64_t group_at(std::int64_t input) const {
        if (!group_of_input.empty()) return group_of_input[input];
        return of.group > 0 ? input / of.group : 0;
    }
    GroupFacts facts(std::int64_t output, std::int64_t group) const;
    const std::byte* block_at(std::int64_t output, std::int64_t input) const; // only for QuantizedForm::blocks
    // Reads inputs [input, input + count): whole numbers with a sign, a float8's bits, or indices into a table.
    void read_codes(std::int64_t output, std::int64_t input, int count, std::uint8_t* out) const;
    void read_values(std::int64_t output, std::int64_t input, int count, float* out) const;

  private:
    int less() const; // codes without a sign are less by this, so that they fit their bits
    GroupFacts stored_facts(std::int64_t output, std::int64_t group) const; // for code + less()
    float scale(std::int64_t output, std::int64_t group) const;
    float zero(std::int64_t output, std::int64_t group) const;
};

// Replaces each quantised matrix's codes in `tensors`, by name, by one tensor X.weight (MXFP4: X) of
// DiskType::quantized. Its other parts stay, with TensorView::is_part. Throws BadFile.
void join_quantized(const Quantization& quantization, std::map<std::string, TensorView>& tensors);

// out[i] = element first + i * stride of such a tensor, row-major.
void read_quantized(const TensorView& tensor, std::int64_t first, std::int64_t stride, int count, float* out);

} // namespace entrodraft::model
