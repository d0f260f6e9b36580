// tokenizer_config.json, and behind a line "----" the message of a user.
#include "tests/fuzz/fuzz_input.h"

#include "model/files/bad_file.h"
#include "model/files/utf8.h"
#include "model/text/chat/chat_template.h"

#include <stdexcept>

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest = fuzz::text_of(data, size);
    fuzz::directory().write("tokenizer_config.json", fuzz::next_part(rest));
    if (model::first_invalid_utf8(rest) != std::string_view::npos) return 0;
    model::jinja::Dict message;
    message.set("role", "user");
    message.set("content", rest);
    try {
        const auto chat = model::ChatTemplate::open(fuzz::directory().path());
        if (chat) (void)chat->render({std::vector<model::jinja::Value>{message}});
    } catch (const model::BadFile&) {
    } catch (const std::invalid_argument&) { // what the template refuses, or cannot do
    }
    return 0;
}
