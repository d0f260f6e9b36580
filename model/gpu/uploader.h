// Rows of stored matrices on their way to a GPU: converted, rounded or as codes, staged a part at a time; random rows
// are made there. Called by gpu/weights.
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
    // `keeps_codes`: quantised tensors stay codes; else all become numbers. The checkpoint outlives it.
    Uploader(const Checkpoint& checkpoint, bool keeps_codes);
    ~Uploader();

    // The rows of a planned matrix, which outlives them.
    void append(const PlannedMatrix& source, StoredRows& rows) const;
    // A matrix of these rows: stored codes as they are, the others as `held`. Throws BadFile, dist::Error.
    DeviceMatrix matrix(const StoredRows& rows, const dist::Slice& inputs, WeightType held);
    // The same, but stored codes too become numbers.
    DeviceMatrix plain_matrix(const StoredRows& rows, const dist::Slice& inputs, WeightType held);
    DeviceArray<float> vector(const std::vector<float>& values) const;

    int widest_order() const; // DeviceMatrix::order's, of all matrices so far

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

} // namespace entrodraft::model::gpu
