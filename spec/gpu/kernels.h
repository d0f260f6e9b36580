// Kernels of drafting and verification, as functions that enqueue them on a stream. All pointers are device memory.
//
// Callers need no CUDA header. Called by gpu_round.cpp.
#pragma once

#include "model/gpu/device_extension.h"
#include "spec/gpu/device_round.h"

#include <cstddef>
#include <cstdint>

namespace entrodraft::spec::gpu {

using namespace model::gpu;

// ---- drafting (draft_loop.cu) ----

// The history that a stop rule needs of the tokens drafted in a loop.
struct RuleHistory {
    double product;               // of acceptances
    double squares[kMaxLoopRows]; // x^2
};

// A draft on the device. The host sets the members before `history`.
struct DraftState {
    DeviceStopRule rule;
    std::int32_t kept_row; // number of the next row among the kept ones; negative: rows are not kept
    RuleHistory history;
};

// Runs after each row: state.rule decides whether there is another.
struct DecideCall {
    DeviceLoop loop;
    DraftState* state = nullptr;
};
void decide_next_row(void* stream, const DecideCall& call);

// Copies the row, [width], to row `number` of kept, [...][width]; does nothing if the number is negative.
struct KeepCall {
    const float* row = nullptr;
    std::size_t width = 0;
    const std::int32_t* number = nullptr; // on the device, where the loop advances it
    float* kept = nullptr;
};
void keep_row(void* stream, const KeepCall& call);

// ---- trees (tree_loop.cu) ----

// The part of the state that the host sets before a pass.
struct TreeStart {
    DeviceTreePlan plan;
    DeviceNoise noise;       // the plan's; at temperature 0 values are logits
    std::int32_t n_rows = 1; // rows of the present pass
    std::int32_t depth = 0;  // of these rows: 0 is the text
    std::int32_t first = 0;  // the first of these rows in DeviceTree
    std::int32_t best = 0;   // the one of these rows that ends the best path; -1: the path has ended
};

struct TreeState : TreeStart {
    struct Rows { // of a level
        double values[kMaxLoopRows], reaches[kMaxLoopRows];
        std::int32_t paths[kMaxLoopRows];
        std::uint64_t masks[kMaxLoopRows][kMaskWords];
    } levels[2]; // used in turn
    struct Child {
        double value, reach;
        std::int32_t path;
        std::int32_t goes_on;                                // 1: it may go on
        std::int32_t row;                                    // in the next pass; -1: none
    } children[kMaxLoopRows * DeviceTreePlan::kMaxChildren]; // [row][plan.n_children]
    RuleHistory history;
    std::int32_t text_row;                                               // in the table
    std::int32_t slot, position, tree_begin, prefix_slot, prefix_length; // of the text's last row; tree_begin: after it
};

// The rows read, as DeviceRound::grown() returns them.
struct DeviceTree {
    std::int32_t n_rows, unused;
    GrownRow rows[kMaxLoopRows];

    static constexpr std::size_t bytes_of_rows(int n) {
        return offsetof(DeviceTree, rows) + static_cast<std::size_t>(n) * sizeof(GrownRow);
    }
};

// Ranks the present pass's rows of logits and adds them to the tree.
struct RankCall {
    struct Part { // a token of a part of a row
        float value;
        std::int32_t at; // its place in the row; -1: none
    };
    static constexpr int kParts = kStatsBlocks * 8; // of a row; each is a warp's work

    const float* logits = nullptr; // [rows][stride]
    std::size_t stride = 0;
    int rows = 0;                            // with padding
    int count = 0;                           // logits that count, from the first
    const std::int32_t* tokens = nullptr;    // [count] token ids; null: the places of the logits
    const DeviceLogitStats* stats = nullptr; // [rows]
    const TreeState* state = nullptr;
    Part* parts = nullptr;                  // workspace, [rows][kParts][kMaxChildren]
    DeviceLogitStats* part_stats = nullptr; // workspace, [rows][kParts]: statistics of values
    DeviceTree* tree = nullptr;
};
void rank_rows(void* stream, const RankCall& call);

// Runs after rank_rows(): chooses the children that are the rows of the next pass, if there is one.
struct GrowCall {
    DeviceLoop loop;
    TreeState* state = nullptr;
    DeviceTree* tree = nullptr;
    int width = 0; // rows of the next pass, with padding
};
void grow_tree(void* stream, const GrowCall& call);

// ---- verification (verify_rows.cu) ----

// wide[r][begin + i] = logits[r][i], i < count, and zeros elsewhere: the ranks' sum is whole rows.
struct WidenCall {
    const float* logits = nullptr; // [rows][count]
    int count = 0;
    int begin = 0;
    float* wide = nullptr; // [rows][width]
    int width = 0;
    int rows = 0;
};
void widen_rows(void* stream, const WidenCall& call);

struct DeviceDraftedRow {      // as DraftedRow
    const float* draft_logits; // the row that `drafted` was drawn from; null if this rank has none
    DeviceNoise noise;
    std::int32_t drafted, is_first, is_scaled;
    float lenience;
};
// The largest logit and the sum of exp((logit - largest) / temperature), of a part of a row or of all of it.
struct SoftmaxMass {
    float max, inverse_sum; // inverse_sum = 1 / sum, set for a whole row
    double sum;
};
struct VerifyMasses {
    SoftmaxMass target, draft;
};
struct VerifyPart {
    double excess, overlap;
    DeviceNoisy best;
};
struct VerifyCall {
    const float* logits = nullptr; // [rows][stride]
    std::size_t stride = 0;
    int rows = 0;
    int count = 0;                             // logits that count, from token 0's on
    const DeviceDraftedRow* drafted = nullptr; // [rows]
    VerifyMasses* mass_parts = nullptr;        // workspace, [rows][kStatsBlocks]
    VerifyMasses* masses = nullptr;            // workspace, [rows]
    VerifyPart* parts = nullptr;               // workspace, [rows][kStatsBlocks]
    VerifiedRow* verified = nullptr;           // [rows]
};
void verify_rows(void* stream, const VerifyCall& call);

} // namespace entrodraft::spec::gpu
