// A quantization_config beside a safetensors file, a border between them: what is joined, and every element of it.
#include "tests/fuzz/fuzz_input.h"

#include "model/files/bad_file.h"
#include "model/files/checkpoint.h"
#include "model/files/quantized.h"

#include <algorithm>
#include <array>

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest = fuzz::text_of(data, size);
    fuzz::directory().write("config.json", "{\"quantization_config\":" + std::string(fuzz::next_part(rest)) + "}");
    fuzz::directory().write("model.safetensors", rest);
    try {
        const model::Checkpoint checkpoint = model::Checkpoint::open(fuzz::directory().path());
        for (const auto& [name, tensor] : checkpoint.tensors()) {
            if (tensor.type != model::DiskType::quantized) continue;
            const std::int64_t n = tensor.quantized->outputs * tensor.quantized->inputs;
            std::array<float, 64> values;
            for (std::int64_t at = 0; at < n; at += values.size()) {
                const auto count = static_cast<int>(std::min<std::int64_t>(n - at, values.size()));
                model::read_quantized(tensor, at, 1, count, values.data());
                fuzz::use(values[static_cast<std::size_t>(count - 1)]);
            }
        }
    } catch (const model::BadFile&) {
    }
    return 0;
}
