// tokenizer.json, and behind a line "----" a text for it.
#include "tests/fuzz/model/tokenizer_support.h"

#include "model/files/bad_file.h"

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest = fuzz::text_of(data, size);
    fuzz::directory().write("tokenizer.json", fuzz::next_part(rest));
    try {
        const model::Tokenizer tokenizer = model::Tokenizer::open(fuzz::directory().path());
        fuzz::use(tokenizer.fingerprint());
        fuzz::check_text(tokenizer, rest);
    } catch (const model::BadFile&) {
    }
    return 0;
}
