// Quantiles and intervals: see statistics.h.
#include "launch/start/statistics.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

namespace entrodraft::launch {

namespace {

// Returns the 97.5 % quantile of Student's t by Cornish and Fisher's expansion about the normal quantile. The expansion
// is too narrow for few degrees of freedom; a table has those.
double student_quantile(double degrees) {
    constexpr double kOfFew[] = {12.706205, 4.302653, 3.182446};
    if (degrees <= 3) return kOfFew[static_cast<std::size_t>(degrees) - 1];
    const double z = 1.959964;
    const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z, n = degrees;
    return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

// Returns the interval about `mean`. Its logarithm is linear in `influences`, one for each prompt, which add up to 0.
Interval log_interval(double mean, const std::vector<double>& influences) {
    const auto n = static_cast<double>(influences.size());
    if (n < 2) return {mean, mean, mean, influences.size()};
    double squares = 0;
    for (const double influence : influences)
        squares += influence * influence;
    const double factor = std::exp(student_quantile(n - 1) * std::sqrt(n / (n - 1) * squares));
    return {mean, mean / factor, mean * factor, influences.size()};
}

} // namespace

Quantiles quantiles_of(std::vector<double> samples) {
    if (samples.empty()) return {};
    std::sort(samples.begin(), samples.end());
    const auto at = [&](double share) {
        return samples[static_cast<std::size_t>(std::lround(share * static_cast<double>(samples.size() - 1)))];
    };
    const auto n = static_cast<double>(samples.size());
    const double mean = total_of(samples) / n;
    double squares = 0;
    for (const double sample : samples)
        squares += (sample - mean) * (sample - mean);
    return {at(0.5), at(0.9), at(0.99), mean, samples.size() > 1 ? std::sqrt(squares / (n - 1)) : 0};
}

double total_of(std::span<const double> samples) {
    return std::accumulate(samples.begin(), samples.end(), 0.0);
}

Interval ratio_interval(std::span<const double> values, std::span<const double> weights) {
    const double sum = total_of(values), weight = total_of(weights);
    if (!(weight > 0 && sum > 0)) return {};
    std::vector<double> influences;
    for (std::size_t i = 0; i < values.size(); ++i)
        influences.push_back(values[i] / sum - weights[i] / weight);
    return log_interval(sum / weight, influences);
}

void PromptTimes::add(const std::vector<spec::Stats>& stats_of_prompts) {
    ms.resize(stats_of_prompts.size());
    tokens.resize(stats_of_prompts.size());
    for (std::size_t i = 0; i < stats_of_prompts.size(); ++i) {
        const spec::StepSeconds& seconds = stats_of_prompts[i].seconds;
        ms[i] += (seconds.total - seconds.prefill) * 1e3;
        tokens[i] += static_cast<double>(stats_of_prompts[i].new_tokens);
    }
}

Interval speedup_interval(const PromptTimes& plain, const PromptTimes& times) {
    const double plain_ms = total_of(plain.ms), plain_tokens = total_of(plain.tokens);
    const double ms = total_of(times.ms), tokens = total_of(times.tokens);
    if (!(plain_ms > 0 && plain_tokens > 0 && ms > 0 && tokens > 0)) return {};
    std::vector<double> influences;
    for (std::size_t i = 0; i < times.ms.size(); ++i)
        influences.push_back(plain.ms[i] / plain_ms - plain.tokens[i] / plain_tokens - times.ms[i] / ms +
                             times.tokens[i] / tokens);
    return log_interval(plain_ms / plain_tokens * tokens / ms, influences);
}

std::string format_interval(const Interval& interval, int decimals) {
    if (!interval.is_known()) return "-";
    return fmt::format("{:.{}f} to {:.{}f}", interval.low, decimals, interval.high, decimals);
}

std::string format_speedup_interval(const Interval& interval) {
    return format_interval(interval, 3) + (interval.is_known() && interval.contains(1) ? ", no difference seen" : "");
}

} // namespace entrodraft::launch
