#include "model/cpu/encoder.h"

#include "model/cpu/ops.h"
#include "model/pass/transformer.h"

#include <algorithm>
#include <exception>

namespace entrodraft::model {
namespace {

// The operations of run_encoder(), over chunks of at most kMaxRows rows.
class CpuEncoderOps : public CpuOps {
  public:
    // The place where the keys and values of the source go.
    struct Target {
        const ModelWeights& weights; // of the decoder
        CpuWorkspace& workspace;
        KvCache& sources;
        int number = 0;
    };

    CpuEncoderOps(CpuWorkspace& workspace, const PassContext& context, std::span<const PassLayout> chunks,
                  const Target& target)
        : CpuOps(workspace, context), chunks_(chunks), target_(target) {}

    template <typename Function> void for_each_chunk(const Function& function) {
        for (const PassLayout& chunk : chunks_) {
            select(chunk, chunk.segments.front().cached);
            function();
        }
    }

    Operand final_rows() { return norm(workspace().weights.outer.vector(Role::final_norm)); }

    const std::vector<HeldWeights>& decoder_layers() const { return target_.weights.layers; }

    Operand source_rows() const {
        return {target_.workspace.qkv.as<float>(), decoder_layers().front()[Role::cross_key_value].y_stride(),
                n_rows()};
    }

    void append_source(int layer, Operand key_value) {
        context().barrier();
        const KvCache::Shape& shape = target_.sources.shape();
        const std::size_t dim = index(shape.head_dim);
        const dist::Slice mine = own_rows();
        for (auto r = static_cast<int>(mine.begin); r < mine.end; ++r) {
            for (int head = 0; head < shape.n_kv_heads; ++head) {
                const float* key = key_value.row(r) + index(head) * dim;
                target_.sources.put({layer, target_.number, head, first_row() + r}, key,
                                    key + index(shape.n_kv_heads) * dim);
            }
        }
        context().barrier();
    }

  private:
    std::span<const PassLayout> chunks_;
    Target target_;
};

// The decoder reports the progress of loading.
DecoderOptions without_progress(DecoderOptions options) {
    options.progress = {};
    return options;
}

} // namespace

CpuEncoder::CpuEncoder(const Checkpoint& checkpoint, const DecoderSetup& setup, const DecoderOptions& options,
                       ThreadTeam& team, const ModelWeights& decoder, KvCache& sources)
    : config_(encoder_of(setup.config)), shard_(setup.encoder_shard),
      weights_(checkpoint, config_, shard_, without_progress(options), team), decoder_(decoder), sources_(sources),
      cache_(setup.encoder_layer),
      workspace_(config_, shard_, weights_, cache_, team.size(),
                 {.n_rows = setup.sources.capacity,
                  .embedding = config_.has_embedding() ? VocabEmbedding{} : decoder.embedding()}) {}

void CpuEncoder::run(std::span<const TokenId> source, int to, PassContext context, CpuWorkspace& decoder) {
    const int n_tokens = static_cast<int>(source.size());
    std::vector<Row> rows;
    for (const TokenId token : source)
        rows.push_back({.token = token, .position = static_cast<int>(rows.size())});
    std::vector<PassLayout> chunks(index((n_tokens + kMaxRows - 1) / kMaxRows));
    for (std::size_t i = 0; i < chunks.size(); ++i)
        chunks[i].set_source(
            std::span(rows).subspan(i * kMaxRows, std::min(rows.size() - i * kMaxRows, index(kMaxRows))));
    cache_.truncate(0, 0);
    cache_.append(0, n_tokens);
    sources_.truncate(to, 0);
    sources_.append(to, n_tokens);
    workspace_.attention.cover(n_tokens - 1);
    std::exception_ptr failure;
    context.failure = &failure;
    context.team->run([&](int thread) {
        PassContext own = context;
        own.thread = thread;
        CpuEncoderOps ops(workspace_, own, chunks, {decoder_, decoder, sources_, to});
        run_encoder(config_, ops);
    });
    if (failure) std::rethrow_exception(failure);
}

} // namespace entrodraft::model
