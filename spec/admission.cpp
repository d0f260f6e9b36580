// Bytes of an admission: a head of fixed size, then the lists that it counts. See admission.h.
#include "spec/admission.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>

namespace entrodraft::spec {

namespace {

struct Head {
    std::uint64_t sequence_key = 0;
    std::uint64_t seed = 0;
    double temperature = 0;
    double top_p = 1;
    double min_p = 0;
    double repetition_penalty = 1;
    double presence_penalty = 0;
    double frequency_penalty = 0;
    std::int32_t top_k = 0;
    std::int32_t no_repeat_ngram_size = 0;
    std::int32_t min_new_tokens = 0;
    std::uint32_t n_biases = 0;
    std::uint32_t n_banned = 0;
    std::uint32_t n_tokens = 0;
    std::uint32_t verified_on_device = 0;
    std::uint32_t unused = 0;
};

struct Bias {
    TokenId token = 0;
    float bias = 0;
};

template <typename T> void put(std::vector<std::byte>& bytes, std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t at = bytes.size();
    bytes.resize(at + values.size_bytes());
    if (!values.empty()) std::memcpy(bytes.data() + at, values.data(), values.size_bytes());
}

template <typename T> std::vector<T> take(std::span<const std::byte>& bytes, std::size_t count) {
    if (count > bytes.size() / sizeof(T)) throw std::runtime_error("an admission is shorter than it says");
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(T));
    bytes = bytes.subspan(count * sizeof(T));
    return values;
}

} // namespace

std::vector<std::byte> pack_admission(const Request& request, bool verified_on_device) {
    const SamplingOptions& sampling = request.sampling;
    const LogitProcessing& processing = request.processing;
    const Head head = {request.sequence_key,
                       sampling.seed,
                       sampling.temperature,
                       sampling.top_p,
                       sampling.min_p,
                       processing.repetition_penalty,
                       processing.presence_penalty,
                       processing.frequency_penalty,
                       sampling.top_k,
                       processing.no_repeat_ngram_size,
                       processing.min_new_tokens,
                       static_cast<std::uint32_t>(processing.logit_bias.size()),
                       static_cast<std::uint32_t>(processing.banned_tokens.size()),
                       static_cast<std::uint32_t>(request.prompt.size()),
                       verified_on_device ? 1U : 0U,
                       0};
    std::vector<Bias> biases;
    for (const auto& [token, bias] : processing.logit_bias)
        biases.push_back({token, bias});
    std::vector<std::byte> bytes;
    put(bytes, std::span(&head, 1));
    put(bytes, std::span<const Bias>(biases));
    put(bytes, std::span<const TokenId>(processing.banned_tokens));
    put(bytes, std::span<const TokenId>(request.prompt));
    return bytes;
}

Admission unpack_admission(std::span<const std::byte> bytes) {
    const Head head = take<Head>(bytes, 1)[0];
    Admission admission;
    admission.verified_on_device = head.verified_on_device != 0;
    Request& request = admission.request;
    request.sequence_key = head.sequence_key;
    request.sampling = {head.temperature, head.top_k, head.top_p, head.min_p, head.seed};
    LogitProcessing& processing = request.processing;
    processing.repetition_penalty = head.repetition_penalty;
    processing.presence_penalty = head.presence_penalty;
    processing.frequency_penalty = head.frequency_penalty;
    processing.no_repeat_ngram_size = head.no_repeat_ngram_size;
    processing.min_new_tokens = head.min_new_tokens;
    for (const Bias& bias : take<Bias>(bytes, head.n_biases))
        processing.logit_bias.emplace_back(bias.token, bias.bias);
    processing.banned_tokens = take<TokenId>(bytes, head.n_banned);
    request.prompt = take<TokenId>(bytes, head.n_tokens);
    if (!bytes.empty()) throw std::runtime_error("an admission is longer than it says");
    return admission;
}

} // namespace entrodraft::spec
