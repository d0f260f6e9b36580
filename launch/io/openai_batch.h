// Lines of the batch files of OpenAI's API, which vLLM's run-batch also reads. Requests are read like input lines, and
// results are written as the API's responses.
//
// A request is {"custom_id", "method": "POST", "url", "body"}, for /v1/chat/completions or /v1/completions. Fields of a
// body that have another name here are renamed. The body is then read like every line (request_fields.cpp). Called by
// request_fields.cpp, results.cpp and the request tracker.
#pragma once

#include "launch/io/json_line.h"
#include "launch/io/requests.h"
#include "model/text/tokenizer/tokenizer.h"
#include "spec/protocol/request.h"

#include <string>

namespace entrodraft::launch {

bool is_openai_request(const Json& object);

struct OpenAiRequest {
    spec::ResponseFormat response = spec::ResponseFormat::chat_completion;
    std::string model; // name in the body; empty: none
    Json fields;       // the body's fields that are not null, by the names of input lines
};
// Throws std::runtime_error that says what is wrong.
OpenAiRequest read_openai_request(const Json& object);
// Renames the fields of input lines in a message to the fields of a body.
std::string in_openai_names(std::string message);

// Return the line of a served request, written at `created` (seconds since 1970), and the line of a failed one.
// `target` names the model if the body does not. No newline.
std::string openai_result_line(const spec::Request& request, const spec::Completion& completion,
                               const model::Tokenizer& tokenizer, const std::string& target, std::int64_t created);
std::string openai_error_line(const BadLine& bad);

} // namespace entrodraft::launch
