// Makes the children of a row: see siblings.h. All rows of a position share its noise.
#include "spec/draft/siblings.h"

#include "spec/verify/random.h"
#include "spec/verify/row_kernels.h"

#include <algorithm>
#include <limits>

namespace entrodraft::spec {

namespace {

constexpr float kFiltered = -std::numeric_limits<float>::infinity();

} // namespace

void Siblings::begin_sequence(const Request& request, std::span<const TokenId> eos_tokens) {
    request_ = &request;
    chooser_.begin_sequence(request, eos_tokens);
    noise_.clear();
}

std::vector<TreeChild> Siblings::best(const RowOfText& of, int n, Acceptance acceptance) {
    const SeenLogits row = chooser_.see(of.logits, of.summary, of.text, true);
    if (row.is_dead) return {};
    const bool is_raw = request_->sampling.greedy() && request_->processing.is_off();
    const std::span<const float> values = is_raw ? row.logits : values_of(row, of.text.size(), acceptance);
    const model::LogitStats stats =
        is_raw ? row.stats
               : model::kernels::best_kernels().logit_stats(values.data(), static_cast<int>(values.size()), 0);
    std::vector<TreeChild> children;
    for (const TokenId token : best_tokens(values, static_cast<std::size_t>(n))) {
        const auto at = static_cast<std::size_t>(token);
        children.push_back({token, drafted_token(row.stats, row.logits[at]), drafted_token(stats, values[at])});
    }
    return children;
}

std::vector<TreeChild> Siblings::best(const RankedRow& row, int n) const {
    std::vector<TreeChild> children;
    for (const RankedRow::Token& each : std::span(row.best).first(static_cast<std::size_t>(std::min(n, row.n))))
        children.push_back({each.token, drafted_token(row.raw, each.logit), drafted_token(row.ranked, each.value)});
    return children;
}

bool Siblings::ranks_on_device(std::uint64_t position, Acceptance acceptance, DeviceTreePlan& plan) const {
    const SamplingOptions& sampling = request_->sampling;
    if (!request_->processing.is_off() || (!sampling.greedy() && gumbel_gather(sampling) != GumbelGather::best))
        return false;
    plan.noise = {GumbelNoise(sampling.seed, request_->sequence_key).key(), position, sampling.temperature};
    plan.has_noise = acceptance == Acceptance::gumbel;
    return true;
}

// The values by which target and draft choose. For greedy text they are the logits, else logit / temperature, under
// `gumbel` with the position's noise, and without the tokens that the filters remove.
std::span<const float> Siblings::values_of(const SeenLogits& row, std::uint64_t position, Acceptance acceptance) {
    const SamplingOptions& sampling = request_->sampling;
    values_.assign(row.logits.begin(), row.logits.end());
    if (sampling.greedy()) return values_;
    const auto scale = static_cast<float>(1 / sampling.temperature);
    if (acceptance == Acceptance::gumbel) {
        const std::vector<float>& noise = noise_at(position, values_.size());
        for (std::size_t i = 0; i < values_.size(); ++i)
            values_[i] = values_[i] * scale + noise[i];
    } else {
        for (float& value : values_)
            value *= scale;
    }
    if (gumbel_gather(sampling) == GumbelGather::best) return values_; // nothing is filtered
    left_.resize(values_.size());
    chooser_.distribution(row, left_);
    for (std::size_t i = 0; i < values_.size(); ++i)
        if (left_[i] <= 0) values_[i] = kFiltered;
    return values_;
}

const std::vector<float>& Siblings::noise_at(std::uint64_t position, std::size_t vocab) {
    constexpr std::size_t kMaxPositions = 2 * Packet::kMaxDraftTokens; // positions held: more than a tree is deep
    const auto found = noise_.find(position);
    if (found != noise_.end()) return found->second;
    if (noise_.size() == kMaxPositions) noise_.clear();
    std::vector<float>& noise = noise_[position];
    noise.resize(vocab);
    GumbelNoise(request_->sampling.seed, request_->sequence_key).fill(position, noise);
    return noise;
}

std::vector<TreeChild> Siblings::drawn(const RowOfText& of, int n, const ChoiceSetting& choice,
                                       std::size_t round_start) {
    const SeenLogits row = chooser_.see(of.logits, of.summary, of.text, true);
    if (row.is_dead) return {};
    const RandomStream random(choice.seed, choice.random_key, Purpose::draft_sample, choice.level);
    left_.resize(row.logits.size());
    chooser_.distribution(row, left_);
    std::vector<TreeChild> children;
    for (int rank = 0; rank < n; ++rank) {
        const double sum = row_kernels().sum(left_.data(), left_.size());
        if (sum <= 0) break; // fewer tokens than children
        row_kernels().scale(left_.data(), left_.size(), static_cast<float>(1 / sum));
        const auto token = sample(left_, random.uniform(of.text.size(), static_cast<std::uint32_t>(rank),
                                                        static_cast<std::uint32_t>(round_start)));
        const auto at = static_cast<std::size_t>(token);
        const DraftedToken seen = drafted_token(row.stats, row.logits[at]);
        children.push_back({token, seen, seen, left_});
        left_[at] = 0;
    }
    return children;
}

} // namespace entrodraft::spec
