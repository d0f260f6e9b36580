// Python's strings over UTF-8: see text.h.
#include "model/text/chat/text.h"

#include "model/files/utf8.h"

#include <algorithm>
#include <utf8proc.h>

namespace entrodraft::model::jinja {

using namespace std::string_view_literals;

namespace {

utf8proc_category_t category(char32_t c) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

char32_t mapped(utf8proc_int32_t (*map)(utf8proc_int32_t), char32_t c) {
    return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c)));
}

template <typename Take> void each_point(std::string_view text, Take take) {
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint point = code_point_at(text, at);
        take(point.value);
        at += point.n_bytes;
    }
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

std::string upper(std::string_view text) {
    std::string out;
    each_point(text, [&](char32_t c) { append_utf8(mapped(utf8proc_toupper, c), out); });
    return out;
}

std::string lower(std::string_view text) {
    std::string out;
    each_point(text, [&](char32_t c) { append_utf8(mapped(utf8proc_tolower, c), out); });
    return out;
}

std::string capitalized(std::string_view text) {
    std::string out;
    each_point(text,
               [&](char32_t c) { append_utf8(mapped(out.empty() ? utf8proc_totitle : utf8proc_tolower, c), out); });
    return out;
}

std::string titled(std::string_view text) {
    std::string out;
    bool in_word = false;
    each_point(text, [&](char32_t c) {
        append_utf8(mapped(in_word ? utf8proc_tolower : utf8proc_toupper, c), out);
        in_word = !is_space(c) && U"-({[<"sv.find(c) == std::u32string_view::npos;
    });
    return out;
}

std::u32string code_points(std::string_view text) {
    std::u32string points;
    points.reserve(text.size());
    each_point(text, [&](char32_t c) { points += c; });
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

void split_at_spaces(std::string_view text, std::int64_t max_splits, const EachPart& each) {
    text = stripped(text, {}, Side::left);
    for (std::int64_t n = 0; !text.empty(); ++n) {
        if (n == max_splits) return each(text);
        std::size_t at = 0;
        while (at < text.size()) { // to the next white space
            const CodePoint point = code_point_at(text, at);
            if (is_space(point.value)) break;
            at += point.n_bytes;
        }
        each(text.substr(0, at));
        text = stripped(text.substr(at), {}, Side::left);
    }
}

} // namespace

void split(std::string_view text, std::optional<std::string_view> separator, std::int64_t max_splits,
           const EachPart& each) {
    if (!separator) return split_at_spaces(text, max_splits, each);
    for (std::int64_t n = 0; n != max_splits; ++n) {
        const std::size_t at = text.find(*separator);
        if (at == std::string_view::npos) break;
        each(text.substr(0, at));
        text.remove_prefix(at + separator->size());
    }
    each(text);
}

void split_lines(std::string_view text, const EachPart& each) {
    while (!text.empty()) {
        std::size_t at = 0, next = 0;
        for (bool ends = false; next < text.size() && !ends;) {
            const auto [c, n_bytes] = code_point_at(text, next);
            ends = (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
            if (!ends) at = next + n_bytes;
            next += n_bytes;
        }
        each(text.substr(0, at));
        if (text.substr(at).starts_with("\r\n")) ++next;
        text.remove_prefix(next);
    }
}

} // namespace entrodraft::model::jinja
