// What rows of logits say, in one pass over them: largest, its lowest place, and the sums behind entropy and
// probabilities.
#include "entrodraft/model/gpu/kernels.h"
#include "entrodraft/model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kThreads = 256;
constexpr float kLowest = -87.0f; // exponents are cut off here, so that minus infinity times zero cannot arise

struct Best {
    float max;
    int at; // -1: none
};

__device__ Best better(const Best& a, const Best& b) {
    if (b.at < 0) return a;
    if (a.at < 0 || b.max > a.max || (b.max == a.max && b.at < a.at)) return b;
    return a;
}

__device__ Best best_of_block(Best best) {
    __shared__ Best of_warps[kThreads / kWarp];
    for (int step = kWarp / 2; step > 0; step /= 2)
        best = better(best, {__shfl_xor_sync(kAllLanes, best.max, step), __shfl_xor_sync(kAllLanes, best.at, step)});
    if (lane_of_thread() == 0) of_warps[warp_of_thread()] = best;
    __syncthreads();
    best = of_warps[0];
    for (int i = 1; i < kThreads / kWarp; ++i)
        best = better(best, of_warps[i]);
    return best;
}

// Block x of row y: its share of the logits, [begin, end).
__global__ void summarize_parts(SummarizeCall call) {
    const int row = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.x);
    const int share = (call.count + kStatsBlocks - 1) / kStatsBlocks, begin = part * share;
    const int end = begin + share < call.count ? begin + share : call.count;
    const float* x = call.logits + static_cast<std::size_t>(row) * call.stride;
    Best best = {0, -1};
    for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads)
        best = better(best, {x[i], i});
    best = best_of_block(best);
    float sum = 0, shifted = 0;
    for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
        const float fall = x[i] - best.max, d = fall > kLowest ? fall : kLowest, e = expf(d);
        sum += e;
        shifted += d * e;
    }
    sum = block_sum(sum);
    shifted = block_sum(shifted);
    if (threadIdx.x == 0)
        call.partial[row * kStatsBlocks + part] = {best.max, best.at < 0 ? -1 : best.at + call.first_token,
                                                   static_cast<double>(sum), static_cast<double>(shifted)};
}

// A thread a row: the parts in order, each brought to the largest so far.
__global__ void merge_parts(SummarizeCall call) {
    const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (row >= call.rows) return;
    DeviceLogitStats whole = {0, -1, 0, 0};
    for (int i = 0; i < kStatsBlocks; ++i) {
        const DeviceLogitStats part = call.partial[row * kStatsBlocks + i];
        if (part.arg_max < 0) continue;
        if (whole.arg_max < 0) {
            whole = part;
            continue;
        }
        // The part with the smaller largest shrinks; the sums of shifted terms shift with it.
        DeviceLogitStats high = part.max > whole.max ? part : whole, low = part.max > whole.max ? whole : part;
        const double fall = low.max == high.max ? 0.0 : static_cast<double>(low.max) - static_cast<double>(high.max);
        const double kept = exp(fall);
        high.sum_shifted_exp += (low.sum_shifted_exp + (kept > 0 ? fall * low.sum_exp : 0.0)) * kept;
        high.sum_exp += low.sum_exp * kept;
        whole = high;
    }
    call.stats[row] = whole;
}

} // namespace

void summarize_logits(void* stream, const SummarizeCall& call) {
    launch(stream, {dim3(kStatsBlocks, static_cast<unsigned>(call.rows)), kThreads}, summarize_parts, call);
    launch(stream, {blocks_for(static_cast<std::size_t>(call.rows), kWarp), kWarp}, merge_parts, call);
}

} // namespace entrodraft::model::gpu
