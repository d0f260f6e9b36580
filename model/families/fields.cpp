#include "model/families/fields.h"

#include "model/files/bad_file.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <map>

namespace entrodraft::model {

using Json = nlohmann::json;

std::string shown(const Json& value) {
    if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
    const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

namespace {

std::string named(const char* name) {
    return "field '" + std::string(name) + "'";
}

std::int64_t to_token_id(const Fields& fields, const char* name, const Json& value) {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMax)
        fields.refuse(named(name) + " holds " + shown(value) + ", which is not a token id");
    return value.get<std::int64_t>();
}

} // namespace

void Fields::refuse(const std::string& reason) const {
    throw BadFile(file_ + ": " + reason);
}

const Json* Fields::find(const char* name) const {
    read_.insert(name);
    const auto at = object_.find(name);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
}

const Json& Fields::required(const char* name) const {
    const Json* value = find(name);
    if (value == nullptr) refuse(named(name) + " is missing");
    return *value;
}

int Fields::to_size(const char* name, const Json& value) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() == 0 ||
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxSize)) {
        refuse(fmt::format("{} is {}, not a whole number from 1 to {}", named(name), shown(value), kMaxSize));
    }
    return value.get<int>();
}

int Fields::size(const char* name) const {
    return to_size(name, required(name));
}

int Fields::size(const char* name, int default_value) const {
    const Json* value = find(name);
    return value == nullptr ? default_value : to_size(name, *value);
}

int Fields::count(const char* name, int default_value) const {
    const Json* value = find(name);
    return value != nullptr && *value == 0 ? 0 : size(name, default_value);
}

double Fields::positive(const char* name, double default_value) const {
    const Json* value = find(name);
    if (value == nullptr) return default_value;
    const double number = value->is_number() ? value->get<double>() : 0;
    if (!(number > 0)) refuse(named(name) + " is " + shown(*value) + ", not a number above 0");
    return number;
}

bool Fields::boolean(const char* name, bool default_value) const {
    const Json* value = find(name);
    if (value == nullptr) return default_value;
    if (!value->is_boolean()) refuse(named(name) + " is " + shown(*value) + ", not true or false");
    return value->get<bool>();
}

std::string Fields::string(const char* name, const std::string& default_value) const {
    const Json* value = find(name);
    if (value == nullptr) return default_value;
    if (!value->is_string()) refuse(named(name) + " is " + shown(*value) + ", not a string");
    return value->get<std::string>();
}

std::vector<std::int64_t> Fields::token_ids(const char* name) const {
    const Json& value = required(name);
    if (!value.is_array()) return {to_token_id(*this, name, value)};
    std::vector<std::int64_t> ids;
    for (const Json& each : value)
        ids.push_back(to_token_id(*this, name, each));
    return ids;
}

Activation read_activation(const Fields& fields, const char* name, const std::string& default_value) {
    static const std::map<std::string, Activation> known = {
        {"silu", Activation::silu},           {"swish", Activation::silu},
        {"gelu", Activation::gelu},           {"gelu_new", Activation::gelu_tanh},
        {"gelu_fast", Activation::gelu_tanh}, {"gelu_pytorch_tanh", Activation::gelu_tanh},
        {"relu", Activation::relu},
    };
    const std::string activation = fields.string(name, default_value);
    const auto at = known.find(activation);
    if (at == known.end()) {
        fields.refuse("activation " + in_quotes(activation) + " in '" + name +
                      "' is not supported; supported: silu, gelu, gelu_new, gelu_pytorch_tanh, relu");
    }
    return at->second;
}

float read_epsilon(const Fields& fields, const char* name, double default_value) {
    const double epsilon = fields.positive(name, default_value);
    if (epsilon >= 1) fields.refuse(named(name) + " is not below 1");
    return static_cast<float>(epsilon);
}

void divide_into_heads(const Fields& fields, ModelConfig& config, const char* hidden, const char* heads) {
    if (config.hidden_size % config.n_heads != 0) {
        fields.refuse(fmt::format("'{}' ({}) is not a multiple of '{}' ({}) and 'head_dim' is missing", hidden,
                                  config.hidden_size, heads, config.n_heads));
    }
    config.head_dim = config.hidden_size / config.n_heads;
}

void read_common_shapes(const Fields& fields, ModelConfig& config, bool has_mlp) {
    config.vocab_size = fields.size("vocab_size");
    config.hidden_size = fields.size("hidden_size");
    if (has_mlp) config.intermediate_size = fields.size("intermediate_size");
    config.n_layers = fields.size("num_hidden_layers");
    config.n_heads = fields.size("num_attention_heads");
    config.n_kv_heads = fields.size("num_key_value_heads", config.n_heads);
    config.max_positions = fields.size("max_position_embeddings");
    if (config.n_heads % config.n_kv_heads != 0) {
        fields.refuse(fmt::format("'num_attention_heads' ({}) is not a multiple of 'num_key_value_heads' ({})",
                                  config.n_heads, config.n_kv_heads));
    }
    if (fields.find("head_dim") == nullptr)
        divide_into_heads(fields, config, "hidden_size", "num_attention_heads");
    else
        config.head_dim = fields.size("head_dim");
}

void read_decoder_start(const Fields& fields, ModelConfig& config) {
    std::vector<std::int64_t>& ids = config.decoder_start_ids;
    if (fields.find("decoder_start_token_id") != nullptr) {
        const std::int64_t start = fields.token_ids("decoder_start_token_id").front();
        ids.empty() ? ids.push_back(start) : void(ids.front() = start);
    }
    if (fields.find("forced_bos_token_id") != nullptr && !ids.empty()) {
        ids.resize(1);
        ids.push_back(fields.token_ids("forced_bos_token_id").front());
    }
}

void read_token_ids(const Fields& fields, std::int64_t default_bos, std::int64_t default_eos, ModelConfig& config) {
    if (const Json* bos = fields.find("bos_token_id"))
        config.bos_token_id = to_token_id(fields, "bos_token_id", *bos);
    else if (!fields.has("bos_token_id"))
        config.bos_token_id = default_bos;
    if (fields.find("eos_token_id") != nullptr)
        config.eos_token_ids = fields.token_ids("eos_token_id");
    else if (!fields.has("eos_token_id") && default_eos >= 0)
        config.eos_token_ids = {default_eos};
}

void read_windows(const Fields& fields, const std::function<bool(int layer)>& slides, int window, ModelConfig& config) {
    const Json* types = fields.find("layer_types");
    if (types != nullptr && (!types->is_array() || types->size() != static_cast<std::size_t>(config.n_layers)))
        fields.refuse(fmt::format("field 'layer_types' is not a list of the {} layers' types", config.n_layers));
    if (window == 0 && types == nullptr) return;
    bool any = false;
    std::vector<int> windows;
    for (int layer = 0; layer < config.n_layers; ++layer) {
        bool is_sliding = slides(layer);
        if (types != nullptr) {
            const Json& type = (*types)[layer];
            if (type != "full_attention" && type != "sliding_attention")
                fields.refuse("field 'layer_types' holds " + shown(type) +
                              "; supported: full_attention, sliding_attention");
            is_sliding = type == "sliding_attention";
            if (is_sliding && window == 0)
                fields.refuse(
                    "field 'layer_types' has sliding_attention, but 'sliding_window' is missing or not in use");
        }
        windows.push_back(is_sliding ? window : 0);
        any = any || is_sliding;
    }
    if (any) config.windows = std::move(windows);
}

namespace {

RopeScaling to_scaling(const Fields& rope, const std::string& type) {
    if (type == "default") return RopeScaling::none;
    if (type == "linear") return RopeScaling::linear;
    if (type == "dynamic") return RopeScaling::dynamic;
    if (type == "llama3") return RopeScaling::llama3;
    if (type == "yarn") return RopeScaling::yarn;
    if (type == "longrope" || type == "su") return RopeScaling::by_pair;
    rope.refuse("rope type " + in_quotes(type) +
                " is not supported; supported: default, linear, dynamic, llama3, yarn, longrope");
}

// For yarn: returns the factor by which longer contexts sharpen attention (Peng et al. 2023, section 3.4).
double magnitude(double factor, double scale) {
    return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

void read_yarn(const Fields& rope, Rope& to) {
    to.beta_fast = rope.positive("beta_fast", 32);
    to.beta_slow = rope.positive("beta_slow", 1);
    to.truncate = rope.boolean("truncate", true);
    const double scale = rope.positive("mscale", 0), scale_all = rope.positive("mscale_all_dim", 0);
    const double inferred = scale > 0 && scale_all > 0 ? magnitude(to.factor, scale) / magnitude(to.factor, scale_all)
                                                       : magnitude(to.factor, 1);
    to.attention_factor = rope.positive("attention_factor", inferred);
    if (scale_all > 0) to.score_factor = std::pow(magnitude(to.factor, scale_all), 2);
}

std::vector<float> read_factors(const Fields& rope, const char* name) {
    const Json& list = rope.required(name);
    if (!list.is_array()) rope.refuse(named(name) + " is not a list");
    std::vector<float> factors;
    for (const Json& factor : list) {
        if (!factor.is_number() || !(factor.get<double>() > 0)) rope.refuse(named(name) + " holds " + shown(factor));
        factors.push_back(factor.get<float>());
    }
    return factors;
}

void read_longrope(const Fields& rope, Rope& to) {
    if (to.original_positions <= 1) rope.refuse("field 'original_max_position_embeddings' is not above 1");
    const double inferred = to.factor <= 1 ? 1 : std::sqrt(1 + std::log(to.factor) / std::log(to.original_positions));
    to.attention_factor = rope.positive("attention_factor", inferred);
    to.pair_factors = read_factors(rope, "short_factor");
    to.long_pair_factors = read_factors(rope, "long_factor");
}

// Reads one of the two objects that describe the rotation; both spellings of the type are read.
void read_rope_object(const Fields& rope, double max_positions, double outer_original, Rope& to) {
    to.scaling = to_scaling(rope, rope.string("rope_type", rope.string("type", "default")));
    if (to.scaling != RopeScaling::none) {
        const bool may_infer = to.scaling == RopeScaling::yarn || to.scaling == RopeScaling::by_pair;
        to.original_positions = rope.positive("original_max_position_embeddings", max_positions);
        if (outer_original > 0 && to.scaling != RopeScaling::dynamic) to.original_positions = outer_original;
        if (to.scaling == RopeScaling::dynamic) to.original_positions = max_positions;
        if (!may_infer) rope.required("factor");
        to.factor = rope.positive("factor", max_positions / to.original_positions);
        if (to.factor < 1) rope.refuse("field 'factor' is below 1");
    }
    if (to.scaling == RopeScaling::llama3) {
        rope.required("low_freq_factor");
        rope.required("high_freq_factor");
        to.low_frequency_factor = rope.positive("low_freq_factor", 1);
        to.high_frequency_factor = rope.positive("high_freq_factor", 4);
        if (to.high_frequency_factor <= to.low_frequency_factor)
            rope.refuse("field 'high_freq_factor' is not above 'low_freq_factor'");
    }
    if (to.scaling == RopeScaling::yarn) read_yarn(rope, to);
    if (to.scaling == RopeScaling::by_pair) read_longrope(rope, to);
}

// In transformers, rope_scaling replaces rope_parameters where both are there; here the two must agree. Their share
// replaces the one outside them. Their theta must equal the one outside them, if there is one.
Rope read_rope_objects(const Fields& fields, const RopeNames& names, const ModelConfig& config, double& theta,
                       double& share) {
    Rope to;
    const double outer_original = fields.positive("original_max_position_embeddings", 0);
    bool is_set = false;
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
        const Json* object = fields.find(name);
        if (object == nullptr) continue;
        if (!object->is_object()) fields.refuse(named(name) + " is not an object");
        const Fields rope(*object, fields.file() + ": " + name);
        Rope read;
        read_rope_object(rope, config.max_positions, outer_original, read);
        const double inner = rope.positive("rope_theta", 0), inner_share = rope.positive("partial_rotary_factor", 0);
        for (const char* of_sections : {"mrope_section", "mrope_interleaved"})
            if (names.takes_sections) rope.find(of_sections);
        for (const auto& [key, setting] : object->items())
            if (!rope.was_read(key) && !setting.is_null()) rope.refuse("field " + in_quotes(key) + " is not supported");
        if (inner > 0 && theta > 0 && inner != theta) {
            fields.refuse(
                fmt::format("'{}' has two values, {:f} and {:f} in '{}'; keep one", names.theta, theta, inner, name));
        }
        if (inner > 0) theta = inner;
        if (inner_share > 0) share = inner_share;
        if (is_set && !(read == to)) fields.refuse("'rope_scaling' and 'rope_parameters' differ; keep one");
        if (!is_set) to = read;
        is_set = true;
    }
    return to;
}

} // namespace

Rope read_rope(const Fields& fields, const RopeNames& names, ModelConfig& config) {
    double theta = fields.positive(names.theta, 0);
    double share = fields.positive(names.share, 0);
    Rope to = read_rope_objects(fields, names, config, theta, share);
    if (theta > 0) to.theta = theta;
    if (to.theta <= 1) fields.refuse("'" + std::string(names.theta) + "' is not above 1");
    if (share <= 0) share = names.default_share;
    if (share > 1) fields.refuse("'" + std::string(names.share) + "' is above 1");
    if (share != 1 && !names.takes_share)
        fields.refuse("field '" + std::string(names.share) + "' other than 1 is not supported for this model type");
    to.dims = static_cast<int>(config.head_dim * share);
    if (to.dims < 2 || to.dims % 2 != 0)
        fields.refuse(fmt::format("the rotary part of 'head_dim' is {}; it must be even and above 0", to.dims));
    if (to.scaling == RopeScaling::dynamic && to.dims < 4)
        fields.refuse("rope type 'dynamic' needs a rotary part of at least 4");
    if (to.scaling == RopeScaling::by_pair) {
        for (const auto& [name, factors] :
             {std::pair("short_factor", &to.pair_factors), {"long_factor", &to.long_pair_factors}})
            if (factors->size() != static_cast<std::size_t>(to.dims / 2))
                fields.refuse(fmt::format("'{}' has {} numbers for {} pairs", name, factors->size(), to.dims / 2));
        to.long_positions = config.max_positions;
        config.max_positions = static_cast<int>(std::min<double>(config.max_positions, to.original_positions));
        if (to.long_positions == config.max_positions) to.long_pair_factors.clear(); // no context needs them
    }
    const double stretched = to.factor * to.original_positions;
    if (to.scaling == RopeScaling::dynamic || to.scaling == RopeScaling::yarn)
        config.max_positions = static_cast<int>(
            std::min(std::max<double>(config.max_positions, std::floor(stretched)), static_cast<double>(kMaxSize)));
    return to;
}

} // namespace entrodraft::model
