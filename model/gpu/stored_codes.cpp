#include "model/gpu/stored_codes.h"

#include "model/files/bad_file.h"
#include "model/files/half.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <limits>

namespace entrodraft::model::gpu {

namespace {

bool has_whole_rows(const TensorView* tensor) {
    return tensor->quantized->of.group == 0;
}

// Every GPTQ file has offsets, but most of them are 0.
bool has_offsets(const TensorView* tensor) {
    const QuantizedMatrix& matrix = *tensor->quantized;
    if (!matrix.of.has_zeros) return false;
    const std::int64_t group = matrix.of.group > 0 ? matrix.of.group : matrix.inputs;
    for (std::int64_t output = 0; output < matrix.outputs; ++output)
        for (std::int64_t of = 0; of * group < matrix.inputs; ++of)
            if (matrix.facts(output, of).offset != 0) return true;
    return false;
}

// Returns a format that holds weights of both, whole numbers with group scales; none if there is no such format.
std::optional<PackedFormat> joint_format(const PackedFormat& a, const PackedFormat& b) {
    if (a == b) return a;
    for (const PackedFormat* each : {&a, &b})
        if (each->groups.size == 0 || each->groups.values || !each->order.empty() || each->type == WeightType::float8)
            return std::nullopt;
    PackedFormat joint = a.groups.size <= b.groups.size ? a : b; // sizes are powers of two
    if (a.type == WeightType::int8 || b.type == WeightType::int8) joint.type = WeightType::int8;
    joint.groups.scales = std::max(a.groups.scales, b.groups.scales); // bfloat16 or float32
    joint.groups.has_offsets = a.groups.has_offsets || b.groups.has_offsets;
    return joint;
}

// Returns none if none of the tensors is quantised.
std::optional<PackedFormat> joint_format(std::span<const TensorView* const> tensors, dist::Slice slice) {
    std::optional<PackedFormat> format;
    for (const TensorView* each : tensors) {
        std::optional<PackedFormat> joint;
        if (each->type == DiskType::quantized) joint = wide_format_of(*each, slice);
        const bool is_quantized = joint || format;
        if (each != tensors.front()) joint = joint && format ? joint_format(*format, *joint) : std::nullopt;
        if (is_quantized && !joint)
            throw BadFile(fmt::format("{}: tensors '{}' and '{}' are quantised in different ways, but one matrix is "
                                      "made of them",
                                      *each->file, tensors.front()->name, each->name));
        format = std::move(joint);
    }
    return format;
}

} // namespace

std::optional<HeldAs> held_as_stored(std::span<const TensorView* const> tensors, const dist::Slice& inputs) {
    std::optional<PackedFormat> format = joint_format(tensors, inputs);
    if (!format) return std::nullopt;
    format->groups.has_offsets = std::ranges::any_of(tensors, has_offsets);
    const CodeForm form = code_form(*format, std::ranges::all_of(tensors, has_whole_rows), inputs.begin);
    if (form.code == Code::none)
        throw BadFile(
            fmt::format("{}: tensor '{}': inputs from {} on, of a group of {} that share a scale: no kernel for "
                        "GPUs knows groups that begin or end there; take another number of ranks, or --device "
                        "cpu",
                        *tensors.front()->file, tensors.front()->name, inputs.begin, format->groups.size));
    return HeldAs{.form = form, .is_stored = true, .values = format->groups.values, .order = std::move(format->order)};
}

void place_stored_row(const HeldAs& held, const TensorView& tensor, std::int64_t row, const dist::Slice& inputs,
                      std::byte* to, std::byte* scales) {
    const QuantizedMatrix& matrix = *tensor.quantized;
    const CodeForm& form = held.form;
    const auto count = static_cast<int>(inputs.size());
    const auto stored_input = [&](int i) { return inputs.begin + (held.order.empty() ? i : held.order[i]); };
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(count)); // as they are stored
    matrix.read_codes(row, inputs.begin, count, codes.data());
    const int group = form.group > 0 ? form.group : std::max(count, 1);
    for (int begin = 0; begin < count; begin += group) {
        const std::int64_t of = matrix.group_at(stored_input(begin));
        const int end = std::min(begin + group, count);
        auto [scale, offset] = matrix.facts(row, of);
        for (int i = begin; i < end; ++i) {
            const std::uint8_t code = codes[stored_input(i) - inputs.begin];
            if (form.code == Code::float8 && (code & 0x7f) == 0x7f) // NaN, which kernels do not detect
                scale = std::numeric_limits<float>::quiet_NaN();
            has_4_bits(form) ? put_int4(to, i, code) : void(to[int8_place(i)] = static_cast<std::byte>(code));
        }
        std::byte* at = scales + begin / group * (form.group > 0 ? scale_bytes(form) : 0);
        const std::uint16_t brief = to_bfloat16(scale);
        form.group == 0 || form.wide_scales ? std::memcpy(at, &scale, sizeof scale)
                                            : std::memcpy(at, &brief, sizeof brief);
        if (form.has_offsets) std::memcpy(at + sizeof scale, &offset, sizeof offset);
    }
}

void put_int4(std::byte* row, int i, std::uint8_t code) {
    std::byte* word = row + 4 * static_cast<std::size_t>(int4_word(i));
    std::uint32_t eight;
    std::memcpy(&eight, word, sizeof eight);
    eight ^= static_cast<std::uint32_t>(code & 15) << int4_bit(i);
    std::memcpy(word, &eight, sizeof eight);
}

} // namespace entrodraft::model::gpu
