// Body of row_kernels.cpp, included once for each instruction set, in a namespace and under target options of its
// own. kWidth is the number of floats in a register: 4, 8 or 16.

constexpr std::size_t kLanes = 16;
constexpr std::size_t kParts = kLanes / kWidth;

typedef float Floats __attribute__((vector_size(kWidth * sizeof(float))));
typedef std::uint32_t Bits __attribute__((vector_size(kWidth * sizeof(float))));
typedef std::int32_t Mask __attribute__((vector_size(kWidth * sizeof(float))));
typedef float HalfFloats __attribute__((vector_size(kWidth * sizeof(float) / 2)));
typedef double Doubles __attribute__((vector_size(kWidth * sizeof(float))));

inline Floats load(const float* from) {
    Floats to;
    std::memcpy(&to, from, sizeof to);
    return to;
}

inline void store(float* to, const Floats& from) {
    std::memcpy(to, &from, sizeof from);
}

inline Doubles load_doubles(const float* from) {
    HalfFloats half;
    std::memcpy(&half, from, sizeof half);
    return __builtin_convertvector(half, Doubles);
}

inline Floats all(float value) {
    return value - Floats{};
}

inline bool any(const Mask& mask) {
    std::int32_t lane[kWidth];
    std::memcpy(lane, &mask, sizeof lane);
    std::int32_t bits = 0;
    for (std::size_t i = 0; i < kWidth; ++i)
        bits |= lane[i];
    return bits != 0;
}

// Sixteen values from `start` on, or as many as there are, then `pad`.
inline const float* lanes_at(const float* values, std::size_t n, std::size_t start, float pad, float* buffer) {
    if (start + kLanes <= n) return values + start;
    for (std::size_t i = 0; i < kLanes; ++i)
        buffer[i] = start + i < n ? values[start + i] : pad;
    return buffer;
}

// Sixteen running sums in double.
struct LaneSums {
    Doubles sums[2 * kParts] = {};

    void add(const float* values) {
        for (std::size_t j = 0; j < 2 * kParts; ++j)
            sums[j] += load_doubles(values + j * kWidth / 2);
    }
    double total() const {
        double lane[kLanes];
        std::memcpy(lane, sums, sizeof lane);
        for (std::size_t step = kLanes / 2; step > 0; step /= 2)
            for (std::size_t i = 0; i < step; ++i)
                lane[i] += lane[i + step];
        return lane[0];
    }
};

inline void raise(Floats* max, Mask* nan, const float* values) {
    for (std::size_t j = 0; j < kParts; ++j) {
        const Floats value = load(values + j * kWidth);
        max[j] = value > max[j] ? value : max[j];
        nan[j] |= value != value;
    }
}

RowScan scan(const float* values, std::size_t n) {
    Floats max[kParts];
    Mask nan[kParts] = {};
    for (Floats& part : max)
        part = all(-kInfinity);
    std::size_t start = 0;
    for (; start + kLanes <= n; start += kLanes)
        raise(max, nan, values + start);
    float lane[kLanes];
    if (start < n) raise(max, nan, lanes_at(values, n, start, -kInfinity, lane));
    RowScan result;
    std::memcpy(lane, max, sizeof lane);
    result.max = -kInfinity;
    for (const float value : lane)
        result.max = value > result.max ? value : result.max;
    for (const Mask& part : nan)
        result.has_nan |= any(part);
    return result;
}

void lane_maxima(const float* values, std::size_t n, std::size_t stride, std::vector<float>& maxima) {
    float lane[kLanes];
    for (std::size_t first = 0; first < n; first += stride * kLanes) {
        Floats max[kParts];
        Mask nan[kParts] = {};
        for (Floats& part : max)
            part = all(-kInfinity);
        const std::size_t end = first + stride * kLanes < n ? first + stride * kLanes : n;
        for (std::size_t start = first; start < end; start += kLanes)
            raise(max, nan, lanes_at(values, n, start, -kInfinity, lane));
        std::memcpy(lane, max, sizeof lane);
        maxima.insert(maxima.end(), lane, lane + kLanes);
    }
}

void collect(const float* values, std::size_t n, float low, float high, std::vector<std::size_t>& ids) {
    constexpr std::size_t kGroup = 64;
    for (std::size_t first = 0; first < n; first += kGroup) {
        const std::size_t end = first + kGroup < n ? first + kGroup : n;
        if (end - first == kGroup) {
            Mask hit = {};
            for (std::size_t i = first; i < end; i += kWidth) {
                const Floats value = load(values + i);
                hit |= (value >= all(low)) & (value < all(high));
            }
            if (!any(hit)) continue;
        }
        for (std::size_t i = first; i < end; ++i)
            if (values[i] >= low && values[i] < high) ids.push_back(i);
    }
}

// 2^y for y = (x - max) * scale, by y = n + f, n whole and |f| <= 1/2. y is a product of two numbers of 24 bits; to
// know f to 2^-25 although y may be 100, the product of the leading 12 bits of both, which is exact, is taken apart.
inline Floats power(const Floats& x, const Exponential& exponential) {
    constexpr float kRound = 0x1.8p23F; // adding it rounds to whole numbers, which then stand in the low bits
    const Floats difference = x - exponential.max;
    const Floats high = (Floats)((Bits)difference & 0xFFFFF000U);
    const Floats low = difference - high;
    const Floats y = difference * exponential.scale;
    const Floats shifted = y + kRound;
    const Floats whole = shifted - kRound;
    const Floats f = ((high * exponential.scale_high - whole) + high * exponential.scale_low) + low * exponential.scale;
    // 2^f = 1 + f * P(f), Chebyshev fit on |f| <= 0.501: relative error 8.3e-9 before rounding.
    Floats p = f * 0x1.444142p-13F + 0x1.5f0a22p-10F;
    p = p * f + 0x1.3b2a1ap-7F;
    p = p * f + 0x1.c6af6ap-5F;
    p = p * f + 0x1.ebfbep-3F;
    p = p * f + 0x1.62e43p-1F;
    p = p * f + 1.0F;
    const Floats power_of_two = (Floats)(((Bits)shifted + 127U) << 23);
    return y < -100.0F ? Floats{} : p * power_of_two;
}

double exponentials(const float* values, std::size_t n, const Exponential& exponential, float* weights) {
    LaneSums sums;
    std::size_t start = 0;
    for (; start + kLanes <= n; start += kLanes) {
        for (std::size_t j = 0; j < kLanes; j += kWidth)
            store(weights + start + j, power(load(values + start + j), exponential));
        sums.add(weights + start);
    }
    if (start < n) {
        float lane[kLanes];
        lanes_at(values, n, start, -kInfinity, lane);
        for (std::size_t j = 0; j < kLanes; j += kWidth)
            store(lane + j, power(load(lane + j), exponential));
        sums.add(lane);
        std::memcpy(weights + start, lane, (n - start) * sizeof(float));
    }
    return sums.total();
}

void scale(float* weights, std::size_t n, float factor) {
    for (std::size_t i = 0; i < n; ++i)
        weights[i] *= factor;
}

void scale_at_least(const float* values, std::size_t n, float low, float factor, float* weights) {
    std::size_t i = 0;
    for (; i + kWidth <= n; i += kWidth)
        store(weights + i, load(values + i) >= all(low) ? load(weights + i) * factor : Floats{});
    for (; i < n; ++i)
        weights[i] = values[i] >= low ? weights[i] * factor : 0.0F;
}

RowMass mass_at_least(const float* values, std::size_t n, float low, const float* weights) {
    LaneSums sums;
    Mask counts = {};
    float lane[kLanes], weight[kLanes];
    for (std::size_t start = 0; start < n; start += kLanes) {
        const float* value_at = lanes_at(values, n, start, kNan, lane); // never at least low
        const float* weight_at = lanes_at(weights, n, start, 0, weight);
        for (std::size_t j = 0; j < kLanes; j += kWidth) {
            const Mask in = load(value_at + j) >= all(low);
            counts -= in;
            store(weight + j, in ? load(weight_at + j) : Floats{});
        }
        sums.add(weight);
    }
    RowMass result;
    result.mass = sums.total();
    for (std::size_t j = 0; j < kWidth; ++j)
        result.count += static_cast<std::size_t>(counts[j]);
    return result;
}

double sum(const float* weights, std::size_t n) {
    LaneSums sums;
    float lane[kLanes];
    for (std::size_t start = 0; start < n; start += kLanes)
        sums.add(lanes_at(weights, n, start, 0, lane));
    return sums.total();
}

double sum_of_excess(const float* p, const float* q, std::size_t n) {
    LaneSums sums;
    float lane_p[kLanes], lane_q[kLanes];
    for (std::size_t start = 0; start < n; start += kLanes) {
        const float* p_at = lanes_at(p, n, start, 0, lane_p);
        const float* q_at = lanes_at(q, n, start, 0, lane_q);
        for (std::size_t j = 0; j < 2 * kParts; ++j) {
            const Doubles excess = load_doubles(p_at + j * kWidth / 2) - load_doubles(q_at + j * kWidth / 2);
            sums.sums[j] += excess < 0.0 ? Doubles{} : excess; // a NaN stays
        }
    }
    return sums.total();
}

constexpr RowKernels kKernels = {scan,           lane_maxima,   collect, exponentials, scale,
                                 scale_at_least, mass_at_least, sum,     sum_of_excess};
