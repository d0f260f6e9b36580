// model.safetensors.index.json beside one good shard.
#include "tests/fuzz/fuzz_input.h"

#include "model/files/bad_file.h"
#include "model/files/checkpoint.h"

#include <array>

using namespace entrodraft;

namespace {

std::string shard() {
    const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    return bytes + header + std::string(8, '\0');
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const auto written = fuzz::directory().write("model-00001-of-00001.safetensors", shard());
    fuzz::directory().write("model.safetensors.index.json", fuzz::text_of(data, size));
    try {
        const model::Checkpoint checkpoint = model::Checkpoint::open(fuzz::directory().path());
        for (const auto& [name, tensor] : checkpoint.tensors())
            fuzz::require(checkpoint.has(name) && tensor.bytes.size() == 8);
    } catch (const model::BadFile&) {
    }
    return 0;
}
