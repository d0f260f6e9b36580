// Shapes of public models, from their config.json files: see model_shapes.h.
#include "launch/model_shapes.h"

#include "model/rank_shard.h"

#include <stdexcept>

namespace entrodraft::launch {

namespace {

struct Row {
    const char* name;
    model::Family family;
    int layers, hidden, heads, kv_heads, intermediate, vocab;
};

using model::Family;

constexpr Row kRows[] = {
    {"llama-2-70b", Family::llama, 80, 8192, 64, 8, 28672, 32000},
    {"llama-3-8b", Family::llama, 32, 4096, 32, 8, 14336, 128256},
    {"llama-3-70b", Family::llama, 80, 8192, 64, 8, 28672, 128256},
    {"llama-3-405b", Family::llama, 126, 16384, 128, 8, 53248, 128256},
    {"falcon-40b", Family::falcon, 60, 8192, 128, 8, 32768, 65024},
    {"opt-66b", Family::opt, 64, 9216, 72, 72, 36864, 50272},
};

ModelShape shape_of(const Row& row) {
    model::ModelConfig config;
    config.family = row.family;
    config.vocab_size = row.vocab;
    config.hidden_size = config.embedding_size = row.hidden;
    config.intermediate_size = row.intermediate;
    config.n_layers = row.layers;
    config.n_heads = row.heads;
    config.n_kv_heads = row.kv_heads;
    config.head_dim = row.hidden / row.heads;
    config.stored_type = model::WeightType::bfloat16;
    if (row.family != Family::llama) {
        config.gated_mlp = false;
        config.norm = model::Norm::layer;
        config.tied_embeddings = true;
    }
    if (row.family == Family::falcon) config.block = model::Block::parallel;
    if (row.family == Family::opt) {
        config.qkv_bias = config.output_bias = config.mlp_bias = true;
        config.positions = model::Positions::learned;
        config.max_positions = 2048;
        config.position_offset = 2;
    }
    return {row.name, config};
}

double size_of(const model::MatrixShape& matrix) {
    return static_cast<double>(matrix.outputs) * matrix.inputs;
}

} // namespace

const std::vector<ModelShape>& model_shapes() {
    static const std::vector<ModelShape> shapes = [] {
        std::vector<ModelShape> made;
        for (const Row& row : kRows)
            made.push_back(shape_of(row));
        return made;
    }();
    return shapes;
}

const ModelShape& model_shape(const std::string& name) {
    for (const ModelShape& shape : model_shapes())
        if (shape.name == name) return shape;
    throw std::invalid_argument("there is no shape named " + name);
}

double pass_bytes(const model::ModelConfig& config, int ranks) {
    // Earlier ranks hold the larger parts. Of the embedding a pass reads a row; as the head it is read whole.
    const model::ShardShapes shapes = shapes_of(config, shard_of(config, 0, ranks));
    const model::LayerShapes& layer = shapes.layer;
    const double of_layer =
        size_of(layer.qkv) + size_of(layer.output) + size_of(layer.gate) + size_of(layer.up) + size_of(layer.down);
    const double head = size_of(config.tied_embeddings ? shapes.embedding : shapes.head);
    return static_cast<double>(bytes_of(config.stored_type)) * (config.n_layers * of_layer + head);
}

} // namespace entrodraft::launch
