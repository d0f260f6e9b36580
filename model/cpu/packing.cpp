// Rows are taken in chunks of a few hundred inputs. If file and memory have the same type, a chunk is transposed
// directly from the file. Otherwise it is first converted or generated into a small copy. For the transposition all
// types are alike: it moves words of 32 bits, and each word is one output's part of a line.
#include "model/cpu/packing.h"

#include "model/files/bad_file.h"
#include "model/files/gguf_blocks.h"
#include "model/files/half.h"
#include "model/files/quantized.h"
#include "model/files/tensor_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace entrodraft::model {

using kernels::GroupedUnit;
using kernels::kLanes;
using kernels::low_bits;
using kernels::ScaleType;
using kernels::WeightGroups;

namespace {

constexpr int kChunk = kMaxConverted; // inputs
constexpr std::size_t kWordBytes = 4, kLineBytes = kLanes * kWordBytes;

// Returns the inputs of 16 outputs that a line of 64 bytes holds, if there are no groups.
int inputs_of_line(WeightType type) {
    return static_cast<int>(kWordBytes / bytes_of(type));
}

// True if the file's codes are held as they are.
bool holds_codes(const PackedFormat& format, const StoredWeights& row) {
    return row.tensor && row.tensor->type == DiskType::quantized && !format.is_rounded;
}

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

// Compares magnitudes as unsigned bits: they have the same order, and NaNs are above all others.
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
        for (std::int64_t i = 0; i < count; ++i) // the compiler vectorizes this
            take(from + static_cast<std::size_t>(i) * sizeof(Bits));
    } else {
        for (std::int64_t i = 0; i < count; ++i)
            take(from + static_cast<std::size_t>(i) * step);
    }
    return Format::to_float(std::bit_cast<typename Format::Bits>(largest));
}

// Returns the largest magnitude of values that the file does not hold as numbers.
float largest_read(const StoredWeights& row) {
    float values[kChunk], largest = 0;
    for (std::int64_t done = 0; done < row.inputs; done += kChunk) {
        const int count = static_cast<int>(std::min<std::int64_t>(kChunk, row.inputs - done));
        convert_from<Float32Format>(*row.tensor, row.first + done * row.stride, row.stride, count,
                                    reinterpret_cast<std::byte*>(values));
        for (int i = 0; i < count; ++i)
            if (!std::isnan(largest) && !(std::abs(values[i]) <= largest))
                largest = std::abs(values[i]); // the value is larger, or NaN
    }
    return largest;
}

float largest_magnitude(const StoredWeights& row) {
    if (row.tensor->type == DiskType::generated || row.tensor->type == DiskType::quantized) return largest_read(row);
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

// Returns NaN for a row with an infinity or a NaN: its outputs will be NaN. Returns 0 for a row that is zero, or so
// small that its scale would not be exact.
float scale_of(const PackedFormat& format, const StoredWeights& row) {
    constexpr float kMax = 127;
    using Limits = std::numeric_limits<float>;
    if (holds_codes(format, row))
        return row.tensor->quantized->facts(row.first / row.tensor->quantized->inputs, 0).scale;
    const float scale = row.tensor ? largest_magnitude(row) / kMax : 0;
    if (!(scale <= Limits::max())) return Limits::quiet_NaN();
    return scale >= Limits::min() ? scale : 0;
}

// Stores weights as w + 128, rounded to nearest, ties to even, as an addition to 1.5 * 2^23 rounds.
void quantise(const float* values, int count, float scale, std::uint8_t* out) {
    constexpr float kRound = 12582912.0f + 128.0f;
    const float inverse = scale > 0 ? 1 / scale : 0;
    for (int i = 0; i < count; ++i) // the compiler vectorizes this while it stays this short
        out[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(values[i] * inverse + kRound) & 0xffu);
}

// ---- transposition ----

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

// Makes `lines` lines from as many words of each of 16 rows. Takes 64 bytes of every row at once, since rows a power of
// two apart evict each other from the cache.
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

// Returns inputs [input, input + count) of the wanted ones of a row, in the type of memory. They lie in the file
// itself, or in a copy filled up with zeros to whole lines.
const std::byte* fetch(const PackedFormat& format, const StoredWeights& row, int input, int count, float scale,
                       Staging& staging, int lane) {
    const WeightType type = format.type;
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
        if (holds_codes(format, row)) {
            const QuantizedMatrix& matrix = *row.tensor->quantized;
            auto* codes = reinterpret_cast<std::uint8_t*>(to);
            matrix.read_codes(first / matrix.inputs, first % matrix.inputs, count, codes);
            for (int i = 0; i < count; ++i)
                codes[i] ^= 128; // from signed to 128 more
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

// ---- groups ----

// One output of a grouped unit; its scales lie between those of the others.
class GroupedLane {
  public:
    GroupedLane(const PackedFormat& format, const GroupedUnit& unit, int lane, std::byte* out)
        : format_(format), groups_(format.groups), unit_(unit), lane_(static_cast<std::size_t>(lane)), out_(out),
          codes_(static_cast<std::size_t>(unit.groups * groups_.size)),
          words_(static_cast<std::size_t>(unit.code_lines)) {}

    // Returns the output's lines of codes as words. Codes of inputs that are not wanted are arbitrary.
    const std::byte* pack(const StoredWeights& row, int k) {
        if (holds_codes(format_, row))
            take_quantized(row, k);
        else
            for (int group = 0; group < unit_.groups && row.tensor; ++group)
                round_group(row, group);
        put_words();
        return reinterpret_cast<const std::byte*>(words_.data());
    }

  private:
    void take_quantized(const StoredWeights& row, int k) {
        const QuantizedMatrix& matrix = *row.tensor->quantized;
        const std::int64_t output = row.first / matrix.inputs, begin = row.wanted.begin;
        const auto count = static_cast<int>(std::min<std::int64_t>(k, row.wanted.size()));
        std::uint8_t* to = codes_.data() + groups_.lead;
        if (format_.order.empty()) matrix.read_codes(output, begin, count, to);
        for (std::size_t place = 0; place < format_.order.size(); ++place)
            matrix.read_codes(output, begin + format_.order[place], 1, to + place);
        if (is_of_floats())
            take_facts(matrix, output, begin);
        else
            take_steps(*matrix.of.block, matrix, output, begin - groups_.lead);
    }
    bool is_of_floats() const { return groups_.scales == ScaleType::bfloat16 || groups_.scales == ScaleType::float32; }
    void take_facts(const QuantizedMatrix& matrix, std::int64_t output, std::int64_t begin) {
        for (int group = 0; group < unit_.groups; ++group) {
            const auto first = static_cast<std::size_t>(group * groups_.size);
            std::int64_t input = begin - groups_.lead + static_cast<std::int64_t>(first);
            if (!format_.order.empty()) input = begin + format_.order[std::min(first, format_.order.size() - 1)];
            if (input >= matrix.inputs) return;
            GroupFacts facts = matrix.facts(output, matrix.group_at(input));
            for (std::size_t i = first;
                 format_.type == WeightType::float8 && i < first + static_cast<std::size_t>(groups_.size); ++i)
                if ((codes_[i] & 0x7f) == 0x7f) // NaN, which kernels do not detect
                    facts.scale = std::numeric_limits<float>::quiet_NaN();
            put_facts(facts, group);
        }
    }
    void take_steps(const BlockType& type, const QuantizedMatrix& matrix, std::int64_t output, std::int64_t input) {
        const int groups_of_block = type.inputs / type.group;
        int of_block = static_cast<int>(input % type.inputs / type.group);
        const std::byte *block = matrix.block_at(output, input), *end = matrix.block_at(output + 1, 0);
        for (int group = 0; group < unit_.groups && block != end; ++group) {
            put_steps(type, block, of_block, group);
            if (++of_block < groups_of_block) continue;
            of_block = 0;
            block += type.bytes;
        }
    }
    // Rounds a group of the stored row to 4 bits, whichever of its inputs are wanted.
    void round_group(const StoredWeights& row, int group) {
        const int size = groups_.size;
        const std::int64_t begin = row.wanted.begin - groups_.lead + std::int64_t{group} * size;
        const int stored = static_cast<int>(std::clamp<std::int64_t>(row.inputs - begin, 0, size));
        if (std::min(row.wanted.end - begin, std::int64_t{stored}) <= 0) return;
        float values[kChunk];
        convert_from<Float32Format>(*row.tensor, row.first + begin * row.stride, row.stride, stored,
                                    reinterpret_cast<std::byte*>(values));
        const std::uint16_t scale = quantise_group(values, stored, &codes_[group * size]);
        put_facts({from_bfloat16(scale)}, group);
    }

    std::size_t place(int group) const { return static_cast<std::size_t>(group) * kLanes + lane_; }
    void put_facts(const GroupFacts& facts, int group) {
        put_float(facts.scale, place(group), out_);
        if (groups_.has_offsets) put_float(facts.offset, place(group), out_ + unit_.offsets());
    }
    void put_float(float value, std::size_t at, std::byte* to) const {
        const std::uint16_t brief = to_bfloat16(value);
        groups_.scales == ScaleType::float32 ? std::memcpy(to + at * 4, &value, 4)
                                             : std::memcpy(to + at * 2, &brief, 2);
    }
    void put_steps(const BlockType& type, const std::byte* block, int group_of_block, int group) {
        const std::byte *half = block + type.steps.half, *offset_half = block + type.steps.offset_half;
        if (groups_.scales == ScaleType::float16) {
            std::memcpy(out_ + place(group) * 2, half, 2);
            std::byte* offset = out_ + unit_.offsets() + place(group) * 2;
            if (groups_.has_offsets) std::memcpy(offset, offset_half, 2), offset[1] ^= std::byte{0x80}; // subtracted
            return;
        }
        const GroupSteps steps = type.steps.of(block, group_of_block);
        const bool is_paired = groups_.scales == ScaleType::nibbles;
        out_[place(group)] = static_cast<std::byte>(is_paired ? steps.scale | steps.offset << 4 : steps.scale);
        if (groups_.has_offsets && !is_paired)
            out_[unit_.offsets() + place(group)] = static_cast<std::byte>(steps.offset);
        const int outer = (groups_.outer_lead + group * groups_.size) / kernels::kOuterGroup;
        std::byte* to =
            out_ + unit_.outer() + static_cast<std::size_t>(outer * GroupedUnit::outer_bytes(groups_)) + lane_ * 2;
        std::memcpy(to, half, 2);
        if (groups_.has_offsets) std::memcpy(to + kLanes * 2, offset_half, 2);
    }

    // Removes signs and upper bits from codes, and puts them in their places: kernels::LinearArgs.
    void put_words() {
        std::uint8_t places[256] = {};
        for (std::uint8_t i = 0; i < 16 && groups_.numbers; ++i)
            places[groups_.numbers[i]] = i;
        const std::uint32_t middle = in_all_bytes(format_.middle);
        const std::uint32_t mask = in_all_bytes(groups_.numbers ? 255 : (1 << groups_.bits) - 1);
        std::uint32_t* to = words_.data();
        for (std::size_t block = 0; block < codes_.size(); block += 32) {
            std::uint32_t quads[8];
            std::memcpy(quads, &codes_[block], sizeof quads);
            for (std::uint32_t& quad : quads)
                quad = (((quad & in_all_bytes(127)) + middle) ^ (quad & in_all_bytes(128))) & mask; // byte by byte
            if (groups_.numbers)
                for (auto* code = reinterpret_cast<std::uint8_t*>(quads);
                     code != reinterpret_cast<std::uint8_t*>(quads + 8); ++code)
                    *code = places[*code];
            put_block(quads, to);
            to += groups_.bits;
        }
    }
    void put_block(const std::uint32_t (&quads)[8], std::uint32_t* to) const {
        switch (groups_.bits) {
        case 2:
            return put_bits<2, 0>(quads, to);
        case 3:
            put_bits<2, 0>(quads, to);
            return put_bits<1, 2>(quads, to + 2);
        case 4:
            return put_bits<4, 0>(quads, to);
        case 5:
            put_bits<4, 0>(quads, to);
            return put_bits<1, 4>(quads, to + 4);
        case 6:
            put_bits<4, 0>(quads, to);
            return put_bits<2, 4>(quads, to + 4);
        default:
            return put_bits<8, 0>(quads, to);
        }
    }
    static constexpr std::uint32_t in_all_bytes(int byte) { return 0x01010101u * static_cast<std::uint32_t>(byte); }
    // Puts kBits bits of every code, from bit kFrom on.
    template <int kBits, int kFrom> static void put_bits(const std::uint32_t (&quads)[8], std::uint32_t* to) {
        constexpr int kTogether = 8 / kBits;
        for (int word = 0; word < kBits; ++word) {
            to[word] = 0;
            for (int i = 0; i < kTogether; ++i)
                to[word] |= (quads[word * kTogether + i] >> kFrom & in_all_bytes((1 << kBits) - 1)) << i * kBits;
        }
    }

    const PackedFormat& format_;
    const WeightGroups& groups_;
    const GroupedUnit& unit_;
    std::size_t lane_;
    std::byte* out_;
    std::vector<std::uint8_t> codes_;
    std::vector<std::uint32_t> words_;
};

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
    const GroupedUnit unit(format.groups, k);
    std::memset(out, 0, unit.codes()); // so that the scales' last line is filled
    std::vector<GroupedLane> lanes;
    lanes.reserve(kLanes);
    const std::byte* sources[kLanes];
    for (int lane = 0; lane < kLanes; ++lane)
        sources[lane] = lanes.emplace_back(format, unit, lane, out).pack(rows[lane], k);
    turn(sources, unit.code_lines, out + unit.codes());
    if (format.type == WeightType::float8) part_quads(out + unit.codes(), unit.code_lines);
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

std::size_t unit_bytes_of(const PackedFormat& format, int k) {
    if (format.groups.size > 0) return GroupedUnit(format.groups, k).bytes();
    return static_cast<std::size_t>(lines_of(format.type, k)) * kLineBytes;
}

PackedFormat format_of(WeightType type, std::int64_t first_input) {
    PackedFormat format = {.type = type, .is_rounded = is_scaled(type)};
    if (type != WeightType::int4) return format;
    format.groups = {kInt4Group, static_cast<int>(first_input % kInt4Group)};
    format.middle = 8;
    return format;
}

PackedFormat wide_format_of(const Quantization& of, std::int64_t first_input) {
    const bool is_float = of.form == QuantizedForm::float8, has_4_bits = !is_float && of.bits == 4;
    const WeightType type = is_float ? WeightType::float8 : has_4_bits ? WeightType::int4 : WeightType::int8;
    if (type == WeightType::int8 && of.group == 0 && !of.has_zeros) return {type};
    constexpr int kOfWholeRows = 128; // one scale for all of these
    const int middle = is_float || of.values != CodeValues::none ? 0 : has_4_bits ? 8 : 128;
    const bool has_powers = of.values == CodeValues::float4 || of.values == CodeValues::float4_twice;
    PackedFormat format = {.type = type, .middle = middle};
    format.groups.size = of.group > 0 ? of.group : kOfWholeRows;
    format.groups.lead = of.group > 0 ? static_cast<int>(first_input % of.group) : 0;
    format.groups.scales = has_powers ? ScaleType::bfloat16 : ScaleType::float32; // exact for powers of two
    format.groups.has_offsets = of.has_zeros;
    format.groups.values = table_of(of.values);
    format.groups.bits = has_4_bits ? 4 : 8;
    format.groups.less = middle;
    return format;
}

PackedFormat wide_format_of(const TensorView& quantized, dist::Slice slice) {
    const QuantizedMatrix& matrix = *quantized.quantized;
    PackedFormat format = wide_format_of(matrix.of, slice.begin);
    if (format.groups.size == 0) return format;
    if (matrix.scales.type == DiskType::bfloat16 && !format.groups.has_offsets)
        format.groups.scales = ScaleType::bfloat16;
    if (matrix.scale_factor != 1) format.groups.scales = ScaleType::float32;
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

PackedFormat format_of(const TensorView& quantized, dist::Slice slice) {
    PackedFormat format = wide_format_of(quantized, slice);
    const QuantizedMatrix& matrix = *quantized.quantized;
    if (!matrix.of.block || matrix.of.block->steps.bits == 0 || matrix.scale_factor != 1) return format;
    const BlockSteps& steps = matrix.of.block->steps;
    WeightGroups& groups = format.groups;
    format.type = steps.bits > 4 ? WeightType::int8 : WeightType::int4;
    format.middle = steps.middle;
    groups.bits = steps.bits;
    groups.less = steps.middle - matrix.of.block->less;
    groups.numbers = steps.numbers;
    groups.scales = !steps.of ? ScaleType::float16 : steps.bits == 2 ? ScaleType::nibbles : ScaleType::steps;
    if (steps.of) groups.outer_lead = static_cast<int>((slice.begin - groups.lead) % kernels::kOuterGroup);
    return format;
}

void pack_unit(const PackedFormat& format, const StoredWeights (&rows)[kLanes], int k, float* scales, std::byte* out) {
    if (format.groups.size > 0) return pack_grouped_unit(format, rows, k, out);
    const WeightType type = format.type;
    Staging staging;
    float scale[kLanes] = {};
    if (type == WeightType::int8) {
        for (int lane = 0; lane < kLanes; ++lane)
            scales[lane] = scale[lane] = scale_of(format, rows[lane]);
    }
    for (int input = 0; input < k; input += kChunk) {
        const int count = std::min(kChunk, k - input), lines = lines_of(type, count);
        const std::byte* sources[kLanes];
        for (int lane = 0; lane < kLanes; ++lane)
            sources[lane] = fetch(format, rows[lane], input, count, scale[lane], staging, lane);
        turn(sources, lines, out);
        if (type == WeightType::float16) part_pairs(out, lines);
        out += static_cast<std::size_t>(lines) * kLineBytes;
    }
}

namespace {

float fact_at(const std::byte* facts, ScaleType type, std::size_t at) {
    float value = 0;
    std::uint16_t brief = 0;
    if (type == ScaleType::float32)
        std::memcpy(&value, facts + at * 4, 4);
    else
        std::memcpy(&brief, facts + at * 2, 2);
    return type == ScaleType::float32 ? value : type == ScaleType::float16 ? from_float16(brief) : from_bfloat16(brief);
}

// Returns the facts of a unit's group, for one lane.
GroupFacts facts_at(const PackedUnit& unit, const GroupedUnit& of, std::size_t group, std::size_t lane) {
    const WeightGroups& groups = unit.format.groups;
    const std::size_t at = group * kLanes + lane;
    if (!GroupedUnit::has_steps(groups))
        return {fact_at(unit.bytes, groups.scales, at),
                groups.has_offsets ? fact_at(unit.bytes + of.offsets(), groups.scales, at) : 0};
    const auto step_at = [&](std::size_t place) {
        return static_cast<int>(static_cast<std::int8_t>(unit.bytes[place]));
    };
    GroupSteps steps = {step_at(at)};
    if (groups.scales == ScaleType::nibbles)
        steps = {steps.scale & 15, steps.scale >> 4 & 15};
    else if (groups.has_offsets)
        steps.offset = step_at(of.offsets() + at);
    const std::size_t outer =
        (static_cast<std::size_t>(groups.outer_lead) + group * static_cast<std::size_t>(groups.size)) /
        kernels::kOuterGroup;
    const std::byte* halves =
        unit.bytes + of.outer() + outer * static_cast<std::size_t>(GroupedUnit::outer_bytes(groups));
    return {fact_at(halves, ScaleType::float16, lane) * static_cast<float>(steps.scale),
            groups.has_offsets ? fact_at(halves, ScaleType::float16, kLanes + lane) * static_cast<float>(steps.offset)
                               : 0};
}

// Returns `bits` bits of place `place` of 32, in lines from `line` on.
int bits_at(const std::byte* line, int bits, std::size_t lane, std::size_t place) {
    const auto together = static_cast<std::size_t>(8 / bits), quad = place / 4;
    const std::byte byte = line[quad / together * kLineBytes + lane * 4 + place % 4];
    return static_cast<int>(byte) >> quad % together * static_cast<std::size_t>(bits) & ((1 << bits) - 1);
}

// Returns the weight of (lane, place) in a grouped unit.
float grouped_weight(const PackedUnit& unit, const GroupedUnit& of, std::size_t lane, std::size_t place) {
    const WeightGroups& groups = unit.format.groups;
    const GroupFacts facts = facts_at(unit, of, place / static_cast<std::size_t>(groups.size), lane);
    const std::byte* lines = unit.bytes + of.codes() + place / 32 * static_cast<std::size_t>(groups.bits) * kLineBytes;
    if (unit.format.type == WeightType::float8) {
        const std::byte* line = lines + place % 32 / 4 * kLineBytes;
        return facts.scale * from_float8(static_cast<std::uint8_t>(line[place % 4 * kLanes + lane]));
    }
    const int low = low_bits(groups.bits), high = groups.bits - low;
    int code = bits_at(lines, low, lane, place % 32);
    if (high > 0) code |= bits_at(lines + static_cast<std::size_t>(low) * kLineBytes, high, lane, place % 32) << low;
    if (groups.values) return facts.scale * groups.values[code];
    if (groups.numbers) code = groups.numbers[code];
    return facts.scale * static_cast<float>(code - groups.less) - facts.offset;
}

} // namespace

void unpack_row(const PackedUnit& unit, int lane, float scale, dist::Slice inputs, float* out) {
    const auto at = static_cast<std::size_t>(lane);
    if (unit.format.groups.size > 0) {
        const GroupedUnit of(unit.format.groups, unit.k);
        for (std::int64_t place = 0; place < unit.k; ++place) {
            const std::int64_t input = unit.format.order.empty() ? place : unit.format.order[place];
            if (inputs.contains(input))
                out[input - inputs.begin] =
                    grouped_weight(unit, of, at, static_cast<std::size_t>(place + unit.format.groups.lead));
        }
        return;
    }
    const auto begin = static_cast<std::size_t>(inputs.begin);
    const auto n = static_cast<std::size_t>(inputs_of_line(unit.format.type));
    const std::byte* line = unit.bytes + begin / n * kLineBytes;
    std::size_t place = begin % n; // in the line: a division per input would take longer than reading it
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
