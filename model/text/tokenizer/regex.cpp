// See regex.h. Only this file uses Oniguruma.
#include "model/text/tokenizer/regex.h"

#include <oniguruma.h>

#include <array>
#include <span>
#include <stdexcept>

#include "model/files/bad_file.h"
#include "model/files/utf8.h"

namespace entrodraft::model {
namespace {

constexpr std::size_t kCodePoints = 0x110000;
constexpr unsigned long kMinRetries = 10'000'000;

struct Range {
    char32_t first, last;
};

// Letters and numbers new in Unicode 15 and 16. The reference's engine knows them; Oniguruma 6.9.8, which distributions
// ship, ends with Unicode 14. With these, the hand-written matchers do not depend on its version.
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
// These were found by asking the reference about every code point. Words include those new in Unicode 16, numbers those
// new in Unicode 17; punctuation and marks are as in Unicode 8 and 9.
constexpr Range kNewerWords[] = {{0x897, 0x897},     {0xCF3, 0xCF3},     {0xECE, 0xECE},     {0x10D69, 0x10D6D},
                                 {0x10EFC, 0x10EFF}, {0x11241, 0x11241}, {0x113B8, 0x113C0}, {0x113C2, 0x113C2},
                                 {0x113C5, 0x113C5}, {0x113C7, 0x113CA}, {0x113CC, 0x113D0}, {0x113D2, 0x113D2},
                                 {0x113E1, 0x113E2}, {0x11F00, 0x11F01}, {0x11F03, 0x11F03}, {0x11F34, 0x11F3A},
                                 {0x11F3E, 0x11F42}, {0x11F5A, 0x11F5A}, {0x13440, 0x13440}, {0x13447, 0x13455},
                                 {0x1611E, 0x1612F}, {0x1E08F, 0x1E08F}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}};
constexpr Range kNewestNumbers[] = {{0x11DE0, 0x11DE9}, {0x16FF4, 0x16FF6}};
constexpr Range kAsciiSymbols[] = {{'$', '$'}, {'+', '+'}, {'<', '>'}, {'^', '^'}, {'`', '`'}, {'|', '|'}, {'~', '~'}};
constexpr Range kNotWords[] = {{0x1D2C0, 0x1D2D3}};
constexpr Range kOlderPunctuation[] = {{0x166D, 0x166D}, {0x111C9, 0x111C9}};
constexpr Range kNoPunctuation[] = {{0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},
                                    {0xC84, 0xC84},     {0x1B7D, 0x1B7E},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},
                                    {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x1144B, 0x1144F},
                                    {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9},
                                    {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
                                    {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11C41, 0x11C45},
                                    {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF},
                                    {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F}};
constexpr Range kOlderMarks[] = {{0x1CF2, 0x1CF3}};
constexpr Range kNoMarks[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xAFA, 0xAFF},
    {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},     {0xCF3, 0xCF3},     {0xD00, 0xD00},
    {0xD3B, 0xD3C},     {0xD81, 0xD81},     {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},
    {0x180F, 0x180F},   {0x1ABF, 0x1ACE},   {0x1CF7, 0x1CF7},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0xA8FF, 0xA8FF},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110C2, 0x110C2}, {0x11145, 0x11146},
    {0x111C9, 0x111C9}, {0x111CE, 0x111CF}, {0x11241, 0x11241}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
    {0x1182C, 0x1183A}, {0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193B, 0x1193E}, {0x11940, 0x11940},
    {0x11942, 0x11943}, {0x119D1, 0x119D7}, {0x119DA, 0x119E0}, {0x119E4, 0x119E4}, {0x11A01, 0x11A0A},
    {0x11A33, 0x11A39}, {0x11A3B, 0x11A3E}, {0x11A47, 0x11A47}, {0x11A51, 0x11A5B}, {0x11A8A, 0x11A99},
    {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A}, {0x11D3C, 0x11D3D}, {0x11D3F, 0x11D45}, {0x11D47, 0x11D47},
    {0x11D8A, 0x11D8E}, {0x11D90, 0x11D91}, {0x11D93, 0x11D97}, {0x11EF3, 0x11EF6}, {0x11F00, 0x11F01},
    {0x11F03, 0x11F03}, {0x11F34, 0x11F3A}, {0x11F3E, 0x11F42}, {0x13440, 0x13440}, {0x13447, 0x13455},
    {0x16F4F, 0x16F4F}, {0x16F7F, 0x16F87}, {0x16FE4, 0x16FE4}, {0x16FF0, 0x16FF1}, {0x1CF00, 0x1CF2D},
    {0x1CF30, 0x1CF46}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}};

void initialize_engine() {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    static const int status = onig_initialize(encodings, 1); // once a process, as the library requires
    if (status != ONIG_NORMAL) throw std::runtime_error("the regular expression engine did not start");
}

std::string reason(int code, OnigErrorInfo* info) {
    OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
    const int length = info != nullptr ? onig_error_code_to_str(text, code, info) : onig_error_code_to_str(text, code);
    return {reinterpret_cast<const char*>(text), static_cast<std::size_t>(length)};
}

struct ParameterFree {
    void operator()(OnigMatchParam* parameter) const { onig_free_match_param(parameter); }
};

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
    const std::unique_ptr<OnigMatchParam, ParameterFree> limits(onig_new_match_param());
    onig_initialize_match_param(limits.get());
    // Backtracking over a run of the text's length a few times is allowed; a pattern that tries much more has blown up.
    onig_set_retry_limit_in_match_of_match_param(limits.get(), kMinRetries + 4 * text.size());
    std::vector<Span> matches;
    std::size_t from = 0;
    while (from <= text.size()) {
        const int code = onig_search_with_param(static_cast<OnigRegex>(compiled_.get()), begin, end, begin + from, end,
                                                region.get(), ONIG_OPTION_NONE, limits.get());
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
    const auto mark_ranges = [&](std::span<const Range> ranges, unsigned flags, bool on = true) {
        for (const Range& range : ranges) {
            for (char32_t c = range.first; c <= range.last && c < kCodePoints; ++c)
                flags_[c] = static_cast<std::uint8_t>(on ? flags_[c] | flags : flags_[c] & ~flags);
        }
    };
    const auto mark_property = [&](const std::string& property, unsigned flags) {
        OnigEncoding utf8 = ONIG_ENCODING_UTF8;
        auto* name = reinterpret_cast<OnigUChar*>(const_cast<char*>(property.data()));
        const int type = utf8->property_name_to_ctype(utf8, name, name + property.size());
        const OnigCodePoint* ranges = nullptr; // a count, then that number of pairs of first and last
        OnigCodePoint single_byte_end = 0;
        if (type < 0 || utf8->get_ctype_code_range(static_cast<OnigCtype>(type), &single_byte_end, &ranges) != 0) {
            throw std::runtime_error("the regular expression engine has no property '" + property + "'");
        }
        for (OnigCodePoint i = 0; i < ranges[0]; ++i)
            mark_ranges(std::array{Range{ranges[1 + 2 * i], ranges[2 + 2 * i]}}, flags);
    };
    mark_property("L", letter);
    mark_property("N", number | numeric);
    mark_property("White_Space", space);
    mark_property("P", punctuation);
    mark_property("M", mark);
    for (const char* property : {"Alphabetic", "M", "Nd", "Pc", "Join_Control"})
        mark_property(property, word);
    mark_ranges(kNewerLetters, letter | word);
    mark_ranges(kNewerNumbers, number | numeric | word);
    mark_ranges(kNewerWords, word);
    mark_ranges(kNotWords, word, false);
    mark_ranges(kNewestNumbers, numeric);
    mark_ranges(kAsciiSymbols, punctuation);
    mark_ranges(kOlderPunctuation, punctuation);
    mark_ranges(kNoPunctuation, punctuation, false);
    mark_ranges(kOlderMarks, mark);
    mark_ranges(kNoMarks, mark, false);
}

} // namespace entrodraft::model
