// Rows are taken in chunks of a few hundred inputs. Where file and memory have the same type, a chunk is turned
// straight out of the file, else out of a small converted copy. To the turning all types are alike: words of 32 bits,
// each one output's part of a line.
#include "entrodraft/model/packing.h"

#include "entrodraft/model/bad_file.h"
#include "entrodraft/model/half.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace entrodraft::model {

using kernels::kLanes;

namespace {

constexpr int kChunk = 512; // inputs
constexpr std::size_t kWordBytes = 4, kLineBytes = kLanes * kWordBytes;

// The formats of numbers: their bits, and the ways from and to float32.
struct Float32Format {
    using Bits = float;
    static float to_float(float value) { return value; }
    static float from_float(float value) { return value; }
};
struct BFloat16Format {
    using Bits = std::uint16_t;
    static float to_float(std::uint16_t bits) { return from_bfloat16(bits); }
    static std::uint16_t from_float(float value) { return to_bfloat16(value); }
};
struct Float16Format {
    using Bits = std::uint16_t;
    static float to_float(std::uint16_t bits) { return from_float16(bits); }
    static std::uint16_t from_float(float value) { return to_float16(value); }
};

// `count` stored numbers, `step` bytes apart and not aligned, in another format.
template <typename From, typename To> void convert(const std::byte* from, std::size_t step, int count, std::byte* out) {
    typename To::Bits* to = reinterpret_cast<typename To::Bits*>(out);
    auto one = [](const std::byte* at) {
        typename From::Bits bits;
        std::memcpy(&bits, at, sizeof(bits));
        return To::from_float(From::to_float(bits));
    };
    if (step == sizeof(typename From::Bits)) {
        for (int i = 0; i < count; ++i) // the compiler makes vectors of this
            to[i] = one(from + static_cast<std::size_t>(i) * sizeof(typename From::Bits));
    } else {
        for (int i = 0; i < count; ++i)
            to[i] = one(from + static_cast<std::size_t>(i) * step);
    }
}

template <typename To>
void convert_from(const TensorView& tensor, const std::byte* from, std::int64_t stride, int count, std::byte* out) {
    const auto step = static_cast<std::size_t>(stride);
    switch (tensor.type) {
    case DiskType::float32:
        return convert<Float32Format, To>(from, step * 4, count, out);
    case DiskType::float16:
        return convert<Float16Format, To>(from, step * 2, count, out);
    case DiskType::bfloat16:
        return convert<BFloat16Format, To>(from, step * 2, count, out);
    case DiskType::other:
        break;
    }
    throw BadFile((tensor.file ? *tensor.file + ": " : std::string()) + "tensor '" + tensor.name + "' has type " +
                  tensor.dtype + "; weights must be F32, F16 or BF16");
}

// Where input `input` of a row lies, counted from the row's beginning.
const std::byte* address_of(const StoredRow& row, std::int64_t input) {
    const std::size_t size = row.tensor->type == DiskType::float32 ? 4 : 2;
    return row.tensor->bytes.data() + static_cast<std::size_t>(row.first + input * row.stride) * size;
}

bool lies_as(const StoredRow& row, WeightType type) {
    if (row.stride != 1) return false;
    switch (row.tensor->type) {
    case DiskType::float32:
        return type == WeightType::float32;
    case DiskType::float16:
        return type == WeightType::float16;
    case DiskType::bfloat16:
        return type == WeightType::bfloat16;
    case DiskType::other:
        break;
    }
    return false;
}

// ---- 8 bits ----

// Also finds what is no number, whose bits are above all others'.
float largest_magnitude(const StoredRow& row) {
    float values[kChunk];
    std::uint32_t largest = 0;
    for (std::int64_t input = 0; input < row.inputs; input += kChunk) {
        const int count = static_cast<int>(std::min<std::int64_t>(kChunk, row.inputs - input));
        convert_from<Float32Format>(*row.tensor, address_of(row, input), row.stride, count,
                                    reinterpret_cast<std::byte*>(values));
        for (int i = 0; i < count; ++i)
            largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu);
    }
    return std::bit_cast<float>(largest);
}

// A row with an infinity or a value that is no number has no scale: its outputs will be no numbers.
float scale_of(const StoredRow& row) {
    constexpr float kMost = 127;
    const float largest = row.tensor ? largest_magnitude(row) : 0;
    return largest <= std::numeric_limits<float>::max() ? largest / kMost : std::numeric_limits<float>::quiet_NaN();
}

// Weights as w + 128, nearest with ties to even.
void quantise(const float* values, int count, float scale, std::byte* out) {
    constexpr float kRound = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer
    for (int i = 0; i < count; ++i) {
        float q = scale > 0 ? values[i] / scale : 0.0f;
        q = q > -127.0f ? q : -127.0f; // a scale that is nearly 0 is not exact
        q = q < 127.0f ? q : 127.0f;
        out[i] = static_cast<std::byte>(std::bit_cast<std::uint32_t>(q + (kRound + 128.0f)) & 0xffu);
    }
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

// `lines` words of each of 16 rows become as many lines.
void turn(const std::byte* const (&rows)[kLanes], int lines, std::byte* out) {
    int line = 0;
    for (; line + 4 <= lines; line += 4, out += 4 * kLineBytes)
        for (int lane = 0; lane < kLanes; lane += 4)
            turn_square(rows + lane, static_cast<std::size_t>(line) * kWordBytes,
                        out + static_cast<std::size_t>(lane) * kWordBytes);
    for (; line < lines; ++line, out += kLineBytes)
        for (std::size_t lane = 0; lane < kLanes; ++lane)
            std::memcpy(out + lane * kWordBytes, rows[lane] + static_cast<std::size_t>(line) * kWordBytes, kWordBytes);
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
const std::byte* fetch(WeightType type, const StoredRow& row, int input, int count, float scale, Staging& staging,
                       int lane) {
    const std::int64_t wanted = row.tensor ? row.wanted.size() - input : 0;
    const bool whole = count <= wanted && count % inputs_of_line(type) == 0;
    if (whole && lies_as(row, type)) return address_of(row, row.wanted.begin + input);
    std::byte* to = staging.rows[lane];
    if (!whole) std::memset(to, type == WeightType::int8 ? 128 : 0, sizeof(staging.rows[lane]));
    count = static_cast<int>(std::clamp<std::int64_t>(wanted, 0, count));
    if (count == 0) return to;
    const std::byte* from = address_of(row, row.wanted.begin + input);
    switch (type) {
    case WeightType::float32:
        convert_from<Float32Format>(*row.tensor, from, row.stride, count, to);
        break;
    case WeightType::bfloat16:
        convert_from<BFloat16Format>(*row.tensor, from, row.stride, count, to);
        break;
    case WeightType::float16:
        convert_from<Float16Format>(*row.tensor, from, row.stride, count, to);
        break;
    case WeightType::int8:
        convert_from<Float32Format>(*row.tensor, from, row.stride, count, reinterpret_cast<std::byte*>(staging.floats));
        quantise(staging.floats, count, scale, to);
        break;
    }
    return to;
}

} // namespace

int inputs_of_line(WeightType type) {
    return static_cast<int>(kWordBytes / bytes_of(type));
}

std::size_t lines_of(WeightType type, int k) {
    const auto inputs = static_cast<std::size_t>(inputs_of_line(type));
    return (static_cast<std::size_t>(k) + inputs - 1) / inputs;
}

void pack_unit(WeightType type, const StoredRow (&rows)[kLanes], int k, float* scales, std::byte* out) {
    Staging staging;
    float scale[kLanes] = {};
    if (type == WeightType::int8) {
        for (int lane = 0; lane < kLanes; ++lane)
            scales[lane] = scale[lane] = scale_of(rows[lane]);
    }
    for (int input = 0; input < k; input += kChunk) {
        const int count = std::min(kChunk, k - input), lines = static_cast<int>(lines_of(type, count));
        const std::byte* sources[kLanes];
        for (int lane = 0; lane < kLanes; ++lane)
            sources[lane] = fetch(type, rows[lane], input, count, scale[lane], staging, lane);
        turn(sources, lines, out);
        if (type == WeightType::float16) part_pairs(out, lines);
        out += static_cast<std::size_t>(lines) * kLineBytes;
    }
}

void unpack_row(WeightType type, const std::byte* unit, int lane, float scale, dist::Slice inputs, float* out) {
    const auto n = static_cast<std::size_t>(inputs_of_line(type)), at = static_cast<std::size_t>(lane);
    for (std::int64_t each = inputs.begin; each < inputs.end; ++each, ++out) {
        const auto input = static_cast<std::size_t>(each);
        const std::byte* line = unit + input / n * kLineBytes;
        std::uint16_t bits = 0;
        switch (type) {
        case WeightType::float32:
            std::memcpy(out, line + at * 4, 4);
            break;
        case WeightType::bfloat16:
            std::memcpy(&bits, line + at * 4 + input % 2 * 2, 2);
            *out = from_bfloat16(bits);
            break;
        case WeightType::float16:
            std::memcpy(&bits, line + input % 2 * (kLineBytes / 2) + at * 2, 2);
            *out = from_float16(bits);
            break;
        case WeightType::int8:
            *out = scale * static_cast<float>(static_cast<int>(line[at * 4 + input % 4]) - 128);
            break;
        }
    }
}

void read_floats(const TensorView& tensor, dist::Slice range, float* out) {
    const std::size_t size = tensor.type == DiskType::float32 ? 4 : 2;
    const std::byte* from = tensor.bytes.data() + static_cast<std::size_t>(range.begin) * size;
    for (std::int64_t done = 0; done < range.size(); done += kChunk) {
        const int count = static_cast<int>(std::min<std::int64_t>(kChunk, range.size() - done));
        convert_from<Float32Format>(tensor, from + static_cast<std::size_t>(done) * size, 1, count,
                                    reinterpret_cast<std::byte*>(out + done));
    }
}

} // namespace entrodraft::model
