// The alphabet of byte-level BPE: each of the 256 bytes is written as one printable character, so that a vocabulary of
// bytes can be stored as text. Printable bytes stand for themselves; the others, in order, become U+0100, U+0101, ...
// It does not depend on tokens. Called by bpe, pre_tokenizer and tokenizer.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace entrodraft::model {

// Returns the character for a byte.
char32_t byte_level_character(unsigned char byte);

// Returns the byte for a character, or nothing if the character is not in the alphabet.
std::optional<unsigned char> byte_level_byte(char32_t character);

// Returns the bytes written in the alphabet, as UTF-8.
std::string to_byte_level(std::string_view bytes);

// Returns the bytes for valid UTF-8 `text`, or nothing if a character is not in the alphabet.
std::optional<std::string> from_byte_level(std::string_view text);

// Returns the other spelling of bytes: <0x00> to <0xFF>, exactly two digits, in capitals as tokenizers write them.
std::string byte_token(unsigned char byte);

// Returns the byte of such a token, in capitals or not; nothing for any other token.
std::optional<unsigned char> byte_of_token(std::string_view token);

} // namespace entrodraft::model
