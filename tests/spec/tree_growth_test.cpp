// Trees grow by what they have learnt: siblings that are never emitted cost no rows, siblings that are get proposed.
#include "spec/draft/tree_growth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

namespace entrodraft::spec {

namespace {

constexpr TokenId kFirst = 1, kSecond = 2;

TreeChild child(TokenId token, float probability) {
    return {token, {1.2F, probability}, {1.2F, probability}};
}

struct Proposals {
    int firsts = 0;
    int seconds = 0;
    int levels = 0;                  // of all rounds
    int further_rows = 0;            // rows of these passes beyond one each
    double rate = 0, known_rate = 0; // tokens a second of all sequences: in the last round, and as the rule knows it
};

DraftTask task_of(std::span<const TokenId> text, int most, const Request& request, StopRule& rule, Draft& draft) {
    DraftTask task;
    task.tokens = text;
    task.max_tokens = task.left_tokens = most;
    task.max_nodes = 63;
    task.request = &request;
    task.rule = &rule;
    task.draft = &draft;
    return task;
}

struct Costing {
    double row = 0; // one more row of the target's pass, which takes 1
    double t_draft = 0.05;
    double t_draft_row = 0;
    int sequences = 1; // they are alike and share all passes
};

// Proposals of the last 100 of 400 rounds over rows of two children. The text goes on with emits(position) at each
// position.
Proposals proposals_of(const Costing& costing, const std::function<TokenId(std::size_t)>& emits) {
    Costs costs;
    costs.t_draft = costing.t_draft;
    costs.t_draft_row = costing.t_draft_row;
    const int max_rows = 64 * costing.sequences;
    for (int rows = 0; rows < max_rows; ++rows)
        costs.t_target.push_back(1 + rows * costing.row);
    GainModel gain({.max_rows = max_rows, .draft_to_target_cost = 0.05, .costs = costs});
    TreeOptions tree;
    tree.depth = 4;
    tree.top_k = 2;
    TreeShape shape(tree, {.vocab_size = 10, .eos_tokens = {}});
    TreeGrowth growth(shape);
    StopRule rule(tree_rule(tree), &gain);
    growth.begin_sequence();
    Request request;
    Draft draft;
    std::vector<TokenId> text = {0};
    Proposals proposals;
    for (int round = 0; round < 400; ++round) {
        DraftTask task = task_of(text, 63, request, rule, draft);
        task.gain = &gain;
        const BatchLoad load = {(growth.n_proposed() + 1) * (costing.sequences - 1), costing.sequences};
        growth.begin(task, {kNoContext, kNoContext}, load);
        while (!growth.frontier().empty()) {
            const std::vector<int> level(growth.frontier().begin(), growth.frontier().end());
            for (const int node : level)
                growth.add_children(node, {child(kFirst, 0.5F), child(kSecond, 0.4F)});
            growth.end_level(costing.sequences);
        }
        growth.finish();
        std::vector<int> path;
        int last = -1;
        for (int i = 0; i < static_cast<int>(draft.tokens.size()); ++i) {
            if (round >= 300)
                ++(draft.tokens[static_cast<std::size_t>(i)] == kFirst ? proposals.firsts : proposals.seconds);
            if (parent_of(draft.parents, i) == last &&
                draft.tokens[static_cast<std::size_t>(i)] == emits(text.size() + path.size()))
                path.push_back(last = i);
        }
        proposals.levels += draft.passes;
        proposals.further_rows += draft.further_rows;
        RoundFeedback feedback = feedback_of(draft, path);
        feedback.batch_load = {static_cast<int>(draft.tokens.size() + 1) * (costing.sequences - 1), costing.sequences};
        rule.end_round(feedback);
        const double rows =
            static_cast<double>((draft.tokens.size() + 1) * static_cast<std::size_t>(costing.sequences));
        const double draft_rows =
            costing.sequences * (draft.passes + draft.further_rows) - draft.passes; // without the first row of a pass
        const double drafting = draft.passes * costing.t_draft + draft_rows * costing.t_draft_row;
        const double seconds = drafting + 1 + (rows - 1) * costing.row;
        proposals.rate = costing.sequences * static_cast<double>(path.size() + 1) / seconds;
        proposals.known_rate = gain.pace.tokens_per_second();
        const std::size_t begin = text.size();
        for (std::size_t i = 0; i <= path.size(); ++i)
            text.push_back(emits(begin + i));
    }
    return proposals;
}

TEST(TreeGrowth, ShrinksToAChainWhereSiblingsAreNeverTheTargets) {
    const Proposals proposals = proposals_of({.row = 0.1}, [](std::size_t) { return kFirst; });
    EXPECT_GT(proposals.firsts, 100);
    EXPECT_EQ(proposals.seconds, 0);
}

TEST(TreeGrowth, KeepsSiblingsThatAreOftenTheTargets) {
    const auto half = [](std::size_t at) { return at * 7 % 5 < 2 ? kSecond : kFirst; };
    EXPECT_GT(proposals_of({.row = 0.05}, half).seconds, 50);
}

TEST(TreeGrowth, ProposesFewerNodesWhereRowsCostMore) {
    const auto often = [](std::size_t at) { return at % 4 == 0 ? kSecond : kFirst; };
    const Proposals cheap = proposals_of({.row = 0.001}, often), dear = proposals_of({.row = 0.2}, often);
    EXPECT_GT(cheap.firsts + cheap.seconds, 2 * (dear.firsts + dear.seconds));
    EXPECT_GT(dear.firsts, 0);
}

// A node's value is a chance: the values of siblings add up to at most their parent's.
// The rounds of this text are alike in the end.
TEST(TreeGrowth, TheRunsRateCountsEveryLevelAndWhatIsSharedOnce) {
    for (const int sequences : {1, 8}) {
        const Proposals proposals = proposals_of({.t_draft = 0.2, .t_draft_row = 0.02, .sequences = sequences},
                                                 [](std::size_t) { return kFirst; });
        EXPECT_NEAR(proposals.known_rate / proposals.rate, 1, 0.05) << sequences;
    }
}

TEST(TreeGrowth, ReadsFewerNodesOfALevelWhereTheirRowsCostMore) {
    const auto often = [](std::size_t at) { return at % 4 == 0 ? kSecond : kFirst; };
    const Proposals free = proposals_of({.t_draft = 0.1}, often);
    const Proposals dear = proposals_of({.t_draft = 0.1, .t_draft_row = 0.1}, often);
    EXPECT_GT(free.further_rows, free.levels / 2);
    EXPECT_LT(dear.further_rows, free.further_rows / 2);
    EXPECT_GT(dear.levels, 0.8 * free.levels); // first children still go on
}

// Sequences share draft and target passes, and rows are free.
TEST(TreeGrowth, DraftsAsFarInABatchAsAlone) {
    const auto often = [](std::size_t at) { return at % 4 == 0 ? kSecond : kFirst; };
    const Proposals alone = proposals_of({.t_draft = 0.3}, often);
    const Proposals shared = proposals_of({.t_draft = 0.3, .sequences = 8}, often);
    EXPECT_GT(alone.levels, 500);
    EXPECT_NEAR(shared.levels, alone.levels, 0.1 * alone.levels);
}

TEST(TreeGrowth, TheEndOfATextBoundsATreesDepthAndNotItsNodes) {
    const TreeOptions tree = parse_tree("3,2,1");
    TreeShape shape(tree, {.vocab_size = 100, .eos_tokens = {}});
    const std::vector<TokenId> text = {0};
    const Request request;
    for (const auto& [left, cache, expected] : {std::array{3, 63, 15}, {2, 63, 9}, {1, 63, 3}, {1, 2, 2}, {3, 8, 8}}) {
        TreeGrowth growth(shape);
        StopRule rule(tree_rule(tree));
        growth.begin_sequence();
        Draft draft;
        DraftTask task = task_of(text, left, request, rule, draft);
        task.max_nodes = cache;
        growth.begin(task, {kNoContext, kNoContext});
        for (TokenId token = 1; !growth.frontier().empty(); growth.end_level())
            for (const int node : std::vector<int>(growth.frontier().begin(), growth.frontier().end())) {
                std::vector<TreeChild> children;
                for (int i = 0; i < growth.n_children(node); ++i)
                    children.push_back(child(token++, 0.3F));
                growth.add_children(node, std::move(children));
            }
        growth.finish();
        EXPECT_EQ(draft.tokens.size(), static_cast<std::size_t>(expected)) << left << " left, room for " << cache;
        for (int node = 0; node < static_cast<int>(draft.tokens.size()); ++node)
            EXPECT_LE(depth_of(draft.parents, node), left);
    }
}

TEST(TreeGrowth, GivesSiblingsNoMoreThanAllOfTheChance) {
    TreeOptions tree;
    tree.top_k = 8;
    TreeShape shape(tree, {.vocab_size = 10, .eos_tokens = {}});
    TreeGrowth growth(shape);
    StopRule rule{StopRuleOptions("constant", {{"tokens", 15}})};
    growth.begin_sequence();
    Request request;
    Draft draft;
    const std::vector<TokenId> text = {0};
    const DraftTask task = task_of(text, 15, request, rule, draft);
    growth.begin(task, {kNoContext, kNoContext});
    std::vector<TreeChild> children;
    for (TokenId token = 0; token < 8; ++token)
        children.push_back({token, {0.1F, 0.99F}, {0.1F, 0.99F}});
    growth.add_children(-1, children);
    double sum = 0;
    for (int i = 0; i < 8; ++i)
        sum += growth.node(i).value;
    EXPECT_LE(sum, 1 + 1e-12);
    EXPECT_GT(sum, 0.5);
}

} // namespace

} // namespace entrodraft::spec
