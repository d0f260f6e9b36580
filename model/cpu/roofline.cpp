// Measures the limits with the kernels' own instruction set: see roofline.h.
#include "model/cpu/roofline.h"

#include "model/cpu/kernels.h"
#include "model/host/buffer.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace entrodraft::model {

namespace {

constexpr int kRepetitions = 21;

template <typename Work> double median_seconds(ThreadTeam& team, Work&& work) {
    std::vector<double> seconds;
    for (int i = 0; i < kRepetitions; ++i) {
        const auto began = std::chrono::steady_clock::now();
        team.run(work);
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2, seconds.end());
    return seconds[kRepetitions / 2];
}

} // namespace

double read_rate(ThreadTeam& team, std::size_t bytes) {
    const auto& kernels = kernels::best_kernels();
    const auto threads = static_cast<std::size_t>(team.size());
    const std::size_t floats = bytes / sizeof(float) / threads; // per thread
    Buffer memory(floats * threads * sizeof(float), Pages::huge);
    std::vector<float> sums(threads * 16); // a cache line each: the sums must be kept
    team.run(
        [&](int thread) { std::fill_n(memory.as<float>() + static_cast<std::size_t>(thread) * floats, floats, 1.0f); });
    double best = 0;
    for (const bool prefetch : {false, true}) {
        const double seconds = median_seconds(team, [&](int thread) {
            const auto index = static_cast<std::size_t>(thread);
            sums[index * 16] += kernels.read_sum(memory.as<float>() + index * floats, floats, prefetch);
        });
        best = std::max(best, static_cast<double>(floats * threads * sizeof(float)) / seconds);
    }
    return best;
}

double arithmetic_peak(ThreadTeam& team) {
    const auto& kernels = kernels::best_kernels();
    constexpr int kIterations = 20000;
    std::vector<float> sinks(static_cast<std::size_t>(team.size()) * 16);
    std::vector<double> operations(static_cast<std::size_t>(team.size()));
    const double seconds = median_seconds(team, [&](int thread) {
        const auto index = static_cast<std::size_t>(thread);
        operations[index] = kernels.spin_multiply_add(kIterations, &sinks[index * 16]);
    });
    double total = 0;
    for (const double count : operations)
        total += count;
    return total / seconds;
}

} // namespace entrodraft::model
