#include "model/gpu/chain.h"

#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

namespace {

// As LogitStats says them, and as rules see them: rounded to float32.
__device__ double entropy_of(const DeviceLogitStats& stats) {
    const double entropy = log(stats.sum_exp) - stats.sum_shifted_exp / stats.sum_exp;
    return static_cast<double>(static_cast<float>(entropy > 0 ? entropy : 0));
}
__device__ double probability_of(const DeviceLogitStats& stats, float logit) {
    return exp(static_cast<double>(logit) - static_cast<double>(stats.max)) / stats.sum_exp;
}

// Whether no more is wanted behind the t-th token, which is the last of state.squares.
__device__ bool stops(const ChainStop& stop, ChainState& state, int t, double x, double probability) {
    if (stop.kind == ChainStop::Kind::gain) {
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
    case ChainStop::Kind::never:
        return false;
    case ChainStop::Kind::entropy:
        return x >= stop.threshold;
    case ChainStop::Kind::moving_average:
        return before > 0 && latest >= stop.factor * earlier / before;
    case ChainStop::Kind::squares:
        return earlier + latest >= stop.threshold;
    case ChainStop::Kind::probability:
        return probability < stop.threshold;
    case ChainStop::Kind::gain:
        return state.product < static_cast<double>(stop.least[t - 1]);
    }
    return false;
}

// One thread: notes the row, and makes row 0 of the table the next one, from row `from`.
__device__ void follow(const ChainCall& call, int from) {
    ChainState& state = *call.state;
    const ChainPlan& plan = *call.plan;
    const DeviceLogitStats stats = call.stats[0];
    const DeviceNoisy noisy = plan.has_noise != 0 ? call.noisy[0] : DeviceNoisy{0, -1, 0};
    const bool is_noisy = plan.has_noise != 0 && call.noises[0].temperature > 0;
    const std::int32_t token = is_noisy ? noisy.token : stats.arg_max;
    const int t = state.n_rows + 1;
    state.rows[t - 1] = {stats, noisy};
    state.n_rows = t;
    const double x = stats.sum_exp > 0 ? entropy_of(stats) : 0;
    state.squares[t - 1] = x * x;
    const bool goes_on = token >= 0 && t < plan.max_rows &&
                         !stops(plan.stop, state, t, x, probability_of(stats, is_noisy ? noisy.logit : stats.max));
#ifdef ENTRODRAFT_CUDA_STAND_IN
    cuda_stand_in::set_condition(call.condition, goes_on);
#else
    cudaGraphSetConditional(call.condition, goes_on ? 1 : 0);
#endif
    if (!goes_on) return;
    call.tokens[0] = token;
    call.slots[0] = call.slots[from];
    call.positions[0] = call.positions[from] + 1;
    call.places[0] = call.places[from] + 1;
    call.n_keys[0] = call.places[0] + 1;
    call.window_ends[0] = call.n_keys[0];
    call.first_keys[0] = 0;
    call.prefix_slots[0] = call.prefix_slots[from];
    call.prefix_lengths[0] = call.prefix_lengths[from];
    call.mask_begins[0] = -1;
    call.logit_rows[0] = 0;
    if (call.kept_rows[0] >= 0) ++call.kept_rows[0];
    if (plan.has_noise != 0) ++call.noises[0].position;
}

__global__ void begin(ChainCall call) {
    if (threadIdx.x != 0) return;
    call.state->n_rows = 0;
    call.state->product = 1;
    follow(call, call.plan->first_row);
}

__global__ void go_on(ChainCall call) {
    if (threadIdx.x == 0) follow(call, 0);
}

} // namespace

void begin_chain(void* stream, const ChainCall& call) {
    launch(stream, {1, kWarp}, begin, call);
}

void go_on_with_chain(void* stream, const ChainCall& call) {
    launch(stream, {1, kWarp}, go_on, call);
}

} // namespace entrodraft::model::gpu
