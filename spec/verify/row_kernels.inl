// The body of row_kernels.cpp, which includes it once for each instruction set, in its own namespace and with its own
// target options. Three names must be defined before: kWidth, the number of floats in a register (4, 8 or 16); Longs, a
// register of 64-bit numbers; and multiply_low_halves(a, b), the product of the low 32 bits of each.

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

// Sixteen values from `start` on. If there are fewer, `pad` follows the last one.
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

LogitScan scan(const float* values, std::size_t n) {
    Floats max[kParts];
    Mask nan[kParts] = {};
    for (Floats& part : max)
        part = all(-kInfinity);
    std::size_t start = 0;
    for (; start + kLanes <= n; start += kLanes)
        raise(max, nan, values + start);
    float lane[kLanes];
    if (start < n) raise(max, nan, lanes_at(values, n, start, -kInfinity, lane));
    LogitScan result;
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

// 2^y for y = (x - max) * scale, by y = n + f, n whole and |f| <= 1/2. y may be 100, a product of two numbers of 24
// bits, and f must be right to 2^-25. So the product of the leading 12 bits of both, which is exact, stands alone.
inline Floats power(const Floats& x, const Exponential& exponential) {
    constexpr float kRound = 0x1.8p23F; // adding it rounds to a whole number, which the low bits then hold
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

ProbabilityMass mass_at_least(const float* values, std::size_t n, float low, const float* weights) {
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
    ProbabilityMass result;
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

double sum_of_excess(const float* p, double factor, const float* q, std::size_t n) {
    LaneSums sums;
    float lane_p[kLanes], lane_q[kLanes];
    for (std::size_t start = 0; start < n; start += kLanes) {
        const float* p_at = lanes_at(p, n, start, 0, lane_p);
        const float* q_at = lanes_at(q, n, start, 0, lane_q);
        for (std::size_t j = 0; j < 2 * kParts; ++j) {
            const Doubles excess = load_doubles(p_at + j * kWidth / 2) * factor - load_doubles(q_at + j * kWidth / 2);
            sums.sums[j] += excess < 0.0 ? Doubles{} : excess; // a NaN stays
        }
    }
    return sums.total();
}

// log x = e log 2 + log m, x = 2^e m, m from 1/sqrt(2) to sqrt(2), by log m = 2 atanh((m - 1) / (m + 1)): absolute
// error below 1e-7 (1 + |log x|). x is a normal float above 0.
inline Floats natural_log(const Floats& x) {
    constexpr std::uint32_t kSqrtHalf = 0x3F3504F3;
    const Mask exponent = (Mask)((Bits)x - kSqrtHalf) >> 23;
    const Floats m = (Floats)((Bits)x - ((Bits)exponent << 23));
    const Floats s = (m - 1.0F) / (m + 1.0F);
    const Floats z = s * s;
    Floats sum = z * (2.0F / 9) + 2.0F / 7;
    sum = sum * z + 2.0F / 5;
    sum = sum * z + 2.0F / 3;
    sum = sum * z + 2.0F;
    return __builtin_convertvector(exponent, Floats) * 0x1.62e43p-1F + sum * s;
}

double entropy(const float* p, std::size_t n) {
    constexpr float kMinNormal = 0x1p-126F;
    LaneSums sums;
    float lane[kLanes], term[kLanes];
    for (std::size_t start = 0; start < n; start += kLanes) {
        const float* p_at = lanes_at(p, n, start, 0, lane);
        for (std::size_t j = 0; j < kLanes; j += kWidth) {
            const Floats value = load(p_at + j);
            store(term + j, value < kMinNormal ? Floats{} : -value * natural_log(value)); // a NaN stays
        }
        sums.add(term);
    }
    return sums.total();
}

// Philox4x32-10 (see random.cpp) on kWidth / 2 blocks at once, each word in the low half of 64 bits. The upper halves
// hold rests of multiplications, which nothing reads.
struct Philox {
    Longs words[4];

    void run(std::uint32_t key0, std::uint32_t key1) {
        constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
        for (int round = 0; round < 10; ++round) {
            const Longs product0 = multiply_low_halves(words[0], kMultiplier0 - Longs{});
            const Longs product1 = multiply_low_halves(words[2], kMultiplier1 - Longs{});
            words[0] = (product1 >> 32) ^ words[1] ^ std::uint64_t{key0};
            words[2] = (product0 >> 32) ^ words[3] ^ std::uint64_t{key1};
            words[1] = product1;
            words[3] = product0;
            key0 += 0x9E3779B9;
            key1 += 0xBB67AE85;
        }
    }
};

// The noise words of a group: word j of block b belongs to its token 16 j + b.
inline void gumbel_words(const GumbelScan& scan, std::uint32_t first_block, std::uint32_t* words) {
    Longs even_numbers = {};
    for (std::size_t i = 0; i < kWidth / 2; ++i)
        even_numbers[i] = 2 * i;
    for (std::size_t j = 0; j < kParts; ++j) {
        Philox even, odd; // blocks with even numbers, and the odd ones after them
        even.words[0] = odd.words[0] = scan.position[0] - Longs{};
        even.words[1] = odd.words[1] = scan.position[1] - Longs{};
        even.words[2] = even_numbers + (first_block + j * kWidth);
        odd.words[2] = even.words[2] + 1;
        even.words[3] = odd.words[3] = Longs{};
        even.run(scan.key[0], scan.key[1]);
        odd.run(scan.key[0], scan.key[1]);
        for (std::size_t word = 0; word < 4; ++word) {
            const Longs both = (even.words[word] & 0xFFFFFFFFU) | (odd.words[word] << 32);
            std::memcpy(words + word * kLanes + j * kWidth, &both, sizeof both);
        }
    }
}

// Noise from word w is -log(-log(1 - v)) <= -log(v), v >= (w >> 1) / 2^31. The bits of a float, as a number, are about
// its binary logarithm, and never more. So the bound is too high by at most 0.06. Rounding is far below the margin that
// random.cpp leaves.
std::size_t gumbel_candidates(const float* values, std::size_t n, const GumbelScan& scan, std::uint32_t* words,
                              float* bounds) {
    constexpr float kLn2 = 0x1.62e43p-1F;
    std::uint32_t block = scan.first_block;
    for (std::size_t start = 0; start < n; start += kGumbelGroup, block += kLanes) {
        gumbel_words(scan, block, words);
        Mask hit = {};
        for (std::size_t i = 0; i < kGumbelGroup; i += kWidth) {
            Bits word;
            std::memcpy(&word, words + i, sizeof word);
            const Floats tail = __builtin_convertvector((Mask)(word >> 1), Floats);
            const Floats logarithm = __builtin_convertvector((Mask)tail, Floats) * 0x1p-23F - 158.0F;
            const Floats bound = (load(values + start + i) - scan.max) * scan.scale - logarithm * kLn2;
            store(bounds + i, bound);
            hit |= bound > all(scan.least);
        }
        if (any(hit)) return start;
    }
    return n;
}

// -log(1 - v), v = (word + 1/2) / 2^32. Below 1/4 it is 2 atanh(v / (2 - v)), as 1 - v would lose v's last bits.
inline Floats exponential_of(const Bits& word) {
    constexpr std::uint32_t kQuarter = 1U << 30;
    const Floats v = (__builtin_convertvector((Mask)(word & (kQuarter - 1)), Floats) + 0.5F) * 0x1p-32F;
    const Floats s = v / (2.0F - v);
    const Floats z = s * s;
    const Floats atanh = (((z * (1.0F / 7) + 1.0F / 5) * z + 1.0F / 3) * z + 1.0F) * s;
    const Floats rest = (__builtin_convertvector((Mask)(~word >> 1), Floats) + 0.25F) * 0x1p-31F; // 1 - v
    return word < kQuarter ? atanh * 2.0F : -natural_log(rest);
}

std::uint32_t gumbel_noise(const GumbelScan& scan, std::uint32_t* words, float* noise) {
    gumbel_words(scan, scan.first_block, words);
    Bits least = ~Bits{};
    for (std::size_t i = 0; i < kGumbelGroup; i += kWidth) {
        Bits word;
        std::memcpy(&word, words + i, sizeof word);
        least = word < least ? word : least;
        store(noise + i, -natural_log(exponential_of(word)));
    }
    std::uint32_t result = least[0];
    for (std::size_t i = 1; i < kWidth; ++i)
        result = least[i] < result ? least[i] : result;
    return result;
}

constexpr SamplingKernels kKernels = {scan,          lane_maxima,    collect,           exponentials,
                                      scale,         scale_at_least, mass_at_least,     sum,
                                      sum_of_excess, entropy,        gumbel_candidates, gumbel_noise};
