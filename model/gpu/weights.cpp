#include "entrodraft/model/gpu/weights.h"

#include "entrodraft/model/half.h"
#include "entrodraft/model/packing.h"

#include <cstring>
#include <utility>

namespace entrodraft::model::gpu {

namespace {

constexpr double kPatience = 600; // seconds, of a copy to the device

// Rows of a matrix on their way to the device.
class Uploader {
  public:
    Uploader(const Checkpoint& checkpoint, NumberType type) : checkpoint_(checkpoint), type_(type) {}

    DeviceMatrix matrix(const std::vector<const MatrixSource*>& stacked) {
        DeviceMatrix matrix;
        for (const MatrixSource* source : stacked) {
            for (const StoredRows& part : source->rows)
                matrix.n += static_cast<int>(part.rows.size());
            matrix.k = static_cast<int>(source->inputs.size());
        }
        if (matrix.n == 0) return matrix;
        matrix.stride = (matrix.k + kLinearAlign - 1) / kLinearAlign * kLinearAlign;
        const std::size_t row_bytes = static_cast<std::size_t>(matrix.stride) * bytes_of(type_);
        matrix.numbers = DeviceBytes(static_cast<std::size_t>(matrix.n) * row_bytes);
        std::byte* to = matrix.numbers.data();
        for (const MatrixSource* source : stacked)
            for (const StoredRows& part : source->rows)
                to = upload(*source, part, row_bytes, to);
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
    std::byte* upload(const MatrixSource& source, const StoredRows& part, std::size_t row_bytes, std::byte* to) {
        const TensorView& tensor = checkpoint_.tensor(part.tensor->weight);
        const std::size_t at_once = std::max<std::size_t>(1, kStagingBytes / row_bytes);
        std::vector<float> turned;
        if (source.transposed) {
            turned.resize(static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]));
            read_floats(tensor, {0, tensor.shape[0] * tensor.shape[1]}, turned.data());
        }
        std::vector<float> row(static_cast<std::size_t>(source.inputs.size()));
        for (std::int64_t begin = part.rows.begin; begin < part.rows.end;) {
            const std::int64_t end = std::min(part.rows.end, begin + static_cast<std::int64_t>(at_once));
            staging_.assign(static_cast<std::size_t>(end - begin) * row_bytes, std::byte{0});
            for (std::int64_t r = begin; r < end; ++r) {
                for (std::int64_t i = source.inputs.begin; source.transposed && i < source.inputs.end; ++i)
                    row[static_cast<std::size_t>(i - source.inputs.begin)] =
                        turned[static_cast<std::size_t>(i * tensor.shape[1] + r)];
                std::byte* place = staging_.data() + static_cast<std::size_t>(r - begin) * row_bytes;
                const std::int64_t first = r * tensor.shape[1] + source.inputs.begin;
                if (!source.transposed && is_stored_as_held(tensor)) {
                    std::memcpy(place, tensor.bytes.data() + static_cast<std::size_t>(first) * bytes_of(type_),
                                row.size() * bytes_of(type_));
                    continue;
                }
                if (!source.transposed) read_floats(tensor, {first, first + source.inputs.size()}, row.data());
                store(row, place);
            }
            copy(stream_, to, staging_.data(), staging_.size());
            stream_.wait(kPatience);
            to += staging_.size();
            begin = end;
        }
        return to;
    }

    bool is_stored_as_held(const TensorView& tensor) const {
        switch (type_) {
        case NumberType::float32:
            return tensor.type == DiskType::float32;
        case NumberType::bfloat16:
            return tensor.type == DiskType::bfloat16;
        case NumberType::float16:
            return tensor.type == DiskType::float16;
        }
        return false;
    }

    void store(const std::vector<float>& row, std::byte* to) const {
        if (type_ == NumberType::float32) {
            std::memcpy(to, row.data(), row.size() * sizeof(float));
            return;
        }
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::uint16_t half = type_ == NumberType::bfloat16 ? to_bfloat16(row[i]) : to_float16(row[i]);
            std::memcpy(to + 2 * i, &half, sizeof half);
        }
    }

    const Checkpoint& checkpoint_;
    NumberType type_;
    Stream stream_;
    std::vector<std::byte> staging_;
};

} // namespace

DeviceWeights::DeviceWeights(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
                             NumberType number_type, const std::function<void(std::size_t, std::size_t)>& progress)
    : type(number_type) {
    const ModelNames names = names_of(config, checkpoint);
    Uploader uploader(checkpoint, type);
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
        layer.qkv = uploader.matrix({&sources.qkv});
        layer.qkv.bias = read_bias({&sources.qkv});
        layer.output = uploader.matrix({&sources.output});
        layer.wide = uploader.matrix(wide);
        layer.wide.bias = read_bias(wide);
        layer.down = uploader.matrix({&sources.down});
        if (shard.is_first) { // of what is summed over ranks
            layer.output.bias = read_bias({&sources.output});
            layer.down.bias = read_bias({&sources.down});
        }
        layers.push_back(std::move(layer));
        const auto done = static_cast<std::size_t>(i + 1), all = static_cast<std::size_t>(config.n_layers) + 1;
        if (progress) progress(checkpoint.total_bytes() * done / all, checkpoint.total_bytes());
    }
    const OuterSources sources = outer_sources(config, names, shard);
    embedding = uploader.matrix({&sources.embedding});
    own_head = uploader.matrix({&sources.head});
    project_in = uploader.matrix({&sources.project_in});
    project_out = uploader.matrix({&sources.project_out});
    final_norm = read_norm(names.final_norm);
    if (!names.positions.weight.empty()) positions = uploader.vector(read_vector(checkpoint, names.positions.weight));
    if (!names.head.bias.empty()) head_bias = uploader.vector(read_biases(checkpoint, {{&names.head, shard.vocab}}));
    if (progress) progress(checkpoint.total_bytes(), checkpoint.total_bytes());
}

std::vector<const DeviceMatrix*> DeviceWeights::multiplied() const {
    std::vector<const DeviceMatrix*> matrices = {&project_in, &project_out, &head()};
    for (const DeviceLayer& layer : layers)
        matrices.insert(matrices.end(), {&layer.qkv, &layer.output, &layer.wide, &layer.down});
    return matrices;
}

std::size_t DeviceWeights::bytes_per_pass() const {
    std::size_t bytes = 0;
    for (const DeviceMatrix* matrix : multiplied())
        bytes += matrix->numbers.size();
    return bytes;
}

double DeviceWeights::operations_per_row() const {
    double operations = 0;
    for (const DeviceMatrix* matrix : multiplied())
        operations += 2.0 * matrix->n * matrix->k;
    return operations;
}

} // namespace entrodraft::model::gpu
