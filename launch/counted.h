// "1 rank", "2 ranks", as messages count.
#pragma once

#include <cstdint>
#include <string>

namespace entrodraft::launch {

// Words whose plural is another are not for it. Local.
inline std::string counted(std::int64_t count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

} // namespace entrodraft::launch
