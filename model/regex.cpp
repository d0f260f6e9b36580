// See regex.h. The only file that knows Oniguruma.
#include "entrodraft/model/regex.h"

#include <oniguruma.h>

#include <stdexcept>

#include "entrodraft/model/bad_file.h"
#include "entrodraft/model/utf8.h"

namespace entrodraft::model {
namespace {

constexpr std::size_t kCodePoints = 0x110000;

struct Range {
    char32_t first, last;
};

// Letters and numbers that Unicode 15 and 16 brought. The reference's engine knows them; Oniguruma 6.9.8, which
// distributions ship, ends with Unicode 14. With them the hand-written matchers do not depend on its version.
constexpr Range kNewerLetters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3}, {0x10D4A, 0x10D65},
    {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x1123F, 0x11240}, {0x11380, 0x11389}, {0x1138B, 0x1138B},
    {0x1138E, 0x1138E}, {0x11390, 0x113B5}, {0x113B7, 0x113B7}, {0x113D1, 0x113D1}, {0x113D3, 0x113D3},
    {0x11BC0, 0x11BE0}, {0x11F02, 0x11F02}, {0x11F04, 0x11F10}, {0x11F12, 0x11F33}, {0x1342F, 0x1342F},
    {0x13441, 0x13446}, {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF},
    {0x1B132, 0x1B132}, {0x1B155, 0x1B155}, {0x1DF25, 0x1DF2A}, {0x1E030, 0x1E06D}, {0x1E4D0, 0x1E4EB},
    {0x1E5D0, 0x1E5ED}, {0x1E5F0, 0x1E5F0}, {0x2B739, 0x2B739}, {0x2EBF0, 0x2EE5D}, {0x31350, 0x323AF}};
constexpr Range kNewerNumbers[] = {{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x11F50, 0x11F59},
                                   {0x16130, 0x16139}, {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1D2C0, 0x1D2D3},
                                   {0x1E4F0, 0x1E4F9}, {0x1E5F1, 0x1E5FA}};

void initialize_engine() {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    static const int status = onig_initialize(encodings, 1); // once a process, as the library asks
    if (status != ONIG_NORMAL) throw std::runtime_error("the regular expression engine did not start");
}

std::string reason(int code, OnigErrorInfo* info) {
    OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
    const int length = info != nullptr ? onig_error_code_to_str(text, code, info) : onig_error_code_to_str(text, code);
    return {reinterpret_cast<const char*>(text), static_cast<std::size_t>(length)};
}

struct RegionFree {
    void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};

} // namespace

Regex::Regex(const std::string& pattern) : pattern_(pattern) {
    initialize_engine();
    const auto* begin = reinterpret_cast<const OnigUChar*>(pattern.data());
    OnigRegex compiled = nullptr;
    OnigErrorInfo info;
    const int code = onig_new(&compiled, begin, begin + pattern.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                              ONIG_SYNTAX_RUBY, &info);
    if (code != ONIG_NORMAL)
        throw BadFile("the regular expression '" + pattern + "' does not compile: " + reason(code, &info));
    compiled_ = std::shared_ptr<void>(compiled, [](void* regex) { onig_free(static_cast<OnigRegex>(regex)); });
}

std::vector<Span> Regex::find_all(std::string_view text) const {
    const auto* begin = reinterpret_cast<const OnigUChar*>(text.data());
    const auto* end = begin + text.size();
    const std::unique_ptr<OnigRegion, RegionFree> region(onig_region_new());
    std::vector<Span> matches;
    std::size_t from = 0;
    while (from <= text.size()) {
        const int code = onig_search(static_cast<OnigRegex>(compiled_.get()), begin, end, begin + from, end,
                                     region.get(), ONIG_OPTION_NONE);
        if (code == ONIG_MISMATCH) break;
        if (code < 0) {
            throw std::runtime_error("the regular expression '" + pattern_ +
                                     "' of tokenizer.json fails on this text: " + reason(code, nullptr));
        }
        const Span match{static_cast<std::size_t>(region->beg[0]), static_cast<std::size_t>(region->end[0])};
        if (match.begin == match.end && !matches.empty() && matches.back().end == match.end) {
            from += from < text.size() ? code_point_at(text, from).n_bytes : 1;
            continue;
        }
        matches.push_back(match);
        from = match.end;
    }
    return matches;
}

CharClasses::CharClasses() : flags_(kCodePoints) {
    initialize_engine();
    const auto mark_range = [&](char32_t first, char32_t last, unsigned flag) {
        for (char32_t c = first; c <= last && c < kCodePoints; ++c)
            flags_[c] = static_cast<std::uint8_t>(flags_[c] | flag);
    };
    const auto mark = [&](const std::string& property, unsigned flag) {
        OnigEncoding utf8 = ONIG_ENCODING_UTF8;
        auto* name = reinterpret_cast<OnigUChar*>(const_cast<char*>(property.data()));
        const int type = utf8->property_name_to_ctype(utf8, name, name + property.size());
        const OnigCodePoint* ranges = nullptr; // a count, then that many pairs of first and last
        OnigCodePoint single_byte_end = 0;
        if (type < 0 || utf8->get_ctype_code_range(static_cast<OnigCtype>(type), &single_byte_end, &ranges) != 0) {
            throw std::runtime_error("the regular expression engine has no property '" + property + "'");
        }
        for (OnigCodePoint i = 0; i < ranges[0]; ++i) {
            mark_range(ranges[1 + 2 * i], ranges[2 + 2 * i], flag);
        }
    };
    mark("L", letter);
    mark("N", number);
    mark("White_Space", space);
    for (const char* property : {"Alphabetic", "M", "Nd", "Pc", "Join_Control"})
        mark(property, word);
    for (const Range& range : kNewerLetters)
        mark_range(range.first, range.last, letter | word);
    for (const Range& range : kNewerNumbers)
        mark_range(range.first, range.last, number | word);
}

} // namespace entrodraft::model
