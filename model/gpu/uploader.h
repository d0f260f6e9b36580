// Moves rows of stored matrices to a GPU in parts, through a staging buffer: converted, rounded or as codes. Makes
// random rows on the GPU. Called by gpu/weights.
#pragma once

#include "model/files/checkpoint.h"
#include "model/gpu/device_matrix.h"
#include "model/weights/layer_plan.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace entrodraft::model::gpu {

struct StoredRow {
    const PlannedMatrix* source = nullptr; // null: zeros
    const TensorView* tensor = nullptr;
    std::int64_t number = 0;
};
using StoredRows = std::vector<StoredRow>;

class Uploader {
  public:
    // If `keeps_codes`, quantised tensors stay codes; else all become numbers. The checkpoint outlives this object.
    Uploader(const Checkpoint& checkpoint, bool keeps_codes);
    ~Uploader();

    // Appends the rows of a planned matrix, which outlives them.
    void append(const PlannedMatrix& source, StoredRows& rows) const;
    // Makes a matrix of these rows: stored codes as they are, others as `held`. Throws BadFile, dist::Error.
    DeviceMatrix matrix(const StoredRows& rows, const dist::Slice& inputs, WeightType held);
    // The same, but stored codes become numbers too.
    DeviceMatrix plain_matrix(const StoredRows& rows, const dist::Slice& inputs, WeightType held);
    DeviceArray<float> vector(const std::vector<float>& values) const;

    int widest_order() const; // the longest DeviceMatrix::order so far

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace entrodraft::model::gpu
