// The rows of a cache that the beams of a text have, compared with a list of paths over random steps.
#include "spec/beams/beam_tree.h"

#include <gtest/gtest.h>

#include <random>

namespace beam_tree_test {

using namespace entrodraft;
using spec::BeamTree;
using spec::TokenId;

constexpr int kPrompt = 7; // cached tokens

struct Beam {
    std::vector<TokenId> tokens;
    int row = -1; // in the last pass
};

// The tokens after the prompt that a row of a pass attends to, by the parents given to the pass.
std::vector<TokenId> branch_of(const spec::BeamPass& pass, int row) {
    const auto n_cached = static_cast<int>(pass.cached_nodes.size());
    std::vector<TokenId> tokens;
    for (int node = n_cached + row; node >= 0;) {
        const model::Row& own = node < n_cached ? pass.cached_nodes[static_cast<std::size_t>(node)]
                                                : pass.rows[static_cast<std::size_t>(node - n_cached)];
        tokens.insert(tokens.begin(), own.token);
        node = own.parent;
    }
    return tokens;
}

TEST(BeamTree, ARowFollowsItsOwnBeamThroughAnySteps) {
    std::mt19937 random(3);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    BeamTree tree(0, kPrompt, 4000);
    std::vector<Beam> beams = {{{100}, -1}}; // the prompt's last token
    std::size_t most_cached = 0;
    for (int step = 0; step < 300; ++step) {
        std::vector<int> ends;
        for (const Beam& beam : beams)
            ends.push_back(beam.row < 0 ? BeamTree::kText : tree.first_of_pass() + beam.row);
        ends = tree.begin_pass(std::move(ends), static_cast<int>(beams.size()), nullptr);
        for (std::size_t i = 0; i < beams.size(); ++i)
            tree.add(beams[i].tokens.back(), ends[i]);
        spec::BeamPass pass;
        BeamTree* const trees[] = {&tree};
        pass.set(trees);
        most_cached = std::max(most_cached, pass.cached_nodes.size());
        for (std::size_t i = 0; i < beams.size(); ++i) {
            const auto row = static_cast<int>(i);
            EXPECT_EQ(pass.rows[i].position, kPrompt + static_cast<int>(beams[i].tokens.size()) - 1);
            EXPECT_EQ(tree.tokens_to(tree.first_of_pass() + row, kPrompt), beams[i].tokens);
            const std::vector<TokenId> branch = branch_of(pass, row);
            EXPECT_TRUE(std::equal(branch.rbegin(), branch.rend(), beams[i].tokens.rbegin())) << "step " << step;
        }
        std::vector<Beam> next; // each follows any of these; now and then all follow one
        const bool meets = step % 40 == 39;
        for (std::size_t i = 0; i < 4; ++i) {
            const std::size_t parent = meets ? 0 : below(beams.size());
            next.push_back({beams[parent].tokens, static_cast<int>(parent)});
            next.back().tokens.push_back(static_cast<TokenId>(4 * step + static_cast<int>(i)));
        }
        beams = std::move(next);
    }
    EXPECT_LT(most_cached, 600U) << "what no beam needs goes";
}

TEST(BeamTree, MakesRoomWhereTheSlotEnds) {
    BeamTree tree(0, kPrompt, kPrompt + 10);
    std::vector<int> ends = tree.begin_pass({BeamTree::kText}, 1, nullptr);
    for (int i = 0; i < 3; ++i)
        tree.add(i, BeamTree::kText);
    ends = tree.begin_pass({0, 1, 2}, 3, nullptr);
    for (int i = 0; i < 3; ++i)
        tree.add(10 + i, ends[static_cast<std::size_t>(i)]);
    ends = tree.begin_pass({3, 4}, 5, nullptr); // 2 of 6 are not needed, so 4 and 5 more fit
    EXPECT_EQ(tree.first_of_pass(), 4);
    EXPECT_EQ(tree.tokens_to(ends[1], kPrompt), (std::vector<TokenId>{1, 11}));
}

TEST(BeamTree, FollowsTokensAsFarAsTheyWereRead) {
    BeamTree tree(0, kPrompt, 100);
    tree.begin_pass({BeamTree::kText}, 3, nullptr);
    const int first = tree.add(5, BeamTree::kText), second = tree.add(6, first);
    tree.add(7, second);
    EXPECT_EQ(tree.walk(std::vector<TokenId>{5, 6, 8}).n, 2U);
    EXPECT_EQ(tree.walk(std::vector<TokenId>{5, 6, 8}).node, second);
    EXPECT_EQ(tree.walk(std::vector<TokenId>{4}).n, 0U);
    tree.begin_pass({second}, 1, nullptr); // 5 and 6 belong to the text now
    const BeamTree::Walk way = tree.walk(std::vector<TokenId>{5, 6, 7});
    EXPECT_EQ(way.n, 3U);
}

} // namespace beam_tree_test
