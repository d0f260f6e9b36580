// Norms, activations, caps and rotation. Part of kernels.inl, which includes it.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

void rms_norm(const float* x, const float* weight, int n, float epsilon, float* out) {
    Vec sum0 = {}, sum1 = {};
    int i = 0;
    for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
        const Vec a = *reinterpret_cast<const Vec*>(x + i), b = *reinterpret_cast<const Vec*>(x + i + kWidth);
        sum0 += a * a;
        sum1 += b * b;
    }
    float total = sum_lanes(sum0 + sum1);
    for (; i < n; ++i)
        total += x[i] * x[i];
    const float scale = 1.0f / __builtin_sqrtf(total / static_cast<float>(n) + epsilon);
    for (i = 0; i + kWidth <= n; i += kWidth)
        *reinterpret_cast<Vec*>(out + i) =
            *reinterpret_cast<const Vec*>(x + i) * scale * *reinterpret_cast<const Vec*>(weight + i);
    for (; i < n; ++i)
        out[i] = x[i] * scale * weight[i];
}

// First the mean, then the mean square of the rest: the difference of two large sums would lose digits.
void layer_norm(const float* x, const float* weight, const float* bias, int n, float epsilon, float* out) {
    Vec sum = {}, squares = {};
    int i = 0;
    for (; i + kWidth <= n; i += kWidth)
        sum += *reinterpret_cast<const Vec*>(x + i);
    float total = sum_lanes(sum);
    for (; i < n; ++i)
        total += x[i];
    const float mean = total / static_cast<float>(n);
    for (i = 0; i + kWidth <= n; i += kWidth) {
        const Vec d = *reinterpret_cast<const Vec*>(x + i) - mean;
        squares += d * d;
    }
    float variance = sum_lanes(squares);
    for (; i < n; ++i)
        variance += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.0f / __builtin_sqrtf(variance / static_cast<float>(n) + epsilon);
    for (i = 0; i + kWidth <= n; i += kWidth) {
        Vec y = (*reinterpret_cast<const Vec*>(x + i) - mean) * scale;
        if (weight) y *= *reinterpret_cast<const Vec*>(weight + i);
        if (bias) y += *reinterpret_cast<const Vec*>(bias + i);
        *reinterpret_cast<Vec*>(out + i) = y;
    }
    for (; i < n; ++i) {
        float y = (x[i] - mean) * scale;
        if (weight) y *= weight[i];
        if (bias) y += bias[i];
        out[i] = y;
    }
}

ALWAYS_INLINE Vec magnitude_of(Vec x) {
    const UintVec bits = __builtin_bit_cast(UintVec, x) & 0x7fffffffu;
    return __builtin_bit_cast(Vec, bits);
}

// x / (1 + exp(-u)), from exp(-|u|).
ALWAYS_INLINE Vec times_sigmoid(Vec x, Vec u) {
    const Vec e = exp_nonpositive(-magnitude_of(u));
    const Vec numerator = u > Vec{} ? splat(1.0f) : e;
    return x * numerator / (1.0f + e);
}

struct Silu {
    static ALWAYS_INLINE Vec of(Vec x) { return times_sigmoid(x, x); }
};

// x Phi(x) = max(x, 0) - |x| Phi(-|x|), where Phi(-a) = exp(-a^2 / 2) R(t), t = 1 / (1 + 0.3 a), and R is a polynomial
// fitted to relative error (1.3e-7 for a up to 13).
struct Gelu {
    static ALWAYS_INLINE Vec of(Vec x) {
        const Vec a = magnitude_of(x), t = 1.0f / (1.0f + 0.3f * a);
        Vec r = splat(0.03603633493185043f);
        r = r * t - 0.1587137132883072f;
        r = r * t + 0.2089647352695465f;
        r = r * t - 0.056095972657203674f;
        r = r * t + 0.12984344363212585f;
        r = r * t + 0.09952306002378464f;
        r = r * t + 0.12081689387559891f;
        r = r * t + 0.11962516605854034f;
        return larger(Vec{}, x) - a * exp_nonpositive(a * a * -0.5f) * (r * t);
    }
};

// x / 2 (1 + tanh(u)) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
struct GeluTanh {
    static ALWAYS_INLINE Vec of(Vec x) {
        constexpr float kTwice = 1.5957691216057308f; // 2 sqrt(2 / pi)
        return times_sigmoid(x, kTwice * (x + 0.044715f * (x * x * x)));
    }
};

struct Relu {
    static ALWAYS_INLINE Vec of(Vec x) { return larger(Vec{}, x); } // NaN stays NaN
};

template <typename Function> ALWAYS_INLINE void activate_each(float* x, const float* factor, int n) {
    int i = 0;
    for (; i + kWidth <= n; i += kWidth) {
        Vec* at = reinterpret_cast<Vec*>(x + i);
        const Vec y = Function::of(*at);
        *at = factor ? y * *reinterpret_cast<const Vec*>(factor + i) : y;
    }
    for (; i < n; ++i) {
        const float y = Function::of(splat(x[i]))[0];
        x[i] = factor ? y * factor[i] : y;
    }
}

void activate(Activation activation, float* x, const float* factor, int n) {
    switch (activation) {
    case Activation::silu:
        return activate_each<Silu>(x, factor, n);
    case Activation::gelu:
        return activate_each<Gelu>(x, factor, n);
    case Activation::gelu_tanh:
        return activate_each<GeluTanh>(x, factor, n);
    case Activation::relu:
        return activate_each<Relu>(x, factor, n);
    }
}

void soft_cap(float* x, float cap, int n) {
    int i = 0;
    for (; i + kWidth <= n; i += kWidth) {
        Vec* at = reinterpret_cast<Vec*>(x + i);
        *at = capped(*at, cap);
    }
    for (; i < n; ++i)
        x[i] = capped(splat(x[i]), cap)[0];
}

void rotate_half(float* head, const float* cosines, const float* sines, int half) {
    int i = 0;
    for (; i + kWidth <= half; i += kWidth) {
        Vec* low = reinterpret_cast<Vec*>(head + i);
        Vec* high = reinterpret_cast<Vec*>(head + half + i);
        const Vec c = *reinterpret_cast<const Vec*>(cosines + i), s = *reinterpret_cast<const Vec*>(sines + i);
        const Vec a = *low, b = *high;
        *low = a * c - b * s;
        *high = b * c + a * s;
    }
    for (; i < half; ++i) {
        const float a = head[i], b = head[half + i];
        head[i] = a * cosines[i] - b * sines[i];
        head[half + i] = b * cosines[i] + a * sines[i];
    }
}

void rotate_pairs(float* head, const float* cosines, const float* sines, int half) {
    for (int i = 0; i < half; ++i) {
        const float a = head[2 * i], b = head[2 * i + 1];
        head[2 * i] = a * cosines[i] - b * sines[i];
        head[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
