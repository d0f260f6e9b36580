// Speculation with a pair of every family: the text is the plain text, and transformers' text.
#include "tests/dist/session_of_tests.h"
#include "tests/model/family_golden.h"
#include "tests/spec/engine_support.h"

#include <gtest/gtest.h>

namespace families_mpi {

using namespace entrodraft;
using spec::Completion;
using spec::Request;

// Whether every rank gets a head of the target, which the backend can run; the draft is whole on the first.
bool fits(const std::filesystem::path& target, int ranks) {
    const model::ModelConfig config = model::read_config(target);
    if (on_torch() && !model::what_needs_cpu(config, model::OtherDevice::torch).empty()) return false;
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
        const FamilyGolden golden = read_family_golden(pair, "target");
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
    if (replica->rank() == 0 && served > 1) { // a single pair may agree throughout
        EXPECT_LT(all.accepted, all.drafted) << "nothing was ever refused";
    }
}

} // namespace families_mpi
