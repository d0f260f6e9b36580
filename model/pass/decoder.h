// The one forward pass of a transformer, on this rank's shard of it: of the decoder, which a model with an encoder
// gives the source first.
//
// A pass is a list of rows. Each row is a token at a position of a sequence; its parent says which row of
// the same pass it follows (-1: it follows what the cache holds). So single, batched, ragged and chunked
// passes, and token trees, are one code. A row's result never depends on the rows computed beside it. The order of a
// pass's operations is in transformer.h. Called by the model drafter, by the round (score) and by the benches.
#pragma once

#include "dist/comm/communicator.h"
#include "dist/layout/shard.h"
#include "model/families/config.h"
#include "model/files/checkpoint.h"
#include "model/pass/kv_cache.h"
#include "model/pass/logit_needs.h"
#include "model/pass/logit_stats.h"
#include "model/pass/pass_rows.h"
#include "model/text/token_id.h"
#include "model/weights/rank_shard.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace entrodraft::model {

namespace kernels {
struct Kernels;
}

struct Row {
    TokenId token = 0;
    int slot = 0;     // whose cache it reads and extends
    int position = 0; // rotary position
    int parent = -1;  // row it follows, of Pass::cached_nodes and then of this pass; -1: the cached prefix
};

// Which keys a row attends to.
enum class Mask {
    causal,    // the cached prefix and all rows of its slot up to itself: a chain
    by_parent, // the cached prefix and its ancestors, in this pass or in Pass::cached_nodes: a tree
};

// Of a slot whose cache keeps a part of its text: its chunks (RetrievalOptions) become the best ones of the text's
// positions in front of `end`, by the attention of the slot's last row in the pass.
struct Retrieval {
    int slot = 0;
    int begin = 0; // chunks in front of it are as they were in the slot's last retrieval; 0: all are new
    int end = 0;
};

struct Pass {
    std::span<const Row> rows;       // rows of one slot are contiguous, in order
    std::span<const int> logit_rows; // which rows need logits; empty: none
    // After which layers to return hidden states; 0: the embedding, or an LSTM's cell. Of a draft head n_layers + 1:
    // after the final norm, of rows with logits.
    std::span<const int> hidden_layers;
    Mask mask = Mask::causal;
    // Rows of a slot lie in blocks of so many, counted from its first one here; each attends as the last of its block.
    int block_rows = 1;
    LogitNeeds needs = {};
    int summary_vocab = 0; // tokens that count in it, from the first of the vocabulary; 0: all
    // A chunk of a prompt: causal rows of one slot, in order, without logits. It begins at a multiple of
    // max_prompt_rows() and may have as many rows. Its rows may be rounded otherwise than those of other passes, by
    // their tokens and positions alone: not by how the prompt ends, nor by what else is decoded.
    bool is_prompt = false;
    // Of a draft head, [rows][ModelConfig::fusion.width()]: hidden states of its target, one after another, that the
    // rows are fused with; or, where they are the head's own, [rows][hidden_size]. Of Fusion::context none: the rows
    // are tokens, else they are states, without logits and hidden states.
    std::span<const float> features = {};
    bool features_are_own = false;
    // Rows of earlier passes that belong to the same trees, slot by slot as in `rows`: the last positions of the slots'
    // caches. Of Mask::by_parent alone.
    std::span<const Row> cached_nodes = {};
    std::span<const Retrieval> retrievals = {}; // before the rows attend
};

struct PassResult {
    // [logit_rows.size()][logits_stride], of which the first local_vocab().size() count: this rank's slice of
    // the vocabulary. Valid until the next pass. May be empty where they are not wanted.
    std::span<const float> logits;
    std::size_t logits_stride = 0;
    // [logit_rows.size()], of this rank's slice; indices are token ids. Empty where none is asked for. Where an
    // extension made the device go on by itself, as many as there were rows: those after the first follow the best
    // token of the one before, and their tokens, all but the last's best, are in the cache.
    std::span<const LogitStats> summaries;
    std::span<const NoisyToken> noisy; // as many; empty where there was no noise, or the logits are to be looked at
    // [hidden_layers.size()][rows.size()][hidden_size]; valid until the next pass.
    std::span<const float> hidden;
    // Of a draft head, where an extension made the device go on by itself: its one hidden layer's states of the rows
    // that the device made, [rows][hidden_size].
    std::span<const float> loop_hidden = {};
};

// How GPUs sum what their shards make of a row. automatic: in rank order, by all-reduce where that adds so (two ranks),
// else by an all-gather and a kernel. all_reduce: in NCCL's order, by which a row's bits depend on the rows beside it
// where there are more than two ranks.
enum class TensorParallelSum { automatic, all_reduce, ordered };

// Chunks of a text that a cache with kept_positions has behind its first ones.
struct RetrievalOptions {
    static constexpr int kChunk = 8;                                  // positions
    int sinks = 0;                                                    // first positions, which stay
    int chunks = 0;                                                   // behind them; 0: none
    int first_chunk() const { return (sinks + kChunk - 1) / kChunk; } // of the text, that can be retrieved
};

// Whole numbers of so many bits that activations are rounded to in front of weights of 8 bits or fewer, on CPUs: 32
// inputs under a scale. automatic: 8 bits.
enum class ActivationType { automatic, int24, int16, int8 };
int bytes_of(ActivationType type);
std::string to_string(ActivationType type); // of automatic what it stands for

struct DecoderOptions {
    WeightType weight_type = WeightType::float32;
    ActivationType activations = ActivationType::automatic;
    std::optional<WeightType> kv_type = {}; // of a CPU's keys and values: see kv_type_of
    int n_slots = 1;
    int capacity = 0;       // positions a slot; 0: the model's max_positions
    int kept_positions = 0; // of a slot at once, where its older ones are dropped (KvCache::keep); 0: all
    RetrievalOptions retrieval = {};
    int tree_positions = 0;  // more a slot, for the branches of trees that stay in the cache
    int tree_room = 0;       // more a slot, for a round's tree: it has more nodes than its text has positions left
    int source_capacity = 0; // tokens of a source; 0: what its encoder takes
    double timeout_seconds = dist::kDefaultTimeoutSeconds; // of every collective
    const kernels::Kernels* kernels = nullptr;             // of a CPU; null: the fastest it can run
    TensorParallelSum sum = TensorParallelSum::automatic;  // of a GPU
    std::int64_t max_whole_embedding = kMaxWholeEmbedding; // bytes, of a GPU
    std::function<void(std::size_t done, std::size_t total)> progress =
        {}; // bytes; while weights are read; may be empty
};

// The token ids whose rows of embedding and head rank `tp_rank` holds: whole units of 64, earlier ranks the larger
// parts.
dist::Slice vocab_slice(const ModelConfig& config, int tp_rank, int tp_size);

// What a model has that of our kernels only the CPU's compute so far, as "an encoder"; empty: nothing.
std::string what_needs_cpu(const ModelConfig& config);
// The same of what the torch backend does not compute.
std::string what_torch_lacks(const ModelConfig& config);
// What --dtype auto is: as the file has it; beside its codes GPUs have 16 bits.
WeightType automatic_type(const ModelConfig& config, bool on_gpu);

// Names what CPUs keep of a text in float32 whatever is asked for, as "the states of linear attention"; empty: nothing.
std::string what_stays_float32(const ModelConfig& config);
// The type of keys and values on a CPU. `asked`: float32, bfloat16, float16, int8, or none: float32 beside weights of
// float32 and of what_stays_float32(), else float16, which is a hundred times nearer to float32 than bfloat16.
WeightType kv_type_of(const ModelConfig& config, WeightType weights, std::optional<WeightType> asked);

// Of linear attention, what a rank keeps of each slot; no layers: the model has none.
RecurrentStates::Shape recurrent_shape(const ModelConfig& config, const RankShard& shard, int tree_positions);

// What a decoder of any device is made of, before its weights are read.
struct DecoderSetup {
    ModelConfig config; // of the weights as they are stored; no longer a context than the cache holds
    RankShard shard;
    KvCache::Shape cache; // in float32, as the next: a CPU's decoder chooses its own types
    // Of a model with an encoder, else empty.
    RankShard encoder_shard = {};
    KvCache::Shape sources = {};       // keys and values of all layers of the decoder
    KvCache::Shape encoder_layer = {}; // of a layer of the encoder, of one source
};
// The shapes for these options. Throws std::invalid_argument.
DecoderSetup lay_out_decoder(const ModelConfig& config, const DecoderOptions& options, int tp_rank, int tp_size);
// Checks the checkpoint's shapes. A head that is stored beside the embedding, with other values, is used even where
// `config` ties the two: the setup's does not. Throws BadFile, std::invalid_argument (sizes that would work).
DecoderSetup prepare_decoder(const Checkpoint& checkpoint, const ModelConfig& config, const DecoderOptions& options,
                             const dist::Communicator& tp);

// A rank's shard of a model on some device: cpu/decoder.h, gpu/decoder.h.
class Decoder {
  public:
    virtual ~Decoder() = default;
    Decoder& operator=(const Decoder&) = delete;

    const ModelConfig& config() const { return config_; }
    KvCache& cache() { return *cache_; }
    // Positions of a slot beyond the context: what DecoderOptions has for trees.
    std::size_t tree_room() const {
        return static_cast<std::size_t>(std::max(0, cache_->shape().capacity - config_.max_positions));
    }
    // This rank's token ids: logits[.][i] belongs to token local_vocab().begin + i. Of a draft that knows fewer
    // tokens, places in ModelConfig::output_tokens.
    dist::Slice local_vocab() const { return shard_.outputs; }
    virtual std::size_t weight_bytes() const = 0; // read by a pass of one row on this rank
    virtual double
    operations_per_row() const = 0; // multiply-adds times two of a row on this rank, attention not counted
    static constexpr int kMaxRows = model::kMaxRows; // of a pass that is not a chunk of a prompt
    int max_rows() const { return kMaxRows; }
    // Of a pass that is a prompt's chunk. The same on all ranks that hold the model.
    virtual int max_prompt_rows() const { return kMaxRows; }

    // A line for the user about how it computes; empty: nothing to say.
    virtual std::string note() const { return {}; }

    // Computes the rows, writes their keys and values at the end of their slots and appends them to the cache.
    // Throws std::invalid_argument on rows that break the contract above. Collective over the ranks that hold the
    // model.
    virtual PassResult forward(const Pass& pass) = 0;

    // Of a model with an encoder: reads a source of 1 to max_source() tokens, whose keys and values the passes of the
    // slot attend to until it is given another. Slots forked or shared from it afterwards attend to it too. The slot
    // must be empty. Throws std::invalid_argument. Collective over the ranks that hold the model.
    virtual void encode(int slot, std::span<const TokenId> source);
    int max_source() const { return max_source_; } // 0: it takes none

    // A decoder over the same weights, with a cache of its own. `config` is first_layers() of this one's, all or some.
    // Chunks are retrieved from this one's cache, whose slots then hold the same texts. On CPUs alone, of a model
    // without an encoder; else throws std::logic_error.
    virtual std::unique_ptr<Decoder> over_same_weights(const ModelConfig& config, const DecoderOptions& options) const;

    // Whether chunks are retrieved from what its own passes have written, so that these must read all of a text.
    virtual bool retrieves_own() const { return false; }
    // Whether a pass may go on with a text whose first tokens it has never read.
    virtual bool reads_from_within() const { return false; }

    // KvCache::keep, wherever the sequence's keys and values are.
    virtual void keep(int slot, int length, std::span<const int> path) { cache_->keep(slot, length, path); }

  protected:
    // Keeps the keys and values of a source that encode() has checked as number `number` of KvCache::source().
    virtual void read_source(int number, std::span<const TokenId> source);
    // Of a pass over a model with an encoder: throws std::invalid_argument where a row's slot has no source.
    void require_sources(std::span<const Row> rows) const;

    Decoder(const DecoderSetup& setup, std::shared_ptr<KvCache> cache)
        : config_(setup.config), shard_(setup.shard), cache_(std::move(cache)), max_source_(setup.sources.capacity) {}
    Decoder(const Decoder&) = default; // of a decoder that adds something to another, over the same cache

    ModelConfig config_;
    RankShard shard_;
    std::shared_ptr<KvCache> cache_;
    int max_source_ = 0;
};

} // namespace entrodraft::model
