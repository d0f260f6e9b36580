// Numbers on their way to and from device memory, of tests of kernels.
#pragma once

#include "model/gpu/memory.h"

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

} // namespace entrodraft::model::gpu
