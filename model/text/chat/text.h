// Python's string functions, over UTF-8: positions count code points. These functions know nothing of chat templates.
// They require valid UTF-8. Called by the interpreter's values, filters and methods.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace entrodraft::model::jinja {

bool is_space(char32_t c);     // str.isspace()
bool is_printable(char32_t c); // repr() leaves it as it is

// These use Unicode's mappings of one character to one.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalized(std::string_view text);
// A word begins after white space, hyphens and opening brackets, as for jinja2's filter.
std::string titled(std::string_view text);

std::u32string code_points(std::string_view text);
std::string utf8(std::u32string_view text);
std::size_t length(std::string_view text); // in code points

enum class Side { both, left, right };
// Removes white space, or the characters of `chars`, from the ends.
std::string_view stripped(std::string_view text, std::optional<std::string_view> chars = {}, Side side = Side::both);
// Calls `each` for the parts between separators, or between runs of white space. Makes at most `max_splits` cuts if
// that is not negative.
using EachPart = std::function<void(std::string_view part)>;
void split(std::string_view text, std::optional<std::string_view> separator, std::int64_t max_splits,
           const EachPart& each);
void split_lines(std::string_view text, const EachPart& each);

} // namespace entrodraft::model::jinja
