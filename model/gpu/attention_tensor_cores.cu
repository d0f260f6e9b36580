// Attention over 16-bit caches on tensor cores. This attention limits the speed of a pass over long contexts, which
// must read the cache once.
//
// A block of threads takes kKeyBlock keys of a key head, and that head's queries 16 at a time. These 16 queries are a
// tile (attention_tiles.cuh), the 16 rows of a tensor-core step. Each warp loads 32 of the keys into registers and
// their values into shared memory at once, and all tiles are computed from these. If a multiprocessor runs two blocks
// of threads, one computes while the other's keys are being loaded. For scores, a warp has its own keys. For sums of
// values, it has its own dimensions of all keys, and reads the weights from shared memory. So nothing is left to add
// up. As in linear.cu, a quad of lanes reads 64 consecutive bytes of a key. Keys and queries have the same order of
// dimensions inside a step. The product takes each weight as two numbers, the rounded weight and the rounding error, in
// two rows of a step. So only the rounding of the float32 sums is lost.
//
// Each query has a row of the step to itself (two rows for values). Its keys lie in the same block, warp and step,
// whatever else is in the tile. Keys that it does not see have weight 0, whatever their values. So its bits do not
// depend on how queries are grouped.
#include "model/gpu/attention_tiles.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kWarpKeys = kKeyBlock / kTileWarps; // 4 steps of 8 keys for scores, 2 of 16 for values
static_assert(kWarpKeys == kWarp);

// The data of a tile that the warps share, in shared memory.
struct TileState {
    Query queries[kTileQueries];
    float largest[kTileQueries][kTileWarps], sums[kTileQueries][kTileWarps];
};

// kChunks: chunks of 32 dimensions. The values of kStagedWarps warps lie here together: 64 KiB at most, for any device.
template <int kChunks> struct TileMemory {
    static constexpr int kStages = kChunks <= 4 ? 1 : 2;
    static constexpr int kStagedWarps = kTileWarps / kStages; // warps whose keys are staged together
    static constexpr int kEighths = 4 * kChunks;              // eighths of 8 dimensions
    static constexpr int kWarpEighths = kEighths / kTileWarps;
    uint4 values[kStagedWarps][kWarpKeys][kEighths]; // eighth_of()
    unsigned numbers[kChunks][2][kWarp][4];          // of the queries: left sides of the steps of 16 dimensions
    uint4 weights[kTileWarps][2][2][kWarp];          // of a warp, 16 keys, 8 queries: a step's left side, see weigh()
    TileState states[2];                             // of alternating tiles
    // Returns the place of 8 dimensions of a staged key. No two of 8 consecutive keys share a bank there.
    __device__ uint4& eighth_of(int staged_warp, int key, int eighth) {
        return values[staged_warp][key][eighth ^ (key & 7)];
    }
};

// The work of a block of threads on a block of keys, 32 of them in each warp.
template <typename T, int kChunks> struct BlockOfKeys {
    using Memory = TileMemory<kChunks>;
    const RowTable& table;
    const AttendCall& call;
    Memory& memory;
    const Work& work;
    int warp;
    __device__ int first_key(int of_warp) const { return work.block * kKeyBlock + of_warp * kWarpKeys; }

    // Stages the tile's queries and their numbers; all threads.
    __device__ void stage_queries(const Tile& tile, TileState& state) {
        constexpr unsigned kEighths = Memory::kEighths;
        for (unsigned each = threadIdx.x; each < kTileQueries * kEighths; each += kTileThreads) {
            const unsigned number = each / kEighths, eighth = each % kEighths;
            const Query query = query_of(table, call, tile, static_cast<int>(number));
            if (eighth == 0) state.queries[number] = query;
            const uint4 eight = eighth_of_query<T>(call, query, static_cast<int>(8 * eighth));
            const unsigned lane = 4 * (number % 8) + eighth % 4, i = number / 8;
#pragma unroll
            for (int word = 0; word < 4; ++word)
                memory.numbers[eighth / 4][word / 2][lane][2 * (word % 2) + i] = word_of(eight, word);
        }
    }
    // Loads 8 keys per step: lane (g, t) has dimensions 8 t .. 8 t + 7 of every 32 of key g.
    __device__ void load_keys_of(const KeyPlaces& places, uint4 (&keys)[4][kChunks]) const {
        const uint4* from = static_cast<const uint4*>(call.cache.keys) + places.begin;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int offset = places.offset_of(8 * n + lane_g());
#pragma unroll
            for (int c = 0; c < kChunks; ++c)
                keys[n][c] = from[offset + places.eighth(4 * c + lane_t())];
        }
    }

    // Starts to copy the values of the warp's keys into shared memory, if they belong to this stage.
    __device__ void copy_values(const KeyPlaces& places, int stage) {
        constexpr unsigned kEighths = Memory::kEighths;
        if (warp / Memory::kStagedWarps != stage) return;
        // Values derived from the lane are not kept either.
        const auto lane = static_cast<unsigned>(of_lane(lane_of_thread(), lane_of_thread()));
        const int eighth = static_cast<int>(lane % kEighths);
        const uint4* from = static_cast<const uint4*>(call.cache.values) + places.begin + places.eighth(eighth);
#pragma unroll
        for (unsigned i = 0; i < kEighths; ++i) {
            const auto key = static_cast<int>(i * (kWarp / kEighths) + lane / kEighths);
            copy_async(&memory.eighth_of(warp % Memory::kStagedWarps, key, eighth), from + places.offset_of(key));
        }
        end_copies();
    }

    // Computes scores [step][2 i + b]: query i of the lane and key 2 t + b of the step.
    __device__ void multiply_keys_of(const uint4 (&keys)[4][kChunks], float (&scores)[4][4]) const {
#pragma unroll
        for (int c = 0; c < kChunks; ++c)
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                const uint4 four = *reinterpret_cast<const uint4*>(memory.numbers[c][step][lane_of_thread()]);
                const unsigned queries[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    const unsigned of_k[2] = {word_of(keys[n][c], 2 * step), word_of(keys[n][c], 2 * step + 1)};
                    multiply_16x8x16<T>(scores[n], queries, of_k);
                }
            }
    }

    // Turns products into scores, minus infinity if a query does not see the key. Shares the warp's largest score.
    __device__ void finish_scores(TileState& state, float (&scores)[4][4]) {
        const Query queries[2] = {state.queries[lane_g()], state.queries[lane_g() + 8]};
        const unsigned seen[2] = {queries[0].reach.seen(first_key(warp)), queries[1].reach.seen(first_key(warp))};
        if (call.soft_cap > 0 || call.slopes != nullptr || call.relative_biases != nullptr) {
#pragma unroll
            for (int n = 0; n < 4; ++n)
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const int key = first_key(warp) + 8 * n + 2 * lane_t() + c % 2;
                    scores[n][c] = score_of(call, scores[n][c], key, queries[c / 2].head, queries[c / 2].position);
                }
        } else {
#pragma unroll
            for (int n = 0; n < 4; ++n)
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    scores[n][c] *= call.scale;
        }
        if (__any_sync(kAllLanes, (seen[0] & seen[1]) != 0xffffffffu)) {
#pragma unroll
            for (int n = 0; n < 4; ++n)
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    if ((seen[c / 2] >> (8 * n + 2 * lane_t() + c % 2) & 1) == 0) scores[n][c] = -INFINITY;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float largest = -INFINITY;
#pragma unroll
            for (int n = 0; n < 4; ++n)
                largest = fmaxf(largest, fmaxf(scores[n][2 * i], scores[n][2 * i + 1]));
            for (int step = 1; step < 4; step *= 2)
                largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
            if (lane_t() == 0) state.largest[lane_g() + 8 * i][warp] = largest;
        }
    }

    // Computes exp(score - largest of the block) for the block's product with values. 16 keys and 8 queries make the
    // left side of a step: rows g are rounded weights, rows g + 8 the rounding errors.
    __device__ void weigh(TileState& state, int n_eights, const float (&scores)[4][4]) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (i >= n_eights) break;
            const float of_block = largest_of(state, lane_g() + 8 * i);
            const float largest = of_block == -INFINITY ? 0.0f : of_block; // nothing is seen: all weights are 0
            float sum = 0;
            unsigned weights[4], rests[4];
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                const float weight[2] = {power_of_two((scores[n][2 * i] - largest) * kLog2OfE),
                                         power_of_two((scores[n][2 * i + 1] - largest) * kLog2OfE)};
                sum += weight[0];
                sum += weight[1];
                weights[n] = pair_of<T>(weight[0], weight[1]);
                T rounded[2];
                memcpy(rounded, &weights[n], sizeof rounded);
                rests[n] = pair_of<T>(weight[0] - to_float(rounded[0]), weight[1] - to_float(rounded[1]));
            }
#pragma unroll
            for (int step = 0; step < 2; ++step)
                memory.weights[warp][step][i][lane_of_thread()] = {weights[2 * step], rests[2 * step],
                                                                   weights[2 * step + 1], rests[2 * step + 1]};
            for (int step = 1; step < 4; step *= 2)
                sum += __shfl_xor_sync(kAllLanes, sum, step);
            if (lane_t() == 0) state.sums[lane_g() + 8 * i][warp] = sum;
        }
    }
    __device__ float largest_of(const TileState& state, int query) const {
        float largest = -INFINITY;
#pragma unroll
        for (int of = 0; of < kTileWarps; ++of)
            largest = fmaxf(largest, state.largest[query][of]);
        return largest;
    }
    __device__ float sum_of(const TileState& state, int query) const {
        float sum = 0;
#pragma unroll
        for (int of = 0; of < kTileWarps; ++of)
            sum += state.sums[query][of];
        return sum;
    }

    // sums [of 8 queries][of 8 dimensions of the warp's] += weights * the staged values.
    template <int kEights> using Sums = float[kEights][Memory::kWarpEighths][4];
    template <int kEights> __device__ void multiply_values(int stage, Sums<kEights>& sums) {
#pragma unroll
        for (int of = 0; of < Memory::kStagedWarps; ++of) {
            unsigned values[Memory::kWarpEighths][4];
#pragma unroll
            for (int e = 0; e < Memory::kWarpEighths; ++e)
                load_transposed(&memory.eighth_of(of, lane_of_thread(), warp * Memory::kWarpEighths + e), values[e]);
#pragma unroll
            for (int step = 0; step < 2; ++step)
#pragma unroll
                for (int i = 0; i < kEights; ++i) {
                    const uint4 four = memory.weights[stage * Memory::kStagedWarps + of][step][i][lane_of_thread()];
                    const unsigned weights[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                    for (int e = 0; e < Memory::kWarpEighths; ++e) {
                        const unsigned pair[2] = {values[e][2 * step], values[e][2 * step + 1]};
                        multiply_16x8x16<T>(sums[i][e], weights, pair);
                    }
                }
        }
    }

    // Takes non-finite values out of the warp's dimensions: zero times them is NaN, even for queries that do not see
    // the key. Lane kTileWarps e + w gets a bit per key of warp w with such values in the e-th eighth.
    __device__ void take_out_non_finite(int stage, unsigned& taken_out) {
#pragma unroll 1
        for (int i = 0; i < Memory::kWarpEighths * Memory::kStagedWarps; ++i) {
            const int e = i / Memory::kStagedWarps, of = i % Memory::kStagedWarps;
            uint4& eight = memory.eighth_of(of, lane_of_thread(), warp * Memory::kWarpEighths + e);
            const bool is_out = has_non_finite<T>(eight);
            if (is_out) eight = {0, 0, 0, 0};
            const unsigned keys = __ballot_sync(kAllLanes, is_out);
            if (lane_of_thread() == e * kTileWarps + stage * Memory::kStagedWarps + of) taken_out |= keys;
        }
        __syncwarp();
    }
    // Makes sums NaN for the queries that see a key whose values were taken out.
    template <int kEights> __device__ void spoil_sums(const TileState& state, unsigned taken_out, Sums<kEights>& sums) {
#pragma unroll
        for (int i = 0; i < kEights; ++i)
#pragma unroll
            for (int e = 0; e < Memory::kWarpEighths; ++e)
#pragma unroll 1
                for (int of = 0; of < kTileWarps; ++of) {
                    const unsigned keys = of_lane(taken_out, e * kTileWarps + of);
                    if ((state.queries[lane_g() + 8 * i].reach.seen(first_key(of)) & keys) != 0)
                        for (float& sum : sums[i][e])
                            sum = NAN;
                }
    }

    // Computes a tile's results for the warp's dimensions, from weights and values in shared memory; all threads.
    template <int kEights>
    __device__ void sum_values(const TileState& state, const KeyPlaces& places, bool is_last, unsigned& taken_out) {
        Sums<kEights> sums = {};
        if constexpr (Memory::kStages == 1) {
#pragma unroll 1
            for (bool is_clean = false;; is_clean = true) {
                bool is_finite = true;
                for (auto& of_queries : sums)
                    for (auto& of_dims : of_queries)
                        for (float& sum : of_dims)
                            sum = 0;
                multiply_values<kEights>(0, sums);
                for (const auto& of_queries : sums)
                    for (const auto& of_dims : of_queries)
                        for (const float sum : of_dims)
                            is_finite = is_finite && sum - sum == 0;
                if (is_clean || !__any_sync(kAllLanes, !is_finite)) break;
                take_out_non_finite(0, taken_out);
            }
        } else {
            for (int stage = 0; stage < Memory::kStages; ++stage) {
                if (stage > 0) {
                    __syncthreads(); // the previous values have been read
                    copy_values(places, stage);
                    wait_for_copies<0>();
                    __syncthreads();
                }
                take_out_non_finite(stage, taken_out);
                multiply_values<kEights>(stage, sums);
            }
            if (!is_last) {
                __syncthreads();
                copy_values(places, 0); // for the next tile
            }
        }
        if (__any_sync(kAllLanes, taken_out != 0)) spoil_sums<kEights>(state, taken_out, sums);
        store<kEights>(state, sums);
    }

    // Stores a part, or the result if the query has a single part.
    template <int kEights> __device__ void store(const TileState& state, const Sums<kEights>& sums) {
#pragma unroll
        for (int i = 0; i < kEights; ++i) {
            const int number = lane_g() + 8 * i;
            const Query query = state.queries[number];
            if (!query.reach.meets(work.block)) continue;
            const bool is_result = query.reach.blocks().size() == 1;
            float* part = part_of(call, query.row, query.head, work.block);
            T* out = attended_by<T>(call, query.row, query.head);
            float sum = is_result || (warp == 0 && lane_t() == 0) ? sum_of(state, number) : 0.0f;
            if (is_result) sum = with_sink(call, query.head, largest_of(state, number), sum);
#pragma unroll
            for (int e = 0; e < Memory::kWarpEighths; ++e) {
                const int d = 8 * (warp * Memory::kWarpEighths + e) + 2 * lane_t();
                const float2 two = {sums[i][e][0] + sums[i][e][2], sums[i][e][1] + sums[i][e][3]};
                if (is_result) {
                    if (d < call.cache.head_dim) out[d] = from_float<T>(two.x / sum);
                    if (d + 1 < call.cache.head_dim) out[d + 1] = from_float<T>(two.y / sum);
                } else if (d < call.cache.head_stride) {
                    *reinterpret_cast<float2*>(part + kPartHead + d) = two;
                }
            }
            if (!is_result && warp == 0 && lane_t() == 0)
                *reinterpret_cast<float2*>(part) = {largest_of(state, number), sum};
        }
    }

    // Attends the work's tile and the other tiles of its share with the same keys. Returns whether it stored parts.
    __device__ bool attend() {
        const Tile& first = work.tile;
        const int first_row = first.first_row;
        const auto [reach, has_parts] = reach_of_work(table, call, work);
        if (!reach.meets(work.block)) return false; // the same on all threads
        const int nearest = nearest_key(first_key(warp) + lane_of_thread(), reach.begin, reach.end);
        const KeyPlaces places = key_places(table, call, first_row, first.kv_head, place_of(table, first_row, nearest));
        uint4 keys[4][kChunks];
        load_keys_of(places, keys);
        copy_values(places, 0);
        stage_queries(first, memory.states[0]);
        __syncthreads();           // queries
        int number = first.number; // of the tile
        unsigned taken_out = 0;
#pragma unroll 1
        for (int turn = 0;; turn ^= 1) {
            warp = of_lane(warp, 0); // also not from tile to tile
            TileState& state = memory.states[turn];
            float scores[4][4] = {};
            multiply_keys_of(keys, scores);
            finish_scores(state, scores);
            __syncthreads(); // largest; the queries' numbers have been read
            Tile tile = first;
            tile.number = number;
            const int n_queries = tile.n_queries();
            number += work.shares;
            const bool is_last = number >= tile.end_together();
            tile.number = number;
            if (!is_last) stage_queries(tile, memory.states[turn ^ 1]);
            weigh(state, n_queries > 8 ? 2 : 1, scores);
            wait_for_copies<0>();
            __syncthreads(); // weights, sums, values; the next queries
            if (n_queries > 8)
                sum_values<2>(state, places, is_last, taken_out);
            else
                sum_values<1>(state, places, is_last, taken_out);
            if (is_last) break;
        }
        return has_parts;
    }
};

template <typename T, int kChunks>
__global__ void __launch_bounds__(kTileThreads, kChunks <= 4 ? 2 : 1)
    attend_tiles(RowTable table, AttendCall call, Sharing sharing) {
    auto& memory = *reinterpret_cast<TileMemory<kChunks>*>(dynamic_shared());
    attend_all<T, (kChunks + 3) / 4, BlockOfKeys<T, kChunks>>(table, call, sharing, memory);
}

template <typename T, int kChunks> void launch_attention(void* stream, const RowTable& table, const AttendCall& call) {
    // Two blocks of threads overlap if there are more blocks of keys than multiprocessors. If there never are, one
    // block leaves a cache twice as large to the products' rows.
    const bool is_long = key_blocks(call.cache.capacity) * call.cache.n_kv_heads > multiprocessors();
    const int together = kChunks <= 4 && is_long ? 2 : 1;
    const Sharing sharing = sharing_of(table, call, together);
    const Grid grid = {n_blocks_of(call, sharing), kTileThreads, sizeof(TileMemory<kChunks>), together};
    launch(stream, grid, attend_tiles<T, kChunks>, table, call, sharing);
}

} // namespace

void attend_tensor_cores(void* stream, const RowTable& table, const AttendCall& call) {
    const auto launch_of = [&]<typename T>(T*) {
        call.cache.head_dim <= 64    ? launch_attention<T, 2>(stream, table, call)
        : call.cache.head_dim <= 128 ? launch_attention<T, 4>(stream, table, call)
                                     : launch_attention<T, 8>(stream, table, call);
    };
    call.cache.type == NumberType::bfloat16 ? launch_of(static_cast<__nv_bfloat16*>(nullptr))
                                            : launch_of(static_cast<__half*>(nullptr));
}

} // namespace entrodraft::model::gpu
