// Python's strings over UTF-8: see text.h.
#include "model/text/chat/text.h"

#include "model/files/utf8.h"

#include <algorithm>
#include <utf8proc.h>

namespace entrodraft::model::jinja {

namespace {

utf8proc_category_t category(char32_t c) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

} // namespace

bool is_space(char32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
    if (c < 0x7f) return c >= 0x20;
    const utf8proc_category_t kind = category(c);
    return kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS;
}

bool is_letter(char32_t c) {
    const utf8proc_category_t kind = category(c);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_upper(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LL;
}

std::u32string code_points(std::string_view text) {
    std::u32string points;
    points.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint point = code_point_at(text, at);
        points += point.value;
        at += point.n_bytes;
    }
    return points;
}

std::string utf8(std::u32string_view text) {
    std::string bytes;
    for (const char32_t c : text)
        append_utf8(c, bytes);
    return bytes;
}

std::size_t length(std::string_view text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string_view stripped(std::string_view text, std::optional<std::string_view> chars, Side side) {
    std::u32string set = chars ? code_points(*chars) : U"";
    std::ranges::sort(set);
    const auto goes = [&](char32_t c) { return chars ? std::ranges::binary_search(set, c) : is_space(c); };
    while (side != Side::left && !text.empty()) {
        const std::size_t last = previous_code_point(text, text.size());
        if (!goes(code_point_at(text, last).value)) break;
        text = text.substr(0, last);
    }
    while (side != Side::right && !text.empty()) {
        const CodePoint first = code_point_at(text, 0);
        if (!goes(first.value)) break;
        text.remove_prefix(first.n_bytes);
    }
    return text;
}

namespace {

void split_at_spaces(std::string_view text, std::int64_t max_splits, bool from_right, const EachPart& each) {
    const Side side = from_right ? Side::right : Side::left;
    text = stripped(text, {}, side);
    for (std::int64_t n = 0; !text.empty(); ++n) {
        if (max_splits >= 0 && n == max_splits) return each(text);
        std::size_t at = from_right ? text.size() : 0;
        const std::size_t end = from_right ? 0 : text.size();
        while (at != end) { // to the next white space
            const std::size_t here = from_right ? previous_code_point(text, at) : at;
            const CodePoint point = code_point_at(text, here);
            if (is_space(point.value)) break;
            at = from_right ? here : at + point.n_bytes;
        }
        each(from_right ? text.substr(at) : text.substr(0, at));
        text = stripped(from_right ? text.substr(0, at) : text.substr(at), {}, side);
    }
}

} // namespace

void split(std::string_view text, std::optional<std::string_view> separator, std::int64_t max_splits, bool from_right,
           const EachPart& each) {
    if (!separator) return split_at_spaces(text, max_splits, from_right, each);
    for (std::int64_t n = 0; max_splits < 0 || n < max_splits; ++n) {
        const std::size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
        if (at == std::string_view::npos) break;
        each(from_right ? text.substr(at + separator->size()) : text.substr(0, at));
        text = from_right ? text.substr(0, at) : text.substr(at + separator->size());
    }
    each(text);
}

void split_lines(std::string_view text, bool keep_ends, const EachPart& each) {
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size();) {
        const auto [c, n_bytes] = code_point_at(text, at);
        std::size_t next = at + n_bytes;
        const bool ends =
            (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
        if (ends) {
            if (c == U'\r' && next < text.size() && text[next] == '\n') ++next;
            each(text.substr(begin, (keep_ends ? next : at) - begin));
            begin = next;
        }
        at = next;
    }
    if (begin < text.size()) each(text.substr(begin));
}

} // namespace entrodraft::model::jinja
