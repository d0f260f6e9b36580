// Statistics of rows of logits: the largest logit, its lowest index, and the sums for entropy and probabilities. With
// noise, the best noisy token too.
#include "model/gpu/kernels.h"
#include "model/gpu/row_best.cuh"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

namespace {

__device__ const float* row_of(const SummarizeCall& call, int row) {
    return call.logits + static_cast<std::size_t>(row) * call.stride;
}

__device__ std::int32_t token_of(const SummarizeCall& call, int i) {
    return call.tokens != nullptr ? call.tokens[i] : i + call.first_token;
}

__global__ void summarize_parts(SummarizeCall call) {
    begin_kernel();
    const auto [row, part, begin, end] = share_of_block(call.count);
    const float* x = row_of(call, row);
    Best best = {0, -1, -INFINITY};
    for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kRowThreads)
        best = better(best, {x[i], i, -INFINITY});
    best = best_of_block(best);
    float sum = 0, shifted = 0;
    for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kRowThreads) {
        const float fall = x[i] - best.max, d = fall > kLowest ? fall : kLowest, e = expf(d);
        sum += e;
        shifted += d * e;
    }
    sum = block_sum(sum);
    shifted = block_sum(shifted);
    if (threadIdx.x == 0)
        call.partial[row * kStatsBlocks + part] = {best.max, best.at < 0 ? -1 : token_of(call, best.at),
                                                   static_cast<double>(sum), static_cast<double>(shifted),
                                                   best.runner_up};
}

// One warp per row, one lane per part.
__global__ void merge_parts(SummarizeCall call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.x), lane = lane_of_thread();
    const DeviceLogitStats stats = merged_over_warp(call.partial[row * kStatsBlocks + lane]);
    if (lane == 0) call.stats[row] = stats;
}

__global__ void noisy_parts(SummarizeCall call) {
    begin_kernel();
    const BlockShare share = share_of_block(call.count);
    const float* x = row_of(call, share.row);
    const DeviceNoise noise = call.noises[share.row];
    DeviceNoisy best = {0, -1, 0, -INFINITY};
    if (noise.temperature > 0) { // the same on all threads
        const auto scale = static_cast<float>(1 / noise.temperature);
        best = noisiest_of_block(
            share, noise, [&](int i) { return token_of(call, i); }, [&](int i) { return x[i] * scale; },
            [&](int i) { return __ddiv_rn(x[i], noise.temperature); });
        if (best.token >= 0) best = {best.value, token_of(call, best.token), x[best.token], best.runner_up};
    }
    if (threadIdx.x == 0) call.noisy_partial[share.row * kStatsBlocks + share.part] = best;
}

__global__ void merge_noisy_parts(SummarizeCall call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.x);
    const DeviceNoisy best = best_of_warp(call.noisy_partial[row * kStatsBlocks + lane_of_thread()]);
    if (lane_of_thread() == 0) call.noisy[row] = best;
}

} // namespace

void summarize_logits(void* stream, const SummarizeCall& call) {
    launch(stream, {dim3(kStatsBlocks, static_cast<unsigned>(call.rows)), kRowThreads}, summarize_parts, call);
    const Grid merge = {static_cast<unsigned>(call.rows), kWarp}; // one lane per part
    launch(stream, merge, merge_parts, call);
    if (call.noises == nullptr) return;
    launch(stream, {dim3(kStatsBlocks, static_cast<unsigned>(call.rows)), kRowThreads}, noisy_parts, call);
    launch(stream, merge, merge_noisy_parts, call);
}

} // namespace entrodraft::model::gpu
