// The paths of the HTTP API, in OpenAI's dialect. It reads requests, refuses invalid ones, and answers those that need
// no model. Requests for texts go to a queue. Runs on the thread of the HTTP server.
#pragma once

#include "launch/cli/options.h"
#include "launch/http/api_answer.h"
#include "launch/http/http_server.h"
#include "launch/http/server_figures.h"
#include "launch/io/requests.h"
#include "model/text/tokenizer/tokenizer.h"

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace entrodraft::launch {

// A request for texts that has been read.
struct ApiJob {
    std::vector<spec::Request> requests; // one for each prompt
    std::shared_ptr<ApiAnswer> answer;
};

struct ApiSetting {
    std::string model;                 // as /v1/models names it
    std::vector<std::string> api_keys; // empty: none is asked for
    RequestDefaults defaults;
    PromptLimits limits;
    const model::Tokenizer* tokenizer = nullptr;
    std::vector<model::TokenId> eos_tokens;
    std::string version;
    std::optional<std::uint64_t> fixed_seed; // of requests without one; none: each gets another
    double stuck_seconds = 30;               // without progress, after which /health says 503
};

class Api {
  public:
    // Takes a job, or returns false if its queue is full. Called on the server's thread.
    using Submit = std::function<bool(ApiJob)>;
    // `drain` begins the end of the server. `figures` outlives this object.
    Api(ApiSetting setting, ServerFigures& figures, Submit submit, std::function<void()> drain);

    void handle(std::shared_ptr<HttpExchange> exchange);

  private:
    bool is_allowed(const HttpRequest& request) const;
    void refuse(HttpExchange& exchange, int status, const std::string& message);
    void complete(const std::shared_ptr<HttpExchange>& exchange, spec::ResponseFormat response);
    bool ends_in_reasoning(const std::vector<spec::TokenId>& prompt) const;
    void health(HttpExchange& exchange) const;
    Json models() const;
    Json tokenize(const Json& body) const;
    Json detokenize(const Json& body) const;
    Json tokenizer_info() const;

    ApiSetting setting_;
    ServerFigures& figures_;
    Submit submit_;
    std::function<void()> drain_;
    std::mt19937_64 random_; // seeds of requests without one
    std::uint64_t next_id_ = 0;
    std::string run_;        // tells this server's ids from those of others
    std::int64_t begun_ = 0; // seconds since 1970
};

} // namespace entrodraft::launch
