// Kernels of drafting and verification, as functions that put them on a stream. All pointers are device memory.
//
// No CUDA header is needed to call them. Called by device_verifier.cpp.
#pragma once

#include "model/gpu/device_extension.h"
#include "spec/verify/device_verifier.h"

#include <cstddef>
#include <cstdint>

namespace entrodraft::spec::gpu {

using namespace model::gpu;

// ---- drafting (draft_loop.cu) ----

// What a stop rule has seen of the tokens drafted in a loop.
struct RuleHistory {
    double product;               // of acceptances
    double squares[kMaxLoopRows]; // x^2
};

// A draft on the device; what the host sets comes first.
struct DraftState {
    DeviceStopRule rule;
    std::int32_t kept_row; // number under which the next row stays; negative: none stays
    RuleHistory history;
};

// Behind each row: state.rule decides.
struct DecideCall {
    DeviceLoop loop;
    DraftState* state = nullptr;
};
void decide_next_row(void* stream, const DecideCall& call);

// The row, [width], is copied to row `number` of kept, [...][width]; not where that is negative.
struct KeepCall {
    const float* row = nullptr;
    std::size_t width = 0;
    const std::int32_t* number = nullptr; // on the device: it moves on with the loop
    float* kept = nullptr;
};
void keep_row(void* stream, const KeepCall& call);

// ---- trees (tree_loop.cu) ----

// What the host sets before a pass.
struct TreeStart {
    DeviceTreePlan plan;
    DeviceNoise noise;       // of the plan, of temperature 0 where there is none
    std::int32_t n_rows = 1; // of the pass under way
    std::int32_t depth = 0;  // of these: 0 is the text
    std::int32_t first = 0;  // of these, in DeviceTree
    std::int32_t best = 0;   // of these, the end of the best path; -1: it has ended
};

struct TreeState : TreeStart {
    struct Rows { // of a level
        double values[kMaxLoopRows], reaches[kMaxLoopRows];
        std::int32_t paths[kMaxLoopRows];
        std::uint64_t masks[kMaxLoopRows][kMaskWords];
    } levels[2]; // by turns
    struct Child {
        double value, reach;
        std::int32_t path;
        std::int32_t goes_on;                                // whether it may
        std::int32_t row;                                    // of the next pass; -1: none
    } children[kMaxLoopRows * DeviceTreePlan::kMaxChildren]; // [row][plan.n_children]
    RuleHistory history;
    std::int32_t text_row;                                               // of the table
    std::int32_t slot, position, tree_begin, prefix_slot, prefix_length; // of the text's last row, or behind it
};

// What is read, as DeviceVerifier::grown() has it.
struct DeviceTree {
    std::int32_t n_rows, unused;
    GrownRow rows[kMaxLoopRows];

    static constexpr std::size_t bytes_of_rows(int n) {
        return offsetof(DeviceTree, rows) + static_cast<std::size_t>(n) * sizeof(GrownRow);
    }
};

// The rows of logits of the pass under way, ranked, become rows of the tree.
struct RankCall {
    struct Part { // a token of a part of a row
        float value;
        std::int32_t at; // its place in the row; -1: none
    };
    static constexpr int kParts = kStatsBlocks * 8; // of a row: a warp's each

    const float* logits = nullptr; // [rows][stride]
    std::size_t stride = 0;
    int rows = 0;                            // with padding
    int count = 0;                           // logits that count, from the first
    const std::int32_t* tokens = nullptr;    // [count]; null: their places
    const DeviceLogitStats* stats = nullptr; // [rows]
    const TreeState* state = nullptr;
    Part* parts = nullptr;                  // workspace, [rows][kParts][kMaxChildren]
    DeviceLogitStats* part_stats = nullptr; // workspace, [rows][kParts]: of values
    DeviceTree* tree = nullptr;
};
void rank_rows(void* stream, const RankCall& call);

// Behind that: which children are the rows of the next pass, if there is one.
struct GrowCall {
    DeviceLoop loop;
    TreeState* state = nullptr;
    DeviceTree* tree = nullptr;
    int width = 0; // rows of a further pass, with padding
};
void grow_tree(void* stream, const GrowCall& call);

// ---- verification (verify_rows.cu) ----

// wide[r][begin + i] = logits[r][i], i < count, and zeros elsewhere: what the ranks' slices sum up to is whole rows.
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
    const float* draft_logits; // that `drafted` was drawn from; null where this rank has none
    DeviceNoise noise;
    std::int32_t drafted, is_first, is_scaled;
    float lenience;
};
// The largest of a row's logits and the sum of exp((logit - largest) / temperature), of part of it or of all.
struct SoftmaxMass {
    float max, inverse_sum; // 1 / sum, of all of the row
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
    int count = 0;                             // logits that count, from the first, which is token 0's
    const DeviceDraftedRow* drafted = nullptr; // [rows]
    VerifyMasses* mass_parts = nullptr;        // workspace, [rows][kStatsBlocks]
    VerifyMasses* masses = nullptr;            // workspace, [rows]
    VerifyPart* parts = nullptr;               // workspace, [rows][kStatsBlocks]
    VerifiedRow* verified = nullptr;           // [rows]
};
void verify_rows(void* stream, const VerifyCall& call);

} // namespace entrodraft::spec::gpu
