// The squared entropies of a drafting phase, as rules with --entropy-window sum them up. Private to the rules' files.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace entrodraft::spec {

class EntropyWindow {
  public:
    explicit EntropyWindow(int length) : length_(static_cast<std::size_t>(length)) {}

    void clear() { squares_.clear(); }
    // False where the entropy is not known, and the window stays as it is.
    bool push(double entropy) {
        if (std::isnan(entropy)) return false;
        squares_.push_back(entropy * entropy);
        return true;
    }
    double latest() const { return squares_.back(); }                             // x_t^2
    std::size_t before() const { return std::min(squares_.size() - 1, length_); } // min(n, t-1)
    // sum(x_{t-i}^2, i = 1..before())
    double earlier() const {
        const auto end = squares_.end() - 1;
        return std::accumulate(end - static_cast<std::ptrdiff_t>(before()), end, 0.0);
    }

  private:
    std::size_t length_;          // n
    std::vector<double> squares_; // of the phase's tokens with a known entropy
};

} // namespace entrodraft::spec
