// Rotary angles (Su et al. 2021, "RoFormer").
#include "entrodraft/model/rotary.h"

#include <cmath>

namespace entrodraft::model {

RotaryTable::RotaryTable(int head_dim, double theta) {
    for (int i = 0; i < head_dim / 2; ++i) {
        const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
        inverse_frequencies_.push_back(1.0f / std::pow(static_cast<float>(theta), exponent));
    }
}

void RotaryTable::cover(int position) {
    if (position < covered_) return;
    const int until = (position / 256 + 1) * 256;
    for (; covered_ < until; ++covered_) {
        for (const float frequency : inverse_frequencies_) {
            const float angle = static_cast<float>(covered_) * frequency;
            cosines_.push_back(std::cos(angle));
            sines_.push_back(std::sin(angle));
        }
    }
}

} // namespace entrodraft::model
