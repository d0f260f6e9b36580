#include "model/gpu/encoder.h"

#include "model/pass/transformer.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace entrodraft::model::gpu {

namespace {

const Pass kNoPass = {.rows = {}}; // without features and hidden states

// The operations of run_encoder(), over the rows of a source's chunks.
class GpuEncoderOps : public GpuOps {
  public:
    // The place where the keys and values of the source go.
    struct Target {
        GpuWorkspace& decoder;
        CacheView sources;
    };

    GpuEncoderOps(GpuWorkspace& workspace, std::span<const RowTable> chunks, const PromptProducts* products,
                  const Target& target)
        : GpuOps(workspace, chunks.front(), nullptr, {.prompt_products = products}, kNoPass, nullptr), chunks_(chunks),
          target_(target) {}

    template <typename Function> void for_each_chunk(const Function& function) {
        int chunk = 0;
        for (const RowTable& rows : chunks_) {
            select(rows, chunk++ * workspace().max_rows);
            function();
            add_pending(); // the next chunk reuses the place of the sums
        }
    }

    Operand final_rows() { return norm(workspace().weights.outer.vector(Role::final_norm)); }
    const std::vector<DeviceTensors>& decoder_layers() const { return target_.decoder.weights.layers; }
    Operand source_rows() const { return {target_.decoder.qkv.data(), rows().rows}; }

    void append_source(int layer, Operand key_value) {
        RowTable to = rows();
        to.slots = to.source_slots;
        const int stride = aligned(decoder_layers()[index(layer)][Role::cross_key_value].n);
        place_keys(handle(), to, {{target_.sources, layer, key_value.data, stride, 0}});
    }

  private:
    std::span<const RowTable> chunks_;
    Target target_;
};

} // namespace

GpuEncoder::GpuEncoder(const Checkpoint& checkpoint, const DecoderSetup& setup, const DecoderOptions& options,
                       GpuWorkspace& decoder, const BookedCache& sources, PromptProducts* products)
    : config_(encoder_of(setup.config)), shard_(setup.encoder_shard),
      weights_(checkpoint, config_, shard_, decoder.weights.type, options.weight_type, {}), decoder_(decoder),
      sources_(sources), products_(products), cache_(decoder.weights.type, setup.encoder_layer, decoder.stream),
      workspace_(config_, shard_, weights_, cache_.view, decoder.tp, decoder.stream, options,
                 {.n_rows = text_rows(setup.sources.capacity),
                  .embedding = config_.has_embedding() ? nullptr : &decoder.embedding}) {
    const std::size_t n_chunks = index((setup.sources.capacity - 1) / workspace_.max_rows + 1);
    host_tables_ = PinnedArray<PromptTable>(n_chunks);
    tables_ = DeviceArray<PromptTable>(n_chunks);
    if (products != nullptr) products->add(weights_);
}

// Returns the padded number of rows of a chunk.
int GpuEncoder::padded_rows(std::size_t tokens) const {
    return std::max(static_cast<int>(std::bit_ceil(tokens)), products_ != nullptr ? PromptProducts::kMinRows : 1);
}

// Returns the number of rows of a source with that many tokens, with the padding of its last chunk.
int GpuEncoder::text_rows(int tokens) const {
    const int max_rows = decoder_.max_rows, before = (tokens - 1) / max_rows * max_rows;
    return before + padded_rows(index(tokens - before));
}

void GpuEncoder::enqueue(std::span<const TokenId> source, int to, dist::Deadline deadline) {
    const int length = static_cast<int>(source.size()), max_rows = workspace_.max_rows;
    std::vector<RowTable> chunks;
    for (int first = 0; first < length; first += max_rows) {
        const auto chunk = source.subspan(index(first), index(std::min(max_rows, length - first)));
        const int padded = padded_rows(chunk.size());
        host_tables_.data()[chunks.size()].fill_source(chunk, first, length, to, padded);
        chunks.push_back(tables_.data()[chunks.size()].table(padded, nullptr, 0));
    }
    copy(workspace_.stream, tables_.data(), host_tables_.data(), chunks.size() * sizeof(PromptTable));
    workspace_.make_summed(deadline);
    sources_.books->truncate(to, 0);
    sources_.books->append(to, length);
    GpuEncoderOps ops(workspace_, chunks, products_, {decoder_, sources_.view});
    run_encoder(config_, ops);
}

} // namespace entrodraft::model::gpu
