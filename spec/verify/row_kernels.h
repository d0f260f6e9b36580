// The inner loops over a row of the vocabulary, compiled once for each instruction set.
//
// Every instruction set adds in the same 16 lanes and without fused multiply-add. So all give the same bits, and a text
// at a seed does not depend on the processor. sampling.cpp gives the rows their meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace entrodraft::spec {

struct LogitScan {
    float max = 0; // -inf if no value is a number
    bool has_nan = false;
};

struct ProbabilityMass {
    double mass = 0;
    std::size_t count = 0;
};

// The parameters of exp((x - max) / temperature), as the loop needs them.
struct Exponential {
    float max = 0;
    float scale = 1;      // log2(e) / temperature
    float scale_high = 1; // its leading 12 bits
    float scale_low = 0;  // and the rest
};

constexpr std::size_t kGumbelGroup = 64; // tokens whose noise one set of 16 Philox blocks holds

// The parameters of the search for the largest (value - max) * scale + noise.
struct GumbelScan {
    float max = 0;
    float scale = 1;               // 1 / temperature
    float least = 0;               // groups with no bound above it are skipped
    std::uint32_t first_block = 0; // Philox counter word 2 of the first group's first block
    std::uint32_t position[2] = {};
    std::uint32_t key[2] = {};
};

struct SamplingKernels {
    LogitScan (*scan)(const float* values, std::size_t n);
    // The largest value of each of 16 interleaved lanes in every `stride` * 16 values. Appends.
    void (*lane_maxima)(const float* values, std::size_t n, std::size_t stride, std::vector<float>& maxima);
    // Ids of low <= value < high, ascending. Appends.
    void (*collect)(const float* values, std::size_t n, float low, float high, std::vector<std::size_t>& ids);
    // Fills `weights`, 0 below 2^-100, and returns their sum (NaN if a value is NaN or above max).
    double (*exponentials)(const float* values, std::size_t n, const Exponential& exponential, float* weights);
    void (*scale)(float* weights, std::size_t n, float factor);
    // weights[i] *= values[i] >= low ? factor : 0
    void (*scale_at_least)(const float* values, std::size_t n, float low, float factor, float* weights);
    // Sum and number of the weights whose value is at least `low`.
    ProbabilityMass (*mass_at_least)(const float* values, std::size_t n, float low, const float* weights);
    double (*sum)(const float* weights, std::size_t n);
    // Sum of max(0, factor * p - q).
    double (*sum_of_excess)(const float* p, double factor, const float* q, std::size_t n);
    // Sum of -p log p in nats.
    double (*entropy)(const float* p, std::size_t n);
    // Searches whole groups of kGumbelGroup values for one that may beat scan.least with its noise. Stops at the first
    // group with such a value and returns the group's start: `words` then has its noise words (order as in random.h),
    // `bounds` upper bounds of its values with noise. Returns n (a multiple of the group) if there is none.
    std::size_t (*gumbel_candidates)(const float* values, std::size_t n, const GumbelScan& scan, std::uint32_t* words,
                                     float* bounds);
    // Fills `words` with the noise words of the group that begins with scan.first_block, and `noise` with its noise.
    // Its absolute error is below 4e-6 for words of 2^20 and more (random.h refines others). Returns the least word.
    std::uint32_t (*gumbel_noise)(const GumbelScan& scan, std::uint32_t* words, float* noise);
};

// The kernels for this processor.
const SamplingKernels& row_kernels();
// The kernels of every instruction set that this processor has, for tests. row_kernels() is the last.
std::vector<const SamplingKernels*> all_row_kernels();

} // namespace entrodraft::spec
