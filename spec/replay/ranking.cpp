#include "spec/replay/ranking.h"

#include "spec/verify/gumbel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace entrodraft::spec {

namespace {

constexpr double kExcluded = -std::numeric_limits<double>::infinity();

} // namespace

Ranking::Ranking(std::span<const float> logits, const Request& request, std::uint64_t position, bool noisy)
    : values_(logits.begin(), logits.end()) {
    if (!noisy) return;
    const SamplingOptions& sampling = request.sampling;
    std::vector<float> left(logits.begin(), logits.end());
    if (gumbel_gather(sampling) != GumbelGather::best) adjust(logits, sampling, left);
    const bool filters = gumbel_gather(sampling) != GumbelGather::best;
    const GumbelNoise noise(sampling.seed, request.sequence_key);
    for (std::size_t token = 0; token < values_.size(); ++token) {
        const bool is_left = filters ? left[token] > 0 : std::isfinite(logits[token]);
        values_[token] = is_left
                             ? values_[token] / sampling.temperature + noise.at(position, static_cast<TokenId>(token))
                             : kExcluded;
    }
}

std::vector<TokenId> Ranking::first(std::size_t n) const {
    std::vector<TokenId> tokens(values_.size());
    std::iota(tokens.begin(), tokens.end(), 0);
    const auto goes_before = [&](TokenId a, TokenId b) {
        const double of_a = values_[static_cast<std::size_t>(a)], of_b = values_[static_cast<std::size_t>(b)];
        return of_a > of_b || (of_a == of_b && a < b);
    };
    const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(std::min(n, tokens.size()));
    std::partial_sort(tokens.begin(), end, tokens.end(), goes_before);
    tokens.erase(end, tokens.end());
    while (!tokens.empty() && values_[static_cast<std::size_t>(tokens.back())] == kExcluded)
        tokens.pop_back();
    return tokens;
}

std::int32_t Ranking::rank(TokenId token) const {
    const double own = values_[static_cast<std::size_t>(token)];
    if (own == kExcluded) return -1;
    std::int32_t before = 0;
    for (std::size_t i = 0; i < values_.size(); ++i)
        before += values_[i] > own || (values_[i] == own && static_cast<TokenId>(i) < token) ? 1 : 0;
    return before;
}

float Ranking::margin() const {
    double best = kExcluded, second = kExcluded;
    for (const double value : values_) {
        second = std::max(second, std::min(best, value));
        best = std::max(best, value);
    }
    return static_cast<float>(best - second);
}

} // namespace entrodraft::spec
