// Draft heads in their authors' layouts, compared with the results of their authors' code (tests/model/make_heads.py):
// over rounds with rejected tokens between them, prompts in chunks, chains and trees.
#include "model/families/read_config.h"
#include "model/files/bad_file.h"
#include "tests/model/temporary_directory.h"
#include "tests/spec/golden_head.h"

namespace head_texts_test {

using namespace entrodraft;
using nlohmann::json;

struct Head : testing::TestWithParam<std::string> {};

TEST_P(Head, GivesTheLogitsOfItsAuthorsCodeOverRounds) {
    HeadAndTarget head(GetParam());
    expect_golden_rounds(head);
}

TEST_P(Head, GivesAChainTheRowsOfItsBranch) {
    HeadAndTarget head(GetParam());
    expect_golden_chain(head);
}

// More rows than a pass takes, for texts of which nothing has been read.
TEST_P(Head, ReadsManyTextsAtOnce) {
    TestModelOptions options;
    options.decoder.n_slots = 40;
    HeadAndTarget head(GetParam(), options);
    const json& round = head.expected["rounds"][0];
    const auto text = round["text"].get<std::vector<model::TokenId>>();
    head.read(text, text.size() - 1);
    std::vector<spec::TextEnd> ends;
    for (int slot = 0; slot < options.decoder.n_slots; ++slot)
        ends.push_back({slot, text, 1});
    const spec::SourceLogits rows = head.source->rows_after(ends, model::LogitSummary::max);
    for (std::size_t i = 0; i < ends.size(); ++i) {
        expect_row(rows.row(i), round["root"], fmt::format("text {}", i));
        EXPECT_EQ(rows.row(i)[static_cast<std::size_t>(rows.summary(i).arg_max)], rows.summary(i).max);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Head, testing::ValuesIn(golden_heads_here()), name_of_head);

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

// A copy of a head with a changed config.
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
    EXPECT_NE(refusal(head_directory("target")).find("not a draft head of a known format (blockwise, dflash, eagle,"),
              std::string::npos);
}

TEST(BadHead, OfAnotherTargetIsNamed) {
    const ChangedHead other("eagle3-speculators", [](json& config) { config["target_hidden_size"] = 64; });
    EXPECT_NE(refusal(other.directory.path()).find("of another target"), std::string::npos);
    const ChangedHead deeper("eagle3-speculators", [](json& config) {
        config["eagle_aux_hidden_state_layer_ids"] = {2, 4, 9};
    });
    EXPECT_NE(refusal(deeper.directory.path()).find("after 9 layers; it has 7"), std::string::npos);
    EXPECT_NE(refusal(head_directory("hydra-prefix"), "mimo").find("of Llama targets"), std::string::npos);
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
        if (named != std::string("speculators_model_type")) { // also recognised by its tensors
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

TEST(BadHead, OfOddBlocksIsNamed) {
    const std::pair<const char*, std::function<void(json&)>> odd[] = {
        {"'block_size' must be from 2", [](json& config) { config["block_size"] = 1; }},
        {"'block_size'", [](json& config) { config.erase("block_size"); }},
        {"mask_token_id", [](json& config) { config["dflash_config"]["mask_token_id"] = 5000; }},
        {"after 8 layers; it has 7",
         [](json& config) {
             config["dflash_config"]["target_layer_ids"] = {1, 3, 7};
         }},
        {"'is_causal' is true", [](json& config) { config["is_causal"] = true; }},
        {"'output_multiplier'", [](json& config) { config["output_multiplier"] = 0.5; }},
        {"sliding windows",
         [](json& config) {
             config["layer_types"] = {"full_attention", "sliding_attention"};
             config["use_sliding_window"] = true;
             config["sliding_window"] = 64;
         }},
    };
    for (const auto& [named, change] : odd) {
        const ChangedHead head("dflash", change);
        const std::string message = refusal(head.directory.path());
        EXPECT_NE(message.find(named), std::string::npos) << named << ": " << message;
    }
    // The defaults of its authors' code.
    const ChangedHead layers("dflash", [](json& config) { config["dflash_config"].erase("target_layer_ids"); });
    EXPECT_NE(refusal(layers.directory.path()).find("fc.weight"), std::string::npos) << "two layers' states, not three";
}

TEST(BadHead, OfAnotherSpeculatorIsNamed) {
    const std::pair<const char*, std::function<void(json&)>> odd[] = {
        {"'method' is 'sum_gru'", [](json& config) { config["method"] = "sum_gru"; }},
        {"'inner_dim' is of several layers", [](json& config) { config["inner_dim"] = "36.36"; }},
        {"'tie_weights' is false", [](json& config) { config["tie_weights"] = false; }},
        {"'tie_lstm_embs' is false", [](json& config) { config["tie_lstm_embs"] = false; }},
    };
    for (const auto& [named, change] : odd) {
        const ChangedHead head("arctic-lstm", change);
        EXPECT_NE(refusal(head.directory.path()).find(named), std::string::npos) << named;
    }
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
    const ChangedHead vllms("medusa-vllm", [](json& config) { config["num_hidden_layers"] = 3; });
    EXPECT_NE(refusal(vllms.directory.path()).find("blocks.0.layers.2.weight"), std::string::npos);
    const ChangedHead scaled("medusa-vllm", [](json& config) { config["logit_scale"] = 0.5; });
    EXPECT_NE(refusal(scaled.directory.path()).find("'logit_scale'"), std::string::npos);
}

TEST(BadHead, OfOddWidthsAndMissingBlocksIsNamed) {
    const std::tuple<const char*, const char*, std::function<void(json&)>> odd[] = {
        {"blockwise", "'heads.6.hidden.weight' is missing", [](json& config) { config["block_size"] = 6; }},
        {"blockwise", "'block_size' must be from 2", [](json& config) { config["block_size"] = 1; }},
        {"blockwise", "of another target", [](json& config) { config["hidden_size"] = 64; }},
        {"blockwise", "has shape", [](json& config) { config["intermediate_size"] = 64; }},
        {"blockwise", "supported: relu", [](json& config) { config["hidden_act"] = "gelu"; }},
        {"falcon", "k_mask", [](json& config) { config.erase("k_mask"); }},
        {"falcon", "'k_mask' must be from 1", [](json& config) { config["k_mask"] = 17; }},
        {"falcon", "of another target", [](json& config) { config["hidden_size"] = 64; }},
        {"falcon", "has shape", [](json& config) { config["intermediate_size"] = 64; }},
        {"falcon", "layers.2.", [](json& config) { config["num_hidden_layers"] = 3; }},
    };
    for (const auto& [name, named, change] : odd) {
        const ChangedHead head(name, change);
        const std::string message = refusal(head.directory.path());
        EXPECT_NE(message.find(named), std::string::npos) << named << ": " << message;
    }
}

} // namespace head_texts_test
