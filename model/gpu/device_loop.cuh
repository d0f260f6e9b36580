// A loop's rows in kernels: what the last one says, and how it becomes the next. Called by one thread, once a row.
//
// Included by .cu files that implement DeviceExtension::decide.
#pragma once

#include "model/gpu/device_loop.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

struct LoopToken {
    std::int32_t token; // -1: none
    float logit;
};

// Notes the row and its token: the Gumbel-max sample where it has noise, else the arg max.
__device__ inline LoopToken note_row(const DeviceLoop& loop) {
    LoopState& state = *loop.state;
    const DeviceNoisy noisy = loop.noisy != nullptr ? loop.noisy[0] : DeviceNoisy{0, -1, 0};
    state.rows[state.n_rows++] = {loop.stats[0], noisy};
    if (loop.noises != nullptr && loop.noises[0].temperature > 0) return {noisy.token, noisy.logit};
    return {loop.stats[0].arg_max, loop.stats[0].max};
}

// Row 0 of the table becomes this token, behind the row that has been noted, if another is wanted and may be made.
__device__ inline bool make_next_row(const DeviceLoop& loop, std::int32_t token, bool is_wanted) {
    const bool goes_on = token >= 0 && is_wanted && loop.state->n_rows < loop.state->max_rows;
#ifdef ENTRODRAFT_CUDA_STAND_IN
    cuda_stand_in::set_condition(loop.condition, goes_on);
#else
    cudaGraphSetConditional(loop.condition, goes_on ? 1 : 0);
#endif
    if (!goes_on) return false;
    const std::int32_t from = loop.logit_rows[0];
    loop.tokens[0] = token;
    loop.slots[0] = loop.slots[from];
    loop.positions[0] = loop.positions[from] + 1;
    loop.places[0] = loop.places[from] + 1;
    loop.n_keys[0] = loop.places[0] + 1;
    loop.window_ends[0] = loop.n_keys[0];
    loop.first_keys[0] = 0;
    loop.prefix_slots[0] = loop.prefix_slots[from];
    loop.prefix_lengths[0] = loop.prefix_lengths[from];
    loop.mask_begins[0] = -1;
    loop.logit_rows[0] = 0;
    if (loop.noises != nullptr) ++loop.noises[0].position;
    return true;
}

} // namespace entrodraft::model::gpu
