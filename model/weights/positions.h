// Positions for attention: cosines and sines of rotary angles, made once for each position and kept; ALiBi's slopes;
// the buckets of relative positions; and the table of sinusoidal positions.
//
// Angles are computed in float32 as in transformers. The inverse frequency is theta^(-2i / dims), and the angle is the
// position times this frequency. The ways of stretching angles for longer texts are those of transformers, too. A
// position's angles depend only on the position. With dynamic scaling, a token beyond the original context uses the
// frequencies for a text that ends with this token, as it does when it is decoded.
#pragma once

#include "model/families/config.h"

#include <cstddef>
#include <vector>

namespace entrodraft::model {

class RotaryTable {
  public:
    explicit RotaryTable(const Rope& rope);
    // Makes the rows of positions up to and including `position`. Do not call it while a pass reads the table.
    void cover(int position);
    const float* cosines(int position) const { return &cosines_[row(position)]; } // [dims / 2]
    const float* sines(int position) const { return &sines_[row(position)]; }     // [dims / 2]

  private:
    std::size_t row(int position) const { return static_cast<std::size_t>(position) * frequencies_.size(); }

    Rope rope_;
    std::vector<float> frequencies_; // [dims / 2]
    std::vector<float> cosines_;
    std::vector<float> sines_;
    int covered_ = 0;
};

// Returns inverse frequencies, [dims / 2]. Only dynamic scaling uses `length`, the number of positions of the text.
std::vector<float> inverse_frequencies(const Rope& rope, int length);

// Returns ALiBi's slopes (Press et al. 2022), [n_heads]: a geometric series, continued in between where n_heads is not
// a power of two. `is_rounded` rounds them to bfloat16, as Falcon does.
std::vector<float> alibi_slopes(int n_heads, bool is_rounded = true);
// Returns the amount that is added to the scaled score of a key at this position.
float alibi_bias(const ModelConfig& config, float slope, int position);

// Returns the bucket of a key `distance` positions before the row. It is negative for a key after the row, which only
// rows of an encoder see. Computed as transformers computes T5's, in float32: near distances have one bucket each,
// farther ones share by their logarithm.
int relative_bucket(const RelativePositions& relative, int distance, bool is_bidirectional);

// Returns Marian's positions, [n_positions][width]: sines in the first half of a row, cosines in the second.
std::vector<float> sinusoidal_table(int n_positions, int width);

} // namespace entrodraft::model
