// Linear attention's states: whatever is read, cut back, kept of trees and shared, what comes next has the bits of a
// text that was read from the beginning, token by token.
#include "model/families/families.h"
#include "model/recurrent_states.h"
#include "tests/model/golden_models.h"
#include "tests/model/tree_bits.h"

#include <gtest/gtest.h>

#include <random>

namespace delta_net_test {

using namespace entrodraft;
using model::Mask;
using model::Row;
using model::TokenId;

constexpr int kVocab = 61, kSlots = 3;

model::ModelConfig small_config() {
    const nlohmann::json json = {{"model_type", "qwen3_next"},
                                 {"vocab_size", 61U},
                                 {"hidden_size", 32U},
                                 {"intermediate_size", 32U},
                                 {"num_hidden_layers", 3U},
                                 {"num_attention_heads", 2U},
                                 {"num_key_value_heads", 1U},
                                 {"head_dim", 16U},
                                 {"max_position_embeddings", 1024U},
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
class Texts {
  public:
    explicit Texts(int threads, int tree_positions = 0)
        : team_(threads),
          decoder_(model::load_cpu_decoder(model::random_checkpoint(small_config(), 5), small_config(),
                                           {.n_slots = kSlots, .tree_positions = tree_positions, .progress = {}},
                                           alone_, team_)) {}

    std::vector<TokenId>& text(int slot) { return texts_[static_cast<std::size_t>(slot)]; }
    model::KvCache& cache() { return decoder_->cache(); }

    // Appends to a slot in one pass, and returns the last row's logits.
    std::vector<float> read(int slot, std::span<const TokenId> tokens) {
        std::vector<Row> rows;
        for (const TokenId token : tokens) {
            rows.push_back({token, slot, static_cast<int>(text(slot).size()), static_cast<int>(rows.size()) - 1});
            text(slot).push_back(token);
        }
        const int last = static_cast<int>(rows.size()) - 1;
        const model::PassResult result =
            decoder_->forward({.rows = rows, .logit_rows = std::span(&last, 1), .hidden_layers = {}});
        return {result.logits.begin(), result.logits.begin() + kVocab};
    }

    // Reads a tree, some nodes a pass, and keeps the branch to one of them.
    void read_branch(int slot, int n_nodes, int of_pass, int node) {
        const int cached = static_cast<int>(text(slot).size());
        std::vector<Row> rows = random_tree(n_nodes, cached, kVocab);
        for (Row& row : rows)
            row.slot = slot;
        for (int begin = 0; begin < n_nodes; begin += of_pass)
            decoder_->forward(
                {.rows = std::span(rows).subspan(static_cast<std::size_t>(begin),
                                                 static_cast<std::size_t>(std::min(of_pass, n_nodes - begin))),
                 .logit_rows = {},
                 .hidden_layers = {},
                 .mask = Mask::by_parent,
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
    dist::SelfComm alone_;
    model::ThreadTeam team_;
    std::unique_ptr<model::Decoder> decoder_;
    std::vector<std::vector<TokenId>> texts_{kSlots};
};

class DeltaNet : public testing::TestWithParam<int> {
  protected:
    // What follows the text of a slot, against the same text read token by token in another model.
    void check(Texts& texts, int slot, const std::string& what) {
        const std::vector<TokenId> next = {7};
        const std::vector<TokenId> text = texts.text(slot);
        reference_.cut(0, 0);
        for (const TokenId token : text)
            reference_.read(0, std::span(&token, 1));
        const std::vector<float> want = reference_.read(0, next), got = texts.read(slot, next);
        EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0) << what;
    }
    Texts reference_{1};
};

INSTANTIATE_TEST_SUITE_P(Threads, DeltaNet, testing::Values(1, 2));

TEST_P(DeltaNet, HasTheBitsOfAFreshTextAfterWhateverHasBeenCutKeptAndShared) {
    if (const std::string why = lacking_on_torch("linear attention"); !why.empty()) GTEST_SKIP() << why;
    Texts texts(GetParam());
    std::mt19937 random(11);
    const auto up_to = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n + 1)); };
    for (int step = 0; step < 120; ++step) {
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
            check(texts, to, what + ", shared");
            texts.cut(to, 0);
            break;
        }
        default:
            for (int i = 0; i < 20; ++i) // as a draft model does
                texts.read(slot, varied_tokens(1, kVocab, step + i));
            texts.cut(slot, static_cast<int>(texts.text(slot).size()) - up_to(20));
            what += ", a chain cut";
        }
        check(texts, slot, what);
        if (HasFailure()) return;
    }
}

TEST_P(DeltaNet, FollowsTreesThatGrowPassByPassOverLongTexts) {
    if (const std::string why = lacking_on_torch("linear attention"); !why.empty()) GTEST_SKIP() << why;
    Texts texts(GetParam(), 300);
    for (int i = 0; i < 4; ++i) {
        texts.read(0, varied_tokens(128, kVocab, i));
        texts.read_branch(0, 280, 100, 279 - i);
        check(texts, 0, "tree " + std::to_string(i));
    }
}

TEST(DeltaNetStates, CanBeCutByWhatARoundDraftsAndNotToWhereNoneIs) {
    if (const std::string why = lacking_on_torch("linear attention"); !why.empty()) GTEST_SKIP() << why;
    Texts texts(1);
    for (int i = 0; i < 5; ++i)
        texts.read(0, varied_tokens(100, kVocab, i));
    constexpr int kRead = 500, kReach = model::RecurrentStates::kReach;
    EXPECT_EQ(texts.cache().reach(0, kRead - kReach), kRead - kReach);
    EXPECT_EQ(texts.cache().reach(0, 50), 0);
    EXPECT_THROW(texts.cache().truncate(0, 50), std::logic_error);
    EXPECT_THROW(texts.cache().keep(0, 50, {}), std::logic_error);
    EXPECT_THROW(texts.cache().share(0, 1, 50), std::logic_error);
    EXPECT_EQ(texts.cache().length(0), kRead);
    texts.cut(0, 0);
    EXPECT_EQ(texts.cache().length(0), 0);
}

TEST(DeltaNetStates, RefuseATreeThatTheyHaveNoRoomFor) {
    if (const std::string why = lacking_on_torch("linear attention"); !why.empty()) GTEST_SKIP() << why;
    Texts texts(1);
    for (int i = 0; i < 3; ++i)
        texts.read(0, varied_tokens(100, kVocab, i));
    EXPECT_THROW(texts.read_branch(0, 500, 100, 3), std::invalid_argument);
}

TEST(DeltaNetStates, AreShardedByKeyHeads) {
    const model::ModelConfig config = small_config();
    EXPECT_EQ(model::shard_of(config, 1, 2).linear_keys, (dist::Slice{1, 2}));
    model::ModelConfig more_heads = config;
    more_heads.n_heads = 4;
    EXPECT_THROW(model::shard_of(more_heads, 0, 3), std::invalid_argument);
}

} // namespace delta_net_test
