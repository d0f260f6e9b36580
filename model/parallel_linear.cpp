// The layers' arithmetic is PackedMatrix's; here is who computes which part, and the meeting of ranks.
#include "entrodraft/model/parallel_linear.h"

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

void ColumnLinear::apply(const PassContext& pass, const float* x, std::size_t x_stride, int rows, float* y) const {
    matrix_.multiply(*pass.kernels, pass.thread, x, x_stride, rows, y, y_stride(), false, pass.scratch);
}

void RowLinear::add_to(const PassContext& pass, const float* x, std::size_t x_stride, int rows, float* residual,
                       std::size_t stride) const {
    const bool carries_residual = pass.tp->rank() == 0;
    matrix_.multiply(*pass.kernels, pass.thread, x, x_stride, rows, residual, stride, carries_residual, pass.scratch);
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
