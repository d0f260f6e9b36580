// Products of many rows through cuBLASLt: of a prompt's chunks, of whose tokens none is emitted.
//
// A row's bits depend on the row and the matrix alone, as everywhere: not on its place among the rows, nor on how many
// there are. No library promises that, so for each shape of matrix an algorithm is fixed when a model is loaded that
// was seen to do so: it does not split k, and gives the same rows the same bits where they lie elsewhere and where they
// are fewer. These bits are not those of linear(), which multiplies all other passes. Called by gpu/decoder and
// gpu/ops.
#pragma once

#include "model/gpu/kernels.h"
#include "model/gpu/memory.h"
#include "model/gpu/weights.h"
#include "model/pass/pass_layout.h"

#include <memory>
#include <string>

namespace entrodraft::model::gpu {

// Rows that a prompt's chunk may have. Codes of 8 and 4 bits are known to our kernels alone, whose passes have no
// more rows for a prompt; nor have those of a draft head, which reads few.
inline int max_prompt_rows(const ModelConfig& config, WeightType type) {
    return is_scaled(type) || config.quantization || config.is_draft_head() ? kMaxRows : kMaxPromptRows;
}

class PromptProducts {
  public:
    static constexpr int kMinRows = 16; // fewer are padded

    // Of all matrices of `weights` but the head's, on `stream`; both outlive it. Waits for the device so many seconds
    // at most. Throws dist::Error, dist::Timeout.
    PromptProducts(const DeviceWeights& weights, int hidden_size, const Stream& stream, double timeout_seconds);
    PromptProducts(const PromptProducts&) = delete;
    PromptProducts& operator=(const PromptProducts&) = delete;
    ~PromptProducts();
    // Of another model's layers as well, which are as wide: an encoder's. As the constructor.
    void add(const DeviceWeights& weights);

    // What linear() does, for kMinRows to kMaxPromptRows rows, a power of two, on the stream; by linear() itself where
    // no algorithm was found.
    void multiply(const Linear& call) const;
    // A line about shapes without an algorithm; empty: all have one.
    std::string note() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace entrodraft::model::gpu
