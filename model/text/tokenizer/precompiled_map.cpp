// See precompiled_map.h. A unit of the trie has three parts: a label (bits 0 to 7 and 31), whether a value follows (bit
// 8), and the distance to its children (bits 10 to 30, shifted by 8 more where bit 9 is set).
#include "model/text/tokenizer/precompiled_map.h"

#include <utf8proc.h>

#include <fmt/format.h>

#include "model/files/bad_file.h"
#include "model/files/utf8.h"
#include "model/text/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

constexpr std::size_t kShortGrapheme = 6; // bytes; from here on, a grapheme is replaced character by character

std::uint32_t label_of(std::uint32_t unit) {
    return unit & 0x800000FFU;
}
bool has_value(std::uint32_t unit) {
    return ((unit >> 8) & 1U) != 0;
}
std::uint32_t value_of(std::uint32_t unit) {
    return unit & 0x7FFFFFFFU;
}
std::uint32_t offset_of(std::uint32_t unit) {
    return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}

[[noreturn]] void throw_bad(const std::string& reason) {
    throw BadFile("normalizer Precompiled: precompiled_charsmap " + reason);
}

std::string bytes_of_base64(std::string_view text) {
    const auto value_of_digit = [](char c) -> int {
        if (c >= 'A' && c <= 'Z') return c - 'A';
        if (c >= 'a' && c <= 'z') return c - 'a' + 26;
        if (c >= '0' && c <= '9') return c - '0' + 52;
        return c == '+' ? 62 : c == '/' ? 63 : -1;
    };
    if (text.size() % 4 != 0) throw_bad("is not base64: its length is not a multiple of 4");
    while (!text.empty() && text.back() == '=')
        text.remove_suffix(1);
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3);
    std::uint32_t bits = 0;
    int n_bits = 0;
    for (const char c : text) {
        const int digit = value_of_digit(c);
        if (digit < 0) throw_bad("is not base64");
        bits = (bits << 6) | static_cast<std::uint32_t>(digit);
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        bytes.push_back(static_cast<char>((bits >> n_bits) & 0xFFU));
    }
    return bytes;
}

std::uint32_t little_endian(std::string_view bytes, std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 4; i-- > 0;)
        value = (value << 8) | static_cast<unsigned char>(bytes[at + i]);
    return value;
}

// Returns the end of the grapheme (user-perceived character) that begins at `position`.
std::size_t grapheme_end(std::string_view text, std::size_t position) {
    CodePoint before = code_point_at(text, position);
    position += before.n_bytes;
    utf8proc_int32_t state = 0;
    while (position < text.size()) {
        const CodePoint next = code_point_at(text, position);
        const bool both_ascii = before.value < 0x80 && next.value < 0x80;
        if (both_ascii && !(before.value == U'\r' && next.value == U'\n')) break;
        if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before.value),
                                             static_cast<utf8proc_int32_t>(next.value), &state)) {
            break;
        }
        before = next;
        position += next.n_bytes;
    }
    return position;
}

} // namespace

PrecompiledMap PrecompiledMap::from_base64(std::string_view base64) {
    return PrecompiledMap(bytes_of_base64(base64));
}

PrecompiledMap::PrecompiledMap(std::string_view bytes) {
    if (bytes.size() < 4) throw_bad("is cut off");
    const std::size_t n_trie_bytes = little_endian(bytes, 0);
    if (n_trie_bytes == 0 || n_trie_bytes % 4 != 0 || n_trie_bytes > bytes.size() - 4) {
        throw_bad(fmt::format("is cut off or broken: a trie of {} bytes in {}", n_trie_bytes, bytes.size()));
    }
    units_.reserve(n_trie_bytes / 4);
    for (std::size_t at = 4; at < 4 + n_trie_bytes; at += 4)
        units_.push_back(little_endian(bytes, at));
    texts_ = std::string(bytes.substr(4 + n_trie_bytes));
    if (first_invalid_utf8(texts_) != std::string_view::npos) throw_bad("holds text that is not UTF-8");
    if (!texts_.empty() && texts_.back() != '\0') throw_bad("is cut off: its last text has no end");
    check();
}

// Walks the whole trie once: every value must be the place of a text.
void PrecompiledMap::check() const {
    std::vector<bool> seen(units_.size());
    std::vector<std::uint32_t> open{offset_of(units_[0])};
    while (!open.empty()) {
        const std::uint32_t base = open.back();
        open.pop_back();
        for (std::uint32_t byte = 1; byte < 256; ++byte) {
            const std::uint32_t node = base ^ byte;
            if (node >= units_.size() || label_of(units_[node]) != byte || seen[node]) continue;
            seen[node] = true;
            const std::uint32_t children = node ^ offset_of(units_[node]);
            if (has_value(units_[node])) {
                if (children >= units_.size()) throw_bad("is broken: a value lies outside of the trie");
                const std::uint32_t at = value_of(units_[children]);
                const bool begins = at < texts_.size() && (static_cast<unsigned char>(texts_[at]) & 0xC0U) != 0x80U;
                if (!begins) throw_bad(fmt::format("is cut off or broken: no text at its offset {}", at));
                const std::string_view text = std::string_view(texts_).substr(at, kMaxInsertedBytes + 1);
                if (text.find('\0') == std::string_view::npos) throw_bad("holds a text that is too long");
            }
            open.push_back(children);
        }
    }
}

std::string_view PrecompiledMap::text_at(std::uint32_t offset) const {
    const std::string_view rest = std::string_view(texts_).substr(offset);
    return rest.substr(0, rest.find('\0'));
}

std::optional<std::string_view> PrecompiledMap::replacement(std::string_view chunk) const {
    std::uint32_t node = offset_of(units_[0]);
    for (const char byte : chunk) {
        if (byte == '\0') break;
        node ^= static_cast<unsigned char>(byte);
        if (node >= units_.size() || label_of(units_[node]) != static_cast<unsigned char>(byte)) break;
        const std::uint32_t unit = units_[node];
        node ^= offset_of(unit);
        if (has_value(unit)) return text_at(value_of(units_[node]));
    }
    return std::nullopt;
}

std::optional<PrecompiledMap::Replacement> PrecompiledMap::longest(std::string_view text) const {
    std::optional<Replacement> found;
    std::uint32_t node = offset_of(units_[0]);
    for (std::size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        node ^= byte;
        if (node >= units_.size() || label_of(units_[node]) != byte) break;
        const std::uint32_t unit = units_[node];
        node ^= offset_of(unit);
        // A key that ends within a character would leave a text that begins within one.
        const bool ends_character = i + 1 == text.size() || (static_cast<unsigned char>(text[i + 1]) & 0xC0U) != 0x80U;
        if (has_value(unit) && ends_character) found = {text_at(value_of(units_[node])), i + 1};
    }
    return found;
}

std::string PrecompiledMap::apply(std::string_view text) const {
    std::string out;
    out.reserve(text.size());
    for (std::size_t position = 0; position < text.size();) {
        const std::size_t end = grapheme_end(text, position);
        const std::string_view grapheme = text.substr(position, end - position);
        const auto whole = grapheme.size() < kShortGrapheme ? replacement(grapheme) : std::nullopt;
        if (whole) {
            out += *whole;
        } else {
            for (std::size_t at = position; at < end;) {
                const std::string_view character = text.substr(at, code_point_at(text, at).n_bytes);
                out += replacement(character).value_or(character);
                at += character.size();
            }
        }
        position = end;
    }
    return out;
}

} // namespace entrodraft::model
