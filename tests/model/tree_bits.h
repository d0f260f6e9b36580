// Random token trees, and that a decoder computes them as it computes the text of each branch alone. For tests only.
#pragma once

#include "model/pass/pass_layout.h"
#include "tests/model/golden_models.h"

#include <random>

namespace entrodraft {

// `n` rows behind a text of `cached` tokens in slot 0, each after the text, or, more often, after one of those before.
inline std::vector<model::Row> random_tree(int n, int cached, int vocab) {
    std::mt19937 random(static_cast<unsigned>(cached));
    std::vector<model::Row> rows;
    for (int i = 0; i < n; ++i) {
        const int parent = (random() % 3 == 0 ? static_cast<int>(random() % static_cast<unsigned>(i + 1)) : i) - 1;
        const int position = parent < 0 ? cached : rows[static_cast<std::size_t>(parent)].position + 1;
        const auto token = static_cast<model::TokenId>(random() % static_cast<unsigned>(vocab));
        rows.push_back({token, 0, position, parent});
    }
    return rows;
}

// From the text to row `node`.
inline std::vector<int> branch_to(const std::vector<model::Row>& tree, int node) {
    std::vector<int> branch;
    for (; node >= 0; node = tree[static_cast<std::size_t>(node)].parent)
        branch.insert(branch.begin(), node);
    return branch;
}

// Every seventh row of a tree behind the text in slot 0 has the bits of its branch alone, in one pass and where earlier
// passes have computed those before it, and so has what follows the branch that is kept. Leaves the slot as it was.
// Collective over the model's ranks.
inline void expect_bits_of_branches(TestModel& model, const std::vector<model::Row>& tree) {
    const int cached = model.decoder.cache().length(0), n = static_cast<int>(tree.size());
    const auto vocab = static_cast<std::size_t>(model.decoder.local_vocab().size());
    const std::vector<model::TokenId> next = varied_tokens(3, model.config.vocab_size, 4);
    const auto row = [&](const std::vector<float>& logits, int i) {
        return std::span(logits).subspan(static_cast<std::size_t>(i) * vocab, vocab);
    };
    const std::vector<float> together = model.forward(tree, TestModel::all_of(tree.size()), model::Mask::by_parent);
    model.decoder.cache().truncate(0, cached);
    std::vector<float> grown;
    for (const auto& [begin, end] : {std::pair{0, n / 3}, {n / 3, n / 3 + 1}, {n / 3 + 1, n}}) {
        const std::vector<int> wanted = TestModel::all_of(static_cast<std::size_t>(end - begin));
        const auto all = std::span(tree);
        const model::PassResult pass =
            model.decoder.forward({.rows = all.subspan(static_cast<std::size_t>(begin), wanted.size()),
                                   .logit_rows = wanted,
                                   .hidden_layers = {},
                                   .mask = model::Mask::by_parent,
                                   .cached_nodes = all.first(static_cast<std::size_t>(begin))});
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const auto logits = pass.logits.subspan(i * pass.logits_stride, vocab);
            grown.insert(grown.end(), logits.begin(), logits.end());
        }
    }
    EXPECT_TRUE(same_bits(grown, together)) << "a tree that grows over several passes";
    for (int node = n - 1; node >= 0; node -= 7) {
        const std::vector<int> branch = branch_to(tree, node);
        std::vector<model::TokenId> text;
        for (const int each : branch)
            text.push_back(tree[static_cast<std::size_t>(each)].token);
        model.decoder.cache().truncate(0, cached);
        const std::vector<float> chain = model.read(text);
        EXPECT_TRUE(same_bits(row(together, node), row(chain, static_cast<int>(branch.size()) - 1)))
            << "row " << node << " behind " << cached << " tokens";
        const std::vector<float> after_chain = model.read(next);
        model.decoder.cache().truncate(0, cached);
        model.forward(tree, {}, model::Mask::by_parent);
        model.decoder.cache().keep(0, cached, branch);
        EXPECT_TRUE(same_bits(model.read(next), after_chain)) << "what follows row " << node;
    }
    model.decoder.cache().truncate(0, cached);
}

} // namespace entrodraft
