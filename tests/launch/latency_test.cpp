// The order in which bench latency times passes.
#include "tests/dist/manual_clock.h"

#include "launch/cmd/bench/latency.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

namespace latency_test {

using namespace entrodraft;

// Computes nothing, and knows how wide its passes were.
class WidthsSeen final : public model::Decoder {
  public:
    WidthsSeen()
        : Decoder(setup(), std::make_shared<model::KvCache>(model::KvCache::Shape{1, 1, 1, 1, 64})), summaries_(64) {}
    std::size_t weight_bytes() const override { return 0; }
    double operations_per_row() const override { return 0; }
    model::PassResult forward(const model::Pass& pass) override {
        widths.push_back(static_cast<int>(pass.rows.size()));
        cache().append(0, widths.back());
        model::PassResult result;
        result.summaries = std::span(summaries_).first(pass.rows.size());
        return result;
    }
    std::vector<int> widths;

  private:
    static model::DecoderSetup setup() {
        model::DecoderSetup setup;
        setup.config.vocab_size = 64;
        return setup;
    }
    std::vector<model::LogitStats> summaries_;
};

// A pass of one row right behind one of 16 took 1.2 to 1.4 times what it takes in a run.
TEST(Latency, NoPassIsTimedBehindAMuchWiderOne) {
    WidthsSeen decoder;
    const dist::ManualClock clock;
    launch::PassTimer target(decoder, clock, 0);
    launch::LatencyPlan plan;
    plan.rows = {5};
    plan.repetitions = 4;
    const launch::TimedPair pair = {&target, nullptr};
    const auto times = launch::time_in_turns(std::span(&pair, 1), plan, [](double) { return true; });
    ASSERT_EQ(times.front().target.size(), 5U);
    const std::vector<int> up = {1, 2, 3, 4, 5}, down = {5, 4, 3, 2, 1};
    std::vector<int> expected;
    for (const auto& turn : {up, down, up, down})
        expected.insert(expected.end(), turn.begin(), turn.end());
    const std::span<const int> timed = std::span<const int>(decoder.widths).last(expected.size()); // behind warm-ups
    EXPECT_EQ(std::vector<int>(timed.begin(), timed.end()), expected);
}

// Time for two of the 20 passes that warm up, and for six that count.
TEST(Latency, ASlowModelIsTimedFromCoarseToFineUntilTimeIsUp) {
    WidthsSeen decoder;
    const dist::SteadyClock clock;
    launch::PassTimer target(decoder, clock, 0);
    launch::LatencyPlan plan;
    plan.rows = {9};
    const launch::TimedPair pair = {&target, nullptr};
    int warm_ups = 2, passes = 6;
    const auto has_time = [&](double share) {
        if (share == launch::kInAnyCase) return true;
        return (share < 1 ? warm_ups : passes)-- > 0;
    };
    const auto times = launch::time_in_turns(std::span(&pair, 1), plan, has_time).front();
    EXPECT_EQ(decoder.widths, (std::vector<int>{1, 2, 1, 9, 5, 3, 7, 2, 4, 6}));
    ASSERT_EQ(times.target.size(), 9U);
    EXPECT_TRUE(std::isnan(times.costs().t_target[7])) << "8 rows were left out";
    EXPECT_FALSE(std::isnan(times.costs().t_target[8]));
}

TEST(Latency, TheLeastAndTheMostRowsAreTimedInAnyCase) {
    WidthsSeen decoder;
    const dist::ManualClock clock;
    launch::PassTimer target(decoder, clock, 0);
    launch::LatencyPlan plan;
    plan.rows = {9};
    const launch::TimedPair pair = {&target, nullptr};
    launch::time_in_turns(std::span(&pair, 1), plan, [](double share) { return share == launch::kInAnyCase; });
    EXPECT_EQ(decoder.widths, (std::vector<int>{1, 9}));
}

TEST(Latency, CoarseToFineHasEachOnceAndSpreadsAnyBeginning) {
    EXPECT_EQ(launch::coarse_to_fine(0), std::vector<int>());
    EXPECT_EQ(launch::coarse_to_fine(1), std::vector<int>{0});
    EXPECT_EQ(launch::coarse_to_fine(9), (std::vector<int>{0, 8, 4, 2, 6, 1, 3, 5, 7}));
    for (int count = 2; count < 70; ++count) {
        std::vector<int> order = launch::coarse_to_fine(count);
        std::ranges::sort(order);
        for (int i = 0; i < count; ++i)
            ASSERT_EQ(order.at(static_cast<std::size_t>(i)), i) << count;
    }
}

} // namespace latency_test
