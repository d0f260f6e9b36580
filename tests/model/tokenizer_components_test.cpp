// The tokenizer's components one by one, on texts small enough to check by eye.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/text/tokenizer/bpe.h"
#include "model/text/tokenizer/byte_level.h"
#include "model/text/tokenizer/normalizer.h"
#include "model/text/tokenizer/pre_tokenizer.h"
#include "model/text/tokenizer/token_decoder.h"
#include "model/text/tokenizer/unigram.h"
#include "tests/model/tokenizer_support.h"

namespace entrodraft::model {
namespace tokenizer_components_test {

using nlohmann::json;
using Ids = std::vector<TokenId>;
using Words = std::vector<std::string>;

const auto kClasses = std::make_shared<const CharClasses>();

std::string normalized(const json& step, std::string_view text) {
    return Normalizer::from_json(step, kClasses).normalize(text).text;
}

Words words_of(const json& step, std::string_view text, bool at_begin = true) {
    const Pieces pieces = PreTokenizer::from_json(step, kClasses).split(text, at_begin);
    Words words;
    for (const Span& span : pieces.spans)
        words.push_back(pieces.text.substr(span.begin, span.end - span.begin));
    return words;
}

std::string decoded(const json& decoder, const Words& tokens) {
    const TokenDecoder steps = TokenDecoder::from_json(decoder);
    TokenStream stream(steps);
    std::string text;
    for (const std::string& token : tokens)
        stream.push(steps.prepare(token), text);
    stream.finish(text);
    return text;
}

json sequence(const char* name, const json& parts) {
    return {{"type", "Sequence"}, {name, parts}};
}

json replace(const json& pattern, const char* content) {
    return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}

TEST(ByteLevel, ReadsByteTokensOfExactlyTwoHexadecimalDigits) {
    EXPECT_EQ(byte_token(0xAB), "<0xAB>");
    EXPECT_EQ(byte_of_token("<0xAB>"), 0xAB);
    EXPECT_EQ(byte_of_token("<0x0a>"), 0x0A);
    for (const char* token :
         {"<0x-1>", "<0x+A>", "<0x A>", "<0xA>", "<0xABC>", "<0xGG>", "0x41", "<0x41", "", "<0x\u00e9>"})
        EXPECT_EQ(byte_of_token(token), std::nullopt) << token;
}

TEST(Normalizer, StepsDoWhatTheirNamesSay) {
    EXPECT_EQ(normalized({{"type", "NFD"}}, "\u00e9"), "e\u0301");
    EXPECT_EQ(normalized({{"type", "NFKC"}}, "\ufb01\u2460\u3392"), "fi1MHz");
    EXPECT_EQ(normalized({{"type", "NFKD"}}, "\u00bd\u00e9"), "1\u20442e\u0301");
    EXPECT_EQ(normalized({{"type", "Lowercase"}}, "\u00c9\u0130\u03a3\u1c89"), "\u00e9i\u0307\u03c3\u1c8a");
    EXPECT_EQ(normalized({{"type", "Strip"}}, "\u3000 a b\u0085"), "a b");
    EXPECT_EQ(normalized({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, " a "), " a");
    EXPECT_EQ(normalized({{"type", "StripAccents"}}, "e\u0301\u0e33"), "e\u0e33");
    EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, "a"), "_a");
    EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, ""), "");
    EXPECT_EQ(normalized(replace({{"String", "."}}, ""), "a.b."), "ab");
    EXPECT_EQ(normalized(replace({{"Regex", " {2,}"}}, "_"), "a   b c"), "a_b c");
    EXPECT_EQ(normalized({{"type", "Nmt"}}, "a\x01\t\u200b\ufeffb"), "a   b");
    EXPECT_EQ(normalized({{"type", "ByteLevel"}}, " \u00e9"), "\u0120\u00c3\u00a9");
    EXPECT_EQ(normalized(sequence("normalizers", {{{"type", "Lowercase"}}, replace({{"String", "a"}}, "b")}), "Aa"),
              "bb");
}

TEST(Normalizer, KnowsWhetherTheFirstCharacterIsStillThere) {
    const auto keeps = [](const json& step, std::string_view text) {
        return Normalizer::from_json(step, kClasses).normalize(text).keeps_begin;
    };
    EXPECT_TRUE(keeps({{"type", "Strip"}}, "a "));
    EXPECT_FALSE(keeps({{"type", "Strip"}}, " a"));
    EXPECT_FALSE(keeps({{"type", "StripAccents"}}, "\u0301a"));
    EXPECT_FALSE(keeps(replace({{"String", "a"}}, ""), "ab"));
    EXPECT_TRUE(keeps(replace({{"String", "a"}}, "x"), "ab"));
    EXPECT_TRUE(keeps({{"type", "Prepend"}, {"prepend", "_"}}, "a"));
}

TEST(PreTokenizer, CutsAtDigitsPunctuationAndWhiteSpace) {
    EXPECT_EQ(words_of({{"type", "Digits"}, {"individual_digits", true}}, "a12"), (Words{"a", "1", "2"}));
    EXPECT_EQ(words_of({{"type", "Digits"}, {"individual_digits", false}}, "a12\u00bdb"),
              (Words{"a", "12\u00bd", "b"}));
    EXPECT_EQ(words_of({{"type", "Punctuation"}}, "a,\u2014b$"), (Words{"a", ",", "\u2014", "b", "$"}));
    EXPECT_EQ(words_of({{"type", "Punctuation"}, {"behavior", "Contiguous"}}, "a,,b"), (Words{"a", ",,", "b"}));
    EXPECT_EQ(words_of({{"type", "WhitespaceSplit"}}, " a\u0085b. "), (Words{"a", "b."}));
    EXPECT_EQ(words_of({{"type", "Whitespace"}}, "a\u0301b, c!?"), (Words{"a\u0301b", ",", "c", "!?"}));
    EXPECT_EQ(words_of({{"type", "CharDelimiterSplit"}, {"delimiter", "-"}}, "-a--b"), (Words{"a", "b"}));
    EXPECT_EQ(words_of(nullptr, "a b"), (Words{"a b"}));
    EXPECT_EQ(words_of(nullptr, ""), Words{});
}

TEST(PreTokenizer, MetaspacePrependsAsItsSchemeSays) {
    const auto metaspace = [](const char* scheme, bool split) {
        return json{{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", scheme}, {"split", split}};
    };
    EXPECT_EQ(words_of(metaspace("always", true), "a  b"), (Words{"_a", "_", "_b"}));
    EXPECT_EQ(words_of(metaspace("always", true), "a", false), (Words{"_a"}));
    EXPECT_EQ(words_of(metaspace("first", true), "a", false), (Words{"a"}));
    EXPECT_EQ(words_of(metaspace("first", false), "a b"), (Words{"_a_b"}));
    EXPECT_EQ(words_of(metaspace("never", false), "a b"), (Words{"a_b"}));
    EXPECT_EQ(words_of(metaspace("first", false), " a"), (Words{"_a"}));
    EXPECT_EQ(words_of({{"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", false}}, "a b"),
              (Words{"a", "_b"}));
    const json parts = {{{"type", "WhitespaceSplit"}}, metaspace("first", true)};
    EXPECT_EQ(words_of(sequence("pretokenizers", parts), "a b"), (Words{"_a", "b"}));
    EXPECT_EQ(words_of(sequence("pretokenizers", parts), " a b"), (Words{"a", "b"}));
}

Ids bpe_ids(const json& changes, std::string_view word) {
    json model = json::parse(R"({"vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "##b": 4, "a##b": 5, "b</w>": 6,
        "ab</w>": 7, "<0xC3>": 8, "<0xA9>": 9, "abab": 10}, "merges": ["a b"], "unk_token": "<unk>"})");
    if (!changes.is_null()) model.update(changes);
    const Bpe bpe(bpe_model_from_json(model), false);
    Ids ids;
    BpeEncoder(bpe).encode(word, ids);
    return ids;
}

TEST(Bpe, TreatsUnknownCharactersAsTheFileAsks) {
    EXPECT_EQ(bpe_ids({}, "abxya"), (Ids{3, 0, 0, 1}));
    EXPECT_EQ(bpe_ids({{"fuse_unk", true}}, "abxya"), (Ids{3, 0, 1}));
    EXPECT_EQ(bpe_ids({{"unk_token", nullptr}}, "abxya"), (Ids{3, 1}));
    EXPECT_EQ(bpe_ids({{"byte_fallback", true}}, "a\u00e9b"), (Ids{1, 8, 9, 2}));
    EXPECT_EQ(bpe_ids({{"byte_fallback", true}}, "a\u00e8b"), (Ids{1, 0, 2})); // no <0xA8>
    EXPECT_EQ(bpe_ids({{"ignore_merges", true}}, "abab"), (Ids{10}));
    EXPECT_EQ(bpe_ids({}, "abab"), (Ids{3, 3}));
    EXPECT_THROW(bpe_ids({{"unk_token", "nowhere"}}, "x"), std::runtime_error);
    EXPECT_EQ(bpe_ids({{"unk_token", "nowhere"}}, "ab"), (Ids{3}));
}

TEST(Bpe, PutsPrefixAndSuffixOnTheCharactersOfAWord) {
    const json with_prefix = {{"continuing_subword_prefix", "##"},
                              {"merges", json::array({json::array({"a", "##b"})})}};
    EXPECT_EQ(bpe_ids(with_prefix, "ab"), (Ids{3}));
    EXPECT_EQ(bpe_ids(with_prefix, "ba"), (Ids{2, 0}));
    const json with_suffix = {{"end_of_word_suffix", "</w>"}, {"merges", json::array({json::array({"a", "b</w>"})})}};
    EXPECT_EQ(bpe_ids(with_suffix, "ab"), (Ids{7}));
    EXPECT_EQ(bpe_ids(with_suffix, "b"), (Ids{6}));
}

TEST(Bpe, CutsALongWordOnlyWhereNoMergeJoins) {
    std::string word;
    Ids expected;
    for (int i = 0; i < 100; ++i) {
        word += "abba";
        expected.insert(expected.end(), {3, 2, 1});
    }
    EXPECT_EQ(bpe_ids({}, word), expected);
}

Ids unigram_ids(const json& changes, std::string_view word) {
    json model = json::parse(R"({"unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0], ["ab", -2.5],
        ["aa", -2.0], ["<0xC3>", -9.0], ["<0xA9>", -9.0], ["xyz", -30.0]]})");
    if (!changes.is_null()) model.update(changes);
    const Unigram unigram(unigram_model_from_json(model));
    Ids ids;
    UnigramEncoder(unigram).encode(word, ids);
    return ids;
}

TEST(Unigram, TakesTheBestSumAndOfEqualOnesTheFirstFound) {
    EXPECT_EQ(unigram_ids({}, "ab"), (Ids{3}));
    EXPECT_EQ(unigram_ids({}, "aab"), (Ids{1, 3}));
    EXPECT_EQ(unigram_ids({}, "aa"), (Ids{4})); // as good as a a
    EXPECT_EQ(unigram_ids({}, ""), Ids{});
}

TEST(Unigram, MakesOneTokenOfUnknownText) {
    EXPECT_EQ(unigram_ids({}, "aqqb"), (Ids{1, 0, 2}));
    EXPECT_EQ(unigram_ids({{"byte_fallback", true}}, "a\u00e9"), (Ids{1, 5, 6}));
    EXPECT_EQ(unigram_ids({{"byte_fallback", true}}, "a\u00e9q"), (Ids{1, 0})); // one run, and q has no byte token
    EXPECT_THROW(unigram_ids({{"unk_id", nullptr}}, "q"), std::runtime_error);
    EXPECT_EQ(unigram_ids({{"unk_id", nullptr}}, "ab"), (Ids{3}));
}

TEST(Unigram, ReadsScoresAsTheReferenceDoesToTheLastBit) {
    EXPECT_EQ(score_of(-0x1.38c3bep+3), -0x1.38c3be0000001p+3);
    EXPECT_EQ(score_of(-0x1.bcb922p+3), -0x1.bcb9220000001p+3);
    EXPECT_EQ(score_of(0x1.fafa8087b8655p-31), 0x1.fafa8087b8654p-31);
    for (const double exact : {0.0, -0.1, 2.5, -100000.0, 1e300, -1e-300, 5e-324})
        EXPECT_EQ(score_of(exact), exact);
}

TEST(TokenDecoder, JoinsWithSpacesWhereTheFileHasNone) {
    EXPECT_EQ(decoded(nullptr, {"a", "b", "", "c"}), "a b  c");
}

TEST(TokenDecoder, StepsDoWhatTheReferencesDo) {
    const json back = replace({{"String", "_"}}, " "), bytes = {{"type", "ByteFallback"}}, fuse = {{"type", "Fuse"}};
    const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1U}, {"stop", 0U}};
    const auto chain = [](const json& parts) { return sequence("decoders", parts); };
    EXPECT_EQ(decoded(chain({back, bytes, fuse, strip}), {"__a", "_b"}), " a b");
    EXPECT_EQ(decoded(chain({back, bytes, strip, fuse}), {"__a", "_b"}), " ab");
    EXPECT_EQ(decoded(bytes, {"a", "<0xC3>", "<0xA9>", "<0x41>"}), "a\u00e9A");
    EXPECT_EQ(decoded(bytes, {"<0xC3>", "<0x41>", "b"}), "\ufffd\ufffdb");
    EXPECT_EQ(
        decoded(chain({fuse, {{"type", "Strip"}, {"content", "x"}, {"start", 0U}, {"stop", 2U}}}), {"xa", "xx", "x"}),
        "xax");
    const json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}};
    EXPECT_EQ(decoded(metaspace, {"_a", "_b"}), "a b");
    EXPECT_EQ(decoded(chain({fuse, metaspace}), {"_a", "_b"}), "ab");
    EXPECT_EQ(decoded({{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "never"}}, {"_a"}), " a");
    const json byte_level = {{"type", "ByteLevel"}};
    EXPECT_EQ(decoded(byte_level, {"\u0120a", "\u00c3", "\u00a9", "a b"}), " a\u00e9a b");
    EXPECT_EQ(decoded(chain({fuse, replace({{"Regex", "a+"}}, "x")}), {"aa", "ab"}), "xb"); // across tokens
}

} // namespace tokenizer_components_test
} // namespace entrodraft::model
