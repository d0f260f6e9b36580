// Attention of up to six queries over one head's keys and values. Part of kernels.inl, which includes it.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

// The types of keys and values. load() gives kWidth numbers as floats.
struct KvFloat32 {
    static constexpr int kBytes = 4;
    static ALWAYS_INLINE Vec load(const std::byte* from) { return *reinterpret_cast<const Vec*>(from); }
};

struct KvBFloat16 {
    static constexpr int kBytes = 2;
    static ALWAYS_INLINE Vec load(const std::byte* from) {
        return floats_of_bfloat16(reinterpret_cast<const char*>(from));
    }
};

struct KvFloat16 {
    static constexpr int kBytes = 2;
    static ALWAYS_INLINE Vec load(const std::byte* from) {
        return floats_of_float16(reinterpret_cast<const char*>(from));
    }
};

struct KvInt8 {
    static constexpr int kBytes = 1;
    static ALWAYS_INLINE Vec load(const std::byte* from) {
        return __builtin_convertvector(*reinterpret_cast<const SmallVec*>(from), Vec);
    }
};

// Returns one number, and reads nothing after it.
template <typename Type> ALWAYS_INLINE float one_of(const std::byte* from) {
    std::byte numbers[kWidth * Type::kBytes] = {};
    for (int i = 0; i < Type::kBytes; ++i)
        numbers[i] = from[i];
    return Type::load(numbers)[0];
}

// Scores of one block of 16 keys for queries [query, query + kQueries).
template <typename Type, int kQueries> ALWAYS_INLINE void score_block(const AttentionArgs& a, int query, int block) {
    const KvHead& head = block * kLanes < a.n_prefix ? a.prefix : a.kv[query];
    const std::byte* block_keys =
        head.keys + static_cast<std::size_t>(block) * static_cast<std::size_t>(a.head_dim) * kLanes * Type::kBytes;
    float* scores = a.scratch + static_cast<std::size_t>(query) * a.scratch_stride + block * kLanes;
    for (int lane = 0; lane < kLanes; lane += kWidth) {
        const std::byte* keys = block_keys + lane * Type::kBytes;
        Vec sums[kQueries] = {};
        for (int d = 0; d < a.head_dim; ++d) {
            const Vec key = Type::load(keys + d * kLanes * Type::kBytes);
#pragma GCC unroll 8
            for (int i = 0; i < kQueries; ++i)
                sums[i] += splat(a.q[query + i][d]) * key;
        }
        if constexpr (Type::kBytes == 1) {
            const Vec scales = *reinterpret_cast<const Vec*>(head.key_scales + block * kLanes + lane);
#pragma GCC unroll 8
            for (int i = 0; i < kQueries; ++i)
                sums[i] *= scales;
        }
#pragma GCC unroll 8
        for (int i = 0; i < kQueries; ++i)
            *reinterpret_cast<Vec*>(scores + static_cast<std::size_t>(i) * a.scratch_stride + lane) = sums[i] * a.scale;
    }
}

// The keys that some query of a call sees: [begin, end). begin and padded lie at borders of blocks.
struct KeyRange {
    int begin = 0;
    int end = 0;
    int padded = 0;
    int joint_end = 0; // up to here all queries read the same memory

    // Returns the end of the stretch of joint values that holds j, in the prefix or after it.
    ALWAYS_INLINE int stretch_end(const AttentionArgs& a, int j) const {
        return j < a.n_prefix && a.n_prefix < joint_end ? a.n_prefix : joint_end;
    }
};

template <int kQueries> KeyRange range_of(const AttentionArgs& a) {
    KeyRange keys = {a.first_key[0], 0, 0, 0};
    for (int i = 0; i < kQueries; ++i) {
        keys.begin = a.first_key[i] < keys.begin ? a.first_key[i] : keys.begin;
        keys.end = a.n_keys[i] > keys.end ? a.n_keys[i] : keys.end;
    }
    keys.begin = keys.begin / kLanes * kLanes;
    keys.padded = (keys.end + kLanes - 1) / kLanes * kLanes;
    keys.joint_end = !a.apart ? keys.end : a.n_prefix > keys.begin ? a.n_prefix : keys.begin;
    return keys;
}

template <typename Type> ALWAYS_INLINE const std::byte* value_of(const AttentionArgs& a, int query, int j, int column) {
    const std::byte* values = j < a.n_prefix ? a.prefix.values : a.kv[query].values;
    return values +
           (static_cast<std::size_t>(j) * static_cast<std::size_t>(a.value_dim) + static_cast<std::size_t>(column)) *
               Type::kBytes;
}

ALWAYS_INLINE const float* weights_of(const AttentionArgs& a, int query) {
    return a.scratch + static_cast<std::size_t>(query) * a.scratch_stride;
}

ALWAYS_INLINE void add_bias(float* scores, const float* bias, const KeyRange& keys) {
    for (int j = keys.begin; j < keys.padded; j += kWidth)
        *reinterpret_cast<Vec*>(scores + j) += *reinterpret_cast<const Vec*>(bias + j);
}

ALWAYS_INLINE bool is_seen(const AttentionArgs& a, int query, int j) {
    const int bit = j - a.mask_begin[query];
    return (a.mask[query][bit / 64] >> (bit % 64) & 1) != 0;
}

// Moves together the scores of the tree's keys that the query sees, to their places in a text with these keys alone. So
// lanes are summed as for that text, to the bit.
ALWAYS_INLINE void close_gaps(const AttentionArgs& a, int query, float* scores) {
    int at = a.mask_begin[query];
    for (int j = at; j < a.n_keys[query]; ++j)
        if (is_seen(a, query, j)) scores[at++] = scores[j];
    for (; at < a.n_keys[query]; ++at)
        scores[at] = kMasked;
}

// Moves the weights back to their keys.
ALWAYS_INLINE void open_gaps(const AttentionArgs& a, int query, float* scores) {
    int at = a.mask_begin[query];
    for (int j = at; j < a.n_keys[query]; ++j)
        at += is_seen(a, query, j) ? 1 : 0;
    for (int j = a.n_keys[query] - 1; j >= a.mask_begin[query]; --j)
        scores[j] = is_seen(a, query, j) ? scores[--at] : 0;
}

// Turns scores into weights that sum to 1 / the returned scale; masked and padded keys get exactly 0.
float soften(const AttentionArgs& a, int query, const KeyRange& keys) {
    float* scores = a.scratch + static_cast<std::size_t>(query) * a.scratch_stride;
    if (a.soft_cap > 0) soft_cap(scores + keys.begin, a.soft_cap, keys.padded - keys.begin);
    if (a.bias[query]) add_bias(scores, a.bias[query], keys);
    for (int j = keys.begin; j < a.first_key[query]; ++j)
        scores[j] = kMasked;
    for (int j = a.n_keys[query]; j < keys.padded; ++j)
        scores[j] = kMasked;
    if (a.mask[query]) close_gaps(a, query, scores);
    Vec largest = splat(kMasked);
    for (int j = keys.begin; j < keys.padded; j += kWidth) {
        const Vec s = *reinterpret_cast<const Vec*>(scores + j);
        largest = s > largest ? s : largest;
    }
    if (a.sink[query]) largest = larger(largest, splat(*a.sink[query]));
    const Vec top = splat(max_lanes(largest));
    Vec sum = {};
    for (int j = keys.begin; j < keys.padded; j += kWidth) {
        const Vec s = *reinterpret_cast<const Vec*>(scores + j);
        const Vec zero = {};
        const Vec e = s > kMasked ? exp_nonpositive(s - top) : zero;
        *reinterpret_cast<Vec*>(scores + j) = e;
        sum += e;
    }
    if (a.mask[query]) open_gaps(a, query, scores);
    const float of_sink = a.sink[query] ? exp_nonpositive(splat(*a.sink[query]) - top)[0] : 0.0f;
    return 1.0f / (sum_lanes(sum) + of_sink);
}

// Scales the weights of values that are codes with a scale per position.
void scale_weights(const AttentionArgs& a, int query, const KeyRange& keys) {
    float* weights = a.scratch + static_cast<std::size_t>(query) * a.scratch_stride;
    for (int j = keys.begin; j < keys.padded; j += kWidth) {
        const float* scales = (j < a.n_prefix ? a.prefix : a.kv[query]).value_scales + j;
        *reinterpret_cast<Vec*>(weights + j) *= *reinterpret_cast<const Vec*>(scales);
    }
}

// Continues the sums of mix_columns over the query's own values.
template <typename Type, int kVectors>
void mix_own(const AttentionArgs& a, int query, float scale, int first, int begin) {
    Vec sums[kVectors];
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c)
        sums[c] = *reinterpret_cast<const Vec*>(a.out[query] + first + c * kWidth);
    const std::byte* value = value_of<Type>(a, query, begin, first);
    for (int j = begin; j < a.n_keys[query]; ++j, value += a.value_dim * Type::kBytes) {
        const Vec weight = splat(weights_of(a, query)[j]);
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c)
            sums[c] += weight * Type::load(value + c * kWidth * Type::kBytes);
    }
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c)
        *reinterpret_cast<Vec*>(a.out[query] + first + c * kWidth) = sums[c] * scale;
}

// Weighted sum of values over columns [first, first + kWidth * kVectors).
template <typename Type, int kQueries, int kVectors>
ALWAYS_INLINE void mix_columns(const AttentionArgs& a, const float* scales, int first, const KeyRange& keys) {
    Vec sums[kQueries][kVectors] = {};
    for (int j = keys.begin; j < keys.joint_end;) {
        const int end = keys.stretch_end(a, j);
        const std::byte* value = value_of<Type>(a, 0, j, first);
        for (; j < end; ++j, value += a.value_dim * Type::kBytes) {
            Vec v[kVectors];
#pragma GCC unroll 4
            for (int c = 0; c < kVectors; ++c)
                v[c] = Type::load(value + c * kWidth * Type::kBytes);
#pragma GCC unroll 8
            for (int i = 0; i < kQueries; ++i) {
                const Vec weight = splat(weights_of(a, i)[j]);
#pragma GCC unroll 4
                for (int c = 0; c < kVectors; ++c)
                    sums[i][c] += weight * v[c];
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i)
#pragma GCC unroll 4
        for (int c = 0; c < kVectors; ++c)
            *reinterpret_cast<Vec*>(a.out[i] + first + c * kWidth) = a.apart ? sums[i][c] : sums[i][c] * scales[i];
    for (int i = 0; a.apart && i < kQueries; ++i)
        mix_own<Type, kVectors>(a, i, scales[i], first, keys.joint_end);
}

template <typename Type, int kQueries> void score(const AttentionArgs& a, const KeyRange& keys) {
    const int joint_blocks = (keys.joint_end + kLanes - 1) / kLanes;
    for (int block = keys.begin / kLanes; block < joint_blocks; ++block)
        score_block<Type, kQueries>(a, 0, block);
    for (int i = 0; a.apart && i < kQueries; ++i)
        for (int block = joint_blocks; block * kLanes < a.n_keys[i]; ++block)
            score_block<Type, 1>(a, i, block);
}

template <typename Type, int kQueries> void attention_exact(const AttentionArgs& a) {
    const KeyRange keys = range_of<kQueries>(a);
    score<Type, kQueries>(a, keys);
    float scales[kQueries];
    for (int i = 0; i < kQueries; ++i) {
        scales[i] = soften(a, i, keys);
        if (Type::kBytes == 1 && a.value_dim > 0) scale_weights(a, i, keys);
    }
    int column = 0;
    for (; column + kWidth * 4 <= a.value_dim; column += kWidth * 4)
        mix_columns<Type, kQueries, 4>(a, scales, column, keys);
    for (; column + kWidth <= a.value_dim; column += kWidth)
        mix_columns<Type, kQueries, 1>(a, scales, column, keys);
    if (column == a.value_dim) return;
    // The last columns go with columns before them, again in a whole vector. Alone, their sums might be rounded
    // differently for another number of queries.
    if (a.value_dim >= kWidth) return mix_columns<Type, kQueries, 1>(a, scales, a.value_dim - kWidth, keys);
    for (; column < a.value_dim; ++column) {
        for (int i = 0; i < kQueries; ++i) {
            float sum = 0;
            for (int j = keys.begin; j < a.n_keys[i]; ++j)
                sum = __builtin_fmaf(weights_of(a, i)[j], one_of<Type>(value_of<Type>(a, i, j, column)), sum);
            a.out[i][column] = sum * scales[i];
        }
    }
}

template <typename Type> void attention_of(const AttentionArgs& a) {
    switch (a.n_queries) {
    case 1:
        return attention_exact<Type, 1>(a);
    case 2:
        return attention_exact<Type, 2>(a);
    case 3:
        return attention_exact<Type, 3>(a);
    case 4:
        return attention_exact<Type, 4>(a);
    case 5:
        return attention_exact<Type, 5>(a);
    case 6:
        return attention_exact<Type, 6>(a);
    default:
        return;
    }
}

void attention(const AttentionArgs& a) {
    switch (a.kv_type) {
    case WeightType::bfloat16:
        return attention_of<KvBFloat16>(a);
    case WeightType::float16:
        return attention_of<KvFloat16>(a);
    case WeightType::int8:
        return attention_of<KvInt8>(a);
    default:
        return attention_of<KvFloat32>(a);
    }
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
