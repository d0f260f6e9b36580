// See normalizer.h. utf8proc has the Unicode tables and composes; marks are put in order here, because
// utf8proc's own ordering takes quadratic time on a long run of them.
#include "entrodraft/model/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>

#include "entrodraft/model/tokenizer_json.h"
#include "entrodraft/model/utf8.h"

namespace entrodraft::model {
namespace {

struct Range {
    utf8proc_int32_t first, last;
};

// Characters with normalization data in utf8proc's Unicode 15 but none in the reference's Unicode 9, found by
// normalizing every code point, alone and between marks, with both (U+11930: it would compose to U+11938).
constexpr Range kInert[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}};

constexpr utf8proc_int32_t kFirstThatMayChange = 0x300; // everything below is in NFC already
constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);

bool is_inert(utf8proc_int32_t character) {
    const auto* range = std::lower_bound(std::begin(kInert), std::end(kInert), character,
                                         [](const Range& r, utf8proc_int32_t c) { return r.last < c; });
    return range != std::end(kInert) && range->first <= character;
}

int combining_class(utf8proc_int32_t character) {
    return is_inert(character) ? 0 : utf8proc_get_property(character)->combining_class;
}

std::vector<utf8proc_int32_t> decompose(std::string_view text) {
    std::vector<utf8proc_int32_t> characters;
    characters.reserve(text.size());
    std::array<utf8proc_int32_t, 8> parts{};
    for (std::size_t position = 0; position < text.size();) {
        const CodePoint point = code_point_at(text, position);
        const auto character = static_cast<utf8proc_int32_t>(point.value);
        position += point.n_bytes;
        int unused = 0;
        const auto count = character < 0x80 || is_inert(character)
                               ? -1
                               : utf8proc_decompose_char(character, parts.data(), parts.size(), kOptions, &unused);
        if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
            characters.push_back(character);
        } else {
            characters.insert(characters.end(), parts.begin(), parts.begin() + count);
        }
    }
    return characters;
}

// Each run of marks between two starters by combining class, equal classes in their order.
void order_marks(std::vector<utf8proc_int32_t>& characters) {
    const auto is_starter = [](utf8proc_int32_t c) { return c < kFirstThatMayChange || combining_class(c) == 0; };
    for (auto at = characters.begin(); at != characters.end();) {
        const auto begin = std::find_if_not(at, characters.end(), is_starter);
        at = std::find_if(begin, characters.end(), is_starter);
        if (at - begin > 1) {
            std::stable_sort(begin, at, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
        }
    }
}

// Composes what lies between two inert characters, in place, and appends it as UTF-8.
void append_composed(std::span<utf8proc_int32_t> characters, std::string& out) {
    const auto count = utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                                                static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
        append_utf8(static_cast<char32_t>(characters[static_cast<std::size_t>(i)]), out);
    }
}

} // namespace

std::string nfc(std::string_view text) {
    // Lead bytes below 0xCC begin characters below U+0300.
    const bool unchanged =
        std::all_of(text.begin(), text.end(), [](char byte) { return static_cast<unsigned char>(byte) < 0xCC; });
    if (unchanged) return std::string(text);
    std::vector<utf8proc_int32_t> characters = decompose(text);
    order_marks(characters);
    std::string out;
    out.reserve(text.size());
    for (auto begin = characters.begin(); begin != characters.end();) {
        const auto inert = std::find_if(begin, characters.end(), is_inert);
        append_composed({begin, inert}, out);
        if (inert == characters.end()) break;
        append_utf8(static_cast<char32_t>(*inert), out);
        begin = inert + 1;
    }
    return out;
}

Normalizer Normalizer::from_json(const nlohmann::json& normalizer) {
    Normalizer result;
    if (!normalizer.is_null()) result.add(normalizer, 0);
    return result;
}

void Normalizer::add(const nlohmann::json& step, int depth) {
    const std::string type = component_type(step, "normalizer", depth);
    if (type == "NFC") {
        steps_.emplace_back(NfcStep{});
    } else if (type == "Sequence") {
        for (const auto& part : array_field(step, "normalizers", "normalizer Sequence"))
            add(part, depth + 1);
    } else {
        throw_unsupported("normalizer", type);
    }
}

std::string Normalizer::normalize(std::string_view text) const {
    std::string result(text);
    for (const NormalizerStep& step : steps_) {
        std::visit([&](const NfcStep&) { result = nfc(result); }, step);
    }
    return result;
}

} // namespace entrodraft::model
