// Requests and responses of OpenAI's API: see openai_batch.h.
#include "launch/io/openai_batch.h"

#include "model/files/json_object.h"
#include "model/files/utf8.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/format.h>
#include <span>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

using spec::ResponseFormat;

constexpr const char* kChatUrl = "/v1/chat/completions";
constexpr const char* kTextUrl = "/v1/completions";

// Fields that have another name in input lines.
struct Renamed {
    const char* ours;
    const char* theirs;
};
constexpr Renamed kRenamed[] = {{"max_new_tokens", "max_tokens"},
                                {"max_new_tokens", "max_completion_tokens"},
                                {"min_new_tokens", "min_tokens"},
                                {"num_samples", "n"}};

// Fields that change no text and name nothing in a response.
constexpr const char* kLabels[] = {"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"};

ResponseFormat response_of(const Json& object) {
    for (const auto& [name, value] : object.items())
        if (name != "custom_id" && name != "method" && name != "url" && name != "body")
            throw std::runtime_error("field " + name.substr(0, 40) + " is unknown beside body; put it into body");
    if (!object.contains("method") || object["method"] != "POST") throw std::runtime_error("method must be \"POST\"");
    const bool has_url = object.contains("url") && object["url"].is_string();
    if (const auto response = response_of_path(has_url ? object["url"].get<std::string>() : "")) return *response;
    throw std::runtime_error(fmt::format("url must be {} or {}", kChatUrl, kTextUrl));
}

// Turns a list of token ids into prompt_token_ids, and a list of one text into that text.
void read_prompt(Json& fields) {
    if (!fields.contains("prompt")) return;
    Json prompt = fields["prompt"];
    if (prompt.is_array() && prompt.size() == 1 && !prompt[0].is_number()) prompt = Json(prompt[0]);
    const bool is_ids = prompt.is_array() && std::ranges::all_of(prompt, [](const Json& id) { return id.is_number(); });
    if (!prompt.is_string() && !is_ids)
        throw std::runtime_error("prompt must be one text or one list of token ids; give each a line of its own");
    fields.erase("prompt");
    fields[is_ids ? "prompt_token_ids" : "prompt"] = std::move(prompt);
}

// Reads the log-probability fields of a chat: logprobs is true or false, and top_logprobs is the number.
void read_chat_logprobs(Json& fields) {
    const bool wanted = fields.contains("logprobs") && model::truth_of(fields["logprobs"], "logprobs");
    std::int64_t n = 0;
    if (fields.contains("top_logprobs"))
        n = model::integer_of(fields["top_logprobs"], "top_logprobs", 0, spec::Request::kMaxLogprobs);
    if (n > 0 && !wanted) throw std::runtime_error("top_logprobs has no effect without logprobs true");
    fields.erase("top_logprobs");
    if (fields.contains("logprobs")) fields["logprobs"] = wanted ? Json(n) : Json(false);
}

// Reads {"type": "json_schema", "json_schema": {"schema": ...}}, or "json_object".
void read_response_format(Json& fields) {
    if (!fields.contains("response_format")) return;
    const Json format = fields["response_format"];
    fields.erase("response_format");
    const std::string type =
        format.is_object() && format.contains("type") ? model::text_of(format["type"], "type") : "";
    if (type == "text") return;
    if (fields.contains("json_schema"))
        throw std::runtime_error("both response_format and json_schema are given; give one");
    if (type == "json_object") {
        fields["json_schema"] = {{"type", "object"}};
        return;
    }
    if (type != "json_schema")
        throw std::runtime_error("response_format must be an object of type text, json_object or json_schema");
    if (!format.contains("json_schema") || !format["json_schema"].is_object() ||
        !format["json_schema"].contains("schema"))
        throw std::runtime_error("json_schema of response_format must be an object with schema");
    fields["json_schema"] = format["json_schema"]["schema"];
}

// Arguments of earlier calls are JSON in a string, but templates read objects. A call without arguments gets none.
void read_tool_calls(Json& fields) {
    if (!fields.contains("messages") || !fields["messages"].is_array()) return;
    for (Json& message : fields["messages"]) {
        if (!message.is_object() || !message.contains("tool_calls") || !message["tool_calls"].is_array()) continue;
        for (Json& call : message["tool_calls"]) {
            if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
            Json& function = call["function"];
            Json& arguments = function["arguments"];
            const std::string text = arguments.is_string() ? arguments.get<std::string>() : "";
            if (!arguments.is_string() && !arguments.is_null()) continue;
            if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
                arguments = Json::object();
                continue;
            }
            try {
                arguments = parse_json_line(text);
                keep_large_integers(text, arguments);
            } catch (const std::exception& error) {
                throw std::runtime_error(std::string("arguments of a call in tool_calls: ") + error.what());
            }
        }
    }
}

// ---- responses ----

std::string hex(std::uint64_t number) {
    return fmt::format("{:016x}", number);
}

// Returns the parts that all responses share. `number` tells lines with the same id apart.
Json response_line(const std::string& id, std::uint64_t number, int status, Json body) {
    Json line;
    line["id"] = "batch_req_" + hex(hash_of_id(id, 2 * number));
    line["custom_id"] = Json::parse(id);
    line["response"] = {
        {"status_code", status}, {"request_id", hex(hash_of_id(id, 2 * number + 1))}, {"body", std::move(body)}};
    line["error"] = nullptr;
    return line;
}

struct TokenText {
    std::string text;
    Json bytes; // the token's bytes, perhaps a part of a character; null for tokens without text
};

TokenText text_of_token(const model::Tokenizer& tokenizer, spec::TokenId token) {
    if (token >= tokenizer.size()) return {};
    const std::string bytes = tokenizer.token_bytes(token);
    TokenText found;
    model::append_lossy(bytes, true, found.text);
    found.bytes = Json::array();
    for (const char byte : bytes)
        found.bytes.push_back(static_cast<unsigned char>(byte));
    return found;
}

// JSON has no infinity; servers write this number instead.
double finite(float log_prob) {
    constexpr float kLeast = -9999;
    return std::round(static_cast<double>(std::max(log_prob, kLeast)) * 1e6) / 1e6;
}

Json chat_token_json(const model::Tokenizer& tokenizer, const spec::TokenLogProb& token) {
    TokenText text = text_of_token(tokenizer, token.token);
    return {{"token", text.text}, {"logprob", finite(token.log_prob)}, {"bytes", std::move(text.bytes)}};
}

Json chat_logprobs(const model::Tokenizer& tokenizer, std::span<const spec::TokenLogProbs> logprobs) {
    Json content = Json::array();
    for (const spec::TokenLogProbs& of_token : logprobs) {
        content.push_back(chat_token_json(tokenizer, of_token.emitted));
        Json& top = content.back()["top_logprobs"] = Json::array();
        for (const spec::TokenLogProb& token : of_token.top)
            top.push_back(chat_token_json(tokenizer, token));
    }
    return {{"content", std::move(content)}};
}

std::int64_t n_code_points(std::string_view text) {
    return std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; });
}

// If tokens have the same text, top_logprobs has the more likely one. It always has the emitted token.
Json text_logprobs(const model::Tokenizer& tokenizer, std::span<const spec::TokenLogProbs> logprobs,
                   std::span<const spec::TokenId> first, std::int64_t& offset) {
    Json tokens = Json::array(), values = Json::array(), tops = Json::array(), offsets = Json::array();
    for (const spec::TokenId token : first) {
        tokens.push_back(text_of_token(tokenizer, token).text);
        values.push_back(nullptr);
        tops.push_back(nullptr);
        offsets.push_back(offset);
        offset += n_code_points(tokens.back().get_ref<const std::string&>());
    }
    for (const spec::TokenLogProbs& of_token : logprobs) {
        const std::string text = text_of_token(tokenizer, of_token.emitted.token).text;
        Json top = Json::object();
        for (const spec::TokenLogProb& token : of_token.top)
            if (const std::string name = text_of_token(tokenizer, token.token).text; !top.contains(name))
                top[name] = finite(token.log_prob);
        if (!top.contains(text)) top[text] = finite(of_token.emitted.log_prob);
        tokens.push_back(text);
        values.push_back(finite(of_token.emitted.log_prob));
        tops.push_back(std::move(top));
        offsets.push_back(offset);
        offset += n_code_points(text);
    }
    return {{"tokens", std::move(tokens)},
            {"token_logprobs", std::move(values)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(offsets)}};
}

} // namespace

Json openai_logprobs(ResponseFormat response, const model::Tokenizer& tokenizer,
                     std::span<const spec::TokenLogProbs> logprobs, std::span<const spec::TokenId> first,
                     std::int64_t& offset) {
    return response == ResponseFormat::chat_completion ? chat_logprobs(tokenizer, logprobs)
                                                       : text_logprobs(tokenizer, logprobs, first, offset);
}

namespace {

// Puts the prompt before the text, and its log-probabilities before those of the text.
spec::FoundText with_prompt(const spec::Request& request, spec::FoundText found,
                            const std::vector<spec::TokenLogProbs>& of_given, const model::Tokenizer& tokenizer) {
    std::vector<spec::TokenId> prompt = request.prompt;
    prompt.insert(prompt.end(), request.given.begin(), request.given.end());
    found.text = tokenizer.decode(prompt, true) + found.text;
    found.logprobs.insert(found.logprobs.begin(), of_given.begin(), of_given.end());
    return found;
}

Json choice_json(const spec::Request& request, const spec::FoundText& found, const model::Tokenizer& tokenizer,
                 std::size_t index) {
    const bool is_chat = request.response == ResponseFormat::chat_completion;
    Json choice = {{"index", index}};
    if (is_chat)
        choice["message"] = {{"role", "assistant"}, {"content", found.text}, {"refusal", nullptr}};
    else
        choice["text"] = found.text;
    choice["logprobs"] = nullptr;
    const std::span<const spec::TokenId> prompt = request.prompt;
    std::int64_t offset = 0;
    if (request.logprobs)
        choice["logprobs"] = openai_logprobs(request.response, tokenizer, found.logprobs,
                                             prompt.first(request.echo ? prompt.size() : 0), offset);
    choice["finish_reason"] = found.finish_reason == spec::FinishReason::length ? "length" : "stop";
    return choice;
}

} // namespace

bool is_openai_request(const Json& object) {
    return object.contains("custom_id") && object.contains("body");
}

std::optional<ResponseFormat> response_of_path(std::string_view path) {
    if (path == kChatUrl) return ResponseFormat::chat_completion;
    if (path == kTextUrl) return ResponseFormat::text_completion;
    return std::nullopt;
}

OpenAiRequest read_openai_request(const Json& object) {
    const ResponseFormat response = response_of(object);
    if (!object.contains("body") || !object["body"].is_object()) throw std::runtime_error("body must be an object");
    return read_openai_body(response, object["body"]);
}

OpenAiRequest read_openai_body(ResponseFormat response, const Json& body) {
    OpenAiRequest request;
    request.response = response;
    const bool is_chat = request.response == ResponseFormat::chat_completion;
    for (const auto& [name, value] : body.items()) {
        const auto renamed = std::ranges::find(kRenamed, name, &Renamed::theirs);
        const std::string ours = renamed == std::end(kRenamed) ? name : renamed->ours;
        if (value.is_null()) continue;
        if (request.fields.contains(ours))
            throw std::runtime_error(fmt::format("{} is given twice, by two names; give one", name.substr(0, 40)));
        request.fields[ours] = value;
    }
    if (request.fields.is_null()) request.fields = Json::object();
    if (request.fields.contains("model")) request.model = model::text_of(request.fields["model"], "model");
    request.fields.erase("model");
    for (const char* label : kLabels)
        request.fields.erase(label);
    const char* const of_other = is_chat ? "prompt" : "messages";
    if (request.fields.contains(of_other))
        throw std::runtime_error(fmt::format("{} is for {}", of_other, is_chat ? kTextUrl : kChatUrl));
    read_prompt(request.fields);
    read_response_format(request.fields);
    if (is_chat) read_chat_logprobs(request.fields);
    read_tool_calls(request.fields);
    return request;
}

std::string in_openai_names(std::string message) {
    const auto is_letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    for (const auto& [ours, theirs] : kRenamed) {
        const std::string_view name(ours);
        for (std::size_t at = message.find(name); at != std::string::npos; at = message.find(name, at + 1)) {
            const std::size_t end = at + name.size();
            if ((at == 0 || !is_letter(message[at - 1])) && (end == message.size() || !is_letter(message[end])))
                message.replace(at, name.size(), theirs);
        }
    }
    return message;
}

Json openai_body(const spec::Request& request, const spec::Completion& completion, const model::Tokenizer& tokenizer,
                 const std::string& target, std::int64_t created) {
    const bool is_chat = request.response == ResponseFormat::chat_completion;
    std::vector<spec::FoundText> texts = completion.found;
    if (texts.empty())
        texts.push_back({completion.tokens, completion.text, completion.finish_reason, 0, completion.logprobs});
    Json choices = Json::array();
    std::size_t n_new = 0;
    for (const spec::FoundText& text : texts) {
        const spec::FoundText shown =
            request.echo ? with_prompt(request, text, completion.logprobs_of_given, tokenizer) : text;
        choices.push_back(choice_json(request, shown, tokenizer, choices.size()));
        n_new += text.tokens.size();
    }
    const std::size_t n_prompt =
        request.source.empty() ? request.prompt.size() + request.given.size() : request.source.size();
    const Json usage = {{"prompt_tokens", n_prompt}, {"completion_tokens", n_new}, {"total_tokens", n_prompt + n_new}};
    return {{"id", (is_chat ? "chatcmpl-" : "cmpl-") + hex(hash_of_id(request.id))},
            {"object", is_chat ? "chat.completion" : "text_completion"},
            {"created", created},
            {"model", request.model.empty() ? target : request.model},
            {"choices", std::move(choices)},
            {"usage", usage}};
}

Json openai_error(const std::string& message, const std::string& type, const Json& code) {
    return {{"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", code}}}};
}

std::string openai_result_line(const spec::Request& request, const spec::Completion& completion,
                               const model::Tokenizer& tokenizer, const std::string& target, std::int64_t created) {
    return compact(response_line(request.id, 0, 200, openai_body(request, completion, tokenizer, target, created)));
}

std::string openai_error_line(const BadLine& bad) {
    constexpr int kBadRequest = 400;
    const std::string message = bad.line ? fmt::format("line {}: {}", *bad.line, bad.error) : bad.error;
    const auto number = static_cast<std::uint64_t>(bad.line.value_or(1));
    Json line = response_line(bad.id, number, kBadRequest, openai_error(message));
    line["error"] = {{"code", "invalid_request"}, {"message", message}};
    return compact(line);
}

} // namespace entrodraft::launch
