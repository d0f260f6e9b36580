// Texts drafted by heads are plain texts: every format, chains and trees, alone and in batches, over ranks. All heads
// but the demo target's are random: most of their drafted tokens are rejected.
#include "tests/model/temporary_directory.h"
#include "tests/spec/every_drafter.h"
#include "tests/spec/loaded_head.h"
#include "tests/spec/ranks.h"

#include <fmt/format.h>

namespace heads_mpi {

using namespace entrodraft;
using spec::Acceptance;
using spec::Completion;
using spec::Request;

// Lengths of prompts. A text of one token has no hidden states; the last one meets the context's end.
constexpr int kLengths[] = {1, 2, 7, 30, 140, 245};

// Drafts over the ranks with a head; `tree` null: chains.
std::vector<Completion> run(TestPair& pair, LoadedHead& head, std::vector<Request> requests, Acceptance acceptance,
                            const char* tree, int n_slots) {
    spec::DrafterParts parts{{pair.limits(), pair.clock, n_slots}};
    parts.head = &head.modules;
    if (tree) parts.tree = spec::parse_tree(tree);
    const auto drafter = spec::drafter_type("head").make(parts);
    RunOptions options;
    options.acceptance = acceptance;
    options.n_slots = n_slots;
    options.hidden_layers = head.head.target_layers;
    options.rule = tree ? constant_rule(60, 60) : constant_rule(5, 5);
    return pair.run(std::move(requests), options, drafter.get());
}

void expect_plain_texts(dist::DraftPlacement placement, const std::filesystem::path& target,
                        const std::filesystem::path& directory, int new_tokens, std::int64_t at_least_accepted) {
    Ranks ranks{placement};
    TestModelOptions options = ranks.options();
    options.decoder.n_slots = 3;
    TestPair pair(target, target, options, ranks.replica.get(), placement);
    LoadedHead head(directory, target, pair.target.team, options);
    for (const double temperature : {0.0, 0.7, 1.0}) {
        const auto requests = requests_of(kLengths, pair.target.config.vocab_size, temperature, new_tokens);
        RunOptions plain_options;
        plain_options.acceptance = Acceptance::gumbel;
        const auto plain = pair.run(plainly(requests), plain_options);
        std::int64_t accepted = 0;
        for (const char* tree : {static_cast<const char*>(nullptr), "3,2,1", "eagle2:3:4", "expected-gain:3:4"})
            for (const int n_slots : {1, 3}) {
                SCOPED_TRACE(fmt::format("temperature {}, {}, {} slots", temperature, tree ? tree : "chain", n_slots));
                const auto found = run(pair, head, requests, Acceptance::gumbel, tree, n_slots);
                EXPECT_EQ(found.size(), plain.size());
                for (std::size_t i = 0; i < found.size(); ++i) {
                    EXPECT_EQ(found[i].tokens, plain[i].tokens) << "text " << i;
                    EXPECT_GT(found[i].stats.drafted, 0) << "text " << i;
                    accepted += found[i].stats.accepted;
                }
            }
        if (!plain.empty()) {
            EXPECT_GE(accepted, at_least_accepted);
        }
    }
}

// A head on a rank of its own gets the target's states by message.
void expect_plain_texts(const std::filesystem::path& target, const std::filesystem::path& directory, int new_tokens,
                        std::int64_t at_least_accepted) {
    using enum dist::DraftPlacement;
    for (const dist::DraftPlacement placement : {colocated, dedicated}) {
        if (placement == dedicated && session_of_tests().world_size() == 1) continue;
        SCOPED_TRACE(placement == dedicated ? "dedicated" : "colocated");
        expect_plain_texts(placement, target, directory, new_tokens, at_least_accepted);
    }
}

struct HeadsOnRanks : testing::TestWithParam<std::string> {};

TEST_P(HeadsOnRanks, DraftForThePlainText) {
    expect_plain_texts(dist::DraftPlacement::colocated, head_directory(head_target(GetParam())),
                       head_directory(GetParam()), 24, 0);
}

INSTANTIATE_TEST_SUITE_P(All, HeadsOnRanks, testing::ValuesIn(golden_heads_here()), name_of_head);

TEST(DemoHeadsOnRanks, DraftForThePlainText) {
    const auto demo = source_directory() / "model/demo";
    for (const char* head : {"eagle3", "medusa"}) {
        SCOPED_TRACE(head);
        expect_plain_texts(demo / "target", demo / head, 24, 100);
    }
}

// A pass of masked rows would pass the end of the context.
TEST(HeadsAtTheEnd, OfTheContextDraftNoFurther) {
    const TemporaryDirectory directory;
    std::filesystem::copy(head_directory("peagle"), directory.path(), std::filesystem::copy_options::recursive);
    std::ifstream file(head_directory("peagle") / "config.json");
    auto config = nlohmann::json::parse(file);
    config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] = 12;
    std::ofstream(directory.path() / "config.json") << config;
    expect_plain_texts(head_directory("target"), directory.path(), 24, 1);
}

} // namespace heads_mpi
