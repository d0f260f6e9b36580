// The form of a matrix on a GPU: numbers, or codes with scales. The codes are made by rounding at load time, or come
// from a quantised checkpoint, whose rows are laid out here. Called by gpu/weights, and by inspection, which needs no
// GPU.
#pragma once

#include "model/cpu/packing.h"
#include "model/gpu/kernels.h"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::model::gpu {

struct HeldAs {
    WeightType type = WeightType::float32; // type of numbers, and of weights that are rounded
    CodeForm form = {};
    bool is_stored = false;
    const float* values = nullptr;        // [16] that stored codes index, or none
    std::vector<std::int32_t> order = {}; // order of stored inputs; empty: as stored

    bool has_row_scales() const { return form.code != Code::none && form.group == 0; }
    std::size_t row_bytes(int inputs) const {
        if (form.code == Code::none) return static_cast<std::size_t>(aligned(inputs)) * model::bytes_of(type);
        return static_cast<std::size_t>(chunks_of(form, inputs)) * kChunkBytes;
    }
    // Number of bytes of all scales of a row.
    std::size_t row_scale_bytes(int inputs) const {
        if (has_row_scales()) return sizeof(float);
        return static_cast<std::size_t>(chunks_of(form, inputs) * scales_of_chunk(form) * scale_bytes(form));
    }
};

// For numbers, and for weights that are rounded when they are loaded.
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

// Returns the form for quantised weights with the largest groups that kernels know. The matrix's inputs begin at input
// `first_input` of a stored row. Returns Code::none if there is no such form.
inline CodeForm code_form(const PackedFormat& format, bool has_whole_rows, std::int64_t first_input) {
    constexpr int kFewest = 32; // inputs of a group of 4-bit codes; codes of smaller groups take 8 bits
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

// `tensors`, each listed once, become one matrix with the slice `inputs` of their inputs. Returns none if none is
// quantised. Throws BadFile if no form holds them together, or if this rank's inputs begin in the middle of a group.
std::optional<HeldAs> held_as_stored(std::span<const TensorView* const> tensors, const dist::Slice& inputs);

// Writes codes and scales of a row of such a tensor. Before, `to` holds codes of missing inputs (kNoInt4s, 0), and
// `scales` zeros.
void place_stored_row(const HeldAs& held, const TensorView& tensor, std::int64_t row, const dist::Slice& inputs,
                      std::byte* to, std::byte* scales);

// Replaces an 8 with the signed code of input i plus 8 modulo 16.
void put_int4(std::byte* row, int i, std::uint8_t code);

} // namespace entrodraft::model::gpu
