// Encoder-decoder models on one rank: against transformers, bit for bit against themselves, and what they refuse.
#include "model/families/families.h"
#include "model/families/names.h"
#include "model/families/read_config.h"
#include "model/files/bad_file.h"
#include "model/text/tokenizer/tokenizer.h"
#include "model/weights/layer_plan.h"
#include "model/weights/rank_shard.h"
#include "model/weights/tensor_shapes.h"
#include "tests/model/encoder_decoders.h"

namespace encoder_decoders_test {

using namespace entrodraft;
using model::TokenId;
using model::WeightType;

class EncoderDecoders : public EncoderDecoderTest {};
INSTANTIATE_TEST_SUITE_P(All, EncoderDecoders, testing::ValuesIn(models_of(encoder_decoder_pairs())), test_name);

TEST_P(EncoderDecoders, AreReadAsWhatTheyAreWithAllTheirParameters) {
    const model::ModelConfig config = model::read_config(golden().directory);
    EXPECT_EQ(model::parameter_count(config), golden().parameters);
    EXPECT_TRUE(config.has_encoder());
    EXPECT_EQ(config.decoder_start_ids, (std::vector<std::int64_t>{texts()[0].text.tokens[0]}));
    EXPECT_NO_THROW(model::check_shapes(config, model::Checkpoint::open(golden().directory)));
}

TEST_P(EncoderDecoders, LogitsAndGreedyTokensAreThoseOfTransformers) {
    for (const char* name : {"avx512", "avx2", "portable"}) {
        for (const int threads : {1, 2}) {
            TestModelOptions options{.threads = threads};
            options.decoder.kernels = model::kernels::kernels_named(name);
            if (options.decoder.kernels == nullptr) continue; // kernels_test says so
            SCOPED_TRACE(name + std::string(", threads: ") + std::to_string(threads));
            TestModel model(golden().directory, options);
            for (const auto& [source, text] : texts()) {
                model.forget();
                model.decoder.encode(0, source);
                std::vector<float> logits = model.read(whole_text(text), 33);
                const double worst = worst_kept_row(logits, text);
                RecordProperty("distance", testing::PrintToString(worst));
                EXPECT_LE(worst, kRowBound);
                ban_tokens(golden(), logits);
                EXPECT_EQ(said_of(logits, text, golden().known), text.greedy);
            }
        }
    }
}

TEST_P(EncoderDecoders, BitsOfARowDoNotDependOnTheRowsOfItsPass) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    for (const WeightType type : {WeightType::float32, WeightType::int8}) {
        TestModelOptions options{.threads = 2};
        options.decoder.weight_type = type;
        TestModel model(golden().directory, options);
        const auto& [source, text] = texts()[0];
        model.decoder.encode(0, source);
        const std::vector<float> alone = model.read(text.tokens, 1);
        for (const int chunk : {7, 128}) {
            model.forget();
            model.decoder.encode(0, source);
            EXPECT_TRUE(same_rows(model.read(text.tokens, chunk), alone)) << to_string(type) << ", " << chunk;
        }
    }
}

// In a batch each slot has its own source; a slot that is forked or shared has its origin's.
TEST_P(EncoderDecoders, SlotsAttendToTheirOwnSources) {
    TestModelOptions options{.threads = 2};
    options.decoder.n_slots = 3;
    TestModel model(golden().directory, options), alone(golden().directory, {.threads = 2});
    const std::vector<TokenId>& tokens = texts()[1].text.tokens;
    std::vector<std::vector<float>> expected;
    for (int slot = 0; slot < 2; ++slot) {
        const std::vector<TokenId>& source = texts()[static_cast<std::size_t>(slot)].source;
        alone.forget();
        alone.decoder.encode(0, source);
        expected.push_back(alone.read(tokens));
        model.decoder.encode(slot, source);
    }
    std::vector<model::Row> rows = model.chain(tokens, 0);
    const int n = static_cast<int>(rows.size());
    for (model::Row row : model.chain(tokens, 1)) {
        row.parent += row.parent < 0 ? 0 : n;
        rows.push_back(row);
    }
    const std::vector<float> both = model.forward(rows, TestModel::all_of(rows.size()));
    const std::size_t half = both.size() / 2;
    EXPECT_TRUE(same_rows(std::span(both).first(half), expected[0]));
    EXPECT_TRUE(same_rows(std::span(both).last(half), expected[1]));
    const auto vocab = static_cast<std::size_t>(model.config.vocab_size);
    model.decoder.cache().fork(1, 2);
    model.decoder.cache().truncate(2, 17);
    model.forget(1);
    model.decoder.encode(1, texts()[0].source); // the forked slot keeps what it had
    EXPECT_TRUE(same_rows(model.read(std::span(tokens).subspan(17), 5, 2), std::span(expected[1]).subspan(17 * vocab)));
}

// Rows of a tree have the positions, and distances to keys, of their branches.
TEST_P(EncoderDecoders, BranchesOfATreeAreAsTextsByThemselves) {
    TestModel model(golden().directory, {.threads = 2});
    const auto& [source, text] = texts()[1];
    const auto vocab = static_cast<std::size_t>(model.config.vocab_size);
    const std::vector<TokenId> first = {7, 8, 9}, second = {40, 41};
    std::vector<std::vector<float>> expected;
    for (const auto& branch : {first, second}) {
        model.forget();
        model.decoder.encode(0, source);
        model.read(text.tokens);
        expected.push_back(model.read(branch));
    }
    model.forget();
    model.decoder.encode(0, source);
    model.read(text.tokens);
    const int n = static_cast<int>(text.tokens.size());
    const std::vector<model::Row> rows = {
        {7, 0, n, -1}, {40, 0, n, -1}, {8, 0, n + 1, 0}, {41, 0, n + 1, 1}, {9, 0, n + 2, 2}};
    const std::vector<float> logits = model.forward(rows, TestModel::all_of(5), model::Mask::by_parent);
    const auto row = [&](std::span<const float> all, std::size_t i) { return all.subspan(i * vocab, vocab); };
    const std::size_t of_first[] = {0, 2, 4}, of_second[] = {1, 3};
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(same_rows(row(logits, of_first[i]), row(expected[0], i))) << i;
    for (std::size_t i = 0; i < 2; ++i)
        EXPECT_TRUE(same_rows(row(logits, of_second[i]), row(expected[1], i))) << i;
}

TEST_P(EncoderDecoders, RefuseSourcesThatTheyCannotRead) {
    TestModelOptions options;
    options.decoder.source_capacity = 30;
    TestModel model(golden().directory, options);
    const std::vector<TokenId> tokens = {1, 2, 3}, many(31, 5), strange = {1, 1 << 20};
    EXPECT_EQ(model.decoder.max_source(), 30);
    EXPECT_THROW(model.read(tokens), std::invalid_argument); // no source yet
    EXPECT_THROW(model.decoder.encode(0, {}), std::invalid_argument);
    EXPECT_THROW(model.decoder.encode(0, many), std::invalid_argument);
    EXPECT_THROW(model.decoder.encode(0, strange), std::invalid_argument);
    model.decoder.encode(0, tokens);
    model.read(tokens);
    EXPECT_THROW(model.decoder.encode(0, tokens), std::invalid_argument); // in the middle of a text
}

TEST_P(EncoderDecoders, OtherTypesOfWeightsStayNearFloat32) {
    if (const std::string why = lacking_on_torch("int8 weights, and float32 activations"); !why.empty())
        GTEST_SKIP() << why;
    const auto& [source, text] = texts()[0];
    const auto read = [&](WeightType type) {
        TestModelOptions options;
        options.decoder.weight_type = type;
        TestModel model(golden().directory, options);
        model.decoder.encode(0, source);
        return model.read(text.tokens);
    };
    const std::vector<float> exact = read(WeightType::float32);
    EXPECT_LE(relative_difference(read(WeightType::bfloat16), exact), 1e-3); // as the file has them
    const double rounded = relative_difference(read(WeightType::int8), exact);
    EXPECT_LE(rounded, 2 * kInt8Bound);
    EXPECT_GT(rounded, kInt8Bound / 20) << "were the weights rounded at all?";
}

TEST(EncoderDecoder, OutputsOfT5AreScaledAsItsFilesSay) {
    const auto scale_of = [](const char* type, const nlohmann::json& fields) {
        nlohmann::json json = {{"model_type", type}, {"d_model", 64U}};
        json.update(fields);
        return model::read_config(json, "config.json").output_scale;
    };
    EXPECT_FLOAT_EQ(scale_of("t5", nlohmann::json::object()), 0.125F); // the first files
    EXPECT_FLOAT_EQ(scale_of("t5", {{"tie_word_embeddings", false}}), 1);
    EXPECT_FLOAT_EQ(scale_of("t5", {{"tie_word_embeddings", true}, {"scale_decoder_outputs", false}}), 1);
    EXPECT_FLOAT_EQ(scale_of("mt5", {{"tie_word_embeddings", true}}), 1);
}

TEST(EncoderDecoder, GenerationSettingsSayWhatTheDecoderBeginsWith) {
    const auto config_of = [](const nlohmann::json& fields) {
        nlohmann::json json = {{"model_type", "bart"}, {"decoder_start_token_id", 7U}};
        json.update(fields);
        return model::read_config(json, "config.json");
    };
    EXPECT_EQ(config_of({{"forced_bos_token_id", 9U}}).decoder_start_ids, (std::vector<std::int64_t>{7, 9}));
    EXPECT_THROW(config_of({{"is_encoder_decoder", false}}), model::BadFile);
}

TEST(EncoderDecoder, AUnigramTokenizerAsT5sEncodesAsTransformers) {
    const std::filesystem::path pair = encoder_decoder_pairs().front();
    const auto encoded = nlohmann::json::parse(std::ifstream(pair / "expected.json")).at("encoded");
    const model::Tokenizer tokenizer = model::Tokenizer::open(pair / "target");
    EXPECT_EQ(tokenizer.encode(encoded.at("text").get<std::string>(), true),
              encoded.at("ids").get<std::vector<TokenId>>());
}

TEST(EncoderDecoder, DecoderOnlyModelsHaveNoSource) {
    TestModel model(family_pairs().front() / "target");
    EXPECT_EQ(model.decoder.max_source(), 0);
    EXPECT_THROW(model.decoder.encode(0, std::vector<TokenId>{1}), std::invalid_argument);
}

} // namespace encoder_decoders_test
