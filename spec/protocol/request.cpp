// Checks of a request, and the words of the output format.
#include "spec/protocol/request.h"

#include "model/files/utf8.h"

#include <cmath>
#include <fmt/format.h>

namespace entrodraft::spec {

std::string to_string(FinishReason reason) {
    switch (reason) {
    case FinishReason::length:
        return "length";
    case FinishReason::eos:
        return "eos";
    case FinishReason::stop:
        return "stop";
    }
    return "length";
}

std::string to_string(EarlyStopping early_stopping) {
    switch (early_stopping) {
    case EarlyStopping::no:
        return "false";
    case EarlyStopping::yes:
        return "true";
    case EarlyStopping::never:
        return "never";
    }
    return "false";
}

std::string why_invalid(const BeamOptions& options) {
    if (!options.is_on()) return "";
    if (options.num_beams > BeamOptions::kMaxBeams)
        return fmt::format("num_beams must be 1 to {}, not {}", BeamOptions::kMaxBeams, options.num_beams);
    if (!std::isfinite(options.length_penalty))
        return fmt::format("length_penalty must be a number, not {}", options.length_penalty);
    if (options.num_return_sequences < 1 || options.num_return_sequences > options.num_beams)
        return fmt::format("num_return_sequences must be 1 to num_beams, which is {}, not {}", options.num_beams,
                           options.num_return_sequences);
    return "";
}

std::string why_no_stop_string(const std::string& stop) {
    if (stop.empty()) return "is empty; give the string that ends the text";
    if (const std::size_t bad = model::first_invalid_utf8(stop); bad != std::string::npos)
        return fmt::format("is not UTF-8 from byte {} on, and no text ever holds it", bad);
    return "";
}

std::string why_no_source(const Request& request, const SourceLimits& limits) {
    const auto n_tokens = static_cast<std::int64_t>(request.source.size());
    if (limits.max_tokens == 0) return n_tokens == 0 ? "" : "the model has no encoder to read a source";
    if (n_tokens == 0) return "the source is empty: at least one token is needed to answer to";
    if (n_tokens > limits.max_tokens)
        return fmt::format("the source has {} tokens; the encoder reads {} at most", n_tokens, limits.max_tokens);
    for (std::size_t i = 0; i < request.source.size(); ++i)
        if (request.source[i] < 0 || request.source[i] >= limits.vocab_size)
            return fmt::format("token id {} at source position {} is outside the encoder's vocabulary of {}",
                               request.source[i], i, limits.vocab_size);
    return "";
}

std::string why_unservable(const Request& request, int vocab_size, int max_positions) {
    if (request.prompt.empty()) return "the prompt is empty: at least one token is needed to go on from";
    const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
    if (prompt_tokens >= max_positions)
        return fmt::format("the prompt has {} tokens; the context of {} positions leaves no room for an answer",
                           prompt_tokens, max_positions);
    for (std::size_t i = 0; i < request.prompt.size(); ++i)
        if (request.prompt[i] < 0 || request.prompt[i] >= vocab_size)
            return fmt::format("token id {} at prompt position {} is outside the vocabulary of {}", request.prompt[i],
                               i, vocab_size);
    if (request.max_new_tokens < 1)
        return fmt::format("max_new_tokens must be at least 1, not {}", request.max_new_tokens);
    for (const std::string& stop : request.stop_strings)
        if (const std::string why = why_no_stop_string(stop); !why.empty()) return "stop " + why;
    if (const char* reason = why_invalid(request.sampling); *reason != '\0') return reason;
    if (std::string why = why_invalid(request.beams); !why.empty()) return why;
    if (request.beams.is_on() && !request.sampling.greedy())
        return "beam search takes the most probable tokens: temperature must be 0";
    if (request.beams.is_on() && !request.stop_strings.empty()) return "stop strings do not go with beam search";
    if (const auto& constraint = request.processing.constraint; constraint.is_on()) {
        if (request.beams.is_on()) return to_string(constraint.language) + " does not go with beam search";
        if (request.ignore_eos) return to_string(constraint.language) + " does not go with ignore_eos";
    }
    if (request.logprobs && (*request.logprobs < 0 || *request.logprobs > Request::kMaxLogprobs))
        return fmt::format("logprobs must be 0 to {}, not {}", Request::kMaxLogprobs, *request.logprobs);
    if (request.logprobs && request.beams.is_on()) return "logprobs do not go with beam search";
    return why_invalid(request.processing, vocab_size);
}

} // namespace entrodraft::spec
