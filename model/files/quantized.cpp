// See quantized.h. The forms are those of the programs that they are named after; tests/model/make_quantized.py
// implements them in numpy.
#include "model/files/quantized.h"

#include "model/files/bad_file.h"
#include "model/files/gguf_blocks.h"
#include "model/files/half.h"
#include "model/files/json_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace entrodraft::model {
namespace {

using Json = nlohmann::json;

// ---- config.json ----

class QuantizationReader {
  public:
    QuantizationReader(const Json& object, std::string file) : object_(object), file_(std::move(file)) {}

    [[noreturn]] void refuse(const std::string& what) const {
        throw BadFile(file_ + ": field 'quantization_config': " + what);
    }
    Quantization read() const {
        if (!object_.is_object()) refuse("must be an object");
        const std::string method = text(object_, "quant_method", "");
        if (method == "gptq") return gptq();
        if (method == "awq") return awq();
        if (method == "fp8") return fp8();
        if (method == "compressed-tensors") return compressed();
        if (method == "mxfp4") return {QuantizedForm::mxfp4, 4, 32, false, false, CodeValues::float4, true};
        if (method == "bitsandbytes") return bitsandbytes();
        refuse("method " + in_quotes(method) +
               " is not supported; supported: gptq, awq, fp8, compressed-tensors, mxfp4, bitsandbytes");
    }

  private:
    std::string text(const Json& from, const char* name, const char* default_value) const {
        const auto at = from.find(name);
        if (at == from.end() || at->is_null()) return default_value;
        if (!at->is_string()) refuse(std::string(name) + " must be a string");
        return at->get<std::string>();
    }
    bool truth(const Json& from, const char* name, bool default_value) const {
        const auto at = from.find(name);
        if (at == from.end() || at->is_null()) return default_value;
        if (!at->is_boolean()) refuse(std::string(name) + " must be true or false");
        return at->get<bool>();
    }
    int whole(const Json& from, const char* name, int default_value) const {
        const auto at = from.find(name);
        if (at == from.end() || at->is_null()) return default_value;
        if (!at->is_number_integer()) refuse(std::string(name) + " must be a whole number");
        constexpr double kMany = 1 << 20; // more than any supported number
        return static_cast<int>(std::clamp(at->get<double>(), -2.0, kMany));
    }
    void require(bool is_met, const std::string& what) const {
        if (!is_met) refuse(what);
    }
    // Returns the group size; -1: whole rows.
    int group(const Json& from, int default_value) const {
        const int size = whole(from, "group_size", default_value);
        const bool is_power = size >= 16 && size <= 512 && (size & (size - 1)) == 0;
        require(size == -1 || is_power, fmt::format("group_size {} is not supported; supported: powers of two from 16 "
                                                    "to 512, and -1",
                                                    size));
        return std::max(size, 0);
    }

    Quantization gptq() const {
        const int bits = whole(object_, "bits", 4);
        require(bits == 4 || bits == 8, fmt::format("GPTQ of {} bits is not supported; supported: 4, 8", bits));
        const std::string form = text(object_, "checkpoint_format", "gptq");
        require(form == "gptq" || form == "gptq_v2",
                "checkpoint_format " + in_quotes(form) + " is not supported; supported: gptq, gptq_v2");
        return {QuantizedForm::gptq, bits, group(object_, 128), true, form == "gptq"};
    }
    Quantization awq() const {
        const int bits = whole(object_, "bits", whole(object_, "w_bit", 4));
        require(bits == 4, fmt::format("AWQ of {} bits is not supported; supported: 4", bits));
        const std::string version = text(object_, "version", "gemm");
        require(version == "gemm" || version == "GEMM",
                "AWQ's version " + in_quotes(version) + " is not supported; supported: gemm");
        return {QuantizedForm::awq, bits, group(object_, 128), truth(object_, "zero_point", true)};
    }
    Quantization fp8() const {
        Quantization found = {QuantizedForm::float8, 8, 0, false};
        const std::string format = text(object_, "fmt", "e4m3");
        require(format == "e4m3", "fmt " + in_quotes(format) + " is not supported; supported: e4m3");
        const auto block = object_.find("weight_block_size");
        if (block == object_.end() || block->is_null()) return found;
        require(block->is_array() && block->size() == 2 && *block == Json({128, 128}),
                "weight_block_size must be [128, 128]");
        found.group = 128;
        return found;
    }
    Quantization bitsandbytes() const {
        if (truth(object_, "load_in_8bit", false)) return {QuantizedForm::int8, 8, 0, false};
        require(truth(object_, "load_in_4bit", false), "neither load_in_4bit nor load_in_8bit is true");
        const std::string type = text(object_, "bnb_4bit_quant_type", "fp4");
        require(type == "nf4" || type == "fp4",
                "bnb_4bit_quant_type " + in_quotes(type) + " is not supported; supported: nf4, fp4");
        const std::string storage = text(object_, "bnb_4bit_quant_storage", "uint8");
        require(storage == "uint8",
                "bnb_4bit_quant_storage " + in_quotes(storage) + " is not supported; supported: uint8");
        constexpr int kGroup = 64; // transformers offers only this one
        const CodeValues values = type == "nf4" ? CodeValues::normal4 : CodeValues::bitsandbytes;
        return {QuantizedForm::pairs, 4, kGroup, false, false, values};
    }
    // Refuses files that change weights in other ways than by rounding.
    void refuse_transforms() const {
        const auto transform = object_.find("transform_config");
        require(transform == object_.end() || transform->is_null() || transform->empty() ||
                    (transform->contains("config_groups") && transform->at("config_groups").empty()),
                "transform_config is not supported");
        const auto sparsity = object_.find("sparsity_config");
        if (sparsity == object_.end() || sparsity->is_null() || sparsity->empty()) return;
        require(sparsity->is_object(), "sparsity_config must be an object");
        const std::string format = text(*sparsity, "format", "dense");
        require(format == "dense", "sparsity_config's format " + in_quotes(format) + " is not supported");
    }
    Quantization compressed() const {
        refuse_transforms();
        const auto groups = object_.find("config_groups");
        require(groups != object_.end() && groups->is_object() && groups->size() == 1,
                "config_groups must have one group");
        const Json& of = groups->front();
        require(of.is_object() && of.contains("weights") && of["weights"].is_object(), "config_groups lack weights");
        const Json& weights = of["weights"];
        const std::string format = text(object_, "format", text(of, "format", "").c_str());
        const std::string type = text(weights, "type", "int"), strategy = text(weights, "strategy", "tensor");
        const int bits = whole(weights, "num_bits", 8);
        Quantization found;
        found.bits = bits;
        found.has_zeros = !truth(weights, "symmetric", true);
        if (strategy == "group")
            found.group = group(weights, 128);
        else if (strategy == "block") {
            require(weights.contains("block_structure") && weights["block_structure"] == Json({128, 128}),
                    "block_structure must be [128, 128]");
            found.group = 128;
        } else
            require(strategy == "channel" || strategy == "tensor",
                    "strategy " + in_quotes(strategy) + " is not supported; supported: tensor, channel, group, block");
        if (format == "pack-quantized" && type == "int" && (bits == 4 || bits == 8))
            found.form = QuantizedForm::packed;
        else if ((format == "int-quantized" || format == "naive-quantized") && type == "int" && bits == 8)
            found.form = QuantizedForm::int8;
        else if ((format == "float-quantized" || format == "naive-quantized") && type == "float" && bits == 8)
            found.form = QuantizedForm::float8;
        else
            refuse(
                fmt::format("format '{}' of {}s of {} bits is not supported; supported: pack-quantized (int, 4 and 8 "
                            "bits), int-quantized, float-quantized (8 bits)",
                            format, type, bits));
        require(found.form == QuantizedForm::packed || !found.has_zeros,
                "weights that are not symmetric are supported with pack-quantized alone");
        return found;
    }

    const Json& object_;
    std::string file_;
};

// ---- elements ----

std::uint32_t word_at(const TensorView& tensor, std::int64_t element) {
    std::uint32_t word;
    std::memcpy(&word, tensor.bytes.data() + element * 4, 4);
    return word;
}

int field_of(std::uint32_t word, std::int64_t place, int bits) {
    return static_cast<int>(word >> (place * bits) & ((1u << bits) - 1));
}

// The places of eight outputs in AWQ's words.
constexpr std::array<int, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

float number_at(const TensorView& tensor, std::int64_t element) {
    const std::byte* at = tensor.bytes.data() + element * (tensor.type == DiskType::float32 ? 4 : 2);
    if (tensor.type == DiskType::float32) {
        float value;
        std::memcpy(&value, at, 4);
        return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, at, 2);
    return tensor.type == DiskType::float16 ? from_float16(bits) : from_bfloat16(bits);
}

} // namespace

std::string to_string(const Quantization& quantization) {
    if (quantization.memory_bits > 0)
        return fmt::format("GGUF, {:.1f} bits a weight on average", quantization.memory_bits);
    constexpr std::array<const char*, 8> kNames = {"gptq",   "awq",   "pack-quantized", "int-quantized",
                                                   "float8", "mxfp4", "bitsandbytes",   "GGUF"};
    const std::string groups = quantization.group > 0 ? fmt::format("groups of {}", quantization.group) : "whole rows";
    return fmt::format("{} of {} bits in {}", kNames[static_cast<std::size_t>(quantization.form)], quantization.bits,
                       groups);
}

std::optional<Quantization> read_quantization(const Json& config, const std::string& file) {
    const auto at = config.find("quantization_config");
    if (at == config.end() || at->is_null()) return std::nullopt;
    return QuantizationReader(*at, file).read();
}

const float* table_of(CodeValues values) {
    static constexpr float kFloat4[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    static constexpr float kFloat4Twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    static constexpr float kNormal4[16] = {-1.0f,
                                           -0.6961928009986877f,
                                           -0.5250730514526367f,
                                           -0.39491748809814453f,
                                           -0.28444138169288635f,
                                           -0.18477343022823334f,
                                           -0.09105003625154495f,
                                           0.0f,
                                           0.07958029955625534f,
                                           0.16093020141124725f,
                                           0.24611230194568634f,
                                           0.33791524171829224f,
                                           0.44070982933044434f,
                                           0.5626170039176941f,
                                           0.7229568362236023f,
                                           1.0f};
    constexpr float kMax = 12; // of FP4, before it is scaled to 1
    static constexpr float kBitsAndBytes[16] = {
        0.0f,  0.0625f / kMax,  8 / kMax,  12 / kMax,  4 / kMax,  6 / kMax,  2 / kMax,  3 / kMax,
        -0.0f, -0.0625f / kMax, -8 / kMax, -12 / kMax, -4 / kMax, -6 / kMax, -2 / kMax, -3 / kMax};
    switch (values) {
    case CodeValues::none:
        return nullptr;
    case CodeValues::float4:
        return kFloat4;
    case CodeValues::float4_twice:
        return kFloat4Twice;
    case CodeValues::normal4:
        return kNormal4;
    case CodeValues::bitsandbytes:
        return kBitsAndBytes;
    }
    return nullptr;
}

const std::byte* QuantizedMatrix::block_at(std::int64_t output, std::int64_t input) const {
    return codes.bytes.data() + (output * inputs + input) / of.block->inputs * of.block->bytes;
}

int QuantizedMatrix::less() const {
    return of.block ? of.block->less : 0;
}

GroupFacts QuantizedMatrix::stored_facts(std::int64_t output, std::int64_t group) const {
    if (const BlockType* type = of.block) {
        const std::byte* block = block_at(output, group * type->group);
        const GroupFacts facts = facts_of(*type, block, static_cast<int>(group % (type->inputs / type->group)));
        return {facts.scale * scale_factor, facts.offset * scale_factor};
    }
    GroupFacts facts = {.scale = scale(output, group)};
    if (of.has_zeros) facts.offset = facts.scale * zero(output, group);
    return facts;
}

GroupFacts QuantizedMatrix::facts(std::int64_t output, std::int64_t group) const {
    GroupFacts facts = stored_facts(output, group);
    if (less() != 0) facts.offset -= facts.scale * static_cast<float>(less());
    return facts;
}

float QuantizedMatrix::scale(std::int64_t output, std::int64_t group) const {
    const std::int64_t at = output / scale_outputs * scale_stride + group * group_stride;
    if (of.form == QuantizedForm::mxfp4) return from_exponent(std::to_integer<std::uint8_t>(scales.bytes[at]));
    if (!outer_values.bytes.empty()) {
        const auto byte = static_cast<std::int64_t>(scales.bytes[at]);
        return number_at(outer_values, byte) * number_at(outer_scales, at / kOuterGroup) + outer_offset;
    }
    return number_at(scales, at) * scale_factor;
}

float QuantizedMatrix::zero(std::int64_t output, std::int64_t group) const {
    const int fields = 32 / of.bits, middle = 1 << (of.bits - 1);
    const std::int64_t place = output % fields;
    if (of.form == QuantizedForm::packed) {
        const std::int64_t groups = zeros.shape.back();
        if (zeros.dtype == "I8")
            return static_cast<float>(static_cast<std::int8_t>(zeros.bytes[output * groups + group]));
        return static_cast<float>(field_of(word_at(zeros, output / fields * groups + group), place, of.bits) - middle);
    }
    const std::uint32_t word = word_at(zeros, group * (outputs / fields) + output / fields);
    if (of.form == QuantizedForm::awq) return static_cast<float>(field_of(word, kAwqPlaces[place], of.bits) - middle);
    const int stored = field_of(word, place, of.bits) + (of.zeros_are_one_less ? 1 : 0);
    return static_cast<float>((stored & ((1 << of.bits) - 1)) - middle);
}

void QuantizedMatrix::read_codes(std::int64_t output, std::int64_t input, int count, std::uint8_t* out) const {
    const int fields = 32 / of.bits, middle = 1 << (of.bits - 1);
    const auto put = [&](int i, std::uint32_t word, std::int64_t place) {
        out[i] = static_cast<std::uint8_t>(field_of(word, place, of.bits) - middle);
    };
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(codes.bytes.data());
    switch (of.form) {
    case QuantizedForm::gptq:
        for (int i = 0; i < count; ++i, ++input)
            put(i, word_at(codes, input / fields * outputs + output), input % fields);
        return;
    case QuantizedForm::awq:
        for (int i = 0; i < count; ++i, ++input)
            put(i, word_at(codes, input * (outputs / fields) + output / fields), kAwqPlaces[output % fields]);
        return;
    case QuantizedForm::packed:
        for (int i = 0; i < count; ++i, ++input)
            put(i, word_at(codes, output * codes.shape.back() + input / fields), input % fields);
        return;
    case QuantizedForm::int8:
    case QuantizedForm::float8:
        std::memcpy(out, bytes + output * inputs + input, static_cast<std::size_t>(count));
        return;
    case QuantizedForm::blocks: {
        const BlockType& type = *of.block;
        std::uint8_t group[kMaxBlockGroup];
        while (count > 0) {
            const auto first = static_cast<int>(input % type.group), n = std::min(count, type.group - first);
            const bool is_whole = n == type.group;
            type.codes(block_at(output, input), static_cast<int>(input % type.inputs / type.group),
                       is_whole ? out : group);
            if (!is_whole) std::memcpy(out, group + first, static_cast<std::size_t>(n));
            input += n, count -= n, out += n;
        }
        return;
    }
    case QuantizedForm::mxfp4:
    case QuantizedForm::pairs: {
        const int of_odd = of.form == QuantizedForm::mxfp4 ? 4 : 0; // place of the second of a pair
        for (std::int64_t at = output * inputs + input, i = 0; i < count; ++i, ++at)
            out[i] = static_cast<std::uint8_t>(bytes[at / 2] >> (at % 2 == 1 ? of_odd : 4 - of_odd) & 15);
        return;
    }
    }
}

void QuantizedMatrix::read_values(std::int64_t output, std::int64_t input, int count, float* out) const {
    constexpr int kSpan = 64;
    std::uint8_t stored[kSpan];
    const float* table = table_of(of.values);
    const int more = less();
    std::int64_t group = -1;
    GroupFacts of_group;
    for (int done = 0; done < count; done += kSpan) {
        const int span = std::min(kSpan, count - done);
        read_codes(output, input + done, span, stored);
        for (int i = 0; i < span; ++i) {
            if (const std::int64_t of_input = group_at(input + done + i); of_input != group) {
                group = of_input;
                of_group = stored_facts(output, group);
            }
            const float number = table ? table[stored[i]]
                                 : of.form == QuantizedForm::float8
                                     ? from_float8(stored[i])
                                     : static_cast<float>(static_cast<std::int8_t>(stored[i]) + more);
            out[done + i] = of_group.scale * number - of_group.offset;
        }
    }
}

void read_quantized(const TensorView& tensor, std::int64_t first, std::int64_t stride, int count, float* out) {
    const QuantizedMatrix& matrix = *tensor.quantized;
    while (count > 0) { // by runs within one row
        const std::int64_t input = first % matrix.inputs;
        const int n = stride == 1 ? static_cast<int>(std::min<std::int64_t>(count, matrix.inputs - input)) : 1;
        matrix.read_values(first / matrix.inputs, input, n, out);
        first += n * stride;
        count -= n;
        out += n;
    }
}

// ---- parts ----

namespace {

using Tensors = std::map<std::string, TensorView>;

class MatrixJoiner {
  public:
    MatrixJoiner(const Quantization& of, const std::string& stem, const TensorView& codes, Tensors& tensors)
        : stem_(stem), tensors_(tensors) {
        matrix_.of = of;
        matrix_.codes = codes;
    }

    TensorView joined() {
        take_sizes();
        if (matrix_.of.form == QuantizedForm::mxfp4)
            take_powers();
        else if (matrix_.of.form == QuantizedForm::pairs)
            take_blocks();
        else
            take_scales();
        take_zeros();
        take_order();
        TensorView whole = matrix_.codes;
        whole.name = matrix_.of.form == QuantizedForm::mxfp4 ? stem_ : stem_ + ".weight";
        whole.type = DiskType::quantized;
        whole.is_part = false;
        whole.shape = {matrix_.outputs, matrix_.inputs};
        if (matrix_.of.form == QuantizedForm::mxfp4)
            whole.shape = {matrix_.codes.shape[0], matrix_.codes.shape[1], matrix_.inputs};
        whole.quantized = std::make_shared<const QuantizedMatrix>(std::move(matrix_));
        return whole;
    }

  private:
    [[noreturn]] void refuse(const TensorView& tensor, const std::string& what) const {
        throw BadFile(fmt::format("{}: tensor {}: {}", *tensor.file, in_quotes(tensor.name), what));
    }
    TensorView* find(const std::string& ending) {
        const auto at = tensors_.find(stem_ + ending);
        if (at == tensors_.end()) return nullptr;
        at->second.is_part = true;
        return &at->second;
    }
    TensorView& part(const std::string& ending) {
        if (TensorView* found = find(ending)) return *found;
        refuse(matrix_.codes, "there is no " + in_quotes(stem_ + ending) + " beside it");
    }
    void require(const TensorView& tensor, const char* dtype, const std::vector<std::int64_t>& shape) const {
        if (tensor.dtype != dtype || tensor.shape != shape)
            refuse(tensor, fmt::format("has type {} and shape [{}], but [{}] of {} belong to {}", tensor.dtype,
                                       fmt::join(tensor.shape, ", "), fmt::join(shape, ", "), dtype,
                                       in_quotes(matrix_.codes.name)));
    }

    void take_sizes() {
        TensorView& codes = matrix_.codes;
        constexpr std::int64_t kMax = std::int64_t{1} << 32;
        const std::size_t dims = matrix_.of.form == QuantizedForm::mxfp4 ? 4 : 2;
        if (codes.shape.size() != dims ||
            std::ranges::any_of(codes.shape, [](std::int64_t dim) { return dim <= 0 || dim > kMax; }))
            refuse(codes, fmt::format("must have {} dimensions of usual sizes", dims));
        const std::int64_t fields = 32 / matrix_.of.bits, rows = codes.shape[0], columns = codes.shape[1];
        switch (matrix_.of.form) {
        case QuantizedForm::gptq:
            matrix_.outputs = columns, matrix_.inputs = rows * fields;
            require(codes, "I32", codes.shape);
            break;
        case QuantizedForm::awq:
            matrix_.outputs = columns * fields, matrix_.inputs = rows;
            require(codes, "I32", codes.shape);
            break;
        case QuantizedForm::packed: {
            const TensorView& shape = part(".weight_shape");
            if ((shape.dtype != "I64" && shape.dtype != "I32") || shape.shape != std::vector<std::int64_t>{2})
                refuse(shape, "must be two whole numbers");
            std::int64_t sizes[2] = {};
            for (std::size_t i = 0; i < 2; ++i) // little-endian, and small
                std::memcpy(&sizes[i], shape.bytes.data() + i * shape.bytes.size() / 2, shape.bytes.size() / 2);
            matrix_.outputs = rows, matrix_.inputs = sizes[1];
            if (sizes[0] != rows || sizes[1] <= 0 || sizes[1] > columns * fields || sizes[1] <= (columns - 1) * fields)
                refuse(shape, "does not fit " + in_quotes(codes.name));
            require(codes, "I32", codes.shape);
            break;
        }
        case QuantizedForm::int8:
        case QuantizedForm::float8:
            matrix_.outputs = rows, matrix_.inputs = columns;
            break;
        case QuantizedForm::mxfp4:
            require(codes, "U8", {rows, columns, codes.shape[2], 16});
            matrix_.outputs = rows * columns, matrix_.inputs = codes.shape[2] * matrix_.of.group;
            break;
        case QuantizedForm::pairs:
            take_state();
            break;
        case QuantizedForm::blocks: // whole tensors of GGUF files
            refuse(codes, "is in blocks");
        }
        if (matrix_.of.form == QuantizedForm::gptq && matrix_.outputs % fields != 0)
            refuse(codes, fmt::format("must have a multiple of {} outputs", fields));
    }
    // Reads bitsandbytes' facts about a matrix, which are JSON stored as bytes.
    void take_state() {
        const char* type = matrix_.of.values == CodeValues::normal4 ? "nf4" : "fp4";
        const TensorView& stored = part(std::string(".weight.quant_state.bitsandbytes__") + type);
        const std::string_view text(reinterpret_cast<const char*>(stored.bytes.data()), stored.bytes.size());
        const Json state = parse_json(text, *stored.file + ": tensor " + in_quotes(stored.name));
        const auto number = [&](const char* name) {
            const auto at = state.find(name);
            return at != state.end() && at->is_number() ? at->get<double>() : -1;
        };
        const auto shape = state.is_object() ? state.find("shape") : state.end();
        if (shape == state.end() || !shape->is_array() || shape->size() != 2 || !(*shape)[0].is_number_unsigned() ||
            !(*shape)[1].is_number_unsigned())
            refuse(stored, "is not an object with the matrix's shape");
        const auto outputs = (*shape)[0].get<std::uint64_t>(), inputs = (*shape)[1].get<std::uint64_t>();
        const std::uint64_t n = 2 * matrix_.codes.bytes.size();
        if (inputs == 0 || n % inputs != 0 || n / inputs != outputs)
            refuse(stored, "names a shape that does not fit " + in_quotes(matrix_.codes.name));
        if (number("blocksize") != matrix_.of.group || inputs % static_cast<std::uint64_t>(matrix_.of.group) != 0)
            refuse(stored, fmt::format("has {} inputs in blocks of {}; supported: whole blocks of {}", inputs,
                                       number("blocksize"), matrix_.of.group));
        if (find(".weight.nested_absmax")) {
            if (number("nested_blocksize") != QuantizedMatrix::kOuterGroup)
                refuse(stored, fmt::format("has a nested_blocksize other than {}", QuantizedMatrix::kOuterGroup));
            const auto offset = state.find("nested_offset");
            if (offset == state.end() || !offset->is_number()) refuse(stored, "has no nested_offset");
            matrix_.outer_offset = offset->get<float>();
        }
        require(matrix_.codes, "U8", matrix_.codes.shape);
        matrix_.outputs = static_cast<std::int64_t>(outputs);
        matrix_.inputs = static_cast<std::int64_t>(inputs);
    }
    std::int64_t n_groups() const {
        return matrix_.of.group > 0 ? (matrix_.inputs + matrix_.of.group - 1) / matrix_.of.group : 1;
    }
    bool inputs_first() const {
        return matrix_.of.form == QuantizedForm::gptq || matrix_.of.form == QuantizedForm::awq;
    }

    void take_powers() {
        const TensorView& scales = matrix_.scales = part("_scales");
        require(scales, "U8", {matrix_.codes.shape[0], matrix_.codes.shape[1], n_groups()});
        matrix_.scale_stride = n_groups(), matrix_.group_stride = 1;
    }
    // Each block has a scale: a number, or a byte with a scale of its own.
    void take_blocks() {
        const TensorView& table = part(".weight.quant_map");
        require(table, "F32", {16});
        for (std::int64_t i = 0; i < 16; ++i)
            if (!(std::abs(number_at(table, i) - table_of(matrix_.of.values)[i]) <= 1e-6f))
                refuse(table, "holds other values than those of " + to_string(matrix_.of));
        const TensorView& scales = matrix_.scales = part(".weight.absmax");
        const std::int64_t blocks = matrix_.outputs * n_groups();
        matrix_.scale_stride = n_groups(), matrix_.group_stride = 1;
        const TensorView* outer = find(".weight.nested_absmax");
        require(scales, outer ? "U8" : "F32", {blocks});
        if (!outer) return;
        matrix_.outer_scales = *outer;
        matrix_.outer_values = part(".weight.nested_quant_map");
        require(*outer, "F32", {(blocks + QuantizedMatrix::kOuterGroup - 1) / QuantizedMatrix::kOuterGroup});
        require(matrix_.outer_values, "F32", {256});
    }
    void take_scales() {
        TensorView* found = inputs_first() ? &part(".scales") : find(".weight_scale");
        if (!found) found = find(".SCB"); // bitsandbytes: the largest magnitude of a row
        if (found && found->name.ends_with(".SCB")) {
            matrix_.scale_factor = 1.0f / 127;
            find(".weight_format");
        }
        if (!found) found = &part(".weight_scale_inv");
        const TensorView& scales = matrix_.scales = *found;
        if (scales.type != DiskType::float32 && scales.type != DiskType::float16 && scales.type != DiskType::bfloat16)
            refuse(scales, "has type " + scales.dtype + "; scales must be F32, F16 or BF16");
        const std::int64_t groups = n_groups(), outputs = matrix_.outputs;
        const std::vector<std::int64_t>& shape = scales.shape;
        std::int64_t count = 1;
        for (const std::int64_t dim : shape)
            count *= dim;
        if (inputs_first()) {
            require(scales, scales.dtype.c_str(), {groups, outputs});
            matrix_.scale_stride = 1, matrix_.group_stride = outputs;
        } else if (count == 1 && matrix_.of.group == 0) {
            matrix_.scale_stride = 0;
        } else if (count == outputs && matrix_.of.group == 0) {
            matrix_.scale_stride = 1;
        } else {
            if (matrix_.of.form == QuantizedForm::float8 && matrix_.of.group == 128) matrix_.scale_outputs = 128;
            const std::int64_t rows = (outputs + matrix_.scale_outputs - 1) / matrix_.scale_outputs;
            require(scales, scales.dtype.c_str(), {rows, groups});
            matrix_.scale_stride = groups, matrix_.group_stride = 1;
        }
    }
    void take_zeros() {
        const std::int64_t fields = 32 / matrix_.of.bits, groups = n_groups();
        if (inputs_first()) {
            if (!matrix_.of.has_zeros) {
                find(".qzeros");
                return;
            }
            require(part(".qzeros"), "I32", {groups, matrix_.outputs / fields});
            matrix_.zeros = part(".qzeros");
        } else if (matrix_.of.has_zeros) {
            TensorView& zeros = part(".weight_zero_point");
            if (zeros.dtype == "I8")
                require(zeros, "I8", {matrix_.outputs, groups});
            else
                require(zeros, "I32", {(matrix_.outputs + fields - 1) / fields, groups});
            matrix_.zeros = zeros;
        } else {
            find(".weight_zero_point");
        }
        for (const char* other : {".input_scale", ".input_zero_point", ".activation_scale"})
            find(other); // for activations, which are not rounded here
    }
    void take_order() {
        const TensorView* found = matrix_.of.form == QuantizedForm::gptq ? find(".g_idx") : find(".weight_g_idx");
        if (!found || found->shape.empty() || found->shape[0] == 0) return;
        require(*found, "I32", {matrix_.inputs});
        std::vector<std::int32_t> groups(static_cast<std::size_t>(matrix_.inputs));
        std::memcpy(groups.data(), found->bytes.data(), groups.size() * 4);
        if (std::ranges::any_of(groups, [&](std::int32_t group) { return group < 0 || group >= n_groups(); }))
            refuse(*found, "names a group that is not there");
        std::int64_t input = 0;
        const bool is_plain = matrix_.of.group == 0 || std::ranges::all_of(groups, [&](std::int32_t group) {
                                  return group == input++ / matrix_.of.group;
                              });
        if (!is_plain) matrix_.group_of_input = std::move(groups);
    }

    const std::string& stem_;
    Tensors& tensors_;
    QuantizedMatrix matrix_;
};

// The ending of a codes' name, and the dtype that marks such a tensor as codes; nullptr: any dtype.
struct CodesName {
    std::string_view ending;
    const char* dtype = nullptr;
};
CodesName codes_name(QuantizedForm form) {
    switch (form) {
    case QuantizedForm::gptq:
    case QuantizedForm::awq:
        return {".qweight"};
    case QuantizedForm::packed:
        return {".weight_packed"};
    case QuantizedForm::int8:
        return {".weight", "I8"};
    case QuantizedForm::float8:
        return {".weight", "F8_E4M3"};
    case QuantizedForm::mxfp4:
        return {"_blocks"};
    case QuantizedForm::pairs:
        return {".weight", "U8"};
    default:
        throw std::logic_error("such matrices are in one part");
    }
}

} // namespace

void join_quantized(const Quantization& quantization, Tensors& tensors) {
    const auto [ending, dtype] = codes_name(quantization.form);
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors)
        if (name.ends_with(ending) && (!dtype || tensor.dtype == dtype)) names.push_back(name);
    for (const std::string& name : names) {
        const std::string stem = name.substr(0, name.size() - ending.size());
        const TensorView codes = tensors.at(name);
        TensorView whole = MatrixJoiner(quantization, stem, codes, tensors).joined();
        tensors.erase(name);
        // Some programs write a bias of zeros for every matrix.
        const auto bias = tensors.find(stem + ".bias");
        if (bias != tensors.end())
            bias->second.is_part =
                std::ranges::all_of(bias->second.bytes, [](std::byte each) { return each == std::byte{}; });
        tensors.insert_or_assign(whole.name, std::move(whole));
    }
}

} // namespace entrodraft::model
