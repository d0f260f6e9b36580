// Products of many rows through cuBLASLt, for a prompt's chunks. None of these rows' next tokens is emitted.
//
// As everywhere, a row's bits depend on the row and the matrix alone. They depend neither on its place among the rows
// nor on their number. No library promises that. So, when a model is loaded, one algorithm is fixed for each shape of
// matrix, after a test that it behaves in this way. It does not split k, and it gives the same rows the same bits in
// other places and among fewer rows. These bits differ from those of linear(), which multiplies all other passes.
// Called by gpu/decoder and gpu/ops.
#pragma once

#include "model/gpu/kernels.h"
#include "model/gpu/memory.h"
#include "model/gpu/weights.h"
#include "model/pass/pass_layout.h"

#include <memory>
#include <string>

namespace entrodraft::model::gpu {

// Largest number of rows of a prompt's chunk. Only our kernels know codes of 8 and 4 bits, and they take no larger
// chunks. Draft heads read few rows, so they have no larger chunks either.
inline int max_prompt_rows(const ModelConfig& config, WeightType type) {
    return is_scaled(type) || config.quantization || config.is_draft_head() ? kMaxRows : kMaxPromptRows;
}

class PromptProducts {
  public:
    static constexpr int kMinRows = 16; // fewer are padded

    // Fixes algorithms for all matrices of `weights` except the head, on `stream`; both outlive this object. Waits for
    // the device at most timeout_seconds. Throws dist::Error, dist::Timeout.
    PromptProducts(const DeviceWeights& weights, int hidden_size, const Stream& stream, double timeout_seconds);
    PromptProducts(const PromptProducts&) = delete;
    PromptProducts& operator=(const PromptProducts&) = delete;
    ~PromptProducts();
    // As the constructor, for the layers of another model that is as wide, such as an encoder.
    void add(const DeviceWeights& weights);

    // As linear(), for kMinRows to kMaxPromptRows rows, a power of two, on the stream. Calls linear() if the shape has
    // no algorithm.
    void multiply(const Linear& call) const;
    // Returns a line about shapes without an algorithm; empty if all have one.
    std::string note() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace entrodraft::model::gpu
