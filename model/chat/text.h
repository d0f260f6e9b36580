// What Python does to strings, over UTF-8: positions count code points. Knows nothing of templates; called by the
// interpreter's values, filters and methods. All text is valid UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::model::jinja {

bool is_space(char32_t c);     // str.isspace()
bool is_printable(char32_t c); // what repr() leaves as it is
bool is_letter(char32_t c);
bool is_digit(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
char32_t upper(char32_t c);
char32_t lower(char32_t c);

std::u32string code_points(std::string_view text);
std::string utf8(std::u32string_view text);
std::size_t length(std::string_view text); // in code points

enum class Side { both, left, right };
// Without the white space, or the characters of `chars`, at its ends.
std::string_view stripped(std::string_view text, std::optional<std::string_view> chars = {}, Side side = Side::both);
// Parts between separators, or between runs of white space; at most `max_splits` cuts where that is not negative.
std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    std::int64_t max_splits, bool from_right);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::string titled(std::u32string points);      // str.title()
std::string capitalized(std::u32string points); // str.capitalize()
std::string escaped(std::string_view text);     // &, <, >, ', " as HTML has them

} // namespace entrodraft::model::jinja
