// The inner loops over a row of the vocabulary, compiled once for each instruction set.
//
// Every set adds in the same 16 lanes and without fused multiply-add, so that all give the same bits: a text at a
// seed does not depend on the processor. No meaning lives here: sampling.cpp knows what the rows are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace entrodraft::spec {

struct LogitScan {
    float max = 0; // -inf where no value is a number
    bool has_nan = false;
};

struct ProbabilityMass {
    double mass = 0;
    std::size_t count = 0;
};

// exp((x - max) / temperature), and what the loop needs of it.
struct Exponential {
    float max = 0;
    float scale = 1;      // log2(e) / temperature
    float scale_high = 1; // its leading 12 bits
    float scale_low = 0;  // and the rest
};

constexpr std::size_t kGumbelGroup = 64; // tokens whose noise one set of 16 Philox blocks holds

// What the search for the largest (value - max) * scale + noise needs to know.
struct GumbelScan {
    float max = 0;
    float scale = 1;               // 1 / temperature
    float least = 0;               // groups that stay below are passed over
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
    // Looks at whole groups of kGumbelGroup values for one that may beat scan.least once noise is on it, and stops at
    // the first group with such a value: fills `words` with the group's noise (numbered as in random.h), `bounds` with
    // what its values can reach, and returns its start; n (a multiple of the group) where there is none.
    std::size_t (*gumbel_candidates)(const float* values, std::size_t n, const GumbelScan& scan, std::uint32_t* words,
                                     float* bounds);
    // Fills `words` with the noise words of the group that begins with scan.first_block, and `noise` with its noise:
    // absolute error below 4e-6, for words of 2^20 and more (random.h refines the others). Returns the least word.
    std::uint32_t (*gumbel_noise)(const GumbelScan& scan, std::uint32_t* words, float* noise);
};

// The ones for this processor.
const SamplingKernels& row_kernels();
// Those of every instruction set that this processor has, for tests: the last is the one chosen.
std::vector<const SamplingKernels*> all_row_kernels();

} // namespace entrodraft::spec
