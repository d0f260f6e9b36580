// See byte_level.h. Both directions read one table, computed at compile time.
#include "model/text/tokenizer/byte_level.h"

#include <array>
#include <charconv>
#include <fmt/format.h>

#include "model/files/utf8.h"

namespace entrodraft::model {
namespace {

constexpr bool prints(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::size_t kAlphabetEnd = 0x100 + 68; // 68 bytes do not print

struct Alphabet {
    std::array<char32_t, 256> character{};
    std::array<int, kAlphabetEnd> byte{}; // -1: not in the alphabet
};

constexpr Alphabet make_alphabet() {
    Alphabet alphabet;
    for (int& byte : alphabet.byte)
        byte = -1;
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
        alphabet.character[byte] = prints(byte) ? static_cast<char32_t>(byte) : next++;
        alphabet.byte[alphabet.character[byte]] = static_cast<int>(byte);
    }
    return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

} // namespace

char32_t byte_level_character(unsigned char byte) {
    return kAlphabet.character[byte];
}

std::optional<unsigned char> byte_level_byte(char32_t character) {
    if (character >= kAlphabetEnd || kAlphabet.byte[character] < 0) return std::nullopt;
    return static_cast<unsigned char>(kAlphabet.byte[character]);
}

std::string to_byte_level(std::string_view bytes) {
    std::string text;
    text.reserve(2 * bytes.size());
    for (const char byte : bytes)
        append_utf8(byte_level_character(static_cast<unsigned char>(byte)), text);
    return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
    std::string bytes;
    for (std::size_t position = 0; position < text.size();) {
        const CodePoint point = code_point_at(text, position);
        const auto byte = byte_level_byte(point.value);
        if (!byte) return std::nullopt;
        bytes.push_back(static_cast<char>(*byte));
        position += point.n_bytes;
    }
    return bytes;
}

std::string byte_token(unsigned char byte) {
    return fmt::format("<0x{:02X}>", byte);
}

std::optional<unsigned char> byte_of_token(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    unsigned char value = 0;
    const char* const end = token.data() + 5;
    const auto read = std::from_chars(token.data() + 3, end, value, 16); // takes no sign
    return read.ec == std::errc() && read.ptr == end ? std::optional(value) : std::nullopt;
}

} // namespace entrodraft::model
