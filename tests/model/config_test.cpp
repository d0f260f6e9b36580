// Reading JSON that nobody has vouched for, configs in old and new spelling, refusals by name, and the check of a
// checkpoint's tensors against its config.
#include "model/families/config.h"

#include "model/families/families.h"
#include "model/families/read_config.h"
#include "model/files/bad_file.h"
#include "model/files/json_file.h"
#include "model/weights/layer_plan.h"
#include "model/weights/rank_shard.h"
#include "model/weights/tensor_shapes.h"
#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace entrodraft::model {
namespace config_test {

using nlohmann::json;
using std::string_literals::operator""s;

const std::filesystem::path kGolden = std::filesystem::path(ENTRODRAFT_SOURCE_DIR) / "tests/model/golden";

// The message of the BadFile that `action` throws; empty where it throws none.
std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const BadFile& error) {
        return error.what();
    }
    return "";
}

void expect_part(const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' lacks '" << part << "'";
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

std::string json_error(const std::string& text) {
    return message_of([&] { parse_json(text, "f.json"); });
}

TEST(JsonFile, RejectsWhatIsNoJsonWithThePlace) {
    expect_part(json_error("{\n\"a\": 1,\n}"), "f.json: line 3, byte 11: no valid JSON: ");
    expect_part(json_error(""), "no valid JSON");
    expect_part(json_error("{} {}"), "no valid JSON");
    expect_part(json_error("[1,]"), "no valid JSON");
    expect_part(json_error("// note\n1"), "no valid JSON");
    expect_part(json_error("NaN"), "no valid JSON");
    expect_part(json_error("1e999"), "number overflow");
}

TEST(BadFile, QuotesAreCutBetweenCharacters) {
    std::string characters = "a"; // so that the cut would fall into one
    for (int i = 0; i < 100; ++i)
        characters += "\u00e4";
    const std::string shown = in_quotes(characters);
    EXPECT_EQ(shown, "'" + characters.substr(0, 119) + "...'");
}

TEST(JsonFile, RejectsBytesThatAreNoUtf8) {
    expect_part(json_error("\"\xff\""), "UTF-8");
    expect_part(json_error("\"\xc0\xaf\""), "UTF-8");     // not the shortest form
    expect_part(json_error("\"\xed\xa0\x80\""), "UTF-8"); // a surrogate
    expect_part(json_error("\"\\udc00\""), "surrogate");
    expect_part(json_error("\xef\xbb\xbf{}"), "byte order mark");
    expect_part(json_error("{}\0"s), "NUL");
}

TEST(JsonFile, RejectsAKeyThatAppearsTwice) {
    const std::string text = R"({"x": [{"a": 1, "b": 2, "\u0061": 3}]})";
    expect_part(json_error(text), "the key 'a' appears twice");
    EXPECT_EQ(json_error(R"([{"a": 1}, {"a": 1}, {"b": {"a": 1}}])"), "");
}

TEST(JsonFile, CapsTheDepth) {
    const auto nested = [](std::size_t n) { return std::string(n, '[') + std::string(n, ']'); };
    EXPECT_EQ(json_error(nested(kMaxJsonDepth)), "");
    expect_part(json_error(nested(kMaxJsonDepth + 1)), "nested deeper than 128");
    expect_part(json_error(std::string(10'000'000, '[')), "nested deeper than 128");
}

TEST(JsonFile, RejectsWholeNumbersThatDoNotFit) {
    EXPECT_EQ(parse_json("18446744073709551615", "f").get<std::uint64_t>(), ~std::uint64_t{0});
    EXPECT_EQ(parse_json("-9223372036854775808", "f").get<std::int64_t>(), std::numeric_limits<std::int64_t>::min());
    expect_part(json_error("18446744073709551616"), "does not fit 64 bits");
    EXPECT_EQ(parse_json("1000000000000000019884624838656", "f", LargeNumbers::as_floating_point), 1e30);
    expect_part(json_error("-9223372036854775809"), "does not fit 64 bits");
}

TEST(JsonFile, BuildsTheSameValueAsThePlainParser) {
    const std::string text = R"({"a":[1,-2,3.5,"x",null,true,[],{},[[{"b":[{}]}]]],"c":{"d":{"e":[]},"f":"\u00e9"}})";
    EXPECT_EQ(parse_json(text, "f.json"), json::parse(text));
}

TEST(JsonFile, CapsTheSizeAndTakesRegularFilesOnly) {
    const TemporaryDirectory directory;
    const auto file = directory.write("x.json", "[1, 2]");
    EXPECT_EQ(read_json_file(file, 6), json::parse("[1, 2]"));
    expect_part(message_of([&] { read_json_file(file, 5); }), "x.json: 6 bytes are more than the 5");
    expect_part(message_of([&] { read_json_file(directory.path(), 5); }), "not a regular file");
    expect_part(message_of([&] { read_json_file(directory.path() / "none", 5); }), "cannot be opened");
}

json plain_config() {
    return {{"model_type", "llama"},
            {"architectures", {"LlamaForCausalLM"}},
            {"vocab_size", 512},
            {"hidden_size", 96},
            {"intermediate_size", 160},
            {"num_hidden_layers", 3},
            {"num_attention_heads", 6},
            {"num_key_value_heads", 2},
            {"max_position_embeddings", 256},
            {"rms_norm_eps", 1e-5},
            {"hidden_act", "silu"},
            {"torch_dtype", "bfloat16"},
            {"bos_token_id", 1},
            {"eos_token_id", 2},
            {"tie_word_embeddings", false}};
}

// The plain config with these fields changed or added.
json config_with(const json& changes) {
    json config = plain_config();
    for (const auto& [key, value] : changes.items())
        config[key] = value;
    return config;
}

json config_without(const std::string& field) {
    json config = plain_config();
    config.erase(field);
    return config;
}

ModelConfig read(const json& config, const std::string& generation_config = "") {
    const TemporaryDirectory directory;
    directory.write("config.json", config.dump());
    if (!generation_config.empty()) directory.write("generation_config.json", generation_config);
    return read_config(directory.path());
}

std::string config_error(const json& config) {
    return message_of([&] { read(config); });
}

TEST(Config, ReadsTheOldSpelling) {
    const ModelConfig config = read(config_with({{"rope_theta", 500000.0}, {"rope_scaling", nullptr}}));
    EXPECT_EQ(config.family, "llama");
    EXPECT_EQ(config.vocab_size, 512);
    EXPECT_EQ(config.hidden_size, 96);
    EXPECT_EQ(config.intermediate_size, 160);
    EXPECT_EQ(config.n_layers, 3);
    EXPECT_EQ(config.n_heads, 6);
    EXPECT_EQ(config.n_kv_heads, 2);
    EXPECT_EQ(config.head_dim, 16);
    EXPECT_EQ(config.max_positions, 256);
    EXPECT_EQ(config.norm_epsilon, 1e-5f);
    EXPECT_EQ(config.rope.theta, 500000.0);
    EXPECT_EQ(config.activation, Activation::silu);
    EXPECT_FALSE(config.tied_embeddings);
    EXPECT_EQ(config.stored_type, WeightType::bfloat16);
    EXPECT_EQ(config.bos_token_id, 1);
    EXPECT_EQ(config.eos_token_ids, std::vector<std::int64_t>{2});
}

TEST(Config, ReadsTheNewSpelling) {
    json config = config_without("torch_dtype");
    config["dtype"] = "float16";
    config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 250000.0}};
    config["head_dim"] = 32;
    config["tie_word_embeddings"] = true;
    const ModelConfig read_back = read(config);
    EXPECT_EQ(read_back.stored_type, WeightType::float16);
    EXPECT_EQ(read_back.rope.theta, 250000.0);
    EXPECT_EQ(read_back.head_dim, 32);
    EXPECT_TRUE(read_back.tied_embeddings);
}

TEST(Config, FillsMissingFieldsAsTransformersDoes) {
    const ModelConfig config = read({{"model_type", "llama"},
                                     {"vocab_size", 512},
                                     {"hidden_size", 96},
                                     {"intermediate_size", 160},
                                     {"num_hidden_layers", 3},
                                     {"num_attention_heads", 6},
                                     {"max_position_embeddings", 256}});
    EXPECT_EQ(config.n_kv_heads, 6);
    EXPECT_EQ(config.head_dim, 16);
    EXPECT_EQ(config.norm_epsilon, 1e-6f);
    EXPECT_EQ(config.rope.theta, 10000.0);
    EXPECT_FALSE(config.tied_embeddings);
    EXPECT_EQ(config.stored_type, WeightType::float32);
    EXPECT_EQ(config.bos_token_id, 1);
    EXPECT_EQ(config.eos_token_ids, std::vector<std::int64_t>{2});
}

TEST(Config, PassesOverFieldsThatChangeNoArithmetic) {
    EXPECT_EQ(config_error(config_with({{"use_cache", true},
                                        {"transformers_version", "5.0"},
                                        {"initializer_range", 0.02},
                                        {"pad_token_id", nullptr},
                                        {"_name_or_path", "x"},
                                        {"attention_dropout", 0.0},
                                        {"attention_bias", false},
                                        {"mlp_bias", false},
                                        {"pretraining_tp", 2},
                                        {"sliding_window", nullptr},
                                        {"partial_rotary_factor", 1.0},
                                        {"quantization_config", nullptr},
                                        {"layer_types", {"full_attention", "full_attention"}},
                                        {"rope_scaling", {{"type", "default"}}},
                                        {"model_max_length", 1e30},
                                        {"my_note", "harmless"}})),
              "");
}

TEST(Config, RefusesByNameWhatWouldChangeTheArithmetic) {
    const std::pair<const char*, json> changes[] = {
        {"sliding_window", 4096},
        {"partial_rotary_factor", 0.5},
        {"quantization_config", {{"quant_method", "exl2"}}},
        {"logit_scale", 0.5},
        {"final_logit_softcapping", 30.0},
        {"attn_logit_softcapping", 50.0},
        {"num_local_experts", 8},
        {"layer_types", {"full_attention", "sliding_attention"}},
    };
    for (const auto& [field, value] : changes) {
        const std::string message = config_error(config_with({{field, value}}));
        expect_part(message, "config.json: field '" + std::string(field) + "'");
        expect_part(message, "not supported");
    }
    expect_part(config_error(config_with({{"hidden_act", "mish"}})), "activation 'mish' in 'hidden_act' is not");
}

TEST(Config, ReadsStretchedRotationsInBothSpellings) {
    const json llama3 = {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 64}};
    for (const char* field : {"rope_scaling", "rope_parameters"}) {
        const Rope rope = read(config_with({{field, llama3}})).rope;
        EXPECT_EQ(rope.scaling, RopeScaling::llama3);
        EXPECT_EQ(rope.factor, 8);
        EXPECT_EQ(rope.original_positions, 64);
        EXPECT_EQ(rope.high_frequency_factor, 4);
        EXPECT_EQ(rope.dims, 16);
    }
    const ModelConfig linear = read(config_with({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}));
    EXPECT_EQ(linear.rope.scaling, RopeScaling::linear);
    EXPECT_EQ(linear.max_positions, 256);
    const ModelConfig dynamic = read(config_with({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}));
    EXPECT_EQ(dynamic.rope.original_positions, 256);
    EXPECT_EQ(dynamic.max_positions, 512);
    const json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 256}};
    const ModelConfig stretched = read(config_with({{"rope_scaling", yarn}}));
    EXPECT_EQ(stretched.max_positions, 1024);
    EXPECT_NEAR(stretched.rope.attention_factor, 0.1 * std::log(4.0) + 1, 1e-12);
}

TEST(Config, RefusesOtherRotationsByName) {
    const json other = {{"rope_type", "proportional"}, {"factor", 8.0}};
    expect_part(config_error(config_with({{"rope_scaling", other}})), "rope type 'proportional' is not supported");
    const json longrope = {{"rope_type", "longrope"}, {"factor", 8.0}, {"short_factor", {1, 2}}};
    expect_part(config_error(config_with({{"rope_scaling", longrope}})), "'long_factor' is missing");
    json short_list = longrope;
    short_list["long_factor"] = {1};
    expect_part(config_error(config_with({{"rope_scaling", short_list}})), "'short_factor' has 2 numbers");
    expect_part(config_error(config_with({{"rope_scaling", {{"factor", 2.0}}}})), "'factor' is not supported");
    expect_part(config_error(config_with({{"rope_scaling", "linear"}})), "'rope_scaling' is not an object");
    expect_part(config_error(config_with({{"rope_scaling", {{"type", "linear"}}}})), "'factor' is missing");
    expect_part(config_error(config_with({{"rope_scaling", {{"type", "linear"}, {"factor", 0.5}}}})), "below 1");
    expect_part(
        config_error(config_with({{"rope_scaling", {{"type", "linear"}, {"factor", 2}, {"mrope_section", 1}}}})),
        "'mrope_section' is not supported");
    expect_part(config_error(config_with({{"rope_parameters", {{"partial_rotary_factor", 0.25}}}})),
                "'partial_rotary_factor' other than 1");
    expect_part(config_error(config_with({{"rope_theta", 1e4}, {"rope_parameters", {{"rope_theta", 1e6}}}})),
                "two values");
    expect_part(config_error(config_with({{"rope_parameters", {{"type", "linear"}, {"factor", 2.0}}},
                                          {"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}})),
                "differ");
}

TEST(Config, RefusesLinearAttentionThatCannotBe) {
    const auto with = [](const json& changes) {
        json config = {{"model_type", "qwen3_next"}, {"vocab_size", 64U},
                       {"hidden_size", 32U},         {"intermediate_size", 32U},
                       {"num_hidden_layers", 4U},    {"num_attention_heads", 2U},
                       {"num_key_value_heads", 1U},  {"max_position_embeddings", 64U}};
        config.update(changes);
        return config_error(config);
    };
    expect_part(with({{"linear_value_head_dim", 24U}}), "supported: multiples of 16");
    expect_part(with({{"linear_num_value_heads", 24U}}), "not a multiple of 'linear_num_key_heads'");
    expect_part(with({{"linear_conv_kernel_dim", 17U}}), "supported: up to 16");
    expect_part(with({{"layer_types", {"linear_attention", "full_attention", "full_attention"}}}),
                "the 4 layers' types");
    expect_part(
        with({{"layer_types", {"linear_attention", "full_attention", "linear_attention", "sliding_attention"}}}),
        "'sliding_attention'");
    expect_part(with({{"linear_num_key_heads", 1U << 30}, {"linear_num_value_heads", 1U << 30}}), "rows or states");
    expect_part(with({{"linear_key_head_dim", 1U << 30}}), "rows or states");
}

TEST(Config, ReadsTheTextPartOfAModelThatReadsImages) {
    json text = config_with({});
    text.update({{"model_type", "qwen3_5_text"}, {"head_dim", 64U}, {"tie_word_embeddings", true}});
    json whole = {{"model_type", "qwen3_5"},
                  {"architectures", {"Qwen3_5ForConditionalGeneration"}},
                  {"dtype", "float16"},
                  {"text_config", text},
                  {"tie_word_embeddings", false},
                  {"eos_token_id", {7, 9}},
                  {"vision_config", {{"hidden_size", 8}}}};
    whole["text_config"].erase("dtype");
    whole["text_config"].erase("torch_dtype");
    whole["text_config"].erase("architectures");
    whole["text_config"].erase("eos_token_id");
    const ModelConfig config = read(whole);
    EXPECT_EQ(config.family, "qwen3_5_text");
    EXPECT_EQ(config.stored_type, WeightType::float16);
    EXPECT_TRUE(config.tied_embeddings) << "the text's own field goes before the whole model's";
    EXPECT_EQ(config.eos_token_ids, (std::vector<std::int64_t>{7, 9}));
    EXPECT_EQ(decoder_fields(text, "config.json"), text);
    whole["architectures"] = {"Qwen3_5ForSequenceClassification"};
    expect_part(config_error(whole), "supported: Qwen3_5ForCausalLM");
    whole["text_config"] = 5;
    expect_part(config_error(whole), "field 'text_config' is not an object");
    whole.erase("text_config");
    expect_part(config_error(whole), "field 'text_config' is missing");
}

TEST(Config, RefusesOtherModels) {
    expect_part(config_error(config_with({{"model_type", "mamba"}})),
                "model type 'mamba' is not supported; supported: bart, bloom, cohere2, deepseek_v2");
    expect_part(config_error(config_without("model_type")), "field 'model_type' is missing");
    expect_part(config_error(config_with({{"architectures", {"LlamaForSequenceClassification"}}})),
                "supported: LlamaForCausalLM");
    expect_part(config_error(json::array()), "config.json: not a JSON object");
}

TEST(Config, RefusesSizesThatCannotBe) {
    for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                              "num_attention_heads", "max_position_embeddings"}) {
        expect_part(config_error(config_without(field)), "field '" + std::string(field) + "' is missing");
    }
    for (const char* field : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                              "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
        const json wrong[] = {0, -1, 1073741825, 2147483648u, 1.5, "64", true, json::array({1})};
        for (const json& value : wrong) {
            expect_part(config_error(config_with({{field, value}})), "field '" + std::string(field) + "' is ");
        }
    }
    expect_part(config_error(config_with({{"num_key_value_heads", 4}})), "is not a multiple of 'num_key_value_heads'");
    expect_part(config_error(config_with({{"hidden_size", 100}})), "'head_dim' is missing");
    expect_part(config_error(config_with({{"head_dim", 15}})), "even");
    expect_part(config_error(config_with({{"num_attention_heads", 65536}, {"head_dim", 65536}})),
                "'head_dim', is more");
    // Each fits an int; with keys and values beside the queries they no longer would.
    expect_part(config_error(config_with(
                    {{"num_attention_heads", 1 << 20}, {"num_key_value_heads", 1 << 20}, {"head_dim", 512}})),
                "'head_dim', is more");
    expect_part(config_error(
                    config_with({{"num_attention_heads", 1 << 17}, {"num_key_value_heads", 1 << 17}, {"head_dim", 2}})),
                "more than 65536 attention heads");
    expect_part(config_error(config_with({{"vocab_size", 1 << 30}, {"hidden_size", 1 << 30}, {"head_dim", 16}})),
                "parameters");
    EXPECT_EQ(config_error(config_with({{"hidden_size", 100}, {"head_dim", 16}})), "");
}

TEST(Config, RefusesNumbersAndNamesThatAreNone) {
    expect_part(config_error(config_with({{"rms_norm_eps", -1e-5}})), "'rms_norm_eps'");
    expect_part(config_error(config_with({{"rms_norm_eps", "1e-5"}})), "'rms_norm_eps'");
    expect_part(config_error(config_with({{"rope_theta", 0}})), "'rope_theta'");
    expect_part(config_error(config_with({{"torch_dtype", "int8"}})), "dtype 'int8' is not supported");
    expect_part(config_error(config_with({{"tie_word_embeddings", 1}})), "'tie_word_embeddings'");
    expect_part(config_error(config_with({{"eos_token_id", -1}})), "'eos_token_id' holds -1");
    expect_part(config_error(config_with({{"eos_token_id", {1, "x"}}})), "'eos_token_id' holds 'x'");
    expect_part(config_error(config_with({{"bos_token_id", 1.0}})), "'bos_token_id' holds 1.0");
}

TEST(Config, TakesTheEndOfTextFromTheGenerationConfigWhereThereIsOne) {
    using Ids = std::vector<std::int64_t>;
    EXPECT_EQ(read(config_with({{"eos_token_id", {7, 8}}})).eos_token_ids, (Ids{7, 8}));
    EXPECT_EQ(read(config_with({{"eos_token_id", nullptr}})).eos_token_ids, Ids{});
    EXPECT_EQ(read(config_with({{"bos_token_id", nullptr}})).bos_token_id, -1);
    EXPECT_EQ(read(plain_config(), R"({"eos_token_id": [5, 6]})").eos_token_ids, (Ids{5, 6}));
    EXPECT_EQ(read(plain_config(), R"({"eos_token_id": 5})").eos_token_ids, Ids{5});
    EXPECT_EQ(read(plain_config(), R"({"temperature": 0.6})").eos_token_ids, Ids{2});
    expect_part(message_of([&] { read(plain_config(), R"({"eos_token_id": "x"})"); }), "generation_config.json: field");
    expect_part(message_of([&] { read(plain_config(), "[]"); }), "generation_config.json: not a JSON object");
}

TEST(Config, CountsParameters) {
    ModelConfig config = read(plain_config());
    const std::int64_t layer = 96 * 96 * 2 + 96 * 32 * 2 + 3 * 96 * 160 + 2 * 96;
    EXPECT_EQ(parameter_count(config), 3 * layer + 96 + 2 * 512 * 96);
    config.tied_embeddings = true;
    EXPECT_EQ(parameter_count(config), 3 * layer + 96 + 512 * 96);
}

TEST(Config, AgreesWithTheGoldenCheckpoints) {
    for (const char* name : {"llama-target", "llama-draft", "llama-target-sharded"}) {
        const ModelConfig config = read_config(kGolden / name);
        const Checkpoint checkpoint = Checkpoint::open(kGolden / name);
        EXPECT_EQ(message_of([&] { check_shapes(config, checkpoint); }), "") << name;
        EXPECT_EQ(checkpoint.total_bytes(), static_cast<std::uint64_t>(4 * parameter_count(config))) << name;
        EXPECT_EQ(config.vocab_size, 512);
    }
    EXPECT_EQ(read_config(kGolden / "llama-target").head_dim, 32);
    EXPECT_TRUE(read_config(kGolden / "llama-draft").tied_embeddings);
}

TEST(Config, GoldenShardsHoldTheSameBytesAsTheSingleFile) {
    const Checkpoint whole = Checkpoint::open(kGolden / "llama-target");
    const Checkpoint sharded = Checkpoint::open(kGolden / "llama-target-sharded");
    ASSERT_EQ(whole.tensors().size(), sharded.tensors().size());
    for (const auto& [name, view] : whole.tensors()) {
        const auto other = sharded.tensor(name).bytes;
        EXPECT_TRUE(std::equal(view.bytes.begin(), view.bytes.end(), other.begin(), other.end())) << name;
    }
}

// A one-layer checkpoint of zeros, some of its tensors changed before it is written.
class Shapes : public testing::Test {
  protected:
    Shapes() {
        config_.vocab_size = 8;
        config_.hidden_size = config_.embedding_size = 4;
        config_.intermediate_size = 6;
        config_.n_layers = 1;
        config_.n_heads = 2;
        config_.n_kv_heads = 1;
        config_.head_dim = 2;
        config_.max_positions = 16;
        const std::string layer = "model.layers.0.";
        shapes_ = {{"model.embed_tokens.weight", {8, 4}},
                   {"model.norm.weight", {4}},
                   {"lm_head.weight", {8, 4}},
                   {layer + "input_layernorm.weight", {4}},
                   {layer + "self_attn.q_proj.weight", {4, 4}},
                   {layer + "self_attn.k_proj.weight", {2, 4}},
                   {layer + "self_attn.v_proj.weight", {2, 4}},
                   {layer + "self_attn.o_proj.weight", {4, 4}},
                   {layer + "post_attention_layernorm.weight", {4}},
                   {layer + "mlp.gate_proj.weight", {6, 4}},
                   {layer + "mlp.up_proj.weight", {6, 4}},
                   {layer + "mlp.down_proj.weight", {4, 6}}};
    }
    std::string check(const std::string& dtype = "F32", std::size_t element_bytes = 4) {
        json header = json::object();
        std::size_t end = 0;
        for (const auto& [name, shape] : shapes_) {
            std::size_t bytes = element_bytes;
            for (const int dim : shape)
                bytes *= static_cast<std::size_t>(dim);
            header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
            end += bytes;
        }
        const std::string text = header.dump();
        std::string bytes;
        for (int i = 0; i < 8; ++i)
            bytes += static_cast<char>(text.size() >> (8 * i) & 255);
        const auto file = directory_.write("model.safetensors", bytes + text + std::string(end, '\0'));
        return message_of([&] { check_shapes(config_, Checkpoint::open_file(file)); });
    }

    TemporaryDirectory directory_;
    ModelConfig config_;
    std::map<std::string, std::vector<int>> shapes_;
};

TEST_F(Shapes, MatchTheConfigInEveryTypeThatIsRead) {
    EXPECT_EQ(check("F32", 4), "");
    EXPECT_EQ(check("F16", 2), "");
    EXPECT_EQ(check("BF16", 2), "");
    expect_part(check("I8", 1), "is of type I8; supported: F32, F16, BF16");
}

TEST_F(Shapes, AreNamedWhereTheyDiffer) {
    const auto good = shapes_;
    for (const auto& [name, shape] : good) {
        shapes_ = good;
        shapes_[name].back() += 1;
        expect_part(check(), "model.safetensors: tensor '" + name + "' has shape [");
        shapes_ = good;
        shapes_.erase(name);
        expect_part(check(), "'" + name + "' is missing");
    }
    shapes_ = good;
    shapes_["model.norm.weight"] = {2, 2};
    expect_part(check(), "has shape [2, 2], but config.json calls for [4]");
}

TEST_F(Shapes, OfAMissingHeadComeWithTheRemedy) {
    shapes_.erase("lm_head.weight");
    expect_part(check(), "\"tie_word_embeddings\": true");
    config_.tied_embeddings = true;
    EXPECT_EQ(check(), "");
    shapes_["lm_head.weight"] = {8, 4}; // a copy of the embedding beside it
    EXPECT_EQ(check(), "");
}

TEST_F(Shapes, OfOldBuffersArePassedOverAndOtherTensorsRefused) {
    shapes_["model.layers.0.self_attn.rotary_emb.inv_freq"] = {1};
    EXPECT_EQ(check(), "");
    shapes_["model.layers.0.self_attn.q_proj.bias"] = {4};
    expect_part(check(), "'model.layers.0.self_attn.q_proj.bias' has no place in the llama model of 1 layers");
}

TEST_F(Shapes, OfAbsurdlyManyLayersEndAtTheFirstMissingOne) {
    config_.n_layers = 2'000'000'000;
    expect_part(check(), "'model.layers.1.input_layernorm.weight' is missing");
}

// ---- experts ----

struct PublishedExperts {
    const char* config;
    double total, active; // billions, as published
};

TEST(Config, CountsParametersInAllAndForATokenAsPublishedForModelsWithExperts) {
    const PublishedExperts models[] = {
        {R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
             "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
             "max_position_embeddings": 32768, "vocab_size": 32000, "rope_theta": 1e6, "sliding_window": null})",
         46.7, 12.9},
        {R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
             "num_attention_heads": 32, "num_hidden_layers": 48, "num_key_value_heads": 4, "head_dim": 128,
             "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1,
             "mlp_only_layers": [], "max_position_embeddings": 40960, "vocab_size": 151936, "rope_theta": 1e6,
             "sliding_window": null, "use_sliding_window": false, "max_window_layers": 48})",
         30.5, 3.3},
        // Published as 80B and 3B; the latter counts no embeddings, which are 0.62.
        {R"({"model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120, "moe_intermediate_size": 512,
             "num_attention_heads": 16, "num_hidden_layers": 48, "num_key_value_heads": 2, "head_dim": 256,
             "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
             "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
             "num_experts": 512, "num_experts_per_tok": 10, "norm_topk_prob": true, "decoder_sparse_step": 1,
             "mlp_only_layers": [], "shared_expert_intermediate_size": 512, "partial_rotary_factor": 0.25,
             "max_position_embeddings": 262144, "vocab_size": 151936, "rope_theta": 10000000, "rope_scaling": null})",
         79.67, 3.87},
        // Of 9B and 35B-A3B, with what reads images left out.
        {R"({"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "vision_config": {},
             "text_config": {"model_type": "qwen3_5_text", "hidden_size": 4096, "intermediate_size": 12288,
             "num_attention_heads": 16, "num_hidden_layers": 32, "num_key_value_heads": 4, "head_dim": 256,
             "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
             "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
             "mtp_num_hidden_layers": 1, "max_position_embeddings": 262144, "vocab_size": 248320,
             "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
                                 "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"}}})",
         8.95, 8.95},
        {R"({"model_type": "qwen3_5_moe", "architectures": ["Qwen3_5MoeForConditionalGeneration"], "vision_config": {},
             "text_config": {"model_type": "qwen3_5_moe_text", "hidden_size": 2048, "moe_intermediate_size": 512,
             "num_attention_heads": 16, "num_hidden_layers": 40, "num_key_value_heads": 2, "head_dim": 256,
             "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
             "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
             "num_experts": 256, "num_experts_per_tok": 8, "shared_expert_intermediate_size": 512,
             "mtp_num_hidden_layers": 1, "max_position_embeddings": 262144, "vocab_size": 248320,
             "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
                                 "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"}}})",
         34.66, 3.45},
        {R"({"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
             "moe_intermediate_size": 2048, "num_attention_heads": 128, "num_hidden_layers": 61,
             "num_key_value_heads": 128, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
             "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3, "moe_layer_freq": 1, "kv_lora_rank": 512,
             "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
             "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
             "max_position_embeddings": 163840, "vocab_size": 129280, "rope_theta": 10000,
             "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                              "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}})",
         671.0, 37.5},
    };
    for (const PublishedExperts& model : models) {
        const ModelConfig config = read_config(json::parse(model.config), "config.json");
        EXPECT_NEAR(static_cast<double>(parameter_count(config)) / 1e9, model.total, 0.06) << config.family;
        EXPECT_NEAR(static_cast<double>(active_parameter_count(config)) / 1e9, model.active, 0.06) << config.family;
    }
}

} // namespace config_test
} // namespace entrodraft::model
