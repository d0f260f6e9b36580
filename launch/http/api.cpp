// Routes, requests and refusals: see api.h.
#include "launch/http/api.h"

#include "launch/io/chat.h"
#include "launch/io/openai_batch.h"
#include "model/files/json_object.h"

#include <algorithm>
#include <climits>
#include <ctime>
#include <fmt/format.h>
#include <span>
#include <stdexcept>
#include <utility>

namespace entrodraft::launch {

namespace {

// A request that is refused with a status other than 400.
struct Refusal final : std::runtime_error {
    Refusal(int its_status, const std::string& message) : std::runtime_error(message), status(its_status) {}
    int status;
};

constexpr const char* kEnding = "the server is ending and takes no more requests";

// Paths that clients ask for and that this server does not have.
constexpr std::pair<const char*, const char*> kOtherPaths[] = {
    {"/v1/responses", "there are no stored conversations here; use /v1/chat/completions"},
    {"/v1/embeddings", "the model writes text and has no embeddings to give; use a server of embeddings"},
};

// Two keys are compared in a time that does not depend on where they differ.
bool is_same_key(const std::string& one, const std::string& other) {
    if (one.size() != other.size()) return false;
    unsigned difference = 0;
    for (std::size_t i = 0; i < one.size(); ++i)
        difference |= static_cast<unsigned>(one[i] ^ other[i]);
    return difference == 0;
}

// Takes a field out of the body. Returns null if it is not there.
Json take_field(Json& body, const char* name) {
    const auto found = body.find(name);
    if (found == body.end()) return {};
    Json value = std::move(*found);
    body.erase(found);
    return value;
}

bool take_truth(Json& body, const char* name) {
    const Json value = take_field(body, name);
    return !value.is_null() && model::truth_of(value, name);
}

// Takes the prompts out of a completion's body: one, or each of a list of texts or of lists of token ids. Null: there
// is none.
std::vector<Json> take_prompts(Json& body) {
    Json prompt = take_field(body, "prompt");
    const bool is_list = prompt.is_array() && !prompt.empty() && !prompt[0].is_number();
    if (!is_list) return {std::move(prompt)};
    constexpr std::size_t kMost = 1024;
    if (prompt.size() > kMost) throw std::runtime_error(fmt::format("prompt lists more than {} prompts", kMost));
    return {prompt.begin(), prompt.end()};
}

// The fields of a body that say how its answer is sent.
struct Sending {
    bool streams = false;
    bool with_usage = false;
    bool has_seed = false;
    bool echo = false;
};

Sending take_sending(Json& body) {
    Sending sending;
    sending.streams = take_truth(body, "stream");
    Json options = take_field(body, "stream_options");
    if (!options.is_null()) {
        if (!options.is_object()) throw std::runtime_error("stream_options must be an object");
        if (!sending.streams) throw std::runtime_error("stream_options has no effect without stream true");
        sending.with_usage = take_truth(options, "include_usage");
        for (const auto& [name, value] : options.items())
            throw std::runtime_error("field " + name.substr(0, 40) + " of stream_options is unknown; leave it out");
    }
    sending.echo = take_truth(body, "echo");
    sending.has_seed = body.contains("seed") && !body["seed"].is_null();
    return sending;
}

// Returns the schema of a call of the tool: its name and arguments.
Json schema_of_call(const Json& function) {
    return {{"type", "object"},
            {"properties",
             {{"name", {{"const", function["name"]}}},
              {"arguments", function.value("parameters", Json({{"type", "object"}}))}}},
            {"required", {"name", "arguments"}},
            {"additionalProperties", false}};
}

// Takes what a chat's body says of tools. Where a call is required, the text is held to the schema of one.
MessageForm take_tools(Json& body) {
    MessageForm form;
    const Json choice = take_field(body, "tool_choice"), parallel = take_field(body, "parallel_tool_calls");
    form.one_call = !parallel.is_null() && !model::truth_of(parallel, "parallel_tool_calls");
    if (!body.contains("tools") || !body["tools"].is_array() || body["tools"].empty()) {
        if (!choice.is_null() && choice != "none" && choice != "auto")
            throw std::runtime_error("tool_choice has no effect without tools");
        return form;
    }
    if (choice == "none") {
        body.erase("tools");
        return form;
    }
    Json schemas = Json::array();
    for (const Json& tool : body["tools"]) {
        const Json function = tool.is_object() ? tool.value("function", Json()) : Json();
        if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
            throw std::runtime_error("each of tools must be an object with function, which has a name");
        form.tool_names.push_back(function["name"].get<std::string>());
        schemas.push_back(schema_of_call(function));
    }
    if (choice.is_null() || choice == "auto") return form;
    if (choice.is_object()) { // {"type": "function", "function": {"name"}}
        const Json function = choice.value("function", Json::object());
        const auto named = std::ranges::find(form.tool_names, function.value("name", ""));
        if (named == form.tool_names.end()) throw std::runtime_error("tool_choice names none of tools");
        schemas = Json::array({schemas[static_cast<std::size_t>(named - form.tool_names.begin())]});
    } else if (choice != "required") {
        throw std::runtime_error("tool_choice must be none, auto, required or name a function of tools");
    }
    for (const char* other : {"response_format", "json_schema", "regex", "grammar"})
        if (body.contains(other))
            throw std::runtime_error(fmt::format("{} does not go with a tool_choice that requires a call", other));
    body["json_schema"] = schemas.size() == 1 ? schemas[0] : Json({{"anyOf", schemas}});
    return form;
}

// The response begins with the prompt. With log-probabilities, the tokens after the first are read like a text.
void begin_with_prompt(spec::Request& request) {
    request.echo = true;
    if (!request.logprobs) return;
    const spec::LogitProcessing& of = request.processing;
    if (of.presence_penalty != 0 || of.frequency_penalty != 0 || of.min_new_tokens > 0 || of.constraint.is_on())
        throw std::runtime_error("echo with logprobs does not go with presence_penalty, frequency_penalty, min_tokens "
                                 "and constraints; leave them out");
    if (!request.source.empty()) throw std::runtime_error("echo with logprobs is not for models with an encoder");
    request.given.assign(request.prompt.begin() + 1, request.prompt.end());
    request.prompt.resize(1);
}

} // namespace

Api::Api(ApiSetting setting, ServerFigures& figures, Submit submit, std::function<void()> drain)
    : setting_(std::move(setting)), figures_(figures), submit_(std::move(submit)), drain_(std::move(drain)),
      random_(std::random_device{}()), run_(fmt::format("{:08x}", random_() & 0xffffffffU)),
      begun_(std::time(nullptr)) {}

bool Api::is_allowed(const HttpRequest& request) const {
    if (setting_.api_keys.empty() || request.path == "/health") return true;
    constexpr std::string_view kScheme = "Bearer ";
    if (!request.authorization.starts_with(kScheme)) return false;
    const std::string given = request.authorization.substr(kScheme.size());
    return std::ranges::any_of(setting_.api_keys, [&](const std::string& key) { return is_same_key(key, given); });
}

void Api::refuse(HttpExchange& exchange, int status, const std::string& message) {
    figures_.note_refused(status);
    const char* type = status == 401   ? "authentication_error"
                       : status == 429 ? "rate_limit_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";
    exchange.answer(status, compact(openai_error(message, type, status)));
}

void Api::handle(std::shared_ptr<HttpExchange> exchange) {
    const HttpRequest& request = exchange->request();
    if (!is_allowed(request))
        return refuse(*exchange, 401, "the key is missing or wrong; give it as Authorization: Bearer KEY");
    const auto answer = [&](const Json& body) { exchange->answer(200, compact(body)); };
    const auto body = [&] { return parse_json_line(request.body); };
    const std::string call = request.method + " " + request.path;
    try {
        if (const auto response = response_of_path(request.path); response && request.method == "POST")
            return complete(exchange, *response);
        if (call == "GET /v1/models") return answer(models());
        if (call == "GET /health") return health(*exchange);
        if (call == "GET /version") return answer({{"version", setting_.version}});
        if (call == "GET /metrics")
            return exchange->answer(200, figures_.prometheus(setting_.model), "text/plain; version=0.0.4");
        if (call == "POST /tokenize") return answer(tokenize(body()));
        if (call == "POST /detokenize") return answer(detokenize(body()));
        if (call == "GET /tokenizer_info") return answer(tokenizer_info());
        if (call == "POST /drain") {
            if (setting_.api_keys.empty()) throw Refusal(403, "draining needs a server with --api-key-file");
            drain_();
            return answer({{"status", "draining"}});
        }
        for (const auto& [path, reason] : kOtherPaths)
            if (request.path == path) throw Refusal(404, fmt::format("{} is not served: {}", path, reason));
        constexpr const char* kPaths = "GET /v1/models, /health, /version, /metrics and /tokenizer_info, POST "
                                       "/v1/chat/completions, /v1/completions, /tokenize and /detokenize";
        throw Refusal(404, fmt::format("{} is not served; there are {}", call.substr(0, 80), kPaths));
    } catch (const Refusal& refusal) {
        refuse(*exchange, refusal.status, refusal.what());
    } catch (const std::exception& error) {
        refuse(*exchange, 400, error.what());
    }
}

void Api::complete(const std::shared_ptr<HttpExchange>& exchange, spec::ResponseFormat response) {
    if (figures_.is_draining()) throw Refusal(503, kEnding);
    const std::string& text = exchange->request().body;
    Json body = parse_json_line(text);
    keep_large_integers(text, body, kTemplateFields); // before a field is taken out: it counts the numbers of the text
    const Sending sending = take_sending(body);
    const bool is_chat = response == spec::ResponseFormat::chat_completion;
    MessageForm form;
    if (is_chat) form = take_tools(body);
    if (is_chat && sending.echo) throw std::runtime_error("echo is for /v1/completions");
    if (const Json model = body.value("model", Json()); model.is_string() && model != setting_.model)
        throw Refusal(404, fmt::format("model {} is not served; this server has {}",
                                       model.get<std::string>().substr(0, 200), setting_.model));
    ApiJob job;
    std::uint64_t seed = setting_.fixed_seed.value_or(random_() >> 11); // fits the numbers of every JSON reader
    const std::string id = fmt::format("{}{:06x}", run_, next_id_++);
    std::vector<ApiAnswer::Echoed> echoed;
    for (Json& prompt : take_prompts(body)) {
        Json one = body;
        if (!prompt.is_null()) one["prompt"] = std::move(prompt);
        InputItem item = parse_openai_body(response, one, setting_.defaults, setting_.limits);
        if (const auto* bad = std::get_if<BadLine>(&item)) throw std::runtime_error(bad->error);
        spec::Request& request = job.requests.emplace_back(std::move(std::get<spec::Request>(item)));
        request.id = compact(Json(fmt::format("{}-{}", id, job.requests.size())));
        request.streams = sending.streams;
        if (sending.echo) echoed.push_back({setting_.tokenizer->decode(request.prompt, true), request.prompt.front()});
        if (sending.echo) begin_with_prompt(request);
        if (sending.has_seed) seed = request.sampling.seed;
        request.sampling.seed = seed;
    }
    form.begins_in_reasoning = is_chat && ends_in_reasoning(job.requests.front().prompt);
    job.answer = std::make_shared<ApiAnswer>(
        exchange,
        ApiAnswer::Setting{response, (is_chat ? "chatcmpl-" : "cmpl-") + id, setting_.model, std::time(nullptr),
                           job.requests.size(), job.requests.front().num_samples, sending.streams, sending.with_usage,
                           form, seed, setting_.tokenizer, std::move(echoed)});
    if (submit_(std::move(job))) return;
    throw figures_.is_draining() ? Refusal(503, kEnding) : Refusal(429, "the queue is full; try again later");
}

// Returns whether the template has begun the reasoning for the model.
bool Api::ends_in_reasoning(const std::vector<spec::TokenId>& prompt) const {
    constexpr std::size_t kTokens = 8; // of which the mark has a few
    const std::size_t n = std::min(kTokens, prompt.size());
    std::string end = setting_.tokenizer->decode(std::span(prompt).last(n), false);
    end.erase(end.find_last_not_of(" \t\r\n") + 1);
    return end.ends_with("<think>");
}

void Api::health(HttpExchange& exchange) const {
    const double seconds = figures_.seconds_since_progress();
    const bool is_stuck = seconds > setting_.stuck_seconds;
    exchange.answer(is_stuck ? 503 : 200, compact({{"status", is_stuck                 ? "stuck"
                                                              : figures_.is_draining() ? "draining"
                                                                                       : "ok"},
                                                   {"seconds_since_progress", seconds}}));
}

Json Api::models() const {
    return {{"object", "list"},
            {"data", Json::array({{{"id", setting_.model},
                                   {"object", "model"},
                                   {"created", begun_},
                                   {"owned_by", "entrodraft"},
                                   {"max_model_len", setting_.limits.max_positions}}})}};
}

// As vLLM has it: a text, or messages, which become the prompt that the model reads.
Json Api::tokenize(const Json& body) const {
    std::vector<model::TokenId> ids;
    if (body.contains("messages")) {
        ids = setting_.limits.encode_chat(conversation_of(body, setting_.defaults.system));
    } else {
        const Json text = body.value("prompt", Json());
        if (!text.is_string()) throw std::runtime_error("prompt, a text, or messages is missing");
        const Json special = body.value("add_special_tokens", Json(true));
        ids = setting_.tokenizer->encode(text.get<std::string>(), model::truth_of(special, "add_special_tokens"));
    }
    return {{"count", ids.size()}, {"max_model_len", setting_.limits.max_positions}, {"tokens", ids}};
}

Json Api::detokenize(const Json& body) const {
    const Json tokens = body.value("tokens", Json());
    std::vector<model::TokenId> ids;
    for (const Json& id : model::array_of(tokens, "tokens", "an array of token ids"))
        ids.push_back(static_cast<model::TokenId>(model::integer_of(id, "tokens", 0, INT_MAX)));
    return {{"prompt", setting_.tokenizer->decode(ids, false)}};
}

Json Api::tokenizer_info() const {
    const auto spelled = [&](const std::vector<model::TokenId>& ids) {
        return ids.empty() ? Json() : Json(setting_.tokenizer->token(ids.front()));
    };
    return {{"tokenizer_class", setting_.tokenizer->kind()},
            {"vocab_size", setting_.limits.vocab_size},
            {"eos_token", spelled(setting_.eos_tokens)},
            {"bos_token", nullptr},
            {"pad_token", nullptr}};
}

} // namespace entrodraft::launch
