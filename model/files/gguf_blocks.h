// The types of tensors in GGUF files, by ggml's numbers. Decodes types that consist of blocks: codes of a row's inputs,
// one block after another, with the scales of their groups. Called by quantized and gguf_file.
#pragma once

#include "model/files/quantized.h"

#include <cstddef>
#include <cstdint>

namespace entrodraft::model {

// A group's scale and offset, as multiples of its block's halves.
struct GroupSteps {
    int scale = 1, offset = 0; // 8 bits with a sign
};

// Blocks that scale codes by numbers of few bits: an element is half * (steps.scale * code - steps.offset). Offsets
// have a half of their own.
struct BlockSteps {
    int bits = 0;         // bits of a code without a sign, as CPUs hold it; 0: floats instead of steps
    int middle = 0;       // read_codes() gives such a code less `middle`
    int half = 0;         // place of the float16 in a block
    int offset_half = -1; // -1: there are no offsets
    GroupSteps (*of)(const std::byte* block, int group) = nullptr; // nullptr: all scales are 1, and offsets -1
    const std::uint8_t* numbers = nullptr;                         // [16] values of codes of 4 bits, in place of 8
};

struct BlockType {
    std::uint32_t number = 0; // in files
    const char* name = "";
    int inputs = 1; // of a block
    int bytes = 0;  // of a block; 0: ggml no longer has the type

    // 0 for a type that is not read as codes.
    int group = 0; // inputs that share a scale
    int bits = 0;  // of a code in GPUs' memory, and in CPUs' if `steps` has none
    // Writes the codes of a whole group, as QuantizedMatrix::read_codes does.
    void (*codes)(const std::byte* block, int group, std::uint8_t* out) = nullptr;
    BlockSteps steps = {};
    // A group's facts, used without steps: an element is scale * (code + less) - offset.
    GroupFacts (*facts)(const std::byte* block, int group) = nullptr;
    int less = 0; // codes without a sign are less by this in GPUs' memory, so that they fit their bits
    CodeValues values = CodeValues::none;

    bool has_offsets() const { return steps.offset_half >= 0; }
    // Returns the bits of a weight as CPUs hold it, with its part of the scales.
    double held_bits() const;
};
GroupFacts facts_of(const BlockType& type, const std::byte* block, int group);
inline constexpr int kMaxBlockGroup = 256;

const BlockType* block_type(std::uint32_t number); // nullptr: ggml has no such number that we know

} // namespace entrodraft::model
