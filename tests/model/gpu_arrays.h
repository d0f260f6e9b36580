// Numbers on their way to and from device memory, of tests of kernels.
#pragma once

#include "model/files/half.h"
#include "model/gpu/kernels.h"
#include "model/gpu/memory.h"

#include <cstring>
#include <random>
#include <vector>

namespace entrodraft::model::gpu {

inline constexpr double kPatience = 60; // seconds

inline std::size_t index(int i) {
    return static_cast<std::size_t>(i);
}

inline std::vector<float> random_floats(std::size_t count, std::mt19937& random, float scale = 1) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(count);
    for (float& value : values)
        value = normal(random);
    return values;
}

template <typename T> DeviceArray<T> to_device(const std::vector<T>& values) {
    DeviceArray<T> array(values.size());
    const Stream stream;
    copy(stream, array.data(), values.data(), values.size() * sizeof(T));
    stream.wait(kPatience);
    return array;
}

template <typename T> std::vector<T> to_host(const DeviceArray<T>& array) {
    std::vector<T> values(array.size());
    const Stream stream;
    copy(stream, values.data(), array.data(), values.size() * sizeof(T));
    stream.wait(kPatience);
    return values;
}

inline constexpr NumberType kTypes[] = {NumberType::float32, NumberType::bfloat16, NumberType::float16};

inline float rounded(NumberType type, float x) {
    switch (type) {
    case NumberType::float32:
        return x;
    case NumberType::bfloat16:
        return from_bfloat16(to_bfloat16(x));
    case NumberType::float16:
        return from_float16(to_float16(x));
    }
    return x;
}

// Numbers of a type in device memory, made from floats and read back as floats.
class Numbers {
  public:
    Numbers(NumberType type, const std::vector<float>& values) : Numbers(type, values.size()) {
        std::vector<std::byte> bytes(bytes_.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            const std::uint16_t half = type == NumberType::bfloat16 ? to_bfloat16(values[i]) : to_float16(values[i]);
            if (type == NumberType::float32)
                std::memcpy(&bytes[4 * i], &values[i], 4);
            else
                std::memcpy(&bytes[2 * i], &half, 2);
        }
        copy(stream_, bytes_.data(), bytes.data(), bytes.size());
        stream_.wait(kPatience);
    }
    Numbers(NumberType type, std::size_t count) : type_(type), count_(count), bytes_(count * bytes_of(type)) {}

    void* data() const { return bytes_.data(); }
    std::vector<float> read() const {
        std::vector<std::byte> bytes(bytes_.size());
        copy(stream_, bytes.data(), bytes_.data(), bytes.size());
        stream_.wait(kPatience);
        std::vector<float> values(count_);
        for (std::size_t i = 0; i < count_; ++i) {
            std::uint16_t half = 0;
            if (type_ == NumberType::float32) {
                std::memcpy(&values[i], &bytes[4 * i], 4);
                continue;
            }
            std::memcpy(&half, &bytes[2 * i], 2);
            values[i] = type_ == NumberType::bfloat16 ? from_bfloat16(half) : from_float16(half);
        }
        return values;
    }

  private:
    NumberType type_;
    std::size_t count_;
    Stream stream_;
    DeviceBytes bytes_;
};

inline std::vector<float> random_numbers(NumberType type, std::size_t count, std::mt19937& random, float scale = 1) {
    std::vector<float> values = random_floats(count, random, scale);
    for (float& value : values)
        value = rounded(type, value);
    return values;
}

} // namespace entrodraft::model::gpu
