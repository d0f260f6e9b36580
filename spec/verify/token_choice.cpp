// One model's choices: see token_choice.h.
#include "spec/verify/token_choice.h"

#include "spec/verify/gumbel.h"
#include "spec/verify/philox.h"

#include <limits>

namespace entrodraft::spec {

using model::kernels::LogitStats;

DraftedToken drafted_token(const LogitStats& stats, float logit) {
    return {static_cast<float>(stats.entropy_nats()), static_cast<float>(stats.probability(logit)), 0};
}

DraftedToken drafted_token(std::span<const float> adjusted, TokenId token) {
    return {static_cast<float>(entropy_nats(adjusted)), adjusted[static_cast<std::size_t>(token)], 0};
}

void TokenChooser::begin_sequence(const Request& request, std::span<const TokenId> eos_tokens) {
    request_ = &request;
    processor_.reset();
    if (!request.processing.is_off()) processor_.emplace(request.processing, request.prompt, eos_tokens);
}

model::LogitNeeds TokenChooser::needs(bool whole_distribution, Acceptance acceptance) const {
    if (processor_) return {};
    const bool rows = !request_->sampling.greedy();
    if (whole_distribution) return {model::LogitSummary::entropy, rows};
    return {draws(acceptance) ? model::LogitSummary::none : model::LogitSummary::max, rows};
}

SeenLogits TokenChooser::see(std::span<const float> logits, const LogitStats& head, std::span<const TokenId> prefix,
                             bool whole_distribution) {
    if (!processor_) return {logits, head, false};
    processor_->follow(prefix);
    processed_.assign(logits.begin(), logits.end());
    processor_->ban(processed_);
    const model::kernels::Kernels& kernels = model::kernels::best_kernels();
    const auto summarise = whole_distribution ? kernels.logit_stats : kernels.logit_max;
    const LogitStats stats = summarise(processed_.data(), static_cast<int>(processed_.size()), 0);
    processor_->weigh(processed_);
    return {processed_, stats, stats.max == -std::numeric_limits<float>::infinity()};
}

model::RowNoise TokenChooser::noise(std::uint64_t position, Acceptance acceptance) const {
    const SamplingOptions& sampling = request_->sampling;
    if (processor_ || acceptance != Acceptance::gumbel || sampling.greedy()) return {};
    if (gumbel_gather(sampling) != GumbelGather::best) return {};
    return {GumbelNoise(sampling.seed, request_->sequence_key).key(), position, sampling.temperature};
}

model::RowNoise TokenChooser::device_noise(std::uint64_t position, std::uint64_t round_start,
                                           const ChoiceSetting& setting) const {
    const RandomStream random(setting.seed, setting.random_key, Purpose::draft_sample, setting.level);
    return {random.key(), noise_position(position, round_start), request_->sampling.temperature};
}

TokenId TokenChooser::best(const SeenLogits& row, std::uint64_t position, Acceptance acceptance,
                           const model::NoisyToken* noisy) const {
    const SamplingOptions& sampling = request_->sampling;
    if (noisy) return noisy->token;
    if (acceptance == Acceptance::gumbel && !sampling.greedy())
        return gumbel_max_adjusted({row.logits, 0, position}, sampling,
                                   GumbelNoise(sampling.seed, request_->sequence_key))
            .token;
    return processor_ ? arg_max(row.logits) : row.stats.arg_max;
}

void TokenChooser::distribution(const SeenLogits& row, std::span<float> q) const {
    adjust(row.logits, request_->sampling, q);
}

void TokenChooser::adjusted(const SeenLogits& row, std::span<float> q) const {
    SamplingOptions plain;
    plain.temperature = 1;
    adjust(row.logits, request_->sampling.greedy() ? plain : request_->sampling, q);
}

TokenId TokenChooser::sample_of(std::span<const float> q, std::uint64_t position, std::uint64_t round_start,
                                const ChoiceSetting& setting) const {
    const RandomStream random(setting.seed, setting.random_key, Purpose::draft_sample, setting.level);
    return sample(q, random.uniform(position, 0, static_cast<std::uint32_t>(round_start)));
}

} // namespace entrodraft::spec
