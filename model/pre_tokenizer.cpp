// See pre_tokenizer.h. A Split is: find matches, mark what lies between them, then join or drop as its behavior
// says. The known word patterns go to WordSplitter, which never leaves a gap.
#include "entrodraft/model/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "entrodraft/model/byte_level.h"
#include "entrodraft/model/tokenizer_json.h"
#include "entrodraft/model/utf8.h"

namespace entrodraft::model {
namespace {

struct Part {
    Span span;
    bool is_match = false;
};

std::vector<Span> find_all(const std::string& needle, std::string_view text) {
    std::vector<Span> matches;
    for (std::size_t at = text.find(needle); at != std::string_view::npos; at = text.find(needle, at + needle.size())) {
        matches.push_back({at, at + needle.size()});
    }
    return matches;
}

// Matches and what lies between them, in order; a match may be empty.
std::vector<Part> parts_of(const std::vector<Span>& matches, std::size_t size, bool invert) {
    std::vector<Part> parts;
    std::size_t end = 0;
    for (const Span& match : matches) {
        if (end != match.begin) parts.push_back({{end, match.begin}, invert});
        parts.push_back({match, !invert});
        end = match.end;
    }
    if (end != size) parts.push_back({{end, size}, invert});
    return parts;
}

// Joins neighbouring parts where `joins(part, the part before was a match)`.
template <typename Joins> std::vector<Span> join(const std::vector<Part>& parts, Joins joins) {
    std::vector<Span> spans;
    bool after_match = false;
    for (const Part& part : parts) {
        if (!spans.empty() && joins(part, after_match)) {
            spans.back().begin = std::min(spans.back().begin, part.span.begin);
            spans.back().end = std::max(spans.back().end, part.span.end);
        } else {
            spans.push_back(part.span);
        }
        after_match = part.is_match;
    }
    return spans;
}

std::vector<Span> cut(std::vector<Part> parts, SplitBehavior behavior) {
    const auto lone_match = [](const Part& part, bool after_match) { return part.is_match && !after_match; };
    switch (behavior) {
    case SplitBehavior::removed:
        std::erase_if(parts, [](const Part& part) { return part.is_match; });
        break;
    case SplitBehavior::isolated:
        break;
    case SplitBehavior::contiguous:
        return join(parts, [](const Part& part, bool after_match) { return part.is_match == after_match; });
    case SplitBehavior::merged_with_previous:
        return join(parts, lone_match);
    case SplitBehavior::merged_with_next: {
        std::reverse(parts.begin(), parts.end());
        std::vector<Span> spans = join(parts, lone_match);
        std::reverse(spans.begin(), spans.end());
        return spans;
    }
    }
    return join(parts, [](const Part&, bool) { return false; });
}

// Replaces each piece by its parts; `cut_piece` gives their spans within the piece.
template <typename CutPiece> void cut_each(Pieces& pieces, CutPiece cut_piece) {
    std::vector<Span> spans;
    for (const Span& piece : pieces.spans) {
        const std::string_view text(pieces.text.data() + piece.begin, piece.end - piece.begin);
        for (const Span& part : cut_piece(text)) {
            if (part.begin < part.end) spans.push_back({piece.begin + part.begin, piece.begin + part.end});
        }
    }
    pieces.spans = std::move(spans);
}

// Rebuilds the text with each piece replaced by `rewrite(piece)`.
template <typename Rewrite> void rewrite_each(Pieces& pieces, Rewrite rewrite) {
    std::string text;
    text.reserve(pieces.text.size() + pieces.spans.size());
    for (Span& piece : pieces.spans) {
        const std::size_t begin = text.size();
        text += rewrite(std::string_view(pieces.text.data() + piece.begin, piece.end - piece.begin));
        piece = {begin, text.size()};
    }
    pieces.text = std::move(text);
}

SplitBehavior behavior_of(const std::string& name) {
    if (name == "Removed") return SplitBehavior::removed;
    if (name == "Isolated") return SplitBehavior::isolated;
    if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
    if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
    if (name == "Contiguous") return SplitBehavior::contiguous;
    throw BadFile("pre_tokenizer Split: unknown behavior '" + name + "'");
}

SplitStep split_from_json(const nlohmann::json& json) {
    const std::string what = "pre_tokenizer Split";
    SplitStep step;
    step.behavior = behavior_of(string_field(json, "behavior", what));
    step.invert = bool_field(json, "invert", false, what);
    const nlohmann::json& pattern = object_field(json, "pattern", what);
    if (pattern.contains("String")) {
        const std::string& text = string_field(pattern, "String", what + " pattern");
        if (text.empty()) throw BadFile(what + ": the pattern is empty");
        step.pattern = text;
        return step;
    }
    const std::string& expression = string_field(pattern, "Regex", what + " pattern");
    const auto known = known_pattern(expression);
    if (known && step.behavior == SplitBehavior::isolated) {
        step.pattern = *known; // covers the text without a gap, so that isolated and inverted are the same
    } else {
        step.pattern = Regex(expression);
    }
    return step;
}

} // namespace

PreTokenizer PreTokenizer::from_json(const nlohmann::json& pre_tokenizer, std::shared_ptr<const CharClasses> classes) {
    PreTokenizer result;
    result.classes_ = std::move(classes);
    if (!pre_tokenizer.is_null()) result.add(pre_tokenizer, 0);
    const auto byte_levels =
        std::count_if(result.steps_.begin(), result.steps_.end(),
                      [](const PreTokenizerStep& step) { return std::holds_alternative<ByteLevelStep>(step); });
    if (byte_levels != 1) {
        throw BadFile("pre_tokenizer has " + std::to_string(byte_levels) +
                      " ByteLevel steps: only byte-level BPE, which has one, is supported yet");
    }
    return result;
}

void PreTokenizer::add(const nlohmann::json& step, int depth) {
    const std::string& type = component_type(step, "pre_tokenizer", depth);
    if (type == "ByteLevel") {
        steps_.emplace_back(ByteLevelStep{bool_field(step, "add_prefix_space", true, "pre_tokenizer ByteLevel"),
                                          bool_field(step, "use_regex", true, "pre_tokenizer ByteLevel")});
    } else if (type == "Split") {
        steps_.emplace_back(split_from_json(step));
    } else if (type == "Digits") {
        steps_.emplace_back(DigitsStep{bool_field(step, "individual_digits", false, "pre_tokenizer Digits")});
    } else if (type == "Sequence") {
        for (const auto& part : array_field(step, "pretokenizers", "pre_tokenizer Sequence"))
            add(part, depth + 1);
    } else {
        throw_unsupported("pre_tokenizer", type);
    }
}

Pieces PreTokenizer::split(std::string_view text) const {
    Pieces pieces{std::string(text), {}};
    if (!text.empty()) pieces.spans.push_back({0, text.size()});
    bool in_alphabet = false;
    for (const PreTokenizerStep& step : steps_) {
        std::visit([&](const auto& s) { apply(s, pieces); }, step);
        // Steps after ByteLevel see its alphabet, where a letter of two bytes is two characters.
        if (std::holds_alternative<ByteLevelStep>(step) && &step != &steps_.back()) {
            rewrite_each(pieces, to_byte_level);
            in_alphabet = true;
        }
    }
    if (in_alphabet) rewrite_each(pieces, [](std::string_view piece) { return from_byte_level(piece).value(); });
    return pieces;
}

void PreTokenizer::apply(const ByteLevelStep& step, Pieces& pieces) const {
    const auto lacks_space = [&](const Span& piece) { return pieces.text[piece.begin] != ' '; };
    if (step.add_prefix_space && std::any_of(pieces.spans.begin(), pieces.spans.end(), lacks_space)) {
        rewrite_each(pieces, [](std::string_view piece) {
            return piece.front() == ' ' ? std::string(piece) : " " + std::string(piece);
        });
    }
    if (step.use_regex) apply(SplitStep{WordPattern::gpt2, SplitBehavior::isolated, false}, pieces);
}

void PreTokenizer::apply(const SplitStep& step, Pieces& pieces) const {
    if (const auto* known = std::get_if<WordPattern>(&step.pattern)) {
        const WordSplitter splitter(*known, classes_);
        std::vector<Span> words;
        words.reserve(pieces.text.size() / 4);
        for (const Span& piece : pieces.spans)
            splitter.split(pieces.text, piece, words);
        pieces.spans = std::move(words);
        return;
    }
    cut_each(pieces, [&](std::string_view text) {
        const auto* needle = std::get_if<std::string>(&step.pattern);
        const std::vector<Span> matches =
            needle ? find_all(*needle, text) : std::get<Regex>(step.pattern).find_all(text);
        return cut(parts_of(matches, text.size(), step.invert), step.behavior);
    });
}

void PreTokenizer::apply(const DigitsStep& step, Pieces& pieces) const {
    cut_each(pieces, [&](std::string_view text) {
        std::vector<Span> digits;
        for (std::size_t position = 0; position < text.size();) {
            const CodePoint point = code_point_at(text, position);
            if (classes_->is(point.value, CharClasses::number)) digits.push_back({position, position + point.n_bytes});
            position += point.n_bytes;
        }
        return cut(parts_of(digits, text.size(), false),
                   step.individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
    });
}

} // namespace entrodraft::model
