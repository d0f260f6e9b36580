// Statistics of samples: quantiles, and 95 % intervals of ratios over prompts. Intervals are computed on a logarithmic
// scale, so that no interval extends below 0. Pure.
#pragma once

#include "spec/protocol/stats.h"

#include <span>
#include <string>
#include <vector>

namespace entrodraft::launch {

struct Quantiles {
    double median = 0;
    double p90 = 0;
    double p99 = 0;
    double mean = 0;
    double deviation = 0; // standard deviation of the samples
};
Quantiles quantiles_of(std::vector<double> samples);
double total_of(std::span<const double> samples);

// A mean and its 95 % interval over prompts.
struct Interval {
    double mean = 0;
    double low = 0;
    double high = 0;
    std::size_t prompts = 0; // number of prompts

    bool is_known() const { return prompts > 1; }
    bool contains(double value) const { return low <= value && value <= high; }
};

// Returns the interval of the ratio sum(values) / sum(weights) over prompts: Student's interval of its linearised
// logarithm. It has no width for a single prompt, and zero prompts if either sum is 0. No value is negative.
Interval ratio_interval(std::span<const double> values, std::span<const double> weights);

// Decoding time and new tokens of each prompt, over all repetitions.
struct PromptTimes {
    std::vector<double> ms;
    std::vector<double> tokens;

    void add(const std::vector<spec::Stats>& stats_of_prompts);
};

// Returns how many times as fast `times` are as `plain`, by time a token, paired over prompts. Lengths may differ.
Interval speedup_interval(const PromptTimes& plain, const PromptTimes& times);

// Returns "0.930 to 1.120"; "-" for a single prompt.
std::string format_interval(const Interval& interval, int decimals);
// Like format_interval(), for a speed-up: "0.930 to 1.120, no difference seen" if it is known and contains 1.
std::string format_speedup_interval(const Interval& interval);

} // namespace entrodraft::launch
