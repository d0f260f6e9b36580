// See pre_tokenizer.h. A Split is: find matches, mark what lies between them, then join or drop as its behavior
// says. The known word patterns go to WordSplitter, which never leaves a gap.
#include "model/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "model/tokenizer/byte_level.h"
#include "model/tokenizer/tokenizer_json.h"
#include "model/utf8.h"

namespace entrodraft::model {
namespace {

struct Part {
    Span span;
    bool is_match = false;
};

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
    spans.reserve(pieces.spans.size());
    for (const Span& piece : pieces.spans) {
        const std::string_view text(pieces.text.data() + piece.begin, piece.end - piece.begin);
        for (const Span& part : cut_piece(text)) {
            if (part.begin < part.end) spans.push_back({piece.begin + part.begin, piece.begin + part.end});
        }
    }
    if (!spans.empty() && spans.front().begin > pieces.spans.front().begin) pieces.at_begin = false;
    pieces.spans = std::move(spans);
}

// Rebuilds the text with each piece replaced by what `append(piece, is_first, text)` appends for it.
template <typename Append> void rewrite_each(Pieces& pieces, Append append) {
    std::string text;
    text.reserve(pieces.text.size() + pieces.spans.size());
    bool is_first = true;
    for (Span& piece : pieces.spans) {
        const std::size_t begin = text.size();
        append(std::string_view(pieces.text.data() + piece.begin, piece.end - piece.begin), is_first, text);
        piece = {begin, text.size()};
        is_first = false;
    }
    pieces.text = std::move(text);
}

SplitBehavior behavior_of(const std::string& name, const std::string& what) {
    if (name == "Removed") return SplitBehavior::removed;
    if (name == "Isolated") return SplitBehavior::isolated;
    if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
    if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
    if (name == "Contiguous") return SplitBehavior::contiguous;
    throw BadFile(what + ": unknown behavior " + in_quotes(name));
}

SplitStep split_from_json(const nlohmann::json& object, const std::string& what) {
    SplitStep step;
    step.behavior = behavior_of(string_field(object, "behavior", what), what);
    step.invert = bool_field(object, "invert", false, what);
    const nlohmann::json& pattern = object_field(object, "pattern", what);
    const nlohmann::json& expression = field(pattern, "Regex");
    const auto known = expression.is_string() ? known_pattern(expression.get_ref<const std::string&>()) : std::nullopt;
    if (known && step.behavior == SplitBehavior::isolated) {
        step.pattern = *known; // covers the text without a gap, so that isolated and inverted are the same
    } else {
        step.pattern = pattern_from_json(pattern, what + ": the pattern");
    }
    return step;
}

MetaspaceStep metaspace_from_json(const nlohmann::json& object, const std::string& what) {
    return {character_field(object, "replacement", what), prepend_scheme_from_json(object, what),
            bool_field(object, "split", true, what)};
}

} // namespace

PrependScheme prepend_scheme_from_json(const nlohmann::json& object, const std::string& what) {
    const nlohmann::json& name = field(object, "prepend_scheme");
    PrependScheme scheme = PrependScheme::always;
    if (name == "first") {
        scheme = PrependScheme::first;
    } else if (name == "never") {
        scheme = PrependScheme::never;
    } else if (!name.is_null() && name != "always") {
        throw BadFile(what + ": 'prepend_scheme' is none of always, first, never");
    }
    if (!bool_field(object, "add_prefix_space", true, what)) {
        if (!name.is_null() && scheme != PrependScheme::never) {
            throw BadFile(what + ": 'add_prefix_space' and 'prepend_scheme' contradict each other");
        }
        scheme = PrependScheme::never;
    }
    return scheme;
}

PreTokenizer PreTokenizer::from_json(const nlohmann::json& pre_tokenizer, std::shared_ptr<const CharClasses> classes) {
    PreTokenizer result;
    result.classes_ = std::move(classes);
    if (!pre_tokenizer.is_null()) result.add(pre_tokenizer, 0);
    return result;
}

void PreTokenizer::add(const nlohmann::json& step, int depth) {
    const std::string& type = component_type(step, "pre_tokenizer", depth);
    const std::string what = "pre_tokenizer " + type;
    check_steps(steps_.size(), "pre_tokenizer");
    const auto add_classes = [&](unsigned classes, SplitBehavior behavior) {
        steps_.emplace_back(SplitStep{ClassPattern{classes}, behavior, false});
    };
    if (type == "ByteLevel") {
        steps_.emplace_back(
            ByteLevelStep{bool_field(step, "add_prefix_space", true, what), bool_field(step, "use_regex", true, what)});
    } else if (type == "Split") {
        steps_.emplace_back(split_from_json(step, what));
    } else if (type == "Digits") {
        const bool individual = bool_field(step, "individual_digits", false, what);
        add_classes(CharClasses::numeric, individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
    } else if (type == "Punctuation") {
        const bool is_said = !field(step, "behavior").is_null();
        add_classes(CharClasses::punctuation,
                    is_said ? behavior_of(string_field(step, "behavior", what), what) : SplitBehavior::isolated);
    } else if (type == "WhitespaceSplit") {
        add_classes(CharClasses::space, SplitBehavior::removed);
    } else if (type == "Whitespace") {
        steps_.emplace_back(SplitStep{WordRunPattern{}, SplitBehavior::removed, true});
    } else if (type == "CharDelimiterSplit") {
        steps_.emplace_back(
            SplitStep{Pattern(character_field(step, "delimiter", what)), SplitBehavior::removed, false});
    } else if (type == "Metaspace") {
        steps_.emplace_back(metaspace_from_json(step, what));
    } else if (type == "Sequence") {
        for (const auto& part : array_field(step, "pretokenizers", what))
            add(part, depth + 1);
    } else {
        throw_unsupported("pre_tokenizer", type);
    }
}

bool PreTokenizer::gives_bytes() const {
    return !steps_.empty() && std::holds_alternative<ByteLevelStep>(steps_.back());
}

Pieces PreTokenizer::split(std::string_view text, bool at_begin) const {
    Pieces pieces{std::string(text), {}, at_begin};
    if (!text.empty()) pieces.spans.push_back({0, text.size()});
    for (const PreTokenizerStep& step : steps_) {
        std::visit([&](const auto& s) { apply(s, pieces); }, step);
        // Steps after ByteLevel see its alphabet, where a letter of two bytes is two characters.
        if (std::holds_alternative<ByteLevelStep>(step) && &step != &steps_.back()) {
            rewrite_each(pieces, [](std::string_view piece, bool, std::string& out) { out += to_byte_level(piece); });
        }
    }
    return pieces;
}

void PreTokenizer::apply(const ByteLevelStep& step, Pieces& pieces) const {
    const auto lacks_space = [&](const Span& piece) { return pieces.text[piece.begin] != ' '; };
    if (step.add_prefix_space && std::any_of(pieces.spans.begin(), pieces.spans.end(), lacks_space)) {
        rewrite_each(pieces, [](std::string_view piece, bool, std::string& out) {
            if (piece.front() != ' ') out.push_back(' ');
            out += piece;
        });
    }
    if (step.use_regex) apply(SplitStep{WordPattern::gpt2, SplitBehavior::isolated, false}, pieces);
}

std::vector<Span> PreTokenizer::matches_of(const SplitStep& step, std::string_view text) const {
    if (const auto* pattern = std::get_if<Pattern>(&step.pattern)) return find_all(*pattern, text);
    const auto* single = std::get_if<ClassPattern>(&step.pattern);
    std::vector<Span> matches;
    unsigned class_before = 0; // of the run that the last match is
    for (std::size_t position = 0; position < text.size();) {
        const CodePoint point = code_point_at(text, position);
        const Span here{position, position + point.n_bytes};
        position = here.end;
        if (single != nullptr) {
            if (classes_->is(point.value, single->classes)) matches.push_back(here);
            continue;
        }
        const unsigned of = classes_->of(point.value) & (CharClasses::word | CharClasses::space);
        if (of == CharClasses::space) continue;
        if (!matches.empty() && matches.back().end == here.begin && class_before == of) {
            matches.back().end = here.end;
        } else {
            matches.push_back(here);
        }
        class_before = of;
    }
    return matches;
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
        return cut(parts_of(matches_of(step, text), text.size(), step.invert), step.behavior);
    });
}

void PreTokenizer::apply(const MetaspaceStep& step, Pieces& pieces) const {
    rewrite_each(pieces, [&](std::string_view piece, bool is_first, std::string& out) {
        const bool wanted = step.prepend == PrependScheme::always ||
                            (step.prepend == PrependScheme::first && is_first && pieces.at_begin);
        if (wanted && piece.front() != ' ' && !piece.starts_with(step.replacement)) out += step.replacement;
        for (const char byte : piece) {
            if (byte == ' ') {
                out += step.replacement;
            } else {
                out.push_back(byte);
            }
        }
    });
    if (step.split) apply(SplitStep{Pattern(step.replacement), SplitBehavior::merged_with_next, false}, pieces);
}

} // namespace entrodraft::model
