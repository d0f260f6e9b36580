#include "model/torch/encoder.h"

#include "model/pass/transformer.h"
#include "model/torch/ops.h"

#include <vector>

namespace entrodraft::model::torch {

namespace {

// The operations of run_encoder(), over a single chunk.
class TorchEncoderOps : public TorchOps {
  public:
    TorchEncoderOps(TorchWorkspace& workspace, const std::vector<TensorsByRole>& decoder_layers,
                    const KvCache::Shape& kept)
        : TorchOps(workspace), decoder_layers_(decoder_layers), kept_(kept) {}

    template <typename Function> void for_each_chunk(const Function& function) { function(); }
    Operand final_rows() const { return norm(workspace().weights.outer.vector(Role::final_norm)); }
    const std::vector<TensorsByRole>& decoder_layers() const { return decoder_layers_; }
    Operand source_rows() const { return {}; }

    void append_source(int, const Operand& key_value) {
        const at::Tensor heads =
            key_value.rows.view({n_rows(), 2, kept_.n_kv_heads, kept_.head_dim}).permute({1, 2, 0, 3});
        made_.push_back({heads.select(0, 0), heads.select(0, 1)});
    }
    const SourceKeysAndValues& made() const { return made_; }

    static void keep(const SourceKeysAndValues& made, const BookedTensors& sources, int number) {
        for (int layer = 0; layer < static_cast<int>(made.size()); ++layer)
            for (const int which : {0, 1}) {
                const at::Tensor& rows = made[index(layer)][index(which)];
                slot_numbers(sources, layer, which, number).narrow(1, 0, rows.size(1)).copy_(rows);
            }
    }

  private:
    const std::vector<TensorsByRole>& decoder_layers_;
    const KvCache::Shape& kept_;
    SourceKeysAndValues made_;
};

} // namespace

TorchEncoder::TorchEncoder(StoredTensors& stored, const DecoderSetup& setup, const at::TensorOptions& numbers,
                           const TensorWeights& decoder, dist::Communicator& tp)
    : config_(encoder_of(setup.config)), shard_(setup.encoder_shard), weights_(stored, config_, shard_, numbers, {}),
      decoder_(decoder), cache_(setup.encoder_layer, numbers),
      workspace_(config_, shard_, weights_,
                 config_.has_embedding() ? weights_.outer[Role::embedding] : decoder.outer[Role::embedding], cache_,
                 none_, tp),
      kept_(setup.sources) {}

SourceKeysAndValues TorchEncoder::read(std::span<const TokenId> source, bool in_training, dist::Deadline deadline) {
    std::vector<Row> rows;
    for (const TokenId token : source)
        rows.push_back({.token = token, .position = static_cast<int>(rows.size())});
    workspace_.layout.set_source(rows);
    workspace_.is_training = in_training;
    workspace_.deadline = deadline;
    TorchEncoderOps ops(workspace_, decoder_.layers, kept_);
    run_encoder(config_, ops);
    return ops.made();
}

void TorchEncoder::keep(std::span<const TokenId> source, const BookedTensors& sources, int to,
                        dist::Deadline deadline) {
    sources.books->truncate(to, 0);
    sources.books->append(to, static_cast<int>(source.size()));
    TorchEncoderOps::keep(read(source, false, deadline), sources, to);
}

} // namespace entrodraft::model::torch
