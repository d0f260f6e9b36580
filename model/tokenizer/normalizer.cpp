// See normalizer.h.
#include "model/tokenizer/normalizer.h"

#include <utility>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/tokenizer_json.h"
#include "model/utf8.h"

namespace entrodraft::model {
namespace {

constexpr char32_t kDropped = 0xFFFFFFFF;

// Rebuilds the text character by character; `change` gives what a character becomes, or kDropped.
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

// As SentencePiece's rule "nmt" does, without the part that is in the precompiled map.
char32_t nmt_character(char32_t c) {
    const auto in = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
    const bool dropped = in(0x1, 0x8) || c == 0xB || in(0xE, 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
    const bool blank = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || in(0x200B, 0x200F) ||
                       c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    return dropped ? kDropped : blank ? U' ' : c;
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

Normalizer Normalizer::from_json(const nlohmann::json& normalizer, std::shared_ptr<const CharClasses> classes) {
    Normalizer result;
    result.classes_ = std::move(classes);
    if (!normalizer.is_null()) result.add(normalizer, 0);
    return result;
}

void Normalizer::add(const nlohmann::json& step, int depth) {
    const std::string& type = component_type(step, "normalizer", depth);
    const std::string what = "normalizer " + type;
    check_steps(steps_.size(), "normalizer");
    if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
        steps_.emplace_back(NormalFormStep{type == "NFC"    ? NormalForm::nfc
                                           : type == "NFD"  ? NormalForm::nfd
                                           : type == "NFKC" ? NormalForm::nfkc
                                                            : NormalForm::nfkd});
    } else if (type == "Lowercase") {
        steps_.emplace_back(LowercaseStep{});
    } else if (type == "Strip") {
        steps_.emplace_back(
            StripStep{bool_field(step, "strip_left", true, what), bool_field(step, "strip_right", true, what)});
    } else if (type == "StripAccents") {
        steps_.emplace_back(StripAccentsStep{});
    } else if (type == "Prepend") {
        steps_.emplace_back(PrependStep{inserted_field(step, "prepend", what)});
    } else if (type == "Replace") {
        steps_.emplace_back(ReplaceStep{pattern_from_json(object_field(step, "pattern", what), what + ": the pattern"),
                                        inserted_field(step, "content", what)});
    } else if (type == "Precompiled") {
        steps_.emplace_back(
            PrecompiledStep{std::make_shared<const PrecompiledMap>(string_field(step, "precompiled_charsmap", what))});
    } else if (type == "Nmt") {
        steps_.emplace_back(NmtStep{});
    } else if (type == "ByteLevel") {
        steps_.emplace_back(ByteLevelNormalizerStep{});
    } else if (type == "Sequence") {
        for (const auto& part : array_field(step, "normalizers", what))
            add(part, depth + 1);
    } else {
        throw_unsupported("normalizer", type);
    }
}

NormalizedText Normalizer::normalize(std::string_view text) const {
    NormalizedText result{std::string(text), true};
    for (const NormalizerStep& step : steps_)
        std::visit([&](const auto& s) { apply(s, result); }, step);
    return result;
}

void Normalizer::apply(const NormalFormStep& step, NormalizedText& text) const {
    text.text = normal_form(text.text, step.form);
}

void Normalizer::apply(const LowercaseStep& /*step*/, NormalizedText& text) const {
    text.text = lower_case(text.text);
}

void Normalizer::apply(const StripStep& step, NormalizedText& text) const {
    const auto is_space = [&](std::size_t at) {
        return classes_->is(code_point_at(text.text, at).value, CharClasses::space);
    };
    std::size_t begin = 0, end = text.text.size();
    while (step.left && begin < end && is_space(begin))
        begin += code_point_at(text.text, begin).n_bytes;
    while (step.right && end > begin && is_space(previous_code_point(text.text, end)))
        end = previous_code_point(text.text, end);
    if (begin > 0) text.keeps_begin = false;
    text.text = text.text.substr(begin, end - begin);
}

void Normalizer::apply(const StripAccentsStep& /*step*/, NormalizedText& text) const {
    change_each(text, [&](char32_t c) { return classes_->is(c, CharClasses::mark) ? kDropped : c; });
}

void Normalizer::apply(const PrependStep& step, NormalizedText& text) const {
    if (!text.text.empty()) text.text.insert(0, step.text);
}

void Normalizer::apply(const ReplaceStep& step, NormalizedText& text) const {
    if (text.text.empty()) return;
    const std::vector<Span> matches = find_all(step.pattern, text.text);
    if (matches.empty()) return;
    std::string out;
    std::size_t end = 0;
    for (const Span& match : matches) {
        out.append(text.text, end, match.begin - end).append(step.content);
        end = match.end;
    }
    out.append(text.text, end);
    // What replaces several characters counts as coming from the last of them.
    const Span& first = matches.front();
    const bool one_character = first.end <= code_point_at(text.text, 0).n_bytes;
    if (first.begin == 0 && first.end > 0 && !(one_character && !step.content.empty())) text.keeps_begin = false;
    text.text = std::move(out);
}

void Normalizer::apply(const PrecompiledStep& step, NormalizedText& text) const {
    text.text = step.map->apply(text.text);
}

void Normalizer::apply(const NmtStep& /*step*/, NormalizedText& text) const {
    change_each(text, nmt_character);
}

void Normalizer::apply(const ByteLevelNormalizerStep& /*step*/, NormalizedText& text) const {
    text.text = to_byte_level(text.text);
}

} // namespace entrodraft::model
