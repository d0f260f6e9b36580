// Numbers as messages and tables say them.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <string>

namespace entrodraft::launch {

// "1 rank", "2 ranks". Words whose plural is another are not for it. Local.
inline std::string counted(std::int64_t count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// As printf has it, up to 511 bytes. Local.
__attribute__((format(printf, 1, 2))) inline std::string formatted(const char* pattern, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(text, sizeof text, pattern, arguments);
    va_end(arguments);
    return text;
}

} // namespace entrodraft::launch
