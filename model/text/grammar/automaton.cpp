// Turns expressions into positions, and finds faults in them: see automaton.h.
#include "model/text/grammar/automaton.h"

#include "model/files/bad_file.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <span>
#include <utility>

namespace entrodraft::model::grammar {

namespace {

// Returns the positions from which the end of their rule can be reached; if not `with_bytes`, without reading bytes.
std::vector<bool> that_end(const std::vector<PositionEdges>& positions, bool with_bytes) {
    std::vector<std::vector<Position>> before(
        positions.size()); // also of calls, by their rule and by their return position
    for (std::size_t i = 0; i < positions.size(); ++i) {
        const PositionEdges& edges = positions[i];
        const auto is_before = [&](Position to) { before[to].push_back(static_cast<Position>(i)); };
        std::ranges::for_each(edges.next, is_before);
        if (with_bytes)
            for (const ByteEdge& edge : edges.bytes)
                is_before(edge.to);
        if (edges.called != kNoPosition) is_before(edges.called), is_before(edges.back);
    }
    std::vector<bool> ends(positions.size());
    std::vector<Position> found;
    const auto note = [&](Position position) {
        if (ends[position]) return;
        ends[position] = true;
        found.push_back(position);
    };
    for (std::size_t i = 0; i < positions.size(); ++i)
        if (positions[i].ends_rule) note(static_cast<Position>(i));
    while (!found.empty()) {
        const Position position = found.back();
        found.pop_back();
        for (const Position each : before[position]) {
            const PositionEdges& edges = positions[each];
            const bool is_call = edges.called == position || edges.back == position;
            if (!is_call || (ends[edges.called] && ends[edges.back])) note(each);
        }
    }
    return ends;
}

} // namespace

class AutomatonBuilder {
  public:
    AutomatonBuilder(const Rules& rules, Automaton& automaton) : positions_(automaton.positions_) {
        if (!rules.by_name.contains(rules.root)) throw BadGrammar("there is no rule " + rules.root);
        for (const auto& [name, expression] : rules.by_name) {
            starts_.emplace(name, std::ssize(names_));
            names_.push_back(name);
            begins_.push_back(add());
        }
        std::size_t number = 0;
        for (const auto& [name, expression] : rules.by_name)
            end_rule(build(expression, begins_[number++]));
        automaton.start_ = begins_[starts_.at(rules.root)];
        automaton.drop_what_never_ends();
        if (is_empty(automaton.start_)) throw BadGrammar("no text is as it asks");
        refuse_left_recursion();
        automaton.note_what_only_ends();
    }

  private:
    PositionEdges& at(Position position) { return positions_[position]; }
    Position add() {
        if (positions_.size() == Automaton::kMaxPositions)
            throw BadGrammar(fmt::format("it is too large: more than {} positions", Automaton::kMaxPositions));
        positions_.emplace_back();
        return static_cast<Position>(positions_.size()) - 1;
    }
    void end_rule(Position last) { at(last).ends_rule = true; }
    bool is_empty(Position start) {
        const PositionEdges& edges = at(start);
        return edges.bytes.empty() && edges.next.empty() && edges.called == kNoPosition && !edges.ends_rule;
    }

    Position build(const Expression& expression, Position from);
    Position build_characters(const Characters& characters, Position from);
    void add_range(Position from, Position to, std::span<std::uint8_t> first, std::span<std::uint8_t> last);
    Position build_repeat(const Expression& expression, Position from);
    Position build_call(Position begin, Position from);
    Position as_rule(const Expression& expression);
    void refuse_left_recursion();

    std::vector<PositionEdges>& positions_;
    std::map<std::string, std::size_t> starts_; // numbers of rules
    std::vector<std::string> names_;            // of rules; empty for rules of repeated parts
    std::vector<Position> begins_;
};

// Builds the expression at `from` and returns the position where it ends.
Position AutomatonBuilder::build(const Expression& expression, Position from) {
    switch (expression.kind) {
    case Expression::Kind::literal:
        for (const char byte : expression.text) {
            const Position to = add();
            at(from).bytes.push_back({static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(byte), to});
            from = to;
        }
        return from;
    case Expression::Kind::characters:
        return build_characters(expression.characters, from);
    case Expression::Kind::sequence:
        for (const Expression& part : expression.parts)
            from = build(part, from);
        return from;
    case Expression::Kind::choice: {
        const Position to = add();
        for (const Expression& part : expression.parts) {
            const Position begin = add();
            at(from).next.push_back(begin);
            const Position end = build(part, begin);
            at(end).next.push_back(to);
        }
        return to;
    }
    case Expression::Kind::repeat:
        return build_repeat(expression, from);
    case Expression::Kind::rule: {
        const auto found = starts_.find(expression.text);
        if (found == starts_.end()) throw BadGrammar("there is no rule " + in_quotes(expression.text));
        return build_call(begins_[found->second], from);
    }
    }
    throw std::invalid_argument("no such expression");
}

// ---- characters as UTF-8 ----

// Adds, for each first byte, the n continuation bytes from `from` to `to`. Ranges come in order, and only one set of
// characters begins at `from`. So a range that begins with the byte of the last edge shares that edge.
void AutomatonBuilder::add_range(Position from, Position to, std::span<std::uint8_t> first,
                                 std::span<std::uint8_t> last) {
    constexpr std::uint8_t kMin = 0x80, kMax = 0xBF; // of continuation bytes
    const auto path = [&](std::uint8_t begin, std::uint8_t end, std::vector<std::uint8_t> low,
                          std::vector<std::uint8_t> high) {
        const std::vector<ByteEdge>& edges = at(from).bytes;
        const bool is_shared =
            !low.empty() && !edges.empty() && edges.back().first == begin && edges.back().last == end && begin == end;
        const Position next = low.empty() ? to : is_shared ? edges.back().to : add();
        if (!is_shared) at(from).bytes.push_back({begin, end, next});
        if (!low.empty()) add_range(next, to, low, high);
    };
    const std::vector<std::uint8_t> low(first.begin() + 1, first.end()), high(last.begin() + 1, last.end());
    const std::vector<std::uint8_t> lowest(low.size(), kMin), highest(low.size(), kMax);
    std::uint8_t begin = first[0], end = last[0];
    if (begin == end) return path(begin, end, low, high);
    if (low != lowest) path(begin, begin, low, highest), ++begin;
    if (high != highest) path(end, end, lowest, high), --end;
    if (begin <= end) path(begin, end, lowest, highest);
}

Position AutomatonBuilder::build_characters(const Characters& characters, Position from) {
    constexpr std::array<char32_t, 4> kLastOfLength = {0x7F, 0x7FF, 0xFFFF, kMaxCharacter};
    const auto encode = [](char32_t character, std::size_t length) {
        std::vector<std::uint8_t> bytes(length);
        for (std::size_t i = length; i-- > 1; character >>= 6)
            bytes[i] = static_cast<std::uint8_t>(0x80U | (character & 0x3FU));
        constexpr std::array<unsigned, 4> kMarks = {0, 0xC0, 0xE0, 0xF0};
        bytes[0] = static_cast<std::uint8_t>(kMarks[length - 1] | character);
        return bytes;
    };
    const Position to = add();
    for (const CharacterRange& range : negated(negated(characters))) // sorted, and without surrogates
        for (std::size_t length = 1; length <= kLastOfLength.size(); ++length) {
            const char32_t first = std::max(range.first, length == 1 ? U'\0' : char32_t{kLastOfLength[length - 2] + 1});
            const char32_t last = std::min(range.last, kLastOfLength[length - 1]);
            if (first > last) continue;
            std::vector<std::uint8_t> low = encode(first, length), high = encode(last, length);
            add_range(from, to, low, high);
        }
    return to;
}

// ---- repeats and rules ----

Position AutomatonBuilder::build_call(Position begin, Position from) {
    const Position caller = add(), back = add();
    at(from).next.push_back(caller);
    at(caller).called = begin;
    at(caller).back = back;
    return back;
}

// Turns a repeated part into a rule, so that each repetition costs a call.
Position AutomatonBuilder::as_rule(const Expression& expression) {
    names_.emplace_back();
    const Position begin = add();
    begins_.push_back(begin);
    end_rule(build(expression, begin));
    return begin;
}

Position AutomatonBuilder::build_repeat(const Expression& expression, Position from) {
    const Expression& part = expression.parts.front();
    const bool is_unbounded = expression.most == Expression::kUnbounded;
    const int copies = is_unbounded ? expression.least + 1 : expression.most;
    const bool is_called = copies > 2 && part.kind != Expression::Kind::rule;
    const Position begin = is_called ? as_rule(part) : kNoPosition;
    const auto once = [&](Position at_begin) {
        return is_called ? build_call(begin, at_begin) : build(part, at_begin);
    };
    for (int i = 0; i < expression.least; ++i)
        from = once(from);
    const Position end = add();
    if (is_unbounded) {
        const Position loop = add();
        at(from).next.push_back(loop);
        at(loop).next.push_back(end);
        const Position last = once(loop);
        at(last).next.push_back(loop);
        return end;
    }
    for (int i = expression.least; i < expression.most; ++i) {
        at(from).next.push_back(end);
        const Position next = add(); // a loop may return to `from`
        at(from).next.push_back(next);
        from = once(next);
    }
    at(from).next.push_back(end);
    return end;
}

// ---- faults in it ----

void Automaton::drop_what_never_ends() {
    const std::vector<bool> ends = that_end(positions_, true);
    const auto never = [&](Position position) { return !ends[position]; };
    for (PositionEdges& edges : positions_) {
        std::erase_if(edges.next, never);
        std::erase_if(edges.bytes, [&](const ByteEdge& edge) { return never(edge.to); });
        if (edges.called != kNoPosition && (never(edges.called) || never(edges.back)))
            edges.called = edges.back = kNoPosition;
    }
}

// Marks positions where only the rule's end follows, also through chains of positions that do nothing.
void Automaton::note_what_only_ends() {
    for (PositionEdges& edges : positions_) {
        const PositionEdges* last = &edges;
        constexpr int kLongestChain = 16;
        for (int i = 0; i < kLongestChain && last->bytes.empty() && last->called == kNoPosition && !last->ends_rule &&
                        last->next.size() == 1;
             ++i)
            last = &at(last->next.front());
        edges.only_ends = last->bytes.empty() && last->called == kNoPosition && last->ends_rule && last->next.empty();
    }
}

// A rule that begins with itself, through other rules or after parts that may be empty, would be called for ever.
void AutomatonBuilder::refuse_left_recursion() {
    const std::vector<bool> may_be_empty = that_end(positions_, false);
    enum class Seen : std::uint8_t { no, open, done };
    // A loop within a rule is not recursion, even if its part may be empty: it returns to an earlier position, not to
    // the beginning of a rule that has not ended. So the search goes over rules, each by its own positions.
    std::map<Position, std::size_t> rule_at;
    for (std::size_t i = 0; i < begins_.size(); ++i)
        rule_at.emplace(begins_[i], i);
    std::vector<std::vector<std::size_t>> calls(begins_.size()); // calls without a byte before them
    std::vector<std::size_t> searched(positions_.size(), begins_.size());
    for (std::size_t rule = 0; rule < begins_.size(); ++rule) {
        std::vector<Position> open = {begins_[rule]};
        while (!open.empty()) {
            const Position position = open.back();
            open.pop_back();
            if (std::exchange(searched[position], rule) == rule) continue;
            const PositionEdges& edges = at(position);
            open.insert(open.end(), edges.next.begin(), edges.next.end());
            if (edges.called == kNoPosition) continue;
            calls[rule].push_back(rule_at.at(edges.called));
            if (may_be_empty[edges.called]) open.push_back(edges.back);
        }
    }
    std::vector<Seen> rules(begins_.size());
    for (std::size_t first = 0; first < begins_.size(); ++first) {
        std::vector<std::pair<std::size_t, std::size_t>> path = {{first, 0}}; // rule, and its next call
        if (rules[first] != Seen::no) continue;
        rules[first] = Seen::open;
        while (!path.empty()) {
            auto& [rule, next] = path.back();
            if (next == calls[rule].size()) {
                rules[rule] = Seen::done;
                path.pop_back();
                continue;
            }
            const std::size_t called = calls[rule][next++];
            if (rules[called] == Seen::open) {
                std::string name = names_[called];
                for (auto each = path.rbegin(); name.empty() && each != path.rend(); ++each)
                    name = names_[each->first];
                throw BadGrammar("rule " + in_quotes(name) + " is left-recursive: it begins with itself");
            }
            if (rules[called] == Seen::no) {
                rules[called] = Seen::open;
                path.emplace_back(called, 0);
            }
        }
    }
}

Automaton::Automaton(const Rules& rules) {
    AutomatonBuilder(rules, *this);
}

} // namespace entrodraft::model::grammar
