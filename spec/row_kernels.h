// The inner loops over a row of the vocabulary, compiled once for each instruction set.
//
// Every set adds in the same 16 lanes and without fused multiply-add, so that all give the same bits: a text at a
// seed does not depend on the processor. No meaning lives here: sampling.cpp knows what the rows are.
#pragma once

#include <cstddef>
#include <vector>

namespace entrodraft::spec {

struct RowScan {
    float max = 0; // -inf where no value is a number
    bool has_nan = false;
};

struct RowMass {
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

struct RowKernels {
    RowScan (*scan)(const float* values, std::size_t n);
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
    RowMass (*mass_at_least)(const float* values, std::size_t n, float low, const float* weights);
    double (*sum)(const float* weights, std::size_t n);
    // Sum of max(0, p - q).
    double (*sum_of_excess)(const float* p, const float* q, std::size_t n);
};

// The ones for this processor. Local.
const RowKernels& row_kernels();
// Those of every instruction set that this processor has, for tests: the last is the one chosen.
std::vector<const RowKernels*> all_row_kernels();

} // namespace entrodraft::spec
