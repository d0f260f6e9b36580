// Linear attention: the short convolution, and a row's change of a state. Part of kernels.inl, which includes it.
namespace entrodraft::model::kernels::KERNEL_SET {
namespace {

void convolve(const float* const* rows, const float* weights, int n_rows, int n, float* out) {
    int i = 0;
    for (; i + kWidth <= n; i += kWidth) {
        Vec sum = {};
        for (int j = 0; j < n_rows; ++j)
            if (rows[j] != nullptr)
                sum += *reinterpret_cast<const Vec*>(rows[j] + i) *
                       *reinterpret_cast<const Vec*>(weights + static_cast<std::ptrdiff_t>(j) * n + i);
        *reinterpret_cast<Vec*>(out + i) = sum;
    }
    for (; i < n; ++i) {
        float sum = 0;
        for (int j = 0; j < n_rows; ++j)
            if (rows[j] != nullptr) sum += rows[j][i] * weights[static_cast<std::ptrdiff_t>(j) * n + i];
        out[i] = sum;
    }
}

// Has two sums, so that neither waits for itself.
void delta_step(const DeltaStepArgs& args) {
    static_assert(kLanes % kWidth == 0);
    const std::ptrdiff_t stride = args.value_dim;
    for (int at = 0; at < args.value_dim; at += kWidth) {
        Vec even = {}, odd = {};
        float* state = args.state + at;
        int i = 0;
        for (; i + 2 <= args.key_dim; i += 2) {
            even += *reinterpret_cast<const Vec*>(state + i * stride) * args.key[i];
            odd += *reinterpret_cast<const Vec*>(state + (i + 1) * stride) * args.key[i + 1];
        }
        if (i < args.key_dim) even += *reinterpret_cast<const Vec*>(state + i * stride) * args.key[i];
        const Vec delta = (*reinterpret_cast<const Vec*>(args.value + at) - (even + odd) * args.decay) * args.step;
        even = odd = Vec{};
        const auto change = [&](int row) {
            Vec* of_row = reinterpret_cast<Vec*>(state + row * stride);
            return *of_row = *of_row * args.decay + delta * args.key[row];
        };
        for (i = 0; i + 2 <= args.key_dim; i += 2) {
            even += change(i) * args.query[i];
            odd += change(i + 1) * args.query[i + 1];
        }
        if (i < args.key_dim) even += change(i) * args.query[i];
        *reinterpret_cast<Vec*>(args.out + at) = even + odd;
    }
}

} // namespace
} // namespace entrodraft::model::kernels::KERNEL_SET
