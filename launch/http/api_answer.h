// The answer to one request of the API. Results come from the replicas, prompt by prompt, and go to the client in
// OpenAI's form, whole or as events.
#pragma once

#include "launch/http/http_server.h"
#include "launch/http/message_parts.h"
#include "launch/io/json_line.h"
#include "model/text/tokenizer/tokenizer.h"
#include "spec/protocol/request.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

class ApiAnswer {
  public:
    // The prompt of a completion that begins with it.
    struct Echoed {
        std::string text;
        spec::TokenId first = -1; // its first token, which has no log-probability
    };
    struct Setting {
        spec::ResponseFormat response = spec::ResponseFormat::chat_completion;
        std::string id;    // "chatcmpl-..."
        std::string model; // as the client names it
        std::int64_t created = 0;
        std::size_t n_prompts = 1;
        int n_samples = 1;                           // of each prompt
        bool streams = false;                        // as events
        bool with_usage = false;                     // of a stream: its last event has the usage
        MessageForm form;                            // of a chat
        std::uint64_t seed = 0;                      // that the texts were drawn with
        const model::Tokenizer* tokenizer = nullptr; // outlives this object
        std::vector<Echoed> echoed;                  // [prompt]; empty: texts do not begin with the prompts
    };
    ApiAnswer(std::shared_ptr<HttpExchange> exchange, Setting setting);

    bool is_gone() const { return exchange_->is_gone(); }
    bool is_done() const { return n_open_ == 0; }
    // A piece of the text of a prompt's sample, of a stream, with the log-probabilities that spec::TextPiece has.
    void piece(std::size_t prompt, int sample, std::string_view text, const std::vector<spec::TokenLogProbs>& logprobs);
    // The body of the response to one prompt, as openai_body() makes it.
    void result(std::size_t prompt, Json body);
    // The whole request has failed.
    void failure(int status, const std::string& message);

  private:
    // How much of a text of a stream has come and is sent.
    struct Progress {
        MessageStream message;                         // of a chat
        std::string prompt = {};                       // that the text begins with, until it is sent
        std::vector<spec::TokenId> first = {};         // tokens without log-probability, until they are sent
        std::size_t n_bytes = 0;                       // of the text that have come
        std::vector<spec::TokenLogProbs> waiting = {}; // for an event that has their text
        std::vector<std::size_t> begins = {}; // of each of them: bytes of the text before the piece that it came with
        std::size_t n_tokens = 0;             // whose log-probabilities are sent
        std::int64_t offset = 0;              // code points of these tokens
    };

    std::size_t index_of(std::size_t prompt, std::size_t sample) const {
        return prompt * static_cast<std::size_t>(setting_.n_samples) + sample;
    }
    bool is_chat() const { return setting_.response == spec::ResponseFormat::chat_completion; }
    Json head(const char* object) const;
    void begin_events();
    void send(std::size_t index, Json fields, Json logprobs = nullptr, Json finish_reason = nullptr);
    void send_parts(std::size_t index, const MessageParts& parts);
    Json take_logprobs(Progress& text, std::size_t end) const;
    Json calls_json(std::size_t index, const std::vector<ToolCall>& calls) const;
    void split_message(Json& choice) const;
    void end_whole();
    void end_events();

    std::shared_ptr<HttpExchange> exchange_;
    Setting setting_;
    std::size_t n_open_;             // prompts without a result
    std::vector<Json> bodies_;       // [prompt]
    std::vector<Progress> progress_; // [index], of a stream
    bool has_begun_ = false;         // the stream
};

} // namespace entrodraft::launch
