#include "model/torch/encoder.h"

#include "model/torch/ops.h"
#include "model/transformer.h"

#include <vector>

namespace entrodraft::model::torch {

namespace {

// The operations of run_encoder(), over a single chunk.
class TorchEncoderOps : public TorchOps {
  public:
    // Where what is read goes.
    struct Target {
        const std::vector<TensorLayer>& layers; // of the decoder
        const BookedTensors& sources;
        int number = 0;
    };

    TorchEncoderOps(TorchWorkspace& workspace, const Target& target) : TorchOps(workspace), target_(target) {}

    template <typename Function> void for_each_chunk(const Function& function) { function(); }
    Operand final_rows() const { return norm(workspace().weights.final_norm); }
    const std::vector<TensorLayer>& decoder_layers() const { return target_.layers; }
    Operand source_rows() const { return {}; }

    void append_source(int layer, const Operand& key_value) {
        const KvCache::Shape& shape = target_.sources.books->shape();
        const at::Tensor heads = key_value.rows.view({n_rows(), 2, shape.n_kv_heads, shape.head_dim});
        for (const int which : {0, 1})
            put(slot_numbers(target_.sources, layer, which, target_.number), 0, heads.select(1, which));
    }

  private:
    Target target_;
};

} // namespace

TorchEncoder::TorchEncoder(StoredTensors& stored, const DecoderSetup& setup, const at::TensorOptions& numbers,
                           const TensorWeights& decoder, const BookedTensors& sources, dist::Communicator& tp)
    : config_(encoder_of(setup.config)), shard_(setup.encoder_shard), weights_(stored, config_, shard_, numbers, {}),
      decoder_(decoder), cache_(setup.encoder_layer, numbers), sources_(sources),
      workspace_(config_, shard_, weights_, config_.has_embedding() ? weights_.embedding : decoder.embedding, cache_,
                 none_, tp) {}

void TorchEncoder::run(std::span<const TokenId> source, int to, dist::Deadline deadline) {
    std::vector<Row> rows;
    for (const TokenId token : source)
        rows.push_back({.token = token, .position = static_cast<int>(rows.size())});
    workspace_.layout.set_source(rows);
    workspace_.deadline = deadline;
    sources_.books->truncate(to, 0);
    sources_.books->append(to, static_cast<int>(source.size()));
    TorchEncoderOps ops(workspace_, {decoder_.layers, sources_, to});
    run_encoder(config_, ops);
}

} // namespace entrodraft::model::torch
