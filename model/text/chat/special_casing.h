// Letters whose upper case has several characters. See special_casing.py. Called by text.cpp.
#pragma once

#include <span>
#include <string_view>

namespace entrodraft::model::jinja {

struct SpecialCase {
    char32_t character;
    std::u32string_view upper, title;
};
std::span<const SpecialCase> special_cases(); // by rising character

} // namespace entrodraft::model::jinja
