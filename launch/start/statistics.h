// Samples summed up: quantiles, and how sure a mean over prompts is: 95 % intervals of ratios, on a logarithmic scale,
// so that none crosses 0. Pure.
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
    double deviation = 0; // standard, of the samples
};
Quantiles quantiles_of(std::vector<double> samples);
double total_of(std::span<const double> samples);

// A mean and its 95 % interval over prompts.
struct Interval {
    double mean = 0;
    double low = 0;
    double high = 0;
    std::size_t prompts = 0; // that it is over

    bool is_known() const { return prompts > 1; }
    bool contains(double value) const { return low <= value && value <= high; }
};

// Of a ratio of sums, sum(values) / sum(weights), over prompts: Student's interval of its linearised logarithm; without
// width for a single prompt, of none where either sum is 0. None of the values is negative.
Interval ratio_interval(std::span<const double> values, std::span<const double> weights);

// Decoding time and new tokens of each prompt, all repetitions together.
struct PromptTimes {
    std::vector<double> ms;
    std::vector<double> tokens;

    void add(const std::vector<spec::Stats>& stats_of_prompts);
};

// How many times as fast as `plain` `times` are, by time a token, paired over prompts. Texts may differ in length.
Interval speedup_interval(const PromptTimes& plain, const PromptTimes& times);

// "0.930 to 1.120"; "-" of a single prompt.
std::string format_interval(const Interval& interval, int decimals);
// The same of a speed-up: "0.930 to 1.120, no difference seen" where it is known and contains 1.
std::string format_speedup_interval(const Interval& interval);

} // namespace entrodraft::launch
