// Lines of the batch files of OpenAI's API, as vLLM's run-batch takes them too: requests read as if they were input
// lines, and results written as its responses.
//
// A request is {"custom_id", "method": "POST", "url", "body"}, of /v1/chat/completions or /v1/completions. What is
// called otherwise in a body is renamed here, and then goes the way of every line (request_fields.cpp), which knows
// the fields. Called by request_fields.cpp, results.cpp and the request tracker.
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
    std::string model; // that the body names; empty: none
    Json fields;       // of the body that say something, by the names of input lines
};
// Throws std::runtime_error with what is wrong.
OpenAiRequest read_openai_request(const Json& object);
// A message about fields of input lines, in the names of a body.
std::string in_openai_names(std::string message);

// The lines of a served request, written at `created` (seconds since 1970), and of one that was not. `target` names the
// model where the body does not. No newline.
std::string openai_result_line(const spec::Request& request, const spec::Completion& completion,
                               const model::Tokenizer& tokenizer, const std::string& target, std::int64_t created);
std::string openai_error_line(const BadLine& bad);

} // namespace entrodraft::launch
