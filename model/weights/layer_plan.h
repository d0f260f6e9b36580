// Describes every tensor of a model once, by role: its name in a checkpoint, its whole shape, and the part of it that a
// rank has. Shape checks, generated weights, counts of parameters, memory plans and the loaders of all devices are
// loops over these plans.
//
// A plan is arithmetic on a config and on names: it reads no weights. model/weights/planned_values.h reads the small
// tensors. A new tensor needs a stem (families/stems.h), a role, and a line in layer_plan.cpp.
#pragma once

#include "dist/layout/shard.h"
#include "model/families/names.h"
#include "model/weights/rank_shard.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace entrodraft::model {

using Shape = std::vector<std::int64_t>;

// A tensor's purpose. Shapes are [outputs][inputs]; "own" heads and widths are the rank's.
enum class Role {
    // ---- matrices of a layer ----

    // Own query heads, then own key heads, then own value heads, then the gates of own query heads, if any. In latent
    // attention: the vector of queries, or own query heads; then the vector of keys and values with the rotated key. In
    // linear attention: for each own key head its query, key, values and the values' gates; then for each own key head
    // the steps and the decays of its value heads.
    qkv,
    output, // [hidden_size][own attended numbers]
    // Shapes: [own width][hidden_size], twice, and [hidden_size][own width]. Only gated MLPs have a gate. In a layer
    // with experts the three are the shared expert's.
    gate,
    up,
    down,
    query_up, // latent attention: own query heads, made of the vector of queries
    absorb,   // latent attention, one per own head, [rank][plain_dim]: turns a query into one for keys as cached
    expand,   // latent attention, one per own head, [value_dim][rank]: turns an attended vector into a value
    router,   // [n_experts][hidden_size], then one row for the shared expert's scale, if any; whole on each rank
    // One for each own expert, like gate, up and down.
    expert_gate,
    expert_up,
    expert_down,
    // Attention to a source. cross_key_value has own key heads, then own value heads.
    cross_query,
    cross_key_value,
    cross_output,

    // ---- matrices around the layers ----

    project_out, // [embedding_size][hidden_size]
    embedding,   // [own tokens][embedding_size]
    head,        // [own outputs][embedding_size]; absent where it is the embedding
    project_in,  // [hidden_size][embedding_size]
    // Matrices of a draft head (ModelConfig::fusion): fusion and skip are W and U; an LSTM cell has its input gate, its
    // candidate and its output gate.
    feature_projection,
    fusion,
    skip,
    cell,
    residual_block,
    residual_output,

    // ---- norms, [hidden_size] unless another shape is given ----

    attention_norm,
    mlp_norm,
    after_attention_norm,
    after_mlp_norm,
    query_norm,          // [head_dim], or [own query heads * head_dim]
    key_norm,            // [head_dim], or [own key heads * head_dim]
    query_down_norm,     // latent attention, [query_rank]
    key_value_down_norm, // latent attention, [rank]
    delta_norm,          // linear attention, [value_dim]
    cross_norm,
    embedding_norm,
    final_norm,
    feature_norm, // a draft head's, [feature_norm_size], several
    fused_embedding_norm,
    state_norm,
    sum_norm,
    cell_norm,

    // ---- other vectors ----

    sinks,             // [own query heads]
    router_correction, // [n_experts]
    convolution,       // linear attention, [own key heads][n_convolved][convolved_size()]
    decay_rates,       // linear attention, [own value heads]
    decay_bias,        // linear attention, [own value heads]
    positions,         // [max_positions + position_offset][hidden_size]
    relative_biases,   // [own query heads][2 max_distance + 1], by distance
    head_bias,         // [own outputs]
    count,
};

// A tensor as it is in a checkpoint.
struct StoredTensor {
    enum class Content { matrix, norm, plain_norm, vector }; // a plain norm is stored without the config's offset
    TensorNames names;
    Shape shape;      // of the weight
    Shape bias_shape; // of the bias and the second bias
    Content content = Content::matrix;
};

// Rows of a stored matrix, and of its bias. A tensor of all experts is one matrix of all their rows.
struct StoredSlice {
    const StoredTensor* tensor = nullptr;
    dist::Slice rows;
    std::int64_t step = 1; // between rows: rows.size() of them, from rows.begin on
};

// The parts of a matrix that ranks hold.
enum class Split {
    columns, // each rank has outputs of its own
    rows,    // each rank has inputs of its own; results are summed, so only one rank adds the bias
    whole,   // each rank has all of it
};

// The part of a matrix that a row of a pass reads.
enum class Reading { whole, chosen_experts, once_a_source };

struct PlannedMatrix {
    Role role = Role::qkv;
    std::vector<StoredSlice> rows = {}; // its outputs, one slice after another
    dist::Slice inputs = {};            // in each stored row
    bool transposed = false;            // stored [in, out]
    Split split = Split::columns;
    Reading reading = Reading::whole;
    bool adds_bias = true; // whether this rank adds the bias

    MatrixShape shape() const;
    bool has_bias() const; // on this rank
};

struct PlannedVector {
    Role role = Role::attention_norm;
    const StoredTensor* tensor = nullptr; // null: computed (sinusoidal positions)
    std::vector<dist::Slice> parts = {};  // of the stored numbers, and of the bias's; empty: all
    std::int64_t floats = 0;              // number of stored floats on this rank, with the bias
    // For a norm: its kind, the offset added to the stored weights, and the scale of weights and bias.
    Norm norm = Norm::rms;
    float epsilon = 0, offset = 0, scale = 1;
};

// A rank's part of a layer, of an expert, or of the tensors around the layers. If a role has several matrices or
// vectors (heads, cells, experts), they follow each other.
struct TensorPlan {
    std::vector<std::unique_ptr<const StoredTensor>> stored; // the tensors that the others point to
    std::vector<PlannedMatrix> matrices;
    std::vector<PlannedVector> vectors;

    std::int64_t floats() const;  // of vectors and biases
    std::int64_t numbers() const; // of matrices
};

// Plans embedding, head, and a draft head's tensors around its layers.
TensorPlan plan_outer(const ModelConfig& config, const ModelNames& names, const RankShard& shard);
// Plans a layer, without its experts.
TensorPlan plan_layer(const ModelConfig& config, const ModelNames& names, int layer, const RankShard& shard);
// Plans one expert of a layer that has experts. All experts have the same shapes.
TensorPlan plan_expert(const ModelConfig& config, const ModelNames& names, int layer, int expert,
                       const RankShard& shard);

// A set of layers whose plans differ only in the names.
struct LayerKind {
    int layer = 0; // the first layer of this kind
    std::int64_t count = 0;
    bool has_experts = false;
};
std::vector<LayerKind> layer_kinds(const ModelConfig& config);

// Returns the width of the rows from which a layer makes queries, keys and values.
int attention_input_size(const ModelConfig& config, int layer);

// Counts the numbers that a rank holds in float32: norms, biases and learned positions.
std::int64_t float_count(const ModelConfig& config, const RankShard& shard);
// Counts the parameters of a model and of its encoder; tied embeddings count once.
std::int64_t parameter_count(const ModelConfig& config);
// Counts the parameters that one token of a text reads: without the experts that it does not go through.
std::int64_t active_parameter_count(const ModelConfig& config);

// A device's tensors of a plan: matrices and vectors by role.
template <typename Matrix, typename Vector> class HeldTensors {
  public:
    // Each returns the first of a role, or an empty one where there is none.
    const Matrix& operator[](Role role) const { return first(all(role)); }
    const Vector& vector(Role role) const { return first(vectors(role)); }
    // Each returns all of a role.
    const std::vector<Matrix>& all(Role role) const { return matrices_[index_of(role)]; }
    const std::vector<Vector>& vectors(Role role) const { return vectors_[index_of(role)]; }
    void each_matrix(const auto& visit) const {
        for (const std::vector<Matrix>& of_role : matrices_)
            for (const Matrix& matrix : of_role)
                visit(matrix);
    }
    std::vector<Matrix>& all(Role role) { return matrices_[index_of(role)]; }
    std::vector<Vector>& vectors(Role role) { return vectors_[index_of(role)]; }

  private:
    static std::size_t index_of(Role role) { return static_cast<std::size_t>(role); }
    template <typename T> static const T& first(const std::vector<T>& of_role) {
        static const T none;
        return of_role.empty() ? none : of_role.front();
    }

    std::array<std::vector<Matrix>, static_cast<std::size_t>(Role::count)> matrices_;
    std::array<std::vector<Vector>, static_cast<std::size_t>(Role::count)> vectors_;
};

} // namespace entrodraft::model
