// The distributions of drafted tokens that were not drawn. Each puts all of its probability on its token.
#pragma once

#include "spec/verify/token_id.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace entrodraft::spec {

class OneHotRows {
  public:
    // [tokens.size()][vocab_size], valid until the next call.
    std::span<const float> of(std::span<const TokenId> tokens, int vocab_size) {
        const auto vocab = static_cast<std::size_t>(vocab_size);
        for (const std::size_t one : ones_)
            rows_[one] = 0;
        ones_.clear();
        rows_.resize(std::max(rows_.size(), tokens.size() * vocab));
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            ones_.push_back(i * vocab + static_cast<std::size_t>(tokens[i]));
            rows_[ones_.back()] = 1;
        }
        return std::span<const float>(rows_).first(tokens.size() * vocab);
    }

  private:
    std::vector<float> rows_; // [most tokens so far][vocab_size], zero except at the last tokens
    std::vector<std::size_t> ones_;
};

} // namespace entrodraft::spec
