// See model_description.h.
#include "launch/cmd/model_description.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

using model::ModelConfig;

std::string shortest(double number) {
    return fmt::format("{:.7g}", number);
}

std::string block_name(const ModelConfig& config) {
    switch (config.block) {
    case model::Block::pre_norm:
        return "pre-norm";
    case model::Block::post_norm:
        return "post-norm";
    case model::Block::sandwich:
        return "norms on both sides of each half";
    case model::Block::inner_norm:
        return "norms of what each half adds";
    case model::Block::parallel:
        return config.shared_norm ? "attention and MLP side by side, one norm" : "attention and MLP side by side";
    }
    return "?";
}

std::string activation_name(model::Activation activation) {
    switch (activation) {
    case model::Activation::silu:
        return "silu";
    case model::Activation::gelu:
        return "gelu";
    case model::Activation::gelu_tanh:
        return "gelu (tanh)";
    case model::Activation::relu:
        return "relu";
    }
    return "?";
}

std::string positions_name(model::Positions positions) {
    switch (positions) {
    case model::Positions::rotary:
        return "rotary";
    case model::Positions::learned:
        return "learned";
    case model::Positions::alibi:
        return "ALiBi";
    case model::Positions::sinusoidal:
        return "sinusoidal";
    case model::Positions::relative:
        return "relative";
    }
    return "?";
}

std::string scaling_name(model::RopeScaling scaling) {
    switch (scaling) {
    case model::RopeScaling::none:
        return "none";
    case model::RopeScaling::linear:
        return "linear";
    case model::RopeScaling::dynamic:
        return "dynamic";
    case model::RopeScaling::llama3:
        return "llama3";
    case model::RopeScaling::yarn:
        return "yarn";
    case model::RopeScaling::by_pair:
        return "longrope";
    }
    return "?";
}

std::string norm_name(model::Norm norm) {
    return norm == model::Norm::rms ? "RMSNorm" : "LayerNorm";
}

// The largest window of any layer and how many layers have one.
struct WindowFacts {
    int positions = 0;
    int n_layers = 0;
};
WindowFacts windows_of(const ModelConfig& config) {
    WindowFacts facts;
    for (const int window : config.windows) {
        facts.positions = std::max(facts.positions, window);
        facts.n_layers += window > 0;
    }
    return facts;
}

std::string biases_of(const ModelConfig& config) {
    std::vector<std::string> names;
    if (config.qkv_bias) names.emplace_back("query, key and value");
    if (config.output_bias) names.emplace_back("attention output");
    if (config.mlp_bias) names.emplace_back("MLP");
    if (config.head_bias) names.emplace_back("head");
    return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string attention_line(const ModelConfig& config) {
    std::string text = fmt::format("{} of {}, ", format_count(config.n_heads, "head"), config.head_dim);
    text += config.is_latent() ? fmt::format("keys and values out of {} numbers", config.latent.rank)
                               : format_count(config.n_kv_heads, "KV head");
    if (config.query_key_norm != model::QueryKeyNorm::none) text += ", queries and keys normed";
    if (config.gated_attention) text += ", a gate on what is attended";
    if (config.attention_soft_cap > 0) text += ", scores capped at " + shortest(config.attention_soft_cap);
    const WindowFacts windows = windows_of(config);
    if (windows.n_layers > 0)
        text += fmt::format("; {} layers see a window of {}",
                            windows.n_layers == config.n_layers ? "all" : std::to_string(windows.n_layers),
                            windows.positions);
    return text;
}

std::string linear_line(const ModelConfig& config) {
    const model::LinearAttentionConfig& linear = config.linear;
    return fmt::format("{}: {} of {}, {} of {}, a convolution over {}", format_count(config.n_linear_layers(), "layer"),
                       format_count(linear.n_key_heads, "key head"), linear.key_dim,
                       format_count(linear.n_value_heads, "value head"), linear.value_dim,
                       format_count(linear.n_convolved, "position"));
}

Json linear_json(const model::LinearAttentionConfig& linear) {
    return {{"layers", linear.layers},   {"key_heads", linear.n_key_heads}, {"value_heads", linear.n_value_heads},
            {"key_dim", linear.key_dim}, {"value_dim", linear.value_dim},   {"convolved", linear.n_convolved}};
}

// Describes the experts of a layer that has them.
std::string experts_line(const ModelConfig& config) {
    const model::ExpertsConfig& experts = config.experts;
    std::string text =
        fmt::format("{} of {} a token, of {}", experts.n_chosen, experts.n_experts, experts.intermediate_size);
    if (experts.n_chosen_groups < experts.n_groups)
        text += fmt::format(", out of {} of {} groups", experts.n_chosen_groups, experts.n_groups);
    if (experts.shared_size > 0) text += fmt::format(", and a shared one of {}", experts.shared_size);
    if (!experts.dense_layers.empty())
        text += fmt::format("; {} without", format_count(std::ssize(experts.dense_layers), "layer"));
    return text;
}

Json experts_json(const model::ExpertsConfig& experts) {
    return {{"experts", experts.n_experts},
            {"chosen", experts.n_chosen},
            {"intermediate_size", experts.intermediate_size},
            {"shared_size", experts.shared_size},
            {"dense_layers", experts.dense_layers}};
}

std::string positions_line(const ModelConfig& config) {
    std::string text = positions_name(config.positions);
    if (config.positions == model::Positions::relative)
        text += fmt::format(", {} buckets up to {}", config.relative.n_buckets, config.relative.max_distance);
    const model::Rope& rope = config.rope;
    if (config.positions != model::Positions::rotary) return text;
    text += ", theta " + shortest(rope.theta);
    if (rope.dims != config.head_dim)
        text += fmt::format(", the {} {} of a head's {}", config.is_latent() ? "last" : "first", rope.dims,
                            config.head_dim);
    if (rope.scaling != model::RopeScaling::none)
        text += fmt::format(", stretched {} times ({}) from {}", shortest(rope.factor), scaling_name(rope.scaling),
                            shortest(rope.original_positions));
    return text;
}

Json encoder_json(const model::EncoderConfig& encoder) {
    return {{"layers", encoder.n_layers},       {"heads", encoder.n_heads},
            {"head_dim", encoder.head_dim},     {"intermediate_size", encoder.intermediate_size},
            {"vocab_size", encoder.vocab_size}, {"context", encoder.max_positions}};
}

std::string encoder_line(const model::EncoderConfig& encoder) {
    return fmt::format("{}, {} of {}, MLP {}, sources of at most {}", format_count(encoder.n_layers, "layer"),
                       format_count(encoder.n_heads, "head"), encoder.head_dim, encoder.intermediate_size,
                       format_count(encoder.max_positions, "token"));
}

Json rope_json(const model::Rope& rope) {
    Json json = {{"theta", rope.theta}, {"dims", rope.dims}, {"scaling", scaling_name(rope.scaling)}};
    if (rope.scaling == model::RopeScaling::none) return json;
    json["factor"] = rope.factor;
    json["original_positions"] = rope.original_positions;
    return json;
}

void add_parts_of_some(const ModelConfig& config, Columns& columns) {
    if (config.n_linear_layers() > 0)
        columns.emplace(std::ranges::find(columns, std::string("kv_heads"), &Column::key), "linear_attention", "linear",
                        linear_json(config.linear), linear_line(config));
    if (config.n_expert_layers() > 0)
        columns.emplace(std::ranges::find(columns, std::string("heads"), &Column::key), "experts", "experts",
                        experts_json(config.experts), experts_line(config));
    if (config.has_encoder())
        columns.emplace(columns.begin() + 1, "encoder", "encoder", encoder_json(config.encoder),
                        encoder_line(config.encoder));
}

} // namespace

Columns description_of(const ModelConfig& config) {
    const WindowFacts windows = windows_of(config);
    const auto or_null = [](auto figure) { return figure > 0 ? Json(figure) : Json(); };
    const bool has_rope = config.positions == model::Positions::rotary;
    const Json biases = {{"query_key_value", config.qkv_bias},
                         {"attention_output", config.output_bias},
                         {"mlp", config.mlp_bias},
                         {"head", config.head_bias}};
    Columns columns = {
        {"layers", "layers", config.n_layers,
         fmt::format("{}, {}, {} (epsilon {})", config.n_layers, block_name(config), norm_name(config.norm),
                     shortest(config.norm_epsilon))},
        {"hidden_size", "hidden", config.hidden_size,
         fmt::format("{}{}", config.hidden_size,
                     config.embedding_size == config.hidden_size
                         ? ""
                         : fmt::format(", embeddings of {}", config.embedding_size))},
        {"embedding_size", "", config.embedding_size},
        {"intermediate_size", "MLP", config.intermediate_size,
         fmt::format("{}{}{}", config.intermediate_size > 0 ? fmt::format("{}, ", config.intermediate_size) : "",
                     activation_name(config.activation), config.gated_mlp ? ", gated" : "")},
        {"heads", "attention", config.n_heads, attention_line(config)},
        {"kv_heads", "", config.n_kv_heads},
        {"head_dim", "", config.head_dim},
        {"biases", "biases", biases, biases_of(config)},
        {"positions", "positions", positions_name(config.positions), positions_line(config)},
        {"context", "context", config.max_positions, format_count(config.max_positions)},
        {"vocab_size", "vocabulary", config.vocab_size,
         format_count(config.vocab_size) +
             (config.tied_embeddings ? ", head and embedding are one" : ", a head of its own") +
             (config.logit_soft_cap > 0 ? ", logits capped at " + shortest(config.logit_soft_cap) : "")},
        {"block", "", block_name(config)},
        {"norm", "", norm_name(config.norm)},
        {"norm_epsilon", "", Json::parse(shortest(config.norm_epsilon))},
        {"activation", "", activation_name(config.activation)},
        {"gated_mlp", "", config.gated_mlp},
        {"query_key_norm", "", config.query_key_norm != model::QueryKeyNorm::none},
        {"rope", "", has_rope ? rope_json(config.rope) : Column::unknown()},
        {"window", "", or_null(windows.positions)},
        {"layers_with_window", "", windows.n_layers},
        {"attention_soft_cap", "", or_null(config.attention_soft_cap)},
        {"logit_soft_cap", "", or_null(config.logit_soft_cap)},
        {"tied_embeddings", "", config.tied_embeddings},
        {"eos_token_ids", "", config.eos_token_ids},
        {"dtype", "", to_string(config.stored_type)},
    };
    add_parts_of_some(config, columns);
    return columns;
}

} // namespace entrodraft::launch
