// Turns a row of logits into its distribution and tokens: see sampling.h. The inner loops are in row_kernels.inl.
#include "spec/verify/sampling.h"

#include "spec/verify/row_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numbers>
#include <numeric>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kChunk = 1024; // values; only those of the chosen chunk are looked at one by one

Exponential exponential_of(float max, double temperature) {
    Exponential result;
    result.max = max;
    result.scale = static_cast<float>(std::numbers::log2e / temperature);
    result.scale_high = std::bit_cast<float>(std::bit_cast<std::uint32_t>(result.scale) & 0xFFFFF000U);
    result.scale_low = static_cast<float>(std::numbers::log2e / temperature - static_cast<double>(result.scale_high));
    return result;
}

// The least float whose quotient equals that of `logit`. With it as a border, logits compare as their quotients do.
float min_with_same_quotient(float logit, double temperature) {
    if (std::isinf(logit)) return logit;
    const auto value_of = [](std::int64_t rank) {
        const auto magnitude = static_cast<std::uint32_t>(rank < 0 ? -rank : rank);
        const auto value = std::bit_cast<float>(magnitude);
        return rank < 0 ? -value : value;
    };
    const auto magnitude = static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(std::fabs(logit)));
    std::int64_t high = logit < 0 ? -magnitude : magnitude;                    // has the quotient
    std::int64_t low = -std::int64_t{std::bit_cast<std::uint32_t>(kInfinity)}; // has not
    const float wanted = quotient(logit, temperature);
    while (high - low > 1) {
        const std::int64_t middle = low + (high - low) / 2;
        (quotient(value_of(middle), temperature) == wanted ? high : low) = middle;
    }
    return value_of(high);
}

// The k-th largest value, 0 < k <= values.size().
float nth_largest(std::vector<float> values, std::size_t k) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(k - 1), values.end(),
                     std::greater<>());
    return values[k - 1];
}

// Ascending ids of the k largest values, of all that equal the k-th, and of a few more. No value may be NaN.
std::vector<std::size_t> about_largest(std::span<const float> values, std::size_t k) {
    constexpr std::size_t kLanes = 16;
    std::vector<std::size_t> ids;
    const std::size_t wanted = std::max<std::size_t>(8 * k, 64); // lanes whose maxima are compared
    const std::size_t stride = values.size() / wanted;
    if (stride < 2) {
        ids.resize(values.size());
        std::iota(ids.begin(), ids.end(), std::size_t{0});
        return ids;
    }
    // At least k lanes reach the k-th largest of their maxima, so the k-th largest value is not below it.
    std::vector<float> maxima;
    maxima.reserve(2 * wanted + kLanes);
    row_kernels().lane_maxima(values.data(), values.size(), stride, maxima);
    ids.reserve(4 * k);
    row_kernels().collect(values.data(), values.size(), nth_largest(std::move(maxima), k), kInfinity, ids);
    return ids;
}

struct Nucleus {
    float all_from = kInfinity;    // every token with at least this logit is in
    std::vector<std::size_t> more; // tokens below it that are in
    double mass = 0;               // sum of the weights that are in
};

// Narrows [low, high) around the border: tokens from `high` on are in, tokens below `low` are out.
struct Bracket {
    float low = 0;
    float high = kInfinity;
    ProbabilityMass above; // of tokens from `high` on
};

Bracket bracket_nucleus(std::span<const float> logits, std::span<const float> weights, double total, double removed,
                        double temperature) {
    constexpr std::size_t kFew = 256;
    constexpr int kMaxPasses = 24;
    const std::size_t n = logits.size();
    const float max = row_kernels().scan(logits.data(), n).max;
    // Fewer than n weights are below `low`, each less than removed / n.
    const double least = std::max(std::log(removed / static_cast<double>(n)) - 1e-3, -70.0);
    Bracket bracket;
    bracket.low = static_cast<float>(static_cast<double>(max) + temperature * least);
    bracket.low = min_with_same_quotient(std::nextafter(bracket.low, -kInfinity), temperature);
    std::size_t n_inside = n;
    for (int pass = 0; pass < kMaxPasses && n_inside > kFew; ++pass) {
        const float top = std::min(bracket.high, max);
        const float middle = min_with_same_quotient(bracket.low + (top - bracket.low) / 2, temperature);
        if (middle <= bracket.low || middle >= bracket.high) break;
        const ProbabilityMass mass = row_kernels().mass_at_least(logits.data(), n, middle, weights.data());
        const std::size_t outside_before = n - n_inside;
        if (total - mass.mass > removed) { // the token after these would still be kept
            bracket.high = middle;
            n_inside -= std::min(n_inside, mass.count - bracket.above.count);
            bracket.above = mass;
        } else {
            bracket.low = middle;
            n_inside = mass.count - bracket.above.count;
        }
        if (n - n_inside == outside_before && pass > 8) break; // only equal logits are left
    }
    return bracket;
}

// top-p over weights of sum `total`. Tokens are sorted by logit, the largest first, of equal ones the lower id first. A
// token is in while the mass of itself and those after it exceeds 1 - top_p of the total. The first is always in.
Nucleus nucleus_of(std::span<const float> logits, std::span<const float> weights, double total,
                   const SamplingOptions& options) {
    const double removed =
        static_cast<double>(static_cast<float>(1 - options.top_p)) * total; // transformers compares 1 - top_p as float
    const double temperature = options.temperature;
    const Bracket bracket = bracket_nucleus(logits, weights, total, removed, temperature);
    Nucleus nucleus;
    nucleus.all_from = bracket.high;
    nucleus.mass = bracket.above.mass;
    std::vector<std::size_t> ids;
    row_kernels().collect(logits.data(), logits.size(), bracket.low, bracket.high, ids);
    std::sort(ids.begin(), ids.end(), [&](std::size_t a, std::size_t b) {
        const float first = quotient(logits[a], temperature), second = quotient(logits[b], temperature);
        return first != second ? first > second : a < b;
    });
    const bool has_first = bracket.above.count > 0;
    for (const std::size_t id : ids) {
        if (total - nucleus.mass <= removed && (has_first || !nucleus.more.empty())) break;
        nucleus.more.push_back(id);
        nucleus.mass += static_cast<double>(weights[id]);
    }
    return nucleus;
}

// Removes from the nucleus the logits below `low`, min-p's border.
void narrow(Nucleus& nucleus, std::span<const float> logits, std::span<const float> weights, float low) {
    nucleus.all_from = std::max(nucleus.all_from, low);
    std::erase_if(nucleus.more, [&](std::size_t id) { return logits[id] < low; });
    nucleus.mass = row_kernels().mass_at_least(logits.data(), logits.size(), nucleus.all_from, weights.data()).mass;
    for (const std::size_t id : nucleus.more)
        nucleus.mass += static_cast<double>(weights[id]);
}

// Turns weights of sum `total` into probabilities, after top-p and min-p where they are on.
void normalize(std::span<const float> logits, float max, double total, const SamplingOptions& options,
               std::span<float> weights) {
    if (options.top_p >= 1 && options.min_p <= 0) {
        row_kernels().scale(weights.data(), weights.size(), static_cast<float>(1 / total));
        return;
    }
    Nucleus nucleus{-kInfinity, {}, total};
    if (options.top_p < 1) nucleus = nucleus_of(logits, weights, total, options);
    if (options.min_p > 0) narrow(nucleus, logits, weights, min_p_border(max, options));
    const auto factor = static_cast<float>(1 / nucleus.mass);
    std::vector<float> kept;
    kept.reserve(nucleus.more.size());
    for (const std::size_t id : nucleus.more)
        kept.push_back(weights[id] * factor);
    row_kernels().scale_at_least(logits.data(), logits.size(), nucleus.all_from, factor, weights.data());
    for (std::size_t i = 0; i < kept.size(); ++i)
        weights[nucleus.more[i]] = kept[i];
}

// adjust() over all of `logits`.
void adjust_all(std::span<const float> logits, float max, const SamplingOptions& options, std::span<float> weights) {
    const Exponential exponential = exponential_of(max, options.temperature);
    const double total = row_kernels().exponentials(logits.data(), logits.size(), exponential, weights.data());
    normalize(logits, max, total, options, weights);
}

double weight_at(std::span<const float> p, std::span<const float> q, double factor, std::size_t i) {
    if (q.empty()) return static_cast<double>(p[i]);
    return std::max(0.0, static_cast<double>(p[i]) * factor - static_cast<double>(q[i]));
}

// The token at quantile u of p, or of max(0, factor * p - q) if there is a q; -1 if the sum is 0.
TokenId sample_weights(std::span<const float> p, std::span<const float> q, double factor, double u) {
    if (!(u >= 0 && u < 1)) throw std::invalid_argument(fmt::format("a quantile must be in [0, 1), not {:f}", u));
    std::vector<double> sums((p.size() + kChunk - 1) / kChunk);
    double total = 0;
    for (std::size_t chunk = 0; chunk < sums.size(); ++chunk) {
        const std::size_t first = chunk * kChunk, n = std::min(kChunk, p.size() - first);
        sums[chunk] = q.empty() ? row_kernels().sum(p.data() + first, n)
                                : row_kernels().sum_of_excess(p.data() + first, factor, q.data() + first, n);
        total += sums[chunk];
    }
    if (!std::isfinite(total) || total < 0)
        throw std::runtime_error("a distribution to sample from holds a value that is not a number");
    const double goal = u * total;
    double below = 0;
    std::size_t chosen = sums.size(); // the first chunk that passes the goal, else the last that is not empty
    for (std::size_t chunk = 0; chunk < sums.size(); ++chunk) {
        if (sums[chunk] <= 0) continue;
        if (chosen < sums.size()) below += sums[chosen];
        chosen = chunk;
        if (below + sums[chunk] > goal) break;
    }
    if (chosen == sums.size()) return -1;
    std::size_t token = 0;
    for (std::size_t i = chosen * kChunk; i < std::min(p.size(), (chosen + 1) * kChunk); ++i) {
        const double weight = weight_at(p, q, factor, i);
        if (weight <= 0) continue;
        token = i;
        below += weight;
        if (below > goal) break;
    }
    return static_cast<TokenId>(token);
}

} // namespace

const char* why_invalid(const SamplingOptions& options) {
    const double temperature = options.temperature;
    if (temperature != 0 && !(temperature >= kMinTemperature && temperature <= kMaxTemperature))
        return "--temperature must be 0 (greedy) or a number from 1e-6 to 1e6";
    if (options.top_k < 0) return "--top-k must be 0 (off) or more";
    if (!(options.top_p >= 0 && options.top_p <= 1)) return "--top-p must be a number from 0 to 1 (off)";
    if (!(options.min_p >= 0 && options.min_p <= 1)) return "--min-p must be a number from 0 (off) to 1";
    return "";
}

float quotient(float logit, double temperature) {
    return logit / static_cast<float>(temperature);
}

float top_k_border(std::span<const float> logits, const SamplingOptions& options) {
    const auto top_k = static_cast<std::size_t>(options.top_k);
    if (top_k >= logits.size()) return -kInfinity;
    std::vector<float> largest;
    for (const std::size_t id : about_largest(logits, top_k))
        largest.push_back(logits[id]);
    return min_with_same_quotient(nth_largest(std::move(largest), top_k), options.temperature);
}

float min_p_border(float max, const SamplingOptions& options) {
    const double border = static_cast<double>(max) + options.temperature * std::log(options.min_p);
    return min_with_same_quotient(static_cast<float>(border), options.temperature);
}

void adjust(std::span<const float> logits, const SamplingOptions& options, std::span<float> probabilities) {
    if (*why_invalid(options) != '\0') throw std::invalid_argument(why_invalid(options));
    if (options.greedy()) throw std::invalid_argument("greedy decoding (--temperature 0) has no distribution");
    if (logits.size() != probabilities.size() || logits.empty())
        throw std::invalid_argument("adjust needs as many probabilities as logits, and at least one");
    const LogitScan scan = row_kernels().scan(logits.data(), logits.size());
    if (!scan.has_nan && scan.max == -kInfinity) throw NothingToSay();
    if (scan.has_nan || !std::isfinite(scan.max))
        throw std::runtime_error(scan.has_nan ? "a logit is not a number" : "the largest logit is infinite");
    const auto top_k = static_cast<std::size_t>(options.top_k);
    if (top_k == 0 || top_k >= logits.size()) {
        adjust_all(logits, scan.max, options, probabilities);
        return;
    }
    const float low = top_k_border(logits, options);
    std::vector<std::size_t> ids;
    ids.reserve(top_k + 16);
    row_kernels().collect(logits.data(), logits.size(), low, kInfinity, ids);
    std::vector<float> kept_logits, kept(ids.size());
    kept_logits.reserve(ids.size());
    for (const std::size_t id : ids)
        kept_logits.push_back(logits[id]);
    adjust_all(kept_logits, scan.max, options, kept);
    std::fill(probabilities.begin(), probabilities.end(), 0.0F);
    for (std::size_t i = 0; i < ids.size(); ++i)
        probabilities[ids[i]] = kept[i];
}

std::vector<TokenId> best_tokens(std::span<const float> values, std::size_t k) {
    std::vector<TokenId> best;
    if (k == 0) return best;
    const auto value = [&](TokenId token) { return values[token]; };
    for (const std::size_t id : about_largest(values, std::min(k, values.size())))
        if (values[id] > -kInfinity) best.push_back(static_cast<TokenId>(id));
    std::ranges::stable_sort(best, std::ranges::greater{}, value);
    best.resize(std::min(best.size(), k));
    return best;
}

TokenId arg_max(std::span<const float> values) {
    float best = -kInfinity;
    std::size_t best_first = 0; // the first chunk that holds the best value
    for (std::size_t first = 0; first < values.size(); first += kChunk) {
        const LogitScan scan = row_kernels().scan(values.data() + first, std::min(kChunk, values.size() - first));
        if (scan.has_nan) throw std::runtime_error("a logit is not a number");
        if (scan.max <= best) continue;
        best = scan.max;
        best_first = first;
    }
    for (std::size_t i = best_first; i < values.size(); ++i)
        if (values[i] == best) return static_cast<TokenId>(i);
    throw std::runtime_error(fmt::format("no arg max: none of {} values is a number", values.size()));
}

TokenId sample(std::span<const float> probabilities, double u) {
    const TokenId token = sample_weights(probabilities, {}, 1, u);
    if (token < 0) throw NothingToSay();
    return token;
}

TokenId sample_excess(std::span<const float> p, std::span<const float> q, double u, double factor) {
    if (p.size() != q.size() || p.empty()) throw std::invalid_argument("sample_excess needs rows of one length");
    return sample_weights(p, q, factor, u);
}

double entropy_nats(std::span<const float> probabilities) {
    return row_kernels().entropy(probabilities.data(), probabilities.size());
}

double sum_of_excess(std::span<const float> p, std::span<const float> q, double factor) {
    if (p.size() != q.size()) throw std::invalid_argument("sum_of_excess needs rows of one length");
    return row_kernels().sum_of_excess(p.data(), factor, q.data(), p.size());
}

} // namespace entrodraft::spec
