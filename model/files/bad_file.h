// The exception for a file that cannot be read as expected. Its message names file, place and reason.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace entrodraft::model {

class BadFile final : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Returns the system's message for errno.
inline std::string system_reason() {
    return std::system_category().message(errno);
}

// Returns text from a file as a message may show it: in quotes, control characters as \xHH, long texts cut.
inline std::string in_quotes(std::string_view text) {
    constexpr std::size_t kLongest = 120;
    std::size_t length = std::min(text.size(), kLongest);
    while (length > 0 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80)
        --length; // not a part of a character
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string shown = "'";
    for (const char c : text.substr(0, length)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f) {
            shown += "\\x";
            shown += kDigits[byte >> 4];
            shown += kDigits[byte & 15];
        } else {
            shown += c;
        }
    }
    return shown + (text.size() > kLongest ? "...'" : "'");
}

} // namespace entrodraft::model
