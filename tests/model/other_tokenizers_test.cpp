// tokenizer.model, qwen.tiktoken and tekken.json: ids and text are those of sentencepiece, tiktoken and mistral-common,
// and files that are broken are refused. Made by other_tokenizers.py.
#include "tests/model/tokenizer_support.h"

#include <sstream>

namespace entrodraft::model {
namespace other_tokenizers_test {

using nlohmann::json;

std::string bytes_of(const std::string& family, const char* name) {
    std::ifstream in(fixture(family) / name, std::ios::binary);
    return (std::ostringstream() << in.rdbuf()).str();
}

class OtherTokenizerFiles : public testing::TestWithParam<const char*> {};

TEST_P(OtherTokenizerFiles, EncodeAndDecodeAsTheirOwnLibraries) {
    const Tokenizer tokenizer = Tokenizer::open(fixture(GetParam()));
    const json cases = read(fixture(GetParam()) / "expected.json");
    EXPECT_GT(cases.size(), 100U);
    for (const json& one : cases) {
        const auto text = one.at("text").get<std::string>();
        const auto ids = one.at("ids").get<std::vector<TokenId>>();
        EXPECT_EQ(tokenizer.encode(text, false), ids) << text;
        EXPECT_EQ(tokenizer.decode(ids, true), one.at("decoded").get<std::string>()) << text;
        StreamDecoder stream(tokenizer, true);
        std::string streamed;
        for (const TokenId id : ids)
            streamed += stream.push(id);
        EXPECT_EQ(streamed + stream.finish(), one.at("decoded").get<std::string>()) << text;
    }
}

INSTANTIATE_TEST_SUITE_P(All, OtherTokenizerFiles,
                         testing::Values("sentencepiece-llama", "sentencepiece-gemma", "sentencepiece-unigram",
                                         "sentencepiece-unigram-bytes", "tiktoken", "qwen", "tekken"),
                         [](const auto& file) {
                             std::string name = file.param;
                             std::erase(name, '-');
                             return name;
                         });

TEST(OtherTokenizers, SpecialTokensOfATextAreThoseOfTransformers) {
    const Tokenizer llama = Tokenizer::open(fixture("sentencepiece-llama"));
    EXPECT_EQ(llama.encode("a", true).front(), 1) << "<s> in front";
    const std::vector<TokenId> plain = llama.encode("a", false), both = llama.encode("a</s>a", false);
    ASSERT_EQ(plain.size(), 1U);
    EXPECT_EQ(std::count(both.begin(), both.end(), 2), 1);
    EXPECT_NE(both.back(), plain.back()) << "no space in front of what follows";
    EXPECT_EQ(llama.decode(both, true), "aa");
    const Tokenizer llama3 = Tokenizer::open(fixture("tiktoken"));
    const int n_ranks = llama3.size() - 256;
    EXPECT_EQ(llama3.encode("a<|eot_id|>", true),
              (std::vector<TokenId>{n_ranks, llama3.encode("a", false)[0], n_ranks + 9}));
    EXPECT_EQ(llama3.token(n_ranks + 11), "<|reserved_special_token_2|>");
    EXPECT_EQ(llama3.token(n_ranks + 255), "<|reserved_special_token_246|>");
    const Tokenizer qwen = Tokenizer::open(fixture("qwen"));
    EXPECT_EQ(qwen.encode("<|im_start|>", true), (std::vector<TokenId>{qwen.size() - 207}));
    const Tokenizer tekken = Tokenizer::open(fixture("tekken"));
    EXPECT_EQ(tekken.encode("[INST]", true), (std::vector<TokenId>{1, 3}));
    EXPECT_EQ(tekken.token(19), "<SPECIAL_19>");
}

// In transformers' words: "legacy" and "add_prefix_space" of tokenizer_config.json.
TEST(OtherTokenizers, TokenizerConfigChangesWhatItNames) {
    const TemporaryDirectory directory;
    directory.write("tokenizer.model", bytes_of("sentencepiece-llama", "tokenizer.model"));
    const auto encode = [&](const char* config, const char* text) {
        directory.write("tokenizer_config.json", config);
        return Tokenizer::open(directory.path()).encode(text, true);
    };
    const auto usual = encode("{}", "a</s>a");
    EXPECT_EQ(encode(R"({"legacy": true})", "a</s>a").back(), usual[1]) << "a space in front of each part";
    EXPECT_EQ(encode(R"({"add_prefix_space": false})", "a</s>a")[1], usual.back());
    EXPECT_EQ(encode(R"({"add_bos_token": false, "add_eos_token": true})", "a"), (std::vector<TokenId>{usual[1], 2}));
    const auto added = encode(R"({"added_tokens_decoder": {"900": {"content": "<new>", "special": true}}})", "<new>a");
    EXPECT_EQ(added[1], 900);
    directory.write("tokenizer_config.json", R"({"tokenizer_class": "T5Tokenizer"})");
    const std::string message = refusal_of_directory(directory.path());
    EXPECT_NE(message.find("tokenizer_class \"T5Tokenizer\""), std::string::npos) << message;
    EXPECT_NE(message.find("save_pretrained"), std::string::npos) << message;
}

TEST(OtherTokenizers, BrokenFilesAreRefused) {
    const auto refusal_of = [](const char* name, const std::string& bytes, const char* config = "{}") {
        const TemporaryDirectory directory;
        directory.write(name, bytes);
        directory.write("config.json", config);
        return refusal_of_directory(directory.path());
    };
    const auto expect_refused = [&](const char* name, const std::string& bytes, const char* part,
                                    const char* config = "{}") {
        const std::string message = refusal_of(name, bytes, config);
        EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
        EXPECT_NE(message.find(name), std::string::npos) << message;
    };
    const std::string spm = bytes_of("sentencepiece-llama", "tokenizer.model");
    EXPECT_EQ(refusal_of("tokenizer.model", spm), "");
    for (std::size_t n = 1; n < spm.size(); n += 97)
        refusal_of("tokenizer.model", spm.substr(0, n));
    expect_refused("tokenizer.model", "x", "not a SentencePiece model");
    expect_refused("tokenizer.model", spm.substr(0, spm.size() / 2), "cut off");
    const std::string ranks = bytes_of("tiktoken", "tokenizer.model");
    expect_refused("tokenizer.model", ranks, "model_type \"mistral\"", R"({"model_type": "mistral"})");
    expect_refused("tokenizer.model", ranks + "YQ== 0\n", "two tokens have the rank 0");
    expect_refused("tokenizer.model", ranks + "Y 9999\n", "is not base64");
    expect_refused("tokenizer.model", ranks + "Y?== 9999\n", "is not base64");
    expect_refused("tokenizer.model", ranks + "YQ== x\n", "is not a token and its rank");
    expect_refused("tokenizer.model", "YQ== 0\n", "not every byte is a token");
    expect_refused("qwen.tiktoken", "hello", "line 1 is not a token");
    const std::string tekken = bytes_of("tekken", "tekken.json");
    const auto with = [&](const char* pointer, const json& value) {
        json file = json::parse(tekken);
        file[json::json_pointer(pointer)] = value;
        return file.dump();
    };
    expect_refused("tekken.json", "[]", "not an object");
    expect_refused("tekken.json", with("/config/pattern", 1), "pattern");
    expect_refused("tekken.json", with("/config/pattern", "("), "");
    expect_refused("tekken.json", with("/config/default_vocab_size", 3), "default_vocab_size is below");
    expect_refused("tekken.json", with("/config/default_num_special_tokens", 2), "special_tokens are more than");
    expect_refused("tekken.json", with("/special_tokens/1/rank", 4), "not in the order");
    expect_refused("tekken.json", with("/vocab/3/rank", 4), "two tokens have the rank 4");
    expect_refused("tekken.json", with("/vocab/3/token_bytes", "!"), "is not base64");
}

} // namespace other_tokenizers_test
} // namespace entrodraft::model
