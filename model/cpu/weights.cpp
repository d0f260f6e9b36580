#include "model/cpu/weights.h"

#include <algorithm>
#include <exception>

namespace entrodraft::model {

// What is read where: one list of matrices and the stored parts that fill them.
class ModelWeights::Loader {
  public:
    Loader(ModelWeights& to, const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
           const ModelNames& names)
        : to_(to), checkpoint_(checkpoint), config_(config), shard_(shard), names_(names) {}

    // Shapes, in the order in which a pass reads them.
    void make_matrices(WeightType type, int threads) {
        const ShardShapes shapes = shapes_of(config_, shard_);
        const auto column = [&](MatrixShape shape) { return ColumnLinear(shape.outputs, shape.inputs, type, threads); };
        const auto row = [&](MatrixShape shape) { return RowLinear(shape.outputs, shape.inputs, type, threads); };
        to_.layers.resize(static_cast<std::size_t>(config_.n_layers));
        for (LayerWeights& layer : to_.layers) {
            layer.qkv = column(&layer == &to_.layers.front() ? shapes.first_qkv : shapes.layer.qkv);
            layer.output = row(shapes.layer.output);
            if (config_.gated_mlp) layer.gate = column(shapes.layer.gate);
            layer.up = column(shapes.layer.up);
            layer.down = row(shapes.layer.down);
            if (!config_.has_encoder()) continue;
            layer.cross_query = column(shapes.layer.cross_query);
            layer.cross_key_value = column(shapes.layer.cross_key_value);
            layer.cross_output = row(shapes.layer.cross_output);
        }
        if (shapes.embedding.inputs > 0) // a rank may hold no tokens
            to_.embedding = VocabEmbedding(shard_.vocab, shapes.embedding.inputs, type, threads);
        if (config_.has_head()) to_.own_head = column(shapes.head);
        FusionWeights& fusion = to_.fusion;
        if (shapes.feature_projection.outputs > 0) fusion.feature_projection = column(shapes.feature_projection);
        if (shapes.fusion.outputs > 0) fusion.linear = column(shapes.fusion);
        if (shapes.skip.outputs > 0) fusion.skip = column(shapes.skip);
        for (int i = 0; i < config_.fusion.n_residual_blocks; ++i)
            fusion.residual_blocks.push_back(column(shapes.residual_block));
        if (config_.embedding_size != config_.hidden_size) {
            to_.project_in = column(shapes.project_in);
            to_.project_out = column(shapes.project_out);
        }
    }

    // The small tensors, all float32.
    void read_vectors() {
        to_.positions = read_positions(checkpoint_, config_, names_);
        to_.embedding_norm = norm_of(names_.embedding_norm);
        to_.relative_biases = read_relative_biases(checkpoint_, config_, names_, shard_);
        to_.final_norm = norm_of(names_.final_norm, config_.output_scale);
        to_.head_bias = read_head_bias(checkpoint_, config_, names_, shard_);
        if (!to_.head_bias.empty()) to_.head_bias.resize(static_cast<std::size_t>(to_.head().n_padded()));
        read_fusion_vectors();
        for (int i = 0; i < config_.n_layers; ++i) {
            const LayerNames names = names_.layer(i);
            LayerWeights& layer = to_.layers[static_cast<std::size_t>(i)];
            layer.attention_norm = norm_of(names.attention_norm);
            layer.mlp_norm = norm_of(names.mlp_norm);
            layer.after_attention_norm = norm_of(names.after_attention_norm);
            layer.after_mlp_norm = norm_of(names.after_mlp_norm);
            layer.query_norm = norm_of(names.query_norm);
            layer.key_norm = norm_of(names.key_norm);
            layer.cross_norm = norm_of(names.cross_norm);
            const LayerSources sources = layer_sources(config_, names_, names, i, shard_);
            const auto linears = layer.linears();
            for (std::size_t m = 0; m < linears.size(); ++m) {
                const bool is_summed = linears[m] == &layer.output || linears[m] == &layer.down;
                if (shard_.is_first || !is_summed)
                    linears[m]->set_bias(read_biases(checkpoint_, sources.all()[m]->rows));
            }
            if (!config_.has_encoder()) continue;
            const CrossSources cross = cross_sources(config_, names, shard_);
            layer.cross_query.set_bias(read_biases(checkpoint_, cross.query.rows));
            layer.cross_key_value.set_bias(read_biases(checkpoint_, cross.key_value.rows));
            if (shard_.is_first) layer.cross_output.set_bias(read_biases(checkpoint_, cross.output.rows));
        }
    }

    void read_fusion_vectors() {
        const FusionNames& names = names_.fusion;
        FusionWeights& fusion = to_.fusion;
        for (const TensorNames& each : names.feature_norms)
            fusion.feature_norms.push_back(read_norm(checkpoint_, each, config_.fusion.feature_norm_offset));
        fusion.embedding_norm = norm_of(names.embedding_norm);
        fusion.state_norm = norm_of(names.state_norm);
        const dist::Slice hidden = {0, config_.hidden_size};
        fusion.linear.set_bias(read_biases(checkpoint_, {{&names.linear, hidden}}));
        fusion.skip.set_bias(read_biases(checkpoint_, {{&names.skip, hidden}}));
        fusion.sum_norm = norm_of(names.sum_norm);
        fusion.cell_norm = norm_of(names.cell_norm);
        for (std::size_t i = 0; i < fusion.residual_blocks.size(); ++i)
            fusion.residual_blocks[i].set_bias(read_biases(checkpoint_, {{&names.residual_blocks[i], hidden}}));
    }

    // This thread's part of every matrix.
    void read_matrices(int thread, const LoadProgress& progress) {
        std::size_t done = 0;
        const auto fill = [&](PackedMatrix& matrix, const MatrixSource& source) {
            if (source.rows.empty()) return;
            std::vector<MatrixPart> parts;
            for (const StoredSlice& part : source.rows)
                parts.push_back(
                    {&checkpoint_.tensor(part.tensor->weight), part.rows, source.inputs, source.transposed});
            matrix.load(parts, thread);
            done += matrix.bytes();
            if (thread == 0 && progress) progress(done, to_.arena_.bytes());
        };
        for (int i = 0; i < config_.n_layers; ++i) {
            const LayerNames names = names_.layer(i);
            const LayerSources sources = layer_sources(config_, names_, names, i, shard_);
            const auto linears = to_.layers[static_cast<std::size_t>(i)].linears();
            for (std::size_t m = 0; m < linears.size(); ++m)
                fill(linears[m]->matrix(), *sources.all()[m]);
            if (!config_.has_encoder()) continue;
            const CrossSources cross = cross_sources(config_, names, shard_);
            const auto cross_linears = to_.layers[static_cast<std::size_t>(i)].cross_linears();
            for (std::size_t m = 0; m < cross_linears.size(); ++m)
                fill(cross_linears[m]->matrix(), *cross.all()[m]);
        }
        const OuterSources sources = outer_sources(config_, names_, shard_);
        fill(to_.embedding.table(), sources.embedding);
        fill(to_.own_head.matrix(), sources.head);
        fill(to_.project_in.matrix(), sources.project_in);
        fill(to_.project_out.matrix(), sources.project_out);
        FusionWeights& fusion = to_.fusion;
        fill(fusion.feature_projection.matrix(), sources.feature_projection);
        fill(fusion.linear.matrix(), sources.fusion);
        fill(fusion.skip.matrix(), sources.skip);
        for (std::size_t i = 0; i < fusion.residual_blocks.size(); ++i)
            fill(fusion.residual_blocks[i].matrix(), sources.residual_blocks[i]);
    }

    // Gives matrices their memory, and counts what a pass reads of it.
    void place(WeightArena& arena) {
        const auto place = [&](PackedMatrix& matrix) {
            if (matrix.n() == 0) return;
            arena.place(matrix);
            if (&matrix == &to_.embedding.table() && !to_.tied_) return; // looked up
            if (config_.is_encoder || are_cross_keys(matrix)) return;    // read once a source
            to_.bytes_per_pass += matrix.bytes();
            to_.operations_per_row += 2.0 * matrix.n() * matrix.k();
        };
        for (LayerWeights& layer : to_.layers)
            for (ShardedLinear* linear : layer.linears())
                place(linear->matrix());
        for (LayerWeights& layer : to_.layers)
            for (ShardedLinear* linear : layer.cross_linears())
                place(linear->matrix());
        for (PackedMatrix* matrix :
             {&to_.project_out.matrix(), &to_.embedding.table(), &to_.own_head.matrix(), &to_.project_in.matrix(),
              &to_.fusion.feature_projection.matrix(), &to_.fusion.linear.matrix(), &to_.fusion.skip.matrix()})
            place(*matrix);
        for (ColumnLinear& block : to_.fusion.residual_blocks)
            place(block.matrix());
        arena.allocate();
    }

  private:
    NormWeights norm_of(const TensorNames& names, float scale = 1) const {
        return read_norm(checkpoint_, names, config_.norm_offset, scale);
    }

    bool are_cross_keys(const PackedMatrix& matrix) const {
        return std::ranges::any_of(
            to_.layers, [&](const LayerWeights& layer) { return &layer.cross_key_value.matrix() == &matrix; });
    }

    ModelWeights& to_;
    const Checkpoint& checkpoint_;
    const ModelConfig& config_;
    const RankShard& shard_;
    const ModelNames& names_;
};

ModelWeights::ModelWeights(const Checkpoint& checkpoint, const ModelConfig& config, const RankShard& shard,
                           WeightType type, ThreadTeam& team, const LoadProgress& progress)
    : tied_(config.tied_embeddings), arena_(team.size()) {
    const ModelNames names = names_of(config, checkpoint);
    Loader loader(*this, checkpoint, config, shard, names);
    loader.make_matrices(type, team.size());
    loader.place(arena_);
    loader.read_vectors();
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(team.size()));
    team.run([&](int thread) { // each thread packs what it will read: its pages lie near its core
        try {
            loader.read_matrices(thread, progress);
        } catch (...) {
            failures[static_cast<std::size_t>(thread)] = std::current_exception();
        }
    });
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

} // namespace entrodraft::model
