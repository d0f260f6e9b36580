// What a GPU does of a round by itself: drafting on under a stop rule as numbers, a chain or a tree, and verifying the
// target's rows by those of the draft. Each is an extension of a model's pass.
//
// One for all models of a rank that are on its GPU: spec/gpu/device_verifier.cpp makes it; elsewhere there is none.
// Called by drafters (chain.h, tree.h) and by the gather of the target's rows (target_rows.h).
#pragma once

#include "model/cpu/kernels.h"
#include "model/pass/logit_needs.h"
#include "spec/verify/token_id.h"

#include <cstdint>
#include <memory>
#include <span>

namespace entrodraft::spec {

// A stop rule as numbers: plain data, which StopCondition::forecast fills and spec/gpu/stop_rule.cuh reads.
// When no further token will be wanted, by what is known of those drafted in the loop; x is a token's entropy in nats.
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
    int first = 1; // token at which it is first looked at
    int window = 0;
    double threshold = 0;
    double factor = 0;
    // Of gain: acceptance = 1 / (1 + exp(-weights . features)), those of TokenChance but the residual.
    static constexpr int kWeights = 4, kOfMargin = 3;
    double weights[kWeights] = {}; // plain arrays: devices read them
    static constexpr int kMaxLeast = 128;
    float least[kMaxLeast] = {};
};

// A tree as numbers: plain data, which TreeGrowth::forecast fills and spec/gpu/tree_loop.cu reads. It says which of a
// level's tokens are read next, as far as is known before the first row; what is read beyond what the growth then wants
// was read in vain, and what is missing is read later.
struct DeviceTreePlan {
    enum class Shape { fixed, probability, gain };
    static constexpr int kMaxChildren = 16, kMaxNodes = 127, kMaxEos = 8, kRanks = 4, kLevels = 8;
    static constexpr int kMaxVocab = 32 * 12288; // a 32nd of a row lies in 48 KiB of shared memory

    Shape shape = Shape::fixed;
    int n_children = 0; // of a row, at most
    int width = 0;      // tokens of a level that go on, at most; of shapes that grow the best so many
    int max_levels = 0; // of tokens that are read; 0: the text's row alone
    int max_nodes = 0;  // that are read
    // Of a fixed tree, whose paths' children are neighbours: [path + 1], path -1 being the root.
    std::uint8_t first_child[kMaxNodes + 1] = {}, child_counts[kMaxNodes + 1] = {};
    // What tokens are ranked by: logit / temperature, with the noise at the position behind the text if there is any,
    // one further on for each level. Of temperature 0: the logit.
    model::RowNoise noise;
    bool has_noise = false;
    DeviceStopRule rule; // sees the best path; of its max_rows nothing
    int n_eos = 0;
    TokenId eos[kMaxEos] = {}; // not read
    // Of gain. A token's chance, by its rank: DeviceStopRule's acceptance by these weights.
    double weights[kRanks][DeviceStopRule::kWeights] = {};
    double min_reach = 0;
    double mean_chances[kMaxChildren] = {}; // of children by rank
    // What costs are worth in tokens, at the run's rate: of a further row of the target's pass, of one of the draft's,
    // and of so many passes more.
    double of_target_row = 0, of_row = 0, of_passes[kLevels] = {};
};

// A row of logits, its tokens ranked.
struct RankedRow {
    struct Token {
        TokenId token = -1;
        float logit = 0;
        float value = 0; // that it was ranked by
    };
    model::LogitStats raw, ranked; // of the logits and of the values
    std::int32_t n = 0;
    Token best[DeviceTreePlan::kMaxChildren]; // n of them, the best first, of equals the lowest token
};

// A row that a GPU has read for a tree: the first is the text's own, the others are those of nodes 0, 1, ...
struct GrownRow {
    TokenId token = -1;
    std::int32_t parent = -1; // node; -1: the text
    RankedRow row;
};

// A row of the target's, verified on the GPU by the draft's row that the token behind it was drawn from. p and q are
// the softmaxes of both at the temperature, over the tokens that count.
struct DraftedRow {
    TokenId drafted = -1;  // the token behind it; -1: none was drafted
    bool is_first = false; // of its text's
    // p is scaled by what `block` calls the share of the drafted prefix that the target can use: 1 for the first row,
    // then min(1, share of the row before * its p / its q of the token drafted).
    bool is_scaled = false;
    float lenience = 1;    // of VerifiedRow::overlap
    model::RowNoise noise; // of the token emitted if the text ends here; of temperature 0: the row is not verified
};

// What comes of that. s is the scale of p, or 1.
struct VerifiedRow {
    double p = 0, q = 0; // of the token drafted
    double scale = 1;    // s
    double excess = 0;   // sum of max(0, s p - q)
    double overlap = 0;  // sum of min(p / lenience, q)
    TokenId next = -1;   // a sample of max(0, s p - q), of p where nothing was drafted; -1: no row, or no numbers in it
    std::int32_t unused = 0;
};

class DeviceVerifier {
  public:
    static constexpr int kMaxKept = 128; // rows
    virtual ~DeviceVerifier() = default;

    // Of a pass over a single text, of a whole draft model: the token of its last row is read as the next row, and so
    // on, while the rule says so. With `first_kept` >= 0 rows stay on the device, as those that the drafted tokens from
    // this number on are drawn from. Throws std::invalid_argument where there is no room for the row. Until the next
    // call.
    virtual model::DeviceExtension* draft(const DeviceStopRule& rule, int first_kept) = 0;

    // Of a pass over a single text, of a whole model: children of its last row are read as the plan says, theirs, and
    // so on. Until the next call.
    virtual model::DeviceExtension* grow(const DeviceTreePlan& plan) = 0;
    // What that pass read; nothing where the last was draft()'s. Until the next pass.
    virtual std::span<const GrownRow> grown() const = 0;

    // Of a pass of `n_rows` rows of logits, summarized: the first `n` <= kMaxChildren of each row's tokens below
    // `vocab_size`, as grown() has them, numbered from this rank's first. Until the next call.
    virtual model::DeviceExtension* select(int n_rows, int n, int vocab_size) = 0;

    // Of a pass of the target: verifies its rows of logits by those that draft() kept on this rank. Until the next
    // call.
    virtual model::DeviceExtension* verify(std::span<const DraftedRow> rows) = 0;
    // What that pass made of them; those of tp rank 0 count. Until the next pass.
    virtual std::span<const VerifiedRow> verified() const = 0;
};

namespace gpu {
// For models on the current device; outlives their decoders. Called where models are loaded onto a GPU. Throws
// dist::Error.
std::unique_ptr<DeviceVerifier> make_device_verifier();
} // namespace gpu

} // namespace entrodraft::spec
