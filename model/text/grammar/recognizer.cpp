// States and the steps between them: see recognizer.h.
#include "model/text/grammar/recognizer.h"

#include <algorithm>
#include <array>
#include <unordered_set>

namespace entrodraft::model::grammar {

namespace {

constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15; // odd

std::uint64_t key_of(Position position, std::int32_t frame) {
    return (static_cast<std::uint64_t>(position) << 32) | static_cast<std::uint32_t>(frame);
}

} // namespace

Recognizer::Recognizer(const Automaton& automaton) : automaton_(automaton), frames_{{kNoPosition, 0, 0}}, states_(1) {
    find_classes();
    states_.front().next.assign(n_classes_, kDead);
    start_ = state_of({{automaton.start(), 0}});
}

void Recognizer::find_classes() {
    constexpr std::size_t kBytes = 256;
    std::array<bool, kBytes + 1> begins{}; // whether a class begins with this byte
    for (std::size_t i = 0; i < automaton_.size(); ++i)
        for (const ByteEdge& edge : automaton_.at(static_cast<Position>(i)).bytes)
            begins[edge.first] = begins[edge.last + std::size_t{1}] = true;
    begins[0] = true;
    for (std::size_t byte = 0; byte < kBytes; ++byte) {
        n_classes_ += begins[byte] ? 1 : 0;
        class_of_.push_back(static_cast<std::uint8_t>(n_classes_ - 1));
    }
}

Recognizer::Frame Recognizer::open(Position back, Frame around) {
    const auto [found, is_new] = frame_of_.try_emplace(key_of(back, around), static_cast<Frame>(frames_.size()));
    if (is_new) {
        frames_.push_back({back, around, frames_[around].depth + 1});
        bytes_ += sizeof(OpenRule) + 4 * sizeof(std::uint64_t);
    }
    return found->second;
}

// Adds to these ways all that follow from them without a byte.
StateId Recognizer::state_of(std::vector<Way> ways) {
    const auto give_up = [&](Limit limit) {
        limit_met_ = limit;
        return kDead;
    };
    State made;
    std::unordered_set<std::uint64_t> seen;
    open_ = std::move(ways);
    while (!open_.empty()) {
        const auto [position, frame] = open_.back();
        open_.pop_back();
        if (!seen.insert(key_of(position, frame)).second) continue;
        if (seen.size() > 4 * kMaxWays) return give_up(Limit::ways);
        const PositionEdges& edges = automaton_.at(position);
        if (!edges.bytes.empty()) made.ways.push_back({position, frame});
        for (const Position next : edges.next)
            open_.push_back({next, frame});
        if (edges.ends_rule) {
            const OpenRule& rule = frames_[frame];
            if (frame == 0)
                made.accepts = true;
            else
                open_.push_back({rule.back, rule.around});
        }
        if (edges.called == kNoPosition) continue;
        const bool comes_back = !automaton_.at(edges.back).only_ends;
        const Frame within = comes_back ? open(edges.back, frame) : frame;
        if (frames_[within].depth > kMaxOpenRules)
            give_up(Limit::open_rules);
        else
            open_.push_back({edges.called, within});
    }
    if (made.ways.size() > kMaxWays) return give_up(Limit::ways);
    if (made.ways.empty() && !made.accepts) return kDead;
    std::ranges::sort(made.ways);
    std::uint64_t hash = made.accepts ? 1 : 2;
    for (const Way& way : made.ways)
        hash = (hash ^ key_of(way.position, way.frame)) * kFactor + (hash >> 29);
    const auto [begin, end] = state_of_.equal_range(hash);
    for (auto found = begin; found != end; ++found)
        if (at(found->second).ways == made.ways && at(found->second).accepts == made.accepts) return found->second;
    const auto id = static_cast<StateId>(states_.size());
    state_of_.emplace(hash, id);
    made.next.assign(n_classes_, -1);
    bytes_ += sizeof(State) + made.ways.size() * sizeof(Way) + n_classes_ * sizeof(StateId) + 4 * sizeof(hash);
    states_.push_back(std::move(made));
    return id;
}

StateId Recognizer::next(StateId state, std::uint8_t byte) {
    const std::size_t byte_class = class_of_[byte];
    if (const StateId known = at(state).next[byte_class]; known >= 0) return known;
    std::vector<Way> ways;
    for (const Way& way : at(state).ways)
        for (const ByteEdge& edge : automaton_.at(way.position).bytes)
            if (edge.first <= byte && byte <= edge.last) ways.push_back({edge.to, way.frame});
    const StateId to = ways.empty() ? kDead : state_of(std::move(ways));
    states_[state].next[byte_class] = to;
    return to;
}

} // namespace entrodraft::model::grammar
