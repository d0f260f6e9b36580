// Drafts a chain on the device. After each row, it keeps the row if asked to, and asks the stop rule whether to make
// another.
#include "spec/gpu/kernels.h"

#include "model/gpu/device_loop.cuh"
#include "spec/gpu/stop_rule.cuh"

namespace entrodraft::spec::gpu {

namespace {

__global__ void decide(DecideCall call) {
    begin_kernel();
    if (threadIdx.x != 0) return;
    DraftState& state = *call.state;
    const LoopToken token = note_row(call.loop);
    const int t = call.loop.state->n_rows;
    const bool is_wanted = !stops(state.rule, state.history, t, call.loop.stats[0], token.logit, token.margin);
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
