// tokenizer_config.json, and behind a line "----" the message of a user.
#include "tests/fuzz/fuzz_input.h"

#include "model/chat/chat_template.h"
#include "model/checkpoint/bad_file.h"

#include <stdexcept>

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest = fuzz::text_of(data, size);
    fuzz::directory().write("tokenizer_config.json", fuzz::next_part(rest));
    const model::ChatMessage message = {model::ChatMessage::Role::user, std::string(rest)};
    try {
        const auto chat = model::ChatTemplate::open(fuzz::directory().path());
        if (chat) fuzz::require(!chat->render(std::span(&message, 1)).empty());
    } catch (const model::BadFile&) {
    } catch (const std::invalid_argument&) { // what the form cannot say
    }
    return 0;
}
