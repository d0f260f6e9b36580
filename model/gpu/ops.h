// The operations of model/pass/transformer.h as kernels on a stream.
//
// A sum that is to be added to the residual stream stays separate until something reads the stream. The next norm then
// adds it in the same kernel, which also adds up the ranks' parts of the sum. Called by gpu/decoder.
#pragma once

#include "dist/comm/communicator.h"
#include "model/gpu/delta_net.h"
#include "model/gpu/kernels.h"
#include "model/gpu/memory.h"
#include "model/gpu/pass_table.h"
#include "model/gpu/prompt_products.h"
#include "model/gpu/summed_array.h"
#include "model/gpu/weights.h"
#include "model/pass/decoder.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace entrodraft::model::gpu {

// The parts that only some decoders have.
struct GpuTextShape {
    int n_rows = 0;                          // of x and qkv; an encoder's are those of its longest source; 0: max_rows
    const DeviceMatrix* embedding = nullptr; // null: the weights' own
    CacheView sources = {};                  // keys and values of sources that a decoder's rows attend to
    StatesView states = {};                  // for linear attention
};

// The state that the passes of a decoder or an encoder share on the device: the model and the activations.
struct GpuWorkspace {
    // The arguments outlive this object. Throws dist::Error, dist::Timeout.
    GpuWorkspace(const ModelConfig& config, const RankShard& shard, const DeviceWeights& weights,
                 const CacheView& cache, dist::Communicator& tp, const Stream& stream, const DecoderOptions& options,
                 const GpuTextShape& text = {});

    // Makes the arrays that need all ranks, before the first pass. Collective over tp.
    void make_summed(dist::Deadline deadline);
    // Sums [rows][width] over the ranks, in an order that tp chooses. For prompts, whose rows always lie in the same
    // place, and for sums in which at most two ranks have anything but zeros. Collective over tp.
    void sum_over_ranks(float* data, int rows, int width) const;
    int outputs() const { return static_cast<int>(shard.outputs.size()); } // number of this rank's logits

    const ModelConfig& config;
    const RankShard& shard;
    const DeviceWeights& weights;
    const DeviceMatrix& embedding;
    CacheView cache, sources;
    StatesView states;
    dist::Communicator& tp;
    const Stream& stream;
    int max_rows;    // in any pass
    int n_text_rows; // rows of x and qkv
    bool adds_parts; // sums of delta are gathered; the kernel that adds them to x adds them up in rank order
    std::size_t fast_gather_bytes; // up to that many bytes per rank, sums are always gathered

    struct Angles {
        DeviceArray<float> cosines, sines; // [max_positions][rotary dims / 2] or empty
    };
    Angles angles, local_angles;             // for Rope, by LayerRope
    DeviceArray<float> slopes;               // ALiBi, [own query heads] or empty
    DeviceArray<std::int32_t> kv_heads;      // [own query heads]: the own key head of each
    DeviceArray<std::int32_t> output_tokens; // ModelConfig::output_tokens of this rank
    // For QueryKeyNorm::row, as in SquaresCall.
    DeviceArray<std::int32_t> counts_head; // [own key heads]
    SummedArray squares;                   // [max_rows][2]
    SummedArray square_parts;              // [ranks][kMaxRows][2]
    // [max_rows], for rows of a source: they have no prefix in another slot and no trees.
    DeviceArray<std::int32_t> no_prefix_lengths, no_mask_begins;
    // float32, [max_rows][...]
    SummedArray x;                    // [hidden_size], n_text_rows rows: the residual stream
    SummedArray delta;                // [hidden_size] or [embedding_size]: is added to x later
    SummedArray parts;                // [ranks][kMaxRows][hidden_size]: the delta of each rank
    DeviceArray<float> normed_delta;  // [hidden_size], for Block::sandwich and inner_norm
    DeviceArray<float> logits;        // [kMaxRows][own outputs]
    DeviceArray<float> features;      // of a draft head's pass: fusion.width() or [hidden_size]
    DeviceArray<float> projected;     // [projected_size()]: features after their projection, or the gates of a cell
    DeviceArray<float> states_read;   // DeltaNetCall::read of linear attention
    DeviceArray<float> parts_of_keys; // attend's workspace
    DeviceArray<int> arrived;         // also attend's workspace
    // In the weights' number type, [max_rows][width rounded up to kLinearAlign]
    DeviceBytes normed;   // hidden_size
    DeviceBytes embedded; // embedding_size, for a narrower embedding
    DeviceBytes qkv;      // own query heads, key heads, value heads, of n_text_rows; or what Role::qkv says
    DeviceBytes attended; // own query heads * attended_dim(), or own value heads * value_dim of linear attention
    // For latent attention: the vector of queries, own query heads * head_dim, own query heads * head_stride of the
    // cache, own query heads * value_dim().
    DeviceBytes query_vectors, queries, absorbed, latent_attended;
    DeviceBytes wide, inner;           // own part of the MLP's width: a prompt's gate and up, and the activated result
    DeviceBytes ordered;               // inputs of a matrix with an order, as wide as the widest
    DeviceBytes wide_features, joined; // for a draft head: feature_numbers(), and joined_size() or residual_size
    // For layers with experts, as ChooseExperts has them.
    DeviceArray<float> router_products; // [max_rows][n_experts, and the shared one's scale]
    DeviceArray<std::int32_t> chosen, expert_begin, live_experts, pairs, pair_rows;
    DeviceArray<float> expert_weights, expert_outputs; // outputs: [pairs][hidden_size]
    DeviceBytes expert_inner;                          // [pairs][own part of an expert's width]

  private:
    DeviceBytes rows_of(int rows, int width) const; // in the weights' number type
    void make_buffers_of_some();                    // for latent and linear attention, experts and draft heads
    void upload_tables(double timeout_seconds);     // tables that passes only read. Throws dist::Timeout.
};

class GpuOps {
  public:
    struct Operand { // [n_rows][width rounded up to kLinearAlign], in the weights' number type
        void* data = nullptr;
        int n_rows = 0;
    };
    struct Product {
        const DeviceMatrix& matrix;
        Operand from;
    };
    struct Features { // [rows][width], float32
        float* data = nullptr;
        int width = 0;
    };
    struct Extent {
        int logit_rows = 0;                              // padded
        const PromptProducts* prompt_products = nullptr; // for a prompt's chunk
        // For linear attention: the pass's segments, and DeltaNetCall::saved.
        DeltaTable segments = {};
        float* saved_states = nullptr;
    };

    // `rows` and `logit_rows`, the rows that need logits, lie on the device. So does `hidden`, which receives the
    // hidden states that `pass` asks for: [hidden_layers][rows][hidden_size].
    GpuOps(GpuWorkspace& workspace, const RowTable& rows, const std::int32_t* logit_rows, const Extent& extent,
           const Pass& pass, float* hidden)
        : w_(workspace), rows_(rows), logit_rows_(logit_rows), extent_(extent), pass_(pass), hidden_(hidden) {}

    // See transformer.h. embed, norm_queries_and_keys, add, add_experts and add_normed are collective over tp.
    const DeviceWeights& weights() const { return w_.weights; }
    Operand qkv() const { return {w_.qkv.data() + index(first_row_) * qkv_row_bytes(), rows_.rows}; }
    Operand embedded() const { return {w_.embedded.data(), rows_.rows}; }
    void embed();
    Operand norm(const DeviceNorm& norm) { return rounded(norm_call(x(), norm), w_.normed); }
    Operand read_residual() { return norm({}); } // in the number type
    void norm_residual(const DeviceNorm& norm);
    Operand column_linear(const DeviceMatrix& matrix, Operand from, Operand to);
    void norm_queries_and_keys(const DeviceTensors& layer, Operand qkv);
    void rotate_and_append(int layer, Operand qkv);
    Operand latent_queries(const DeviceTensors& layer, Operand vectors);
    void append_latent(int layer, Operand vectors);
    Operand absorb(int layer, Operand queries);
    Operand expand(int layer, Operand attended);
    Operand attend(int layer, Operand qkv);
    Operand delta_net(int layer, Operand projected);
    Operand gate_attended(Operand attended, Operand qkv);
    Operand attend_source(int layer, Operand query);
    Operand feed_forward(const DeviceTensors& layer, Operand from);
    void choose_experts(const DeviceTensors& layer, Operand from);
    void add_experts(const DeviceTensors& layer, Operand from);
    void add(std::initializer_list<Product> products);
    void add_normed(Product product, const DeviceNorm& norm);
    void keep_hidden(int layers_done) { keep_hidden(layers_done, {}); }
    bool has_features() const { return !pass_.features.empty(); }
    Features features();
    Operand joined() const { return {w_.joined.data(), rows_.rows}; }
    Operand join(Features features);
    void fuse(Operand joined) { multiply(into_x({w_.weights.outer[Role::fusion], joined})); }
    void fuse_activated(Operand joined);
    void add_features(Features features);
    void replace_residual(Features features);
    void lstm_cell(Features gates);
    void lstm_output(Features gates);
    void run_cell(const DeviceMatrix& cell, Operand from);
    void add_feed_forward(const DeviceMatrix& in, const DeviceMatrix& out);
    void add_activated(const DeviceMatrix& block) { add_activated({block, read_residual()}); }
    Operand final_norm();
    void head(Operand from);

  protected:
    // From now on the rows are a chunk of a text. Its first row is row `first_row` of x and qkv.
    void select(const RowTable& rows, int first_row) {
        rows_ = rows;
        first_row_ = first_row;
    }
    void add_pending();
    const RowTable& rows() const { return rows_; }
    GpuWorkspace& workspace() const { return w_; }
    void* handle() const { return w_.stream.handle(); }

  private:
    float* x() const { return w_.x.data() + index(first_row_) * index(w_.config.hidden_size); }
    std::size_t qkv_row_bytes() const { // for an encoder, whose layers are alike
        return index(aligned(w_.weights.layers.front()[Role::qkv].n)) * bytes_of(w_.weights.type);
    }
    Operand attend(AttendCall call, const RowTable& rows);
    Linear linear_call(const DeviceMatrix& matrix, Operand from) const;
    void multiply(const Linear& call) const;
    HeadRows heads(int layer, Operand qkv) const;
    // For latent attention: the queries, which replace the vectors that they are made from, and the stride of their
    // rows.
    Operand queries_of(Operand vectors) const;
    int query_stride() const;
    HeadLinear head_call(const DeviceMatrix& matrices, Operand from) const;
    bool gathers_sum_of(int width) const;
    // Number of rows in a message that NCCL sums.
    int summed_rows() const { return w_.adds_parts && extent_.logit_rows == 0 ? w_.max_rows : rows_.rows; }
    void multiply_into_delta(const Product& product, bool add);
    Linear into_x(const Product& product) const;
    LstmCall lstm_call(Features gates) const;
    void add_activated(const Product& product);
    void sum_delta();
    NormCall norm_call(float* x, const DeviceNorm& norm);
    NormCall rows_call(float* x, int width, const DeviceNorm& norm) const;
    void keep_hidden(int layer, const DeviceNorm& norm);
    Operand rounded(NormCall call, const DeviceBytes& to);

    GpuWorkspace& w_;
    RowTable rows_;
    int first_row_ = 0; // of x and qkv
    const std::int32_t* logit_rows_;
    Extent extent_;
    const Pass& pass_;
    float* hidden_;
    // The sum that is not yet added to x, or has yet to become delta, as in NormCall; null if there is none.
    const float* pending_ = nullptr;
    int n_pending_parts_ = 0;
};

} // namespace entrodraft::model::gpu
