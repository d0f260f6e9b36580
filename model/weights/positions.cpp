// Rotary angles (Su et al. 2021, "RoFormer") and their stretched forms: linear (Chen et al. 2023), dynamic NTK, llama3
// (Llama 3.1), YaRN (Peng et al. 2023) and LongRoPE (Ding et al. 2024).
#include "model/weights/positions.h"

#include "model/files/half.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace entrodraft::model {
namespace {

std::vector<float> plain_frequencies(double theta, int dims) {
    std::vector<float> frequencies;
    for (int i = 0; i < dims / 2; ++i) {
        const float exponent = static_cast<float>(2 * i) / static_cast<float>(dims);
        frequencies.push_back(1.0f / std::pow(static_cast<float>(theta), exponent));
    }
    return frequencies;
}

// Stretches long waves in full, waves between long and short in part, and short waves not at all.
void stretch_llama3(const Rope& rope, std::vector<float>& frequencies) {
    const double longest = rope.original_positions / rope.low_frequency_factor;
    const double shortest = rope.original_positions / rope.high_frequency_factor;
    for (float& frequency : frequencies) {
        const float wave = static_cast<float>(2 * std::numbers::pi) / frequency;
        if (wave < shortest) continue;
        if (wave > longest) {
            frequency /= static_cast<float>(rope.factor);
            continue;
        }
        const double smooth = (rope.original_positions / static_cast<double>(wave) - rope.low_frequency_factor) /
                              (rope.high_frequency_factor - rope.low_frequency_factor);
        const auto share = static_cast<float>(smooth);
        frequency = (1 - share) * frequency / static_cast<float>(rope.factor) + share * frequency;
    }
}

// Stretches the pairs that turn fewer than beta_slow times within the original context in full, and those that turn
// more than beta_fast times not at all. Pairs between are stretched in part.
void stretch_yarn(const Rope& rope, std::vector<float>& frequencies) {
    const auto pair_of = [&](double turns) {
        return rope.dims * std::log(rope.original_positions / (turns * 2 * std::numbers::pi)) /
               (2 * std::log(rope.theta));
    };
    double low = pair_of(rope.beta_fast), high = pair_of(rope.beta_slow);
    if (rope.truncate) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(rope.dims - 1));
    if (low == high) high += 0.001;
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
        const auto stretched = static_cast<float>(ramp);
        frequencies[i] =
            frequencies[i] / static_cast<float>(rope.factor) * stretched + frequencies[i] * (1 - stretched);
    }
}

} // namespace

std::vector<float> inverse_frequencies(const Rope& rope, int length) {
    double theta = rope.theta;
    if (rope.scaling == RopeScaling::dynamic && length > rope.original_positions)
        theta *=
            std::pow(rope.factor * length / rope.original_positions - (rope.factor - 1), rope.dims / (rope.dims - 2.0));
    std::vector<float> frequencies = plain_frequencies(theta, rope.dims);
    if (rope.scaling == RopeScaling::linear)
        for (float& frequency : frequencies)
            frequency /= static_cast<float>(rope.factor);
    if (rope.scaling == RopeScaling::llama3) stretch_llama3(rope, frequencies);
    if (rope.scaling == RopeScaling::yarn) stretch_yarn(rope, frequencies);
    if (rope.scaling == RopeScaling::by_pair)
        for (std::size_t i = 0; i < frequencies.size(); ++i)
            frequencies[i] /= rope.pair_factors[i];
    return frequencies;
}

RotaryTable::RotaryTable(const Rope& rope) : rope_(rope), frequencies_(inverse_frequencies(rope, 0)) {}

void RotaryTable::cover(int position) {
    if (position < covered_) return;
    const int until = (position / 256 + 1) * 256;
    const auto factor = static_cast<float>(rope_.attention_factor);
    for (; covered_ < until; ++covered_) {
        const bool is_beyond = rope_.scaling == RopeScaling::dynamic && covered_ >= rope_.original_positions;
        if (is_beyond) frequencies_ = inverse_frequencies(rope_, covered_ + 1);
        for (const float frequency : frequencies_) {
            const float angle = static_cast<float>(covered_) * frequency;
            cosines_.push_back(std::cos(angle) * factor);
            sines_.push_back(std::sin(angle) * factor);
        }
    }
}

std::vector<float> alibi_slopes(int n_heads, bool is_rounded) {
    int power = 1;
    while (2 * power <= n_heads)
        power *= 2;
    const auto base_of = [](int n) { return static_cast<float>(std::exp2(-std::exp2(3.0 - std::log2(n)))); };
    std::vector<float> slopes;
    for (int i = 1; i <= power; ++i)
        slopes.push_back(std::pow(base_of(power), static_cast<float>(i)));
    for (int i = 1; static_cast<int>(slopes.size()) < n_heads; i += 2)
        slopes.push_back(std::pow(base_of(2 * power), static_cast<float>(i)));
    if (!is_rounded) return slopes;
    for (float& slope : slopes)
        slope = from_bfloat16(to_bfloat16(slope));
    return slopes;
}

float alibi_bias(const ModelConfig& config, float slope, int position) {
    const float bias = slope * static_cast<float>(position);
    // Falcon rounds it to bfloat16, adds it to the product, and scales both.
    return config.scaled_alibi ? from_bfloat16(to_bfloat16(bias)) * config.attention_scale : bias;
}

int relative_bucket(const RelativePositions& relative, int distance, bool is_bidirectional) {
    int n_buckets = relative.n_buckets, first = 0;
    if (is_bidirectional) {
        n_buckets /= 2;
        if (distance < 0) first = n_buckets;
        distance = std::abs(distance);
    }
    distance = std::max(distance, 0);
    const int n_exact = n_buckets / 2;
    if (distance < n_exact) return first + distance;
    const float share = std::log(static_cast<float>(distance) / static_cast<float>(n_exact)) /
                        static_cast<float>(std::log(static_cast<double>(relative.max_distance) / n_exact));
    return first + std::min(n_exact + static_cast<int>(share * static_cast<float>(n_buckets - n_exact)), n_buckets - 1);
}

std::vector<float> sinusoidal_table(int n_positions, int width) {
    std::vector<float> table;
    table.reserve(static_cast<std::size_t>(n_positions) * static_cast<std::size_t>(width));
    const int n_sines = (width + 1) / 2;
    for (int position = 0; position < n_positions; ++position) {
        for (int i = 0; i < width; ++i) {
            const int pair = i < n_sines ? i : i - n_sines;
            const double angle = position / std::pow(10000.0, 2.0 * pair / width);
            table.push_back(static_cast<float>(i < n_sines ? std::sin(angle) : std::cos(angle)));
        }
    }
    return table;
}

} // namespace entrodraft::model
