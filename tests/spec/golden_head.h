// Compares a head, as loaded on a device, with the results of its authors' code (tests/model/make_heads.py).
// For tests only.
#pragma once

#include "tests/spec/loaded_head.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace entrodraft {

// A head and its target. All slots hold the same text.
struct HeadAndTarget {
    explicit HeadAndTarget(const std::string& name, const TestModelOptions& options = {})
        : n_slots(options.decoder.n_slots), target(head_directory(head_target(name)), options),
          loaded(head_directory(name), head_directory(head_target(name)), target.team, options),
          source(spec::make_head_source(loaded.modules, target.config.vocab_size, n_slots)) {
        std::ifstream file(head_directory(name) / "expected.json");
        expected = nlohmann::json::parse(file);
        for (int slot = 0; slot < n_slots; ++slot)
            source->begin_sequence(slot, {});
    }

    // The target's states of the tokens up to `end`, from the end of its cache on.
    std::vector<float> states_of(std::span<const model::TokenId> text, std::size_t end) {
        const auto begin = static_cast<std::size_t>(target.decoder.cache().length(0));
        std::vector<model::Row> rows;
        for (std::size_t i = begin; i < end; ++i)
            rows.push_back({text[i], 0, static_cast<int>(i), i == begin ? -1 : static_cast<int>(i - begin) - 1});
        const model::PassResult result = target.decoder.forward(
            {.rows = rows, .logit_rows = {}, .hidden_layers = loaded.head.target_layers, .mask = model::Mask::causal});
        const auto width = static_cast<std::size_t>(target.config.hidden_size);
        std::vector<float> states;
        for (std::size_t row = 0; row < rows.size(); ++row)
            for (std::size_t layer = 0; layer < loaded.head.target_layers.size(); ++layer) {
                const auto state = result.hidden.subspan((layer * rows.size() + row) * width, width);
                states.insert(states.end(), state.begin(), state.end());
            }
        return states;
    }
    // Reads these tokens with the target, and gives the head their states.
    void read(std::span<const model::TokenId> text, std::size_t end) {
        const int begin = target.decoder.cache().length(0);
        if (static_cast<std::size_t>(begin) >= end) return;
        const std::vector<float> states = states_of(text, end);
        for (int slot = 0; slot < n_slots; ++slot)
            source->take_hidden(slot, begin, states);
    }

    int n_slots;
    TestModel target;
    LoadedHead loaded;
    std::unique_ptr<spec::TreeSource> source;
    nlohmann::json expected;
};

inline void expect_row(std::span<const float> row, const nlohmann::json& expected, const std::string& what) {
    ASSERT_EQ(row.size(), expected.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
        if (expected[i].is_null()) {
            EXPECT_EQ(row[i], -std::numeric_limits<float>::infinity()) << what << ", token " << i;
            continue;
        }
        ASSERT_NEAR(row[i], expected[i].get<double>(), 1e-4) << what << ", token " << i;
    }
}

inline int depth_of(const nlohmann::json& nodes, int node) {
    return node < 0 ? 0 : 1 + depth_of(nodes, nodes[static_cast<std::size_t>(node)]["parent"].get<int>());
}

// Runs rounds with rejected tokens between them, the prompt in chunks, each draft a tree.
inline void expect_golden_rounds(HeadAndTarget& head) {
    const auto prompt = head.expected["prompt"].get<std::vector<model::TokenId>>();
    for (const std::size_t end : {std::size_t{7}, std::size_t{8}, prompt.size() - 1}) { // in chunks
        head.read(prompt, end);
        head.source->prefill(0, std::span(prompt).first(end + 1));
    }
    for (const nlohmann::json& round : head.expected["rounds"]) {
        SCOPED_TRACE(fmt::format("text of {}", round["n"].get<int>()));
        const auto text = round["text"].get<std::vector<model::TokenId>>();
        head.read(text, text.size() - 1);
        const spec::TextEnd end = {0, text, 1};
        expect_row(head.source->rows_after(std::span(&end, 1), {}).row(0), round["root"], "root");
        const nlohmann::json& nodes = round["nodes"];
        for (std::size_t first = 0; first < nodes.size();) {
            std::vector<spec::TreeNode> level;
            const int depth = depth_of(nodes, static_cast<int>(first));
            for (std::size_t i = first; i < nodes.size() && depth_of(nodes, static_cast<int>(i)) == depth; ++i)
                level.push_back({nodes[i]["token"].get<model::TokenId>(), nodes[i]["parent"].get<int>()});
            const spec::NewNodes tree = {0, level};
            const spec::SourceLogits rows = head.source->rows_after_nodes(std::span(&tree, 1), {});
            for (std::size_t i = 0; i < level.size(); ++i)
                expect_row(rows.row(i), nodes[first + i]["logits"], fmt::format("node {}", first + i));
            first += level.size();
        }
    }
}

// A branch as a chain has the same rows as in its tree.
inline void expect_golden_chain(HeadAndTarget& head) {
    const nlohmann::json& round = head.expected["rounds"][0];
    auto text = round["text"].get<std::vector<model::TokenId>>();
    head.read(text, text.size() - 1);
    head.source->prefill(0, text);
    const auto row_after = [&] {
        const spec::TextEnd end = {0, text, 1};
        return head.source->rows_after(std::span(&end, 1), model::LogitSummary::entropy);
    };
    expect_row(row_after().row(0), round["root"], "root");
    const nlohmann::json& nodes = round["nodes"];
    std::vector<int> branch = {static_cast<int>(nodes.size()) - 1};
    while (nodes[static_cast<std::size_t>(branch.back())]["parent"].get<int>() >= 0)
        branch.push_back(nodes[static_cast<std::size_t>(branch.back())]["parent"].get<int>());
    std::ranges::reverse(branch);
    for (const int node : branch) {
        const nlohmann::json& at = nodes[static_cast<std::size_t>(node)];
        ASSERT_GE(head.source->context_of(0), text.size() + 1) << "no deeper than it drafts";
        text.push_back(at["token"].get<model::TokenId>());
        const spec::SourceLogits rows = row_after();
        expect_row(rows.row(0), at["logits"], fmt::format("node {}", node));
        EXPECT_EQ(rows.summary(0).max, *std::ranges::max_element(rows.row(0)));
        EXPECT_EQ(rows.row(0)[static_cast<std::size_t>(rows.summary(0).arg_max)], rows.summary(0).max);
    }
}

} // namespace entrodraft
