// Represents the part of a text that was read so far, as a state over bytes. A state is made when first met and then
// kept, so that reading on is a look-up. A state is a set of ways to understand the text. Each way is a position of the
// automaton and the open rules around it. It does not depend on tokens. Called by token_grammar.h, by one thread.
#pragma once

#include "model/text/grammar/automaton.h"

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace entrodraft::model::grammar {

using StateId = std::int32_t;

class Recognizer {
  public:
    static constexpr StateId kDead = 0; // no text of the grammar begins so
    // A text with more ways to understand it, or with more open rules, counts as not allowed.
    static constexpr std::size_t kMaxWays = 2000;
    static constexpr int kMaxOpenRules = 1000;

    // The automaton outlives the recognizer.
    explicit Recognizer(const Automaton& automaton);

    StateId start() const { return start_; }
    StateId next(StateId state, std::uint8_t byte);
    // Returns whether the text may end here.
    bool accepts(StateId state) const { return at(state).accepts; }
    std::size_t n_ways(StateId state) const { return at(state).ways.size(); }
    // The limit at which a text was last given up, if any was.
    enum class Limit : std::uint8_t { none, ways, open_rules };
    Limit limit_met() const { return limit_met_; }
    // The approximate size of all states so far.
    std::size_t bytes() const { return bytes_; }

  private:
    using Frame = std::int32_t; // index into frames_; 0: only the root rule is open
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

    const State& at(StateId state) const { return states_[state]; }
    Frame open(Position back, Frame around);
    StateId state_of(std::vector<Way> ways);
    void find_classes();

    const Automaton& automaton_;
    std::vector<std::uint8_t> class_of_; // [256]: bytes of one class are on the same edges
    std::size_t n_classes_ = 0;
    std::vector<OpenRule> frames_;
    std::unordered_map<std::uint64_t, Frame> frame_of_; // by back and around
    std::vector<State> states_;
    std::unordered_multimap<std::uint64_t, StateId> state_of_; // by hash
    std::size_t bytes_ = 0;
    StateId start_ = kDead;
    Limit limit_met_ = Limit::none;
    std::vector<Way> found_, open_; // buffers of state_of()
};

} // namespace entrodraft::model::grammar
