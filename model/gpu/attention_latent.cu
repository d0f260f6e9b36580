// Latent attention over 16-bit caches on tensor cores (DeepSeek-V2). All query heads read one key head, and the values
// are the first dimensions of its keys. So a key is read once for a tile of 16 queries, for its scores and as a value.
//
// attention_tiles.cuh says how work is shared. A block of threads goes through its 256 keys in steps of 32, with a
// running maximum and sum. While one step is computed, another is copied into shared memory. If its memory is large
// enough, a multiprocessor runs two blocks of threads, so up to 72 KiB are being copied. For scores, a warp has half of
// a step's keys and a quarter of their dimensions. For sums of values, it has an eighth of the dimensions of all keys.
// The product takes each weight as two numbers: the rounded weight and the rounding error.
//
// Each query has a row of the tensor-core step to itself, and steps begin at multiples of 32 keys. A step in which a
// query sees no key leaves its sums unchanged. So the bits of a query's result depend only on its own keys.
#include "model/gpu/attention_tiles.cuh"

namespace entrodraft::model::gpu {

namespace {

constexpr int kLatentKeys = 32; // in a step
constexpr int kKeyHalves = 2, kDimQuarters = kTileWarps / kKeyHalves;
static_assert(kLatentKeys == kWarp && kLatentKeys == kKeyHalves * 16);

// kChunks: chunks of 32 dimensions.
template <int kChunks> struct LatentMemory {
    static constexpr int kEighths = 4 * kChunks;                 // eighths of 8 dimensions
    uint4 keys[2][kLatentKeys][kEighths];                        // of alternating steps; eighth_of()
    float products[kDimQuarters][kTileQueries][kLatentKeys + 8]; // the 8: no two rows of 4 share a bank
    unsigned weights[2][2][kWarp][4]; // a step's left side: of 16 keys; then the rounding errors
    Query queries[kTileQueries];
    float scales[kTileQueries], largest[kTileQueries], sums[kTileQueries];
    WorkReach of_work;
    int first_step, end_step; // [first, end): the steps of which its rows see some key
    // Returns the place of 8 dimensions of a key. Neither 4 of them from each of two neighbouring keys (for scores) nor
    // one from each of 8 keys (for values) share a bank.
    __device__ uint4& eighth_of(int buffer, int key, int eighth) {
        return keys[buffer][key][eighth ^ ((key >> 1 & 3) | (key & 1) << 2)];
    }
};

// The work of a block of threads on a block of keys. kOwn: eighths of values that a warp has.
template <typename T, int kChunks, int kOwn> struct BlockOfLatents {
    using Memory = LatentMemory<kChunks>;
    static constexpr int kQuarter = (kChunks + kDimQuarters - 1) / kDimQuarters; // chunks; some warps have one fewer
    const RowTable& table;
    const AttendCall& call;
    Memory& memory;
    const Work& work;
    int warp;
    int lane = lane_of_thread();
    // Values derived from warp and lane are computed anew in each step, so that registers hold queries and sums.
    __device__ void forget() {
        warp = of_lane(warp_of_thread(), 0);
        lane = of_lane(lane_of_thread(), lane_of_thread());
    }
    __device__ int g() const { return lane / 4; }
    __device__ int t() const { return lane % 4; }
    __device__ int first_key(int step) const { return work.block * kKeyBlock + step * kLatentKeys; }
    __device__ int chunk(int i) const { return warp / kKeyHalves + kDimQuarters * i; }

    // Starts to copy the step's keys; each warp copies some. The nearest seen key replaces keys that no row sees.
    __device__ void start_step(const Reach& reach, int step, int buffer) {
        constexpr int kOfWarp = kLatentKeys / kTileWarps * Memory::kEighths;
        static_assert(kOfWarp % kWarp == 0);
        const int row = work.tile.first_row;
        const int nearest = nearest_key(first_key(step) + lane, reach.begin, reach.end);
        const KeyPlaces places = key_places(table, call, row, work.tile.kv_head, place_of(table, row, nearest));
        const uint4* from = static_cast<const uint4*>(call.cache.keys) + places.begin;
#pragma unroll 3 // keeps few addresses at once
        for (int i = 0; i < kOfWarp / kWarp; ++i) {
            const int number = i * kWarp + lane, eighth = number % Memory::kEighths;
            const int key = warp * (kLatentKeys / kTileWarps) + number / Memory::kEighths;
            copy_async(&memory.eighth_of(buffer, key, eighth), from + places.offset_of(key) + places.eighth(eighth));
        }
        end_copies();
    }

    __device__ uint4 eighth_of_query(const Query& query, int eighth) const {
        const int stride = call.cache.head_stride / 8;
        if (query.row < 0 || eighth >= stride) return {0, 0, 0, 0};
        const T* from = static_cast<const T*>(call.qkv) +
                        static_cast<std::size_t>(query.row) * static_cast<std::size_t>(call.stride);
        return reinterpret_cast<const uint4*>(from)[query.head * stride + eighth];
    }

    // Computes the products of the warp's keys over its dimensions. Zero times a non-finite value would be NaN even for
    // queries that do not see its key. So such values become zeros, and the key's products NaN.
    __device__ void multiply_keys(const uint4 (&queries)[2][kQuarter], int buffer) {
        const int first = warp % kKeyHalves * 16;
        float products[2][4] = {};
#pragma unroll
        for (int i = 0; i < kQuarter; ++i) {
            if (chunk(i) >= kChunks) break; // the same on all lanes
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                uint4& at = memory.eighth_of(buffer, first + 8 * n + g(), 4 * chunk(i) + t());
                uint4 eight = at;
                if (has_non_finite<T>(eight)) {
                    at = {0, 0, 0, 0};
                    eight = {0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu};
                }
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const unsigned of_q[4] = {word_of(queries[0][i], 2 * half), word_of(queries[1][i], 2 * half),
                                              word_of(queries[0][i], 2 * half + 1),
                                              word_of(queries[1][i], 2 * half + 1)};
                    const unsigned of_k[2] = {word_of(eight, 2 * half), word_of(eight, 2 * half + 1)};
                    multiply_16x8x16<T>(products[n], of_q, of_k);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < 2; ++n)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                float* to = &memory.products[warp / kKeyHalves][g() + 8 * i][first + 8 * n + 2 * t()];
                *reinterpret_cast<float2*>(to) = {products[n][2 * i], products[n][2 * i + 1]};
            }
    }

    // Handles two queries of the warp, 16 lanes each. Turns the products into weights exp(score - largest so far).
    // Stores the scale that the sums so far need.
    __device__ void weigh(int step, float& largest, float& sum) {
        const int number = 2 * warp + lane / 16, pair = lane % 16;
        const Query& query = memory.queries[number];
        float2 products = {0, 0};
#pragma unroll
        for (int quarter = 0; quarter < kDimQuarters; ++quarter) {
            const float2 part = *reinterpret_cast<const float2*>(&memory.products[quarter][number][2 * pair]);
            products = {products.x + part.x, products.y + part.y};
        }
        const int key = first_key(step) + 2 * pair;
        const unsigned seen = query.reach.seen(key);
        const float low = score_of(call, products.x, key, query.head, query.position),
                    high = score_of(call, products.y, key + 1, query.head, query.position);
        const float scores[2] = {(seen & 1) != 0 ? low : -INFINITY, (seen & 2) != 0 ? high : -INFINITY};
        float top = fmaxf(largest, fmaxf(scores[0], scores[1]));
        for (int distance = 8; distance > 0; distance /= 2)
            top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, distance));
        const float base = top == -INFINITY ? 0.0f : top; // nothing is seen yet: all weights are 0
        const float scale = top == largest ? 1.0f : power_of_two((largest - base) * kLog2OfE);
        const float weights[2] = {power_of_two((scores[0] - base) * kLog2OfE),
                                  power_of_two((scores[1] - base) * kLog2OfE)};
        largest = top;
        sum = sum * scale + weights[0] + weights[1];
        const unsigned bits = pair_of<T>(weights[0], weights[1]);
        T rounded[2];
        memcpy(rounded, &bits, sizeof rounded);
        const int holder = 4 * (number % 8) + pair % 4, word = number / 8 + 2 * (pair / 4 % 2);
        memory.weights[0][pair / 8][holder][word] = bits;
        memory.weights[1][pair / 8][holder][word] =
            pair_of<T>(weights[0] - to_float(rounded[0]), weights[1] - to_float(rounded[1]));
        if (pair == 0) memory.scales[number] = scale;
    }

    // Scales sums [eighths of the warp's dimensions], then adds weights times the step's values.
    __device__ void add_values(int buffer, float (&sums)[kOwn][4]) {
        const float scales[2] = {memory.scales[g()], memory.scales[g() + 8]};
#pragma unroll
        for (int e = 0; e < kOwn; ++e)
#pragma unroll
            for (int c = 0; c < 4; ++c)
                sums[e][c] *= scales[c / 2];
#pragma unroll
        for (int half = 0; half < 2; ++half) { // of the keys
            unsigned weights[2][4];
#pragma unroll
            for (int term = 0; term < 2; ++term) {
                const uint4 four = *reinterpret_cast<const uint4*>(memory.weights[term][half][lane]);
#pragma unroll
                for (int word = 0; word < 4; ++word)
                    weights[term][word] = word_of(four, word);
            }
#pragma unroll
            for (int e = 0; e < kOwn; e += 2) {
                unsigned values[4]; // of two eighths
                load_transposed(&memory.eighth_of(buffer, 16 * half + lane % 16, warp * kOwn + e + lane / 16), values);
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const unsigned pair[2] = {values[2 * i], values[2 * i + 1]};
#pragma unroll
                    for (int term = 0; term < 2; ++term)
                        multiply_16x8x16<T>(sums[e + i], weights[term], pair);
                }
            }
        }
    }

    // Stores a part, or the result if the query has a single part.
    __device__ void store(const float (&sums)[kOwn][4]) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int number = g() + 8 * i;
            const Query& query = memory.queries[number];
            if (!query.reach.meets(work.block)) continue;
            const bool is_result = query.reach.blocks().size() == 1;
            float* part = part_of(call, query.row, query.head, work.block);
            T* out = attended_by<T>(call, query.row, query.head);
            const float largest = memory.largest[number], sum = memory.sums[number];
            const float whole = with_sink(call, query.head, largest, sum);
#pragma unroll
            for (int e = 0; e < kOwn; ++e) {
                const int d = 8 * (warp * kOwn + e) + 2 * t();
                if (d >= call.cache.value_dim) continue; // a multiple of LatentConfig::kUnit
                if (is_result)
                    *reinterpret_cast<unsigned*>(out + d) =
                        pair_of<T>(sums[e][2 * i] / whole, sums[e][2 * i + 1] / whole);
                else
                    *reinterpret_cast<float2*>(part + kPartHead + d) = {sums[e][2 * i], sums[e][2 * i + 1]};
            }
            if (!is_result && warp == 0 && t() == 0) *reinterpret_cast<float2*>(part) = {largest, sum};
        }
    }

    // The first step must be under way.
    __device__ void attend_tile(int number, bool is_last, int& buffer) {
        __syncthreads(); // the previous tile has been stored, and what the rows see is there
        if (threadIdx.x < kTileQueries) {
            Tile tile = work.tile;
            tile.number = number;
            memory.queries[threadIdx.x] = query_of(table, call, tile, static_cast<int>(threadIdx.x));
        }
        __syncthreads();
        uint4 of_queries[2][kQuarter];
#pragma unroll
        for (int i = 0; i < kQuarter; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                of_queries[half][i] = eighth_of_query(memory.queries[g() + 8 * half], 4 * chunk(i) + t());
        float sums[kOwn][4] = {}, largest = -INFINITY, sum = 0;
#pragma unroll 1
        for (int step = memory.first_step; step < memory.end_step; ++step) {
            forget();
            wait_for_copies<0>();
            __syncthreads(); // the keys are there, and all have added the values of the previous step
            const bool is_end = step + 1 == memory.end_step;
            if (!is_end || !is_last)
                start_step(memory.of_work.reach, is_end ? memory.first_step : step + 1, buffer ^ 1);
            multiply_keys(of_queries, buffer);
            __syncthreads(); // products
            weigh(step, largest, sum);
            __syncthreads(); // weights
            add_values(buffer, sums);
            buffer ^= 1;
        }
        for (int distance = 8; distance > 0; distance /= 2)
            sum += __shfl_xor_sync(kAllLanes, sum, distance);
        if (lane % 16 == 0) {
            memory.largest[2 * warp + lane / 16] = largest;
            memory.sums[2 * warp + lane / 16] = sum;
        }
        __syncthreads();
        store(sums);
    }

    // Attends the work's tile and the other tiles of its share with the same keys. Returns whether it stored parts.
    __device__ bool attend() {
        const WorkReach of_work = reach_of_work(table, call, work);
        const Reach& reach = of_work.reach;
        if (!reach.meets(work.block)) return false; // the same on all threads
        const int before = reach.begin - first_key(0), until = reach.end - first_key(0);
        const int first_step = before > 0 ? before / kLatentKeys : 0;
        start_step(reach, first_step, 0);
        if (threadIdx.x == 0) {
            memory.of_work = of_work;
            memory.first_step = first_step;
            memory.end_step = (until < kKeyBlock ? until + kLatentKeys - 1 : kKeyBlock) / kLatentKeys;
        }
        int number = work.tile.number, buffer = 0;
#pragma unroll 1
        while (true) {
            const int next = number + work.shares;
            const bool is_last = next >= work.tile.end_together();
            attend_tile(number, is_last, buffer);
            if (is_last) return memory.of_work.has_parts;
            number = next;
        }
    }
};

template <typename T, int kChunks, int kOwn>
__global__ void __launch_bounds__(kTileThreads, 2) attend_latents(RowTable table, AttendCall call, Sharing sharing) {
    auto& memory = *reinterpret_cast<LatentMemory<kChunks>*>(dynamic_shared());
    attend_all<T, (8 * kTileWarps * kOwn + 127) / 128, BlockOfLatents<T, kChunks, kOwn>>(table, call, sharing, memory);
}

template <typename T, int kDim, int kValueDim>
void launch_latent(void* stream, const RowTable& table, const AttendCall& call) {
    constexpr int kChunks = kDim / 32, kOwn = kValueDim / (8 * kTileWarps), kTogether = 2;
    const Sharing sharing = sharing_of(table, call, kTogether);
    const Grid grid = {n_blocks_of(call, sharing), kTileThreads, sizeof(LatentMemory<kChunks>), kTogether};
    launch(stream, grid, attend_latents<T, kChunks, kOwn>, table, call, sharing);
}

} // namespace

void attend_latent(void* stream, const RowTable& table, const AttendCall& call) {
    const auto launch_of = [&]<typename T>(T*) {
        call.cache.head_dim <= 128 ? launch_latent<T, 128, 128>(stream, table, call)
                                   : launch_latent<T, kMaxLatentDim, kMaxLatentValueDim>(stream, table, call);
    };
    call.cache.type == NumberType::bfloat16 ? launch_of(static_cast<__nv_bfloat16*>(nullptr))
                                            : launch_of(static_cast<__half*>(nullptr));
}

} // namespace entrodraft::model::gpu
