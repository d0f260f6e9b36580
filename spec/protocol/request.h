// What is asked of the system and what comes back, one sequence each. Plain data.
#pragma once

#include "spec/protocol/stats.h"
#include "spec/verify/logit_processing.h"
#include "spec/verify/sampling.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::spec {

// When a beam search ends, as transformers has it: `yes` once there are num_beams finished texts; `no` once, besides,
// no running beam beats them at the length that it has; `never` once none can at any length.
enum class EarlyStopping : std::uint8_t { no, yes, never };
std::string to_string(EarlyStopping early_stopping); // "false", "true", "never"

struct BeamOptions {
    static constexpr int kMaxBeams = 32;
    int num_beams = 0;         // 0: no beam search
    double length_penalty = 1; // a finished text's score is its log-probability / length^length_penalty
    EarlyStopping early_stopping = EarlyStopping::no;
    int num_return_sequences = 1;

    int forced_tokens = 0; // last ones of the prompt that count in the length penalty: a forced BOS
    bool is_on() const { return num_beams > 0; }
};
// Empty when usable; else what is wrong, naming the option.
std::string why_invalid(const BeamOptions& options);

// A token, and the logarithm of its probability.
struct TokenLogProb {
    TokenId token = -1;
    float log_prob = 0;
};

// Of a new token: what the target's own distribution in front of it has, before penalties, bans, temperature and
// filters: the log-softmax of its logits.
struct TokenLogProbs {
    TokenLogProb emitted;
    std::vector<TokenLogProb> top; // the most likely ones, of equal ones the lower token first
};

// What the line of a result looks like, for whoever writes it: our own, or a response of OpenAI's API.
enum class ResponseFormat : std::uint8_t { line, text_completion, chat_completion };

struct Request {
    std::string id = "null";        // compact JSON
    std::uint64_t sequence_key = 0; // hash of id; 0 for a prompt from the command line
    std::vector<TokenId> prompt;
    std::vector<TokenId> source; // what the encoder of an encoder-decoder model reads; the prompt is its decoder's
    static constexpr int kDefaultNewTokens = 128;
    int max_new_tokens = kDefaultNewTokens;
    SamplingOptions sampling;
    LogitProcessing processing;
    BeamOptions beams;
    int num_samples = 1; // of which this is one: those of a line share what is read of its prompt
    int sample = 0;      // its number among them
    bool ignore_eos = false;
    std::vector<std::string> stop_strings;
    static constexpr int kMaxLogprobs = 20;
    std::optional<int> logprobs; // most likely tokens beside each new one; none: no log-probabilities
    std::string metadata;        // of the user's own, a compact JSON object; empty: none. For the result line alone
    ResponseFormat response = ResponseFormat::line;
    std::string model;  // that a request of OpenAI's API names, for its response alone
    bool plain = false; // decode without drafting: what --check replays with
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
    std::vector<FoundText> found; // of a beam search: num_return_sequences at most, the best, which is the text, first
    std::string failure;          // why the text could not go on; empty: it ended
    std::vector<double>
        logit_margins; // best less second-best target logit (gumbel: noisy) of each token, where recorded
    std::vector<TokenLogProbs> logprobs; // of each token, where the request asks for them
    Stats stats;
};

// What is wrong with a stop string, in words after its name; empty where nothing is.
std::string why_no_stop_string(const std::string& stop);

// What a target's encoder takes; 0 tokens: it has none.
struct SourceLimits {
    int max_tokens = 0;
    int vocab_size = 0;
};
// Why the request's source does not go with the model, in words for its error line; empty where it does.
std::string why_no_source(const Request& request, const SourceLimits& limits);

// Why the request cannot be served, in words for its error line; empty when it can.
std::string why_unservable(const Request& request, int vocab_size, int max_positions);

} // namespace entrodraft::spec
