// Decides where each unit lies, and which thread fills and multiplies it. packing and the kernels know the bytes inside
// a unit.
#include "model/cpu/packed_matrix.h"

#include <utility>

namespace entrodraft::model {

using kernels::kLanes;

PackedMatrix::PackedMatrix(int n, int k, PackedFormat format, int n_threads)
    : n_(n), n_padded_((n + kLanes - 1) / kLanes * kLanes), k_(k), format_(std::move(format)),
      parts_(static_cast<std::size_t>(n_threads)) {
    for (int thread = 0; thread < n_threads; ++thread)
        parts_[thread].outputs = dist::even_slice(n_padded_, thread, n_threads, kLanes);
}

std::size_t PackedMatrix::part_bytes(const ThreadPart& part) const {
    return scale_bytes(part) + static_cast<std::size_t>(part.outputs.size() / kLanes) * unit_bytes();
}

std::size_t PackedMatrix::scale_bytes(const ThreadPart& part) const {
    return has_row_scales() ? static_cast<std::size_t>(part.outputs.size()) * sizeof(float) : 0;
}

std::size_t PackedMatrix::unit_bytes() const {
    return unit_bytes_of(format_, k_);
}

std::size_t PackedMatrix::bytes() const {
    std::size_t total = 0;
    for (const ThreadPart& part : parts_)
        total += part_bytes(part);
    return total;
}

namespace {

// Finds the weights of stacked outputs, for increasing outputs; none after the last one.
class StoredRows {
  public:
    explicit StoredRows(std::span<const MatrixPart> stacked) : parts_(stacked) {}
    StoredWeights at(std::int64_t output) {
        for (; !parts_.empty() && output >= first_ + parts_.front().outputs.size(); parts_ = parts_.subspan(1))
            first_ += parts_.front().outputs.size();
        if (parts_.empty() || !parts_.front().tensor) return {};
        const MatrixPart& part = parts_.front();
        const std::vector<std::int64_t>& shape = part.tensor->shape;
        const std::int64_t at = part.outputs.begin + (output - first_) * part.step, wide = shape.back();
        if (part.transposed) {
            const std::int64_t tall = shape[shape.size() - 2], matrix = at / wide;
            return {part.tensor, matrix * tall * wide + at % wide, wide, tall, part.inputs};
        }
        return {part.tensor, at * wide, 1, wide, part.inputs};
    }

  private:
    std::span<const MatrixPart> parts_;
    std::int64_t first_ = 0; // output of the first of parts_
};

} // namespace

void PackedMatrix::load(std::span<const MatrixPart> stacked, int thread) {
    const ThreadPart& part = parts_[thread];
    float* scales = reinterpret_cast<float*>(part.data);
    std::byte* unit = part.data + scale_bytes(part);
    StoredRows stored(stacked);
    for (std::int64_t first = part.outputs.begin; first < part.outputs.end; first += kLanes) {
        StoredWeights rows[kLanes];
        for (int lane = 0; lane < kLanes; ++lane)
            rows[lane] = stored.at(first + lane);
        pack_unit(format_, rows, k_, scales, unit);
        scales += kLanes;
        unit += unit_bytes();
    }
}

kernels::LinearArgs PackedMatrix::arguments(const ThreadPart& part, const float* x, std::size_t x_stride, int rows,
                                            float* y, std::size_t y_stride, float* scratch) const {
    kernels::LinearArgs args;
    args.w = part.data + scale_bytes(part);
    args.type = format_.type;
    args.scales = reinterpret_cast<const float*>(part.data);
    args.groups = format_.groups;
    args.digits = format_.digits;
    args.order = format_.order.empty() ? nullptr : format_.order.data();
    args.k = k_;
    args.units = static_cast<int>(part.outputs.size() / kLanes);
    args.x = x;
    args.x_stride = x_stride;
    args.rows = rows;
    args.y = y + part.outputs.begin;
    args.y_stride = y_stride;
    args.scratch = scratch;
    return args;
}

void PackedMatrix::multiply(const kernels::Kernels& kernels, int thread, const float* x, std::size_t x_stride, int rows,
                            float* y, std::size_t y_stride, bool add, float* scratch, bool is_prompt) const {
    const ThreadPart& part = parts_[thread];
    if (part.outputs.size() == 0) return;
    kernels::LinearArgs args = arguments(part, x, x_stride, rows, y, y_stride, scratch);
    args.add = add;
    args.is_prompt = is_prompt;
    kernels.linear(args);
}

void PackedMatrix::multiply_logits(const kernels::Kernels& kernels, int thread, const float* x, std::size_t x_stride,
                                   int rows, float* y, std::size_t y_stride, float* scratch, kernels::LaneStats* stats,
                                   int counted) const {
    const ThreadPart& part = parts_[thread];
    for (int r = 0; r < rows; ++r)
        stats[r].clear();
    if (part.outputs.size() == 0) return;
    kernels::LinearArgs args = arguments(part, x, x_stride, rows, y, y_stride, scratch);
    args.stats = stats;
    args.stats_outputs = counted - static_cast<int>(part.outputs.begin);
    kernels.linear(args);
}

void PackedMatrix::read_output(int output, dist::Slice range, float* out) const {
    for (const ThreadPart& part : parts_) {
        if (!part.outputs.contains(output)) continue;
        const auto at = static_cast<std::size_t>(output - part.outputs.begin);
        const float scale = has_row_scales() ? reinterpret_cast<const float*>(part.data)[at] : 0.0f;
        const std::byte* unit = part.data + scale_bytes(part) + at / kLanes * unit_bytes();
        unpack_row({format_, k_, unit}, static_cast<int>(at % kLanes), scale, range, out + range.begin);
        return;
    }
}

WeightArena::WeightArena(int n_threads) : n_threads_(static_cast<std::size_t>(n_threads)) {}

void WeightArena::place(PackedMatrix& matrix) {
    matrices_.push_back(&matrix);
}

void WeightArena::allocate() {
    std::size_t total = 0;
    constexpr std::size_t kThreadAlignment = 4096;
    std::vector<std::size_t> thread_begin;
    for (std::size_t thread = 0; thread < n_threads_; ++thread) {
        thread_begin.push_back(total);
        for (const PackedMatrix* matrix : matrices_)
            total += matrix->part_bytes(matrix->parts_[thread]);
        total = (total + kThreadAlignment - 1) / kThreadAlignment * kThreadAlignment;
    }
    memory_ = Buffer(total, Pages::huge);
    for (std::size_t thread = 0; thread < n_threads_; ++thread) {
        std::byte* next = memory_.as<std::byte>() + thread_begin[thread];
        for (PackedMatrix* matrix : matrices_) {
            matrix->parts_[thread].data = next;
            next += matrix->part_bytes(matrix->parts_[thread]);
        }
    }
}

} // namespace entrodraft::model
