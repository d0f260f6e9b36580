// Makes rows of random weights in device memory: see model/files/generated_values.h.
#include "model/files/generated_values.h"
#include "model/gpu/kernels.h"
#include "model/gpu/simt.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kWarps = 8; // per block

// One warp per row.
template <typename Code> __global__ void fill_rows(RandomRows call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.x) * kWarps + warp_of_thread();
    if (row >= call.rows) return;
    const std::uint64_t first = (call.first_row + static_cast<std::uint64_t>(row)) * call.row_step;
    const auto index_of = [&](int input) {
        return random_weight_index(call.key, first + static_cast<std::uint64_t>(input) * call.input_step);
    };
    const Code* codes = static_cast<const Code*>(call.codes);
    if (call.scales != nullptr) {
        float largest = 0; // m; the magnitude is 2 m + 1
        for (int i = lane_of_thread(); i < call.whole_inputs; i += kWarp) {
            const int index = index_of(i), middle = kRandomWeights / 2;
            const auto magnitude = static_cast<float>(index < middle ? middle - 1 - index : index - middle);
            largest = magnitude > largest ? magnitude : largest;
        }
        const int table = static_cast<int>(warp_max(largest));
        codes += table * kRandomWeights;
        if (lane_of_thread() == 0) call.scales[row] = call.scale_of[table];
    }
    Code* out = static_cast<Code*>(call.out) + static_cast<std::size_t>(row) * static_cast<std::size_t>(call.stride);
    for (int i = lane_of_thread(); i < call.inputs; i += kWarp)
        out[sizeof(Code) == 1 ? int8_place(i) : i] = codes[index_of(call.first_input + i)];
}

// A warp makes a row, one group of 64 after another. Each lane has two consecutive inputs of a group.
__global__ void fill_int4_rows(RandomRows call) {
    begin_kernel();
    constexpr CodeForm kForm = kRoundedInt4; // a copy: device code may not refer to the outer constant
    constexpr int kGroup = kForm.group, kMiddle = kRandomWeights / 2;
    const int row = static_cast<int>(blockIdx.x) * kWarps + warp_of_thread(), lane = lane_of_thread();
    if (row >= call.rows) return;
    const std::uint64_t first = (call.first_row + static_cast<std::uint64_t>(row)) * call.row_step;
    const int n_groups = 2 * chunks_of(kForm, call.inputs);
    auto* out = static_cast<unsigned*>(call.out) +
                static_cast<std::size_t>(row) * static_cast<std::size_t>(n_groups / 2 * kChunkBytes / 4);
    std::uint16_t* scales = call.group_scales + static_cast<std::size_t>(row) * static_cast<std::size_t>(n_groups);
    for (int group = 0; group < n_groups; ++group) {
        float weights[2] = {};
        int largest = 0; // magnitude, then the first input with it, then its sign
        for (int i = 0; i < 2; ++i) {
            const int input = call.first_input + group * kGroup + 2 * lane + i;
            if (input >= call.whole_inputs) continue;
            const int index =
                random_weight_index(call.key, first + static_cast<std::uint64_t>(input) * call.input_step);
            weights[i] = random_weight(index);
            const int magnitude = index < kMiddle ? kMiddle - 1 - index : index - kMiddle;
            const int key = ((magnitude + 1) * kGroup + kGroup - 1 - 2 * lane - i) * 2 + (index < kMiddle ? 1 : 0);
            largest = key > largest ? key : largest;
        }
        largest = __reduce_max_sync(kAllLanes, largest);
        const bool is_there = group * kGroup < call.inputs && largest > 0;
        const float size = random_weight(largest / 2 / kGroup - 1 + kMiddle);
        const __nv_bfloat16 scale = from_float<__nv_bfloat16>((largest % 2 != 0 ? -size : size) / -8);
        const float inverse = 1 / to_float(scale);
        unsigned word = 0;
        for (int i = 0; i < 2; ++i) {
            const int input = group * kGroup + 2 * lane + i;
            const float code = fminf(fmaxf(weights[i] * inverse, -8.0f), 7.0f);
            const bool is_wanted = is_there && input < call.inputs;
            word |= static_cast<unsigned>(is_wanted ? static_cast<int>(rintf(code)) + 8 : 8) << int4_bit(input);
        }
        for (int step = 1; step < 4; step *= 2)
            word |= __shfl_xor_sync(kAllLanes, word, step);
        if (lane % 4 == 0) out[int4_word(group * kGroup + 2 * lane)] = word;
        if (lane != 0) continue;
        scales[group] = 0;
        if (is_there) memcpy(&scales[group], &scale, sizeof scale);
    }
}

} // namespace

void fill_random_rows(void* stream, const RandomRows& call) {
    const Grid grid = {blocks_for(static_cast<std::size_t>(call.rows), kWarps), kWarps * kWarp};
    if (call.group_scales != nullptr) return launch(stream, grid, fill_int4_rows, call);
    switch (call.code_bytes) {
    case 1:
        return launch(stream, grid, fill_rows<std::uint8_t>, call);
    case 2:
        return launch(stream, grid, fill_rows<std::uint16_t>, call);
    default:
        return launch(stream, grid, fill_rows<std::uint32_t>, call);
    }
}

} // namespace entrodraft::model::gpu
