#include "model/families/config.h"

#include <cmath>
#include <stdexcept>
#include <utility>

namespace entrodraft::model {

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
    case WeightType::int4:
        return "int4";
    case WeightType::float8:
        return "float8";
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
    case WeightType::float8:
        return 1;
    case WeightType::int4:
        break;
    }
    throw std::logic_error("a weight of 4 bits is no whole byte");
}

bool is_scaled(WeightType type) {
    return type == WeightType::int8 || type == WeightType::int4 || type == WeightType::float8;
}

WeightType activation_type(WeightType weights, WeightType stored) {
    if (!is_scaled(weights)) return weights;
    return stored == WeightType::float16 ? WeightType::float16 : WeightType::bfloat16;
}

void stretch_context(ModelConfig& config, int positions) {
    Rope& rope = config.rope;
    if (rope.long_pair_factors.empty() || positions <= config.max_positions) return;
    rope.pair_factors = std::exchange(rope.long_pair_factors, {});
    config.max_positions = rope.long_positions;
}

ModelConfig first_layers(ModelConfig config, int n_layers) {
    config.n_layers = n_layers;
    for (std::vector<int>* numbers : {&config.linear.layers, &config.experts.dense_layers})
        std::erase_if(*numbers, [&](int layer) { return layer >= n_layers; });
    if (!config.windows.empty()) config.windows.resize(static_cast<std::size_t>(n_layers));
    if (!config.layer_ropes.empty()) config.layer_ropes.resize(static_cast<std::size_t>(n_layers));
    return config;
}

ModelConfig encoder_of(const ModelConfig& config) {
    ModelConfig encoder = config;
    encoder.is_encoder = true;
    encoder.encoder = {.own_embedding = config.encoder.own_embedding};
    encoder.n_layers = config.encoder.n_layers;
    encoder.n_heads = encoder.n_kv_heads = config.encoder.n_heads;
    encoder.head_dim = config.encoder.head_dim;
    encoder.intermediate_size = config.encoder.intermediate_size;
    encoder.vocab_size = config.encoder.vocab_size;
    encoder.max_positions = config.encoder.max_positions;
    encoder.output_scale = 1;
    encoder.head_bias = false;
    if (encoder.head_dim != config.head_dim)
        encoder.attention_scale = 1.0f / std::sqrt(static_cast<float>(encoder.head_dim));
    return encoder;
}

} // namespace entrodraft::model
