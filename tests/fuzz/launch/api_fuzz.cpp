// A request to the HTTP API: method and path, body, and a text that the model could answer. The parts are divided by
// lines of "----". Each request is answered once or becomes a job; a text is split alike whole and piece by piece.
#include "tests/fuzz/fuzz_input.h"

#include "launch/http/api.h"
#include "launch/http/message_parts.h"

#include <string>
#include <vector>

using namespace entrodraft;

namespace {

constexpr int kVocabulary = 1000, kPositions = 256;

class Exchange final : public launch::HttpExchange {
  public:
    explicit Exchange(launch::HttpRequest request) : request_(std::move(request)) {}
    const launch::HttpRequest& request() const override { return request_; }
    void answer(int status, std::string body, std::string_view type) override {
        ++n_answers;
        fuzz::require(status >= 200 && status < 600);
        fuzz::require(type != "application/json" || launch::Json::accept(body));
    }
    void begin_events() override { ++n_answers; }
    void event(std::string_view) override {}
    void end_events() override {}
    bool is_gone() const override { return false; }

    int n_answers = 0;

  private:
    launch::HttpRequest request_;
};

launch::ApiSetting setting() {
    static const model::Tokenizer tokenizer = model::Tokenizer::open(ENTRODRAFT_SOURCE_DIR "/model/demo/target");
    launch::ApiSetting setting;
    setting.model = "m";
    setting.tokenizer = &tokenizer;
    setting.fixed_seed = 1;
    setting.defaults.has_results = true;
    setting.defaults.stop_rules = {15, spec::Acceptance::gumbel};
    setting.limits.vocab_size = kVocabulary;
    setting.limits.max_positions = kPositions;
    setting.limits.encode = [](std::string_view text) {
        std::vector<spec::TokenId> ids;
        for (const char c : text)
            ids.push_back(static_cast<unsigned char>(c));
        return ids;
    };
    setting.limits.encode_chat = [encode = setting.limits.encode](const model::Conversation& conversation) {
        static const model::ChatTemplate chat("plain", "{{ messages }}{{ tools }}", {});
        return encode(chat.render(conversation));
    };
    return setting;
}

void ask(std::string_view call, std::string_view body) {
    launch::ServerFigures figures;
    int n_jobs = 0;
    const auto submit = [&](launch::ApiJob job) {
        ++n_jobs;
        fuzz::require(!job.requests.empty());
        for (const spec::Request& request : job.requests) {
            fuzz::require(!request.prompt.empty() && request.max_new_tokens >= 1 && request.num_samples >= 1);
            for (const spec::TokenId token : request.prompt)
                fuzz::require(token >= 0 && token < kVocabulary);
        }
        return true;
    };
    launch::Api api(setting(), figures, submit, [] {});
    const std::size_t blank = call.find(' ');
    const auto path = blank == std::string_view::npos ? "" : call.substr(blank + 1);
    const auto exchange = std::make_shared<Exchange>(
        launch::HttpRequest{std::string(call.substr(0, blank)), std::string(path), "", std::string(body)});
    api.handle(exchange);
    fuzz::require(exchange->n_answers + n_jobs == 1);
}

// A stream cannot take back the blanks before a call.
std::string without_blanks_around(const std::string& text) {
    constexpr const char* kBlanks = " \t\r\n";
    const std::size_t begin = text.find_first_not_of(kBlanks);
    return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// What a stream has sent when it ends is what the whole text is split into.
void split(std::string_view text) {
    const launch::MessageForm form = {.tool_names = {"f", "weather"}};
    const launch::MessageParts whole = launch::parts_of(text, form);
    launch::MessageStream stream(form);
    launch::MessageParts sum;
    const auto add = [&](const launch::MessageParts& parts) {
        sum.reasoning += parts.reasoning;
        sum.content += parts.content;
        sum.calls.insert(sum.calls.end(), parts.calls.begin(), parts.calls.end());
    };
    for (std::size_t at = 0, length = 1; at < text.size(); at += length, length = length % 7 + 1)
        add(stream.push(text.substr(at, length)));
    add(stream.finish());
    fuzz::require(sum.calls.size() == whole.calls.size());
    for (std::size_t i = 0; i < whole.calls.size(); ++i)
        fuzz::require(sum.calls[i].name == whole.calls[i].name && launch::Json::accept(whole.calls[i].arguments));
    fuzz::require(without_blanks_around(sum.reasoning) == without_blanks_around(whole.reasoning));
    fuzz::require(without_blanks_around(sum.content) == without_blanks_around(whole.content));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest = fuzz::text_of(data, size);
    const std::string_view call = fuzz::next_part(rest), body = fuzz::next_part(rest);
    ask(call, body);
    split(rest);
    return 0;
}
