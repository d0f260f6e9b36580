// Limits of prompts whose tokens are their bytes.
#pragma once

#include "launch/io/requests.h"

#include <string_view>
#include <vector>

namespace test {

inline entrodraft::launch::PromptLimits limits_of_bytes() {
    entrodraft::launch::PromptLimits limits;
    limits.encode = [](std::string_view text) {
        return std::vector<entrodraft::spec::TokenId>(text.begin(), text.end());
    };
    limits.vocab_size = 128;
    limits.max_positions = 64;
    return limits;
}

} // namespace test
