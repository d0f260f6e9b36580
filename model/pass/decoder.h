// The forward pass of a transformer, on this rank's shard of it. If the model has an encoder, encode() reads the source
// first.
//
// A pass is a list of rows. Each row is a token at a position of a sequence. Its parent says which row of the same pass
// it follows (-1: it follows the cached prefix). So single, batched, ragged and chunked passes, and token trees, share
// one code. A row's result never depends on the other rows of the pass. transformer.h has the order of a pass's
// operations. The model drafter, the round (score) and the benches call it.
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
    int slot = 0;     // slot whose cache it reads and extends
    int position = 0; // rotary position
    int parent = -1;  // row it follows, of Pass::cached_nodes and then of this pass; -1: the cached prefix
};

// The keys that a row attends to.
enum class Mask {
    causal,    // the cached prefix and all rows of its slot up to itself: a chain
    by_parent, // the cached prefix and its ancestors, in this pass or in Pass::cached_nodes: a tree
};

// The cache of such a slot keeps a part of its text. Its chunks (RetrievalOptions) become the best chunks of the text's
// positions before `end`, by the attention of the slot's last row in the pass.
struct Retrieval {
    int slot = 0;
    int begin = 0; // chunks before it stay as in the slot's last retrieval; 0: all are new
    int end = 0;
};

struct Pass {
    std::span<const Row> rows;            // rows of one slot are contiguous, in order
    std::span<const int> logit_rows = {}; // which rows need logits; empty: none
    // Layers after which to return hidden states; 0: the embedding, or an LSTM's cell. In a draft head, n_layers + 1
    // means after the final norm, for rows with logits.
    std::span<const int> hidden_layers = {};
    Mask mask = Mask::causal;
    // Rows of a slot lie in blocks of this size, counted from its first row here. Each attends as its block's last row.
    int block_rows = 1;
    LogitNeeds needs = {};
    int summary_vocab = 0; // number of tokens, from the first of the vocabulary, that count in it; 0: all
    // The pass is a chunk of a prompt: causal rows of one slot, in order, without logits. It begins at a multiple of
    // max_prompt_rows() and has at most that number of rows. Its rounding may differ from other passes. It then depends
    // only on tokens and positions, not on the prompt's end or on other sequences.
    bool is_prompt = false;
    // For a draft head, [rows][ModelConfig::fusion.width()]: the target's hidden states, one after another, that the
    // rows are fused with. If they are the head's own states: [rows][hidden_size]. For Fusion::context, rows are tokens
    // if this is empty; else they are states, without logits and hidden states.
    std::span<const float> features = {};
    bool features_are_own = false;
    // Rows of earlier passes that belong to the same trees, slot by slot as in `rows`. They are the last positions of
    // the slots' caches. Only with Mask::by_parent.
    std::span<const Row> cached_nodes = {};
    std::span<const Retrieval> retrievals = {}; // done before the rows attend
};

struct PassResult {
    // [logit_rows.size()][logits_stride]; the first local_vocab().size() of each row count: this rank's slice of the
    // vocabulary. Valid until the next pass. May be empty where the logits are not wanted.
    std::span<const float> logits;
    std::size_t logits_stride = 0;
    // [logit_rows.size()], of this rank's slice; indices are token ids. Empty where none is asked for. If an extension
    // made the device continue by itself, there is one for each of its rows. Each row then follows the best token of
    // the row before it. The rows' tokens are in the cache, but not the last row's best token.
    std::span<const LogitStats> summaries;
    std::span<const NoisyToken> noisy; // same size; empty where there was no noise, or the logits are to be looked at
    // [hidden_layers.size()][rows.size()][hidden_size]; valid until the next pass.
    std::span<const float> hidden;
    // For a draft head, if an extension made the device continue by itself: states of its one hidden layer for the rows
    // that the device made, [rows][hidden_size].
    std::span<const float> loop_hidden = {};
};

// The way in which GPUs sum the results of their shards. automatic: in rank order, by all-reduce where that adds so
// (two ranks), else by an all-gather and a kernel. all_reduce: in NCCL's order; with more than two ranks a row's bits
// then depend on the other rows.
enum class TensorParallelSum { automatic, all_reduce, ordered };

// The chunks of a text that a cache with kept_positions has after its sinks.
struct RetrievalOptions {
    static constexpr int kChunk = 8;                                  // positions
    int sinks = 0;                                                    // first positions, which always stay
    int chunks = 0;                                                   // number of chunks after them; 0: none
    int first_chunk() const { return (sinks + kChunk - 1) / kChunk; } // of the text's chunks that can be retrieved
};

// On CPUs, activations are rounded to whole numbers of this size before weights of 8 bits or fewer. 32 inputs share a
// scale. automatic: 8 bits.
enum class ActivationType { automatic, int24, int16, int8 };
int bytes_of(ActivationType type);
std::string to_string(ActivationType type); // for automatic, the type that it stands for

struct DecoderOptions {
    WeightType weight_type = WeightType::float32;
    ActivationType activations = ActivationType::automatic;
    std::optional<WeightType> kv_type = {}; // of keys and values on a CPU: see kv_type_of
    int n_slots = 1;
    int capacity = 0;       // positions per slot; 0: the model's max_positions
    int kept_positions = 0; // positions of a slot at once, if older ones are dropped (KvCache::keep); 0: all
    RetrievalOptions retrieval = {};
    int tree_positions = 0;  // additional per slot, for the branches of trees that stay in the cache
    int tree_room = 0;       // additional per slot, for a round's tree with more nodes than its text has positions left
    int source_capacity = 0; // tokens of a source; 0: the encoder's maximum
    double timeout_seconds = dist::kDefaultTimeoutSeconds; // of every collective
    const kernels::Kernels* kernels = nullptr;             // of a CPU; null: the fastest it can run
    TensorParallelSum sum = TensorParallelSum::automatic;  // of a GPU
    std::int64_t max_whole_embedding = kMaxWholeEmbedding; // bytes, of a GPU
    std::function<void(std::size_t done, std::size_t total)> progress =
        {}; // bytes; while weights are read; may be empty
};

// Returns the token ids whose rows of embedding and head rank `tp_rank` holds: whole units of 64, and earlier ranks
// have the larger parts.
dist::Slice vocab_slice(const ModelConfig& config, int tp_rank, int tp_size);

// Names a part of the model that, of our kernels, only the CPU's compute so far. Empty: there is none.
std::string what_needs_cpu(const ModelConfig& config);
// Names a part that the torch backend does not compute, as "latent attention". Empty: there is none.
std::string what_torch_lacks(const ModelConfig& config);
// The meaning of --dtype auto: the file's type. GPUs use 16 bits where the file has quantised weights.
WeightType automatic_type(const ModelConfig& config, bool on_gpu);

// Names data of a text that CPUs always keep in float32, as "the states of linear attention". Empty: there is none.
std::string what_stays_float32(const ModelConfig& config);
// The type of keys and values on a CPU. `asked`: float32, bfloat16, float16 or int8. Without it, float32 for weights of
// float32, else float16, which is a hundred times nearer to float32 than bfloat16. what_stays_float32() wins.
WeightType kv_type_of(const ModelConfig& config, WeightType weights, std::optional<WeightType> asked);

// Linear attention's memory in each slot of a rank. It has zero layers if the model has no linear attention.
RecurrentStates::Shape recurrent_shape(const ModelConfig& config, const RankShard& shard, int tree_positions);

// The parts of a decoder on any device, before its weights are read.
struct DecoderSetup {
    ModelConfig config; // of the weights as stored; its context is not longer than the cache
    RankShard shard;
    KvCache::Shape cache; // in float32, as are the next two: a CPU's decoder chooses its own types
    // Only for a model with an encoder, else empty.
    RankShard encoder_shard = {};
    KvCache::Shape sources = {};       // keys and values of all layers of the decoder
    KvCache::Shape encoder_layer = {}; // of a layer of the encoder, of one source
};
// The shapes for these options. Throws std::invalid_argument.
DecoderSetup lay_out_decoder(const ModelConfig& config, const DecoderOptions& options, int tp_rank, int tp_size);
// Checks the checkpoint's shapes. If the file stores a head with other values than the embedding, the setup's config
// uses it, even where `config` ties the two. Throws BadFile, std::invalid_argument (sizes that would work).
DecoderSetup prepare_decoder(const Checkpoint& checkpoint, const ModelConfig& config, const DecoderOptions& options,
                             const dist::Communicator& tp);

// A rank's shard of a model on some device: cpu/decoder.h, gpu/decoder.h.
class Decoder {
  public:
    virtual ~Decoder() = default;
    Decoder& operator=(const Decoder&) = delete;

    const ModelConfig& config() const { return config_; }
    KvCache& cache() { return *cache_; }
    // Number of positions of a slot beyond the context: DecoderOptions' room for trees.
    std::size_t tree_room() const {
        return static_cast<std::size_t>(std::max(0, cache_->shape().capacity - config_.max_positions));
    }
    // This rank's token ids: logits[.][i] belongs to token local_vocab().begin + i. For a draft with fewer tokens,
    // these are indices into ModelConfig::output_tokens.
    dist::Slice local_vocab() const { return shard_.outputs; }
    virtual std::size_t weight_bytes() const = 0; // read by a pass of one row on this rank
    virtual double
    operations_per_row() const = 0; // multiply-adds times two of a row on this rank, attention not counted
    static constexpr int kMaxRows = model::kMaxRows; // of a pass that is not a chunk of a prompt
    int max_rows() const { return kMaxRows; }
    // For a pass that is a prompt's chunk. The same on all ranks that hold the model.
    virtual int max_prompt_rows() const { return kMaxRows; }

    // Returns a line for the user about how it computes; empty: nothing to say.
    virtual std::string note() const { return {}; }

    // Computes the rows, writes their keys and values at the end of their slots and appends them to the cache. Throws
    // std::invalid_argument on rows that break the contract above. Collective over the ranks that hold the model.
    virtual PassResult forward(const Pass& pass) = 0;

    // For a model with an encoder: reads a source of 1 to max_source() tokens. The slot's passes attend to its keys and
    // values until the slot gets another source; slots forked or shared from it afterwards do too. The slot must be
    // empty. Throws std::invalid_argument. Collective over the ranks that hold the model.
    virtual void encode(int slot, std::span<const TokenId> source);
    int max_source() const { return max_source_; } // 0: the model takes none

    // Makes a decoder over the same weights, with a cache of its own. `config` is first_layers() of this one's, all or
    // some. It retrieves chunks from this decoder's cache, whose slots must then hold the same texts. Only on CPUs and
    // without an encoder; else throws std::logic_error.
    virtual std::unique_ptr<Decoder> over_same_weights(const ModelConfig& config, const DecoderOptions& options) const;

    // Returns whether it retrieves chunks from its own passes' keys and values, so that these must read all of a text.
    virtual bool retrieves_own() const { return false; }
    // Returns whether a pass may continue a text whose first tokens it has never read.
    virtual bool reads_from_within() const { return false; }

    // Does KvCache::keep, on the device that has the sequence's keys and values.
    virtual void keep(int slot, int length, std::span<const int> path) { cache_->keep(slot, length, path); }

  protected:
    // Keeps the keys and values of a source that encode() has checked, under `number` (KvCache::source()).
    virtual void read_source(int number, std::span<const TokenId> source);
    // For a model with an encoder: throws std::invalid_argument where a row's slot has no source.
    void require_sources(std::span<const Row> rows) const;

    Decoder(const DecoderSetup& setup, std::shared_ptr<KvCache> cache)
        : config_(setup.config), shard_(setup.shard), cache_(std::move(cache)), max_source_(setup.sources.capacity) {}
    Decoder(const Decoder&) = default; // for a decoder that adds something to another, over the same cache

    ModelConfig config_;
    RankShard shard_;
    std::shared_ptr<KvCache> cache_;
    int max_source_ = 0;
};

} // namespace entrodraft::model
