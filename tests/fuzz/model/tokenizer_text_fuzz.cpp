// A text, and a list of ids, for good tokenizers of every kind. The first byte chooses the tokenizer and whether the
// rest is text or ids, two bytes each.
#include "tests/fuzz/model/tokenizer_support.h"

#include <array>
#include <memory>

using namespace entrodraft;

namespace {

constexpr std::array kNames = {"falcon", "falcon3", "gemma", "gpt2",  "llama2",
                               "llama3", "neox",    "opt",   "qwen2", "t5-new"};

const model::Tokenizer& tokenizer_number(std::size_t number) {
    static std::array<std::unique_ptr<model::Tokenizer>, kNames.size()> opened;
    auto& one = opened[number % kNames.size()];
    if (!one) {
        const std::string directory =
            std::string(ENTRODRAFT_SOURCE_DIR "/tests/model/tokenizers/") + kNames[number % kNames.size()];
        one = std::make_unique<model::Tokenizer>(model::Tokenizer::open(directory));
    }
    return *one;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const model::Tokenizer& tokenizer = tokenizer_number(data[0] & 0x7f);
    if ((data[0] & 0x80) == 0) {
        fuzz::check_text(tokenizer, fuzz::text_of(data + 1, size - 1));
        return 0;
    }
    std::vector<model::TokenId> ids;
    for (std::size_t i = 1; i + 1 < size; i += 2)
        ids.push_back((data[i] | data[i + 1] << 8) % tokenizer.size());
    fuzz::check_ids(tokenizer, ids);
    return 0;
}
