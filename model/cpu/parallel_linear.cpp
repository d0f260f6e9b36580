// PackedMatrix does the arithmetic of the layers. This file decides which rank and thread computes which part, and
// where ranks meet.
#include "model/cpu/parallel_linear.h"

#include <algorithm>

namespace entrodraft::model {

void PassContext::all_reduce(float* data, std::size_t count) const {
    barrier();
    if (tp->size() == 1) return;
    if (thread == 0 && !*failure) {
        try {
            tp->all_reduce_sum(data, count, deadline);
        } catch (...) {
            *failure = std::current_exception();
        }
    }
    barrier();
}

std::size_t ShardedLinear::y_stride() const {
    std::size_t outputs = 0;
    for (const PackedMatrix& matrix : matrices_)
        outputs += static_cast<std::size_t>(matrix.n_padded());
    return outputs;
}

void ShardedLinear::set_bias(std::vector<float> bias) {
    bias_ = std::move(bias);
    if (!bias_.empty()) bias_.resize(y_stride());
}

void ShardedLinear::apply(const PassContext& pass, Activations x, Activations y, bool add) const {
    std::size_t first = 0;
    for (const PackedMatrix& matrix : matrices_) {
        const dist::Slice mine = matrix.outputs_of(pass.thread);
        for (int r = 0; r < x.n_rows && !bias_.empty(); ++r) // starts with the bias; the product is added to it
            for (std::size_t i = first + static_cast<std::size_t>(mine.begin);
                 i < first + static_cast<std::size_t>(mine.end); ++i)
                y.row(r)[i] = add ? y.row(r)[i] + bias_[i] : bias_[i];
        matrix.multiply(*pass.kernels, pass.thread, x.data, x.stride, x.n_rows, y.data + first, y.stride,
                        add || !bias_.empty(), pass.scratch, pass.is_prompt);
        first += static_cast<std::size_t>(matrix.n());
    }
}

void VocabEmbedding::look_up(const PassContext& pass, const std::vector<std::int32_t>& tokens, Activations x) const {
    const dist::Slice columns = dist::even_slice(table->k(), pass.thread, pass.team->size(), kernels::kLanes);
    for (int r = 0; r < x.n_rows; ++r) {
        const std::int32_t token = tokens[r];
        if (vocab.contains(token))
            table->read_output(static_cast<int>(token - vocab.begin), columns, x.row(r));
        else
            std::fill(x.row(r) + columns.begin, x.row(r) + columns.end, 0.0f);
    }
    pass.all_reduce(x.data, tokens.size() * x.stride);
}

} // namespace entrodraft::model
