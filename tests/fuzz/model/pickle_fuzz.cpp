// The pickle of a state dict, without the archive around it.
#include "tests/fuzz/fuzz_input.h"

#include "model/files/bad_file.h"
#include "model/files/pickle.h"

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        const auto bytes = std::as_bytes(std::span(data, size));
        for (const model::PickledTensor& tensor : model::read_pickled_tensors(bytes, "the pickle"))
            fuzz::require(tensor.shape.size() == tensor.strides.size() && tensor.shape.size() <= model::kMaxTensorDims);
    } catch (const model::BadFile&) {
    }
    return 0;
}
