// Responses and chunks of OpenAI's API: see api_answer.h.
#include "launch/http/api_answer.h"

#include "launch/io/openai_batch.h"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>
#include <span>
#include <utility>

namespace entrodraft::launch {

ApiAnswer::ApiAnswer(std::shared_ptr<HttpExchange> exchange, Setting setting)
    : exchange_(std::move(exchange)), setting_(std::move(setting)), n_open_(setting_.n_prompts),
      bodies_(setting_.n_prompts) {}

Json ApiAnswer::head(const char* object) const {
    return {{"id", setting_.id}, {"object", object}, {"created", setting_.created}, {"model", setting_.model}};
}

// The first event of each text of a chat names the role.
void ApiAnswer::begin_events() {
    if (std::exchange(has_begun_, true)) return;
    exchange_->begin_events();
    for (std::size_t i = 0; i < index_of(setting_.n_prompts, 0); ++i) {
        Progress& text = progress_.emplace_back(Progress{.message = MessageStream(setting_.form)});
        if (is_chat()) send(i, {{"role", "assistant"}, {"content", ""}});
        if (setting_.echoed.empty()) continue;
        const Echoed& prompt = setting_.echoed[i / static_cast<std::size_t>(setting_.n_samples)];
        text.prompt = prompt.text;
        text.first = {prompt.first};
    }
}

// `fields`: the delta of a chat, or the text.
void ApiAnswer::send(std::size_t index, Json fields, Json logprobs, Json finish_reason) {
    Json choice = {{"index", index}};
    choice[is_chat() ? "delta" : "text"] = std::move(fields);
    choice["logprobs"] = std::move(logprobs);
    choice["finish_reason"] = std::move(finish_reason);
    Json chunk = head(is_chat() ? "chat.completion.chunk" : "text_completion");
    chunk["choices"] = Json::array({std::move(choice)});
    if (setting_.with_usage) chunk["usage"] = nullptr;
    exchange_->event(compact(chunk));
}

void ApiAnswer::send_parts(std::size_t index, const MessageParts& parts) {
    if (parts.reasoning.empty() && parts.content.empty() && parts.calls.empty()) return;
    Progress& text = progress_[index];
    Json logprobs = take_logprobs(text, text.n_bytes - text.message.n_held()); // for the first event
    if (!parts.reasoning.empty())
        send(index, {{"reasoning_content", parts.reasoning}}, std::exchange(logprobs, nullptr));
    if (!parts.content.empty()) send(index, {{"content", parts.content}}, std::exchange(logprobs, nullptr));
    for (const Json& call : calls_json(index, parts.calls))
        send(index, {{"tool_calls", Json::array({call})}}, std::exchange(logprobs, nullptr));
}

// Returns the log-probabilities of tokens that came with a piece which begins before byte `end` of the text, and that
// no event has had. Null if there are none.
Json ApiAnswer::take_logprobs(Progress& text, std::size_t end) const {
    const auto n = std::ranges::lower_bound(text.begins, end) - text.begins.begin();
    if (n == 0) return nullptr;
    Json logprobs =
        openai_logprobs(setting_.response, *setting_.tokenizer,
                        std::span(text.waiting).first(static_cast<std::size_t>(n)), text.first, text.offset);
    text.n_tokens += text.first.size() + static_cast<std::size_t>(n);
    text.first.clear();
    text.waiting.erase(text.waiting.begin(), text.waiting.begin() + n);
    text.begins.erase(text.begins.begin(), text.begins.begin() + n);
    return logprobs;
}

Json ApiAnswer::calls_json(std::size_t index, const std::vector<ToolCall>& calls) const {
    Json list = Json::array();
    for (const ToolCall& call : calls)
        list.push_back(
            {{"index", list.size()},
             {"id", fmt::format("call_{}_{}_{}", setting_.id.substr(setting_.id.find('-') + 1), index, list.size())},
             {"type", "function"},
             {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    return list;
}

void ApiAnswer::piece(std::size_t prompt, int sample, std::string_view text,
                      const std::vector<spec::TokenLogProbs>& logprobs) {
    if (is_done()) return; // another prompt has failed
    begin_events();
    const std::size_t index = index_of(prompt, static_cast<std::size_t>(sample));
    Progress& progress = progress_[index];
    progress.waiting.insert(progress.waiting.end(), logprobs.begin(), logprobs.end());
    progress.begins.insert(progress.begins.end(), logprobs.size(), progress.n_bytes);
    progress.n_bytes += text.size();
    if (is_chat()) return send_parts(index, progress.message.push(text));
    send(index, std::exchange(progress.prompt, "").append(text), take_logprobs(progress, progress.n_bytes));
}

// Gives the message its reasoning and its calls.
void ApiAnswer::split_message(Json& choice) const {
    Json& message = choice["message"];
    MessageParts parts = parts_of(message["content"].get_ref<const std::string&>(), setting_.form);
    message["content"] = parts.content.empty() && !parts.calls.empty() ? Json() : Json(parts.content);
    if (!parts.reasoning.empty()) message["reasoning_content"] = parts.reasoning;
    if (parts.calls.empty()) return;
    message["tool_calls"] = calls_json(choice["index"].get<std::size_t>(), parts.calls);
    for (Json& call : message["tool_calls"])
        call.erase("index"); // it is for streams
    choice["finish_reason"] = "tool_calls";
}

namespace {

// Returns what follows the first n tokens; null if that is nothing.
Json logprobs_after(Json logprobs, std::size_t n) {
    for (Json& list : logprobs)
        list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(n));
    return logprobs.is_null() || logprobs.front().empty() ? Json() : logprobs;
}

} // namespace

// The last event of a text has the log-probabilities that no event before it has: of tokens without text at the end,
// such as the one that ends the text, and of those that a stop string was in.
void ApiAnswer::result(std::size_t prompt, Json body) {
    if (is_done()) return;
    if (setting_.streams) begin_events();
    for (Json& choice : body["choices"]) {
        const std::size_t index = index_of(prompt, choice["index"].get<std::size_t>());
        choice["index"] = index;
        if (is_chat()) split_message(choice);
        if (!setting_.streams) continue;
        Progress& text = progress_[index];
        if (is_chat()) send_parts(index, text.message.finish());
        send(index, is_chat() ? Json::object() : Json(text.prompt), logprobs_after(choice["logprobs"], text.n_tokens),
             choice["finish_reason"]);
    }
    bodies_[prompt] = std::move(body);
    if (--n_open_ > 0) return;
    setting_.streams ? end_events() : end_whole();
}

namespace {

// Returns the usage of all prompts together.
Json usage_of(const std::vector<Json>& bodies) {
    Json all = Json::object();
    for (const Json& body : bodies)
        for (const auto& [name, n] : body["usage"].items())
            all[name] = all.value(name, std::int64_t{0}) + n.get<std::int64_t>();
    return all;
}

} // namespace

void ApiAnswer::end_whole() {
    Json whole = head(is_chat() ? "chat.completion" : "text_completion");
    whole["choices"] = Json::array();
    for (Json& body : bodies_)
        for (Json& choice : body["choices"])
            whole["choices"].push_back(std::move(choice));
    whole["usage"] = usage_of(bodies_);
    whole["seed"] = setting_.seed;
    whole["metrics"] = bodies_.size() == 1 ? bodies_[0]["metrics"] : Json();
    exchange_->answer(200, compact(whole));
}

void ApiAnswer::end_events() {
    if (setting_.with_usage) {
        Json last = head(is_chat() ? "chat.completion.chunk" : "text_completion");
        last["choices"] = Json::array();
        last["usage"] = usage_of(bodies_);
        last["seed"] = setting_.seed;
        last["metrics"] = bodies_.size() == 1 ? bodies_[0]["metrics"] : Json();
        exchange_->event(compact(last));
    }
    exchange_->event("[DONE]");
    exchange_->end_events();
}

void ApiAnswer::failure(int status, const std::string& message) {
    if (is_done()) return;
    n_open_ = 0;
    const Json error = openai_error(message, status < 500 ? "invalid_request_error" : "server_error", status);
    if (!has_begun_) return exchange_->answer(status, compact(error));
    exchange_->event(compact(error));
    exchange_->end_events();
}

} // namespace entrodraft::launch
