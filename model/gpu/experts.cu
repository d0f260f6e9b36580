// Chooses the experts of rows and adds up their outputs; linear.cu has the products in between.
#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

#include <stdexcept>
#include <string>

namespace entrodraft::model::gpu {

namespace {

constexpr int kThreads = 256;

// The scores of a row's experts, and the values that choose them; -infinity for experts that must not be chosen.
struct Scores {
    float own[kMaxExperts];
    float values[kMaxExperts];
};

// Lane l has experts l, l + 32, ...
__device__ void make_scores(const ChooseExperts& call, int row, Scores& scores) {
    const float* logits = call.logits + static_cast<std::size_t>(row) * static_cast<std::size_t>(call.stride);
    float largest = -INFINITY, sum = 0;
    for (int e = lane_of_thread(); e < call.n_experts; e += kWarp)
        largest = fmaxf(largest, logits[e]);
    largest = warp_max(largest);
    for (int e = lane_of_thread(); e < call.n_experts; e += kWarp) {
        const bool is_softmax = call.score == RouterScore::softmax;
        scores.own[e] = is_softmax ? expf(logits[e] - largest) : 1.0f / (1.0f + expf(-logits[e]));
        sum += scores.own[e];
    }
    sum = call.score == RouterScore::softmax ? warp_sum(sum) : 1.0f;
    for (int e = lane_of_thread(); e < call.n_experts; e += kWarp) {
        scores.own[e] /= sum;
        scores.values[e] = call.correction == nullptr ? scores.own[e] : scores.own[e] + call.correction[e];
    }
    __syncwarp();
}

// Returns the largest of [begin, end), the first among equals. Serial.
__device__ int best_of(const float* values, int begin, int end) {
    int best = begin;
    for (int i = begin + 1; i < end; ++i)
        if (values[i] > values[best]) best = i;
    return best;
}

// Excludes experts outside the best groups. `groups`: workspace, [n_groups].
__device__ void mask_groups(const ChooseExperts& call, Scores& scores, float* groups) {
    const int lane = lane_of_thread(), size = call.n_experts / call.n_groups;
    if (call.n_chosen_groups == call.n_groups) return;
    for (int g = lane; g < call.n_groups; g += kWarp) {
        float* values = scores.values;
        float taken[kMaxChosen], sum = 0;
        int places[kMaxChosen];
        for (int i = 0; i < call.n_group_best; ++i) {
            places[i] = best_of(values, g * size, (g + 1) * size);
            taken[i] = values[places[i]];
            sum += taken[i];
            values[places[i]] = -INFINITY;
        }
        for (int i = 0; i < call.n_group_best; ++i)
            values[places[i]] = taken[i];
        groups[g] = sum;
    }
    __syncwarp();
    if (lane == 0)
        for (int i = 0; i < call.n_chosen_groups; ++i)
            groups[best_of(groups, 0, call.n_groups)] = -INFINITY; // marks a group that stays
    __syncwarp();
    for (int e = lane; e < call.n_experts; e += kWarp)
        if (groups[e / size] != -INFINITY) scores.values[e] = -INFINITY;
    __syncwarp();
}

// Returns a warp's best expert: the largest value, the lowest expert among equals.
__device__ int best_expert(const ChooseExperts& call, const Scores& scores) {
    int best = -1;
    for (int e = lane_of_thread(); e < call.n_experts; e += kWarp)
        if (best < 0 || scores.values[e] > scores.values[best]) best = e;
    for (int step = kWarp / 2; step > 0; step /= 2) {
        const int other = __shfl_xor_sync(kAllLanes, best, step);
        if (other < 0) continue;
        if (best < 0 || scores.values[other] > scores.values[best] ||
            (scores.values[other] == scores.values[best] && other < best))
            best = other;
    }
    return best;
}

// One warp per row.
__global__ void choose_for_rows(RowTable table, ChooseExperts call) {
    begin_kernel();
    __shared__ Scores scores;
    __shared__ float groups[kMaxExperts];
    __shared__ int found[kMaxChosen];
    const int row = static_cast<int>(blockIdx.x), lane = lane_of_thread(), n = call.n_chosen;
    std::int32_t* chosen = call.chosen + row * n;
    if (table.slots[row] < 0) { // the whole warp
        for (int i = lane; i < n; i += kWarp)
            chosen[i] = -1;
        return;
    }
    make_scores(call, row, scores);
    mask_groups(call, scores, groups);
    for (int i = 0; i < n; ++i) {
        const int best = best_expert(call, scores);
        __syncwarp();
        if (lane == 0) {
            found[i] = best;
            scores.values[best] = -INFINITY;
        }
        __syncwarp();
    }
    if (lane < n) { // in the order of their numbers
        int place = 0;
        for (int i = 0; i < n; ++i)
            place += found[i] < found[lane] || (found[i] == found[lane] && i < lane) ? 1 : 0; // NaNs repeat an expert
        chosen[place] = found[lane];
    }
    __syncwarp();
    if (lane != 0) return;
    float sum = call.normalizes ? 1e-20f : 1.0f; // for scores that may all be 0
    for (int i = 0; i < n && call.normalizes; ++i)
        sum += scores.own[chosen[i]];
    for (int i = 0; i < n; ++i)
        call.weights[row * n + i] = scores.own[chosen[i]] / sum * call.scale;
}

// One block, with a thread per expert.
__global__ void list_pairs(ChooseExperts call, int n_choices) {
    begin_kernel();
    __shared__ int counts[kMaxExperts + 1];
    const int expert = static_cast<int>(threadIdx.x);
    int count = 0;
    for (int i = 0; i < n_choices; ++i)
        count += call.chosen[i] == expert ? 1 : 0;
    counts[expert] = count;
    __syncthreads();
    int at = 0, place = 0, n_live = 0; // pairs and live experts before this one, and all live ones
    for (int e = 0; e < call.n_experts; ++e) {
        const int is_live = counts[e] > 0 ? 1 : 0;
        n_live += is_live;
        if (e >= expert) continue;
        at += counts[e];
        place += is_live;
    }
    if (expert < call.n_experts) {
        call.begin[expert] = at;
        if (count > 0) call.live[place] = expert;
        if (expert >= n_live) call.live[expert] = -1;
    }
    if (expert == call.n_experts - 1) call.begin[call.n_experts] = at + count;
    for (int i = 0; i < n_choices; ++i) {
        if (call.chosen[i] < 0 && expert == 0) call.pairs[i] = -1;
        if (call.chosen[i] != expert) continue;
        call.pair_rows[at] = i / call.n_chosen;
        call.pairs[i] = at++;
    }
}

__global__ void add_expert_rows(AddExperts call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.y);
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= call.width) return;
    const auto width = static_cast<std::size_t>(call.width), column = static_cast<std::size_t>(i);
    float& y = call.y[static_cast<std::size_t>(row) * width + column];
    float sum = call.keeps ? y : 0;
    if (call.keeps && call.gates != nullptr) sum *= 1.0f / (1.0f + expf(-call.gates[row * call.gate_stride]));
    for (int c = row * call.n_chosen; c < (row + 1) * call.n_chosen && call.outputs != nullptr; ++c)
        if (const int pair = call.pairs[c]; pair >= 0)
            sum += call.weights[c] * call.outputs[static_cast<std::size_t>(pair) * width + column];
    y = sum;
}

} // namespace

void choose_experts(void* stream, const RowTable& table, const ChooseExperts& call) {
    if (call.n_experts > kMaxExperts || call.n_chosen > kMaxChosen)
        throw std::invalid_argument("experts on a GPU: up to " + std::to_string(kMaxExperts) +
                                    ", of which a row chooses up to " + std::to_string(kMaxChosen));
    launch(stream, {static_cast<unsigned>(table.rows), kWarp}, choose_for_rows, table, call);
    const unsigned n_warps = blocks_for(static_cast<std::size_t>(call.n_experts), kWarp);
    launch(stream, {1, n_warps * kWarp}, list_pairs, call, table.rows * call.n_chosen);
}

void add_experts(void* stream, const AddExperts& call) {
    const dim3 blocks(blocks_for(static_cast<std::size_t>(call.width), kThreads), static_cast<unsigned>(call.rows));
    launch(stream, {blocks, kThreads}, add_expert_rows, call);
}

} // namespace entrodraft::model::gpu
