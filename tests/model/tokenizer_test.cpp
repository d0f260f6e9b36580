// The tokenizer against ids written by the reference (tests/model/tokenizers, made by tokenizer_differential.py),
// its fast paths against the general engine, and its time on long runs.
#include "model/text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/files/utf8.h"
#include "model/text/tokenizer/byte_level.h"
#include "model/text/tokenizer/normal_form.h"
#include "model/text/tokenizer/normalizer.h"
#include "model/text/tokenizer/pre_tokenizer.h"
#include "model/text/tokenizer/regex.h"
#include "model/text/tokenizer/word_splitter.h"
#include "tests/model/tokenizer_support.h"

namespace entrodraft::model {
namespace tokenizer_test {

using nlohmann::json;

std::string repeated(const std::string& unit, std::size_t n) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i)
        text += unit;
    return text;
}

std::string composed(std::string_view text) {
    return normal_form(text, NormalForm::nfc);
}

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Random text with many of the characters that the word patterns look at.
std::string random_text(std::mt19937& random, std::size_t length) {
    static const std::vector<std::string> pieces = {
        "'",      "s",      "S",      "t",      "re",     "LL",     "\u017f", " ",      "  ",
        "\n",     "\r",     "\t",     "a",      "Z",      "1",      "23",     ".",      "!?",
        "\u00a0", "\u3000", "\u00e9", "\u4e2d", "\u0663", "\u00bd", "\u0301", "\u2028", "\u0085"};
    std::string text;
    while (text.size() < length) {
        if (random() % 4 != 0) {
            text += pieces[random() % pieces.size()];
        } else {
            const auto character = static_cast<char32_t>(random() % 0x1C00); // unchanged since Unicode 14
            append_utf8(character, text);
        }
    }
    return text;
}

TEST(Tokenizer, GivesTheIdsAndTextOfTheReferenceForEachFamily) {
    for (const std::string family : kFamilies) {
        const Tokenizer tokenizer = Tokenizer::open(fixture(family));
        const std::vector<Expected> cases = expected_of(family);
        EXPECT_GT(cases.size(), 100U);
        for (const Expected& one : cases) {
            const auto ids = tokenizer.encode(one.text, true);
            EXPECT_EQ(ids, one.ids) << family << " " << testing::PrintToString(one.text);
            EXPECT_EQ(tokenizer.decode(ids, true), one.decoded) << family;
        }
    }
}

TEST(Tokenizer, AddsTheTemplateOnlyWhenAsked) {
    const Tokenizer tokenizer = Tokenizer::open(fixture("llama3"));
    const auto bare = tokenizer.encode("Hello", false);
    auto expected = tokenizer.encode("<|begin_of_text|>", false);
    ASSERT_EQ(expected.size(), 1U);
    EXPECT_TRUE(tokenizer.is_special(expected[0]));
    expected.insert(expected.end(), bare.begin(), bare.end());
    EXPECT_EQ(tokenizer.encode("Hello", true), expected);
    EXPECT_EQ(tokenizer.decode(expected, true), "Hello");
    EXPECT_EQ(tokenizer.decode(expected, false), "<|begin_of_text|>Hello");
}

TEST(Tokenizer, TakesAWholeWordWhereMergesAreIgnored) {
    const Tokenizer tokenizer = Tokenizer::open(fixture("llama3"));
    EXPECT_EQ(tokenizer.encode(" Rumpelstiltskin", false).size(), 1U);
    json file = fixture_json("llama3");
    file["model"]["ignore_merges"] = false;
    EXPECT_GT(opened(file).encode(" Rumpelstiltskin", false).size(), 1U);
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8WithTheOffset) {
    const Tokenizer tokenizer = Tokenizer::open(fixture("gpt2"));
    for (const std::string bad : {"ab\xff", "ab\xc3", "ab\xed\xa0\x80", "ab\xc0\x80", "ab\xf4\x90\x80\x80"}) {
        try {
            tokenizer.encode(bad, false);
            ADD_FAILURE() << "accepted " << testing::PrintToString(bad);
        } catch (const std::invalid_argument& error) {
            EXPECT_NE(std::string(error.what()).find("byte 2"), std::string::npos) << error.what();
        }
    }
}

TEST(Tokenizer, ThrowsOnIdsOutsideTheVocabularyAndInItsHoles) {
    json file = fixture_json("gpt2");
    const int size = Tokenizer::open(fixture("gpt2")).size();
    file["added_tokens"].push_back({{"id", size + 10}, {"content", "<far>"}, {"special", false}});
    const Tokenizer tokenizer = opened(file);
    EXPECT_EQ(tokenizer.size(), size + 11);
    EXPECT_EQ(tokenizer.encode("<far>", false), std::vector<TokenId>{size + 10});
    for (const TokenId id : {-1, size, size + 9, size + 11, 2'000'000'000}) {
        EXPECT_THROW(tokenizer.decode(std::vector<TokenId>{id}, false), std::out_of_range) << id;
        EXPECT_THROW(tokenizer.token_bytes(id), std::out_of_range) << id;
        EXPECT_THROW(tokenizer.is_special(id), std::out_of_range) << id;
    }
}

TEST(Tokenizer, StripsAndMatchesWholeWordsAsAddedTokensAsk) {
    json file = fixture_json("gpt2");
    const int first = Tokenizer::open(fixture("gpt2")).size();
    file["added_tokens"].push_back({{"id", first}, {"content", "<both>"}, {"lstrip", true}, {"rstrip", true}});
    file["added_tokens"].push_back({{"id", first + 1}, {"content", "<word>"}, {"single_word", true}});
    file["added_tokens"].push_back({{"id", first + 2}, {"content", "<word><word>"}});
    const Tokenizer tokenizer = opened(file);
    const auto a = tokenizer.encode("a", false).at(0), b = tokenizer.encode("b", false).at(0);
    EXPECT_EQ(tokenizer.encode("a \t<both> \n b", false), (std::vector<TokenId>{a, first, b}));
    EXPECT_EQ(tokenizer.encode(".<word>.", false).at(1), first + 1);
    EXPECT_GT(tokenizer.encode("a<word>", false).size(), 2U);
    EXPECT_EQ(tokenizer.encode("a<word><word>", false), (std::vector<TokenId>{a, first + 2}));
}

TEST(Tokenizer, MergesUnderANfcNormalizerAreTheSameForEquivalentText) {
    const Tokenizer tokenizer = Tokenizer::open(fixture("qwen2"));
    EXPECT_EQ(tokenizer.encode("caf\u00e9 \uac00", false), tokenizer.encode("cafe\u0301 \u1100\u1161", false));
    const Tokenizer plain = Tokenizer::open(fixture("gpt2"));
    EXPECT_NE(plain.encode("caf\u00e9", false), plain.encode("cafe\u0301", false));
}

TEST(Tokenizer, FingerprintFollowsScores) {
    json file = fixture_json("t5-new");
    const std::uint64_t fingerprint = opened(file).fingerprint();
    EXPECT_EQ(Tokenizer::open(fixture("t5-new")).fingerprint(), fingerprint);
    EXPECT_EQ(Tokenizer::open(fixture("t5-new")).kind(), "Unigram");
    file["model"]["vocab"][100][1] = file["model"]["vocab"][100][1].get<double>() + 0.5;
    EXPECT_NE(opened(file).fingerprint(), fingerprint);
}

TEST(Tokenizer, FingerprintFollowsTokensAndMergesOnly) {
    json file = fixture_json("gpt2");
    const std::uint64_t fingerprint = opened(file).fingerprint();
    json other = file;
    other["padding"] = nullptr;
    EXPECT_EQ(opened(other).fingerprint(), fingerprint);
    std::swap(other["model"]["merges"][0], other["model"]["merges"][1]);
    EXPECT_NE(opened(other).fingerprint(), fingerprint);
    other = file;
    std::swap(other["model"]["vocab"]["a"], other["model"]["vocab"]["b"]);
    EXPECT_NE(opened(other).fingerprint(), fingerprint);
}

TEST(Tokenizer, TakesTimeInProportionToLongRuns) {
    // A quadratic step would take tens of seconds on any of these.
    constexpr std::size_t kBytes = 300'000;
    for (const std::string family : kFamilies) {
        const Tokenizer tokenizer = Tokenizer::open(fixture(family));
        for (const std::string unit :
             {" ", "a", "\n", "'", "7", "<", " \n", "\u0301", "\u0316\u0301", "\u00a0", "e\u0301"}) {
            const std::string text = "x" + repeated(unit, kBytes / unit.size()) + "x";
            std::vector<TokenId> ids;
            EXPECT_LT(seconds_of([&] { ids = tokenizer.encode(text, false); }), 8.0) << family << " " << unit;
            const bool keeps_all = family == "gpt2" || family == "llama3";
            EXPECT_EQ(!keeps_all || tokenizer.decode(ids, false) == text, true) << unit;
            EXPECT_LT(seconds_of([&] { tokenizer.decode(ids, false); }), 8.0) << family << " " << unit;
        }
    }
}

TEST(StreamDecoder, GivesPiecesThatAreWholeCharactersAndMakeUpTheText) {
    std::mt19937 random(3);
    for (const std::string family : kFamilies) {
        const Tokenizer tokenizer = Tokenizer::open(fixture(family));
        for (int round = 0; round < 60; ++round) {
            std::vector<TokenId> ids; // random ids are mostly broken UTF-8
            for (int i = 0; i < 40; ++i)
                ids.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(tokenizer.size())));
            for (const bool skip : {false, true}) {
                StreamDecoder decoder(tokenizer, skip);
                std::string text;
                for (const TokenId id : ids) {
                    const std::string piece = decoder.push(id);
                    EXPECT_EQ(first_invalid_utf8(piece), std::string::npos);
                    text += piece;
                }
                text += decoder.finish();
                EXPECT_EQ(text, tokenizer.decode(ids, skip)) << family;
                EXPECT_EQ(decoder.finish(), "");
            }
        }
    }
}

TEST(StreamDecoder, DropsTheFirstSpaceOnceAndHandsOutWordsAsTheyCome) {
    const Tokenizer tokenizer = Tokenizer::open(fixture("llama2"));
    const auto ids = tokenizer.encode("the the", false);
    ASSERT_EQ(ids.size(), 2U);
    StreamDecoder decoder(tokenizer, true);
    EXPECT_EQ(decoder.push(ids[0]), "the");
    EXPECT_EQ(decoder.push(ids[1]), " the");
    EXPECT_EQ(decoder.finish(), "");
    // A continuation alone: its first space goes too, as the reference's decode has it.
    EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{ids[1]}, true), "the");
}

TEST(StreamDecoder, HoldsBackARunOfByteTokensUntilItIsCertain) {
    const Tokenizer tokenizer = Tokenizer::open(fixture("llama2"));
    const auto ids = tokenizer.encode("\U0001F9EC\u4e01!", false); // ▁, four bytes, three bytes, !
    ASSERT_EQ(ids.size(), 9U);
    StreamDecoder decoder(tokenizer, true);
    for (std::size_t i = 0; i < 8; ++i)
        EXPECT_EQ(decoder.push(ids[i]), "") << i;
    EXPECT_EQ(decoder.push(ids[8]), "\U0001F9EC\u4e01!");
    const std::vector<TokenId> torn(ids.begin() + 1, ids.begin() + 4); // not UTF-8 together: a U+FFFD each
    EXPECT_EQ(tokenizer.decode(torn, true), "\uFFFD\uFFFD\uFFFD");
    EXPECT_EQ(tokenizer.token_bytes(ids[1]), "\xf0");
    EXPECT_EQ(tokenizer.token(ids[1]), "<0xF0>");
}

TEST(StreamDecoder, HoldsBackAnUnfinishedCharacterAndReplacesItAtTheEnd) {
    const Tokenizer tokenizer = Tokenizer::open(fixture("gpt2"));
    const auto ids = tokenizer.encode("\U0001F9EC", false); // not in the training text: several tokens
    ASSERT_GT(ids.size(), 1U);
    StreamDecoder decoder(tokenizer, false);
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
        EXPECT_EQ(decoder.push(ids[i]), "");
    EXPECT_EQ(decoder.push(ids.back()), "\U0001F9EC");
    EXPECT_EQ(decoder.push(ids.front()), "");
    EXPECT_EQ(decoder.finish(), "\uFFFD");
}

TEST(Utf8, ReplacesEachMaximalPartOfAnInvalidSequence) {
    const std::pair<std::string, std::string> cases[] = {
        {"a\xffz", "a\uFFFDz"},
        {"\xe2\x82z", "\uFFFDz"},
        {"\xf0\x9f\x98z", "\uFFFDz"},
        {"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
        {"\xc0\xaf", "\uFFFD\uFFFD"},
        {"\xf4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
        {"\xe2\x82\xe2\x82\xac", "\uFFFD\u20AC"},
        {"\xf0\x9f", "\uFFFD"},
    };
    for (const auto& [bytes, expected] : cases) {
        std::string text;
        EXPECT_EQ(append_lossy(bytes, true, text), bytes.size());
        EXPECT_EQ(text, expected) << testing::PrintToString(bytes);
    }
}

TEST(ByteLevel, WritesEveryByteAsOneCharacterAndBack) {
    EXPECT_EQ(to_byte_level(" \n\xe9"), "\u0120\u010a\u00e9");
    std::string all;
    for (int byte = 0; byte < 256; ++byte)
        all.push_back(static_cast<char>(byte));
    EXPECT_EQ(from_byte_level(to_byte_level(all)), all);
    EXPECT_EQ(from_byte_level("a b"), std::nullopt); // the alphabet writes a space otherwise
}

TEST(Nfc, ComposesOrdersMarksAndLeavesTheRest) {
    EXPECT_EQ(composed("e\u0301"), "\u00e9");
    EXPECT_EQ(composed("\u212b\u1100\u1161\u11a8"), "\u00c5\uac01");
    EXPECT_EQ(composed("a\u0301\u0316"), "\u00e1\u0316");
    EXPECT_EQ(composed("q\u0301\u0316"), "q\u0316\u0301");
    EXPECT_EQ(composed("\u0958"), "\u0915\u093c"); // excluded from composition
    EXPECT_EQ(composed("plain \u00e9\ufb01"), "plain \u00e9\ufb01");
}

TEST(WordSplitter, FindsTheWordsOfTheGeneralEngine) {
    std::mt19937 random(11);
    const auto classes = std::make_shared<const CharClasses>();
    for (const WordPattern pattern : {WordPattern::gpt2, WordPattern::llama3, WordPattern::qwen2}) {
        const Regex regex{std::string(expression_of(pattern))};
        const auto expect_equal = [&](const std::string& text) {
            std::vector<Span> words;
            split_words(pattern, *classes, text, {0, text.size()}, words);
            EXPECT_EQ(words == regex.find_all(text), true) << testing::PrintToString(text);
        };
        for (std::size_t round = 0; round < 4000; ++round)
            expect_equal(random_text(random, 1 + round % 40));
        // Every character that the engine's Unicode knows, between others; where it is older than the classes
        // (see CharClasses), the newer letters and numbers are passed over.
        const Regex letter(R"(\A\p{L}\z)"), number(R"(\A\p{N}\z)");
        for (char32_t c = 0; c < 0x110000; c = c == 0xD7FF ? 0xE000 : c + 1) {
            if (c > 0x3000 && c % 7 != static_cast<char32_t>(pattern)) continue; // enough of the large planes
            std::string one;
            append_utf8(c, one);
            if (classes->is(c, CharClasses::letter) && letter.find_all(one).empty()) continue;
            if (classes->is(c, CharClasses::number) && number.find_all(one).empty()) continue;
            expect_equal("'" + one + " " + one + one + "a1" + one + "." + one + "\n");
        }
    }
}

TEST(PreTokenizer, SplitsWithEachBehavior) {
    const auto classes = std::make_shared<const CharClasses>();
    const std::pair<const char*, std::vector<std::string>> cases[] = {
        {"Removed", {"the", "final", "countdown"}},
        {"Isolated", {"the", "-", "final", "-", "-", "countdown"}},
        {"MergedWithPrevious", {"the-", "final-", "-", "countdown"}},
        {"MergedWithNext", {"the", "-final", "-", "-countdown"}},
        {"Contiguous", {"the", "-", "final", "--", "countdown"}},
    };
    for (const char* kind : {"String", "Regex"}) {
        for (const auto& [behavior, expected] : cases) {
            const json sequence = {
                {"type", "Sequence"},
                {"pretokenizers",
                 {{{"type", "Split"}, {"pattern", {{kind, "-"}}}, {"behavior", behavior}, {"invert", false}},
                  {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
            const Pieces pieces = PreTokenizer::from_json(sequence, classes).split("the-final--countdown", true);
            std::vector<std::string> words;
            for (const Span& span : pieces.spans)
                words.push_back(pieces.text.substr(span.begin, span.end - span.begin));
            EXPECT_EQ(words, expected) << kind << " " << behavior;
        }
    }
}

} // namespace tokenizer_test
} // namespace entrodraft::model
