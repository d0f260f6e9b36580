// A file of input lines. Every good one must be a request that an engine can take.
#include "tests/fuzz/fuzz_input.h"

#include "launch/io/requests.h"
#include "launch/io/results.h"

#include <variant>

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr int kVocabulary = 1000, kPositions = 256;
    launch::PromptLimits limits;
    limits.vocab_size = kVocabulary;
    limits.max_positions = kPositions;
    limits.encode = [](std::string_view text) {
        std::vector<spec::TokenId> ids;
        for (const char c : text)
            ids.push_back(static_cast<unsigned char>(c));
        return ids;
    };
    const model::ChatTemplate chat("plain", "{{ messages }}{{ tools }}", {});
    limits.encode_chat = [&](const model::Conversation& conversation) {
        return limits.encode(chat.render(conversation));
    };
    const auto path = fuzz::directory().write("input.jsonl", fuzz::text_of(data, size));
    launch::RequestDefaults defaults;
    defaults.has_results = true;
    launch::RequestReader reader(path.string(), defaults, limits);
    while (const auto item = reader.next()) {
        if (const auto* bad = std::get_if<launch::BadLine>(&*item)) {
            fuzz::require(!bad->error.empty() && launch::Json::accept(launch::error_line(*bad)));
            continue;
        }
        const auto& request = std::get<spec::Request>(*item);
        fuzz::require(!request.prompt.empty() && request.prompt.size() < kPositions && request.max_new_tokens >= 1);
        for (const spec::TokenId token : request.prompt)
            fuzz::require(token >= 0 && token < kVocabulary);
        fuzz::require(launch::Json::accept(launch::result_line(request, {}))); // id and metadata are in it as they are
    }
    return 0;
}
