#include "model/gpu/weights.h"

#include "model/checkpoint/half.h"
#include "model/cpu/packing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>

namespace entrodraft::model::gpu {

namespace {

constexpr double kPatience = 600; // seconds, of a copy to the device

WeightType held_as(NumberType type) {
    switch (type) {
    case NumberType::float32:
        return WeightType::float32;
    case NumberType::bfloat16:
        return WeightType::bfloat16;
    case NumberType::float16:
        return WeightType::float16;
    }
    throw std::invalid_argument("a number type that no matrix is held in");
}

bool is_scaled(WeightType held) {
    return held == WeightType::int8 || held == WeightType::float8;
}

bool is_stored_as(const TensorView& tensor, WeightType held) {
    return (held == WeightType::float32 && tensor.type == DiskType::float32) ||
           (held == WeightType::bfloat16 && tensor.type == DiskType::bfloat16) ||
           (held == WeightType::float16 && tensor.type == DiskType::float16);
}

// The row's largest magnitude over the largest number there is: of int8 127, as on the CPU (packing.cpp), which takes
// rows with infinities or NaNs alike: their outputs will be NaN.
float scale_of(std::span<const float> row, WeightType held) {
    using Limits = std::numeric_limits<float>;
    float most = 0;
    for (const float value : row)
        most = std::isfinite(value) ? std::max(most, std::abs(value)) : Limits::infinity();
    if (most > Limits::max()) return Limits::quiet_NaN();
    const float scale = most / (held == WeightType::int8 ? 127 : kLargestFloat8);
    return scale >= Limits::min() ? scale : 0;
}

// `to` is zeroed, and stays so where the row's scale is none.
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
        }
    }
}

// Rows of a matrix on their way to the device.
class Uploader {
  public:
    explicit Uploader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

    DeviceMatrix matrix(const std::vector<const MatrixSource*>& stacked, WeightType held) {
        DeviceMatrix matrix;
        for (const MatrixSource* source : stacked) {
            for (const StoredSlice& part : source->rows)
                matrix.n += static_cast<int>(part.rows.size());
            matrix.k = static_cast<int>(source->inputs.size());
        }
        matrix.stride = aligned(matrix.k);
        if (matrix.n == 0 || matrix.k == 0) return matrix; // this rank's part of a small model may be empty
        const std::size_t row_bytes = static_cast<std::size_t>(matrix.stride) * model::bytes_of(held);
        matrix.numbers = DeviceBytes(static_cast<std::size_t>(matrix.n) * row_bytes);
        std::byte* to = matrix.numbers.data();
        scales_.clear();
        for (const MatrixSource* source : stacked)
            for (const StoredSlice& part : source->rows)
                to = upload(*source, part, held, row_bytes, to);
        if (is_scaled(held)) matrix.scales = vector(scales_);
        matrix.is_float8 = held == WeightType::float8;
        return matrix;
    }

    DeviceArray<float> vector(const std::vector<float>& values) const {
        DeviceArray<float> array(values.size());
        copy(stream_, array.data(), values.data(), values.size() * sizeof(float));
        stream_.wait(kPatience);
        return array;
    }

  private:
    static constexpr std::size_t kStagingBytes = std::size_t{32} << 20;

    // Some rows at a time; returns where the next part goes.
    std::byte* upload(const MatrixSource& source, const StoredSlice& part, WeightType held, std::size_t row_bytes,
                      std::byte* to) {
        const TensorView& tensor = checkpoint_.tensor(part.tensor->weight);
        const std::size_t at_once = std::max<std::size_t>(1, kStagingBytes / row_bytes);
        turned_.clear();
        if (source.transposed) {
            turned_.resize(static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]));
            read_floats(tensor, {0, tensor.shape[0] * tensor.shape[1]}, turned_.data());
        }
        for (std::int64_t begin = part.rows.begin; begin < part.rows.end;) {
            const std::int64_t end = std::min(part.rows.end, begin + static_cast<std::int64_t>(at_once));
            staging_.assign(static_cast<std::size_t>(end - begin) * row_bytes, std::byte{0});
            for (std::int64_t r = begin; r < end; ++r)
                place_row(source, tensor, r, held, staging_.data() + static_cast<std::size_t>(r - begin) * row_bytes);
            copy(stream_, to, staging_.data(), staging_.size());
            stream_.wait(kPatience);
            to += staging_.size();
            begin = end;
        }
        return to;
    }

    // The inputs that are wanted of stored row r. A scale is that of the whole row, so that any slice is quantised
    // alike.
    void place_row(const MatrixSource& source, const TensorView& tensor, std::int64_t r, WeightType held,
                   std::byte* to) {
        const auto first = static_cast<std::size_t>(source.inputs.begin);
        const auto wanted = static_cast<std::size_t>(source.inputs.size());
        if (!source.transposed && is_stored_as(tensor, held)) {
            const std::size_t place = static_cast<std::size_t>(r * tensor.shape[1]) + first;
            std::memcpy(to, tensor.bytes.data() + place * model::bytes_of(held), wanted * model::bytes_of(held));
            return;
        }
        row_.resize(static_cast<std::size_t>(tensor.shape[source.transposed ? 0 : 1]));
        for (std::size_t i = 0; source.transposed && i < row_.size(); ++i)
            row_[i] = turned_[i * static_cast<std::size_t>(tensor.shape[1]) + static_cast<std::size_t>(r)];
        if (!source.transposed) read_floats(tensor, {r * tensor.shape[1], (r + 1) * tensor.shape[1]}, row_.data());
        const float scale = is_scaled(held) ? scale_of(row_, held) : 1;
        if (is_scaled(held)) scales_.push_back(scale);
        store(std::span(row_).subspan(first, wanted), held, scale, to);
    }

    const Checkpoint& checkpoint_;
    Stream stream_;
    std::vector<std::byte> staging_;
    std::vector<float> turned_; // a stored matrix whose rows are inputs
    std::vector<float> row_;
    std::vector<float> scales_; // of the matrix under way
};

} // namespace

DeviceWeights::DeviceWeights(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
                             NumberType number_type, WeightType multiplied,
                             const std::function<void(std::size_t, std::size_t)>& progress)
    : type(number_type) {
    const ModelNames names = names_of(config, checkpoint);
    Uploader uploader(checkpoint);
    const WeightType looked_up = held_as(type);
    const auto read_norm = [&](const TensorNames& of) {
        DeviceNorm norm;
        norm.weight = uploader.vector(read_norm_weight(checkpoint, config, of));
        if (!of.bias.empty()) norm.bias = uploader.vector(read_vector(checkpoint, of.bias));
        return norm;
    };
    const auto read_bias = [&](const std::vector<const MatrixSource*>& stacked) {
        std::vector<float> biases;
        for (const MatrixSource* source : stacked) {
            const std::vector<float> of = read_biases(checkpoint, source->rows);
            biases.insert(biases.end(), of.begin(), of.end());
        }
        return uploader.vector(biases);
    };
    for (int i = 0; i < config.n_layers; ++i) {
        const LayerNames layer_names = names.layer(i);
        const LayerSources sources = layer_sources(config, names, layer_names, shard);
        const std::vector<const MatrixSource*> wide = {&sources.gate, &sources.up};
        DeviceLayer layer;
        layer.attention_norm = read_norm(layer_names.attention_norm);
        layer.mlp_norm = read_norm(layer_names.mlp_norm);
        layer.after_attention_norm = read_norm(layer_names.after_attention_norm);
        layer.after_mlp_norm = read_norm(layer_names.after_mlp_norm);
        layer.query_norm = read_norm(layer_names.query_norm);
        layer.key_norm = read_norm(layer_names.key_norm);
        layer.qkv = uploader.matrix({&sources.qkv}, multiplied);
        layer.qkv.bias = read_bias({&sources.qkv});
        layer.output = uploader.matrix({&sources.output}, multiplied);
        layer.wide = uploader.matrix(wide, multiplied);
        layer.wide.bias = read_bias(wide);
        layer.down = uploader.matrix({&sources.down}, multiplied);
        if (shard.is_first) { // of what is summed over ranks
            layer.output.bias = read_bias({&sources.output});
            layer.down.bias = read_bias({&sources.down});
        }
        layers.push_back(std::move(layer));
        const auto done = static_cast<std::size_t>(i + 1), all = static_cast<std::size_t>(config.n_layers) + 1;
        if (progress) progress(checkpoint.total_bytes() * done / all, checkpoint.total_bytes());
    }
    const OuterSources sources = outer_sources(config, names, shard);
    embedding = uploader.matrix({&sources.embedding}, looked_up);
    const bool is_tied = sources.head.rows.empty();
    own_head = uploader.matrix({is_tied && is_scaled(multiplied) ? &sources.embedding : &sources.head}, multiplied);
    project_in = uploader.matrix({&sources.project_in}, multiplied);
    project_out = uploader.matrix({&sources.project_out}, multiplied);
    final_norm = read_norm(names.final_norm);
    if (!names.positions.weight.empty()) positions = uploader.vector(read_vector(checkpoint, names.positions.weight));
    if (!names.head.bias.empty()) head_bias = uploader.vector(read_biases(checkpoint, {{&names.head, shard.vocab}}));
    if (progress) progress(checkpoint.total_bytes(), checkpoint.total_bytes());
    const auto count = [&](const DeviceMatrix& matrix) {
        bytes_per_pass += matrix.numbers.size();
        operations_per_row += 2.0 * matrix.n * matrix.k;
    };
    count(project_in);
    count(project_out);
    count(head());
    for (const DeviceLayer& layer : layers)
        for (const DeviceMatrix* matrix : {&layer.qkv, &layer.output, &layer.wide, &layer.down})
            count(*matrix);
}

} // namespace entrodraft::model::gpu
