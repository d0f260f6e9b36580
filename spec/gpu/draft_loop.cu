// What follows each row of a draft on the device: it is kept, if asked for, and the stop rule decides on another.
#include "spec/gpu/kernels.h"

#include "model/gpu/device_loop.cuh"

namespace entrodraft::spec::gpu {

namespace {

// As LogitStats has them, and as rules see them: rounded to float32.
__device__ double entropy_of(const DeviceLogitStats& stats) {
    const double entropy = log(stats.sum_exp) - stats.sum_shifted_exp / stats.sum_exp;
    return static_cast<double>(static_cast<float>(entropy > 0 ? entropy : 0));
}
__device__ double probability_of(const DeviceLogitStats& stats, float logit) {
    return exp(static_cast<double>(logit) - static_cast<double>(stats.max)) / stats.sum_exp;
}

// Whether no more is wanted behind the t-th token, which is the last of state.squares.
__device__ bool stops(DraftState& state, int t, double x, double probability) {
    const DeviceStopRule& stop = state.rule;
    if (stop.kind == DeviceStopRule::Kind::gain) {
        const double z = stop.weights[0] + stop.weights[1] * (sqrt(x) - 1.5) +
                         stop.weights[2] * (log(probability > 1e-4 ? probability : 1e-4) + 2);
        state.product *= 1 / (1 + exp(-z));
    }
    if (t < stop.first) return false;
    const int before = t - 1 < stop.window ? t - 1 : stop.window;
    double earlier = 0;
    for (int i = t - 1 - before; i < t - 1; ++i)
        earlier += state.squares[i];
    const double latest = state.squares[t - 1];
    switch (stop.kind) {
    case DeviceStopRule::Kind::never:
        return false;
    case DeviceStopRule::Kind::entropy:
        return x >= stop.threshold;
    case DeviceStopRule::Kind::moving_average:
        return before > 0 && latest >= stop.factor * earlier / before;
    case DeviceStopRule::Kind::squares:
        return earlier + latest >= stop.threshold;
    case DeviceStopRule::Kind::probability:
        return probability < stop.threshold;
    case DeviceStopRule::Kind::gain:
        return state.product < static_cast<double>(stop.least[t - 1]);
    }
    return false;
}

__global__ void decide(DecideCall call) {
    begin_kernel();
    if (threadIdx.x != 0) return;
    DraftState& state = *call.state;
    const LoopToken token = note_row(call.loop);
    const int t = call.loop.state->n_rows;
    const DeviceLogitStats stats = call.loop.stats[0];
    const double x = stats.sum_exp > 0 ? entropy_of(stats) : 0;
    if (t == 1) state.product = 1;
    state.squares[t - 1] = x * x;
    const bool is_wanted = !stops(state, t, x, probability_of(stats, token.logit));
    if (make_next_row(call.loop, token.token, is_wanted) && state.kept_row >= 0) ++state.kept_row;
}

__global__ void keep(KeepCall call) {
    begin_kernel();
    const std::int32_t number = *call.number;
    if (number < 0) return;
    const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < call.width; i += step)
        call.kept[static_cast<std::size_t>(number) * call.width + i] = call.row[i];
}

} // namespace

void decide_next_row(void* stream, const DecideCall& call) {
    launch(stream, {1, kWarp}, decide, call);
}

void keep_row(void* stream, const KeepCall& call) {
    constexpr int kThreads = 256;
    launch(stream, {blocks_for(call.width, 4 * kThreads), kThreads}, keep, call);
}

} // namespace entrodraft::spec::gpu
