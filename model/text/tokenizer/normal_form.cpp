// See normal_form.h. utf8proc has the Unicode tables and composes characters. The order of marks is made here, because
// utf8proc's own ordering takes quadratic time on a long run of marks.
#include "model/text/tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "model/files/utf8.h"

namespace entrodraft::model {
namespace {

struct CharacterRange {
    utf8proc_int32_t first, last;
};

// Characters with normalization data in utf8proc's Unicode 15 but not in the reference's Unicode 9. They were found by
// normalizing every code point, alone and between marks, with both (U+11930: it would compose to U+11938).
constexpr CharacterRange kInert[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}};

// The same for compatibility decompositions.
constexpr CharacterRange kNoCompatibility[] = {{0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},
                                               {0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
                                               {0x1E030, 0x1E06D}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

// Lower case letters new in Unicode 16 and 17: first, last, and the number to add.
struct LowerCase {
    char32_t first, last;
    std::int32_t add;
};
constexpr LowerCase kNewerLowerCase[] = {{0x1C89, 0x1C89, 1},      {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
                                         {0xA7CC, 0xA7CC, 1},      {0xA7CE, 0xA7CE, 1},
                                         {0xA7D2, 0xA7D2, 1},      {0xA7D4, 0xA7D4, 1},
                                         {0xA7DA, 0xA7DA, 1},      {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
                                         {0x10D50, 0x10D65, 0x20}, {0x16EA0, 0x16EB8, 0x1B}};

constexpr utf8proc_int32_t kFirstMark = 0x300; // the first character with a combining class
constexpr std::size_t kLongestDecomposition = 18;

bool is_in(std::span<const CharacterRange> ranges, utf8proc_int32_t character) {
    const auto range = std::lower_bound(ranges.begin(), ranges.end(), character,
                                        [](const CharacterRange& r, utf8proc_int32_t c) { return r.last < c; });
    return range != ranges.end() && range->first <= character;
}

int combining_class(utf8proc_int32_t character) {
    return is_in(kInert, character) ? 0 : utf8proc_get_property(character)->combining_class;
}

std::vector<utf8proc_int32_t> decompose(std::string_view text, bool compatibility) {
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                        (compatibility ? UTF8PROC_COMPAT : UTF8PROC_STABLE));
    std::vector<utf8proc_int32_t> characters;
    characters.reserve(text.size());
    std::array<utf8proc_int32_t, kLongestDecomposition> parts{};
    for (std::size_t position = 0; position < text.size();) {
        const CodePoint point = code_point_at(text, position);
        const auto character = static_cast<utf8proc_int32_t>(point.value);
        position += point.n_bytes;
        const bool stays =
            character < 0x80 || is_in(kInert, character) || (compatibility && is_in(kNoCompatibility, character));
        int unused = 0;
        const auto count =
            stays ? -1 : utf8proc_decompose_char(character, parts.data(), parts.size(), options, &unused);
        if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
            characters.push_back(character);
        } else {
            characters.insert(characters.end(), parts.begin(), parts.begin() + count);
        }
    }
    return characters;
}

// Sorts each run of marks between two starters by combining class; equal classes keep their order.
void order_marks(std::vector<utf8proc_int32_t>& characters) {
    const auto is_starter = [](utf8proc_int32_t c) { return c < kFirstMark || combining_class(c) == 0; };
    for (auto at = characters.begin(); at != characters.end();) {
        const auto begin = std::find_if_not(at, characters.end(), is_starter);
        at = std::find_if(begin, characters.end(), is_starter);
        if (at - begin > 1) {
            std::stable_sort(begin, at, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
        }
    }
}

void append_all(std::span<const utf8proc_int32_t> characters, std::string& out) {
    for (const utf8proc_int32_t character : characters)
        append_utf8(static_cast<char32_t>(character), out);
}

// Composes the characters between two inert characters, in place, and appends them as UTF-8.
void append_composed(std::span<utf8proc_int32_t> characters, std::string& out) {
    const auto count = utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                                                static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    append_all(characters.first(static_cast<std::size_t>(std::max<utf8proc_ssize_t>(count, 0))), out);
}

// Returns whether all bytes belong to characters below the first one that the form changes. U+00C0 decomposes, and
// U+00A0 does so for compatibility. Below U+0300 all characters are composed.
bool is_unchanged(std::string_view text, NormalForm form) {
    const unsigned limit = form == NormalForm::nfc ? 0xCC : form == NormalForm::nfd ? 0xC3 : 0xC2;
    return std::all_of(text.begin(), text.end(), [&](char byte) { return static_cast<unsigned char>(byte) < limit; });
}

} // namespace

std::string normal_form(std::string_view text, NormalForm form) {
    if (is_unchanged(text, form)) return std::string(text);
    std::vector<utf8proc_int32_t> characters = decompose(text, form == NormalForm::nfkc || form == NormalForm::nfkd);
    order_marks(characters);
    std::string out;
    out.reserve(text.size());
    if (form == NormalForm::nfd || form == NormalForm::nfkd) {
        append_all(characters, out);
        return out;
    }
    for (auto begin = characters.begin(); begin != characters.end();) {
        const auto inert = std::find_if(begin, characters.end(), [](auto c) { return is_in(kInert, c); });
        append_composed({begin, inert}, out);
        if (inert == characters.end()) break;
        append_utf8(static_cast<char32_t>(*inert), out);
        begin = inert + 1;
    }
    return out;
}

std::string lower_case(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t position = 0; position < text.size();) {
        const CodePoint point = code_point_at(text, position);
        position += point.n_bytes;
        auto lower = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point.value)));
        const auto* newer = std::find_if(std::begin(kNewerLowerCase), std::end(kNewerLowerCase), [&](const auto& r) {
            return r.first <= point.value && point.value <= r.last;
        });
        if (newer != std::end(kNewerLowerCase)) {
            lower = static_cast<char32_t>(static_cast<std::int32_t>(point.value) + newer->add);
        }
        append_utf8(lower, out);
        if (point.value == 0x130) append_utf8(0x307, out); // I with a dot above keeps the dot
    }
    return out;
}

} // namespace entrodraft::model
