// The types that tensors of GGUF files have, by ggml's numbers, and how those that are made of blocks decode: codes of
// a row's inputs, one block behind the other, with what scales the groups within. Called by quantized and gguf_file.
#pragma once

#include "model/files/quantized.h"

#include <cstddef>
#include <cstdint>

namespace entrodraft::model {

struct BlockType {
    std::uint32_t number = 0; // in files
    const char* name = "";
    int inputs = 1; // of a block
    int bytes = 0;  // of a block; 0: ggml has given the type up

    // 0 for a type that is not served as codes.
    int group = 0; // inputs that share a scale
    int bits = 0;  // of a code in memory
    // A group's facts as the block stores them: an element is scale * (code + less) - offset. The codes are those
    // of QuantizedMatrix::read_codes, of the whole group.
    GroupFacts (*facts)(const std::byte* block, int group) = nullptr;
    void (*codes)(const std::byte* block, int group, std::uint8_t* out) = nullptr;
    bool has_offsets = false;
    int less = 0; // what codes without a sign are less in memory, so that they fit their bits
    CodeValues values = CodeValues::none;
};
inline constexpr int kMaxBlockGroup = 256;

const BlockType* block_type(std::uint32_t number); // nullptr: ggml has no such number, as far as is known here

} // namespace entrodraft::model
