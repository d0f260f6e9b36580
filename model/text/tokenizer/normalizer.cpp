// See normalizer.h.
#include "model/text/tokenizer/normalizer.h"

#include <utility>

#include "model/files/utf8.h"
#include "model/text/tokenizer/byte_level.h"
#include "model/text/tokenizer/normal_form.h"
#include "model/text/tokenizer/precompiled_map.h"
#include "model/text/tokenizer/tokenizer_json.h"

namespace entrodraft::model {
namespace {

constexpr char32_t kDropped = 0xFFFFFFFF;

// Rebuilds the text character by character; `change` returns the new character, or kDropped.
template <typename Change> void change_each(NormalizedText& text, Change change) {
    std::string out;
    out.reserve(text.text.size());
    for (std::size_t position = 0; position < text.text.size();) {
        const CodePoint point = code_point_at(text.text, position);
        const char32_t changed = change(point.value);
        if (changed != kDropped) append_utf8(changed, out);
        if (changed == kDropped && position == 0) text.keeps_begin = false;
        position += point.n_bytes;
    }
    text.text = std::move(out);
}

// Does the same as SentencePiece's rule "nmt", without the part that is in the precompiled map.
char32_t nmt_character(char32_t c) {
    const auto in = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
    const bool dropped = in(0x1, 0x8) || c == 0xB || in(0xE, 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
    const bool blank = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || in(0x200B, 0x200F) ||
                       c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    return dropped ? kDropped : blank ? U' ' : c;
}

// Removes white space at the ends.
void strip_space(NormalizedText& text, bool left, bool right, const CharClasses& classes) {
    const auto is_space = [&](std::size_t at) {
        return classes.is(code_point_at(text.text, at).value, CharClasses::space);
    };
    std::size_t begin = 0, end = text.text.size();
    while (left && begin < end && is_space(begin))
        begin += code_point_at(text.text, begin).n_bytes;
    while (right && end > begin && is_space(previous_code_point(text.text, end)))
        end = previous_code_point(text.text, end);
    if (begin > 0) text.keeps_begin = false;
    text.text = text.text.substr(begin, end - begin);
}

void replace_matches(NormalizedText& text, const Pattern& pattern, const std::string& content) {
    if (text.text.empty()) return;
    const std::vector<Span> matches = find_all(pattern, text.text);
    if (matches.empty()) return;
    // If one text replaces several characters, it counts as coming from the last of them.
    const Span& first = matches.front();
    const bool one_character = first.end <= code_point_at(text.text, 0).n_bytes;
    if (first.begin == 0 && first.end > 0 && !(one_character && !content.empty())) text.keeps_begin = false;
    text.text = replaced(text.text, matches, content);
}

// Makes a step that changes the text, after which its first character still counts as the original first one.
template <typename Change> NormalizerStep on_text(Change change) {
    return [change = std::move(change)](NormalizedText& text) { text.text = change(text.text); };
}

NormalizerStep normalizer_step(const ComponentStep& step, const std::shared_ptr<const CharClasses>& classes) {
    const auto& [fields, type, what] = step;
    const auto to_form = [](NormalForm form) {
        return on_text([form](const std::string& text) { return normal_form(text, form); });
    };
    if (type == "NFC") return to_form(NormalForm::nfc);
    if (type == "NFD") return to_form(NormalForm::nfd);
    if (type == "NFKC") return to_form(NormalForm::nfkc);
    if (type == "NFKD") return to_form(NormalForm::nfkd);
    if (type == "Lowercase") return on_text(lower_case);
    if (type == "ByteLevel") return on_text(to_byte_level);
    if (type == "Nmt") return [](NormalizedText& text) { change_each(text, nmt_character); };
    if (type == "Strip") {
        const bool left = bool_field(fields, "strip_left", true, what);
        const bool right = bool_field(fields, "strip_right", true, what);
        return [=](NormalizedText& text) { strip_space(text, left, right, *classes); };
    }
    if (type == "StripAccents")
        return [classes](NormalizedText& text) {
            change_each(text, [&](char32_t c) { return classes->is(c, CharClasses::mark) ? kDropped : c; });
        };
    if (type == "Prepend") // before any text that is not empty
        return on_text([prefix = inserted_field(fields, "prepend", what)](const std::string& text) {
            return text.empty() ? text : prefix + text;
        });
    if (type == "Replace")
        return [pattern = pattern_from_json(object_field(fields, "pattern", what), what + ": the pattern"),
                content = inserted_field(fields, "content", what)](NormalizedText& text) {
            replace_matches(text, pattern, content);
        };
    if (type == "Precompiled")
        return on_text([map = PrecompiledMap::from_base64(string_field(fields, "precompiled_charsmap", what))](
                           const std::string& text) { return map.apply(text); });
    throw_unsupported("normalizer", type);
}

} // namespace

Pattern pattern_from_json(const nlohmann::json& pattern, const std::string& what) {
    if (!pattern.contains("String")) {
        const std::string& expression = string_field(pattern, "Regex", what);
        try {
            return Regex(expression);
        } catch (const BadFile& error) {
            throw BadFile(what + ": " + error.what());
        }
    }
    const std::string& text = string_field(pattern, "String", what);
    if (text.empty()) throw BadFile(what + " is empty");
    return text;
}

std::vector<Span> find_all(const Pattern& pattern, std::string_view text) {
    if (const auto* regex = std::get_if<Regex>(&pattern)) return regex->find_all(text);
    const std::string& needle = std::get<std::string>(pattern);
    std::vector<Span> matches;
    for (std::size_t at = text.find(needle); at != std::string_view::npos; at = text.find(needle, at + needle.size())) {
        matches.push_back({at, at + needle.size()});
    }
    return matches;
}

std::string replaced(std::string_view text, const std::vector<Span>& matches, std::string_view content) {
    std::string out;
    std::size_t end = 0;
    for (const Span& match : matches) {
        out.append(text.substr(end, match.begin - end)).append(content);
        end = match.end;
    }
    return out.append(text.substr(end));
}

Normalizer Normalizer::from_json(const nlohmann::json& normalizer, const std::shared_ptr<const CharClasses>& classes) {
    Normalizer result;
    for (const ComponentStep& step : steps_of(normalizer, "normalizer", "normalizers"))
        result.steps_.push_back(normalizer_step(step, classes));
    return result;
}

Normalizer Normalizer::of_step(NormalizerStep step) {
    Normalizer result;
    result.steps_.push_back(std::move(step));
    return result;
}

NormalizedText Normalizer::normalize(std::string_view text, bool at_begin) const {
    NormalizedText result{std::string(text), true, at_begin};
    for (const NormalizerStep& step : steps_)
        step(result);
    return result;
}

} // namespace entrodraft::model
