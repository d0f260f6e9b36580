// All substrings of a text: see suffix_automaton.h.
#include "spec/draft/suffix_automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

constexpr std::uint32_t kMaxLinearSlots = 8; // a cache line; larger blocks are hash tables, at most 3/4 full

std::uint32_t slots_for(std::uint32_t count) {
    if (count == 0) return 0;
    return std::bit_ceil(count <= kMaxLinearSlots ? count : count + count / 3 + 1);
}

std::uint32_t first_slot(TokenId token, std::uint32_t slots) {
    return (static_cast<std::uint32_t>(token) * 0x9e3779b1u >> 7) & (slots - 1);
}

// Grows by a quarter, because the items may fill a good part of the memory.
template <typename T> void make_room(std::vector<T>& items, std::size_t more) {
    const std::size_t size = items.size() + more;
    if (size > items.capacity()) items.reserve(std::max(size, items.size() + items.size() / 4));
}

template <typename T> std::size_t bytes_of(const std::vector<T>& items) {
    return items.capacity() * sizeof(T);
}

} // namespace

SuffixAutomaton::SuffixAutomaton(std::size_t max_tokens) : max_tokens_(std::min(max_tokens, kMaxTokens)) {
    clear();
}

void SuffixAutomaton::clear() {
    text_.clear();
    links_.assign(1, kRoot);
    latest_.assign(1, 0);
    splits_.clear();
    root_block_ = {};
    prefix_blocks_.clear();
    edges_.clear();
    free_.fill(kNone);
    match_.reset();
    n_extra_transitions_ = 0;
    steps_ = 0;
}

void SuffixAutomaton::append(TokenId token) {
    if (text_.size() >= max_tokens_)
        throw std::length_error(
            fmt::format("a text of more than {} tokens cannot be indexed; shorten it", max_tokens_));
    text_.push_back(token);
    const auto created = static_cast<State>(text_.size());
    links_.push_back(kRoot);
    latest_.push_back(created);

    // Every suffix of the old text that had not been followed by this token is followed by it now. The longest suffix
    // that had been leads to the link.
    State at = created - 1, target = kRoot;
    while (at != kRoot && target == kRoot) {
        at = link(at);
        ++steps_;
        target = to(at, token, steps_);
        if (target == kRoot) add_edge(at, token, created);
    }
    if (target != kRoot && length(target) != length(at) + 1) target = split(at, token, target);
    links_[created] = target;

    match_.reset();
    if (target != kRoot) match_ = LookupMatch{end(target), static_cast<int>(length(target)), {}, false};
    for (int i = 0; i < kRefreshed && target != kRoot; ++i, target = link(target))
        refresh(target);
}

// The substrings of `target` up to the length of `from` and `token` now end in more places than its longer ones. They
// become a state of their own, with the same transitions.
SuffixAutomaton::State SuffixAutomaton::split(State from, TokenId token, State target) {
    const auto created = static_cast<State>(kSplit + splits_.size());
    make_room(splits_, 1);
    splits_.push_back({length(from) + 1, link(target), end(target), {}});
    Block block;
    if (!is_split(target) && target < text_.size()) insert(block, {text_[target], target + 1});
    if (const Block* old = block_of(target)) {
        const Block of_target = *old; // its slots do not move, though edges_ may
        for (std::uint32_t i = 0; i < slots_for(of_target.count); ++i)
            if (const Edge edge = edges_[of_target.first + i]; edge.to != kRoot) insert(block, edge);
    }
    n_extra_transitions_ += block.count;
    steps_ += block.count;
    splits_.back().block = block;
    (is_split(target) ? splits_[target - kSplit].link : links_[target]) = created;
    // A transition given by the text leads to a state longer by one, so it never leads to `target` from here on.
    for (State at = from;; at = link(at)) {
        ++steps_;
        const Block* of_at = block_of(at);
        const Edge* edge = of_at == nullptr ? nullptr : find_edge(*of_at, token, steps_);
        if (edge == nullptr || edge->to != target) break;
        edges_[edge - edges_.data()].to = created;
        if (at == kRoot) break;
    }
    return created;
}

std::optional<LookupMatch> SuffixAutomaton::match() const {
    std::optional<LookupMatch> match = match_;
    if (match) match->source = text_;
    return match;
}

SuffixAutomaton::Counts SuffixAutomaton::counts() const {
    constexpr std::size_t kNodeBytes = 40; // of an entry of prefix_blocks_
    return {links_.size() + splits_.size(), text_.size() + n_extra_transitions_, steps_,
            bytes_of(text_) + bytes_of(links_) + bytes_of(latest_) + bytes_of(splits_) + bytes_of(edges_) +
                prefix_blocks_.size() * kNodeBytes};
}

std::uint32_t SuffixAutomaton::end(State state) const {
    return is_split(state) ? splits_[state - kSplit].end : latest_[state];
}

void SuffixAutomaton::refresh(State state) {
    ++steps_;
    (is_split(state) ? splits_[state - kSplit].end : latest_[state]) = static_cast<std::uint32_t>(text_.size());
}

// The transitions next to the one given by the text; nullptr: there are none.
const SuffixAutomaton::Block* SuffixAutomaton::block_of(State state) const {
    if (is_split(state)) return &splits_[state - kSplit].block;
    if (state == kRoot) return &root_block_;
    const auto found = prefix_blocks_.find(state);
    return found == prefix_blocks_.end() ? nullptr : &found->second;
}

SuffixAutomaton::Block& SuffixAutomaton::make_block_of(State state) {
    if (is_split(state)) return splits_[state - kSplit].block;
    return state == kRoot ? root_block_ : prefix_blocks_[state];
}

// Returns the root if there is no transition.
SuffixAutomaton::State SuffixAutomaton::to(State state, TokenId token, std::uint64_t& steps) const {
    if (state < text_.size() && text_[state] == token) return state + 1;
    const Block* block = block_of(state);
    const Edge* edge = block == nullptr ? nullptr : find_edge(*block, token, steps);
    return edge == nullptr ? kRoot : edge->to;
}

const SuffixAutomaton::Edge* SuffixAutomaton::find_edge(const Block& block, TokenId token, std::uint64_t& steps) const {
    const Edge* const edges = edges_.data() + block.first;
    const std::uint32_t slots = slots_for(block.count);
    if (slots <= kMaxLinearSlots) {
        for (std::uint32_t i = 0; i < block.count; ++i, ++steps)
            if (edges[i].token == token) return &edges[i];
        return nullptr;
    }
    for (std::uint32_t i = first_slot(token, slots); edges[i].to != kRoot; i = (i + 1) & (slots - 1), ++steps)
        if (edges[i].token == token) return &edges[i];
    return nullptr;
}

void SuffixAutomaton::add_edge(State state, TokenId token, State to) {
    insert(make_block_of(state), {token, to});
    ++n_extra_transitions_;
}

void SuffixAutomaton::insert(Block& block, Edge edge) {
    const std::uint32_t before = slots_for(block.count), slots = slots_for(block.count + 1);
    const Block old = block;
    if (slots != before) block = {allocate(slots), 0};
    const auto place = [&](Edge one) {
        std::uint32_t i = block.count++;
        if (slots > kMaxLinearSlots)
            for (i = first_slot(one.token, slots); edges_[block.first + i].to != kRoot; i = (i + 1) & (slots - 1))
                ++steps_;
        edges_[block.first + i] = one;
    };
    if (slots != before) {
        for (std::uint32_t i = 0; i < before; ++i, ++steps_)
            if (edges_[old.first + i].to != kRoot) place(edges_[old.first + i]);
        release(old.first, before);
    }
    place(edge);
}

std::uint32_t SuffixAutomaton::allocate(std::uint32_t slots) {
    std::uint32_t& free = free_[std::countr_zero(slots)];
    if (free != kNone) {
        const std::uint32_t first = free;
        free = edges_[first].to;
        edges_[first] = {};
        return first;
    }
    const std::size_t first = edges_.size();
    if (first + slots > kNone) throw std::length_error("a text with so many contexts cannot be indexed; shorten it");
    make_room(edges_, slots);
    edges_.resize(first + slots);
    return static_cast<std::uint32_t>(first);
}

void SuffixAutomaton::release(std::uint32_t first, std::uint32_t slots) {
    if (slots == 0) return;
    std::uint32_t& free = free_[std::countr_zero(slots)];
    std::fill_n(edges_.begin() + first, slots, Edge{});
    edges_[first].to = free;
    free = first;
}

} // namespace entrodraft::spec
