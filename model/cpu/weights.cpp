#include "model/cpu/weights.h"

#include "model/files/bad_file.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <fmt/format.h>
#include <optional>
#include <utility>

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
        const auto column = [&](MatrixShape shape) { return ColumnLinear(shape, type, threads); };
        const auto row = [&](MatrixShape shape) { return RowLinear(shape, type, threads); };
        to_.layers.resize(static_cast<std::size_t>(config_.n_layers));
        for (int i = 0; i < config_.n_layers; ++i) {
            LayerWeights& layer = to_.layers[static_cast<std::size_t>(i)];
            const bool has_experts = config_.has_experts(i);
            layer.qkv = config_.is_linear(i)
                            ? ColumnLinear(shapes.layer.linear_in, n_plain_gates(i, shapes), type, threads)
                            : column(i == 0 ? shapes.first_qkv : shapes.layer.qkv);
            layer.output = row(config_.is_linear(i) ? shapes.layer.linear_output : shapes.layer.output);
            if (config_.gated_mlp) layer.gate = column(has_experts ? shapes.layer.shared_gate : shapes.layer.gate);
            layer.up = column(has_experts ? shapes.layer.shared_up : shapes.layer.up);
            layer.down = row(has_experts ? shapes.layer.shared_down : shapes.layer.down);
            if (has_experts) {
                layer.router = ColumnLinear(shapes.layer.router, WeightType::float32, threads);
                for (std::int64_t expert = 0; expert < shard_.experts.size(); ++expert)
                    layer.experts.push_back({column(shapes.layer.expert_gate), column(shapes.layer.expert_up),
                                             row(shapes.layer.expert_down)});
            }
            if (config_.is_latent()) {
                if (config_.latent.query_rank > 0) layer.query_up = column(shapes.layer.query_up);
                for (int head = 0; head < shard_.n_query_heads(); ++head) {
                    layer.absorb.push_back(column(shapes.layer.absorb));
                    layer.expand.push_back(column(shapes.layer.expand));
                }
            }
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
        for (int i = 0; i < config_.fusion.n_cells; ++i)
            fusion.cells.push_back(column(i == 0 ? shapes.first_cell : shapes.cell));
        for (int i = 0; i < config_.fusion.n_residual_blocks; ++i) {
            fusion.residual_blocks.push_back(column(shapes.residual_block));
            if (shapes.residual_output.outputs > 0) fusion.residual_outputs.push_back(row(shapes.residual_output));
        }
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
            layer.query_norm = own_heads_of(config_, norm_of(names.query_norm), shard_.heads.query_heads);
            layer.key_norm = own_heads_of(config_, norm_of(names.key_norm), shard_.heads.kv_heads);
            layer.query_down_norm = norm_of(names.query_down_norm);
            layer.key_value_down_norm = norm_of(names.key_value_down_norm);
            if (!names.router_correction.weight.empty())
                layer.router_correction = read_vector(checkpoint_, names.router_correction.weight);
            layer.sinks = read_sinks(checkpoint_, names, shard_);
            if (config_.has_experts(i)) read_expert_biases(names, i, layer);
            if (config_.is_linear(i)) read_delta_net(names, layer.delta_net);
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

    void read_expert_biases(const LayerNames& names, int number, LayerWeights& layer) const {
        layer.router.set_bias(read_biases(checkpoint_, router_source(config_, names).rows));
        for (std::size_t i = 0; i < layer.experts.size() && config_.experts.has_biases; ++i) {
            const int number_of_expert = static_cast<int>(shard_.experts.begin) + static_cast<int>(i);
            const ExpertNames of_expert = names_.expert(number, number_of_expert);
            const ExpertSources sources = expert_sources(config_, names_, names, of_expert, number_of_expert, shard_);
            ExpertWeights& expert = layer.experts[i];
            expert.gate.set_bias(read_biases(checkpoint_, sources.gate.rows));
            expert.up.set_bias(read_biases(checkpoint_, sources.up.rows));
            if (shard_.adds_expert_bias) expert.down.set_bias(read_biases(checkpoint_, sources.down.rows));
        }
    }

    void read_delta_net(const LayerNames& names, DeltaNetWeights& to) const {
        static_cast<DeltaNetVectors&>(to) = model::read_delta_net(checkpoint_, config_, names, shard_);
        const auto dim = static_cast<float>(config_.linear.key_dim);
        to.key_scale.assign(static_cast<std::size_t>(config_.linear.key_dim), 1 / std::sqrt(dim));
        to.query_scale.assign(static_cast<std::size_t>(config_.linear.key_dim), 1 / dim);
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
        const OuterSources sources = outer_sources(config_, names_, shard_);
        const auto set_biases = [&](auto& linears, const std::vector<MatrixSource>& from) {
            for (std::size_t i = 0; i < linears.size(); ++i)
                linears[i].set_bias(read_biases(checkpoint_, from[i].rows));
        };
        set_biases(fusion.cells, sources.cells);
        set_biases(fusion.residual_blocks, sources.residual_blocks);
        set_biases(fusion.residual_outputs, sources.residual_outputs);
    }

    // What is stored quantised is held so, but for what is read the other way round.
    void choose_formats() {
        if (!config_.quantization) return;
        for_each_matrix([&](PackedMatrix& matrix, const MatrixSource& source) {
            std::vector<const TensorView*> tensors;
            for (const StoredSlice& part : source.rows)
                tensors.push_back(&checkpoint_.tensor(part.tensor->weight));
            const auto is_quantized = [](const TensorView* tensor) { return tensor->type == DiskType::quantized; };
            if (source.transposed && std::ranges::any_of(tensors, is_quantized))
                return matrix.hold_as({WeightType::float32});
            if (source.transposed) return;
            auto format = format_of(tensors, source.inputs);
            if (format) matrix.hold_as(*std::move(format));
        });
    }

    // This thread's part of every matrix.
    void read_matrices(int thread, const LoadProgress& progress) {
        std::size_t done = 0;
        for_each_matrix([&](PackedMatrix& matrix, const MatrixSource& source) {
            std::vector<MatrixPart> parts;
            for (const StoredSlice& part : source.rows)
                parts.push_back(
                    {&checkpoint_.tensor(part.tensor->weight), part.rows, source.inputs, source.transposed, part.step});
            matrix.load(parts, thread);
            done += matrix.bytes();
            if (thread == 0 && progress) progress(done, to_.arena_.bytes());
        });
    }

    // Calls visit(matrix, source) for all that the file has, in the order in which they are read.
    void for_each_matrix(const auto& visit) {
        const auto fill = [&](PackedMatrix& matrix, const MatrixSource& source) {
            if (!source.rows.empty()) visit(matrix, source);
        };
        for (int i = 0; i < config_.n_layers; ++i) {
            const LayerNames names = names_.layer(i);
            const LayerSources sources = layer_sources(config_, names_, names, i, shard_);
            const auto linears = to_.layers[static_cast<std::size_t>(i)].linears();
            for (std::size_t m = 0; m < linears.size(); ++m) {
                MatrixSource source = *sources.all()[m], last = source;
                last.rows = take_last(source.rows, linears[m]->last().n());
                fill(linears[m]->matrix(), source);
                fill(linears[m]->last(), last);
            }
            if (config_.has_experts(i)) fill_experts(names, i, fill);
            if (config_.is_latent()) fill_latent(names, i, fill);
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
        const auto fill_all = [&](auto& linears, const std::vector<MatrixSource>& from) {
            for (std::size_t i = 0; i < linears.size(); ++i)
                fill(linears[i].matrix(), from[i]);
        };
        fill_all(fusion.cells, sources.cells);
        fill_all(fusion.residual_blocks, sources.residual_blocks);
        fill_all(fusion.residual_outputs, sources.residual_outputs);
    }

    void fill_experts(const LayerNames& names, int number, const auto& fill) {
        LayerWeights& layer = to_.layers[static_cast<std::size_t>(number)];
        fill(layer.router.matrix(), router_source(config_, names));
        for (std::size_t i = 0; i < layer.experts.size(); ++i) {
            const int expert = static_cast<int>(shard_.experts.begin) + static_cast<int>(i);
            const ExpertNames of_expert = names_.expert(number, expert);
            const ExpertSources sources = expert_sources(config_, names_, names, of_expert, expert, shard_);
            const auto linears = layer.experts[i].linears();
            for (std::size_t m = 0; m < linears.size(); ++m)
                fill(linears[m]->matrix(), *sources.all()[m]);
        }
    }

    void fill_latent(const LayerNames& names, int number, const auto& fill) {
        LayerWeights& layer = to_.layers[static_cast<std::size_t>(number)];
        const LatentSources sources = latent_sources(config_, names, shard_);
        fill(layer.query_up.matrix(), sources.query_up);
        for (std::size_t head = 0; head < layer.absorb.size(); ++head) {
            fill(layer.absorb[head].matrix(), sources.absorb[head]);
            fill(layer.expand[head].matrix(), sources.expand[head]);
        }
    }

    // Gives matrices their memory, and counts what a pass reads of it: of experts, as many as a row goes through.
    void place(WeightArena& arena) {
        const auto place_shared = [&](PackedMatrix& matrix, double share) {
            if (matrix.n() == 0) return;
            arena.place(matrix);
            if (&matrix == &to_.embedding.table() && !to_.tied_) return; // looked up
            if (config_.is_encoder || are_cross_keys(matrix)) return;    // read once a source
            to_.bytes_per_pass += static_cast<std::size_t>(static_cast<double>(matrix.bytes()) * share);
            to_.operations_per_row += 2.0 * matrix.n() * matrix.k() * share;
        };
        const auto place = [&](PackedMatrix& matrix) { place_shared(matrix, 1); };
        const double chosen = static_cast<double>(config_.experts.n_chosen) / std::max(1, config_.experts.n_experts);
        for (LayerWeights& layer : to_.layers) {
            const ModelWeights::LayerWork before = {to_.bytes_per_pass, to_.operations_per_row};
            for (ShardedLinear* linear : layer.linears()) {
                place(linear->matrix());
                place(linear->last());
            }
            place(layer.query_up.matrix());
            for (std::size_t head = 0; head < layer.absorb.size(); ++head) {
                place(layer.absorb[head].matrix());
                place(layer.expand[head].matrix());
            }
            place(layer.router.matrix());
            for (ExpertWeights& expert : layer.experts)
                for (ShardedLinear* linear : expert.linears())
                    place_shared(linear->matrix(), chosen);
            to_.layer_work.push_back({to_.bytes_per_pass - before.bytes, to_.operations_per_row - before.operations});
        }
        for (LayerWeights& layer : to_.layers)
            for (ShardedLinear* linear : layer.cross_linears())
                place(linear->matrix());
        for (PackedMatrix* matrix :
             {&to_.project_out.matrix(), &to_.embedding.table(), &to_.own_head.matrix(), &to_.project_in.matrix(),
              &to_.fusion.feature_projection.matrix(), &to_.fusion.linear.matrix(), &to_.fusion.skip.matrix()})
            place(*matrix);
        for (std::vector<ColumnLinear>* linears : {&to_.fusion.cells, &to_.fusion.residual_blocks})
            for (ColumnLinear& linear : *linears)
                place(linear.matrix());
        for (RowLinear& output : to_.fusion.residual_outputs)
            place(output.matrix());
        arena.allocate();
    }

  private:
    // So many stored rows at the end, which it takes away.
    static std::vector<StoredSlice> take_last(std::vector<StoredSlice>& rows, std::int64_t count) {
        auto from = rows.end();
        while (count > 0)
            count -= (--from)->rows.size();
        std::vector<StoredSlice> last(from, rows.end());
        rows.erase(from, rows.end());
        return last;
    }
    // Of linear attention, outputs at the end that are stored as they are behind quantised ones (of FP8 checkpoints the
    // gates), where units do not have to hold some of both.
    int n_plain_gates(int layer, const ShardShapes& shapes) const {
        if (!config_.quantization) return 0;
        const LayerNames names = names_.layer(layer);
        const std::vector<StoredSlice> rows = layer_sources(config_, names_, names, layer, shard_).qkv.rows;
        const auto is_plain = [&](const StoredSlice& slice) {
            return checkpoint_.tensor(slice.tensor->weight).type != DiskType::quantized;
        };
        int count = 0;
        for (auto at = rows.rbegin(); at != rows.rend() && is_plain(*at); ++at)
            count += static_cast<int>(at->rows.size());
        const int before = shapes.layer.linear_in.outputs - count;
        return before > 0 && before % kernels::kLanes == 0 ? count : 0;
    }

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
    loader.choose_formats();
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
