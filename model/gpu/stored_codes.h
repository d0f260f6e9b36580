// How a matrix is held on a GPU: numbers, or codes with scales, rounded when they are loaded or as a quantised
// checkpoint has them; and the rows of the latter. Called by gpu/weights, and by inspection, which needs no GPU.
#pragma once

#include "model/cpu/packing.h"
#include "model/gpu/kernels.h"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::model::gpu {

struct HeldAs {
    WeightType type = WeightType::float32; // of numbers, and of what is rounded
    CodeForm form = {};
    bool is_stored = false;
    const float* values = nullptr;        // [16] that stored codes stand for, or none
    std::vector<std::int32_t> order = {}; // of stored inputs; empty: as they are

    bool has_row_scales() const { return form.code != Code::none && form.group == 0; }
    std::size_t row_bytes(int inputs) const {
        if (form.code == Code::none) return static_cast<std::size_t>(aligned(inputs)) * model::bytes_of(type);
        return static_cast<std::size_t>(chunks_of(form, inputs)) * kChunkBytes;
    }
    // Of all scales of a row.
    std::size_t row_scale_bytes(int inputs) const {
        if (has_row_scales()) return sizeof(float);
        return static_cast<std::size_t>(chunks_of(form, inputs) * scales_of_chunk(form) * scale_bytes(form));
    }
};

// Of numbers, and of weights that are rounded when they are loaded.
inline HeldAs held_as(WeightType type) {
    switch (type) {
    case WeightType::int8:
        return {type, {Code::int8}};
    case WeightType::float8:
        return {type, {Code::float8}};
    case WeightType::int4:
        static_assert(kRoundedInt4.group == kInt4Group);
        return {type, kRoundedInt4};
    default:
        return {type};
    }
}

// Of quantised weights the form that kernels know whose groups are the largest, where k begin at input `first_input` of
// a stored row; Code::none: there is none.
inline CodeForm code_form(const PackedFormat& format, bool has_whole_rows, std::int64_t first_input) {
    constexpr int kFewest = 32; // inputs of a group of codes of 4 bits; those of smaller groups are held in 8
    const bool has_8_bits = format.type == WeightType::int8 || (!format.groups.values && format.groups.size < kFewest);
    const Code code = format.type == WeightType::float8 ? Code::float8
                      : has_8_bits                      ? Code::int8
                      : format.groups.values            ? Code::table
                                                        : Code::int4;
    const std::int64_t stored = format.groups.size;
    if (stored == 0 || (code == Code::float8 && has_whole_rows)) return {code};
    const bool begins_group = has_whole_rows || first_input % stored == 0;
    const std::int64_t group = begins_group ? stored : first_input & -first_input; // powers of two
    for (const CodeForm& form : kCodeForms)
        if (form.code == code && form.group > 0 && form.group <= group &&
            (form.wide_scales || format.groups.scales == kernels::ScaleType::bfloat16) &&
            form.has_offsets == format.groups.has_offsets)
            return form;
    return {};
}

// Of tensors, each once, that become one matrix of `inputs` of theirs; none: none is quantised. Throws BadFile where no
// form holds them together, and where this rank's inputs begin in the middle of a group.
std::optional<HeldAs> held_as_stored(std::span<const TensorView* const> tensors, const dist::Slice& inputs);

// Codes and scales of such a tensor's row. `to` holds codes of missing inputs (kNoInt4s, 0) before, `scales`
// zeros.
void place_stored_row(const HeldAs& held, const TensorView& tensor, std::int64_t row, const dist::Slice& inputs,
                      std::byte* to, std::byte* scales);

// Where 8 was, the code of input i with its sign, to which 8 are added modulo 16.
void put_int4(std::byte* row, int i, std::uint8_t code);

} // namespace entrodraft::model::gpu
