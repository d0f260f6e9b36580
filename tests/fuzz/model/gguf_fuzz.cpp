// A GGUF file: its header, config and tokenizer, and the first and last element of every tensor.
#include "tests/fuzz/fuzz_input.h"

#include "model/families/config.h"
#include "model/families/read_config.h"
#include "model/files/bad_file.h"
#include "model/files/gguf_file.h"
#include "model/files/quantized.h"
#include "model/text/tokenizer/tokenizer.h"

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto path = fuzz::directory().write("model.gguf", fuzz::text_of(data, size));
    try {
        const model::GgufFile file = model::open_gguf(path);
        for (const model::TensorView& tensor : file.parts.front().tensors) {
            fuzz::require(tensor.bytes.size() <= size);
            if (tensor.bytes.empty()) continue;
            fuzz::use(tensor.bytes.back());
            if (!tensor.quantized) continue;
            float value = 0;
            const std::int64_t last = tensor.quantized->outputs * tensor.quantized->inputs - 1;
            model::read_quantized(tensor, last, 1, 1, &value);
            fuzz::use(value);
        }
        try {
            fuzz::use(model::read_config(path).n_layers);
        } catch (const model::BadFile&) {
        }
        fuzz::use(model::Tokenizer::open(path).size());
    } catch (const model::BadFile&) {
    }
    return 0;
}
