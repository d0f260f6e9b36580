// "1 rank", "2 ranks", as messages count.
#pragma once

#include <concepts>
#include <string>

namespace entrodraft::launch {

// Words whose plural is another are not for it.
std::string counted(std::integral auto count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

} // namespace entrodraft::launch
