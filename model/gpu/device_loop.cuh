// Functions for kernels of a device loop: one records the last row, another makes the next row from it. In each pass a
// single thread calls them.
//
// Included by .cu files that implement DeviceExtension::decide.
#pragma once

#include "model/gpu/device_extension.h"
#include "model/gpu/pass_table.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

struct LoopToken {
    std::int32_t token; // -1: none
    float logit;
    float margin; // lead over the second-best
};

// Notes the row and returns its token: the Gumbel-max sample if the row has noise, else the arg max.
__device__ inline LoopToken note_row(const DeviceLoop& loop) {
    LoopState& state = *loop.state;
    const DeviceNoisy noisy = loop.noisy != nullptr ? loop.noisy[0] : DeviceNoisy{0, -1, 0, -INFINITY};
    state.first_row = state.n_rows;
    state.rows[state.n_rows++] = {loop.stats[0], noisy};
    if (loop.noisy != nullptr && loop.table->noises[0].temperature > 0)
        return {noisy.token, noisy.logit, static_cast<float>(noisy.value - noisy.runner_up)};
    const DeviceLogitStats& stats = loop.stats[0];
    return {stats.arg_max, stats.max, stats.max - stats.runner_up};
}

// Sets whether the loop makes another pass, over the rows that the table has then.
__device__ inline void go_on(const DeviceLoop& loop, bool goes_on) {
#ifdef ENTRODRAFT_CUDA_STAND_IN
    cuda_stand_in::set_condition(loop.condition, goes_on);
#else
    cudaGraphSetConditional(loop.condition, goes_on ? 1 : 0);
#endif
}

// Makes this token row 0, after the noted row, if another row is wanted and allowed. Returns whether it did.
__device__ inline bool make_next_row(const DeviceLoop& loop, std::int32_t token, bool is_wanted) {
    const bool goes_on = token >= 0 && is_wanted && loop.state->n_rows < loop.state->max_rows;
    go_on(loop, goes_on);
    if (!goes_on) return false;
    PassTable& table = *loop.table;
    const std::int32_t from = table.logit_rows[0];
    table.tokens[0] = token;
    table.slots[0] = table.slots[from];
    table.positions[0] = table.positions[from] + 1;
    table.places[0] = table.places[from] + 1;
    table.n_keys[0] = table.places[0] + 1;
    table.prefix_slots[0] = table.prefix_slots[from];
    table.prefix_lengths[0] = table.prefix_lengths[from];
    table.mask_begins[0] = -1;
    table.source_slots[0] = table.source_slots[from];
    table.source_lengths[0] = table.source_lengths[from];
    table.logit_rows[0] = 0;
    loop.parents[0] = from;
    if (loop.noisy != nullptr) ++table.noises[0].position;
    return true;
}

} // namespace entrodraft::model::gpu
