// See pre_tokenizer.h. A Split finds matches and marks the text between them. Then it joins or drops parts as its
// behavior says. The known word patterns go to split_words(), which never leaves a gap.
#include "model/text/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "model/files/utf8.h"
#include "model/text/tokenizer/byte_level.h"
#include "model/text/tokenizer/normalizer.h"
#include "model/text/tokenizer/tokenizer_json.h"
#include "model/text/tokenizer/word_splitter.h"

namespace entrodraft::model {
namespace {

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct Part {
    Span span;
    bool is_match = false;
};

// Returns the matches and the parts between them, in order; a match may be empty.
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
        for (const Span& part : cut_piece(piece.of(pieces.text))) {
            if (part.begin < part.end) spans.push_back({piece.begin + part.begin, piece.begin + part.end});
        }
    }
    if (!spans.empty() && spans.front().begin > pieces.spans.front().begin) pieces.at_begin = false;
    pieces.spans = std::move(spans);
}

// Rebuilds the text: `append(piece, is_first, text)` appends the replacement of each piece.
template <typename Append> void rewrite_each(Pieces& pieces, Append append) {
    std::string text;
    text.reserve(pieces.text.size() + pieces.spans.size());
    bool is_first = true;
    for (Span& piece : pieces.spans) {
        const std::size_t begin = text.size();
        append(piece.of(pieces.text), is_first, text);
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

using Classes = std::shared_ptr<const CharClasses>;
using Matcher = std::function<std::vector<Span>(std::string_view)>;

// Matches each character of these CharClasses.
Matcher characters_of(unsigned wanted, const Classes& classes) {
    return [=](std::string_view text) {
        std::vector<Span> matches;
        for (std::size_t position = 0; position < text.size();) {
            const CodePoint point = code_point_at(text, position);
            if (classes->is(point.value, wanted)) matches.push_back({position, position + point.n_bytes});
            position += point.n_bytes;
        }
        return matches;
    };
}

// Matches \w+|[^\w\s]+
Matcher word_runs(const Classes& classes) {
    return [=](std::string_view text) {
        std::vector<Span> matches;
        unsigned class_before = CharClasses::space;
        for (std::size_t position = 0; position < text.size();) {
            const CodePoint point = code_point_at(text, position);
            const unsigned of = classes->of(point.value) & (CharClasses::word | CharClasses::space);
            if (of != CharClasses::space && of != class_before) matches.push_back({position, position});
            position += point.n_bytes;
            if (of != CharClasses::space) matches.back().end = position;
            class_before = of;
        }
        return matches;
    };
}

Matcher matches_of(Pattern pattern) {
    return [pattern = std::move(pattern)](std::string_view text) { return find_all(pattern, text); };
}

// `invert`: the text between the pattern's matches is the match.
PreTokenizerStep split_at(Matcher matches, SplitBehavior behavior, bool invert = false) {
    return [=, matches = std::move(matches)](Pieces& pieces) {
        cut_each(pieces,
                 [&](std::string_view text) { return cut(parts_of(matches(text), text.size(), invert), behavior); });
    };
}

PreTokenizerStep split_into_words(WordPattern pattern, const Classes& classes) {
    return [=](Pieces& pieces) {
        std::vector<Span> words;
        words.reserve(pieces.text.size() / 4);
        for (const Span& piece : pieces.spans)
            split_words(pattern, *classes, pieces.text, piece, words);
        pieces.spans = std::move(words);
    };
}

PreTokenizerStep split_step(const ComponentStep& step, const Classes& classes) {
    const auto& [fields, type, what] = step;
    const SplitBehavior behavior = behavior_of(string_field(fields, "behavior", what), what);
    const bool invert = bool_field(fields, "invert", false, what);
    const nlohmann::json& pattern = object_field(fields, "pattern", what);
    const nlohmann::json& expression = field(pattern, "Regex");
    const auto known = expression.is_string() ? known_pattern(expression.get_ref<const std::string&>()) : std::nullopt;
    // It covers the text without a gap, so isolated and inverted are the same.
    if (known && behavior == SplitBehavior::isolated) return split_into_words(*known, classes);
    return split_at(matches_of(pattern_from_json(pattern, what + ": the pattern")), behavior, invert);
}

// Cuts by GPT-2's pattern if the file says so. The text stays bytes.
PreTokenizerStep byte_level_step(const ComponentStep& step, const Classes& classes) {
    const bool adds_space = bool_field(step.fields, "add_prefix_space", true, step.what);
    const bool splits = bool_field(step.fields, "use_regex", true, step.what);
    return [=, split = split_into_words(WordPattern::gpt2, classes)](Pieces& pieces) {
        if (adds_space)
            rewrite_each(pieces, [](std::string_view piece, bool, std::string& out) {
                if (piece.front() != ' ') out.push_back(' ');
                out += piece;
            });
        if (splits) split(pieces);
    };
}

// Replaces spaces by `replacement`, one character. It may also be added at the beginning, and may begin a piece.
PreTokenizerStep metaspace_step(const ComponentStep& step) {
    const std::string& replacement = character_field(step.fields, "replacement", step.what);
    const PrependScheme scheme = prepend_scheme_from_json(step.fields, step.what);
    const bool splits = bool_field(step.fields, "split", true, step.what);
    return [=, split = split_at(matches_of(replacement), SplitBehavior::merged_with_next)](Pieces& pieces) {
        rewrite_each(pieces, [&](std::string_view piece, bool is_first, std::string& out) {
            const bool wanted =
                scheme == PrependScheme::always || (scheme == PrependScheme::first && is_first && pieces.at_begin);
            if (wanted && piece.front() != ' ' && !piece.starts_with(replacement)) out += replacement;
            for (const char byte : piece) {
                if (byte == ' ')
                    out += replacement;
                else
                    out.push_back(byte);
            }
        });
        if (splits) split(pieces);
    };
}

PreTokenizerStep pre_tokenizer_step(const ComponentStep& step, const Classes& classes) {
    const auto& [fields, type, what] = step;
    if (type == "ByteLevel") return byte_level_step(step, classes);
    if (type == "Split") return split_step(step, classes);
    if (type == "Metaspace") return metaspace_step(step);
    if (type == "Digits") {
        const bool individual = bool_field(fields, "individual_digits", false, what);
        return split_at(characters_of(CharClasses::numeric, classes),
                        individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
    }
    if (type == "Punctuation") {
        const bool has_behavior = !field(fields, "behavior").is_null();
        return split_at(characters_of(CharClasses::punctuation, classes),
                        has_behavior ? behavior_of(string_field(fields, "behavior", what), what)
                                     : SplitBehavior::isolated);
    }
    if (type == "WhitespaceSplit") return split_at(characters_of(CharClasses::space, classes), SplitBehavior::removed);
    if (type == "Whitespace") return split_at(word_runs(classes), SplitBehavior::removed, true);
    if (type == "CharDelimiterSplit")
        return split_at(matches_of(character_field(fields, "delimiter", what)), SplitBehavior::removed);
    throw_unsupported("pre_tokenizer", type);
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

PreTokenizer PreTokenizer::from_json(const nlohmann::json& pre_tokenizer,
                                     const std::shared_ptr<const CharClasses>& classes) {
    PreTokenizer result;
    for (const ComponentStep& step : steps_of(pre_tokenizer, "pre_tokenizer", "pretokenizers")) {
        // Steps after ByteLevel see its alphabet, where a letter of two bytes is two characters.
        if (result.gives_bytes_)
            result.steps_.emplace_back([](Pieces& pieces) {
                rewrite_each(pieces,
                             [](std::string_view piece, bool, std::string& out) { out += to_byte_level(piece); });
            });
        result.steps_.push_back(pre_tokenizer_step(step, classes));
        result.gives_bytes_ = step.type == "ByteLevel";
    }
    return result;
}

PreTokenizer PreTokenizer::of_step(PreTokenizerStep step) {
    PreTokenizer result;
    result.steps_.push_back(std::move(step));
    return result;
}

Pieces PreTokenizer::split(std::string_view text, bool at_begin) const {
    Pieces pieces{std::string(text), {}, at_begin};
    if (!text.empty()) pieces.spans.push_back({0, text.size()});
    for (const PreTokenizerStep& step : steps_)
        step(pieces);
    return pieces;
}

} // namespace entrodraft::model
