// pytorch_model.bin: the archive, its pickle, and the first and last byte of every tensor.
#include "tests/fuzz/fuzz_input.h"

#include "model/files/bad_file.h"
#include "model/files/tensor_view.h"

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto path = fuzz::directory().write("pytorch_model.bin", fuzz::text_of(data, size));
    try {
        const model::TensorFile file = model::open_torch_file(path);
        for (const model::TensorView& tensor : file.tensors) {
            fuzz::require(tensor.bytes.size() <= size);
            if (tensor.bytes.empty()) continue;
            fuzz::use(tensor.bytes.front());
            fuzz::use(tensor.bytes.back());
        }
    } catch (const model::BadFile&) {
    }
    return 0;
}
