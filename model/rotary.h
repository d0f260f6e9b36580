// Cosines and sines of the rotary positions, made once for each position and kept.
//
// Computed in float32 as transformers does: inverse frequency theta^(-2i / head_dim), angle = position times it.
#pragma once

#include <vector>

namespace entrodraft::model {

class RotaryTable {
  public:
    RotaryTable(int head_dim, double theta);
    // Makes the rows of positions up to and including `position`. Not while a pass reads the table.
    void cover(int position);
    const float* cosines(int position) const { return &cosines_[row(position)]; } // [head_dim / 2]
    const float* sines(int position) const { return &sines_[row(position)]; }     // [head_dim / 2]

  private:
    std::size_t row(int position) const { return static_cast<std::size_t>(position) * inverse_frequencies_.size(); }

    std::vector<float> inverse_frequencies_;
    std::vector<float> cosines_;
    std::vector<float> sines_;
    int covered_ = 0;
};

} // namespace entrodraft::model
