// Checkpoints as programs for quantisation leave them (make_quantized.py): what transformers says that their
// dequantised weights compute, with the kernels of every instruction set; and files that lie.
#include "model/cpu/packed_matrix.h"
#include "model/files/bad_file.h"
#include "model/files/quantized.h"
#include "model/footprint/inspection.h"
#include "tests/model/family_golden.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace quantized_test {

using namespace entrodraft;
using model::TokenId;

class Quantized : public FamilyGoldenTest {};

INSTANTIATE_TEST_SUITE_P(All, Quantized, testing::ValuesIn(quantized_models()), name_of_format);

TEST_P(Quantized, LogitsAndGreedyTokensAreThoseOfTheDequantisedWeights) {
    for (const char* name : {"amx", "avx512vnni", "avx512", "avx2", "portable"}) {
        const model::kernels::Kernels* kernels = model::kernels::kernels_named(name);
        if (kernels == nullptr) continue;
        TestModelOptions options{.threads = 2};
        options.decoder.kernels = kernels;
        TestModel model(golden().directory, options);
        for (const FamilyText& text : golden().texts)
            for (const int chunk : {1, 4, 128}) {
                model.forget();
                const std::vector<float> logits = model.read(whole_text(text), chunk);
                EXPECT_LE(worst_kept_row(logits, text), kRowBound) << name << ", " << chunk << " rows";
                EXPECT_EQ(said_of(logits, text, golden().known), text.greedy) << name;
            }
    }
}

TEST_P(Quantized, BitsOfARowDoNotDependOnTheRowsOfItsPass) {
    TestModel model(golden().directory);
    const std::vector<TokenId>& tokens = golden().texts[0].tokens;
    const std::vector<float> alone = model.read(tokens, 1);
    for (const int chunk : {2, 7, 16, 128}) {
        model.forget();
        EXPECT_TRUE(same_bits(model.read(tokens, chunk), alone)) << chunk << " rows";
    }
}

// docs/models.md, Weights. Float8, and codes that stand for values of a table, are multiplied as float32.
TEST_P(Quantized, RoundedActivationsStayWithinTheirBounds) {
    for (const auto& [type, bound] :
         {std::pair(model::ActivationType::int16, 1e-3), {model::ActivationType::int8, 0.1}}) {
        TestModelOptions options;
        options.decoder.activations = type;
        TestModel model(golden().directory, options);
        for (const FamilyText& text : golden().texts) {
            model.forget();
            const std::vector<float> alone = model.read(whole_text(text), 1);
            EXPECT_LE(worst_kept_row(alone, text), bound) << to_string(type);
            RecordProperty(to_string(type), std::to_string(worst_kept_row(alone, text)));
            model.forget();
            EXPECT_TRUE(same_bits(model.read(whole_text(text), 7), alone)) << to_string(type);
        }
    }
}

// Packed as in the file, and planned so; scales and zeros may be wider.
TEST_P(Quantized, MatricesAreHeldAsTheFileHasThem) {
    TestModel model(golden().directory);
    model::ModelConfig plain = model.config;
    plain.quantization.reset();
    const auto planned = [&](const model::ModelConfig& config) {
        return needs_of(config, {.length = 16, .type = model::WeightType::float32}, 0).weight_bytes;
    };
    EXPECT_LT(planned(model.config), planned(plain) * 6 / 10);
    EXPECT_LE(model.decoder.weight_bytes(), planned(model.config));
}

TEST_P(Quantized, AreNotRoundedASecondTime) {
    TestModelOptions options;
    options.decoder.weight_type = model::WeightType::int8;
    EXPECT_THROW(TestModel(golden().directory, options), std::invalid_argument);
}

// ---- what is refused ----

std::string refusal_of(nlohmann::json quantization) {
    try {
        model::read_quantization({{"quantization_config", std::move(quantization)}}, "config.json");
    } catch (const model::BadFile& error) {
        return error.what();
    }
    return "";
}

TEST(Quantization, RefusesWhatItDoesNotKnowByName) {
    for (const auto& [config, word] : std::vector<std::pair<nlohmann::json, std::string>>{
             {{{"quant_method", "exl2"}}, "method 'exl2'"},
             {{{"quant_method", "gptq"}, {"bits", 3}}, "3 bits"},
             {{{"quant_method", "gptq"}, {"group_size", 18446744073709551615U}}, "group_size 1048576"},
             {{{"quant_method", "compressed-tensors"},
               {"transform_config", {{"config_groups", {{"v", {{"type", "hadamard"}}}}}}}},
              "transform_config"},
             {{{"quant_method", "compressed-tensors"}, {"sparsity_config", {{"format", "sparse-24-bitmask"}}}},
              "sparse-24-bitmask"},
             {{{"quant_method", "gptq"}, {"group_size", 96}}, "group_size 96"},
             {{{"quant_method", "gptq"}, {"checkpoint_format", "marlin"}}, "'marlin'"},
             {{{"quant_method", "awq"}, {"version", "gemv"}}, "'gemv'"},
             {{{"quant_method", "fp8"}, {"fmt", "e5m2"}}, "'e5m2'"},
             {{{"quant_method", "fp8"}, {"weight_block_size", {64, 128}}}, "weight_block_size"},
             {{{"quant_method", "compressed-tensors"}}, "config_groups"},
             {3, "must be an object"}})
        EXPECT_NE(refusal_of(config).find(word), std::string::npos) << refusal_of(config);
    EXPECT_EQ(refusal_of(nullptr), "");
}

// Tensors of a matrix of 32 outputs and 64 inputs as GPTQ has it, in groups of 32.
struct GptqTensors {
    std::string file = "x.safetensors";
    std::vector<std::byte> zeros = std::vector<std::byte>(4096);
    std::map<std::string, model::TensorView> tensors;

    GptqTensors() {
        add("m.qweight", "I32", {8, 32});
        add("m.qzeros", "I32", {2, 4});
        add("m.scales", "F16", {2, 32});
        add("m.g_idx", "I32", {64});
    }
    void add(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape) {
        const auto type = dtype == "F16" ? model::DiskType::float16 : model::DiskType::other;
        tensors[name] = {name, dtype, type, std::move(shape), zeros, &file};
    }
    std::string refusal() {
        try {
            join_quantized({model::QuantizedForm::gptq, 4, 32, true, true}, tensors);
        } catch (const model::BadFile& error) {
            return error.what();
        }
        return "";
    }
};

TEST(Quantization, RefusesPartsThatAreMissingOrDoNotFit) {
    EXPECT_EQ(GptqTensors().refusal(), "");
    GptqTensors lacking;
    lacking.tensors.erase("m.scales");
    EXPECT_NE(lacking.refusal().find("'m.scales'"), std::string::npos);
    GptqTensors narrow;
    narrow.add("m.scales", "F16", {1, 32});
    EXPECT_NE(narrow.refusal().find("[2, 32]"), std::string::npos);
    GptqTensors wide;
    wide.add("m.qzeros", "I32", {2, 5});
    EXPECT_NE(wide.refusal().find("m.qzeros"), std::string::npos);
    GptqTensors other;
    other.add("m.scales", "I32", {2, 32});
    EXPECT_NE(other.refusal().find("scales must be"), std::string::npos);
    GptqTensors beyond;
    std::vector<std::int32_t> groups(64, 2);
    beyond.tensors["m.g_idx"].bytes = std::as_bytes(std::span(groups));
    EXPECT_NE(beyond.refusal().find("a group that is not there"), std::string::npos);
    GptqTensors vast;
    vast.add("m.qweight", "I32", {std::int64_t{1} << 62, 0});
    EXPECT_NE(vast.refusal().find("usual sizes"), std::string::npos);
}

} // namespace quantized_test
