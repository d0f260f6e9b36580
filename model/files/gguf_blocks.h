// The types that tensors of GGUF files have, by ggml's numbers, and how those that are made of blocks decode: codes of
// a row's inputs, one block behind the other, with what scales the groups within. Called by quantized and gguf_file.
#pragma once

#include "model/files/quantized.h"

#include <cstddef>
#include <cstdint>

namespace entrodraft::model {

// A group's scale and offset, counted in halves of its block.
struct GroupSteps {
    int scale = 1, offset = 0; // of 8 bits with a sign
};

// Blocks that scale codes by numbers of few bits: an element is half * (steps.scale * code - steps.offset), where
// offsets are counted in a half of their own.
struct BlockSteps {
    int bits = 0;         // of a code that has no sign, as CPUs hold it; 0: there are no steps, but floats
    int middle = 0;       // what read_codes() has less than such a code
    int half = 0;         // where the float16 lies in a block
    int offset_half = -1; // -1: there are no offsets
    GroupSteps (*of)(const std::byte* block, int group) = nullptr; // nullptr: of all groups 1, and offsets -1
    const std::uint8_t* numbers = nullptr;                         // [16] what codes of 4 bits stand for in place of 8
};

struct BlockType {
    std::uint32_t number = 0; // in files
    const char* name = "";
    int inputs = 1; // of a block
    int bytes = 0;  // of a block; 0: ggml has given the type up

    // 0 for a type that is not served as codes.
    int group = 0; // inputs that share a scale
    int bits = 0;  // of a code in GPUs' memory, and in CPUs' where `steps` has none
    // The codes of a whole group, those of QuantizedMatrix::read_codes.
    void (*codes)(const std::byte* block, int group, std::uint8_t* out) = nullptr;
    BlockSteps steps = {};
    // A group's facts where there are no steps: an element is scale * (code + less) - offset.
    GroupFacts (*facts)(const std::byte* block, int group) = nullptr;
    int less = 0; // what codes without a sign are less in GPUs' memory, so that they fit their bits
    CodeValues values = CodeValues::none;

    bool has_offsets() const { return steps.offset_half >= 0; }
    // Bits of a weight as CPUs hold it, with its part of the scales.
    double held_bits() const;
};
GroupFacts facts_of(const BlockType& type, const std::byte* block, int group);
inline constexpr int kMaxBlockGroup = 256;

const BlockType* block_type(std::uint32_t number); // nullptr: ggml has no such number, as far as is known here

} // namespace entrodraft::model
