// What a tokenizer.json, or the files that are in for it, must not hold, each with its message; and directories with
// vocab.json and merges.txt alone.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <limits>
#include <string>
#include <vector>

#include "model/text/tokenizer/tokenizer.h"
#include "tests/model/tokenizer_support.h"

namespace entrodraft::model {
namespace tokenizer_files_test {

using nlohmann::json;

TEST(TokenizerFile, RefusesComponentsItDoesNotKnowByName) {
    const json good = fixture_json("gpt2");
    EXPECT_EQ(refusal(good), "");
    const std::pair<const char*, std::vector<const char*>> unknown[] = {
        {"normalizer", {"BertNormalizer", "Metaspace"}},
        {"pre_tokenizer", {"UnicodeScripts", "BertPreTokenizer", "FixedLength"}},
        {"model", {"WordPiece", "WordLevel"}},
        {"post_processor", {"Metaspace"}},
        {"decoder", {"BPEDecoder", "WordPiece", "CTC"}},
    };
    for (const auto& [component, types] : unknown) {
        for (const char* type : types) {
            json bad = good;
            bad[component] = {{"type", type}};
            expect_mentions(refusal(bad), std::string(component) + " type '" + type + "' is not supported");
            bad[component] = {{"type", 7}};
            expect_mentions(refusal(bad), component);
            bad[component] = "text";
            expect_mentions(refusal(bad), component);
        }
    }
    json bad = good;
    bad["model"]["dropout"] = 0.1;
    expect_mentions(refusal(bad), "dropout");
    bad = good;
    bad["version"] = "2.0";
    expect_mentions(refusal(bad), "version");
}

TEST(TokenizerFile, RefusesSequencesNestedTooDeeply) {
    const json good = fixture_json("gpt2");
    const std::pair<const char*, const char*> kinds[] = {{"normalizer", "normalizers"},
                                                         {"pre_tokenizer", "pretokenizers"},
                                                         {"post_processor", "processors"},
                                                         {"decoder", "decoders"}};
    for (const auto& [component, parts] : kinds) {
        json bad = good, nested = {{"type", "Sequence"}, {parts, json::array()}};
        for (int depth = 0; depth < 30; ++depth)
            nested = {{"type", "Sequence"}, {parts, {nested}}};
        bad[component] = nested;
        expect_mentions(refusal(bad), "nested too deeply");
    }
}

TEST(TokenizerFile, RefusesBrokenVocabulariesAndMerges) {
    const json good = fixture_json("gpt2");
    for (const json& id : {json(-1), json(4'000'000), json(1e300), json(1.5), json("3"), json(nullptr), json(~0ULL)}) {
        json bad = good;
        bad["model"]["vocab"]["zz"] = id;
        expect_mentions(refusal(bad), "'zz'");
        bad = good;
        bad["added_tokens"][0]["id"] = id;
        expect_mentions(refusal(bad), "<|endoftext|>");
    }
    json bad = good;
    bad["model"]["vocab"]["zz"] = 5;
    expect_mentions(refusal(bad), "same id 5");
    bad = good;
    bad["added_tokens"][0]["id"] = 5;
    expect_mentions(refusal(bad), "same id 5");
    bad = good;
    bad["added_tokens"][0]["content"] = "a";
    expect_mentions(refusal(bad), "has the ids");
    for (const json& merge : {json("a"), json("a b c"), json({"a", "b", "c"}), json({"a", 1}), json(3)}) {
        bad = good;
        bad["model"]["merges"][1] = merge;
        expect_mentions(refusal(bad), "merge 1 ");
    }
    bad = good;
    bad["model"]["merges"][1] = "a \u4e2d";
    expect_mentions(refusal(bad), "not in vocab");
    bad = good;
    bad.erase("model");
    expect_mentions(refusal(bad), "model");
    bad = good;
    bad["model"]["vocab"][std::string(5000, 'a')] = 4000;
    expect_mentions(refusal(bad), "5000 bytes");
    bad = good;
    bad["added_tokens"][0]["content"] = std::string(5000, 'a');
    expect_mentions(refusal(bad), "5000 bytes");
    bad = good;
    bad["model"]["continuing_subword_prefix"] = "a long prefix";
    expect_mentions(refusal(bad), "continuing_subword_prefix");
}

TEST(TokenizerFile, RefusesDuplicateVocabularyKeys) {
    std::string text = fixture_json("gpt2").dump();
    text.insert(text.find("\"vocab\":{") + 9, "\"Q\":4000,");
    EXPECT_NE(refusal_of_text(text), "");
}

TEST(TokenizerFile, RefusesRegularExpressionsThatDoNotCompile) {
    json bad = fixture_json("llama3");
    bad["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(unclosed";
    expect_mentions(refusal(bad), "'(unclosed' does not compile");
    bad["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", ""}};
    expect_mentions(refusal(bad), "empty");
}

TEST(TokenizerFile, RefusesTemplatesThatNameUnknownTokens) {
    json bad = fixture_json("llama3");
    json& processor = bad["post_processor"]["processors"][1];
    processor["special_tokens"]["<|begin_of_text|>"]["ids"][0] = 3'999'999;
    expect_mentions(refusal(bad), "3999999");
    processor["special_tokens"] = json::object();
    expect_mentions(refusal(bad), "<|begin_of_text|>");
    processor["single"][1]["Sequence"]["id"] = "B";
    processor["single"].erase(0);
    expect_mentions(refusal(bad), "other than A");
}

TEST(TokenizerFile, RefusesABrokenUnigram) {
    const json good = fixture_json("t5-new");
    EXPECT_EQ(refusal(good), "");
    for (const json& entry :
         {json("a"), json({"a"}), json({"a", "b"}), json({1, 2}), json({"a", nullptr}), json({"a", 1, 2})}) {
        json bad = good;
        bad["model"]["vocab"][7] = entry;
        expect_mentions(refusal(bad), "vocab entry 7");
    }
    for (const json& id : {json(-1), json(1'000'000), json("x"), json(1.5)}) {
        json bad = good;
        bad["model"]["unk_id"] = id;
        expect_mentions(refusal(bad), "unk_id");
    }
    std::string text = good.dump();
    const std::size_t score = text.find("\"vocab\":[[\"<pad>\",") + 18;
    for (const std::string number : {"1e999", "NaN", "-Infinity"}) {
        std::string bad = text;
        bad.replace(score, text.find(']', score) - score, number);
        EXPECT_NE(refusal_of_text(bad), "") << number;
    }
}

TEST(TokenizerFile, RefusesABrokenCharsmap) {
    const json good = fixture_json("t5-old");
    const std::string map = good["normalizer"]["precompiled_charsmap"];
    for (const std::size_t length : {std::size_t{0}, std::size_t{4}, std::size_t{8}, map.size() / 2 / 4 * 4,
                                     map.size() - 8, map.size() - 4, map.size() - 3}) {
        json bad = good;
        bad["normalizer"]["precompiled_charsmap"] = map.substr(0, length);
        expect_mentions(refusal(bad), "precompiled_charsmap");
    }
    for (const char* text : {"****", "AAAA", "AAAAAA==", "////////", "BAAAAAAAAAA"}) {
        json bad = good;
        bad["normalizer"]["precompiled_charsmap"] = text;
        expect_mentions(refusal(bad), "precompiled_charsmap");
    }
    // Any damage is refused or harmless: no look-up may leave the map.
    for (std::size_t at = 0; at < map.size(); at += 41) {
        json bad = good;
        std::string damaged = map;
        damaged[at] = damaged[at] == 'x' ? 'y' : 'x';
        bad["normalizer"]["precompiled_charsmap"] = damaged;
        if (refusal(bad).empty()) opened(bad).encode("\ufb01x\u00aa\u2460 e\u0301 \u338c \u0e33\u0958", false);
    }
}

TEST(TokenizerFile, RefusesBrokenFieldsOfComponents) {
    const json good = fixture_json("llama2");
    const std::pair<const char*, json> cases[] = {
        {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", ""}}},
        {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}},
        {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "sometimes"}}},
        {"pre_tokenizer",
         {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}, {"add_prefix_space", false}}},
        {"pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Sideways"}}},
        {"pre_tokenizer", {{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}}},
        {"pre_tokenizer", {{"type", "Punctuation"}, {"behavior", 3}}},
        {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "a"}}},
        {"normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "("}}}, {"content", "a"}}},
        {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", "a"}}}}},
        {"normalizer", {{"type", "Prepend"}}},
        {"normalizer", {{"type", "Strip"}, {"strip_left", "yes"}}},
        {"decoder", {{"type", "Strip"}, {"content", " "}, {"start", -1}, {"stop", 0}}},
        {"decoder", {{"type", "Strip"}, {"content", " "}, {"start", 1}}},
        {"post_processor", {{"type", "RobertaProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<s>"}}}},
        {"post_processor", {{"type", "RobertaProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<s>", 999999}}}},
    };
    for (const auto& [component, value] : cases) {
        json bad = good;
        bad[component] = value;
        expect_mentions(refusal(bad), component);
    }
}

// vocab.json and merges.txt out of a fixture, with OPT's special tokens in front where wanted.
void write_vocabulary(const TemporaryDirectory& directory, const json& tokenizer) {
    directory.write("vocab.json", tokenizer["model"]["vocab"].dump());
    std::string merges = "#version: 0.2\n";
    for (const json& merge : tokenizer["model"]["merges"]) {
        merges += merge.is_string() ? merge.get<std::string>()
                                    : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
        merges += "\n";
    }
    directory.write("merges.txt", merges);
}

TEST(VocabularyFiles, TokenizeAsTheTokenizerJsonDoes) {
    json gpt2 = fixture_json("gpt2");
    gpt2["model"]["vocab"]["<|endoftext|>"] = gpt2["added_tokens"][0]["id"];
    const TemporaryDirectory directory;
    write_vocabulary(directory, gpt2);
    const Tokenizer tokenizer = Tokenizer::open(directory.path());
    EXPECT_EQ(tokenizer.fingerprint(), Tokenizer::open(fixture("gpt2")).fingerprint());
    for (const Expected& one : expected_of("gpt2"))
        EXPECT_EQ(tokenizer.encode(one.text, true), one.ids) << testing::PrintToString(one.text);
}

TEST(VocabularyFiles, PutTheBeginningTokenThatTheConfigurationAsksFor) {
    json opt = fixture_json("opt");
    for (const json& token : opt["added_tokens"])
        opt["model"]["vocab"][token["content"].get<std::string>()] = token["id"];
    const TemporaryDirectory directory;
    write_vocabulary(directory, opt);
    directory.write("config.json", R"({"model_type": "opt"})");
    directory.write("special_tokens_map.json", R"({"bos_token": {"content": "</s>", "lstrip": false, "normalized": true,
        "rstrip": false, "single_word": false}, "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"})");
    directory.write("tokenizer_config.json", R"({"add_bos_token": true, "tokenizer_class": "GPT2Tokenizer"})");
    const Tokenizer tokenizer = Tokenizer::open(directory.path());
    for (const Expected& one : expected_of("opt")) {
        // The fixture knows <s> and <unk> as added tokens too; this directory names </s> and <pad> only.
        if (one.text.find("<s>") != std::string::npos || one.text.find("<unk>") != std::string::npos) continue;
        EXPECT_EQ(tokenizer.encode(one.text, true), one.ids) << testing::PrintToString(one.text);
    }
    const auto ids = tokenizer.encode("a</s>", true);
    EXPECT_EQ(tokenizer.decode(ids, true), "a");
    EXPECT_EQ(tokenizer.decode(ids, false), "</s>a</s>");
}

TEST(VocabularyFiles, AreRefusedWithWhatIsWrongWithThem) {
    const json gpt2 = fixture_json("gpt2");
    const auto refusal_with = [&](const std::string& name, const std::string& text) {
        const TemporaryDirectory directory;
        write_vocabulary(directory, gpt2);
        directory.write(name, text);
        return refusal_of_directory(directory.path());
    };
    const std::tuple<const char*, const char*, const char*> cases[] = {
        {"merges.txt", "a b\na b c\n", "line 2"},
        {"merges.txt", "a \u4e2d\n", "not in vocab"},
        {"merges.txt", "\n\n", "line 1"},
        {"vocab.json", "[]", "not an object"},
        {"vocab.json", R"({"a": -1})", "'a'"},
        {"config.json", R"({"model_type": "qwen2"})", "qwen2"},
        {"tokenizer_config.json", R"({"tokenizer_class": "CodeLlamaTokenizer"})", "CodeLlamaTokenizer"},
        {"tokenizer_config.json", R"({"bos_token": 7})", "bos_token"},
        {"tokenizer_config.json", R"({"add_bos_token": "yes"})", "add_bos_token"},
        {"tokenizer_config.json", R"({"added_tokens_decoder": {"-1": {"content": "x"}}})", "'-1'"},
        {"added_tokens.json", R"({"<far>": 4000000000})", "<far>"},
        {"special_tokens_map.json", R"({"additional_special_tokens": 3})", "additional_special_tokens"},
    };
    for (const auto& [name, text, part] : cases) {
        const std::string message = refusal_with(name, text);
        EXPECT_NE(message.find(part), std::string::npos) << name << " " << text << ": " << message;
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
}

TEST(VocabularyFiles, MissingOnesAreNamedWithTheWayToGetThem) {
    const TemporaryDirectory directory;
    EXPECT_NE(refusal_of_directory(directory.path()).find("tokenizer.json: no such file"), std::string::npos);
    directory.write("tokenizer.model", "x");
    const std::string message = refusal_of_directory(directory.path());
    EXPECT_NE(message.find("tokenizer.model"), std::string::npos) << message;
    EXPECT_NE(message.find("not a SentencePiece model"), std::string::npos) << message;
    directory.write("vocab.json", "{}");
    EXPECT_NE(refusal_of_directory(directory.path()).find("merges.txt: no such file"), std::string::npos);
}

} // namespace tokenizer_files_test
} // namespace entrodraft::model
