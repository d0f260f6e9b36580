// A number with the word for what it counts, as messages and tables say it.
#pragma once

#include <cstdint>
#include <string>

namespace entrodraft::launch {

// "1 rank", "2 ranks". Words whose plural is another are not for it. Local.
inline std::string counted(std::int64_t count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

} // namespace entrodraft::launch
