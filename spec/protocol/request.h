// Request and result of one sequence. Plain data.
#pragma once

#include "spec/protocol/stats.h"
#include "spec/verify/logit_processing.h"
#include "spec/verify/sampling.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::spec {

// When a beam search ends, as in transformers. `yes`: once there are num_beams finished texts. `no`: if then also no
// running beam beats them at its present length. `never`: if then also no running beam can beat them at any length.
enum class EarlyStopping : std::uint8_t { no, yes, never };
std::string to_string(EarlyStopping early_stopping); // "false", "true", "never"

struct BeamOptions {
    static constexpr int kMaxBeams = 32;
    int num_beams = 0;         // 0: no beam search
    double length_penalty = 1; // a finished text's score is its log-probability / length^length_penalty
    EarlyStopping early_stopping = EarlyStopping::no;
    int num_return_sequences = 1;

    int forced_tokens = 0; // last tokens of the prompt that count in the length penalty: a forced BOS
    bool is_on() const { return num_beams > 0; }
};
// Returns why the options are invalid, with the field's name; empty if they are valid.
std::string why_invalid(const BeamOptions& options);

// A token and its log-probability.
struct TokenLogProb {
    TokenId token = -1;
    float log_prob = 0;
};

// Log-probabilities at a new token: the log-softmax of the target's logits in the row that decides the token, before
// penalties, bans, temperature and filters.
struct TokenLogProbs {
    TokenLogProb emitted;
    std::vector<TokenLogProb> top; // the most likely tokens, of equal ones the lower token first
};

// A piece of a text that is handed out as it grows. Its views are valid during the call that hands it out.
struct TextPiece {
    std::string_view text;
    // If the request asks for them, of the tokens whose text begins in this piece, and of tokens without text before
    // them.
    std::span<const TokenLogProbs> logprobs = {};
    std::span<const TokenLogProbs> logprobs_of_given = {}; // of Request::given; in the first piece
};

// The form of a result's line: our own, or a response of OpenAI's API.
enum class ResponseFormat : std::uint8_t { line, text_completion, chat_completion };

struct Request {
    std::string id = "null";        // compact JSON
    std::uint64_t sequence_key = 0; // hash of id; 0 for a prompt from the command line
    std::vector<TokenId> prompt;
    // Tokens between prompt and text that are read like a text, so that they have log-probabilities. They are no new
    // tokens. Needs `logprobs`; not for beams. Only the coordinator knows them.
    std::vector<TokenId> given;
    std::vector<TokenId> source; // the encoder of an encoder-decoder model reads it; its decoder reads the prompt
    static constexpr int kDefaultNewTokens = 128;
    int max_new_tokens = kDefaultNewTokens;
    SamplingOptions sampling;
    LogitProcessing processing;
    BeamOptions beams;
    int num_samples = 1; // samples of the line, of which this is one; they share the cached prompt
    int sample = 0;      // its number among them
    bool ignore_eos = false;
    std::string stop_rule; // in place of the engine's (EngineCallbacks::rule_of); empty: the engine's
    std::vector<std::string> stop_strings;
    static constexpr int kMaxLogprobs = 20;
    std::optional<int> logprobs; // number of most likely tokens listed with each new one; none: no log-probabilities
    std::string metadata;        // the user's own, a compact JSON object; empty: none. Only for the result line
    ResponseFormat response = ResponseFormat::line;
    std::string model;    // as a request of OpenAI's API names it; only for the response
    bool echo = false;    // the response to a completion begins with the prompt
    bool streams = false; // pieces of its text are wanted as they come
    bool plain = false;   // decode without drafting, as --check does
};

enum class FinishReason { length, eos, stop };
std::string to_string(FinishReason reason);

// A text that a beam search found.
struct FoundText {
    std::vector<TokenId> tokens;
    std::string text; // without special tokens
    FinishReason finish_reason = FinishReason::length;
    float score = 0; // with the length penalty
    std::vector<TokenLogProbs> logprobs = {};
};

struct Completion {
    std::vector<TokenId> tokens; // with the EOS that ended the text, and the token that completed a stop string
    bool has_text = true;        // false: the model has no tokenizer
    std::string text;            // without special tokens, and without the stop string and what follows it
    FinishReason finish_reason = FinishReason::length;
    std::vector<FoundText> found; // by a beam search, at most num_return_sequences; the first is the best, the text
    std::string failure;          // why the text could not go on; empty: it ended
    std::vector<double>
        logit_margins; // best minus second-best target logit (gumbel: with noise) of each token, if recorded
    std::vector<TokenLogProbs> logprobs; // of each token, if the request asks for them
    std::vector<TokenLogProbs> logprobs_of_given;
    Stats stats;
};

// Returns why a stop string is invalid, in words that follow its name; empty if it is valid.
std::string why_no_stop_string(const std::string& stop);

// The limits of a target's encoder; 0 tokens: it has no encoder.
struct SourceLimits {
    int max_tokens = 0;
    int vocab_size = 0;
};
// Returns why the request's source does not fit the model, in words for its error line; empty if it fits.
std::string why_no_source(const Request& request, const SourceLimits& limits);

// Returns why the request cannot be served, in words for its error line; empty if it can.
std::string why_unservable(const Request& request, int vocab_size, int max_positions);

} // namespace entrodraft::spec
