// The layers' arithmetic is PackedMatrix's; here is who computes which part, and the meeting of ranks.
#include "model/cpu/parallel_linear.h"

#include <algorithm>
#include <utility>

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

namespace {

std::vector<float> padded(std::vector<float> bias, const PackedMatrix& matrix) {
    if (!bias.empty()) bias.resize(static_cast<std::size_t>(matrix.n_padded()));
    return bias;
}

// Puts the bias under this thread's outputs: y = bias, or y += bias.
void lay_bias(const PassContext& pass, const PackedMatrix& matrix, const std::vector<float>& bias, int rows, float* y,
              std::size_t y_stride, bool add) {
    const dist::Slice mine = matrix.outputs_of(pass.thread);
    for (int r = 0; r < rows; ++r) {
        float* row = y + static_cast<std::size_t>(r) * y_stride;
        for (auto i = static_cast<std::size_t>(mine.begin); i < static_cast<std::size_t>(mine.end); ++i)
            row[i] = add ? row[i] + bias[i] : bias[i];
    }
}

} // namespace

void ColumnLinear::set_bias(std::vector<float> bias) {
    bias_ = padded(std::move(bias), matrix_);
}

void ColumnLinear::apply(const PassContext& pass, const float* x, std::size_t x_stride, int rows, float* y) const {
    if (!bias_.empty()) lay_bias(pass, matrix_, bias_, rows, y, y_stride(), false);
    matrix_.multiply(*pass.kernels, pass.thread, x, x_stride, rows, y, y_stride(), !bias_.empty(), pass.scratch);
}

void RowLinear::set_bias(std::vector<float> bias) {
    bias_ = padded(std::move(bias), matrix_);
}

void RowLinear::apply(const PassContext& pass, const float* x, std::size_t x_stride, int rows, float* y,
                      std::size_t y_stride, bool add) const {
    if (!bias_.empty()) lay_bias(pass, matrix_, bias_, rows, y, y_stride, add);
    matrix_.multiply(*pass.kernels, pass.thread, x, x_stride, rows, y, y_stride, add || !bias_.empty(), pass.scratch);
}

void RowLinear::add_to(const PassContext& pass, const float* x, std::size_t x_stride, int rows, float* residual,
                       std::size_t stride) const {
    apply(pass, x, x_stride, rows, residual, stride, pass.carries_residual());
    pass.all_reduce(residual, static_cast<std::size_t>(rows) * stride);
}

void VocabEmbedding::look_up(const PassContext& pass, const std::vector<std::int32_t>& tokens, float* x,
                             std::size_t x_stride) const {
    const dist::Slice columns = dist::even_slice(table_.k(), pass.thread, pass.team->size(), kernels::kLanes);
    for (std::size_t r = 0; r < tokens.size(); ++r) {
        float* row = x + r * x_stride;
        if (vocab_.contains(tokens[r]))
            table_.read_output(static_cast<int>(tokens[r] - vocab_.begin), columns, row);
        else
            std::fill(row + columns.begin, row + columns.end, 0.0f);
    }
    pass.all_reduce(x, tokens.size() * x_stride);
}

} // namespace entrodraft::model
