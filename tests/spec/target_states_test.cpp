// The target's states that a head reads in a pass, early or again.
#include "spec/draft/target_states.h"

#include <gtest/gtest.h>

#include <numeric>

namespace target_states_test {

using entrodraft::spec::TargetStates;

// A position's state is its number.
void take(TargetStates& states, std::size_t n) {
    std::vector<float> numbers(n);
    std::iota(numbers.begin(), numbers.end(), static_cast<float>(states.n_known()));
    states.take(states.n_known(), numbers);
}

TEST(TargetStates, AreReadEarlyInWholeBlocks) {
    TargetStates states(1, 2);
    take(states, 11);
    EXPECT_EQ(states.n_early(3, 128), 0U) << "a block is left to the draft";
    EXPECT_EQ(states.n_early(11, 128), 8U);
    EXPECT_EQ(states.n_early(11, 5), 4U);
    states.mark_early(8);
    EXPECT_EQ(states.n_early(11, 128), 0U);
    EXPECT_EQ(states.n_read(), 8U);
    EXPECT_EQ(states.unread(1)[0], 8);
}

TEST(TargetStates, AreReadAgainWhereLessThanABlockIsNew) {
    TargetStates states(1, 3);
    take(states, 7);
    states.mark_drafted();
    states.read_again(); // blocks began at 0 and 3; the last one has one more row
    EXPECT_EQ(states.n_read(), 3U);
    EXPECT_EQ(states.n_unread(), 4U);
    states.mark_drafted();
    take(states, 1);
    states.read_again();
    EXPECT_EQ(states.n_read(), 5U) << "all but one of a block";
    EXPECT_EQ(states.unread(3)[2], 7);
    states.mark_drafted();
    take(states, 3);
    states.read_again();
    EXPECT_EQ(states.n_read(), 8U);
    EXPECT_THROW(states.take(12, {}), std::logic_error);
}

TEST(TargetStates, OfSingleRowsAreReadAgainOneByOne) {
    TargetStates states(1, 1);
    take(states, 5);
    EXPECT_EQ(states.n_early(5, 128), 4U);
    states.mark_drafted();
    states.read_again();
    EXPECT_EQ(states.n_read(), 4U);
    EXPECT_EQ(states.unread(1)[0], 4);
}

} // namespace target_states_test
