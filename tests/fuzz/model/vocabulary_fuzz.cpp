// vocab.json, merges.txt, tokenizer_config.json and a text, with lines "----" between them.
#include "tests/fuzz/model/tokenizer_support.h"

#include "model/checkpoint/bad_file.h"

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest = fuzz::text_of(data, size);
    for (const char* file : {"vocab.json", "merges.txt", "tokenizer_config.json"})
        fuzz::directory().write(file, fuzz::next_part(rest));
    try {
        fuzz::check_text(model::Tokenizer::open(fuzz::directory().path()), rest);
    } catch (const model::BadFile&) {
    }
    return 0;
}
