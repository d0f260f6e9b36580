// What rows of logits say, in one pass over them: largest, its lowest place, and the sums behind entropy and
// probabilities; and with noise on them the best again.
#include "entrodraft/model/gpu/kernels.h"
#include "entrodraft/model/gpu/noise.cuh"
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

__device__ Best of_other_lane(const Best& best, int step) {
    return {__shfl_xor_sync(kAllLanes, best.max, step), __shfl_xor_sync(kAllLanes, best.at, step)};
}

__device__ DeviceNoisy better(const DeviceNoisy& a, const DeviceNoisy& b) {
    if (b.token < 0) return a;
    if (a.token < 0 || b.value > a.value || (b.value == a.value && b.token < a.token)) return b;
    return a;
}

__device__ DeviceNoisy of_other_lane(const DeviceNoisy& best, int step) {
    return {__shfl_xor_sync(kAllLanes, best.value, step), __shfl_xor_sync(kAllLanes, best.token, step),
            __shfl_xor_sync(kAllLanes, best.logit, step)};
}

template <typename T> __device__ T best_of_block(T best) {
    __shared__ T of_warps[kThreads / kWarp];
    for (int step = kWarp / 2; step > 0; step /= 2)
        best = better(best, of_other_lane(best, step));
    if (lane_of_thread() == 0) of_warps[warp_of_thread()] = best;
    __syncthreads();
    best = of_warps[0];
    for (int i = 1; i < kThreads / kWarp; ++i)
        best = better(best, of_warps[i]);
    return best;
}

// What block x of row y looks at: [begin, end) of the row's logits x.
struct BlockShare {
    int row, part, begin, end;
    const float* x;
};

__device__ BlockShare share_of_block(const SummarizeCall& call) {
    const int row = static_cast<int>(blockIdx.y), part = static_cast<int>(blockIdx.x);
    const int share = (call.count + kStatsBlocks - 1) / kStatsBlocks, begin = part * share;
    const int end = begin + share < call.count ? begin + share : call.count;
    return {row, part, begin, end, call.logits + static_cast<std::size_t>(row) * call.stride};
}

__global__ void summarize_parts(SummarizeCall call) {
    const auto [row, part, begin, end, x] = share_of_block(call);
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

__device__ float largest_of_block(float value) {
    __shared__ float of_warps[kThreads / kWarp];
    value = warp_max(value);
    if (lane_of_thread() == 0) of_warps[warp_of_thread()] = value;
    __syncthreads();
    value = of_warps[0];
    for (int i = 1; i < kThreads / kWarp; ++i)
        value = of_warps[i] > value ? of_warps[i] : value;
    return value;
}

// A rough look at all tokens, then the exact values of those that may be best.
__global__ void noisy_parts(SummarizeCall call) {
    const auto [row, part, begin, end, x] = share_of_block(call);
    const DeviceNoise noise = call.noises[row];
    DeviceNoisy best = {0, -1, 0};
    if (noise.temperature > 0) {
        const auto scale = static_cast<float>(1 / noise.temperature);
        const auto token_at = [&](int i) { return static_cast<std::uint32_t>(i + call.first_token); };
        float most = -INFINITY;
        for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
            const float rough = x[i] * scale + rough_noise(word_of(noise, token_at(i)));
            most = rough > most ? rough : most;
        }
        most = largest_of_block(most);
        const float enough = most - (1e-3f + 4e-7f * fabsf(most));
        for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
            const std::uint32_t token = token_at(i), word = word_of(noise, token);
            if (!(x[i] > -INFINITY)) continue;
            if (word >= kRefinedBelow && x[i] * scale + rough_noise(word) < enough) continue;
            const double value = __dadd_rn(__ddiv_rn(x[i], noise.temperature), noise_of_word(word, noise, token));
            best = better(best, {value, static_cast<std::int32_t>(token), x[i]});
        }
    }
    best = best_of_block(best);
    if (threadIdx.x == 0) call.noisy_partial[row * kStatsBlocks + part] = best;
}

__global__ void merge_noisy_parts(SummarizeCall call) {
    const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (row >= call.rows) return;
    DeviceNoisy best = {0, -1, 0};
    for (int i = 0; i < kStatsBlocks; ++i)
        best = better(best, call.noisy_partial[row * kStatsBlocks + i]);
    call.noisy[row] = best;
}

} // namespace

void summarize_logits(void* stream, const SummarizeCall& call) {
    launch(stream, {dim3(kStatsBlocks, static_cast<unsigned>(call.rows)), kThreads}, summarize_parts, call);
    const Grid merge = {blocks_for(static_cast<std::size_t>(call.rows), kWarp), kWarp};
    launch(stream, merge, merge_parts, call);
    if (call.noises == nullptr) return;
    launch(stream, {dim3(kStatsBlocks, static_cast<unsigned>(call.rows)), kThreads}, noisy_parts, call);
    launch(stream, merge, merge_noisy_parts, call);
}

} // namespace entrodraft::model::gpu
