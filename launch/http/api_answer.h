// The answer to one request of the API. Results come from the replicas, prompt by prompt, and go to the client in
// OpenAI's form, whole or as events.
#pragma once

#include "launch/http/http_server.h"
#include "launch/http/message_parts.h"
#include "launch/io/json_line.h"
#include "spec/protocol/request.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

class ApiAnswer {
  public:
    struct Setting {
        spec::ResponseFormat response = spec::ResponseFormat::chat_completion;
        std::string id;    // "chatcmpl-..."
        std::string model; // as the client names it
        std::int64_t created = 0;
        std::size_t n_prompts = 1;
        int n_samples = 1;       // of each prompt
        bool streams = false;    // as events
        bool with_usage = false; // of a stream: its last event has the usage
        MessageForm form;        // of a chat
        std::uint64_t seed = 0;  // that the texts were drawn with
    };
    ApiAnswer(std::shared_ptr<HttpExchange> exchange, Setting setting);

    bool is_gone() const { return exchange_->is_gone(); }
    bool is_done() const { return n_open_ == 0; }
    // A piece of the text of a prompt's sample, of a stream.
    void piece(std::size_t prompt, int sample, std::string_view text);
    // The body of the response to one prompt, as openai_body() makes it.
    void result(std::size_t prompt, Json body);
    // The whole request has failed.
    void failure(int status, const std::string& message);

  private:
    std::size_t index_of(std::size_t prompt, std::size_t sample) const {
        return prompt * static_cast<std::size_t>(setting_.n_samples) + sample;
    }
    bool is_chat() const { return setting_.response == spec::ResponseFormat::chat_completion; }
    Json head(const char* object) const;
    void begin_events();
    void send(std::size_t index, Json fields, Json logprobs = nullptr, Json finish_reason = nullptr);
    void send_parts(std::size_t index, const MessageParts& parts);
    Json calls_json(std::size_t index, const std::vector<ToolCall>& calls) const;
    void split_message(Json& choice) const;
    void end_whole();
    void end_events();

    std::shared_ptr<HttpExchange> exchange_;
    Setting setting_;
    std::size_t n_open_;                 // prompts without a result
    std::vector<Json> bodies_;           // [prompt]
    std::vector<MessageStream> streams_; // [index], of a stream of a chat
    bool has_begun_ = false;             // the stream
};

} // namespace entrodraft::launch
