// Converts a stored tensor's elements to numbers of another format.
#pragma once

#include "dist/layout/shard.h"
#include "model/files/bad_file.h"
#include "model/files/half.h"
#include "model/files/quantized.h"
#include "model/files/tensor_view.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace entrodraft::model {

// Reads elements [begin, end) of a stored tensor as float32. Throws BadFile on a type that holds no weights.
void read_floats(const TensorView& tensor, dist::Slice range, float* out);

inline constexpr int kMaxConverted = 512; // elements in one call of convert_from

[[noreturn]] inline void refuse_type(const TensorView& tensor) {
    throw BadFile((tensor.file ? *tensor.file + ": " : std::string()) + "tensor '" + tensor.name + "' has type " +
                  tensor.dtype + "; weights must be F32, F16 or BF16");
}

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

// Converts `count` stored numbers, `step` bytes apart and not aligned, to another format.
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

// Returns the address of a tensor's element in its mapped file.
inline const std::byte* address_of(const TensorView& tensor, std::int64_t element) {
    const std::size_t size = tensor.type == DiskType::float32 ? 4 : 2;
    return tensor.bytes.data() + static_cast<std::size_t>(element) * size;
}

// Converts at most kMaxConverted elements, `stride` apart.
template <typename To>
void convert_from(const TensorView& tensor, std::int64_t first, std::int64_t stride, int count, std::byte* out) {
    const auto step = static_cast<std::size_t>(stride);
    float values[kMaxConverted];
    switch (tensor.type) {
    case DiskType::float32:
        return convert<Float32Format, To>(address_of(tensor, first), step * 4, count, out);
    case DiskType::float16:
        return convert<Float16Format, To>(address_of(tensor, first), step * 2, count, out);
    case DiskType::bfloat16:
        return convert<BFloat16Format, To>(address_of(tensor, first), step * 2, count, out);
    case DiskType::generated:
        read_generated(tensor.generated, first, stride, count, values);
        return convert<Float32Format, To>(reinterpret_cast<const std::byte*>(values), 4, count, out);
    case DiskType::quantized:
        read_quantized(tensor, first, stride, count, values);
        return convert<Float32Format, To>(reinterpret_cast<const std::byte*>(values), 4, count, out);
    case DiskType::other:
        break;
    }
    refuse_type(tensor);
}

} // namespace entrodraft::model
