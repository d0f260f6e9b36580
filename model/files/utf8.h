// UTF-8 functions: read valid text by code point, find the first invalid byte, and turn bytes into text with U+FFFD in
// place of invalid parts. They do not use Unicode properties. Called by the tokenizer.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace entrodraft::model {

struct CodePoint {
    char32_t value = 0;
    std::size_t n_bytes = 0;
};

// Returns the code point that begins at `position` of valid UTF-8.
CodePoint code_point_at(std::string_view text, std::size_t position);

// Returns the position of the code point that ends right before `position` > 0 of valid UTF-8.
std::size_t previous_code_point(std::string_view text, std::size_t position);

// Appends a code point below 0x110000.
void append_utf8(char32_t value, std::string& out);

// Returns the offset of the first byte that belongs to no valid sequence, or npos where all is valid.
std::size_t first_invalid_utf8(std::string_view bytes);

// Appends `bytes` as text: each maximal part of an invalid sequence becomes one U+FFFD (Unicode 15, section 3.9, as
// Rust's String::from_utf8_lossy does). An unfinished sequence at the end is left alone unless `at_end`. Returns the
// number of bytes that were taken.
std::size_t append_lossy(std::string_view bytes, bool at_end, std::string& out);

} // namespace entrodraft::model
