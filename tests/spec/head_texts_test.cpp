// Draft heads in their authors' layouts, against what their authors' code computes (tests/model/make_heads.py): over
// rounds with rejected tokens between, prompts in chunks, chains and trees.
#include "model/checkpoint/bad_file.h"
#include "tests/model/temporary_directory.h"
#include "tests/spec/loaded_head.h"

#include <fmt/format.h>

namespace head_texts_test {

using namespace entrodraft;
using namespace entrodraft::spec;
using nlohmann::json;

// A head beside its target, in one slot.
struct HeadAndTarget {
    explicit HeadAndTarget(const std::string& name)
        : target(head_directory(head_target(name))),
          loaded(head_directory(name), head_directory(head_target(name)), target.team),
          source(make_head_source(loaded.modules, target.config.vocab_size, 1)) {}

    // What the target's pass over tokens from the end of its cache on says of them, to the head.
    void read(std::span<const TokenId> text, std::size_t end) {
        const auto begin = static_cast<std::size_t>(target.decoder.cache().length(0));
        if (begin >= end) return;
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
        source->take_hidden(0, static_cast<int>(begin), states);
    }

    TestModel target;
    LoadedHead loaded;
    std::unique_ptr<TreeSource> source;
};

void expect_row(std::span<const float> row, const json& expected, const std::string& what) {
    ASSERT_EQ(row.size(), expected.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
        if (expected[i].is_null()) {
            EXPECT_EQ(row[i], -std::numeric_limits<float>::infinity()) << what << ", token " << i;
            continue;
        }
        ASSERT_NEAR(row[i], expected[i].get<double>(), 1e-4) << what << ", token " << i;
    }
}

struct Head : testing::TestWithParam<std::string> {
    json expected() const {
        std::ifstream file(head_directory(GetParam()) / "expected.json");
        return json::parse(file);
    }
};

int depth_of(const json& nodes, int node) {
    return node < 0 ? 0 : 1 + depth_of(nodes, nodes[static_cast<std::size_t>(node)]["parent"].get<int>());
}

TEST_P(Head, GivesTheLogitsOfItsAuthorsCodeOverRounds) {
    const json expected = this->expected();
    HeadAndTarget loaded(GetParam());
    const auto prompt = expected["prompt"].get<std::vector<TokenId>>();
    loaded.source->begin_sequence(0);
    for (const std::size_t end : {std::size_t{7}, std::size_t{8}, prompt.size() - 1}) { // in chunks
        loaded.read(prompt, end);
        loaded.source->prefill(0, std::span(prompt).first(end + 1));
    }
    for (const json& round : expected["rounds"]) {
        SCOPED_TRACE(fmt::format("text of {}", round["n"].get<int>()));
        const auto text = round["text"].get<std::vector<TokenId>>();
        loaded.read(text, text.size() - 1);
        const TextEnd end = {0, text, 1};
        expect_row(loaded.source->rows_after(std::span(&end, 1), {}).row(0), round["root"], "root");
        const json& nodes = round["nodes"];
        for (std::size_t first = 0; first < nodes.size();) {
            std::vector<TreeNode> level;
            const int depth = depth_of(nodes, static_cast<int>(first));
            for (std::size_t i = first; i < nodes.size() && depth_of(nodes, static_cast<int>(i)) == depth; ++i)
                level.push_back({nodes[i]["token"].get<TokenId>(), nodes[i]["parent"].get<int>()});
            const NewNodes tree = {0, level};
            const SourceLogits rows = loaded.source->rows_after_nodes(std::span(&tree, 1), {});
            for (std::size_t i = 0; i < level.size(); ++i)
                expect_row(rows.row(i), nodes[first + i]["logits"], fmt::format("node {}", first + i));
            first += level.size();
        }
    }
}

// A branch as a chain has the rows that it has in its tree.
TEST_P(Head, GivesAChainTheRowsOfItsBranch) {
    const json expected = this->expected();
    HeadAndTarget loaded(GetParam());
    const json& round = expected["rounds"][0];
    auto text = round["text"].get<std::vector<TokenId>>();
    loaded.source->begin_sequence(0);
    loaded.read(text, text.size() - 1);
    loaded.source->prefill(0, text);
    const auto row_after = [&] {
        const TextEnd end = {0, text, 1};
        return loaded.source->rows_after(std::span(&end, 1), model::LogitSummary::entropy);
    };
    expect_row(row_after().row(0), round["root"], "root");
    const json& nodes = round["nodes"];
    std::vector<int> branch = {static_cast<int>(nodes.size()) - 1};
    while (nodes[static_cast<std::size_t>(branch.back())]["parent"].get<int>() >= 0)
        branch.push_back(nodes[static_cast<std::size_t>(branch.back())]["parent"].get<int>());
    std::ranges::reverse(branch);
    for (const int node : branch) {
        const json& at = nodes[static_cast<std::size_t>(node)];
        ASSERT_GE(loaded.source->context_of(0), text.size() + 1) << "no deeper than it drafts";
        text.push_back(at["token"].get<TokenId>());
        const SourceLogits rows = row_after();
        expect_row(rows.row(0), at["logits"], fmt::format("node {}", node));
        EXPECT_EQ(rows.summary(0).max, *std::ranges::max_element(rows.row(0)));
        EXPECT_EQ(rows.row(0)[static_cast<std::size_t>(rows.summary(0).arg_max)], rows.summary(0).max);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Head, testing::ValuesIn(golden_heads()), name_of_head);

// ---- bad heads ----

std::string refusal(const std::filesystem::path& directory, const std::string& target = "target") {
    try {
        model::read_head(directory, model::read_config(head_directory(target)),
                         model::Checkpoint::open(head_directory(target)));
    } catch (const model::BadFile& error) {
        return error.what();
    }
    return "";
}

// A copy of a head whose config is changed.
struct ChangedHead {
    ChangedHead(const std::string& name, const std::function<void(json&)>& change) {
        std::filesystem::copy(head_directory(name), directory.path(), std::filesystem::copy_options::recursive);
        std::ifstream file(head_directory(name) / "config.json");
        json config = json::parse(file);
        change(config);
        std::ofstream(directory.path() / "config.json") << config;
    }
    TemporaryDirectory directory;
};

TEST(BadHead, OfFormatsThatAreNotReadIsNamed) {
    EXPECT_NE(refusal(head_directory("arctic-lstm")).find("'method' is 'sum_lstm'"), std::string::npos);
    EXPECT_NE(refusal(head_directory("hydra-prefix")).find("'hydra_head_arch' is 'prefix-mlp'"), std::string::npos);
    EXPECT_NE(refusal(head_directory("dflash")).find("not a draft head of a known format (eagle, eagle3,"),
              std::string::npos);
    EXPECT_NE(refusal(head_directory("target")).find("not a draft head"), std::string::npos);
}

TEST(BadHead, OfAnotherTargetIsNamed) {
    const ChangedHead other("eagle3-speculators", [](json& config) { config["target_hidden_size"] = 64; });
    EXPECT_NE(refusal(other.directory.path()).find("of another target"), std::string::npos);
    const ChangedHead deeper("eagle3-speculators", [](json& config) {
        config["eagle_aux_hidden_state_layer_ids"] = {2, 4, 9};
    });
    EXPECT_NE(refusal(deeper.directory.path()).find("after 9 layers; it has 7"), std::string::npos);
    const std::string wide = refusal(head_directory("eagle3"), "../golden/llama-target");
    EXPECT_NE(wide.find("has shape"), std::string::npos) << wide;
}

TEST(BadHead, OfOddConfigsIsNamed) {
    const std::pair<const char*, std::function<void(json&)>> odd[] = {
        {"speculators_model_type", [](json& config) { config["speculators_model_type"] = 5; }},
        {"transformer_layer_config",
         [](json& config) {
             config["transformer_layer_config"] = {1, 2};
         }},
        {"norm_output", [](json& config) { config["norm_output"] = "yes"; }},
        {"eagle_aux_hidden_state_layer_ids",
         [](json& config) { config["eagle_aux_hidden_state_layer_ids"] = json::array(); }},
        {"after -1 layers", [](json& config) { config["eagle_aux_hidden_state_layer_ids"] = {"a"}; }},
    };
    for (const auto& [named, change] : odd) {
        const ChangedHead head("eagle3-speculators", change);
        const std::string message = refusal(head.directory.path());
        if (named != std::string("speculators_model_type")) { // told by its tensors too
            EXPECT_NE(message.find(named), std::string::npos) << message;
        }
    }
    for (const json& methods : {json(5), json::array(), json({1})}) {
        const ChangedHead head("peagle",
                               [&](json& config) { config["speculators_config"]["proposal_methods"] = methods; });
        EXPECT_EQ(refusal(head.directory.path()), "") << "one token a pass then";
    }
    const ChangedHead many("peagle", [](json& config) {
        config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] = 1000000;
    });
    EXPECT_NE(refusal(many.directory.path()).find("speculative_tokens"), std::string::npos);
    const ChangedHead mask("peagle", [](json& config) { config["mask_token_id"] = 5000; });
    EXPECT_NE(refusal(mask.directory.path()).find("mask_token_id"), std::string::npos);
}

TEST(BadHead, LackingTensorsIsNamed) {
    const ChangedHead more("eagle", [](json& config) { config["num_hidden_layers"] = 2; });
    EXPECT_NE(refusal(more.directory.path()).find("layers.1."), std::string::npos) << refusal(more.directory.path());
    const ChangedHead norm("eagle3", [](json& config) { config["norm_before_fc"] = true; });
    EXPECT_NE(refusal(norm.directory.path()).find("'input_norm.weight' is missing"), std::string::npos);
    const ChangedHead mlp("mlp-speculator", [](json& config) { config.erase("n_predict"); });
    EXPECT_NE(refusal(mlp.directory.path()).find("n_predict"), std::string::npos);
    const ChangedHead blocks("medusa", [](json& config) { config["medusa_num_layers"] = 3; });
    EXPECT_NE(refusal(blocks.directory.path()).find("0.1.linear.weight"), std::string::npos);
}

} // namespace head_texts_test
