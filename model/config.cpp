#include "entrodraft/model/config.h"

#include "entrodraft/model/bad_file.h"
#include "entrodraft/model/json_file.h"

#include <limits>
#include <stdexcept>
#include <utility>

namespace entrodraft::model {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxConfigBytes = 16u << 20;
constexpr double kMostParameters = 1e14;
constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr std::int64_t kMostSize = std::int64_t{1} << 30; // sizes are padded and added up as ints

// The value as a message may show it: strings in quotes, everything else as JSON.
std::string shown(const Json& value) {
    if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
    const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

// The fields of one JSON object, each checked when it is asked for. A null counts as missing.
class Fields {
  public:
    Fields(const Json& object, std::string file) : object_(object), file_(std::move(file)) {}

    [[noreturn]] void refuse(const std::string& reason) const { throw BadFile(file_ + ": " + reason); }

    const std::string& file() const { return file_; }
    const Json& object() const { return object_; }

    bool stands(const char* name) const { return object_.contains(name); }
    const Json* find(const char* name) const {
        const auto at = object_.find(name);
        return at == object_.end() || at->is_null() ? nullptr : &*at;
    }
    const Json& required(const char* name) const {
        const Json* value = find(name);
        if (value == nullptr) refuse("field '" + std::string(name) + "' is missing");
        return *value;
    }
    int size(const char* name) const { return to_size(name, required(name)); }
    int size(const char* name, int otherwise) const {
        const Json* value = find(name);
        return value == nullptr ? otherwise : to_size(name, *value);
    }
    double positive(const char* name, double otherwise) const {
        const Json* value = find(name);
        if (value == nullptr) return otherwise;
        const double number = value->is_number() ? value->get<double>() : 0;
        if (!(number > 0)) refuse("field '" + std::string(name) + "' is " + shown(*value) + ", not a number above 0");
        return number;
    }
    bool boolean(const char* name, bool otherwise) const {
        const Json* value = find(name);
        if (value == nullptr) return otherwise;
        if (!value->is_boolean()) {
            refuse("field '" + std::string(name) + "' is " + shown(*value) + ", not true or false");
        }
        return value->get<bool>();
    }
    std::string string(const char* name, const std::string& otherwise) const {
        const Json* value = find(name);
        if (value == nullptr) return otherwise;
        if (!value->is_string()) refuse("field '" + std::string(name) + "' is " + shown(*value) + ", not a string");
        return value->get<std::string>();
    }

  private:
    int to_size(const char* name, const Json& value) const {
        if (!value.is_number_unsigned() || value.get<std::uint64_t>() == 0 ||
            value.get<std::uint64_t>() > static_cast<std::uint64_t>(kMostSize)) {
            refuse("field '" + std::string(name) + "' is " + shown(value) + ", not a whole number from 1 to " +
                   std::to_string(kMostSize));
        }
        return value.get<int>();
    }

    const Json& object_;
    std::string file_;
};

// Fields that change the arithmetic in a way that is not built. Each may stand at its neutral value (null and a
// missing field are neutral everywhere); any other is refused by name.
enum class Neutral { null_only, false_, zero, one };
struct Unsupported {
    const char* field;
    Neutral neutral;
};
constexpr Unsupported kUnsupported[] = {
    {"attention_bias", Neutral::false_},
    {"mlp_bias", Neutral::false_},
    {"qkv_bias", Neutral::false_},
    {"use_bias", Neutral::false_},
    {"use_qk_norm", Neutral::false_},
    {"qk_layernorm", Neutral::false_},
    {"sliding_window", Neutral::null_only},
    {"use_sliding_window", Neutral::false_},
    {"attention_chunk_size", Neutral::null_only},
    {"use_bidirectional_attention", Neutral::false_},
    {"add_cross_attention", Neutral::false_},
    {"is_encoder_decoder", Neutral::false_},
    {"alibi", Neutral::false_},
    {"partial_rotary_factor", Neutral::one},
    {"rotary_pct", Neutral::one},
    {"rope_interleaved", Neutral::false_},
    {"pretraining_tp", Neutral::one},
    {"quantization_config", Neutral::null_only},
    {"compression_config", Neutral::null_only},
    {"logit_scale", Neutral::one},
    {"logits_scaling", Neutral::one},
    {"final_logit_softcapping", Neutral::null_only},
    {"attn_logit_softcapping", Neutral::null_only},
    {"query_pre_attn_scalar", Neutral::null_only},
    {"attention_multiplier", Neutral::null_only},
    {"embedding_multiplier", Neutral::one},
    {"residual_multiplier", Neutral::one},
    {"scale_emb", Neutral::one},
    {"scale_depth", Neutral::null_only},
    {"dim_model_base", Neutral::null_only},
    {"num_local_experts", Neutral::zero},
    {"num_experts", Neutral::zero},
    {"no_rope_layers", Neutral::null_only},
};

bool is_neutral(const Json& value, Neutral neutral) {
    switch (neutral) {
    case Neutral::null_only:
        return false;
    case Neutral::false_:
        return value.is_boolean() && !value.get<bool>();
    case Neutral::zero:
        return value.is_number() && value.get<double>() == 0;
    case Neutral::one:
        return value.is_number() && value.get<double>() == 1;
    }
    return false;
}

void refuse_unsupported(const Fields& fields) {
    for (const Unsupported& each : kUnsupported) {
        const Json* value = fields.find(each.field);
        if (value == nullptr || is_neutral(*value, each.neutral)) continue;
        fields.refuse("field '" + std::string(each.field) + "' is " + shown(*value) + ", which is not supported yet");
    }
    if (const Json* types = fields.find("layer_types")) {
        bool all_full = types->is_array();
        if (all_full) {
            for (const Json& type : *types)
                all_full = all_full && type == "full_attention";
        }
        if (!all_full) fields.refuse("field 'layer_types' has layers other than 'full_attention': not supported yet");
    }
}

// One of the two objects that say how positions are rotated; both spellings of the type are read.
void check_rope_object(const Fields& fields, const char* name, const Json& value) {
    if (!value.is_object()) fields.refuse("field '" + std::string(name) + "' is not an object");
    const Fields rope(value, fields.file() + ": " + name);
    const std::string type = rope.string("rope_type", rope.string("type", "default"));
    if (type != "default") rope.refuse("rope type " + in_quotes(type) + " is not supported yet");
    for (const auto& [key, setting] : value.items()) {
        const bool known = key == "rope_type" || key == "type" || key == "rope_theta" ||
                           (key == "partial_rotary_factor" && (setting.is_null() || is_neutral(setting, Neutral::one)));
        if (!known && !setting.is_null()) rope.refuse("field " + in_quotes(key) + " is not supported yet");
    }
}

// The base of the rotary angles: rope_theta beside the rest (old) or within rope_parameters (new).
double read_rope_theta(const Fields& fields) {
    constexpr double kDefaultTheta = 10000.0; // transformers' LlamaConfig
    double theta = fields.positive("rope_theta", 0);
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
        const Json* object = fields.find(name);
        if (object == nullptr) continue;
        check_rope_object(fields, name, *object);
        const double inner = Fields(*object, fields.file() + ": " + name).positive("rope_theta", 0);
        if (inner > 0 && theta > 0 && inner != theta) {
            fields.refuse("'rope_theta' has two values, " + std::to_string(theta) + " and " + std::to_string(inner) +
                          " in '" + name + "'; keep one");
        }
        if (inner > 0) theta = inner;
    }
    return theta > 0 ? theta : kDefaultTheta;
}

std::int64_t to_token_id(const Fields& fields, const char* name, const Json& value) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxInt)) {
        fields.refuse("field '" + std::string(name) + "' holds " + shown(value) + ", which is no token id");
    }
    return value.get<std::int64_t>();
}

std::vector<std::int64_t> to_token_ids(const Fields& fields, const char* name, const Json& value) {
    if (!value.is_array()) return {to_token_id(fields, name, value)};
    std::vector<std::int64_t> ids;
    for (const Json& each : value)
        ids.push_back(to_token_id(fields, name, each));
    return ids;
}

// In config.json a null means none, a missing field the value that transformers gives it; an end-of-text id in
// generation_config.json takes its place.
void read_end_of_text(const std::filesystem::path& directory, const Fields& fields, ModelConfig& config) {
    constexpr std::int64_t kDefaultBos = 1, kDefaultEos = 2; // transformers' LlamaConfig
    if (const Json* bos = fields.find("bos_token_id")) {
        config.bos_token_id = to_token_id(fields, "bos_token_id", *bos);
    } else if (!fields.stands("bos_token_id")) {
        config.bos_token_id = kDefaultBos;
    }
    if (const Json* eos = fields.find("eos_token_id")) {
        config.eos_token_ids = to_token_ids(fields, "eos_token_id", *eos);
    } else if (!fields.stands("eos_token_id")) {
        config.eos_token_ids = {kDefaultEos};
    }

    const auto path = directory / "generation_config.json";
    if (!std::filesystem::exists(path)) return;
    const Json generation = read_json_file(path, kMaxConfigBytes);
    if (!generation.is_object()) throw BadFile(path.string() + ": not a JSON object");
    const Fields more(generation, path.string());
    if (const Json* eos = more.find("eos_token_id")) config.eos_token_ids = to_token_ids(more, "eos_token_id", *eos);
}

WeightType read_weight_type(const Fields& fields) {
    const std::string name = fields.string("dtype", fields.string("torch_dtype", "float32"));
    for (const WeightType type : {WeightType::float32, WeightType::bfloat16, WeightType::float16}) {
        if (name == to_string(type)) return type;
    }
    fields.refuse("dtype " + in_quotes(name) + " is not supported; supported: float32, bfloat16, float16");
}

void read_shapes(const Fields& fields, ModelConfig& config) {
    config.vocab_size = fields.size("vocab_size");
    config.hidden_size = fields.size("hidden_size");
    config.intermediate_size = fields.size("intermediate_size");
    config.n_layers = fields.size("num_hidden_layers");
    config.n_heads = fields.size("num_attention_heads");
    config.n_kv_heads = fields.size("num_key_value_heads", config.n_heads);
    config.max_positions = fields.size("max_position_embeddings");
    if (config.n_heads % config.n_kv_heads != 0) {
        fields.refuse("'num_attention_heads' (" + std::to_string(config.n_heads) +
                      ") is not a multiple of 'num_key_value_heads' (" + std::to_string(config.n_kv_heads) + ")");
    }
    if (fields.find("head_dim") == nullptr && config.hidden_size % config.n_heads != 0) {
        fields.refuse("'hidden_size' (" + std::to_string(config.hidden_size) +
                      ") is not a multiple of 'num_attention_heads' (" + std::to_string(config.n_heads) +
                      ") and 'head_dim' is missing");
    }
    config.head_dim = fields.size("head_dim", config.hidden_size / config.n_heads);
    if (config.head_dim % 2 != 0) {
        fields.refuse("'head_dim' is " + std::to_string(config.head_dim) + "; rotary positions need an even one");
    }
    // Queries, keys and values of a token lie in one row.
    if ((config.n_heads + std::int64_t{2} * config.n_kv_heads) * config.head_dim > kMostSize) {
        fields.refuse("'num_attention_heads' and twice 'num_key_value_heads', times 'head_dim', is more than " +
                      std::to_string(kMostSize));
    }
}

// In floating point, where nothing overflows: below the limit the whole-number count is exact.
void refuse_absurd_size(const Fields& fields, const ModelConfig& config) {
    const double hidden = config.hidden_size;
    const double heads = static_cast<double>(config.n_heads) * config.head_dim;
    const double layer = hidden * (4 * heads + 3.0 * config.intermediate_size);
    if (config.n_layers * layer + 2.0 * config.vocab_size * hidden > kMostParameters) {
        fields.refuse("the sizes make a model of more than 1e14 parameters");
    }
}

void check_family(const Fields& fields) {
    const Json& type = fields.required("model_type");
    if (type != "llama") fields.refuse("model type " + shown(type) + " is not supported; supported: llama");
    const Json* architectures = fields.find("architectures");
    if (architectures == nullptr) return;
    bool found = false;
    if (architectures->is_array()) {
        for (const Json& each : *architectures)
            found = found || each == "LlamaForCausalLM";
    }
    if (!found) fields.refuse("field 'architectures' is " + shown(*architectures) + "; supported: LlamaForCausalLM");
}

} // namespace

std::string to_string(WeightType type) {
    switch (type) {
    case WeightType::float32:
        return "float32";
    case WeightType::bfloat16:
        return "bfloat16";
    case WeightType::float16:
        return "float16";
    case WeightType::int8:
        return "int8";
    }
    throw std::invalid_argument("to_string: no such weight type");
}

std::size_t bytes_of(WeightType type) {
    switch (type) {
    case WeightType::float32:
        return 4;
    case WeightType::bfloat16:
    case WeightType::float16:
        return 2;
    case WeightType::int8:
        return 1;
    }
    throw std::invalid_argument("bytes_of: no such weight type");
}

ModelConfig read_config(const std::filesystem::path& directory) {
    const auto path = directory / "config.json";
    const Json json = read_json_file(path, kMaxConfigBytes);
    if (!json.is_object()) throw BadFile(path.string() + ": not a JSON object");
    const Fields fields(json, path.string());
    check_family(fields);
    refuse_unsupported(fields);

    ModelConfig config;
    config.family = Family::llama;
    read_shapes(fields, config);
    refuse_absurd_size(fields, config);
    const double epsilon = fields.positive("rms_norm_eps", 1e-6);
    if (epsilon >= 1) fields.refuse("field 'rms_norm_eps' is not below 1");
    config.norm_epsilon = static_cast<float>(epsilon);
    config.rope_theta = read_rope_theta(fields);
    const std::string activation = fields.string("hidden_act", "silu");
    if (activation != "silu") {
        fields.refuse("activation " + in_quotes(activation) + " is not supported for llama; supported: silu");
    }
    config.activation = Activation::silu;
    config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
    config.stored_type = read_weight_type(fields);
    read_end_of_text(directory, fields, config);
    return config;
}

std::int64_t parameter_count(const ModelConfig& config) {
    const std::int64_t hidden = config.hidden_size;
    const std::int64_t heads = static_cast<std::int64_t>(config.n_heads) + config.n_kv_heads;
    const std::int64_t attention = 2 * hidden * heads * config.head_dim;
    const std::int64_t mlp = 3 * hidden * config.intermediate_size;
    const std::int64_t embedding = hidden * config.vocab_size;
    return config.n_layers * (attention + mlp + 2 * hidden) + hidden + (config.tied_embeddings ? 1 : 2) * embedding;
}

} // namespace entrodraft::model
