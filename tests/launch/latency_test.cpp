// The order in which bench latency times passes.
#include "launch/cmd/bench/latency.h"

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
    std::vector<model::kernels::LogitStats> summaries_;
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
    const auto times = launch::time_in_turns(std::span(&pair, 1), plan);
    ASSERT_EQ(times.front().target.size(), 5U);
    const std::vector<int> up = {1, 2, 3, 4, 5}, down = {5, 4, 3, 2, 1};
    std::vector<int> expected;
    for (const auto& turn : {up, down, up, down})
        expected.insert(expected.end(), turn.begin(), turn.end());
    const std::span<const int> timed = std::span<const int>(decoder.widths).last(expected.size()); // behind warm-ups
    EXPECT_EQ(std::vector<int>(timed.begin(), timed.end()), expected);
}

} // namespace latency_test
