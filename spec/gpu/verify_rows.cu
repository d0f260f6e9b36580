// Compares the target's rows with the draft's rows that tokens were drawn from. Computes the figures for `rejection`
// and `block`, and the token to emit if acceptance ends at a row. Softmaxes and sums inside a block are float32, and
// sums over blocks are double. The order of additions depends on shapes alone.
#include "spec/gpu/kernels.h"

#include "model/gpu/row_best.cuh"
#include "model/gpu/simt.cuh"

#include <algorithm>

namespace entrodraft::spec::gpu {

namespace {

__device__ const float* row_of(const VerifyCall& call, int row) {
    return call.logits + static_cast<std::size_t>(row) * call.stride;
}

__device__ bool is_verified(const VerifyCall& call, int row) {
    return call.drafted[row].noise.temperature > 0;
}

// exp((x - max) / temperature); 0 for a banned token.
__device__ float weight(float x, float max, float scale) {
    const float d = (x - max) * scale;
    return d < kLowest ? 0.0f : expf(d);
}

__device__ SoftmaxMass mass_of_part(const float* x, const BlockShare& share, float scale) {
    Best best = {0, -1, -INFINITY};
    for (int i = share.begin + static_cast<int>(threadIdx.x); i < share.end; i += kRowThreads)
        best = better(best, {x[i], i, -INFINITY});
    best = best_of_block(best);
    __syncthreads(); // the same memory serves the draft's row
    float sum = 0;
    for (int i = share.begin + static_cast<int>(threadIdx.x); i < share.end; i += kRowThreads)
        sum += weight(x[i], best.max, scale);
    sum = block_sum(sum);
    return {best.at < 0 ? -INFINITY : best.max, 0, static_cast<double>(sum)};
}

__global__ void mass_parts(VerifyCall call) {
    begin_kernel();
    const BlockShare share = share_of_block(call.count);
    if (!is_verified(call, share.row)) return;
    const DeviceDraftedRow drafted = call.drafted[share.row];
    const auto scale = static_cast<float>(1 / drafted.noise.temperature);
    VerifyMasses masses = {};
    masses.target = mass_of_part(row_of(call, share.row), share, scale);
    if (drafted.draft_logits != nullptr) {
        __syncthreads();
        masses.draft = mass_of_part(drafted.draft_logits, share, scale);
    }
    if (threadIdx.x == 0) call.mass_parts[share.row * kStatsBlocks + share.part] = masses;
}

// Merges the parts of a row, one in each lane.
__device__ SoftmaxMass merged(const SoftmaxMass& part, double temperature) {
    SoftmaxMass whole = {warp_max(part.max), 0, 0};
    const double share = exp((static_cast<double>(part.max) - static_cast<double>(whole.max)) / temperature);
    whole.sum = warp_sum(part.max == -INFINITY ? 0.0 : part.sum * share);
    whole.inverse_sum = static_cast<float>(1 / whole.sum);
    return whole;
}

__device__ float probability(float x, const SoftmaxMass& mass, float scale) {
    return __fmul_rn(weight(x, mass.max, scale), mass.inverse_sum); // rounded, so that equal rows stay equal
}

constexpr int kMaxMergeWarps = 32;

// One block. Each warp takes rows; then one thread goes through the texts in order.
__global__ void __launch_bounds__(kMaxMergeWarps* kWarp) merge_masses(VerifyCall call) {
    begin_kernel();
    for (int row = warp_of_thread(); row < call.rows; row += static_cast<int>(blockDim.x) / kWarp) {
        if (!is_verified(call, row)) continue;
        const DeviceDraftedRow drafted = call.drafted[row];
        const auto scale = static_cast<float>(1 / drafted.noise.temperature);
        const VerifyMasses part = call.mass_parts[row * kStatsBlocks + lane_of_thread()];
        VerifyMasses masses = {merged(part.target, drafted.noise.temperature), {}};
        VerifiedRow verified = {};
        verified.scale = 1;
        verified.next = -1;
        if (drafted.draft_logits != nullptr) {
            masses.draft = merged(part.draft, drafted.noise.temperature);
            verified.p = probability(row_of(call, row)[drafted.drafted], masses.target, scale);
            verified.q = probability(drafted.draft_logits[drafted.drafted], masses.draft, scale);
        }
        if (lane_of_thread() > 0) continue;
        call.masses[row] = masses;
        call.verified[row] = verified;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int r = 1; r < call.rows; ++r) {
        if (!is_verified(call, r) || call.drafted[r].is_first != 0 || call.drafted[r].is_scaled == 0) continue;
        const VerifiedRow& before = call.verified[r - 1];
        const double share = before.scale * (before.p / before.q);
        call.verified[r].scale = share < 1 ? share : 1;
    }
}

// Tokens without excess rank after all tokens with some. If a row has no excess, p and q are equal up to rounding, and
// the row gives a sample of p.
constexpr float kBehind = -1e4f;

__global__ void excess_parts(VerifyCall call) {
    begin_kernel();
    const BlockShare share = share_of_block(call.count);
    if (!is_verified(call, share.row)) return;
    const DeviceDraftedRow drafted = call.drafted[share.row];
    const VerifyMasses masses = call.masses[share.row];
    const auto scale = static_cast<float>(1 / drafted.noise.temperature);
    const auto share_of_p = static_cast<float>(call.verified[share.row].scale);
    const float* x = row_of(call, share.row);
    const auto p_of = [&](int i) { return probability(x[i], masses.target, scale); };
    const auto q_of = [&](int i) {
        return drafted.draft_logits == nullptr ? 0.0f : probability(drafted.draft_logits[i], masses.draft, scale);
    };
    const auto excess_of = [&](int i) { return fmaf(share_of_p, p_of(i), -q_of(i)); };
    float excess = 0, overlap = 0;
    for (int i = share.begin + static_cast<int>(threadIdx.x); i < share.end; i += kRowThreads) {
        const float p = p_of(i), q = q_of(i), e = excess_of(i);
        excess += e <= 0 ? 0.0f : e; // a NaN stays
        const float acceptable = p / drafted.lenience;
        overlap += acceptable < q ? acceptable : q;
    }
    excess = block_sum(excess);
    __syncthreads();
    overlap = block_sum(overlap);
    const DeviceNoisy best = noisiest_of_block(
        share, drafted.noise, [](int i) { return i; },
        [&](int i) {
            const float e = excess_of(i);
            return e > 0 ? logf(e) : kBehind + (x[i] - masses.target.max) * scale;
        },
        [&](int i) {
            const float e = excess_of(i);
            return e > 0 ? natural_log(static_cast<double>(e))
                         : static_cast<double>(kBehind + (x[i] - masses.target.max) * scale);
        });
    if (threadIdx.x == 0)
        call.parts[share.row * kStatsBlocks + share.part] = {static_cast<double>(excess), static_cast<double>(overlap),
                                                             best};
}

// Each warp takes a row, each lane a part.
__global__ void merge_excess(VerifyCall call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.x);
    if (!is_verified(call, row)) return; // the whole warp
    const VerifyPart part = call.parts[row * kStatsBlocks + lane_of_thread()];
    const double excess = warp_sum(part.excess), overlap = warp_sum(part.overlap);
    const DeviceNoisy best = best_of_warp(part.best);
    if (lane_of_thread() > 0) return;
    VerifiedRow& verified = call.verified[row];
    verified.excess = excess;
    verified.overlap = overlap;
    verified.next = best.token;
}

__global__ void widen(WidenCall call) {
    begin_kernel();
    const auto row = static_cast<std::size_t>(blockIdx.y);
    const int step = static_cast<int>(gridDim.x * blockDim.x);
    for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < call.width; i += step) {
        const int own = i - call.begin;
        const bool is_own = own >= 0 && own < call.count;
        call.wide[row * static_cast<std::size_t>(call.width) + static_cast<std::size_t>(i)] =
            is_own ? call.logits[row * static_cast<std::size_t>(call.count) + static_cast<std::size_t>(own)] : 0.0f;
    }
}

} // namespace

void verify_rows(void* stream, const VerifyCall& call) {
    const Grid parts = {dim3(kStatsBlocks, static_cast<unsigned>(call.rows)), kRowThreads};
    launch(stream, parts, mass_parts, call);
    launch(stream, {1, static_cast<unsigned>(std::min(call.rows, kMaxMergeWarps) * kWarp)}, merge_masses, call);
    launch(stream, parts, excess_parts, call);
    launch(stream, {static_cast<unsigned>(call.rows), kWarp}, merge_excess, call);
}

void widen_rows(void* stream, const WidenCall& call) {
    launch(stream, {dim3(kStatsBlocks, static_cast<unsigned>(call.rows)), kRowThreads}, widen, call);
}

} // namespace entrodraft::spec::gpu
