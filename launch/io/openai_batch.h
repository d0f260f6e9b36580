// Reads bodies of OpenAI's API, as the server takes them, and lines of its batch files, which vLLM's run-batch also
// reads. Requests are read like input lines, and results are written as the API's responses.
//
// A line is {"custom_id", "method": "POST", "url", "body"}, for /v1/chat/completions or /v1/completions. Fields of a
// body that have another name here are renamed. Then the body is read like every line (request_fields.cpp). Called by
// request_fields.cpp, results.cpp, generate and serve.
#pragma once

#include "launch/io/json_line.h"
#include "launch/io/requests.h"
#include "model/text/tokenizer/tokenizer.h"
#include "spec/protocol/request.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace entrodraft::launch {

bool is_openai_request(const Json& object);
// Returns the response that a path of the API has; nothing for other paths.
std::optional<spec::ResponseFormat> response_of_path(std::string_view path);

struct OpenAiRequest {
    spec::ResponseFormat response = spec::ResponseFormat::chat_completion;
    std::string model; // name in the body; empty: none
    Json fields;       // the body's fields that are not null, by the names of input lines
};
// Read a line and a body. Throw std::runtime_error that says what is wrong.
OpenAiRequest read_openai_request(const Json& object);
OpenAiRequest read_openai_body(spec::ResponseFormat response, const Json& body);
// Renames the fields of input lines in a message to the fields of a body.
std::string in_openai_names(std::string message);

// Returns the body of a response to a served request, written at `created` (seconds since 1970). `target` names the
// model if the request does not.
Json openai_body(const spec::Request& request, const spec::Completion& completion, const model::Tokenizer& tokenizer,
                 const std::string& target, std::int64_t created);
// Returns the log-probabilities of tokens, as the choice of a response has them. `first`: tokens before them that have
// none, of a completion. `offset`: code points of the text before all of these; at the end, before what follows them.
Json openai_logprobs(spec::ResponseFormat response, const model::Tokenizer& tokenizer,
                     std::span<const spec::TokenLogProbs> logprobs, std::span<const spec::TokenId> first,
                     std::int64_t& offset);
// Returns {"error": {"message", "type", "param", "code"}}.
Json openai_error(const std::string& message, const std::string& type = "invalid_request_error",
                  const Json& code = "invalid_request");
// Return the line with such a body, and the line of a failed request. No newline.
std::string openai_result_line(const spec::Request& request, const spec::Completion& completion,
                               const model::Tokenizer& tokenizer, const std::string& target, std::int64_t created);
std::string openai_error_line(const BadLine& bad);

} // namespace entrodraft::launch
