// See inspection.h. Follows ModelWeights, KvCache and the decoder's buffers.
#include "model/footprint/inspection.h"

#include "model/cpu/packed_matrix.h"
#include "model/gpu/prompt_products.h"
#include "model/gpu/states_view.h"
#include "model/gpu/stored_codes.h"
#include "model/pass/kv_cache.h"
#include "model/weights/layer_plan.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <utility>

namespace entrodraft::model {
namespace {

constexpr std::uint64_t kFloat = sizeof(float);

std::uint64_t product(std::initializer_list<std::int64_t> factors) {
    std::int64_t result = 1;
    for (const std::int64_t factor : factors)
        if (__builtin_mul_overflow(result, factor, &result))
            throw std::invalid_argument("so many positions take more bytes than can be counted");
    return static_cast<std::uint64_t>(result);
}

std::int64_t in_units(std::int64_t length, std::int64_t unit) {
    return (length + unit - 1) / unit * unit;
}

// As gpu/weights has it; the embedding, which is looked up, in the activations' type.
std::uint64_t gpu_matrix_bytes(MatrixShape shape, const gpu::HeldAs& held) {
    const std::size_t row = held.row_bytes(shape.inputs) + held.row_scale_bytes(shape.inputs);
    return product({shape.outputs, static_cast<std::int64_t>(row)});
}

// Of a form that kernels know where the file's groups are cut so; else the run is refused when weights are loaded.
gpu::HeldAs planned_on_gpu(const Quantization& of, std::int64_t first_input) {
    gpu::HeldAs held;
    for (const std::int64_t first : {first_input, std::int64_t{0}})
        if (held.form.code == gpu::Code::none) held.form = gpu::code_form(wide_format_of(of, 0), of.group == 0, first);
    return held;
}

RankShard shard_held(const ModelConfig& config, const RunShape& run, int rank) {
    RankShard shard = shard_of(config, rank, run.ranks);
    if (run.on_gpu) hold_small_embedding_whole(config, bytes_of(cache_type(config, run)), kMaxWholeEmbedding, shard);
    return shard;
}

std::uint64_t packed_bytes(MatrixShape shape, PackedFormat format) {
    return PackedMatrix(shape.outputs, shape.inputs, std::move(format), 1).bytes();
}

// Counts the bytes of a rank's weights over the plan of its tensors.
class WeightBytes {
  public:
    WeightBytes(const ModelConfig& config, const RunShape& run, const RankShard& shard)
        : config_(config), run_(run), shard_(shard), mixed_bits_(!config.quantization ? 0
                                                                 : run.on_gpu ? config.quantization->gpu_memory_bits
                                                                              : config.quantization->memory_bits) {}

    std::uint64_t count() {
        const ModelNames names = names_of(config_, Checkpoint());
        add(plan_outer(config_, names, shard_), 1, false);
        for (const LayerKind& kind : layer_kinds(config_)) {
            add(plan_layer(config_, names, kind.layer, shard_), kind.count, true);
            if (kind.has_experts)
                add(plan_expert(config_, names, kind.layer, 0, shard_), kind.count * config_.experts.n_experts, true);
        }
        // Files may hold the gates of linear attention as they are, after quantised matrices.
        const int gates = 2 * config_.linear.group() * static_cast<int>(shard_.linear_keys.size());
        if (config_.quantization) add({gates, config_.hidden_size}, config_.n_linear_layers(), run_.type);
        return bytes_ + static_cast<std::uint64_t>(mixed_bytes_) + product({floats_, sizeof(float)});
    }

  private:
    void add(const TensorPlan& plan, std::int64_t times, bool is_of_layer) {
        for (const PlannedMatrix& matrix : plan.matrices)
            is_of_layer ? add_layer_matrix(matrix, times) : add_outer_matrix(matrix);
        floats_ += times * plan.floats();
    }

    void add_outer_matrix(const PlannedMatrix& matrix) {
        const MatrixShape shape = matrix.shape();
        if (matrix.role != Role::embedding) return add(shape, 1, run_.type);
        // A GPU looks rows up in numbers; a tied head may have codes, or fewer rows.
        if (run_.on_gpu) bytes_ += gpu_matrix_bytes(shape, gpu::held_as(cache_type(config_, run_)));
        const bool is_held_again = config_.tied_embeddings && !config_.is_encoder &&
                                   (is_scaled(run_.type) || mixed_bits_ > 0 || shard_.looked_up != shard_.vocab);
        if (!run_.on_gpu || is_held_again) add({static_cast<int>(shard_.vocab.size()), shape.inputs}, 1, run_.type);
    }

    void add_layer_matrix(const PlannedMatrix& matrix, std::int64_t times) {
        MatrixShape shape = matrix.shape();
        const WeightType exact = run_.on_gpu ? cache_type(config_, run_) : WeightType::float32;
        switch (matrix.role) {
        case Role::router:
            return add(shape, times, exact);
        case Role::absorb:
            return add(shape, times, run_.on_gpu || config_.quantization ? exact : run_.type);
        case Role::expand:
            if (run_.on_gpu) return add(shape, times, exact);
            break;
        case Role::gate: // GPUs hold gates and ups by turns, in whole groups
        case Role::up:
        case Role::expert_gate:
        case Role::expert_up:
            if (run_.on_gpu && config_.gated_mlp)
                shape.outputs = static_cast<int>(in_units(shape.outputs, gpu::kGateGroup));
            break;
        default:
            break;
        }
        const bool is_of_expert = matrix.reading == Reading::chosen_experts;
        const bool is_quantised =
            config_.quantization && mixed_bits_ == 0 && (is_of_expert || !config_.quantization->of_experts);
        if (!is_quantised || shape.outputs == 0 || shape.inputs == 0) return add(shape, times, run_.type);
        bytes_ += static_cast<std::uint64_t>(times) *
                  (run_.on_gpu ? gpu_matrix_bytes(shape, planned_on_gpu(*config_.quantization, shape.first_input))
                               : packed_bytes(shape, wide_format_of(*config_.quantization, shape.first_input)));
    }

    // Not as the file has it, but for files whose tensors are of several types.
    void add(const MatrixShape& shape, std::int64_t times, WeightType type) {
        if (shape.outputs == 0 || shape.inputs == 0) return;
        if (mixed_bits_ > 0) {
            const std::int64_t unit = run_.on_gpu ? 128 : 1; // inputs of a chunk
            const double weights = static_cast<double>(in_units(shape.outputs, kernels::kLanes)) *
                                   static_cast<double>(in_units(shape.inputs, unit));
            mixed_bytes_ += static_cast<double>(times) * weights * mixed_bits_ / 8;
            return;
        }
        bytes_ +=
            static_cast<std::uint64_t>(times) * (run_.on_gpu ? gpu_matrix_bytes(shape, gpu::held_as(type))
                                                             : packed_bytes(shape, format_of(type, shape.first_input)));
    }

    const ModelConfig& config_;
    const RunShape& run_;
    const RankShard& shard_;
    double mixed_bits_;
    std::uint64_t bytes_ = 0;
    double mixed_bytes_ = 0;
    std::int64_t floats_ = 0;
};

// Of linear attention, of a slot.
std::uint64_t states_bytes(const ModelConfig& config, const RunShape& run, const RankShard& shard, int capacity) {
    if (config.n_linear_layers() == 0) return 0;
    RecurrentStates::Shape shape = recurrent_shape(config, shard, run.tree_positions);
    if (!run.on_gpu) return RecurrentStates::floats_per_slot(shape, capacity) * kFloat;
    shape.prompt_rows = gpu::max_prompt_rows(config, run.type);
    const gpu::StatesView view = gpu::states_view({}, shape, capacity);
    return gpu::floats_of_slot(view) * kFloat + gpu::inputs_of_slot(view) * bytes_of(cache_type(config, run));
}

std::uint64_t cache_bytes(const ModelConfig& config, const RunShape& run, const RankShard& shard) {
    const std::int64_t capacity = in_units(run.length, KvCache::kBlock);
    const std::int64_t on_gpu = (config.is_latent() ? 1 : 2) * in_units(config.key_dim(), gpu::kHeadAlign);
    const WeightType type = cache_type(config, run);
    const std::size_t position = run.on_gpu ? index(static_cast<int>(on_gpu)) * bytes_of(type)
                                            : KvCache::bytes_of_position(type, config.key_dim(), config.value_dim());
    const std::uint64_t of_states = states_bytes(config, run, shard, static_cast<int>(capacity));
    return product({config.n_attention_layers(), run.batch, shard.n_kv_heads(), capacity,
                    static_cast<std::int64_t>(position)}) +
           product({run.batch, static_cast<std::int64_t>(of_states)});
}

// Keys and values of sources, as long as the texts, of all layers of the decoder, and the encoder's of one layer.
std::uint64_t source_bytes(const ModelConfig& config, const RunShape& run, const RankShard& shard) {
    if (!config.has_encoder()) return 0;
    RunShape of_source = run;
    of_source.length = std::min(run.length, config.encoder.max_positions);
    ModelConfig layer = encoder_of(config);
    layer.n_layers = 1;
    const RankShard of_encoder = shard_of(layer, 0, run.ranks);
    const std::uint64_t of_texts = cache_bytes(config, of_source, shard);
    of_source.batch = 1;
    of_source.kv_type = WeightType::float32;
    return of_texts + cache_bytes(layer, of_source, of_encoder);
}

// Of a draft head: features as they come and as its layers take them, and what they are joined to.
std::int64_t fusion_numbers(const ModelConfig& config) {
    if (!config.is_draft_head()) return 0;
    const FusionConfig& fusion = config.fusion;
    return 2 * fusion.width() + fusion.projected_size(config.hidden_size) + fusion.joined_size(config.hidden_size) +
           fusion.residual_size;
}

// Of the rank's part of an MLP, or of the expert that all rows go through.
std::int64_t inner_size(const ModelConfig& config, const RankShard& shard) {
    const bool has_mlp = config.n_expert_layers() < config.n_layers;
    return std::max(has_mlp ? shard.mlp.size() : 0, shard.shared_expert.size());
}

std::uint64_t rope_floats(const ModelConfig& config, const RunShape& run) {
    std::uint64_t floats = 0;
    if (config.positions == Positions::rotary) floats += product({run.length, config.rope.dims});
    if (std::ranges::find(config.layer_ropes, LayerRope::local) != config.layer_ropes.end())
        floats += product({run.length, config.local_rope.dims});
    return floats;
}

// Numbers of a row, the most that a layer has.
struct AttentionWidths {
    int qkv = 0;
    int attended = 0;
    int states_read = 0; // of linear attention
};

AttentionWidths attention_widths(const ModelConfig& config, const RankShard& shard) {
    const ModelNames names = names_of(config, Checkpoint());
    AttentionWidths widths;
    for (const LayerKind& kind : layer_kinds(config))
        for (const PlannedMatrix& matrix : plan_layer(config, names, kind.layer, shard).matrices) {
            const MatrixShape shape = matrix.shape();
            if (matrix.role == Role::qkv) widths.qkv = std::max(widths.qkv, shape.outputs);
            if (matrix.role != Role::output) continue;
            widths.attended = std::max(widths.attended, shape.inputs);
            if (config.is_linear(kind.layer)) widths.states_read = shape.inputs;
        }
    return widths;
}

// As gpu/decoder makes them, all numbers taken for float32.
std::uint64_t gpu_activation_bytes(const ModelConfig& config, const RunShape& run, const RankShard& shard) {
    const AttentionWidths widths = attention_widths(config, shard);
    // Rows of logits, and what an extension keeps beside them: as many, put together from all ranks.
    const std::int64_t beside = run.ranks > 1 ? config.n_outputs() : shard.outputs.size();
    const std::int64_t logits = config.is_encoder ? 0 : shard.outputs.size() + beside;
    std::int64_t row = 4 * std::int64_t{config.hidden_size} + widths.qkv + widths.attended + widths.states_read +
                       (config.gated_mlp ? 3 : 2) * inner_size(config, shard) + config.embedding_size +
                       fusion_numbers(config);
    if (config.n_expert_layers() > 0) // of pairs: output, inner numbers, and where they are
        row += config.experts.n_experts +
               config.experts.n_chosen * (config.hidden_size + shard.expert.size() + std::int64_t{4});
    if (config.is_latent())
        row += config.latent.query_rank +
               shard.n_query_heads() * (std::int64_t{config.head_dim} + config.key_dim() + config.value_dim());
    std::uint64_t floats =
        product({gpu::max_prompt_rows(config, run.type), row}) + product({kMaxRows, logits}) +
        gpu::attend_workspace_floats(shard.n_query_heads(), config.value_dim(), static_cast<int>(run.length));
    floats += rope_floats(config, run);
    constexpr std::int64_t kGraphs = 16, kNodes = 8, kNodeBytes = 4096; // of the common passes; nodes of a layer
    return floats * kFloat + product({kGraphs, config.n_layers, kNodes, kNodeBytes});
}

std::uint64_t activation_bytes(const ModelConfig& config, const RunShape& run, const RankShard& shard) {
    constexpr std::int64_t kUnit = kernels::kLanes;
    const AttentionWidths widths = attention_widths(config, shard);
    const std::int64_t hidden = in_units(config.hidden_size, kUnit);
    const std::int64_t inner = in_units(inner_size(config, shard), kUnit);
    std::int64_t row = hidden + in_units(widths.qkv, kUnit) + widths.attended + (config.gated_mlp ? 2 : 1) * inner +
                       fusion_numbers(config);
    if (!config.is_encoder) row += in_units(shard.outputs.size(), kUnit);
    if (config.block == Block::sandwich || config.block == Block::inner_norm || config.n_expert_layers() > 0)
        row += hidden;
    if (config.is_latent())
        row += shard.n_query_heads() * (std::int64_t{config.head_dim} + config.key_dim() + config.value_dim());
    if (config.n_expert_layers() > 0)
        row += config.experts.n_experts +
               config.experts.n_chosen * 2 * (in_units(shard.expert.size(), kUnit) + std::int64_t{1}) +
               std::int64_t{run.threads} * config.hidden_size;
    if (config.embedding_size != config.hidden_size) row += in_units(config.embedding_size, kUnit);
    const LatentConfig& latent = config.latent;
    const int widest =
        std::max({config.hidden_size, config.embedding_size, widths.attended, static_cast<int>(shard.mlp.size()),
                  static_cast<int>(shard.expert.size()), latent.query_rank, latent.rank, latent.plain_dim});
    const std::int64_t scores = 2 * kernels::kMaxQueries * in_units(run.length, KvCache::kBlock); // and their biases
    const std::int64_t of_thread =
        std::int64_t{kMaxRows} * config.hidden_size + scores +
        static_cast<std::int64_t>(kernels::linear_scratch_floats(kMaxRows, scratch_inputs(widest)));
    std::uint64_t floats = product({kMaxRows, row}) + product({run.threads, of_thread});
    floats += rope_floats(config, run);
    if (config.positions == Positions::alibi) floats += product({run.length, shard.n_query_heads()});
    return floats * kFloat;
}

} // namespace

WeightType cache_type(const ModelConfig& config, const RunShape& run) {
    return run.on_gpu ? activation_type(run.type, config.stored_type) : kv_type_of(config, run.type, run.kv_type);
}

RankNeeds needs_of(const ModelConfig& config, const RunShape& run, int rank) {
    RankNeeds needs;
    needs.shard = shard_held(config, run, rank);
    const dist::Slice kv = needs.shard.heads.kv_heads;
    for (const int other : {rank - 1, rank + 1}) { // earlier ranks hold earlier heads
        if (other < 0 || other >= run.ranks) continue;
        const dist::Slice theirs = dist::head_shard(config.n_heads, config.n_kv_heads, other, run.ranks).kv_heads;
        needs.shares_kv_heads = needs.shares_kv_heads || (theirs.begin < kv.end && kv.begin < theirs.end);
    }
    needs.weight_bytes = WeightBytes(config, run, needs.shard).count();
    needs.cache_bytes = cache_bytes(config, run, needs.shard) + source_bytes(config, run, needs.shard);
    needs.activation_bytes = (run.on_gpu ? gpu_activation_bytes : activation_bytes)(config, run, needs.shard);
    if (config.has_encoder()) {
        const ModelConfig encoder = encoder_of(config);
        RunShape of_encoder = run;
        of_encoder.length = std::min(run.length, encoder.max_positions);
        const RankNeeds more = needs_of(encoder, of_encoder, rank);
        needs.weight_bytes += more.weight_bytes;
        // The residual stream and what attention takes of it, of the whole source.
        const std::int64_t row = encoder.hidden_size + attention_widths(encoder, more.shard).qkv;
        needs.activation_bytes += more.activation_bytes + product({of_encoder.length, row, sizeof(float)});
    }
    if (needs.total_bytes() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        throw std::invalid_argument("so many positions take more bytes than can be counted");
    return needs;
}

AllReduces all_reduces_of(const ModelConfig& config, const RunShape& run) {
    if (run.ranks == 1) return {};
    constexpr std::int64_t kUnit = kernels::kLanes;
    const int of_layer = config.has_encoder() ? 3 : config.block == Block::parallel ? 1 : 2;
    const std::int64_t of_layers = std::int64_t{config.n_layers} * of_layer;
    // Of queries and keys that are normed row by row, two sums of squares.
    const std::int64_t of_squares = config.query_key_norm == QueryKeyNorm::row ? config.n_layers : 0;
    const bool of_embedding = shard_held(config, run, 0).looked_up.size() < config.vocab_size;
    const std::int64_t floats = (of_embedding ? in_units(config.embedding_size, kUnit) : 0) +
                                of_layers * in_units(config.hidden_size, kUnit) + 2 * of_squares;
    return {of_layers + of_squares + (of_embedding ? 1 : 0), floats * std::int64_t{sizeof(float)}};
}

int longest_that_fits(const ModelConfig& config, const std::function<std::uint64_t(int length)>& bytes_of,
                      std::uint64_t memory_bytes) {
    const auto length_of = [&](std::int64_t blocks) {
        return static_cast<int>(std::min<std::int64_t>(blocks * KvCache::kBlock, config.max_positions));
    };
    const auto fits = [&](std::int64_t blocks) {
        try {
            return bytes_of(length_of(blocks)) <= memory_bytes;
        } catch (const std::invalid_argument&) {
            return false;
        }
    };
    std::int64_t fitting = 0, too_many = in_units(config.max_positions, KvCache::kBlock) / KvCache::kBlock + 1;
    while (too_many - fitting > 1) {
        const std::int64_t middle = fitting + (too_many - fitting) / 2;
        (fits(middle) ? fitting : too_many) = middle;
    }
    return length_of(fitting);
}

} // namespace entrodraft::model
