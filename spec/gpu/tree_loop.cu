// Grows a tree on the device. It ranks the tokens of each row of logits. Some of the best tokens become the rows of the
// next pass: they are written into the pass's table. They are chosen as TreeGrowth::end_level chooses them
// (spec/draft/tree_growth.cpp), as far as DeviceTreePlan allows.
#include "spec/gpu/kernels.h"

#include "model/gpu/device_loop.cuh"
#include "model/gpu/row_best.cuh"
#include "spec/gpu/stop_rule.cuh"

namespace entrodraft::spec::gpu {

namespace {

using Plan = DeviceTreePlan;
constexpr int kWarps = kRowThreads / kWarp;
static_assert(RankCall::kParts == kStatsBlocks * kWarps);

// ---- a row's best tokens ----

// Number of logits in a warp's part; each lane has the same number.
__host__ __device__ constexpr int items_of_warp(int count) {
    const int of_block = (count + kStatsBlocks - 1) / kStatsBlocks;
    return (of_block + kRowThreads - 1) / kRowThreads * kWarp;
}

// The value that a token is ranked by.
__device__ float ranked_value(float logit, const DeviceNoise& noise, bool has_noise, std::uint32_t token) {
    if (!(noise.temperature > 0)) return logit;
    const float scaled = __fmul_rn(logit, static_cast<float>(1 / noise.temperature));
    if (!has_noise) return scaled;
    const std::uint32_t word = word_of(noise, token);
    return scaled + (word < kRefinedBelow ? static_cast<float>(noise_of_word(word, noise, token)) : rough_noise(word));
}

__device__ std::int32_t token_of(const RankCall& call, int i) {
    return call.tokens != nullptr ? call.tokens[i] : i;
}

// The best of the lane's own values: those at its number, a warp's width further, and so on.
__device__ Best best_of_lane(const float* values, int count) {
    Best best = {0, -1, -INFINITY};
    for (int i = lane_of_thread(); i < count; i += kWarp)
        if (values[i] > -INFINITY) best = better(best, {values[i], i, -INFINITY});
    return best;
}

// Each warp takes a part: finds its best tokens in order, and the sums of its values.
__global__ void rank_parts(RankCall call) {
    begin_kernel();
    const BlockShare share = share_of_block(call.count);
    if (share.row >= call.state->n_rows) return;
    const int n = items_of_warp(call.count), warp = warp_of_thread(), begin = share.begin + warp * n;
    const int end = begin + n < share.end ? begin + n : share.end, count = end > begin ? end - begin : 0;
    const std::size_t part = static_cast<std::size_t>((share.row * kStatsBlocks + share.part) * kWarps + warp);
    const float* logits = call.logits + static_cast<std::size_t>(share.row) * call.stride + begin;
    float* values = reinterpret_cast<float*>(dynamic_shared()) + warp * n;
    RankCall::Part* const found = call.parts + part * Plan::kMaxChildren;
    if (count == 0) { // the whole warp
        if (lane_of_thread() == 0) found[0] = {0, -1}, call.part_stats[part] = {0, -1, 0, 0, -INFINITY};
        return;
    }
    DeviceNoise noise = call.state->noise;
    noise.position += static_cast<std::uint64_t>(call.state->depth);
    for (int i = lane_of_thread(); i < count; i += kWarp)
        values[i] = ranked_value(logits[i], noise, call.state->plan.has_noise,
                                 static_cast<std::uint32_t>(token_of(call, begin + i)));
    Best mine = best_of_lane(values, count), best = best_of_warp(mine);
    if (noise.temperature > 0) {
        float sum = 0, shifted = 0;
        for (int i = lane_of_thread(); i < count; i += kWarp) {
            const float fall = values[i] - best.max, d = fall > kLowest ? fall : kLowest, e = expf(d);
            sum += e;
            shifted += d * e;
        }
        sum = warp_sum(sum);
        shifted = warp_sum(shifted);
        if (lane_of_thread() == 0)
            call.part_stats[part] = {best.max, best.at < 0 ? -1 : begin + best.at, static_cast<double>(sum),
                                     static_cast<double>(shifted), best.runner_up};
    }
    for (int i = 0; i < call.state->plan.n_children; ++i) {
        if (lane_of_thread() == 0) found[i] = {best.max, best.at < 0 ? -1 : begin + best.at};
        if (best.at < 0) return; // the whole warp
        if (best.at % kWarp == lane_of_thread()) {
            values[best.at] = -INFINITY;
            mine = best_of_lane(values, count);
        }
        best = best_of_warp(mine);
    }
}

// Each warp takes a row, each lane some neighbouring parts.
__global__ void merge_ranked(RankCall call) {
    begin_kernel();
    const int row = static_cast<int>(blockIdx.x), lane = lane_of_thread();
    const TreeState& state = *call.state;
    if (row >= state.n_rows) return; // the whole warp
    const std::size_t first = static_cast<std::size_t>(row * RankCall::kParts + lane * kWarps);
    RankedRow& ranked = call.tree->rows[state.first + row].row;
    DeviceLogitStats stats = call.stats[row];
    if (lane == 0) ranked.raw = {stats.max, stats.arg_max, stats.sum_exp, stats.sum_shifted_exp, stats.runner_up};
    if (state.noise.temperature > 0) {
        stats = call.part_stats[first];
        for (int i = 1; i < kWarps; ++i)
            stats = merged(stats, call.part_stats[first + static_cast<std::size_t>(i)]);
        stats = merged_over_warp(stats);
        if (stats.arg_max >= 0) stats.arg_max = token_of(call, stats.arg_max);
    }
    int taken[kWarps] = {};
    int n = 0;
    for (; n < state.plan.n_children; ++n) {
        Best mine = {0, -1, -INFINITY};
        int part = 0;
        for (int i = 0; i < kWarps; ++i) {
            if (taken[i] == state.plan.n_children) continue;
            const RankCall::Part head = call.parts[(first + static_cast<std::size_t>(i)) * Plan::kMaxChildren +
                                                   static_cast<std::size_t>(taken[i])];
            const Best before = mine;
            mine = better(mine, {head.value, head.at, -INFINITY});
            if (mine.at != before.at) part = i;
        }
        const Best best = best_of_warp(mine);
        if (best.at < 0) break;
        if (mine.at == best.at) ++taken[part];
        if (lane == 0)
            ranked.best[n] = {
                token_of(call, best.at),
                call.logits[static_cast<std::size_t>(row) * call.stride + static_cast<std::size_t>(best.at)], best.max};
    }
    if (lane > 0) return;
    ranked.ranked = {stats.max, stats.arg_max, stats.sum_exp, stats.sum_shifted_exp, stats.runner_up};
    ranked.n = n;
    if (row == 0) call.tree->n_rows = state.first + state.n_rows;
}

// ---- the tokens that go on ----

__device__ bool ends_text(const Plan& plan, model::TokenId token) {
    for (int i = 0; i < plan.n_eos; ++i)
        if (plan.eos[i] == token) return true;
    return false;
}

// Sets the values of a row's children, and whether they may go on.
__device__ void weigh_children(TreeState& state, const RankedRow& row, int r) {
    const Plan& plan = state.plan;
    const TreeState::Rows& level = state.levels[state.depth % 2];
    const bool is_fixed = plan.shape == Plan::Shape::fixed;
    const int path = level.paths[r], of_path = is_fixed ? plan.child_counts[path + 1] : plan.n_children;
    const double entropy = row.ranked.sum_exp > 0 ? entropy_of(row.ranked) : 0;
    double left = 1;
    for (int rank = 0; rank < plan.n_children; ++rank) {
        TreeState::Child child = {0, 0, -1, 0, -1};
        if (rank < row.n && rank < of_path) {
            double own = static_cast<double>(static_cast<float>(probability_of(row.ranked, row.best[rank].value)));
            child.reach = level.reaches[r] * (rank > 0 ? own : 1);
            if (plan.shape == Plan::Shape::gain) {
                const int learnt = rank < Plan::kRanks ? rank : Plan::kRanks - 1;
                const double chance = acceptance(plan.weights[learnt], entropy, own, NAN);
                own = chance < left ? chance : left;
                left -= own;
            }
            child.value = level.values[r] * own;
            child.path = is_fixed ? plan.first_child[path + 1] + rank : -1;
            child.goes_on = is_fixed ? plan.child_counts[child.path + 1] > 0 : child.reach >= plan.min_reach;
            if (ends_text(plan, row.best[rank].token)) child.goes_on = 0;
        }
        state.children[r * plan.n_children + rank] = child;
    }
}

// Shapes that grow choose the children of the largest values, of equal ones the first.
__device__ bool is_chosen(const TreeState& state, int c, int total) {
    const TreeState::Child& child = state.children[c];
    if (child.goes_on == 0) return false;
    if (state.plan.shape == Plan::Shape::fixed) return true;
    int before = 0;
    for (int i = 0; i < total; ++i) {
        const TreeState::Child& other = state.children[i];
        if (other.goes_on != 0 && (other.value > child.value || (other.value == child.value && i < c))) ++before;
    }
    return before < state.plan.width;
}

// Gives the chosen children their rows. Returns their number, the same on every lane.
__device__ int choose(TreeState& state, int total) {
    int n = 0;
    for (int first = 0; first < total; first += kWarp) {
        const int lane = lane_of_thread(), c = first + lane;
        const bool chosen = c < total && is_chosen(state, c, total);
        const unsigned all = __ballot_sync(kAllLanes, chosen);
        if (chosen) state.children[c].row = n + __popcll(all & ((1u << lane) - 1));
        n += __popcll(all);
    }
    return n;
}

// gains[k]: the tokens that reading a token brings minus the cost of rows, in this level and the next k. Returns the
// largest. See TreeGrowth::level_that_pays.
__device__ double gains_of(const Plan& plan, double value, double (&gains)[Plan::kLevels]) {
    double tokens = 0, below = 1, most = 0;
    for (int k = 0; k < Plan::kLevels; ++k) {
        for (int rank = 0; rank < plan.n_children; ++rank) {
            const double gain = value * plan.mean_chances[rank] * below - plan.of_target_row;
            tokens += gain > 0 ? gain : 0;
        }
        gains[k] = tokens -= plan.of_row;
        most = gains[k] > most ? gains[k] : most;
        below *= plan.mean_chances[0];
    }
    return most;
}

__device__ void drop_what_brings_nothing(TreeState& state, int total) {
    double gains[Plan::kLevels];
    for (int c = lane_of_thread(); c < total; c += kWarp)
        if (state.children[c].goes_on != 0 && !(gains_of(state.plan, state.children[c].value, gains) > 0))
            state.children[c].goes_on = 0;
}

// Returns whether the children that go on are worth their passes, the same on every lane.
__device__ bool level_pays(const TreeState& state, int total) {
    double sums[Plan::kLevels] = {}, gains[Plan::kLevels];
    for (int c = lane_of_thread(); c < total; c += kWarp) {
        if (state.children[c].row < 0) continue;
        gains_of(state.plan, state.children[c].value, gains);
        for (int k = 0; k < Plan::kLevels; ++k)
            sums[k] += gains[k];
    }
    bool pays = false;
    for (int k = 0; k < Plan::kLevels; ++k)
        pays = warp_sum(sums[k]) > state.plan.of_passes[k] || pays;
    return pays;
}

// ---- the next pass ----

// Takes slot, position and prefix from the text's last row, which is row `from` of the table.
__device__ void begin_tree(TreeState& state, const PassTable& table) {
    const std::int32_t from = state.text_row = table.logit_rows[0];
    state.slot = table.slots[from];
    state.position = table.positions[from];
    state.tree_begin = table.places[from] + 1;
    state.prefix_slot = table.prefix_slots[from];
    state.prefix_length = table.prefix_lengths[from];
    TreeState::Rows& level = state.levels[0];
    level.values[0] = level.reaches[0] = 1;
    level.paths[0] = -1;
    for (int word = 0; word < kMaskWords; ++word)
        level.masks[0][word] = 0;
}

// Makes the child its row r of the next pass, and adds r to the tree's next node for its node.
__device__ void make_row(const GrowCall& call, int c) {
    TreeState& state = *call.state;
    const TreeState::Child child = state.children[c];
    const int parent_row = c / state.plan.n_children, r = child.row, node = call.tree->n_rows - 1 + r;
    const model::TokenId token = call.tree->rows[state.first + parent_row].row.best[c % state.plan.n_children].token;
    GrownRow& read = call.tree->rows[node + 1];
    read.token = token;
    read.parent = state.first + parent_row - 1;
    const TreeState::Rows& above = state.levels[state.depth % 2];
    TreeState::Rows& level = state.levels[(state.depth + 1) % 2];
    level.values[r] = child.value;
    level.reaches[r] = child.reach;
    level.paths[r] = child.path;
    PassTable& table = *call.loop.table;
    for (int word = 0; word < kMaskWords; ++word) {
        const std::uint64_t own = word == node / 64 ? std::uint64_t{1} << (node % 64) : 0;
        table.masks[r][word] = level.masks[r][word] = above.masks[parent_row][word] | own;
    }
    table.tokens[r] = token;
    table.slots[r] = state.slot;
    table.positions[r] = state.position + state.depth + 1;
    table.places[r] = state.tree_begin + node;
    table.n_keys[r] = state.tree_begin + state.depth + 1;
    table.prefix_slots[r] = state.prefix_slot;
    table.prefix_lengths[r] = state.prefix_length;
    table.mask_begins[r] = state.tree_begin;
    table.logit_rows[r] = r;
    call.loop.parents[r] = state.depth == 0 ? state.text_row : parent_row;
}

__device__ void make_padding(const DeviceLoop& loop, int r) {
    PassTable& table = *loop.table;
    loop.parents[r] = 0;
    table.tokens[r] = table.positions[r] = table.places[r] = table.n_keys[r] = table.prefix_slots[r] =
        table.prefix_lengths[r] = table.logit_rows[r] = 0;
    table.slots[r] = table.mask_begins[r] = -1;
}

// One warp.
__global__ void grow(GrowCall call) {
    begin_kernel();
    TreeState& state = *call.state;
    const int lane = lane_of_thread(), n_rows = call.tree->n_rows;
    if (lane == 0 && state.depth == 0) begin_tree(state, *call.loop.table);
    __syncwarp();
    for (int r = lane; r < state.n_rows; r += kWarp)
        weigh_children(state, call.tree->rows[state.first + r].row, r);
    __syncwarp();
    const int total = state.n_rows * state.plan.n_children;
    const bool weighs = state.plan.shape == Plan::Shape::gain;
    if (weighs) drop_what_brings_nothing(state, total);
    __syncwarp();
    const int n = choose(state, total);
    __syncwarp();
    int ends = 0;
    if (lane == 0 && state.best >= 0) {
        const RankedRow& row = call.tree->rows[state.first + state.best].row;
        if (row.n > 0 && stops(state.plan.rule, state.history, state.depth + 1, row.raw, row.best[0].logit, NAN))
            ends = 1;
    }
    const bool goes_on = (!weighs || level_pays(state, total)) && __shfl_sync(kAllLanes, ends, 0) == 0 && n > 0 &&
                         n <= call.width && state.depth < state.plan.max_levels &&
                         n_rows + n <= call.loop.state->max_rows;
    if (goes_on) {
        for (int c = lane; c < total; c += kWarp)
            if (state.children[c].row >= 0) make_row(call, c);
        for (int r = n + lane; r < call.width; r += kWarp)
            make_padding(call.loop, r);
    }
    __syncwarp();
    if (lane > 0) return;
    go_on(call.loop, goes_on);
    call.loop.state->n_rows = n_rows;
    call.loop.state->first_row = state.first;
    if (!goes_on) return;
    if (state.best >= 0) state.best = state.children[state.best * state.plan.n_children].row;
    state.first = n_rows;
    state.n_rows = n;
    ++state.depth;
}

} // namespace

void rank_rows(void* stream, const RankCall& call) {
    const std::size_t shared = static_cast<std::size_t>(items_of_warp(call.count)) * kWarps * sizeof(float);
    launch(stream, {dim3(kStatsBlocks, static_cast<unsigned>(call.rows)), kRowThreads, shared}, rank_parts, call);
    launch(stream, {static_cast<unsigned>(call.rows), kWarp}, merge_ranked, call);
}

void grow_tree(void* stream, const GrowCall& call) {
    launch(stream, {1, kWarp}, grow, call);
}

} // namespace entrodraft::spec::gpu
