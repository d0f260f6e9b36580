#include "model/gpu/bandwidth.h"

#include "model/files/random_words.h"
#include "model/gpu/memory.h"
#include "model/gpu/simt.cuh"

#include <algorithm>
#include <chrono>
#include <vector>

namespace entrodraft::model::gpu {

namespace {

constexpr int kThreads = 512;
constexpr int kUnrolled = 4; // 16-byte reads under way per thread
constexpr unsigned kMaxBlocks = 2048;
constexpr double kTimeout = 60;

// Memory of zeros takes less power to read, and was seen to be read faster.
__global__ void fill(std::uint64_t* to, std::size_t count) {
    begin_kernel();
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * kThreads;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step)
        to[i] = random_word(0, i);
}

__global__ void read_all(const uint4* from, std::size_t count, unsigned* never) {
    begin_kernel();
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * kThreads;
    auto mixed = static_cast<unsigned>(count); // not 0, but the compiler cannot know
    std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
    for (; i + (kUnrolled - 1) * step < count; i += kUnrolled * step) {
        uint4 got[kUnrolled];
#pragma unroll
        for (int k = 0; k < kUnrolled; ++k)
            got[k] = load_streaming(from + i + static_cast<std::size_t>(k) * step);
#pragma unroll
        for (int k = 0; k < kUnrolled; ++k)
            mixed |= got[k].x | got[k].y | got[k].z | got[k].w;
    }
    for (; i < count; i += step)
        mixed |= load_streaming(from + i).x;
    if (mixed == 0) *never = 1; // never true for random words: nothing is written, but the compiler must keep the reads
}

} // namespace

double read_rate(std::size_t bytes) {
    constexpr int kLaunches = 8, kRuns = 5;
    const std::size_t count = std::max<std::size_t>(bytes / sizeof(uint4), 1);
    const DeviceBytes array(count * sizeof(uint4));
    const DeviceArray<unsigned> never(1);
    const Stream stream;
    const unsigned blocks = std::min(blocks_for(count, static_cast<std::size_t>(kThreads) * kUnrolled), kMaxBlocks);
    launch(stream.handle(), {blocks, kThreads}, fill, reinterpret_cast<std::uint64_t*>(array.data()),
           array.size() / sizeof(std::uint64_t));
    std::vector<double> rates;
    for (int run = 0; run <= kRuns; ++run) {
        const auto began = std::chrono::steady_clock::now();
        for (int i = 0; i < kLaunches; ++i)
            launch(stream.handle(), {blocks, kThreads}, read_all, reinterpret_cast<const uint4*>(array.data()), count,
                   never.data());
        stream.wait(kTimeout);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        if (run > 0) rates.push_back(kLaunches * static_cast<double>(count * sizeof(uint4)) / seconds);
    }
    std::nth_element(rates.begin(), rates.begin() + kRuns / 2, rates.end());
    return rates[kRuns / 2];
}

} // namespace entrodraft::model::gpu
