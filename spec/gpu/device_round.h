// Does the work of a round that a GPU can do by itself. The GPU drafts on, a chain or a tree, under a stop rule that is
// given as numbers. It also compares the target's rows with the draft's rows to verify them. Each kind of work is an
// extension of a model's pass.
//
// A rank has one DeviceRound for all models on its GPU (spec/gpu/gpu_round.cpp makes it), and none without a GPU.
// Called by drafters (chain.h, tree.h) and by the gather of the target's rows (target_rows.h).
#pragma once

#include "model/cpu/kernels.h"
#include "model/pass/logit_needs.h"
#include "model/text/token_id.h"

#include <cstdint>
#include <memory>
#include <span>

namespace entrodraft::spec {

// A stop rule as numbers: plain data, which StopCondition::forecast fills and spec/gpu/stop_rule.cuh reads. It says
// after which token no further one is wanted, by the tokens drafted in the loop. x is a token's entropy in nats.
struct DeviceStopRule {
    enum class Kind {
        never,
        entropy,        // x >= threshold
        moving_average, // x^2 >= factor * mean of the window before it
        squares,        // sum of x^2 over the last window + 1 >= threshold
        probability,    // the token's own < threshold
        gain,           // the product of acceptances < least[t - 1] after t tokens
    };
    int max_rows = 1; // the pass's own row of logits included
    Kind kind = Kind::never;
    int first = 1; // number of the first token after which it may fire
    int window = 0;
    double threshold = 0;
    double factor = 0;
    // For gain: acceptance = 1 / (1 + exp(-weights . features)), with TokenChance's features but the residual.
    static constexpr int kWeights = 4, kOfMargin = 3;
    double weights[kWeights] = {}; // plain arrays: devices read them
    static constexpr int kMaxLeast = 128;
    float least[kMaxLeast] = {};
};

// A tree as numbers: plain data, which TreeGrowth::forecast fills and spec/gpu/tree_loop.cu reads. It says which of a
// level's tokens are read next, as far as is known before the first row. If the growth then wants fewer tokens, the
// others were read in vain; if it wants more, the missing ones are read later.
struct DeviceTreePlan {
    enum class Shape { fixed, probability, gain };
    static constexpr int kMaxChildren = 16, kMaxNodes = 127, kMaxEos = 8, kRanks = 4, kLevels = 8;
    static constexpr int kMaxVocab = 32 * 12288; // a 32nd of a row lies in 48 KiB of shared memory

    Shape shape = Shape::fixed;
    int n_children = 0; // most children of a row
    int width = 0;      // most tokens of a level that go on; shapes that grow take the best
    int max_levels = 0; // most levels of tokens that are read; 0: only the text's row is read
    int max_nodes = 0;  // most nodes that are read
    // For fixed trees: [path + 1], path -1 is the root. A path's children have consecutive numbers.
    std::uint8_t first_child[kMaxNodes + 1] = {}, child_counts[kMaxNodes + 1] = {};
    // Tokens are ranked by logit / temperature, or by the logit at temperature 0. If there is noise, it is added: for
    // the first level that of the position after the text, for each further level that of the next position.
    model::RowNoise noise;
    bool has_noise = false;
    DeviceStopRule rule; // sees the best path; its max_rows is not used
    int n_eos = 0;
    model::TokenId eos[kMaxEos] = {}; // ends of text, which are not read
    // For gain: a token's chance is DeviceStopRule's acceptance with the weights of the token's rank.
    double weights[kRanks][DeviceStopRule::kWeights] = {};
    double min_reach = 0;
    double mean_chances[kMaxChildren] = {}; // mean chance of a child of each rank
    // Costs in tokens, at the run's rate: one more row of the target's pass, one more row of the draft's pass, and
    // k + 1 more draft passes (of_passes[k]).
    double of_target_row = 0, of_row = 0, of_passes[kLevels] = {};
};

// A row of logits with its best tokens.
struct RankedRow {
    struct Token {
        model::TokenId token = -1;
        float logit = 0;
        float value = 0; // tokens are ranked by it
    };
    model::LogitStats raw, ranked; // statistics of the logits and of the values
    std::int32_t n = 0;
    Token best[DeviceTreePlan::kMaxChildren]; // the n best, the best first; of equal ones the lowest token first
};

// A row that a GPU has read for a tree: the first follows the text, the others follow nodes 0, 1, ...
struct GrownRow {
    model::TokenId token = -1;
    std::int32_t parent = -1; // node; -1: the text
    RankedRow row;
};

// A target row that the GPU verifies by the draft's row from which the token after it was drawn. p and q are the
// softmaxes of the two rows at the temperature, over the tokens that count.
struct DraftedRow {
    model::TokenId drafted = -1; // the token after it; -1: none was drafted
    bool is_first = false;       // the first row of its text
    // p is scaled by the share of the drafted prefix that the target can use (see `block`). The share is 1 for the
    // first row, then min(1, share of the row before * its p / its q), p and q of the drafted token.
    bool is_scaled = false;
    float lenience = 1;    // used in VerifiedRow::overlap
    model::RowNoise noise; // for the token emitted if acceptance ends here; temperature 0: the row is not verified
};

// The result for a DraftedRow. s is the scale of p, or 1.
struct VerifiedRow {
    double p = 0, q = 0; // of the drafted token
    double scale = 1;    // s
    double excess = 0;   // sum of max(0, s p - q)
    double overlap = 0;  // sum of min(p / lenience, q)
    model::TokenId next =
        -1; // a sample of max(0, s p - q), or of p if nothing was drafted; -1: no row, or no number in it
    std::int32_t unused = 0;
};

class DeviceRound {
  public:
    static constexpr int kMaxKept = 128; // rows
    virtual ~DeviceRound() = default;

    // For a pass of a whole draft model over a single text. Reads the token of its last row as the next row, and so on,
    // while the rule wants more. With `first_kept` >= 0 the rows stay on the device: drafted tokens number
    // `first_kept`, `first_kept` + 1 and so on are drawn from them. Throws std::invalid_argument where there is no room
    // for the row. Valid until the next call.
    virtual model::DeviceExtension* draft(const DeviceStopRule& rule, int first_kept) = 0;

    // For a pass of a whole model over a single text. Reads children of its last row as the plan says, then their
    // children, and so on. Valid until the next call.
    virtual model::DeviceExtension* grow(const DeviceTreePlan& plan) = 0;
    // The rows that this pass read; empty if the last pass was draft()'s. Valid until the next pass.
    virtual std::span<const GrownRow> grown() const = 0;

    // For a pass of `n_rows` summarized rows of logits. Selects the best `n` <= kMaxChildren of each row's tokens below
    // `vocab_size`, which grown() returns. Token ids count from this rank's first. Valid until the next call.
    virtual model::DeviceExtension* select(int n_rows, int n, int vocab_size) = 0;

    // For a pass of the target: verifies its rows of logits by those that draft() kept on this rank. Valid until the
    // next call.
    virtual model::DeviceExtension* verify(std::span<const DraftedRow> rows) = 0;
    // The results of this pass; only those of tp rank 0 count. Valid until the next pass.
    virtual std::span<const VerifiedRow> verified() const = 0;
};

namespace gpu {
// Makes the object for models on the current device, which must outlive their decoders. Called where models are loaded
// onto a GPU. Throws dist::Error.
std::unique_ptr<DeviceRound> make_device_round();
} // namespace gpu

} // namespace entrodraft::spec
