#!/usr/bin/env python3
"""Writes special_casing.cpp: the letters whose upper case has several characters, as Python's str has them.

    python3 model/text/chat/special_casing.py > model/text/chat/special_casing.cpp
"""
HEAD = """// Letters whose upper case has several characters, with that and their title case: the part of Unicode's
// SpecialCasing.txt that depends on no language. Made by special_casing.py; see text.h.
#include "model/text/chat/special_casing.h"

namespace entrodraft::model::jinja {

namespace {

// clang-format off
constexpr SpecialCase kCases[] = {
"""
TAIL = """};
// clang-format on

} // namespace

std::span<const SpecialCase> special_cases() {
    return kCases;
}

} // namespace entrodraft::model::jinja"""


def literal(text):
    return 'U"' + "".join(f"\\u{ord(character):04x}" if ord(character) > 0x7e else character for character in text) + '"'


cases = [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000 and len(chr(code).upper()) > 1]
rows = [f"{{U'\\u{ord(case):04x}', {literal(case.upper())}, {literal(case.title())}}}," for case in cases]
print(HEAD + "\n".join("    " + " ".join(rows[i:i + 2]) for i in range(0, len(rows), 2)) + "\n" + TAIL)
