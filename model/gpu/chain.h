// A chain that the device goes on with by itself: after each row of one token it notes what the row says, decides
// whether another is wanted, and makes it.
//
// Called by gpu/decoder, as the first and the repeated part of one graph.
#pragma once

#include "model/gpu/kernels.h"
#include "model/logit_needs.h"

#include <cstddef>

namespace entrodraft::model::gpu {

inline constexpr int kMaxChain = 128; // rows

struct ChainRow {
    DeviceLogitStats stats;
    DeviceNoisy noisy;
};

// What the host asks for, copied to the device before each chain.
struct ChainPlan {
    int max_rows = 1;
    int first_row = 0; // of the pass before, whose logits are the only ones: what the chain goes on from
    int has_noise = 0;
    ChainStop stop;
};

// What the device has made of it; what the host reads comes first.
struct ChainState {
    int n_rows;
    ChainRow rows[kMaxChain];
    double product;            // of acceptances
    double squares[kMaxChain]; // x^2

    // Up to and including so many rows.
    static constexpr std::size_t bytes_of_rows(int n) {
        return offsetof(ChainState, rows) + static_cast<std::size_t>(n) * sizeof(ChainRow);
    }
};

// The columns of a RowTable that a chain moves on; row 0 becomes the chain's.
struct ChainCall {
    std::int32_t* tokens = nullptr;
    std::int32_t* slots = nullptr;
    std::int32_t* positions = nullptr;
    std::int32_t* places = nullptr;
    std::int32_t* n_keys = nullptr;
    std::int32_t* window_ends = nullptr;
    std::int32_t* first_keys = nullptr;
    std::int32_t* prefix_slots = nullptr;
    std::int32_t* prefix_lengths = nullptr;
    std::int32_t* mask_begins = nullptr;
    std::int32_t* logit_rows = nullptr;
    std::int32_t* kept_rows = nullptr;       // negative: rows are not kept
    DeviceNoise* noises = nullptr;           // [1]
    const DeviceLogitStats* stats = nullptr; // [1], of the last row
    const DeviceNoisy* noisy = nullptr;      // [1]
    const ChainPlan* plan = nullptr;
    ChainState* state = nullptr;
    unsigned long long condition = 0; // of the graph's repeated part
};
// Behind the pass whose last row the chain begins with.
void begin_chain(void* stream, const ChainCall& call);
// Behind each further row.
void go_on_with_chain(void* stream, const ChainCall& call);

} // namespace entrodraft::model::gpu
