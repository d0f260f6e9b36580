// Every family sharded across the ranks, however many there are: transformers' logits and greedy tokens, or a refusal
// that says how many ranks would do.
#include "model/families/read_config.h"
#include "model/files/bad_file.h"
#include "tests/dist/session_of_tests.h"
#include "tests/model/family_golden.h"

#include <stdexcept>

namespace families_mpi {

using namespace entrodraft;
using model::TokenId;

class FamiliesOnRanks : public testing::Test {
  protected:
    FamiliesOnRanks() : tp_(session_of_tests().split(0)) {}
    TestModelOptions options(model::WeightType type = model::WeightType::float32) {
        TestModelOptions options;
        options.tp = tp_.get();
        options.decoder.weight_type = type;
        options.decoder.timeout_seconds = 60;
        return options;
    }
    bool fits(const model::ModelConfig& config) const { return tp_->size() <= config.n_heads; }

    // Logits of `tokens` over the whole vocabulary, [tokens][vocab], the same on every rank.
    std::vector<float> read_whole(TestModel& model, std::span<const TokenId> tokens, int chunk) {
        model.forget();
        const std::vector<float> mine = model.read(tokens, chunk);
        const dist::Slice own = model.decoder.local_vocab();
        const auto vocab = static_cast<std::size_t>(model.config.vocab_size);
        std::vector<float> whole(tokens.size() * vocab, 0.0F); // zeros but for one rank's part of each row
        for (std::size_t row = 0; row < tokens.size(); ++row)
            std::copy_n(mine.begin() + static_cast<std::ptrdiff_t>(row) * own.size(), own.size(),
                        whole.begin() + static_cast<std::ptrdiff_t>(row * vocab) + own.begin);
        tp_->all_reduce_sum(whole.data(), whole.size(), dist::Deadline::after_seconds(60));
        return whole;
    }

    std::unique_ptr<dist::Communicator> tp_;
};

TEST_F(FamiliesOnRanks, LogitsAndGreedyTokensAreThoseOfTransformers) {
    int served = 0, max_heads = 0;
    for (const FamilyGolden& golden : read_family_goldens(family_models_here())) {
        SCOPED_TRACE(golden.name());
        const model::ModelConfig config = model::read_config(golden.directory);
        max_heads = std::max(max_heads, config.n_heads);
        if (!fits(config)) continue;
        TestModel cut(golden.directory, options());
        ++served;
        for (const FamilyText& text : golden.texts) {
            const std::vector<float> logits = read_whole(cut, whole_text(text), 33);
            EXPECT_LE(worst_kept_row(logits, text), kRowBound);
            EXPECT_EQ(said_of(logits, text, golden.known), text.greedy);
        }
    }
    EXPECT_EQ(served > 0, tp_->size() <= max_heads);
}

// Groups of inputs that straddle a cut are held by both ranks.
TEST_F(FamiliesOnRanks, LogitsOfQuantisedCheckpointsAreThoseOfTheirDequantisedWeights) {
    if (const std::string why = lacking_on_torch("quantised weights"); !why.empty()) GTEST_SKIP() << why;
    for (const FamilyGolden& golden : read_family_goldens(quantized_models())) {
        SCOPED_TRACE(golden.name());
        if (!fits(model::read_config(golden.directory))) continue;
        if (golden.directory.string().find("act-order") != std::string::npos && tp_->size() > 1) {
            EXPECT_THROW(TestModel(golden.directory, options()), model::BadFile);
            continue;
        }
        TestModel cut(golden.directory, options());
        for (const FamilyText& text : golden.texts) {
            const std::vector<float> logits = read_whole(cut, whole_text(text), 33);
            EXPECT_LE(worst_kept_row(logits, text), kRowBound);
            EXPECT_EQ(said_of(logits, text, golden.known), text.greedy);
        }
    }
}

TEST_F(FamiliesOnRanks, WeightsAreCutAndNotCopied) {
    for (const FamilyGolden& golden : read_family_goldens(family_models_here())) {
        SCOPED_TRACE(golden.name());
        if (!fits(model::read_config(golden.directory))) continue;
        TestModel cut(golden.directory, options()), whole(golden.directory);
        // Heads are few here and vocabularies are cut in units of 64, so shares are uneven; none is everything.
        if (tp_->size() > 1) {
            EXPECT_LT(cut.decoder.weight_bytes(), whole.decoder.weight_bytes() * 9 / 10);
        }
        EXPECT_GT(cut.decoder.weight_bytes(), 0U);
    }
}

// A rank's part of a row of weights may be rounded in other steps than the whole row; the bound is one rank's.
TEST_F(FamiliesOnRanks, Int8LogitsStayNearFloat32) {
    if (const std::string why = lacking_on_torch("8-bit weights"); !why.empty()) GTEST_SKIP() << why;
    for (const FamilyGolden& golden : read_family_goldens(family_models_here())) {
        SCOPED_TRACE(golden.name());
        if (!fits(model::read_config(golden.directory))) continue;
        TestModel cut(golden.directory, options(model::WeightType::int8));
        const FamilyText& text = golden.texts[0];
        EXPECT_LE(distance_of(kept_row_distances(read_whole(cut, text.tokens, 128), text), cut.config), kInt8Bound);
    }
}

TEST_F(FamiliesOnRanks, RefuseMoreRanksThanHeadsAndSayHowMany) {
    for (const FamilyGolden& golden : read_family_goldens(family_models_here())) {
        SCOPED_TRACE(golden.name());
        const model::ModelConfig config = model::read_config(golden.directory);
        if (fits(config)) continue;
        try {
            TestModel cut(golden.directory, options());
            ADD_FAILURE() << config.n_heads << " heads were sharded across " << tp_->size() << " ranks";
        } catch (const std::invalid_argument& error) {
            EXPECT_NE(std::string(error.what()).find(std::to_string(config.n_heads)), std::string::npos)
                << error.what();
        }
    }
}

} // namespace families_mpi
