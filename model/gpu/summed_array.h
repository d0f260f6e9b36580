// Numbers on the device that are summed over ranks. They are in memory where their communicator sums fastest.
//
// Called by gpu/decoder, and by benches of such sums.
#pragma once

#include "dist/comm/communicator.h"
#include "model/gpu/memory.h"

#include <cstddef>
#include <memory>

namespace entrodraft::model::gpu {

class SummedArray {
  public:
    SummedArray() = default;
    // `ranks` outlives it. Throws dist::Timeout and dist::Error. Collective over ranks.
    SummedArray(dist::Communicator& ranks, std::size_t count, dist::Deadline deadline)
        : memory_(ranks.make_symmetric_buffer(count * sizeof(float), deadline)), count_(count) {
        if (!memory_) own_ = DeviceArray<float>(count);
    }
    float* data() const { return memory_ ? static_cast<float*>(memory_->data()) : own_.data(); }
    std::size_t size() const { return count_; }

  private:
    std::unique_ptr<dist::SymmetricBuffer> memory_;
    DeviceArray<float> own_;
    std::size_t count_ = 0;
};

} // namespace entrodraft::model::gpu
