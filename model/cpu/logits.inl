// Statistics of a row of logits: maximum, entropy, sums. Part of kernels.inl, which includes it.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

// The two largest of some values; minus infinity if there are none.
struct Largest {
    float first = -__builtin_inff(), second = -__builtin_inff();

    ALWAYS_INLINE void add(float x) {
        const float lower = x > first ? first : x;
        second = lower > second ? lower : second;
        first = x > first ? x : first;
    }
};

// Notes whether a value of the vectors seen is NaN.
struct NanWatch {
#if defined(__AVX512F__)
    __mmask16 seen = 0;
    ALWAYS_INLINE void add(Vec a, Vec b) {
        seen |= _mm512_cmp_ps_mask(__builtin_bit_cast(__m512, a), __builtin_bit_cast(__m512, b), _CMP_UNORD_Q);
    }
    ALWAYS_INLINE bool any() const {
        return seen != 0;
    }
#elif defined(__AVX2__)
    __m256 seen = _mm256_setzero_ps();
    ALWAYS_INLINE void add(Vec a, Vec b) {
        seen = _mm256_or_ps(seen,
                            _mm256_cmp_ps(__builtin_bit_cast(__m256, a), __builtin_bit_cast(__m256, b), _CMP_UNORD_Q));
    }
    ALWAYS_INLINE bool any() const {
        return _mm256_movemask_ps(seen) != 0;
    }
#else
    IntVec seen = {};
    ALWAYS_INLINE void add(Vec a, Vec b) {
        seen |= (a != a) | (b != b);
    }
    ALWAYS_INLINE bool any() const {
        return (seen[0] | seen[1] | seen[2] | seen[3]) != 0;
    }
#endif
};

// Returns the largest of n values; NaN if one of them is NaN.
ALWAYS_INLINE Largest largest_of(const float* x, int n) {
    NanWatch nan;
    Vec top0 = splat(-__builtin_inff()), top1 = top0, next0 = top0, next1 = top0;
    int i = 0;
    for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
        const Vec x0 = *reinterpret_cast<const Vec*>(x + i), x1 = *reinterpret_cast<const Vec*>(x + i + kWidth);
        next0 = larger(smaller(top0, x0), next0);
        next1 = larger(smaller(top1, x1), next1);
        top0 = larger(x0, top0);
        top1 = larger(x1, top1);
        nan.add(x0, x1);
    }
    const Vec top = larger(top0, top1);
    Largest largest;
    for (int lane = 0; lane < kWidth; ++lane)
        largest.add(top[lane]);
    largest.add(max_lanes(larger(larger(next0, next1), smaller(top0, top1))));
    bool is_nan = nan.any();
    for (; i < n; ++i) {
        largest.add(x[i]);
        is_nan = is_nan || x[i] != x[i];
    }
    if (is_nan) largest.first = __builtin_nanf("");
    return largest;
}

// Sums of exp(x - max) and (x - max) exp(x - max) over a block.
ALWAYS_INLINE LogitStats sums_of(const float* x, int n) {
    const auto [max, runner_up] = largest_of(x, n);
    Vec sum0 = {}, sum1 = {}, shifted0 = {}, shifted1 = {};
    const Vec top = splat(max), lowest = splat(kLowestExponent);
    int i = 0;
    for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
        // Cut off below, so that minus infinity times zero cannot arise.
        const Vec d0 = larger(*reinterpret_cast<const Vec*>(x + i) - top, lowest);
        const Vec d1 = larger(*reinterpret_cast<const Vec*>(x + i + kWidth) - top, lowest);
        const Vec e0 = exp_in_range(d0), e1 = exp_in_range(d1);
        sum0 += e0;
        sum1 += e1;
        shifted0 += d0 * e0;
        shifted1 += d1 * e1;
    }
    LogitStats stats;
    stats.max = max;
    stats.runner_up = runner_up;
    stats.sum_exp = static_cast<double>(sum_lanes(sum0 + sum1));
    stats.sum_shifted_exp = static_cast<double>(sum_lanes(shifted0 + shifted1));
    for (; i < n; ++i) {
        float d = x[i] - max;
        d = d > kLowestExponent ? d : kLowestExponent;
        const float e = exp_in_range(splat(d))[0];
        stats.sum_exp += static_cast<double>(e);
        stats.sum_shifted_exp += static_cast<double>(d * e);
    }
    return stats;
}

ALWAYS_INLINE bool any_equal(Vec a, Vec b) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(__builtin_bit_cast(__m512, a), __builtin_bit_cast(__m512, b), _CMP_EQ_OQ) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps(
               _mm256_cmp_ps(__builtin_bit_cast(__m256, a), __builtin_bit_cast(__m256, b), _CMP_EQ_OQ)) != 0;
#else
    const IntVec equal = a == b;
    return (equal[0] | equal[1] | equal[2] | equal[3]) != 0;
#endif
}

// Returns the first index of a value that is known to occur.
ALWAYS_INLINE int index_of(const float* x, int n, float value) {
    int i = 0;
    while (i + kWidth <= n && !any_equal(*reinterpret_cast<const Vec*>(x + i), splat(value)))
        i += kWidth;
    for (; i < n; ++i)
        if (x[i] == value) return i;
    return 0; // the value is NaN, or there are no values
}

LogitStats logit_max(const float* logits, int n, int first_index) {
    LogitStats stats;
    const auto [max, runner_up] = largest_of(logits, n);
    stats.max = max;
    stats.runner_up = runner_up;
    stats.arg_max = first_index + index_of(logits, n, stats.max);
    return stats;
}

// One pass over memory, with as many logits at a time as the first-level cache holds: a block's maximum, then its sums.
LogitStats logit_stats(const float* logits, int n, int first_index) {
    constexpr int kBlockOfLogits = 4096;
    LogitStats total;
    for (int begin = 0; begin < n; begin += kBlockOfLogits) {
        const int count = n - begin < kBlockOfLogits ? n - begin : kBlockOfLogits;
        const float* x = logits + begin;
        LogitStats part = sums_of(x, count);
        part.arg_max = first_index + begin; // of the block, for now
        total = begin == 0 ? part : merge(total, part);
    }
    if (n <= 0) return total;
    const int block = total.arg_max - first_index;
    total.arg_max += index_of(logits + block, n - block < kBlockOfLogits ? n - block : kBlockOfLogits, total.max);
    return total;
}

// A lane's sums count against the largest maximum of all lanes.
LogitStats finish_stats(const LaneStats& lanes, const float* logits, int n, int first_index) {
    LogitStats stats;
    stats.max = lanes.max[0];
    for (int lane = 1; lane < kLanes; ++lane)
        stats.max = lanes.max[lane] > stats.max ? lanes.max[lane] : stats.max;
    const Vec top = splat(stats.max), lowest = splat(kLowestExponent);
    Vec sum = {}, shifted = {};
    for (int lane = 0; lane < kLanes; lane += kWidth) {
        const Vec of_lanes = *reinterpret_cast<const Vec*>(lanes.sum_exp + lane);
        const Vec fall = larger(*reinterpret_cast<const Vec*>(lanes.max + lane) - top, lowest);
        const Vec keep = exp_in_range(fall);
        sum += of_lanes * keep;
        shifted += (*reinterpret_cast<const Vec*>(lanes.sum_shifted_exp + lane) + fall * of_lanes) * keep;
    }
    stats.sum_exp = static_cast<double>(sum_lanes(sum));
    stats.sum_shifted_exp = static_cast<double>(sum_lanes(shifted));
    const Largest largest = largest_of(logits, n);
    if (largest.first != largest.first) stats.max = largest.first; // the lanes' maxima ignore NaN
    stats.arg_max = first_index + index_of(logits, n, stats.max);
    stats.runner_up = largest.second;
    return stats;
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
