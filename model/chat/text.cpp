// Python's strings over UTF-8: see text.h.
#include "model/chat/text.h"

#include "model/utf8.h"

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

char32_t upper(char32_t c) {
    return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t lower(char32_t c) {
    return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
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

std::vector<std::string_view> split_at_spaces(std::string_view text, std::int64_t max_splits, bool from_right) {
    std::vector<std::string_view> parts;
    text = stripped(text, {}, from_right ? Side::right : Side::left);
    while (!text.empty()) {
        if (max_splits >= 0 && static_cast<std::int64_t>(parts.size()) == max_splits) {
            parts.push_back(stripped(text, {}, from_right ? Side::right : Side::left));
            break;
        }
        std::size_t at = from_right ? text.size() : 0;
        const std::size_t end = from_right ? 0 : text.size();
        while (at != end) { // to the next white space
            const std::size_t here = from_right ? previous_code_point(text, at) : at;
            const CodePoint point = code_point_at(text, here);
            if (is_space(point.value)) break;
            at = from_right ? here : at + point.n_bytes;
        }
        parts.push_back(from_right ? text.substr(at) : text.substr(0, at));
        text = stripped(from_right ? text.substr(0, at) : text.substr(at), {}, from_right ? Side::right : Side::left);
    }
    return parts;
}

} // namespace

std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator,
                                    std::int64_t max_splits, bool from_right) {
    std::vector<std::string_view> parts;
    if (!separator) {
        parts = split_at_spaces(text, max_splits, from_right);
    } else {
        while (max_splits < 0 || static_cast<std::int64_t>(parts.size()) < max_splits) {
            const std::size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
            if (at == std::string_view::npos) break;
            parts.push_back(from_right ? text.substr(at + separator->size()) : text.substr(0, at));
            text = from_right ? text.substr(0, at) : text.substr(at + separator->size());
        }
        parts.push_back(text);
    }
    if (from_right) std::ranges::reverse(parts);
    return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
    std::vector<std::string_view> lines;
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size();) {
        const auto [c, n_bytes] = code_point_at(text, at);
        std::size_t next = at + n_bytes;
        const bool ends =
            (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
        if (ends) {
            if (c == U'\r' && next < text.size() && text[next] == '\n') ++next;
            lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
            begin = next;
        }
        at = next;
    }
    if (begin < text.size()) lines.push_back(text.substr(begin));
    return lines;
}

std::string titled(std::u32string points) {
    bool in_word = false;
    for (char32_t& c : points) {
        const bool is_cased = upper(c) != lower(c);
        c = in_word ? lower(c) : upper(c);
        in_word = is_cased;
    }
    return utf8(points);
}

std::string capitalized(std::u32string points) {
    for (std::size_t i = 0; i < points.size(); ++i)
        points[i] = i == 0 ? upper(points[i]) : lower(points[i]);
    return utf8(points);
}

std::string escaped(std::string_view text) {
    std::string html;
    for (const char c : text) {
        if (c == '&')
            html += "&amp;";
        else if (c == '<')
            html += "&lt;";
        else if (c == '>')
            html += "&gt;";
        else if (c == '\'')
            html += "&#39;";
        else if (c == '"')
            html += "&#34;";
        else
            html += c;
    }
    return html;
}

} // namespace entrodraft::model::jinja
