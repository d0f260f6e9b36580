// Messages as bytes: see messages.h.
#include "launch/serve/messages.h"

#include <algorithm>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace entrodraft::launch {

namespace {

// Calls `use` with all members of a struct that is not plain memory. A new member breaks the build here until it is
// listed, too.
#define MEMBERS(Struct, ...)                                                                                           \
    void with_members(Struct& value, auto use) {                                                                       \
        auto& [__VA_ARGS__] = value;                                                                                   \
        use(__VA_ARGS__);                                                                                              \
    }
MEMBERS(spec::Stats, sequences, prompt_tokens, new_tokens, rounds, drafted, drafted_levels, accepted, target_passes,
        draft_passes, further_draft_rows, drafting_rounds, passes_of_rows, seconds_of_rows, rounds_of_accepted,
        by_position, by_entropy, overlap, overlaps, ahead, seconds, levels)
using Bias = decltype(spec::LogitProcessing::logit_bias)::value_type;
MEMBERS(Bias, token, bias)
MEMBERS(model::grammar::Source, language, text)
MEMBERS(spec::BiasedTokens, tokens, bias)
MEMBERS(spec::LogitProcessing, repetition, presence, frequency, ngram_size, min_new_tokens, logit_bias, banned_tokens,
        constraint, grammar, encoder_repetition, encoder_ngram_size, sequence_bias, suppress_tokens,
        begin_suppress_tokens, forced_bos_token, forced_eos_tokens, forced_eos_at, decay)
MEMBERS(spec::Request, id, sequence_key, prompt, given, source, max_new_tokens, sampling, processing, beams,
        num_samples, sample, ignore_eos, stop_rule, stop_strings, logprobs, metadata, response, model, echo, streams,
        plain)
MEMBERS(spec::TokenLogProbs, emitted, top)
MEMBERS(Report, result, order, sample, stats, checked, ends_request, text, logprobs, trace, note, busy_seconds,
        interrupted)
MEMBERS(Assignment, state, order, request, cancels)
#undef MEMBERS

// Bytes that values are copied into; if `reads`, values are copied out of them.
struct Archive {
    std::vector<std::byte> bytes;
    bool reads;
    std::size_t position = 0;

    void copy(void* value, std::size_t size) {
        auto* const begin = static_cast<std::byte*>(value);
        if (!reads) bytes.insert(bytes.end(), begin, begin + size);
        require(size);
        if (reads) std::copy_n(bytes.data() + position, size, begin);
        position += size;
    }
    void require(std::size_t size) const {
        if (size > bytes.size() - position) throw std::runtime_error("a message from another replica is cut short");
    }
};

template <typename T> void transfer(Archive& archive, T& value) {
    if constexpr (requires { value.has_value(); }) {
        bool has_value = value.has_value();
        transfer(archive, has_value);
        if (has_value && !value) value.emplace();
        if (has_value) transfer(archive, *value);
    } else if constexpr (std::is_same_v<T, decltype(spec::LogitProcessing::grammar)>) {
        // Each coordinator compiles the constraint itself.
    } else if constexpr (std::is_trivially_copyable_v<T>) {
        archive.copy(&value, sizeof value);
    } else if constexpr (requires { value.size(); }) {
        std::size_t size = value.size();
        transfer(archive, size);
        if (archive.reads) archive.require(size); // each element takes at least one byte
        value.resize(size);
        for (auto& element : value)
            transfer(archive, element);
    } else {
        with_members(value, [&](auto&... members) { (transfer(archive, members), ...); });
    }
}

} // namespace

template <typename T> std::vector<std::byte> pack(T message) {
    Archive archive{.bytes = {}, .reads = false};
    transfer(archive, message);
    return std::move(archive.bytes);
}

template <typename T> T unpack(std::vector<std::byte> bytes) {
    Archive archive{.bytes = std::move(bytes), .reads = true};
    T message;
    transfer(archive, message);
    if (archive.position < archive.bytes.size()) throw std::runtime_error("a message from another replica is too long");
    return message;
}

template std::vector<std::byte> pack(Report);
template std::vector<std::byte> pack(Assignment);
template Report unpack(std::vector<std::byte>);
template Assignment unpack(std::vector<std::byte>);

} // namespace entrodraft::launch
