// Upper, lower and title case as Python's str has them: utf8proc's mappings of one character to one, and the table of
// those to several. See text.h.
#include "model/text/chat/special_casing.h"
#include "model/text/chat/text.h"

#include <algorithm>
#include <array>
#include <utf8proc.h>

namespace entrodraft::model::jinja {

namespace {

constexpr char32_t kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2, kSmallSigma = 0x3C3;
constexpr char32_t kCapitalDottedI = 0x130, kDotAbove = 0x307;

utf8proc_int32_t as_proc(char32_t c) {
    return static_cast<utf8proc_int32_t>(c);
}

const SpecialCase* special_case(char32_t c) {
    const auto found = std::ranges::lower_bound(special_cases(), c, {}, &SpecialCase::character);
    return found != special_cases().end() && found->character == c ? &*found : nullptr;
}

// Unicode's property Cased.
bool has_case(char32_t c) {
    const utf8proc_category_t kind = utf8proc_category(as_proc(c));
    return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LT) || c == 0xAA || c == 0xBA ||
           utf8proc_toupper(as_proc(c)) != as_proc(c) || utf8proc_tolower(as_proc(c)) != as_proc(c);
}

// Unicode's property Case_Ignorable.
bool is_ignored(char32_t c) {
    static constexpr std::u32string_view kInWords =
        U"'.:\u00b7\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a";
    const utf8proc_category_t kind = utf8proc_category(as_proc(c));
    return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME || kind == UTF8PROC_CATEGORY_CF ||
           kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_SK || kInWords.find(c) != kInWords.npos;
}

// True where a letter comes before this place and none behind it.
bool ends_word(std::u32string_view text, std::size_t at) {
    const auto is_letter_next = [](auto begin, auto end) {
        const auto next = std::find_if_not(begin, end, is_ignored);
        return next != end && has_case(*next);
    };
    const auto here = text.begin() + static_cast<std::ptrdiff_t>(at);
    return is_letter_next(std::make_reverse_iterator(here), text.rend()) && !is_letter_next(here + 1, text.end());
}

void add_lower(std::u32string_view text, std::size_t at, std::u32string& out) {
    const char32_t c = text[at];
    if (c == kCapitalSigma)
        out += ends_word(text, at) ? kFinalSigma : kSmallSigma;
    else if (c == kCapitalDottedI)
        out.append({U'i', kDotAbove});
    else
        out += static_cast<char32_t>(utf8proc_tolower(as_proc(c)));
}

void add_upper(char32_t c, std::u32string& out) {
    if (const SpecialCase* found = special_case(c))
        out += found->upper;
    else
        out += static_cast<char32_t>(utf8proc_toupper(as_proc(c)));
}

void add_title(char32_t c, std::u32string& out) {
    if (const SpecialCase* found = special_case(c))
        out += found->title;
    else
        out += static_cast<char32_t>(utf8proc_totitle(as_proc(c)));
}

} // namespace

std::u32string upper(std::u32string_view text) {
    std::u32string out;
    for (const char32_t c : text)
        add_upper(c, out);
    return out;
}

std::u32string lower(std::u32string_view text) {
    std::u32string out;
    for (std::size_t i = 0; i < text.size(); ++i)
        add_lower(text, i, out);
    return out;
}

std::u32string titled(std::u32string_view text) {
    std::u32string out;
    bool in_word = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (in_word)
            add_lower(text, i, out);
        else
            add_title(text[i], out);
        in_word = has_case(text[i]);
    }
    return out;
}

std::u32string capitalized(std::u32string_view text) {
    std::u32string out;
    for (std::size_t i = 0; i < text.size(); ++i)
        if (i == 0)
            add_title(text[i], out);
        else
            add_lower(text, i, out);
    return out;
}

std::u32string case_swapped(std::u32string_view text) {
    std::u32string out;
    for (std::size_t i = 0; i < text.size(); ++i)
        if (is_upper(text[i]))
            add_lower(text, i, out);
        else if (is_lower(text[i]))
            add_upper(text[i], out);
        else
            out += text[i];
    return out;
}

std::u32string case_folded(std::u32string_view text) {
    std::u32string out;
    for (const char32_t c : text) {
        std::array<utf8proc_int32_t, 8> folded{};
        int last_class = 0;
        const utf8proc_ssize_t n =
            utf8proc_decompose_char(as_proc(c), folded.data(), folded.size(), UTF8PROC_CASEFOLD, &last_class);
        for (utf8proc_ssize_t i = 0; i < n && i < std::ssize(folded); ++i)
            out += static_cast<char32_t>(folded[static_cast<std::size_t>(i)]);
    }
    return out;
}

} // namespace entrodraft::model::jinja
