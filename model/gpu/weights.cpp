#include "model/gpu/weights.h"

#include "dist/error.h"
#include "model/files/bad_file.h"
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
#include <utility>

namespace entrodraft::model::gpu {

namespace {

constexpr double kPatience = 600; // seconds, of a copy to the device

WeightType weight_type(NumberType type) {
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

bool is_stored_as(const TensorView& tensor, WeightType held) {
    return (held == WeightType::float32 && tensor.type == DiskType::float32) ||
           (held == WeightType::bfloat16 && tensor.type == DiskType::bfloat16) ||
           (held == WeightType::float16 && tensor.type == DiskType::float16);
}

// The row's largest magnitude over the largest number there is: of int8 127, as on the CPU (packing.cpp), which takes
// rows with infinities or NaNs alike: their outputs will be NaN.
float scale_of_row(std::span<const float> row, WeightType held) {
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
        case WeightType::int4:
            throw std::logic_error("int4 is stored by groups");
        }
    }
}

// The inputs [first, first + wanted) of a stored row in 4 bits, and the scales of their groups, whose other inputs may
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

// Random weights as a type holds them: of each of the few that there are, the code; of 8 bits by the scale of its row.
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
            const std::size_t first = middle - 1 - m; // of those that are no larger
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

// Of a gate's and an up's rows kGateGroup each by turns, as Epilogue::gate has them, padded to whole groups.
template <typename T> std::vector<T> by_turns(const std::vector<T>& gates, const std::vector<T>& ups) {
    std::vector<T> all;
    for (std::size_t begin = 0; begin < gates.size(); begin += kGateGroup)
        for (const std::vector<T>* of : {&gates, &ups})
            for (std::size_t i = begin; i < begin + kGateGroup; ++i)
                all.push_back(i < of->size() ? (*of)[i] : T{});
    return all;
}

// Rows of a matrix on their way to the device, or random ones that are made there.
class Uploader {
  public:
    // `keeps_codes`: of quantised tensors; else all become numbers.
    Uploader(const Checkpoint& checkpoint, bool keeps_codes) : checkpoint_(checkpoint), keeps_codes_(keeps_codes) {}

    // Stored codes as they are, the others as `held`.
    DeviceMatrix matrix(const MatrixSource& source, WeightType held) {
        return matrix(rows_of(source), source.inputs, held);
    }
    // Stored codes too become numbers.
    DeviceMatrix plain_matrix(const MatrixSource& source, WeightType held) {
        return matrix(rows_of(source), source.inputs, held_as(held));
    }
    // The same of several of as many inputs each, one behind the other.
    DeviceMatrix plain_matrix(const std::vector<MatrixSource>& sources, WeightType held) {
        std::vector<StoredRow> rows;
        for (const MatrixSource& source : sources)
            append(rows_of(source), rows);
        return matrix(rows, sources.front().inputs, held_as(held));
    }
    // Of an MLP: gates and ups by turns (Epilogue::gate), or ups alone.
    DeviceMatrix wide_matrix(const LayerSources& layer, WeightType held) {
        const bool is_gated = !layer.gate.rows.empty();
        return matrix(is_gated ? by_turns(rows_of(layer.gate), rows_of(layer.up)) : rows_of(layer.up), layer.up.inputs,
                      held);
    }
    // The same of all experts of a layer.
    DeviceMatrix wide_matrix(const std::vector<ExpertSources>& experts, WeightType held) {
        std::vector<StoredRow> rows;
        for (const ExpertSources& expert : experts)
            append(by_turns(rows_of(expert.gate), rows_of(expert.up)), rows);
        return matrix(rows, experts.front().up.inputs, held);
    }
    DeviceMatrix down_matrix(const std::vector<ExpertSources>& experts, WeightType held) {
        std::vector<StoredRow> rows;
        for (const ExpertSources& expert : experts)
            append(rows_of(expert.down), rows);
        return matrix(rows, experts.front().down.inputs, held);
    }
    DeviceArray<float> vector(const std::vector<float>& values) const { return array(values); }

    int widest_order() const { return widest_order_; } // of all matrices so far

  private:
    static constexpr std::size_t kStagingBytes = std::size_t{32} << 20;

    template <typename T> DeviceArray<T> array(const std::vector<T>& values) const {
        DeviceArray<T> there(values.size());
        copy(stream_, there.data(), values.data(), values.size() * sizeof(T));
        stream_.wait(kPatience);
        return there;
    }

    struct StoredRow {
        const MatrixSource* source = nullptr; // null: zeros
        const TensorView* tensor = nullptr;
        std::int64_t number = 0;
    };

    std::vector<StoredRow> rows_of(const MatrixSource& source) const {
        std::vector<StoredRow> rows;
        for (const StoredSlice& part : source.rows)
            for (std::int64_t i = 0; i < part.rows.size(); ++i)
                rows.push_back({&source, &checkpoint_.tensor(part.tensor->weight), part.rows.begin + i * part.step});
        return rows;
    }

    static void append(const std::vector<StoredRow>& more, std::vector<StoredRow>& rows) {
        rows.insert(rows.end(), more.begin(), more.end());
    }

    DeviceMatrix matrix(const std::vector<StoredRow>& rows, const dist::Slice& inputs, WeightType type) {
        std::vector<const TensorView*> tensors; // each once
        std::set<const TensorView*> known;
        for (const StoredRow& row : rows)
            if (keeps_codes_ && row.source != nullptr && !row.source->transposed && known.insert(row.tensor).second)
                tensors.push_back(row.tensor);
        if (inputs.size() == 0) tensors.clear(); // this rank has no part of it
        return matrix(rows, inputs, held_as_stored(tensors, inputs).value_or(held_as(type)));
    }

    DeviceMatrix matrix(const std::vector<StoredRow>& rows, const dist::Slice& inputs, const HeldAs& held) {
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

    static bool is_generated(const StoredRow& row) {
        return row.source != nullptr && row.tensor->type == DiskType::generated;
    }

    // From row `begin` on: random rows that follow one another in their tensor, or as many others as are staged at
    // once.
    static std::span<const StoredRow> run_at(const std::vector<StoredRow>& rows, std::size_t begin,
                                             std::size_t row_bytes) {
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
        const MatrixSource& source = *rows.front().source;
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

    // Matrices are a tensor's last two dimensions, before which are experts. RandomRows' first row of a row, and how
    // many inputs it has there.
    static std::int64_t stored_inputs(const StoredRow& row) {
        const std::vector<std::int64_t>& shape = row.tensor->shape;
        return row.source->transposed ? shape[shape.size() - 2] : shape.back();
    }
    static std::int64_t first_row(const StoredRow& row) {
        const std::int64_t width = row.tensor->shape.back();
        return row.source->transposed ? row.number / width * stored_inputs(row) * width + row.number % width
                                      : row.number;
    }

    // A row of a stored matrix whose rows are inputs. The matrix is turned once, a square after the other.
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
                        turned_.numbers[static_cast<std::size_t>(o * inputs + i)] =
                            stored[static_cast<std::size_t>(i * outputs + o)];
        }
        return std::span(turned_.numbers)
            .subspan(static_cast<std::size_t>(row.number % outputs * inputs), static_cast<std::size_t>(inputs));
    }

    // The inputs that are wanted of a stored row. A scale is that of the whole row, so that any slice is quantised
    // alike.
    void place_row(const StoredRow& row, const HeldAs& held, std::byte* to, std::byte* scales) {
        if (row.source == nullptr) return;
        const MatrixSource& source = *row.source;
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
        std::int64_t matrix = 0;    // of those of all experts
        std::vector<float> numbers; // [outputs][inputs]
    } turned_;                      // the one before
    std::vector<float> row_;
    std::vector<std::byte> codes_;  // of 8 bits, as inputs lie
    std::vector<std::byte> scales_; // of the rows under way
    std::map<WeightType, RandomCodes> random_codes_;
    int widest_order_ = 0;
};

} // namespace

Linear DeviceMatrix::product(NumberType type_of_x) const {
    Linear call;
    call.type = type_of_x;
    call.w = numbers.data();
    call.k = k;
    call.stride = stride;
    call.n = n;
    call.bias = bias.data();
    call.form = form;
    if (form.group == 0) call.scales = reinterpret_cast<const float*>(scales.data());
    call.group_scales = scales.data();
    call.values = values.data();
    return call;
}

namespace {

// What decoder layers and heads have in common: norms, and matrices with their biases.
class PartReader {
  public:
    PartReader(const Checkpoint& checkpoint, const ModelConfig& config, WeightType multiplied, Uploader& uploader)
        : checkpoint_(checkpoint), config_(config), multiplied_(multiplied), uploader_(uploader) {}

    DeviceNorm upload(const NormWeights& norm, Norm kind, float epsilon) const {
        return {uploader_.vector(norm.weight), uploader_.vector(norm.bias), kind, epsilon};
    }
    DeviceNorm norm(const TensorNames& of, float scale = 1) const {
        return upload(read_norm(checkpoint_, of, config_.norm_offset, scale), config_.norm, config_.norm_epsilon);
    }
    DeviceNorm head_norm(const TensorNames& of, const dist::Slice& heads) const {
        return upload(own_heads_of(config_, read_norm(checkpoint_, of, config_.norm_offset), heads), config_.norm,
                      config_.norm_epsilon);
    }
    DeviceArray<float> bias(const MatrixSource& source) const {
        return uploader_.vector(read_biases(checkpoint_, source.rows));
    }
    DeviceMatrix matrix(const MatrixSource& source) {
        DeviceMatrix matrix = uploader_.matrix(source, multiplied_);
        matrix.bias = bias(source);
        return matrix;
    }
    // Of linear attention, whose gates FP8 files may hold as they are behind quantised matrices.
    DeviceMatrix linear_in(MatrixSource source) {
        const auto is_quantised = [&](const StoredSlice& part) {
            return checkpoint_.tensor(part.tensor->weight).type == DiskType::quantized;
        };
        const auto gates = std::find_if(source.rows.rbegin(), source.rows.rend(), is_quantised).base();
        if (gates == source.rows.begin() || gates == source.rows.end()) return matrix(source);
        const MatrixSource last = {{gates, source.rows.end()}, source.inputs, source.transposed};
        source.rows.erase(gates, source.rows.end());
        DeviceMatrix all = matrix(source);
        all.last.push_back(matrix(last));
        return all;
    }
    // The first rank's part of what is summed over ranks has the biases.
    DeviceLayer layer(const LayerNames& names, const LayerSources& sources, const RankShard& shard);
    // `type`: the activations', as below.
    void read_latent(const LayerNames& names, const LatentSources& sources, WeightType type, DeviceLayer& layer);
    void read_delta_net(const LayerNames& names, const RankShard& shard, DeviceLayer& layer);
    void read_cross(const LayerNames& names, const CrossSources& sources, bool is_first, DeviceLayer& layer);
    // Of layer `number`.
    void read_experts(const ModelNames& names, int number, const RankShard& shard, WeightType type, DeviceLayer& layer);
    DeviceFusion fusion(const FusionNames& names, const OuterSources& sources);

  private:
    const Checkpoint& checkpoint_;
    const ModelConfig& config_;
    WeightType multiplied_;
    Uploader& uploader_;
};

DeviceLayer PartReader::layer(const LayerNames& names, const LayerSources& sources, const RankShard& shard) {
    DeviceLayer layer;
    layer.attention_norm = norm(names.attention_norm);
    layer.mlp_norm = norm(names.mlp_norm);
    layer.after_attention_norm = norm(names.after_attention_norm);
    layer.after_mlp_norm = norm(names.after_mlp_norm);
    layer.query_norm = head_norm(names.query_norm, shard.heads.query_heads);
    layer.key_norm = head_norm(names.key_norm, shard.heads.kv_heads);
    layer.sinks = uploader_.vector(read_sinks(checkpoint_, names, shard));
    const bool is_linear = !names.linear_convolution.weight.empty();
    layer.qkv = is_linear ? linear_in(sources.qkv) : matrix(sources.qkv);
    layer.output = uploader_.matrix(sources.output, multiplied_);
    layer.wide = uploader_.wide_matrix(sources, multiplied_);
    std::vector<float> wide_bias = read_biases(checkpoint_, sources.up.rows);
    if (config_.gated_mlp) wide_bias = by_turns(read_biases(checkpoint_, sources.gate.rows), wide_bias);
    layer.wide.bias = uploader_.vector(wide_bias);
    layer.down = uploader_.matrix(sources.down, multiplied_);
    if (shard.is_first) {
        layer.output.bias = bias(sources.output);
        layer.down.bias = bias(sources.down);
    }
    return layer;
}

void PartReader::read_latent(const LayerNames& names, const LatentSources& sources, WeightType type,
                             DeviceLayer& layer) {
    const auto norm_of = [&](const TensorNames& of) {
        return upload(read_norm(checkpoint_, of, config_.norm_offset), Norm::rms, LatentConfig::kNormEpsilon);
    };
    layer.query_down_norm = norm_of(names.query_down_norm);
    layer.key_value_down_norm = norm_of(names.key_value_down_norm);
    layer.query_up = matrix(sources.query_up);
    layer.absorb = uploader_.plain_matrix(sources.absorb, type);
    layer.expand = uploader_.plain_matrix(sources.expand, type);
}

void PartReader::read_delta_net(const LayerNames& names, const RankShard& shard, DeviceLayer& layer) {
    const DeltaNetVectors vectors = model::read_delta_net(checkpoint_, config_, names, shard);
    layer.convolution = uploader_.vector(vectors.convolution);
    layer.decay_rates = uploader_.vector(vectors.decay_rates);
    layer.decay_bias = uploader_.vector(vectors.decay_bias);
    layer.delta_norm = upload(vectors.norm, Norm::rms, config_.norm_epsilon);
}

void PartReader::read_cross(const LayerNames& names, const CrossSources& sources, bool is_first, DeviceLayer& layer) {
    layer.cross_norm = norm(names.cross_norm);
    layer.cross_query = matrix(sources.query);
    layer.cross_key_value = matrix(sources.key_value);
    layer.cross_output = uploader_.matrix(sources.output, multiplied_);
    if (is_first) layer.cross_output.bias = bias(sources.output);
}

void PartReader::read_experts(const ModelNames& all, int number, const RankShard& shard, WeightType type,
                              DeviceLayer& layer) {
    const LayerNames names = all.layer(number);
    layer.router = uploader_.plain_matrix(router_source(config_, names), type);
    layer.router.bias = bias(router_source(config_, names));
    if (!names.router_correction.weight.empty())
        layer.router_correction = uploader_.vector(read_vector(checkpoint_, names.router_correction.weight));
    const auto n = static_cast<std::size_t>(config_.experts.n_experts);
    std::vector<ExpertNames> of_experts(n);
    std::vector<ExpertSources> sources;
    for (std::size_t i = 0; i < n; ++i) {
        const int expert = static_cast<int>(i);
        of_experts[i] = all.expert(number, expert);
        sources.push_back(expert_sources(config_, all, names, of_experts[i], expert, shard));
    }
    layer.experts_wide = uploader_.wide_matrix(sources, multiplied_);
    layer.experts_down = uploader_.down_matrix(sources, multiplied_);
    if (!config_.experts.has_biases) return;
    std::vector<float> wide, down;
    for (const ExpertSources& each : sources) {
        const std::vector<float> of_wide =
            by_turns(read_biases(checkpoint_, each.gate.rows), read_biases(checkpoint_, each.up.rows));
        wide.insert(wide.end(), of_wide.begin(), of_wide.end());
        const std::vector<float> of_down = read_biases(checkpoint_, each.down.rows);
        down.insert(down.end(), of_down.begin(), of_down.end());
    }
    layer.experts_wide.bias = uploader_.vector(wide);
    if (shard.adds_expert_bias) layer.experts_down.bias = uploader_.vector(down);
}

DeviceFusion PartReader::fusion(const FusionNames& names, const OuterSources& sources) {
    const FusionConfig& config = config_.fusion;
    DeviceFusion fusion;
    for (const TensorNames& each : names.feature_norms)
        fusion.feature_norms.push_back(upload(read_norm(checkpoint_, each, config.feature_norm_offset),
                                              config.feature_norm, config.feature_norm_epsilon));
    if (config.features_scale != 0) {
        const auto width = static_cast<std::size_t>(config.feature_numbers());
        fusion.feature_scale.weight = uploader_.vector(std::vector<float>(width, config.features_scale));
        fusion.feature_scale.epsilon = FusionConfig::kScaleEpsilon;
    }
    fusion.feature_projection = matrix(sources.feature_projection);
    fusion.linear = matrix(sources.fusion);
    fusion.skip = matrix(sources.skip);
    fusion.embedding_norm = norm(names.embedding_norm);
    fusion.state_norm = norm(names.state_norm);
    fusion.sum_norm = norm(names.sum_norm);
    fusion.cell_norm = norm(names.cell_norm);
    const auto read_all = [&](const std::vector<MatrixSource>& matrices, std::vector<DeviceMatrix>& to) {
        for (const MatrixSource& each : matrices)
            to.push_back(matrix(each));
    };
    read_all(sources.cells, fusion.cells);
    read_all(sources.residual_blocks, fusion.residual_blocks);
    read_all(sources.residual_outputs, fusion.residual_outputs);
    return fusion;
}

} // namespace

DeviceWeights::DeviceWeights(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
                             NumberType number_type, WeightType multiplied,
                             const std::function<void(std::size_t, std::size_t)>& progress)
    : type(number_type) {
    const ModelNames names = names_of(config, checkpoint);
    Uploader uploader(checkpoint, config.quantization.has_value());
    PartReader parts(checkpoint, config, multiplied, uploader);
    for (int i = 0; i < config.n_layers; ++i) {
        const LayerNames layer_names = names.layer(i);
        layers.push_back(parts.layer(layer_names, layer_sources(config, names, layer_names, i, shard), shard));
        if (config.has_encoder())
            parts.read_cross(layer_names, cross_sources(config, layer_names, shard), shard.is_first, layers.back());
        if (config.is_latent())
            parts.read_latent(layer_names, latent_sources(config, layer_names, shard), weight_type(type),
                              layers.back());
        if (config.is_linear(i)) parts.read_delta_net(layer_names, shard, layers.back());
        if (config.has_experts(i)) parts.read_experts(names, i, shard, weight_type(type), layers.back());
        const auto done = static_cast<std::size_t>(i + 1), all = static_cast<std::size_t>(config.n_layers) + 1;
        if (progress) progress(checkpoint.total_bytes() * done / all, checkpoint.total_bytes());
    }
    const OuterSources sources = outer_sources(config, names, shard);
    RankShard to_look_up = shard;
    to_look_up.vocab = shard.looked_up;
    embedding = uploader.plain_matrix(outer_sources(config, names, to_look_up).embedding, weight_type(type));
    const bool is_tied = sources.head.rows.empty() && !config.is_encoder;
    const bool has_codes =
        is_scaled(multiplied) ||
        (config.quantization && std::ranges::any_of(sources.embedding.rows, [&](const StoredSlice& part) {
             return checkpoint.tensor(part.tensor->weight).type == DiskType::quantized;
         }));
    embedding_is_head = is_tied && !has_codes && shard.looked_up == shard.vocab;
    own_head = uploader.matrix(is_tied && !embedding_is_head ? sources.embedding : sources.head, multiplied);
    project_in = uploader.matrix(sources.project_in, multiplied);
    project_out = uploader.matrix(sources.project_out, multiplied);
    embedding_norm = parts.norm(names.embedding_norm);
    final_norm = parts.norm(names.final_norm, config.output_scale);
    fusion = parts.fusion(names.fusion, sources);
    positions = uploader.vector(read_positions(checkpoint, config, names));
    relative_biases = uploader.vector(read_relative_biases(checkpoint, config, names, shard));
    head_bias = uploader.vector(read_head_bias(checkpoint, config, names, shard));
    widest_order = uploader.widest_order();
    if (widest_order > 0 && (config.n_expert_layers() > 0 || config.has_encoder() || config.is_encoder))
        throw BadFile(
            "inputs in an order of their own (GPTQ's act-order), of experts and of models with an encoder, are "
            "for CPUs alone: give --device cpu");
    if (progress) progress(checkpoint.total_bytes(), checkpoint.total_bytes());
    const auto count = [&](const DeviceMatrix& matrix, int outputs, double share = 1) { // without padding
        bytes_per_pass +=
            static_cast<std::size_t>(static_cast<double>(matrix.numbers.size() + matrix.scales.size()) * share);
        operations_per_row += 2.0 * outputs * matrix.k * share;
    };
    const double chosen = static_cast<double>(config.experts.n_chosen) / std::max(1, config.experts.n_experts);
    for (const DeviceMatrix* matrix :
         {&project_in, &project_out, &fusion.feature_projection, &fusion.linear, &fusion.skip})
        count(*matrix, matrix->n);
    count(head(), head().n);
    for (const std::vector<DeviceMatrix>* list : fusion.lists())
        for (const DeviceMatrix& each : *list)
            count(each, each.n);
    for (const DeviceLayer& layer : layers) {
        for (const DeviceMatrix& gates : layer.qkv.last)
            count(gates, gates.n);
        for (const DeviceMatrix* matrix :
             {&layer.qkv, &layer.output, &layer.down, &layer.cross_query, &layer.cross_output, &layer.router,
              &layer.query_up, &layer.absorb, &layer.expand})
            count(*matrix, matrix->n);
        count(layer.experts_wide, 2 * config.experts.n_experts * layer.experts_down.k, chosen); // of a row
        count(layer.experts_down, layer.experts_down.n, chosen);
        count(layer.wide, (config.gated_mlp ? 2 : 1) * layer.down.k);
    }
}

} // namespace entrodraft::model::gpu
