// Packing, unpacking and multiplying.
#include "entrodraft/model/packed_matrix.h"

#include "entrodraft/model/bad_file.h"
#include "entrodraft/model/half.h"

#include <algorithm>
#include <cstring>

namespace entrodraft::model {

using kernels::kLanes;

namespace {

template <typename Stored, typename Convert>
void convert_range(const TensorView& tensor, dist::Slice range, float* out, Convert convert) {
    const std::byte* source = tensor.bytes.data() + static_cast<std::size_t>(range.begin) * sizeof(Stored);
    for (std::int64_t i = 0; i < range.size(); ++i) {
        Stored value; // files need not be aligned
        std::memcpy(&value, source + static_cast<std::size_t>(i) * sizeof(Stored), sizeof(Stored));
        out[i] = convert(value);
    }
}

void store_element(WeightType type, char* base, std::size_t index, float value) {
    switch (type) {
    case WeightType::float32:
        std::memcpy(base + index * 4, &value, 4);
        return;
    case WeightType::bfloat16: {
        const std::uint16_t bits = to_bfloat16(value);
        std::memcpy(base + index * 2, &bits, 2);
        return;
    }
    case WeightType::float16: {
        const std::uint16_t bits = to_float16(value);
        std::memcpy(base + index * 2, &bits, 2);
        return;
    }
    }
}

float load_element(WeightType type, const char* base, std::size_t index) {
    if (type == WeightType::float32) {
        float value;
        std::memcpy(&value, base + index * 4, 4);
        return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, base + index * 2, 2);
    return type == WeightType::bfloat16 ? from_bfloat16(bits) : from_float16(bits);
}

} // namespace

void read_floats(const TensorView& tensor, dist::Slice range, float* out) {
    switch (tensor.type) {
    case DiskType::float32:
        return convert_range<float>(tensor, range, out, [](float v) { return v; });
    case DiskType::float16:
        return convert_range<std::uint16_t>(tensor, range, out, from_float16);
    case DiskType::bfloat16:
        return convert_range<std::uint16_t>(tensor, range, out, from_bfloat16);
    case DiskType::other:
        break;
    }
    throw BadFile((tensor.file ? *tensor.file + ": " : std::string()) + "tensor '" + tensor.name + "' has type " +
                  tensor.dtype + "; weights must be F32, F16 or BF16");
}

PackedMatrix::PackedMatrix(int n, int k, WeightType type, int n_threads)
    : n_(n), n_padded_((n + kLanes - 1) / kLanes * kLanes), k_(k), type_(type),
      parts_(static_cast<std::size_t>(n_threads)) {
    for (int thread = 0; thread < n_threads; ++thread)
        parts_[static_cast<std::size_t>(thread)].outputs = dist::even_slice(n_padded_, thread, n_threads, kLanes);
}

std::size_t PackedMatrix::part_bytes(const ThreadPart& part) const {
    return static_cast<std::size_t>(part.outputs.size()) * static_cast<std::size_t>(k_) * bytes_of(type_);
}

std::size_t PackedMatrix::bytes() const {
    std::size_t total = 0;
    for (const ThreadPart& part : parts_)
        total += part_bytes(part);
    return total;
}

void PackedMatrix::load(std::span<const MatrixPart> stacked, int thread) {
    const ThreadPart& part = parts_[static_cast<std::size_t>(thread)];
    const auto k = static_cast<std::size_t>(k_);
    std::vector<float> unit(kLanes * k); // 16 outputs at a time, so that a line of the packed form fills at once
    for (std::int64_t first = part.outputs.begin; first < part.outputs.end; first += kLanes) {
        std::fill(unit.begin(), unit.end(), 0.0f);
        for (int lane = 0; lane < kLanes; ++lane) {
            std::int64_t row = first + lane; // among the stacked outputs
            for (const MatrixPart& source : stacked) {
                if (row < source.outputs.size()) {
                    const std::int64_t begin =
                        (source.outputs.begin + row) * source.tensor->shape[1] + source.inputs.begin;
                    read_floats(*source.tensor, {begin, begin + source.inputs.size()},
                                unit.data() + static_cast<std::size_t>(lane) * k);
                    break;
                }
                row -= source.outputs.size();
            }
        }
        char* to = part.data + static_cast<std::size_t>(first - part.outputs.begin) * k * bytes_of(type_);
        for (std::size_t i = 0; i < k; ++i)
            for (std::size_t lane = 0; lane < kLanes; ++lane)
                store_element(type_, to, i * kLanes + lane, unit[lane * k + i]);
    }
}

kernels::LinearArgs PackedMatrix::arguments(const ThreadPart& part, const float* x, std::size_t x_stride, int rows,
                                            float* y, std::size_t y_stride, float* scratch) const {
    kernels::LinearArgs args;
    args.w = part.data;
    args.type = type_;
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
                            float* y, std::size_t y_stride, bool add, float* scratch) const {
    const ThreadPart& part = parts_[static_cast<std::size_t>(thread)];
    if (part.outputs.size() == 0) return;
    kernels::LinearArgs args = arguments(part, x, x_stride, rows, y, y_stride, scratch);
    args.add = add;
    kernels.linear(args);
}

void PackedMatrix::multiply_logits(const kernels::Kernels& kernels, int thread, const float* x, std::size_t x_stride,
                                   int rows, float* y, std::size_t y_stride, float* scratch, kernels::LaneStats* stats,
                                   int counted) const {
    const ThreadPart& part = parts_[static_cast<std::size_t>(thread)];
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
        const auto at = static_cast<std::size_t>(output - part.outputs.begin), k = static_cast<std::size_t>(k_);
        const char* unit = part.data + at / kLanes * kLanes * k * bytes_of(type_);
        for (std::int64_t i = range.begin; i < range.end; ++i)
            out[i] = load_element(type_, unit, static_cast<std::size_t>(i) * kLanes + at % kLanes);
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
        char* next = memory_.as<char>() + thread_begin[thread];
        for (PackedMatrix* matrix : matrices_) {
            matrix->parts_[thread].data = next;
            next += matrix->part_bytes(matrix->parts_[thread]);
        }
    }
}

} // namespace entrodraft::model
