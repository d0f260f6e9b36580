// Random weights written into a file, for tests that hold what is made up to what is read.
#pragma once

#include "model/cpu/packing.h"
#include "model/files/checkpoint.h"
#include "model/files/tensor_values.h"
#include "tests/model/checkpoint_files.h"
#include "tests/model/temporary_directory.h"

#include <fmt/format.h>

namespace entrodraft {

// model.safetensors of the same tensors, in float32.
inline model::Checkpoint written(const model::Checkpoint& random, const TemporaryDirectory& directory) {
    std::string header, data;
    for (const auto& [name, tensor] : random.tensors()) {
        std::int64_t count = 1;
        for (const std::int64_t dim : tensor.shape)
            count *= dim;
        std::vector<float> values(static_cast<std::size_t>(count));
        model::read_floats(tensor, {0, count}, values.data());
        const std::size_t begin = data.size();
        data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
        header +=
            (header.empty() ? "" : ",") +
            model::header_entry(name, "F32", fmt::format("[{}]", fmt::join(tensor.shape, ",")), begin, data.size());
    }
    header = "{" + header + "}";
    directory.write("model.safetensors", model::little_endian(header.size(), 8) + header + data);
    return model::Checkpoint::open(directory.path());
}

} // namespace entrodraft
