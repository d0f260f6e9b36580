// What of a text an automaton has read: states over bytes, made as they are met and kept, so that reading on is a
// look-up. A state is the ways in which the text can be understood, each a position and the rules that are open around
// it. Knows no tokens. Called by token_grammar.h, by one thread.
#pragma once

#include "model/text/grammar/automaton.h"

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace entrodraft::model::grammar {

using StateId = std::int32_t;

class Recognizer {
  public:
    static constexpr StateId kDead = 0; // no text begins so
    // A text that can be understood in more ways, or that opens more rules, counts as one that no text begins with.
    static constexpr std::size_t kMaxWays = 2000;
    static constexpr int kMaxOpenRules = 1000;

    // The automaton outlives it.
    explicit Recognizer(const Automaton& automaton);

    StateId start() const { return start_; }
    StateId next(StateId state, std::uint8_t byte);
    // Whether the text may end here.
    bool accepts(StateId state) const { return at(state).accepts; }
    std::size_t n_ways(StateId state) const { return at(state).ways.size(); }
    // The limit for which a text was given up last, if any was.
    enum class Limit : std::uint8_t { none, ways, open_rules };
    Limit limit_met() const { return limit_met_; }
    // Of all states so far, roughly.
    std::size_t bytes() const { return bytes_; }

  private:
    using Frame = std::int32_t; // of frames_; 0: no rule is open but the root
    struct OpenRule {
        Position back;
        Frame around;
        int depth;
    };
    struct Way {
        Position position;
        Frame frame;
        auto operator<=>(const Way&) const = default;
    };
    struct State {
        std::vector<Way> ways; // sorted; all have edges over bytes
        bool accepts = false;
        std::vector<StateId> next; // by class of bytes; -1: not met yet
    };

    const State& at(StateId state) const { return states_[static_cast<std::size_t>(state)]; }
    Frame open(Position back, Frame around);
    StateId state_of(std::vector<Way> ways);
    void find_classes();

    const Automaton& automaton_;
    std::vector<std::uint8_t> class_of_; // [256]: bytes of a class are on the same edges
    std::size_t n_classes_ = 0;
    std::vector<OpenRule> frames_;
    std::unordered_map<std::uint64_t, Frame> frame_of_; // by back and around
    std::vector<State> states_;
    std::unordered_multimap<std::uint64_t, StateId> state_of_; // by hash
    std::size_t bytes_ = 0;
    StateId start_ = kDead;
    Limit limit_met_ = Limit::none;
    std::vector<Way> found_, open_; // of state_of()
};

} // namespace entrodraft::model::grammar
