// Counts things in messages: "1 rank", "2 ranks".
#pragma once

#include <concepts>
#include <string>

namespace entrodraft::launch {

// Only for words with a plural in -s.
std::string counted(std::integral auto count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

} // namespace entrodraft::launch
