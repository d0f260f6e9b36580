// Speculation with a pair of every family: the text is the plain text, and transformers' text.
#include "model/families/read_config.h"
#include "tests/dist/session_of_tests.h"
#include "tests/model/family_golden.h"
#include "tests/spec/every_drafter.h"
#include "tests/spec/ranks.h"

#include <gtest/gtest.h>

namespace families_mpi {

using namespace entrodraft;
using spec::Completion;
using spec::Request;

// Returns whether every rank gets a head of a target that the backend can run. The draft is whole on the first rank.
bool fits(const std::filesystem::path& target, int ranks) {
    const model::ModelConfig config = model::read_config(target);
    if (on_torch() && !model::what_torch_lacks(config).empty()) return false;
    return ranks <= config.n_heads;
}

std::vector<Request> requests_of(const FamilyGolden& golden, bool plain) {
    std::vector<Request> requests;
    for (const FamilyText& text : golden.texts) {
        requests.push_back(request_of(text.tokens, static_cast<int>(text.greedy.size()), plain));
        requests.back().ignore_eos = true;
    }
    return requests;
}

struct Accepted {
    std::int64_t drafted = 0, accepted = 0;
};

// The pair's texts plainly and with two stop rules.
Accepted check_pair(const FamilyGolden& golden, dist::Communicator& replica, const TestModelOptions& options) {
    TestPair pair(golden.directory, golden.directory.parent_path() / "draft", options, &replica);
    EXPECT_EQ(pair.vocab_size(), golden.known);
    const std::vector<Completion> plain = pair.run(requests_of(golden, true));
    for (std::size_t i = 0; i < plain.size(); ++i)
        EXPECT_EQ(plain[i].tokens, golden.texts[i].greedy) << "plain, text " << i;
    Accepted sum;
    for (const spec::StopRuleOptions& rule : {constant_rule(4), rule_of("moving-average")}) {
        RunOptions run_options;
        run_options.rule = rule;
        const std::vector<Completion> drafted = pair.run(requests_of(golden, false), run_options);
        EXPECT_EQ(drafted.size(), plain.size());
        for (std::size_t i = 0; i < drafted.size(); ++i) {
            EXPECT_EQ(drafted[i].tokens, plain[i].tokens) << rule.name() << ", text " << i;
            sum.drafted += drafted[i].stats.drafted;
            sum.accepted += drafted[i].stats.accepted;
        }
    }
    return sum;
}

TEST(FamilyPairs, GreedySpeculativeTextIsPlainTextAndTransformersText) {
    const std::unique_ptr<dist::Communicator> replica = session_of_tests().split(0), tp = session_of_tests().split(0);
    TestModelOptions options;
    options.tp = tp.get();
    options.decoder.timeout_seconds = 60;
    Accepted all;
    int served = 0;
    for (const auto& pair : family_pairs()) {
        const FamilyGolden golden = read_family_golden(pair / "target");
        SCOPED_TRACE(golden.name());
        if (!fits(golden.directory, tp->size())) continue;
        const Accepted some = check_pair(golden, *replica, options);
        ++served;
        all.drafted += some.drafted;
        all.accepted += some.accepted;
        if (replica->rank() == 0) {
            EXPECT_GT(some.accepted, 0) << "a draft that is never right tests little";
        }
    }
    if (replica->rank() == 0 && served > 1) { // one pair may agree throughout
        EXPECT_LT(all.accepted, all.drafted) << "nothing was ever refused";
    }
}

// Compares texts drafted by trees of the draft model with those without drafts.
void check_trees(TestPair& pair, std::vector<Request> requests, const char* tree) {
    RunOptions run;
    run.n_slots = 2;
    run.acceptance = spec::Acceptance::gumbel;
    run.rule = constant_rule(12, 12);
    spec::DrafterParts parts{{pair.limits(), pair.clock, run.n_slots}};
    parts.models = {&pair.draft.decoder};
    if (pair.sharded_draft) parts.models = {&*pair.sharded_draft};
    parts.tree = spec::parse_tree(tree);
    const auto drafter = spec::drafter_type("model").make(parts);
    const std::vector<Completion> drafted = pair.run(requests, run, drafter.get());
    for (Request& request : requests)
        request.plain = true;
    const std::vector<Completion> plain = pair.run(requests, run);
    EXPECT_EQ(drafted.size(), plain.size());
    Accepted sum;
    for (std::size_t i = 0; i < drafted.size(); ++i) {
        EXPECT_EQ(drafted[i].tokens, plain[i].tokens) << "text " << i;
        sum.drafted += drafted[i].stats.drafted;
        sum.accepted += drafted[i].stats.accepted;
    }
    if (drafted.empty()) return; // another rank
    EXPECT_GT(sum.accepted, 0);
    EXPECT_GT(sum.drafted, sum.accepted);
}

TEST(FamilyPairs, TreesOverLinearAttentionChangeNothing) {
    if (on_torch()) GTEST_SKIP() << lacking_on_torch("linear attention");
    using enum dist::DraftPlacement;
    const auto directory = source_directory() / "tests/model/families/qwen3-next";
    const FamilyGolden golden = read_family_golden(directory / "target");
    for (const dist::DraftPlacement placement : {colocated, sharded}) {
        Ranks ranks{placement};
        if (placement == sharded && ranks.replica->size() > 3) continue; // the draft has three heads
        TestModelOptions options = ranks.options();
        options.decoder.n_slots = 2;
        TestPair pair(golden.directory, directory / "draft", options, ranks.replica.get(), placement);
        for (const double temperature : {0.0, 1.0})
            for (const char* tree : {"3,2,1", "eagle2:4:4"}) {
                SCOPED_TRACE(std::string(tree) + " at " + std::to_string(temperature));
                std::vector<Request> requests = requests_of(golden, false);
                for (Request& request : requests)
                    request.sampling.temperature = temperature;
                check_trees(pair, requests, tree);
            }
    }
}

} // namespace families_mpi
