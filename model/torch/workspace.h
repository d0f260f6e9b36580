// The state that the passes of a decoder on ATen share: the cache's numbers, angles, the current pass, and which keys
// its rows see. Called by torch/decoder.
#pragma once

#include "dist/comm/communicator.h"
#include "model/pass/kv_cache.h"
#include "model/pass/pass_layout.h"
#include "model/pass/routing.h"
#include "model/torch/weights.h"

#include <ATen/core/Tensor.h>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace entrodraft::model::torch {

// Keys and values of all slots. The books are KvCache's.
class TensorCache final : public KvMemory {
  public:
    TensorCache(const KvCache::Shape& shape, const at::TensorOptions& options);

    const at::Tensor& numbers() const { return numbers_; }
    void copy(int from_slot, int from, int to_slot, int to, int count) override;
    void move(int slot, std::span<const int> from, int to) override;

  private:
    at::Tensor numbers_; // [layers][keys, values][slots][own key heads][capacity][head_dim]
};

// Angles of rotary positions: [positions][rotary dims / 2], float32, or undefined.
struct TorchAngles {
    at::Tensor cosines, sines;
};

// A TensorCache's numbers and books.
struct BookedTensors {
    BookedTensors() = default;
    BookedTensors(const KvCache::Shape& shape, const at::TensorOptions& options);
    // For passes that leave nothing in the cache: without numbers.
    static BookedTensors without_numbers(const KvCache::Shape& shape, const at::TensorOptions& options);

    std::shared_ptr<KvCache> books;
    at::Tensor numbers;
};

// Keys and values that each layer of the decoder makes from a source, [own key heads][tokens][head_dim].
using SourceKeysAndValues = std::vector<std::array<at::Tensor, 2>>;

// The state that the passes of a decoder or an encoder share. The arguments outlive it.
struct TorchWorkspace {
    // `embedded_by` may be another model's. `sources` are for a decoder that reads them, else empty.
    TorchWorkspace(const ModelConfig& model, const RankShard& held, const TensorWeights& read,
                   const TensorMatrix& embedded_by, const BookedTensors& texts, const BookedTensors& read_sources,
                   dist::Communicator& ranks);

    // Returns the addend to the scores of a segment's rows, [1][key heads or 1][group * rows][keys]; undefined: none.
    // Has ALiBi, biases by distance, and minus infinity for unseen keys. A row sees the last `window` keys (0: all).
    at::Tensor mask_of(const Segment& segment, int window) const;

    TorchAngles angles_of(const Rope& rope) const;

    const ModelConfig& config;
    const RankShard& shard;
    const TensorWeights& weights;
    const TensorMatrix& embedding;
    const BookedTensors& cache;
    const BookedTensors& sources;
    dist::Communicator& tp;
    at::ScalarType type; // of the cache and of activations except the residual stream
    at::Device device;

    TorchAngles angles, local_angles; // [max_positions]
    at::Tensor alibi;                 // [own query heads][capacity], scaled as scores are, or undefined
    int group = 1;                    // query heads that read a key head
    at::Tensor kv_heads; // [own query heads]: its key head, if these groups are cut unevenly; else undefined
    PassLayout layout;   // of the current pass
    dist::Deadline deadline;
    std::vector<float> hidden; // [hidden_layers][rows][hidden_size]
    at::Tensor logits;         // [logit_rows][own outputs], float32, in host memory unless in training
    bool is_training = false;  // passes begin with empty slots and leave nothing in the cache; all is differentiable
    std::vector<SourceKeysAndValues> training_sources; // [slot], in place of `sources`

  private:
    bool is_of_branch(const Segment& segment, int row, int key) const;
    std::vector<std::int64_t> key_numbers(const Segment& segment) const;
};

} // namespace entrodraft::model::torch
