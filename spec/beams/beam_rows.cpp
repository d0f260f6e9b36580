// See beam_rows.h. A log-probability is logit - log(sum of exp) in double, rounded once.
#include "spec/beams/beam_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

// The candidates follow it; their log_prob is their logit, and missing ones have token -1.
struct BeamRowHeader {
    double max = 0;
    double sum_exp = 0;
};

double log_sum_of(const model::LogitStats& stats) {
    const double log_sum = stats.log_sum_exp();
    if (std::isnan(stats.max)) throw std::runtime_error("a logit is not a number");
    if (!std::isfinite(log_sum)) throw std::runtime_error("the largest logit is infinite");
    return log_sum;
}

float log_prob_of(float logit, double log_sum) {
    return static_cast<float>(static_cast<double>(logit) - log_sum);
}

model::LogitStats stats_of(std::span<const float> row) {
    return model::kernels::best_kernels().logit_stats(row.data(), static_cast<int>(row.size()), 0);
}

} // namespace

std::size_t beam_row_bytes(std::size_t n) {
    return sizeof(BeamRowHeader) + n * sizeof(BeamCandidate);
}

BeamRowPart beam_row_part(std::span<const float> all, std::span<const float> allowed, TokenId first_token,
                          std::size_t n) {
    BeamRowPart part = {stats_of(all), best_candidates(allowed, n)};
    for (BeamCandidate& each : part.best)
        each.token += first_token;
    return part;
}

BeamRowPart beam_row_part(const RankedRow& selected, TokenId first_token) {
    BeamRowPart part = {selected.raw, {}};
    for (std::int32_t i = 0; i < selected.n; ++i)
        part.best.push_back({selected.best[i].token + first_token, selected.best[i].logit});
    return part;
}

void encode_beam_row(BeamRowPart part, std::size_t n, std::span<std::byte> to) {
    const BeamRowHeader header = {static_cast<double>(part.stats.max), part.stats.sum_exp};
    part.best.resize(n);
    std::memcpy(to.data(), &header, sizeof header);
    std::memcpy(to.data() + sizeof header, part.best.data(), n * sizeof(BeamCandidate));
}

std::vector<BeamCandidate> decode_beam_row(std::span<const std::span<const std::byte>> parts, std::size_t n) {
    model::LogitStats whole;
    std::vector<BeamCandidate> all;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        BeamRowHeader header;
        std::memcpy(&header, parts[rank].data(), sizeof header);
        const model::LogitStats part = {static_cast<float>(header.max), 0, header.sum_exp, 0};
        whole = rank == 0 ? part : merge(whole, part);
        std::vector<BeamCandidate> best(n);
        std::memcpy(best.data(), parts[rank].data() + sizeof header, n * sizeof(BeamCandidate));
        std::erase_if(best, [](const BeamCandidate& each) { return each.token < 0; });
        all.insert(all.end(), best.begin(), best.end());
    }
    const double log_sum = log_sum_of(whole);
    for (BeamCandidate& each : all)
        each.log_prob = log_prob_of(each.log_prob, log_sum);
    std::ranges::stable_sort(all, std::greater<>(), &BeamCandidate::log_prob); // lower ranks have the lower tokens
    all.resize(std::min(all.size(), n));
    return all;
}

std::vector<float> log_probs_of(std::span<const float> row) {
    const double log_sum = log_sum_of(stats_of(row));
    std::vector<float> log_probs(row.size());
    for (std::size_t i = 0; i < row.size(); ++i)
        log_probs[i] = log_prob_of(row[i], log_sum);
    return log_probs;
}

} // namespace entrodraft::spec
