// The alphabet of byte-level BPE: each of the 256 bytes is written as one printable character, so that a
// vocabulary of bytes can be stored as text. Bytes that print stand for themselves, the others, in order,
// become U+0100, U+0101, ... Knows no tokens. Called by bpe, pre_tokenizer and tokenizer.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace entrodraft::model {

// The character that stands for a byte.
char32_t byte_level_character(unsigned char byte);

// The byte that a character stands for, or nothing where it is not of the alphabet.
std::optional<unsigned char> byte_level_byte(char32_t character);

// Bytes written in the alphabet, as UTF-8.
std::string to_byte_level(std::string_view bytes);

// The bytes that valid UTF-8 `text` stands for, or nothing where a character is not of the alphabet.
std::optional<std::string> from_byte_level(std::string_view text);

// The other way to spell bytes: <0x00> to <0xFF>, exactly two digits, in capitals as tokenizers write them.
std::string byte_token(unsigned char byte);

// The byte that such a token is accepted for, in capitals or not; nothing for any other token.
std::optional<unsigned char> byte_of_token(std::string_view token);

} // namespace entrodraft::model
