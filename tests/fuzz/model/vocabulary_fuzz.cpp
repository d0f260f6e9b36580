// Files of tokenizers without tokenizer.json: a line with the name of one of them, then vocab.json and merges.txt, or
// that file, tokenizer_config.json and a text, with lines "----" between them.
#include "tests/fuzz/model/tokenizer_support.h"

#include "model/files/bad_file.h"

#include <filesystem>

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest = fuzz::text_of(data, size);
    for (const char* file : {"tokenizer.model", "tekken.json", "qwen.tiktoken", "vocab.json", "merges.txt"})
        std::filesystem::remove(fuzz::directory().path() / file);
    const std::string_view first = rest.substr(0, rest.find('\n'));
    if (first == "tokenizer.model" || first == "tekken.json" || first == "qwen.tiktoken") {
        rest.remove_prefix(std::min(rest.size(), first.size() + 1));
        fuzz::directory().write(std::string(first), fuzz::next_part(rest));
    } else {
        for (const char* file : {"vocab.json", "merges.txt"})
            fuzz::directory().write(file, fuzz::next_part(rest));
    }
    fuzz::directory().write("tokenizer_config.json", fuzz::next_part(rest));
    try {
        fuzz::check_text(model::Tokenizer::open(fuzz::directory().path()), rest);
    } catch (const model::BadFile&) {
    }
    return 0;
}
