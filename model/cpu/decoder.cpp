#include "model/cpu/decoder.h"

#include "model/cpu/encoder.h"
#include "model/cpu/ops.h"
#include "model/pass/transformer.h"

#include <numeric>
#include <stdexcept>

namespace entrodraft::model {

namespace {

KvCache::Shape with_type(KvCache::Shape shape, WeightType type) {
    shape.type = type;
    return shape;
}

class CpuDecoder final : public Decoder {
  public:
    CpuDecoder(const Checkpoint& checkpoint, const DecoderSetup& setup, const DecoderOptions& options,
               dist::Communicator& tp, ThreadTeam& team)
        : CpuDecoder(setup, options, tp, team,
                     std::make_shared<ModelWeights>(checkpoint, setup.config, setup.shard, options, team)) {
        if (sources_) encoder_ = std::make_unique<CpuEncoder>(checkpoint, setup, options, team, *weights_, *sources_);
    }
    CpuDecoder(const DecoderSetup& setup, const DecoderOptions& options, dist::Communicator& tp, ThreadTeam& team,
               std::shared_ptr<const ModelWeights> weights)
        : CpuDecoder(setup, options, kv_type_of(setup.config, options.weight_type, options.kv_type), tp, team,
                     std::move(weights), nullptr) {}
    CpuDecoder(const DecoderSetup& setup, const DecoderOptions& options, WeightType kv_type, dist::Communicator& tp,
               ThreadTeam& team, std::shared_ptr<const ModelWeights> weights, std::shared_ptr<KvCache> whole)
        : Decoder(setup, std::make_shared<KvCache>(with_type(setup.cache, kv_type))), tp_(tp), team_(team),
          kernels_(options.kernels ? *options.kernels : kernels::best_kernels()),
          timeout_seconds_(options.timeout_seconds), weights_(std::move(weights)),
          sources_(setup.sources.capacity > 0 ? std::make_unique<KvCache>(with_type(setup.sources, kv_type)) : nullptr),
          retrieves_own_(options.retrieval.chunks > 0 && !whole),
          chunks_(options.retrieval.chunks > 0
                      ? std::make_unique<RetrievedChunks>(std::move(whole), *cache_, options.retrieval,
                                                          config_.max_positions, team.size())
                      : nullptr),
          workspace_(config_, shard_, *weights_, *cache_, team.size(),
                     {.sources = sources_.get(), .chunks = chunks_.get()}) {}

    std::size_t weight_bytes() const override {
        return std::accumulate(unused_layers().begin(), unused_layers().end(), weights_->bytes_per_pass,
                               [](std::size_t bytes, const auto& layer) { return bytes - layer.bytes; });
    }
    double operations_per_row() const override {
        return std::accumulate(unused_layers().begin(), unused_layers().end(), weights_->operations_per_row,
                               [](double operations, const auto& layer) { return operations - layer.operations; });
    }

    std::unique_ptr<Decoder> over_same_weights(const ModelConfig& config,
                                               const DecoderOptions& options) const override {
        if (config.has_encoder()) return Decoder::over_same_weights(config, options);
        return std::make_unique<CpuDecoder>(lay_out_decoder(config, options, tp_.rank(), tp_.size()), options,
                                            cache_->shape().type, tp_, team_, weights_, cache_);
    }
    bool retrieves_own() const override { return retrieves_own_; }
    bool reads_from_within() const override { return config_.n_linear_layers() == 0 && !config_.has_encoder(); }

    PassResult forward(const Pass& pass) override {
        if (pass.needs.extension != nullptr) throw std::invalid_argument("a pass on a CPU has no extension on a GPU");
        workspace_.begin_pass(pass, *cache_);
        require_sources(pass.rows);
        std::exception_ptr failure;
        const auto deadline = dist::Deadline::after_seconds(timeout_seconds_);
        team_.run([&](int thread) {
            CpuOps ops(workspace_, {&kernels_, &team_, &tp_, deadline, thread, pass.is_prompt, nullptr, &failure});
            run_transformer(config_, ops);
        });
        if (failure) std::rethrow_exception(failure);
        for (const Segment& segment : workspace_.layout.segments)
            cache_->append(segment.slot, segment.end - segment.begin);
        workspace_.merge_summaries();
        const std::size_t stride = index(weights_->head().n_padded());
        return {{workspace_.logits.as<float>(), pass.logit_rows.size() * stride},
                stride,
                workspace_.summaries,
                {},
                workspace_.hidden};
    }

  private:
    std::span<const ModelWeights::LayerWork> unused_layers() const {
        return std::span(weights_->layer_work).subspan(index(config_.n_layers));
    }
    void read_source(int number, std::span<const TokenId> source) override {
        encoder_->run(source, number, {&kernels_, &team_, &tp_, dist::Deadline::after_seconds(timeout_seconds_)},
                      workspace_);
    }

    dist::Communicator& tp_;
    ThreadTeam& team_;
    const kernels::Kernels& kernels_;
    double timeout_seconds_;
    std::shared_ptr<const ModelWeights> weights_; // all layers; config() may have only the first ones
    std::unique_ptr<KvCache> sources_;            // for a model with an encoder, like encoder_
    bool retrieves_own_;
    std::unique_ptr<RetrievedChunks> chunks_; // null: none
    CpuWorkspace workspace_;
    std::unique_ptr<CpuEncoder> encoder_;
};

} // namespace

std::unique_ptr<Decoder> load_cpu_decoder(const Checkpoint& checkpoint, const ModelConfig& config,
                                          const DecoderOptions& options, dist::Communicator& tp, ThreadTeam& team) {
    if (options.weight_type == WeightType::float8)
        throw std::invalid_argument("float8 weights are for GPUs; CPUs have int8 and int4");
    if (config.quantization && (options.weight_type == WeightType::int8 || options.weight_type == WeightType::int4))
        throw std::invalid_argument("the checkpoint is quantised already: leave --dtype " +
                                    to_string(options.weight_type) + " out; its other matrices have auto's type");
    return std::make_unique<CpuDecoder>(checkpoint, prepare_decoder(checkpoint, config, options, tp), options, tp,
                                        team);
}

} // namespace entrodraft::model
