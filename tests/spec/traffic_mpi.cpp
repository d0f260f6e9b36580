// Counts the messages of a round in the communicators, against the promises of docs/concepts.md for protocol and pass.
#include "tests/spec/ranks.h"

#include <gtest/gtest.h>

namespace traffic_mpi {

using namespace entrodraft;

struct Counted {
    dist::Traffic replica, tp;
};

TEST(Traffic, ARoundIsOneBroadcastOneGatherAndTwoAllReducesALayer) {
    Ranks ranks;
    TestPair pair(ranks.target, ranks.draft, ranks.options(), ranks.replica.get());
    RunOptions options;
    options.rule = constant_rule(3);
    const auto drafter = pair.model_drafter();
    const auto engine = pair.engine(options, drafter.get());
    std::vector<Counted> after_round; // on the coordinator
    bool asked = false;
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [&]() -> std::optional<spec::Request> {
        if (std::exchange(asked, true)) return std::nullopt;
        return request_of(golden_prompt(2), 30);
    };
    callbacks.on_round = [&](const spec::Request&, const spec::RoundTrace&) {
        after_round.push_back({ranks.replica->traffic(), ranks.tp->traffic()});
    };
    callbacks.on_complete = [](const spec::Request&, spec::Completion) {};
    const volatile int no_signal = 0;
    engine->run(callbacks, no_signal);

    const int size = ranks.replica->size();
    // One for the embedding, then two for each layer; a group of one rank sums nothing.
    const std::uint64_t all_reduces = size == 1 ? 0 : 1 + 2 * static_cast<std::uint64_t>(pair.target.config.n_layers);
    for (std::size_t i = 1; i < after_round.size(); ++i) {
        const Counted &before = after_round[i - 1], &after = after_round[i];
        EXPECT_EQ(after.replica.broadcasts - before.replica.broadcasts, 1U);
        EXPECT_EQ(after.replica.gathers - before.replica.gathers, 1U);
        EXPECT_EQ(after.replica.all_reduces, before.replica.all_reduces);
        EXPECT_LT(after.replica.broadcast_bytes - before.replica.broadcast_bytes, 256U);
        EXPECT_EQ(after.tp.all_reduces - before.tp.all_reduces, all_reduces);
        EXPECT_EQ(after.tp.broadcasts + after.tp.gathers, 0U);
    }
    // Every rank took part in the same number of messages, of the same size.
    struct Counts {
        std::uint64_t broadcasts, broadcast_bytes, gathers, gather_bytes, all_reduces, all_reduce_bytes;
    };
    const dist::Traffic &replica = ranks.replica->traffic(), &tp = ranks.tp->traffic();
    const Counts mine = {replica.broadcasts,   replica.broadcast_bytes, replica.gathers,
                         replica.gather_bytes, tp.all_reduces,          tp.all_reduce_bytes};
    EXPECT_GT(mine.broadcasts, 10U);
    std::vector<Counts> all(static_cast<std::size_t>(size));
    session_of_tests().world().gather(&mine, all.data(), sizeof mine, 0, dist::Deadline::after_seconds(60));
    for (int rank = 0; ranks.coordinates() && rank < size; ++rank)
        EXPECT_EQ(std::memcmp(&all[static_cast<std::size_t>(rank)], &mine, sizeof mine), 0) << "rank " << rank;
    EXPECT_EQ(ranks.coordinates(), after_round.size() > 5);
}

} // namespace traffic_mpi
