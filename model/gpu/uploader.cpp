#include "model/gpu/uploader.h"

#include "dist/rank/error.h"
#include "model/files/half.h"
#include "model/files/tensor_values.h"
#include "model/gpu/stored_codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <stdexcept>

namespace entrodraft::model::gpu {

namespace {

constexpr double kPatience = 600; // seconds, for a copy to the device

bool is_stored_as(const TensorView& tensor, WeightType held) {
    return (held == WeightType::float32 && tensor.type == DiskType::float32) ||
           (held == WeightType::bfloat16 && tensor.type == DiskType::bfloat16) ||
           (held == WeightType::float16 && tensor.type == DiskType::float16);
}

// Returns the row's largest magnitude over the largest number of the type, 127 for int8, as on the CPU (packing.cpp).
// Rows with infinities or NaNs get a NaN scale, as there: their outputs will be NaN.
float scale_of_row(std::span<const float> row, WeightType held) {
    using Limits = std::numeric_limits<float>;
    float most = 0;
    for (const float value : row)
        most = std::isfinite(value) ? std::max(most, std::abs(value)) : Limits::infinity();
    if (most > Limits::max()) return Limits::quiet_NaN();
    const float scale = most / (held == WeightType::int8 ? 127 : kLargestFloat8);
    return scale >= Limits::min() ? scale : 0;
}

// `to` is zeroed, and stays zero if the row has no scale.
void store(std::span<const float> row, WeightType held, float scale, std::byte* to) {
    if (is_scaled(held) && !(scale > 0)) return;
    const float inverse = 1 / scale;
    for (std::size_t i = 0; i < row.size(); ++i) {
        std::uint16_t half = 0;
        switch (held) {
        case WeightType::float32:
            std::memcpy(to + 4 * i, &row[i], 4);
            break;
        case WeightType::bfloat16:
        case WeightType::float16:
            half = held == WeightType::bfloat16 ? to_bfloat16(row[i]) : to_float16(row[i]);
            std::memcpy(to + 2 * i, &half, 2);
            break;
        case WeightType::int8:
            to[i] = static_cast<std::byte>(static_cast<std::int8_t>(std::nearbyint(row[i] * inverse)));
            break;
        case WeightType::float8:
            to[i] = static_cast<std::byte>(to_float8(row[i] * inverse));
            break;
        case WeightType::int4:
            throw std::logic_error("int4 is stored by groups");
        }
    }
}

// Stores inputs [first, first + wanted) of a row in 4 bits, and the scales of their groups. Other inputs of a group may
// be another rank's.
void store_int4(std::span<const float> row, std::size_t first, std::size_t wanted, std::byte* to, std::byte* scales) {
    for (std::size_t begin = 0; begin < wanted; begin += kInt4Group, scales += sizeof(std::uint16_t)) {
        std::uint8_t codes[kInt4Group] = {};
        const auto group = row.subspan(first + begin, std::min<std::size_t>(kInt4Group, row.size() - first - begin));
        const std::uint16_t scale = quantise_group(group.data(), static_cast<int>(group.size()), codes);
        std::memcpy(scales, &scale, sizeof scale);
        for (std::size_t i = begin; i < std::min<std::size_t>(wanted, begin + kInt4Group); ++i)
            put_int4(to, static_cast<int>(i), codes[i - begin]);
    }
}

} // namespace

class Uploader::Impl {
  public:
    Impl(const Checkpoint& checkpoint, bool keeps_codes) : checkpoint_(checkpoint), keeps_codes_(keeps_codes) {}

    void append(const PlannedMatrix& source, StoredRows& rows) const {
        for (const StoredSlice& slice : source.rows)
            for (std::int64_t i = 0; i < slice.rows.size(); ++i)
                rows.push_back(
                    {&source, &checkpoint_.tensor(slice.tensor->names.weight), slice.rows.begin + i * slice.step});
    }

    template <typename T> DeviceArray<T> array(const std::vector<T>& values) const {
        DeviceArray<T> there(values.size());
        copy(stream_, there.data(), values.data(), values.size() * sizeof(T));
        stream_.wait(kPatience);
        return there;
    }

    DeviceMatrix matrix(const StoredRows& rows, const dist::Slice& inputs, WeightType type) {
        std::vector<const TensorView*> tensors; // each once
        std::set<const TensorView*> known;
        for (const StoredRow& row : rows)
            if (keeps_codes_ && row.source != nullptr && !row.source->transposed && known.insert(row.tensor).second)
                tensors.push_back(row.tensor);
        if (inputs.size() == 0) tensors.clear(); // this rank has no part of the matrix
        return matrix(rows, inputs, held_as_stored(tensors, inputs).value_or(held_as(type)));
    }

    DeviceMatrix matrix(const StoredRows& rows, const dist::Slice& inputs, const HeldAs& held) {
        DeviceMatrix matrix;
        matrix.n = static_cast<int>(rows.size());
        matrix.k = static_cast<int>(inputs.size());
        matrix.stride = aligned(matrix.k);
        matrix.form = held.form;
        if (matrix.n == 0 || matrix.k == 0) return matrix; // this rank's part of a small model may be empty
        const std::size_t row_bytes = held.row_bytes(matrix.k), scale_bytes = held.row_scale_bytes(matrix.k);
        matrix.numbers = DeviceBytes(rows.size() * row_bytes);
        matrix.scales = DeviceBytes(rows.size() * scale_bytes);
        if (held.values != nullptr) matrix.values = array<float>({held.values, held.values + 16});
        matrix.order = array(held.order);
        widest_order_ = std::max(widest_order_, static_cast<int>(held.order.size()));
        if (!held.is_stored && held.form.group > 0 && inputs.begin % held.form.group != 0)
            throw dist::Error(fmt::format("int4 on GPUs: inputs from {} on, where this rank's part of a matrix begins, "
                                          "are in the middle of a group of {}: take another number of ranks, or int8",
                                          inputs.begin, kInt4Group));
        for (std::size_t begin = 0; begin < rows.size();) {
            const std::span<const StoredRow> run = run_at(rows, begin, row_bytes);
            std::byte* to = matrix.numbers.data() + begin * row_bytes;
            std::byte* scales = matrix.scales.data() + begin * scale_bytes;
            is_generated(run.front()) ? generate(run, held, matrix.stride, to, scales)
                                      : upload(run, held, {row_bytes, scale_bytes}, to, scales);
            begin += run.size();
        }
        stream_.wait(kPatience);
        return matrix;
    }

    int widest_order() const { return widest_order_; }

  private:
    // Codes of all random weights, which are few, in a type. If the type has 8 bits, there are codes for every scale
    // that a row may have.
    struct RandomCodes {
        DeviceBytes codes;
        DeviceArray<float> scale_of;

        RandomCodes(WeightType held, const Stream& stream) {
            std::vector<float> weights, scales;
            for (int i = 0; i < kRandomWeights; ++i)
                weights.push_back(random_weight(i));
            const std::size_t middle = weights.size() / 2, bytes = model::bytes_of(held);
            std::vector<std::byte> tables((is_scaled(held) ? middle : 1) * weights.size() * bytes);
            for (std::size_t m = is_scaled(held) ? 0 : middle - 1, at = 0; m < middle; ++m, at += weights.size()) {
                scales.push_back(is_scaled(held) ? scale_of_row({&weights[middle + m], 1}, held) : 1);
                const std::size_t first = middle - 1 - m; // first of the weights that are not larger
                store(std::span(weights).subspan(first, 2 * (m + 1)), held, scales.back(),
                      tables.data() + (at + first) * bytes);
            }
            codes = DeviceBytes(tables.size());
            scale_of = DeviceArray<float>(scales.size());
            copy(stream, codes.data(), tables.data(), tables.size());
            copy(stream, scale_of.data(), scales.data(), scales.size() * sizeof(float));
            stream.wait(kPatience);
        }
    };

    static constexpr std::size_t kStagingBytes = std::size_t{32} << 20;

    static bool is_generated(const StoredRow& row) {
        return row.source != nullptr && row.tensor->type == DiskType::generated;
    }

    // Returns a run of rows from row `begin` on: random rows that are consecutive in their tensor, or other rows that
    // fit into the staging memory.
    static std::span<const StoredRow> run_at(const StoredRows& rows, std::size_t begin, std::size_t row_bytes) {
        const StoredRow& first = rows[begin];
        const std::size_t most =
            is_generated(first) ? rows.size() : std::max<std::size_t>(1, kStagingBytes / row_bytes);
        std::size_t n = 1;
        for (; n < most && begin + n < rows.size(); ++n) {
            const StoredRow& row = rows[begin + n];
            const bool follows = row.tensor == first.tensor && is_generated(row) &&
                                 first_row(row) == first_row(first) + static_cast<std::int64_t>(n);
            if (is_generated(first) ? !follows : is_generated(row)) break;
        }
        return std::span(rows).subspan(begin, n);
    }

    void generate(std::span<const StoredRow> rows, const HeldAs& held, int stride, std::byte* to, std::byte* scales) {
        const PlannedMatrix& source = *rows.front().source;
        const TensorView& tensor = *rows.front().tensor;
        RandomRows call;
        call.key = tensor.generated.key;
        const auto stored_width = static_cast<std::uint64_t>(tensor.shape.back());
        call.first_row = static_cast<std::uint64_t>(first_row(rows.front()));
        call.row_step = source.transposed ? 1 : stored_width;
        call.input_step = source.transposed ? stored_width : 1;
        call.rows = static_cast<int>(rows.size());
        call.first_input = static_cast<int>(source.inputs.begin);
        call.inputs = static_cast<int>(source.inputs.size());
        call.whole_inputs = static_cast<int>(stored_inputs(rows.front()));
        call.out = to;
        if (held.form.group > 0) {
            call.group_scales = reinterpret_cast<std::uint16_t*>(scales);
        } else {
            const RandomCodes& codes = random_codes_.try_emplace(held.type, held.type, stream_).first->second;
            call.code_bytes = static_cast<int>(model::bytes_of(held.type));
            call.codes = codes.codes.data();
            call.scale_of = codes.scale_of.data();
            call.scales = held.has_row_scales() ? reinterpret_cast<float*>(scales) : nullptr;
            call.stride = stride;
        }
        fill_random_rows(stream_.handle(), call);
    }

    struct RowBytes {
        std::size_t numbers, scales;
    };

    void upload(std::span<const StoredRow> rows, const HeldAs& held, RowBytes of_row, std::byte* to,
                std::byte* scales) {
        staging_.assign(rows.size() * of_row.numbers, static_cast<std::byte>(has_4_bits(held.form) ? kNoInt4s : 0));
        scales_.assign(rows.size() * of_row.scales, std::byte{});
        for (std::size_t i = 0; i < rows.size(); ++i)
            place_row(rows[i], held, staging_.data() + i * of_row.numbers, scales_.data() + i * of_row.scales);
        copy(stream_, to, staging_.data(), staging_.size());
        if (!scales_.empty()) copy(stream_, scales, scales_.data(), scales_.size());
        stream_.wait(kPatience);
    }

    // Matrices are a tensor's last two dimensions; an earlier one counts experts. These return the inputs of a row, and
    // RandomRows::first_row for it.
    static std::int64_t stored_inputs(const StoredRow& row) {
        const std::vector<std::int64_t>& shape = row.tensor->shape;
        return row.source->transposed ? shape[shape.size() - 2] : shape.back();
    }
    static std::int64_t first_row(const StoredRow& row) {
        const std::int64_t width = row.tensor->shape.back();
        return row.source->transposed ? row.number / width * stored_inputs(row) * width + row.number % width
                                      : row.number;
    }

    // Returns a row of a stored matrix whose rows are inputs. The matrix is transposed once, one square after another.
    std::span<const float> turned(const StoredRow& row) {
        const std::int64_t inputs = stored_inputs(row), outputs = row.tensor->shape.back();
        const std::int64_t matrix = row.number / outputs, begin = matrix * inputs * outputs;
        if (turned_.tensor != row.tensor || turned_.matrix != matrix) {
            std::vector<float> stored(static_cast<std::size_t>(inputs * outputs));
            read_floats(*row.tensor, {begin, begin + inputs * outputs}, stored.data());
            turned_ = {row.tensor, matrix, std::vector<float>(stored.size())};
            constexpr std::int64_t kSquare = 64;
            for (std::int64_t first = 0; first < inputs; first += kSquare)
                for (std::int64_t o = 0; o < outputs; ++o)
                    for (std::int64_t i = first; i < std::min(first + kSquare, inputs); ++i)
                        turned_.numbers[o * inputs + i] = stored[i * outputs + o];
        }
        return std::span(turned_.numbers)
            .subspan(static_cast<std::size_t>(row.number % outputs * inputs), static_cast<std::size_t>(inputs));
    }

    // Places the wanted inputs of a stored row. A scale is that of the whole row, so slices are quantised alike.
    void place_row(const StoredRow& row, const HeldAs& held, std::byte* to, std::byte* scales) {
        if (row.source == nullptr) return;
        const PlannedMatrix& source = *row.source;
        const TensorView& tensor = *row.tensor;
        if (held.is_stored) return place_stored_row(held, tensor, row.number, source.inputs, to, scales);
        const std::int64_t width = tensor.shape.back(); // its rows may be those of all experts
        const auto first = static_cast<std::size_t>(source.inputs.begin);
        const auto wanted = static_cast<std::size_t>(source.inputs.size());
        if (!source.transposed && is_stored_as(tensor, held.type)) {
            const std::size_t place = static_cast<std::size_t>(row.number * width) + first;
            std::memcpy(to, tensor.bytes.data() + place * model::bytes_of(held.type),
                        wanted * model::bytes_of(held.type));
            return;
        }
        if (!source.transposed) {
            row_.resize(static_cast<std::size_t>(width));
            read_floats(tensor, {row.number * width, (row.number + 1) * width}, row_.data());
        }
        const std::span<const float> numbers = source.transposed ? turned(row) : row_;
        if (held.form.group > 0) return store_int4(numbers, first, wanted, to, scales);
        if (!held.has_row_scales()) return store(numbers.subspan(first, wanted), held.type, 1, to);
        const float scale = scale_of_row(numbers, held.type);
        std::memcpy(scales, &scale, sizeof scale);
        codes_.assign(wanted, std::byte{});
        store(numbers.subspan(first, wanted), held.type, scale, codes_.data());
        for (std::size_t i = 0; i < wanted; ++i)
            to[int8_place(static_cast<int>(i))] = codes_[i];
    }

    const Checkpoint& checkpoint_;
    bool keeps_codes_;
    Stream stream_;
    std::vector<std::byte> staging_;
    struct {
        const TensorView* tensor = nullptr;
        std::int64_t matrix = 0;    // among the matrices of all experts
        std::vector<float> numbers; // [outputs][inputs]
    } turned_;                      // the previous matrix
    std::vector<float> row_;
    std::vector<std::byte> codes_;  // 8-bit codes in the order of inputs
    std::vector<std::byte> scales_; // of the rows being uploaded
    std::map<WeightType, RandomCodes> random_codes_;
    int widest_order_ = 0;
};

Uploader::Uploader(const Checkpoint& checkpoint, bool keeps_codes)
    : impl_(std::make_unique<Impl>(checkpoint, keeps_codes)) {}
Uploader::~Uploader() = default;

void Uploader::append(const PlannedMatrix& source, StoredRows& rows) const {
    impl_->append(source, rows);
}

DeviceMatrix Uploader::matrix(const StoredRows& rows, const dist::Slice& inputs, WeightType held) {
    return impl_->matrix(rows, inputs, held);
}

DeviceMatrix Uploader::plain_matrix(const StoredRows& rows, const dist::Slice& inputs, WeightType held) {
    return impl_->matrix(rows, inputs, held_as(held));
}

DeviceArray<float> Uploader::vector(const std::vector<float>& values) const {
    return impl_->array(values);
}

int Uploader::widest_order() const {
    return impl_->widest_order();
}

} // namespace entrodraft::model::gpu
