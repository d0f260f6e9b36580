// Texts over a small model with linear attention, on any device: what is read, cut back, kept of trees and shared. For
// tests only.
#pragma once

#include "model/families/families.h"
#include "model/families/read_config.h"
#include "model/pass/recurrent_states.h"
#include "model/weights/tensor_shapes.h"
#include "tests/model/golden_models.h"
#include "tests/model/tree_bits.h"

#include <gtest/gtest.h>

#include <random>

namespace entrodraft {

// Linear attention around a layer of attention with a gate, and experts.
inline model::ModelConfig small_linear_config(unsigned positions = 1024) {
    const nlohmann::json json = {{"model_type", "qwen3_next"},
                                 {"vocab_size", 61U},
                                 {"hidden_size", 32U},
                                 {"intermediate_size", 32U},
                                 {"num_hidden_layers", 3U},
                                 {"num_attention_heads", 2U},
                                 {"num_key_value_heads", 1U},
                                 {"head_dim", 16U},
                                 {"max_position_embeddings", positions},
                                 {"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                                 {"linear_num_key_heads", 2U},
                                 {"linear_num_value_heads", 4U},
                                 {"linear_key_head_dim", 7U},
                                 {"linear_value_head_dim", 16U},
                                 {"num_experts", 3U},
                                 {"num_experts_per_tok", 2U},
                                 {"moe_intermediate_size", 16U},
                                 {"shared_expert_intermediate_size", 16U}};
    return model::read_config(json, "config.json");
}

// A model of random weights, and the text that each of its slots holds.
class DeltaTexts {
  public:
    static constexpr int kVocab = 61, kSlots = 3;

    explicit DeltaTexts(const TestModelOptions& options = {}, int tree_positions = 0,
                        const model::ModelConfig& config = small_linear_config())
        : team_(options.threads), decoder_(options.load(model::random_checkpoint(config, 5), config,
                                                        {.weight_type = options.decoder.weight_type,
                                                         .n_slots = kSlots,
                                                         .tree_positions = tree_positions,
                                                         .progress = {}},
                                                        alone_, team_)) {}

    std::vector<model::TokenId>& text(int slot) { return texts_[static_cast<std::size_t>(slot)]; }
    model::KvCache& cache() { return decoder_->cache(); }
    model::Decoder& decoder() { return *decoder_; }

    // Appends to a slot in one pass, and returns the last row's logits.
    std::vector<float> read(int slot, std::span<const model::TokenId> tokens) {
        const std::vector<model::Row> rows = rows_behind(slot, tokens);
        const int last = static_cast<int>(rows.size()) - 1;
        const model::PassResult result =
            decoder_->forward({.rows = rows, .logit_rows = std::span(&last, 1), .hidden_layers = {}});
        return {result.logits.begin(), result.logits.begin() + kVocab};
    }

    // Appends to a slot as one chunk of a prompt.
    void read_prompt(int slot, std::span<const model::TokenId> tokens) {
        const std::vector<model::Row> rows = rows_behind(slot, tokens);
        decoder_->forward({.rows = rows, .logit_rows = {}, .hidden_layers = {}, .is_prompt = true});
    }

    // Reads a tree, some nodes a pass, and keeps the branch to one of them.
    void read_branch(int slot, int n_nodes, int of_pass, int node) {
        const int cached = static_cast<int>(text(slot).size());
        std::vector<model::Row> rows = random_tree(n_nodes, cached, kVocab);
        for (model::Row& row : rows)
            row.slot = slot;
        for (int begin = 0; begin < n_nodes; begin += of_pass)
            decoder_->forward(
                {.rows = std::span(rows).subspan(static_cast<std::size_t>(begin),
                                                 static_cast<std::size_t>(std::min(of_pass, n_nodes - begin))),
                 .logit_rows = {},
                 .hidden_layers = {},
                 .mask = model::Mask::by_parent,
                 .cached_nodes = std::span(rows).first(static_cast<std::size_t>(begin))});
        const std::vector<int> branch = branch_to(rows, node);
        cache().keep(slot, cached, branch);
        for (const int each : branch)
            text(slot).push_back(rows[static_cast<std::size_t>(each)].token);
    }

    void cut(int slot, int length) {
        length = cache().reach(slot, length);
        cache().truncate(slot, length);
        text(slot).resize(static_cast<std::size_t>(length));
    }

    void share(int from, int to, int length) {
        length = cache().reach(from, length);
        cache().share(from, to, length);
        text(to).assign(text(from).begin(), text(from).begin() + length);
    }

  private:
    std::vector<model::Row> rows_behind(int slot, std::span<const model::TokenId> tokens) {
        std::vector<model::Row> rows;
        for (const model::TokenId token : tokens) {
            rows.push_back({token, slot, static_cast<int>(text(slot).size()), static_cast<int>(rows.size()) - 1});
            text(slot).push_back(token);
        }
        return rows;
    }

    dist::SelfComm alone_;
    model::ThreadTeam team_;
    std::unique_ptr<model::Decoder> decoder_;
    std::vector<std::vector<model::TokenId>> texts_{kSlots};
};

// A model that reads texts from the beginning, so many rows a pass.
struct FreshTexts {
    DeltaTexts& texts;
    std::size_t rows = 1;
};

// What follows the text of a slot, against the same text as it is fresh.
inline void expect_bits_of_fresh_text(DeltaTexts& texts, int slot, const FreshTexts& of, const std::string& what) {
    const std::vector<model::TokenId> next = {7}, text = texts.text(slot);
    DeltaTexts& fresh = of.texts;
    fresh.cut(0, 0);
    for (std::size_t begin = 0; begin < text.size(); begin += of.rows)
        fresh.read(0, std::span(text).subspan(begin, std::min(of.rows, text.size() - begin)));
    EXPECT_TRUE(same_bits(texts.read(slot, next), fresh.read(0, next))) << what;
}

// Some steps of what rounds, trees, prompts that are shared, and draft models do to the texts of slots.
inline void expect_bits_of_fresh_texts(DeltaTexts& texts, const FreshTexts& fresh, int n_steps) {
    constexpr int kVocab = DeltaTexts::kVocab, kSlots = DeltaTexts::kSlots;
    std::mt19937 random(11);
    const auto up_to = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n + 1)); };
    for (int step = 0; step < n_steps; ++step) {
        const int slot = up_to(kSlots - 1), length = static_cast<int>(texts.text(slot).size());
        std::string what = "step " + std::to_string(step);
        if (length > 800) texts.cut(slot, 0);
        switch (step % 5) {
        case 0:
            texts.read(slot, varied_tokens(1 + up_to(127), kVocab, step));
            what += ", read";
            break;
        case 1:
            texts.read_branch(slot, 40, 1 + up_to(39), up_to(39));
            what += ", a branch kept";
            break;
        case 2:
            texts.read(slot, varied_tokens(1 + up_to(100), kVocab, step));
            texts.cut(slot, std::max(0, static_cast<int>(texts.text(slot).size()) - up_to(127)));
            what += ", cut";
            break;
        case 3: {
            const int to = (slot + 1 + up_to(kSlots - 2)) % kSlots;
            for (int reader = 0; reader < kSlots; ++reader) // nobody reads what changes
                if (texts.cache().prefix(reader).slot == to && reader != to) texts.cut(reader, 0);
            texts.share(slot, to, std::max(0, static_cast<int>(texts.text(slot).size()) - up_to(60)));
            expect_bits_of_fresh_text(texts, to, fresh, what + ", shared");
            texts.cut(to, 0);
            break;
        }
        default:
            for (int i = 0; i < 20; ++i) // as a draft model does
                texts.read(slot, varied_tokens(1, kVocab, step + i));
            texts.cut(slot, static_cast<int>(texts.text(slot).size()) - up_to(20));
            what += ", a chain cut";
        }
        expect_bits_of_fresh_text(texts, slot, fresh, what);
        if (testing::Test::HasFailure()) return;
    }
}

} // namespace entrodraft
