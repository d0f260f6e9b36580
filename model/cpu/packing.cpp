// Rows are taken in chunks of a few hundred inputs. Where file and memory have the same type, a chunk is turned
// straight out of the file, else out of a small copy, converted or generated. To the turning all types are alike: words
// of 32 bits, each one output's part of a line.
#include "model/cpu/packing.h"

#include "model/files/bad_file.h"
#include "model/files/half.h"
#include "model/files/quantized.h"
#include "model/files/tensor_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <vector>

namespace entrodraft::model {

using kernels::GroupedUnit;
using kernels::kLanes;
using kernels::WeightGroups;

namespace {

constexpr int kChunk = kMaxConverted; // inputs
constexpr std::size_t kWordBytes = 4, kLineBytes = kLanes * kWordBytes;

bool lies_as(const StoredWeights& row, WeightType type) {
    if (row.stride != 1) return false;
    switch (row.tensor->type) {
    case DiskType::float32:
        return type == WeightType::float32;
    case DiskType::float16:
        return type == WeightType::float16;
    case DiskType::bfloat16:
        return type == WeightType::bfloat16;
    case DiskType::generated:
    case DiskType::quantized:
    case DiskType::other:
        break;
    }
    return false;
}

// ---- 8 bits ----

// As numbers without a sign, the bits of magnitudes are in the magnitudes' order, and those of what is no number
// above them all.
template <typename Format, typename Bits>
float largest_of(const std::byte* from, std::size_t step, std::int64_t count) {
    constexpr Bits kMagnitude = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
    Bits largest = 0;
    auto take = [&](const std::byte* at) {
        Bits bits;
        std::memcpy(&bits, at, sizeof(bits));
        bits &= kMagnitude;
        largest = bits > largest ? bits : largest;
    };
    if (step == sizeof(Bits)) {
        for (std::int64_t i = 0; i < count; ++i) // the compiler makes vectors of this
            take(from + static_cast<std::size_t>(i) * sizeof(Bits));
    } else {
        for (std::int64_t i = 0; i < count; ++i)
            take(from + static_cast<std::size_t>(i) * step);
    }
    return Format::to_float(std::bit_cast<typename Format::Bits>(largest));
}

float largest_generated(const StoredWeights& row) {
    float values[kChunk], largest = 0;
    for (std::int64_t done = 0; done < row.inputs; done += kChunk) {
        const int count = static_cast<int>(std::min<std::int64_t>(kChunk, row.inputs - done));
        read_generated(row.tensor->generated, row.first + done * row.stride, row.stride, count, values);
        for (int i = 0; i < count; ++i)
            largest = std::max(largest, std::abs(values[i]));
    }
    return largest;
}

float largest_magnitude(const StoredWeights& row) {
    if (row.tensor->type == DiskType::generated) return largest_generated(row);
    const std::byte* from = address_of(*row.tensor, row.first);
    const auto step = static_cast<std::size_t>(row.stride);
    switch (row.tensor->type) {
    case DiskType::float32:
        return largest_of<Float32Format, std::uint32_t>(from, step * 4, row.inputs);
    case DiskType::float16:
        return largest_of<Float16Format, std::uint16_t>(from, step * 2, row.inputs);
    case DiskType::bfloat16:
        return largest_of<BFloat16Format, std::uint16_t>(from, step * 2, row.inputs);
    case DiskType::generated:
    case DiskType::quantized:
    case DiskType::other:
        break;
    }
    refuse_type(*row.tensor);
}

// A row with an infinity or a value that is no number has no scale: its outputs will be no numbers. A row that is zero
// or so small that its scale would not be exact has scale 0.
float scale_of(const StoredWeights& row) {
    constexpr float kMax = 127;
    using Limits = std::numeric_limits<float>;
    if (row.tensor && row.tensor->type == DiskType::quantized)
        return row.tensor->quantized->facts(row.first / row.tensor->quantized->inputs, 0).scale;
    const float scale = row.tensor ? largest_magnitude(row) / kMax : 0;
    if (!(scale <= Limits::max())) return Limits::quiet_NaN();
    return scale >= Limits::min() ? scale : 0;
}

// Weights as w + 128, nearest with ties to even. The rounding is that of an addition to 1.5 * 2^23.
void quantise(const float* values, int count, float scale, std::uint8_t* out) {
    constexpr float kRound = 12582912.0f + 128.0f;
    const float inverse = scale > 0 ? 1 / scale : 0;
    for (int i = 0; i < count; ++i) // the compiler makes vectors of this, as long as it stays this short
        out[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(values[i] * inverse + kRound) & 0xffu);
}

// ---- turning ----

typedef std::uint32_t Quad __attribute__((vector_size(16), aligned(1), may_alias));

// out[i][lane] = word i of the lane's row, for 4 words of 4 rows.
inline void turn_square(const std::byte* const* rows, std::size_t offset, std::byte* out) {
    const Quad a = *reinterpret_cast<const Quad*>(rows[0] + offset);
    const Quad b = *reinterpret_cast<const Quad*>(rows[1] + offset);
    const Quad c = *reinterpret_cast<const Quad*>(rows[2] + offset);
    const Quad d = *reinterpret_cast<const Quad*>(rows[3] + offset);
    const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *reinterpret_cast<Quad*>(out) = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
    *reinterpret_cast<Quad*>(out + kLineBytes) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
    *reinterpret_cast<Quad*>(out + 2 * kLineBytes) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *reinterpret_cast<Quad*>(out + 3 * kLineBytes) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

// `lines` words of each of 16 rows become as many lines. A square of lines at a time: 64 bytes of every row at once,
// since rows a power of two apart push each other out of the cache.
void turn(const std::byte* const (&rows)[kLanes], int lines, std::byte* out) {
    int line = 0;
    for (; line + kLanes <= lines; line += kLanes)
        for (int lane = 0; lane < kLanes; lane += 4)
            for (int first = line; first < line + kLanes; first += 4)
                turn_square(rows + lane, static_cast<std::size_t>(first) * kWordBytes,
                            out + static_cast<std::size_t>(first) * kLineBytes +
                                static_cast<std::size_t>(lane) * kWordBytes);
    for (; line < lines; ++line)
        for (std::size_t lane = 0; lane < kLanes; ++lane)
            std::memcpy(out + static_cast<std::size_t>(line) * kLineBytes + lane * kWordBytes,
                        rows[lane] + static_cast<std::size_t>(line) * kWordBytes, kWordBytes);
}

// Lines of pairs, [16][2], become two runs of 16 outputs, [2][16].
void part_pairs(std::byte* out, int lines) {
    for (int line = 0; line < lines; ++line, out += kLineBytes) {
        std::uint16_t pairs[2 * kLanes], runs[2 * kLanes];
        std::memcpy(pairs, out, kLineBytes);
        for (int lane = 0; lane < kLanes; ++lane) {
            runs[lane] = pairs[2 * lane];
            runs[kLanes + lane] = pairs[2 * lane + 1];
        }
        std::memcpy(out, runs, kLineBytes);
    }
}

// Converted copies of a chunk of 16 rows.
struct Staging {
    alignas(64) std::byte rows[kLanes][kChunk * sizeof(float)];
    float floats[kChunk];
};

// Inputs [input, input + count) of what is wanted of a row, in the type of memory: in the file itself or, filled up
// with zeros to whole lines, copied.
const std::byte* fetch(WeightType type, const StoredWeights& row, int input, int count, float scale, Staging& staging,
                       int lane) {
    const std::int64_t wanted = row.tensor ? row.wanted.size() - input : 0;
    const bool whole = count <= wanted && count % inputs_of_line(type) == 0;
    const std::int64_t first = row.tensor ? row.first + (row.wanted.begin + input) * row.stride : 0;
    if (whole && lies_as(row, type)) return address_of(*row.tensor, first);
    std::byte* to = staging.rows[lane];
    if (!whole) std::memset(to, type == WeightType::int8 ? 128 : 0, sizeof(staging.rows[lane]));
    count = static_cast<int>(std::clamp<std::int64_t>(wanted, 0, count));
    if (count == 0) return to;
    switch (type) {
    case WeightType::float32:
        convert_from<Float32Format>(*row.tensor, first, row.stride, count, to);
        break;
    case WeightType::bfloat16:
        convert_from<BFloat16Format>(*row.tensor, first, row.stride, count, to);
        break;
    case WeightType::float16:
        convert_from<Float16Format>(*row.tensor, first, row.stride, count, to);
        break;
    case WeightType::int8:
        if (row.tensor->type == DiskType::quantized) {
            const QuantizedMatrix& matrix = *row.tensor->quantized;
            auto* codes = reinterpret_cast<std::uint8_t*>(to);
            matrix.read_codes(first / matrix.inputs, first % matrix.inputs, count, codes);
            for (int i = 0; i < count; ++i)
                codes[i] ^= 128; // with a sign, to 128 more
            break;
        }
        convert_from<Float32Format>(*row.tensor, first, row.stride, count,
                                    reinterpret_cast<std::byte*>(staging.floats));
        quantise(staging.floats, count, scale, reinterpret_cast<std::uint8_t*>(to));
        break;
    case WeightType::int4:
    case WeightType::float8:
        throw std::logic_error("not a type of single weights on CPUs");
    }
    return to;
}

int lines_of(WeightType type, int k) {
    return (k + inputs_of_line(type) - 1) / inputs_of_line(type);
}

// What pack_groups makes of one output, group after group.
struct PackedGroups {
    std::vector<float> scales, offsets;
    std::vector<std::uint8_t> codes; // of int4 with its sign, of int8 + 128
};

// Group `group` of a quantised row; inputs that are not wanted have codes of their own kind's zero.
void take_group(const PackedFormat& format, const StoredWeights& row, int k, int group, PackedGroups& out) {
    const QuantizedMatrix& matrix = *row.tensor->quantized;
    const std::int64_t output = row.first / matrix.inputs, origin = row.wanted.begin - format.groups.lead;
    const int first = group * format.groups.size;
    const auto input_at = [&](int place) {
        return format.order.empty() ? origin + place : row.wanted.begin + format.order[static_cast<std::size_t>(place)];
    };
    const std::int64_t of_group = matrix.group_at(std::min(input_at(first), matrix.inputs - 1));
    const GroupFacts facts = matrix.facts(output, of_group);
    out.scales.push_back(facts.scale);
    out.offsets.push_back(facts.offset);
    const std::size_t at = out.codes.size();
    out.codes.resize(at + static_cast<std::size_t>(format.groups.size));
    // The wanted ones among them.
    const int begin = std::max(first, format.groups.lead);
    const std::int64_t n_wanted = std::min<std::int64_t>(k, row.wanted.size());
    const auto end =
        static_cast<int>(std::min<std::int64_t>(first + format.groups.size, format.groups.lead + n_wanted));
    std::uint8_t* to = &out.codes[at] + (begin - first);
    if (format.order.empty() && begin < end) matrix.read_codes(output, input_at(begin), end - begin, to);
    for (int place = begin; place < end && !format.order.empty(); ++place)
        matrix.read_codes(output, input_at(place), 1, to + (place - begin));
    for (std::size_t i = at; i < out.codes.size(); ++i) {
        if (format.type == WeightType::float8 && (out.codes[i] & 0x7f) == 0x7f) // no number, which kernels do not see
            out.scales.back() = std::numeric_limits<float>::quiet_NaN();
        if (format.type == WeightType::int8) out.codes[i] ^= 128;
    }
}

// A group of numbers, rounded to 4 bits: of the stored row, whatever of it is wanted.
void round_group(const PackedFormat& format, const StoredWeights& row, int group, PackedGroups& out) {
    const int size = format.groups.size;
    const std::int64_t begin = row.wanted.begin - format.groups.lead + std::int64_t{group} * size;
    const int stored = static_cast<int>(std::clamp<std::int64_t>(row.inputs - begin, 0, size));
    const int wanted = static_cast<int>(std::clamp<std::int64_t>(row.wanted.end - begin, 0, stored));
    float values[kChunk];
    std::uint8_t codes[kChunk] = {};
    std::uint16_t scale = 0;
    if (wanted > 0) {
        convert_from<Float32Format>(*row.tensor, row.first + begin * row.stride, row.stride, stored,
                                    reinterpret_cast<std::byte*>(values));
        scale = quantise_group(values, stored, codes);
    }
    std::fill(codes + wanted, codes + size, std::uint8_t{0});
    out.scales.push_back(from_bfloat16(scale));
    out.codes.insert(out.codes.end(), codes, codes + size);
}

PackedGroups pack_groups(const PackedFormat& format, const StoredWeights& row, int k) {
    PackedGroups out;
    const int n_groups = GroupedUnit(format.groups, k, inputs_of_line(format.type)).groups;
    for (int group = 0; group < n_groups && row.tensor; ++group) {
        if (row.tensor->type == DiskType::quantized)
            take_group(format, row, k, group, out);
        else
            round_group(format, row, group, out);
    }
    const auto n = static_cast<std::size_t>(n_groups);
    out.scales.resize(n);
    out.offsets.resize(n);
    out.codes.resize(n * static_cast<std::size_t>(format.groups.size),
                     static_cast<std::uint8_t>(format.type == WeightType::int8 ? 128 : 0));
    return out;
}

void put_facts(const std::vector<float>& facts, bool wide, std::size_t lane, std::byte* out) {
    for (std::size_t group = 0; group < facts.size(); ++group) {
        const std::uint16_t brief = to_bfloat16(facts[group]);
        const std::size_t at = group * kLanes + lane;
        wide ? std::memcpy(out + at * 4, &facts[group], 4) : std::memcpy(out + at * 2, &brief, 2);
    }
}

// As a line has them: two codes of int4 to a byte.
void pair_codes(std::vector<std::uint8_t>& codes) {
    std::size_t to = 0;
    for (std::size_t i = 0; i < codes.size(); i += 8)
        for (std::size_t half = 0; half < 4; ++half)
            codes[to++] = static_cast<std::uint8_t>((codes[i + half] & 15) | codes[i + half + 4] << 4);
    codes.resize(to);
}

// Lines of quads, [16][4], become four runs of 16 outputs, [4][16].
void part_quads(std::byte* out, int lines) {
    for (int line = 0; line < lines; ++line, out += kLineBytes) {
        std::byte quads[kLineBytes];
        std::memcpy(quads, out, kLineBytes);
        for (std::size_t i = 0; i < kLineBytes; ++i)
            out[i % 4 * kLanes + i / 4] = quads[i];
    }
}

void pack_grouped_unit(const PackedFormat& format, const StoredWeights (&rows)[kLanes], int k, std::byte* out) {
    const GroupedUnit unit(format.groups, k, inputs_of_line(format.type));
    const int lines = unit.groups * unit.group_lines;
    std::memset(out, 0, unit.codes()); // what fills the scales' last line
    PackedGroups packed[kLanes];
    const std::byte* sources[kLanes];
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
        PackedGroups& of_lane = packed[lane] = pack_groups(format, rows[lane], k);
        put_facts(of_lane.scales, format.groups.wide_scales, lane, out);
        if (format.groups.has_offsets)
            put_facts(of_lane.offsets, format.groups.wide_scales, lane, out + unit.offsets());
        if (format.type == WeightType::int4) pair_codes(of_lane.codes);
        sources[lane] = reinterpret_cast<const std::byte*>(of_lane.codes.data());
    }
    turn(sources, lines, out + unit.codes());
    if (format.type == WeightType::float8) part_quads(out + unit.codes(), lines);
}

} // namespace

std::uint16_t quantise_group(const float* values, int count, std::uint8_t* codes) {
    constexpr float kRound = 12582912.0f;
    using Limits = std::numeric_limits<float>;
    float largest = 0;
    bool is_number = true;
    for (int i = 0; i < count; ++i) {
        if (std::abs(values[i]) > std::abs(largest)) largest = values[i];
        is_number = is_number && std::abs(values[i]) <= Limits::max();
    }
    const std::uint16_t stored = to_bfloat16(is_number ? largest / -8 : Limits::quiet_NaN());
    const float scale = from_bfloat16(stored);
    const bool is_tiny = std::abs(scale) < Limits::min();
    const float inverse = is_number && !is_tiny ? 1 / scale : 0;
    for (int i = 0; i < count; ++i) {
        const float code = std::clamp(is_number ? values[i] * inverse : 0, -8.0f, 7.0f);
        codes[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(code + kRound) & 15u);
    }
    return is_tiny ? std::uint16_t{0} : stored;
}

int inputs_of_line(WeightType type) {
    return type == WeightType::int4 ? 8 : static_cast<int>(kWordBytes / bytes_of(type));
}

std::size_t unit_bytes_of(const PackedFormat& format, int k) {
    if (format.groups.size > 0) return GroupedUnit(format.groups, k, inputs_of_line(format.type)).bytes();
    return static_cast<std::size_t>(lines_of(format.type, k)) * kLineBytes;
}

PackedFormat format_of(WeightType type, std::int64_t first_input) {
    if (type != WeightType::int4) return {type};
    return {type, {kInt4Group, static_cast<int>(first_input % kInt4Group)}};
}

PackedFormat format_of(const Quantization& of, std::int64_t first_input) {
    const bool is_float = of.form == QuantizedForm::float8;
    const WeightType type = is_float ? WeightType::float8 : of.bits == 4 ? WeightType::int4 : WeightType::int8;
    if (type == WeightType::int8 && of.group == 0 && !of.has_zeros) return {type};
    constexpr int kOfWholeRows = 128; // the scale is the same for all
    const int lead = of.group > 0 ? static_cast<int>(first_input % of.group) : 0;
    const bool has_powers = of.values == CodeValues::float4 || of.values == CodeValues::float4_twice;
    const bool has_wide_scales = !has_powers; // powers of two are exact in bfloat16
    return {type, {of.group > 0 ? of.group : kOfWholeRows, lead, has_wide_scales, of.has_zeros, table_of(of.values)}};
}

PackedFormat format_of(const TensorView& quantized, dist::Slice slice) {
    const QuantizedMatrix& matrix = *quantized.quantized;
    PackedFormat format = format_of(matrix.of, slice.begin);
    if (format.groups.size == 0) return format;
    if (matrix.scales.type == DiskType::bfloat16 && !format.groups.has_offsets) format.groups.wide_scales = false;
    if (matrix.scale_factor != 1) format.groups.wide_scales = true;
    if (matrix.group_of_input.empty()) return format;
    const auto refuse = [&](const std::string& why) {
        throw BadFile(*quantized.file + ": tensor '" + quantized.name +
                      "' has inputs in an order of its own (act-order), " + why);
    };
    if (slice.size() != matrix.inputs) refuse("and its inputs cannot be sharded: run it on one rank");
    for (std::int32_t input = 0; input < static_cast<std::int32_t>(matrix.inputs); ++input)
        format.order.push_back(input);
    std::ranges::stable_sort(format.order, {}, [&](std::int32_t input) { return matrix.group_at(input); });
    for (std::size_t place = 0; place < format.order.size(); ++place)
        if (matrix.group_at(format.order[place]) != static_cast<std::int64_t>(place) / matrix.of.group)
            refuse("whose groups are not all as large");
    return format;
}

std::optional<PackedFormat> joint_format(const PackedFormat& a, const PackedFormat& b) {
    if (a == b) return a;
    for (const PackedFormat* each : {&a, &b})
        if (each->groups.size == 0 || each->groups.values || !each->order.empty() || each->type == WeightType::float8)
            return std::nullopt;
    PackedFormat joint = a.groups.size <= b.groups.size ? a : b; // sizes are powers of two
    if (a.type == WeightType::int8 || b.type == WeightType::int8) joint.type = WeightType::int8;
    joint.groups.wide_scales = a.groups.wide_scales || b.groups.wide_scales;
    joint.groups.has_offsets = a.groups.has_offsets || b.groups.has_offsets;
    return joint;
}

std::optional<PackedFormat> format_of(std::span<const TensorView* const> tensors, dist::Slice slice) {
    std::optional<PackedFormat> format;
    for (const TensorView* each : tensors) {
        std::optional<PackedFormat> joint;
        if (each->type == DiskType::quantized) joint = format_of(*each, slice);
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

void pack_unit(const PackedFormat& format, const StoredWeights (&rows)[kLanes], int k, float* scales, std::byte* out) {
    if (format.groups.size > 0) return pack_grouped_unit(format, rows, k, out);
    const WeightType type = format.type;
    Staging staging;
    float scale[kLanes] = {};
    if (type == WeightType::int8) {
        for (int lane = 0; lane < kLanes; ++lane)
            scales[lane] = scale[lane] = scale_of(rows[lane]);
    }
    for (int input = 0; input < k; input += kChunk) {
        const int count = std::min(kChunk, k - input), lines = lines_of(type, count);
        const std::byte* sources[kLanes];
        for (int lane = 0; lane < kLanes; ++lane)
            sources[lane] = fetch(type, rows[lane], input, count, scale[lane], staging, lane);
        turn(sources, lines, out);
        if (type == WeightType::float16) part_pairs(out, lines);
        out += static_cast<std::size_t>(lines) * kLineBytes;
    }
}

namespace {

float fact_at(const std::byte* facts, bool wide, std::size_t at) {
    float value = 0;
    std::uint16_t brief = 0;
    if (wide)
        std::memcpy(&value, facts + at * 4, 4);
    else
        std::memcpy(&brief, facts + at * 2, 2);
    return wide ? value : from_bfloat16(brief);
}

// The weight of (lane, place) of a grouped unit.
float grouped_weight(const PackedUnit& unit, std::size_t lane, std::size_t place) {
    const WeightGroups& groups = unit.format.groups;
    const GroupedUnit of(groups, unit.k, inputs_of_line(unit.format.type));
    const std::size_t group = place / static_cast<std::size_t>(groups.size) * kLanes + lane;
    const float scale = fact_at(unit.bytes, groups.wide_scales, group);
    const float offset = groups.has_offsets ? fact_at(unit.bytes + of.offsets(), groups.wide_scales, group) : 0;
    const std::byte* codes = unit.bytes + of.codes();
    if (unit.format.type == WeightType::float8) {
        const std::byte* line = codes + place / 4 * kLineBytes;
        return scale * from_float8(static_cast<std::uint8_t>(line[place % 4 * kLanes + lane]));
    }
    if (unit.format.type == WeightType::int8) {
        const std::byte* line = codes + place / 4 * kLineBytes;
        return scale * static_cast<float>(static_cast<int>(line[lane * 4 + place % 4]) - 128) - offset;
    }
    const std::byte* line = codes + place / 8 * kLineBytes;
    const int code = static_cast<int>(line[lane * 4 + place % 4]) >> (place % 8 / 4 * 4) & 15;
    if (groups.values) return scale * groups.values[code];
    return scale * static_cast<float>(code < 8 ? code : code - 16) - offset;
}

} // namespace

void unpack_row(const PackedUnit& unit, int lane, float scale, dist::Slice inputs, float* out) {
    const auto at = static_cast<std::size_t>(lane);
    if (unit.format.groups.size > 0) {
        for (std::int64_t place = 0; place < unit.k; ++place) {
            const std::int64_t input =
                unit.format.order.empty() ? place : unit.format.order[static_cast<std::size_t>(place)];
            if (inputs.contains(input))
                out[input - inputs.begin] =
                    grouped_weight(unit, at, static_cast<std::size_t>(place + unit.format.groups.lead));
        }
        return;
    }
    const auto begin = static_cast<std::size_t>(inputs.begin);
    const auto n = static_cast<std::size_t>(inputs_of_line(unit.format.type));
    const std::byte* line = unit.bytes + begin / n * kLineBytes;
    std::size_t place = begin % n; // in the line: a division an input would take longer than reading it
    for (const float* end = out + inputs.size(); out != end; ++out) {
        std::uint16_t bits = 0;
        switch (unit.format.type) {
        case WeightType::float32:
            std::memcpy(out, line + at * 4, 4);
            break;
        case WeightType::bfloat16:
            std::memcpy(&bits, line + at * 4 + place * 2, 2);
            *out = from_bfloat16(bits);
            break;
        case WeightType::float16:
            std::memcpy(&bits, line + place * (kLineBytes / 2) + at * 2, 2);
            *out = from_float16(bits);
            break;
        case WeightType::int8:
            *out = scale * static_cast<float>(static_cast<int>(line[at * 4 + place]) - 128);
            break;
        case WeightType::int4:
        case WeightType::float8:
            throw std::logic_error("not a type of single weights on CPUs");
        }
        if (++place < n) continue;
        place = 0;
        line += kLineBytes;
    }
}

} // namespace entrodraft::model
