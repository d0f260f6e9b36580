// Trees of drafted tokens: paths, and shapes by name. An enumeration shows that their verification is exact.
#include "spec/draft/drafter.h"
#include "spec/verify/logit_processing.h"

#include "tests/spec/verify_support.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace entrodraft::spec {

namespace {

//      0     1        children of the next token
//     2 3    5
//     4
const std::vector<std::int8_t> kParents = {-1, -1, 0, 0, 2, 1};

TEST(TokenTree, HasPathsAndChildren) {
    EXPECT_EQ(path_to(kParents, 4), (std::vector<int>{0, 2, 4}));
    EXPECT_EQ(path_to(kParents, -1), (std::vector<int>{}));
    EXPECT_EQ(depth_of(kParents, 4), 3);
    EXPECT_EQ(depth_of(kParents, -1), 0);
    EXPECT_EQ(children_of(kParents, -1), (std::vector<int>{0, 1}));
    EXPECT_EQ(children_of(kParents, 0), (std::vector<int>{2, 3}));
    EXPECT_EQ(children_of(kParents, 4), (std::vector<int>{}));
    EXPECT_EQ(first_path(kParents), (std::vector<int>{0, 2, 4}));
    EXPECT_EQ(first_path(kParents, 1), (std::vector<int>{5}));
    EXPECT_FALSE(is_chain(kParents));
    EXPECT_TRUE(is_chain(chain_parents(5)));
    EXPECT_TRUE(is_chain({}));
    EXPECT_EQ(first_path(chain_parents(3)), (std::vector<int>{0, 1, 2}));
}

TEST(TokenTree, RowsArePenalisedByTheirOwnPath) {
    LogitProcessing processing;
    processing.repetition_penalty = 1.3;
    processing.frequency_penalty = 0.2;
    processing.no_repeat_ngram_size = 2;
    const Tokens prompt = {1, 2, 3, 1}, drafted = {2, 4, 3, 5, 1, 2};
    constexpr std::size_t kVocab = 7;
    std::vector<float> rows((drafted.size() + 1) * kVocab);
    for (std::size_t i = 0; i < rows.size(); ++i)
        rows[i] = static_cast<float>(i % kVocab) - 2.5F;
    LogitProcessor together(processing, prompt, {});
    const std::vector<float> raw = rows;
    together.apply_to_rows(drafted, kParents, rows);
    EXPECT_TRUE(std::ranges::equal(together.tokens(), prompt));
    for (int node = -1; node < static_cast<int>(drafted.size()); ++node) {
        LogitProcessor alone(processing, prompt, {});
        for (const int each : path_to(kParents, node))
            alone.push(drafted[static_cast<std::size_t>(each)]);
        const std::size_t at = static_cast<std::size_t>(node + 1) * kVocab;
        std::vector<float> row(raw.begin() + static_cast<std::ptrdiff_t>(at),
                               raw.begin() + static_cast<std::ptrdiff_t>(at + kVocab));
        alone.apply(row);
        EXPECT_TRUE(std::ranges::equal(row, std::span(rows).subspan(at, kVocab))) << node;
    }
}

// ---- shapes ----

std::string why_not(const std::string& text) {
    try {
        parse_tree(text);
    } catch (const std::exception& error) {
        return error.what();
    }
    return {};
}

TEST(TreeShapes, AreNamedOrGivenByWidths) {
    const auto sizes_by_depth = [](const TreeOptions& tree) {
        std::vector<int> sizes;
        for (const std::vector<int>& path : tree.paths) {
            sizes.resize(std::max(sizes.size(), path.size()));
            ++sizes[path.size() - 1];
        }
        return sizes;
    };
    EXPECT_EQ(sizes_by_depth(parse_tree("medusa-63")), (std::vector<int>{10, 28, 23, 2})); // as published
    EXPECT_EQ(sizes_by_depth(parse_tree("eagle-25")), (std::vector<int>{4, 8, 8, 3, 2}));
    EXPECT_EQ(sizes_by_depth(parse_tree("4,2,1")), (std::vector<int>{4, 8, 8}));
    const TreeOptions grown = parse_tree("eagle2:5:10");
    EXPECT_EQ(grown.shape, TreeOptions::Shape::eagle2);
    EXPECT_EQ(grown.depth, 5);
    EXPECT_EQ(grown.top_k, 10);
    EXPECT_EQ(parse_tree("expected-gain").shape, TreeOptions::Shape::expected_gain);
}

TEST(TreeShapes, ThatCannotBeAreRefused) {
    EXPECT_NE(why_not("0,2").find("from 1 to 127"), std::string::npos);
    EXPECT_NE(why_not("8,8,8").find("1 to 127 tokens"), std::string::npos);
    EXPECT_NE(why_not("2,,1").find("a width"), std::string::npos);
    EXPECT_NE(why_not("eagle2:x").find("depth"), std::string::npos);
    EXPECT_NE(why_not("eagle2:1:2:3").find("at most"), std::string::npos);
    EXPECT_NE(why_not("medusa").find("neither"), std::string::npos);
    const std::string file = testing::TempDir() + "tree.json";
    const auto why_not_file = [&](const std::string& json) {
        std::ofstream(file) << json;
        return why_not(file);
    };
    EXPECT_EQ(why_not_file("[[0], [1], [0, 0]]"), "");
    EXPECT_NE(why_not_file("[[0], [1, 0]]").find("[1, 0] is there without [1]"), std::string::npos);
    EXPECT_NE(why_not_file("[[0], [2]]").find("[2] is there without [1]"), std::string::npos);
    EXPECT_NE(why_not_file("[[0], [0]]").find("twice"), std::string::npos);
    EXPECT_NE(why_not_file("[[]]").find("ranks"), std::string::npos);
    EXPECT_NE(why_not_file("[[-1]]").find("JSON list"), std::string::npos);
    EXPECT_NE(why_not_file("{}").find("JSON list"), std::string::npos);
    EXPECT_NE(why_not_file("[[0]").find(file), std::string::npos);
    EXPECT_NE(why_not_file("0,1").find(file), std::string::npos);
    EXPECT_NE(why_not_file("").find(file), std::string::npos);
    EXPECT_NE(why_not_file("[[0, 0]]").find("[0, 0] is there without [0]"), std::string::npos);
    EXPECT_NE(why_not_file("[[0], 1]").find("JSON list"), std::string::npos);
    EXPECT_NE(why_not_file("[[0], [128]]").find("JSON list"), std::string::npos);
    EXPECT_NE(why_not_file(R"({"parents": [1, 0]})").find("JSON list"), std::string::npos); // paths have no cycles
    EXPECT_NE(why_not_file("[[0], " + std::string(1 << 17, ' ') + "[1]]").find(file), std::string::npos);
}

// ---- exactness ----

constexpr std::size_t kVocab = 3;
constexpr std::size_t kLength = 3; // of compared texts

struct DrawnTree {
    Tokens tokens;
    std::vector<std::int8_t> parents;
    std::vector<float> q;
    double probability = 1;
};

Tokens prefix_of(const DrawnTree& tree, int node) {
    Tokens prefix;
    for (const int each : path_to(tree.parents, node))
        prefix.push_back(tree.tokens[static_cast<std::size_t>(each)]);
    return prefix;
}

enum class Siblings { drawn, best, drawn_with_stale_q };

// Every tree of this shape that the draft may draw, with its probability: a node of level i has `widths[i]` children.
void draw_trees(const ToyModel& draft, const std::vector<int>& widths, Siblings siblings, const DrawnTree& so_far,
                int node, int rank, const std::function<void(const DrawnTree&)>& take) {
    const auto depth = static_cast<std::size_t>(depth_of(so_far.parents, node));
    if (depth >= widths.size() || rank == widths[depth]) { // go on with the next node
        if (node + 1 == static_cast<int>(so_far.tokens.size())) return take(so_far);
        return draw_trees(draft, widths, siblings, so_far, node + 1, 0, take);
    }
    const std::vector<float>& whole = draft.after(prefix_of(so_far, node));
    std::vector<float> left = whole;
    for (const int sibling : children_of(so_far.parents, node))
        left[static_cast<std::size_t>(so_far.tokens[static_cast<std::size_t>(sibling)])] = 0;
    double sum = 0;
    for (const float each : left)
        sum += static_cast<double>(each);
    for (float& each : left)
        each = static_cast<float>(static_cast<double>(each) / sum);
    const TokenId best = arg_max(left);
    for (std::size_t token = 0; token < kVocab; ++token) {
        if (left[token] <= 0 || (siblings == Siblings::best && static_cast<TokenId>(token) != best)) continue;
        DrawnTree next = so_far;
        next.tokens.push_back(static_cast<TokenId>(token));
        next.parents.push_back(static_cast<std::int8_t>(node));
        std::vector<float> q = siblings == Siblings::drawn ? left : whole;
        if (siblings == Siblings::best) {
            q.assign(kVocab, 0);
            q[token] = 1;
        } else {
            next.probability *= static_cast<double>(left[token]);
        }
        next.q.insert(next.q.end(), q.begin(), q.end());
        draw_trees(draft, widths, siblings, next, node, rank + 1, take);
    }
}

// Every course of a verification, with its probability. Random numbers are answered one by one; a bisection finds the
// answers at which the next question changes.
class EveryWay {
  public:
    using Verify = std::function<TreeVerification(const TreeNumbers&)>;
    using Take = std::function<void(const TreeVerification&, double probability)>;

    EveryWay(Verify verify, Take take) : verify_(std::move(verify)), take_(std::move(take)) { go(1); }

  private:
    TreeVerification run() {
        asked_.clear();
        const auto answer = [this] { return asked_.size() <= answers_.size() ? answers_[asked_.size() - 1] : 0.5; };
        return verify_({[&](std::size_t depth, std::size_t) {
                            asked_.push_back({depth, false});
                            return answer();
                        },
                        [&](std::size_t depth) {
                            asked_.push_back({depth, true});
                            return answer();
                        }});
    }
    // The least answer from which on `is_beyond` holds for the next question.
    double border(const std::function<bool(const TreeVerification&)>& is_beyond) {
        double low = 0, high = 1;
        answers_.push_back(0);
        for (int step = 0; step < 40; ++step) {
            answers_.back() = (low + high) / 2;
            (is_beyond(run()) ? high : low) = answers_.back();
        }
        answers_.pop_back();
        return high;
    }
    void go(double probability) {
        if (probability < 1e-12) return;
        run();
        const std::size_t at = answers_.size();
        const Asked next = asked_[at];
        if (next.is_resample) {
            double begin = 0;
            for (TokenId token = 0; token < static_cast<TokenId>(kVocab); ++token) {
                const double end = border([&](const TreeVerification& found) { return found.next_token > token; });
                answers_.push_back((begin + end) / 2);
                if (end - begin > 1e-9) take_(run(), probability * (end - begin));
                answers_.pop_back();
                begin = end;
            }
            return;
        }
        const double accepted = border(
            [&](const TreeVerification&) { return asked_[at + 1].depth == next.depth; }); // rejected from there on
        answers_.push_back(accepted / 2);
        go(probability * accepted);
        answers_.back() = (1 + accepted) / 2;
        go(probability * (1 - accepted));
        answers_.pop_back();
    }

    struct Asked {
        std::size_t depth;
        bool is_resample;
    };
    Verify verify_;
    Take take_;
    std::vector<double> answers_;
    std::vector<Asked> asked_;
};

// The largest difference between a text's probability and the target's.
double worst_difference(const ToyModel& target, const ToyModel& draft, const std::vector<int>& widths,
                        Siblings siblings, double* mean_accepted = nullptr) {
    std::map<Tokens, double> texts;
    draw_trees(draft, widths, siblings, {}, -1, 0, [&](const DrawnTree& tree) {
        std::vector<float> p;
        for (int node = -1; node < static_cast<int>(tree.tokens.size()); ++node) {
            const std::vector<float>& row = target.after(prefix_of(tree, node));
            p.insert(p.end(), row.begin(), row.end());
        }
        const TreeInput input = {tree.tokens, tree.parents, p, 0};
        EveryWay([&](const TreeNumbers& numbers) { return verify_tree_rejection(input, tree.q, numbers); },
                 [&](const TreeVerification& found, double probability) {
                     Tokens emitted = prefix_of(tree, found.last_accepted);
                     if (mean_accepted)
                         *mean_accepted += tree.probability * probability * static_cast<double>(emitted.size());
                     emitted.push_back(found.next_token);
                     texts[emitted] += tree.probability * probability;
                 });
    });
    double worst = 0;
    for_each_sequence(kVocab, kLength, [&](const Tokens& text) {
        double probability = 0; // of an emitted beginning; the target gives the rest
        for (std::size_t n = 1; n <= kLength; ++n)
            if (const auto found = texts.find(first_of(text, n)); found != texts.end())
                probability += found->second * target.probability(text) / target.probability(first_of(text, n));
        worst = std::max(worst, std::abs(probability - target.probability(text)));
    });
    return worst;
}

TEST(TreeRejection, EmitsTheTargetsTextsByEnumeration) {
    for (const std::uint64_t seed : {1, 2, 3}) {
        const ToyModel target(kVocab, seed, options_of(1)), draft(kVocab, seed + 50, options_of(1));
        for (const std::vector<int>& widths : {std::vector<int>{1, 1}, {2}, {3}, {2, 1}, {1, 2}, {2, 2}})
            for (const Siblings siblings : {Siblings::drawn, Siblings::best})
                EXPECT_LT(worst_difference(target, draft, widths, siblings), 1e-6) << widths.size();
    }
}

TEST(TreeRejection, OfSiblingsWithTheWrongDistributionIsSeenToBeBiased) {
    double worst = 0; // if the residual has a single token, the result is right
    for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6}) {
        const ToyModel target(kVocab, seed, options_of(1)), draft(kVocab, seed + 50, options_of(1));
        worst = std::max(worst, worst_difference(target, draft, {2}, Siblings::drawn_with_stale_q));
    }
    EXPECT_GT(worst, 1e-3);
}

TEST(TreeRejection, AcceptsMoreOfAWiderTree) {
    const ToyModel target(kVocab, 1, options_of(1)), draft(kVocab, 51, options_of(1));
    double narrow = 0, wide = 0;
    worst_difference(target, draft, {1, 1}, Siblings::drawn, &narrow);
    worst_difference(target, draft, {2, 1}, Siblings::drawn, &wide);
    EXPECT_GT(wide, narrow + 0.01);
}

TEST(TreeRejection, RefusesATokenThatCannotHaveBeenDrawn) {
    const std::vector<float> p = {0.5F, 0.5F, 0.5F, 0.5F}, q = {1, 0};
    const Tokens drafted = {1};
    const TreeNumbers numbers = {[](std::size_t, std::size_t) { return 0.5; }, [](std::size_t) { return 0.5; }};
    EXPECT_THROW(verify_tree_rejection({drafted, chain_parents(1), p, 0}, q, numbers), std::runtime_error);
    EXPECT_THROW(verify_tree_rejection({drafted, chain_parents(1), p, 0}, {}, numbers), std::invalid_argument);
}

TEST(LongestPath, IsTheLongestOfThoseThatAreAcceptedAndTheLikeliestOfEquals) {
    const Tokens drafted = {0, 1, 2, 1, 0, 2};
    std::vector<float> p((drafted.size() + 1) * kVocab);
    const auto row = [&](int node) {
        return std::span(p).subspan(static_cast<std::size_t>(node + 1) * kVocab, kVocab);
    };
    for (int node = -1; node < static_cast<int>(drafted.size()); ++node)
        std::ranges::copy(std::vector<float>{0.5F, 0.3F, 0.2F}, row(node).begin());
    const TreeInput input = {drafted, kParents, p, 0};
    const auto emit = [](std::span<const float> of, std::size_t) { return arg_max(of); };
    const auto above = [&](double least) {
        return verify_longest_path(
            input,
            [=](std::span<const float> of, TokenId token) -> std::optional<double> {
                const auto own = static_cast<double>(of[static_cast<std::size_t>(token)]);
                return own > least ? std::optional(std::log(own)) : std::nullopt;
            },
            emit);
    };
    EXPECT_EQ(above(0.9).last_accepted, -1);
    EXPECT_EQ(above(0.4).last_accepted, 0);  // token 0; its children are 2 (0.2) and 1 (0.3)
    EXPECT_EQ(above(0.25).last_accepted, 3); // 0 then 1
    EXPECT_EQ(above(0.1).last_accepted, 4);  // 0, 2, 0: the only one of three
    row(-1)[1] = 0.9F;                       // the other branch: 1 then 2
    EXPECT_EQ(above(0.25).last_accepted, 3);
    row(1)[2] = 0.9F;
    EXPECT_EQ(above(0.25).last_accepted, 5); // likelier than 0 then 1
}

} // namespace

} // namespace entrodraft::spec
