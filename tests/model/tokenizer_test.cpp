// The tokenizer against ids written by the reference (tests/model/tokenizers, made by tokenizer_differential.py),
// its fast paths against the general engine, its time on long runs, and its refusals of broken files.
#include "entrodraft/model/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "entrodraft/model/bad_file.h"
#include "entrodraft/model/byte_level.h"
#include "entrodraft/model/normalizer.h"
#include "entrodraft/model/pre_tokenizer.h"
#include "entrodraft/model/utf8.h"
#include "entrodraft/model/word_splitter.h"

namespace entrodraft::model {
namespace {

using nlohmann::json;

const char* const kFamilies[] = {"gpt2", "llama3", "qwen2", "neox"};

std::filesystem::path fixture(const std::string& family) {
    return std::filesystem::path(ENTRODRAFT_SOURCE_DIR) / "tests/model/tokenizers" / family;
}

json read(const std::filesystem::path& file) {
    std::ifstream in(file);
    return json::parse(in);
}

std::string repeated(const std::string& unit, std::size_t n) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i)
        text += unit;
    return text;
}

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A directory with one tokenizer.json, removed at the end.
class TemporaryTokenizer {
  public:
    explicit TemporaryTokenizer(const std::string& text) {
        const auto* test = testing::UnitTest::GetInstance()->current_test_info();
        directory_ = std::filesystem::temp_directory_path() /
                     (std::string("entrodraft-") + test->name() + "-" + std::to_string(std::random_device{}()));
        std::filesystem::create_directories(directory_);
        std::ofstream(directory_ / "tokenizer.json") << text;
    }
    TemporaryTokenizer(const TemporaryTokenizer&) = delete;
    TemporaryTokenizer& operator=(const TemporaryTokenizer&) = delete;
    ~TemporaryTokenizer() { std::filesystem::remove_all(directory_); }
    Tokenizer open() const { return Tokenizer::open(directory_); }

  private:
    std::filesystem::path directory_;
};

Tokenizer opened(const json& file) {
    return TemporaryTokenizer(file.dump()).open();
}

// The message with which a tokenizer.json is refused, or "" where it is accepted.
std::string refusal_of_text(const std::string& text) {
    try {
        TemporaryTokenizer(text).open();
    } catch (const BadFile& error) {
        return error.what();
    }
    return "";
}
std::string refusal(const json& file) {
    return refusal_of_text(file.dump());
}

void expect_mentions(const std::string& message, const std::string& part) {
    EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' does not say '" << part << "'";
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
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
        const json cases = read(fixture(family) / "expected.json");
        EXPECT_GT(cases.size(), 100U);
        for (const json& one : cases) {
            const auto ids = tokenizer.encode(one["text"].get<std::string>(), true);
            EXPECT_EQ(json(ids), one["ids"]) << family << " " << one["text"];
            EXPECT_EQ(tokenizer.decode(ids, true), one["decoded"].get<std::string>()) << family;
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
    json file = read(fixture("llama3") / "tokenizer.json");
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
    json file = read(fixture("gpt2") / "tokenizer.json");
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
    json file = read(fixture("gpt2") / "tokenizer.json");
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

TEST(Tokenizer, FingerprintFollowsTokensAndMergesOnly) {
    json file = read(fixture("gpt2") / "tokenizer.json");
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
    // A quadratic step would take minutes on any of these.
    constexpr std::size_t kMegabyte = 1'000'000;
    for (const std::string family : kFamilies) {
        const Tokenizer tokenizer = Tokenizer::open(fixture(family));
        for (const std::string unit :
             {" ", "a", "\n", "'", "7", "<", " \n", "\u0301", "\u0316\u0301", "\u00a0", "e\u0301"}) {
            const std::string text = "x" + repeated(unit, kMegabyte / unit.size()) + "x";
            std::vector<TokenId> ids;
            EXPECT_LT(seconds_of([&] { ids = tokenizer.encode(text, false); }), 20.0) << family << " " << unit;
            EXPECT_EQ(tokenizer.decode(ids, false), family == "gpt2" || family == "llama3" ? text : nfc(text));
        }
    }
}

TEST(StreamDecoder, GivesPiecesThatAreWholeCharactersAndMakeUpTheText) {
    std::mt19937 random(3);
    const Tokenizer tokenizer = Tokenizer::open(fixture("llama3"));
    std::string unfinished;
    for (int round = 0; round < 300; ++round) {
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
            EXPECT_EQ(text, tokenizer.decode(ids, skip));
            EXPECT_EQ(decoder.finish(), "");
        }
    }
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
    EXPECT_EQ(nfc("e\u0301"), "\u00e9");
    EXPECT_EQ(nfc("\u212b\u1100\u1161\u11a8"), "\u00c5\uac01");
    EXPECT_EQ(nfc("a\u0301\u0316"), "\u00e1\u0316");
    EXPECT_EQ(nfc("q\u0301\u0316"), "q\u0316\u0301");
    EXPECT_EQ(nfc("\u0958"), "\u0915\u093c"); // excluded from composition
    EXPECT_EQ(nfc("plain \u00e9\ufb01"), "plain \u00e9\ufb01");
}

TEST(WordSplitter, FindsTheWordsOfTheGeneralEngine) {
    std::mt19937 random(11);
    const auto classes = std::make_shared<const CharClasses>();
    for (const WordPattern pattern : {WordPattern::gpt2, WordPattern::llama3, WordPattern::qwen2}) {
        const WordSplitter splitter(pattern, classes);
        const Regex regex{std::string(expression_of(pattern))};
        const auto expect_equal = [&](const std::string& text) {
            std::vector<Span> words;
            splitter.split(text, {0, text.size()}, words);
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
            const Pieces pieces = PreTokenizer::from_json(sequence, classes).split("the-final--countdown");
            std::vector<std::string> words;
            for (const Span& span : pieces.spans)
                words.push_back(pieces.text.substr(span.begin, span.end - span.begin));
            EXPECT_EQ(words, expected) << kind << " " << behavior;
        }
    }
}

TEST(TokenizerFile, RefusesComponentsItDoesNotKnowByName) {
    const json good = read(fixture("gpt2") / "tokenizer.json");
    EXPECT_EQ(refusal(good), "");
    for (const char* component : {"normalizer", "pre_tokenizer", "model", "post_processor", "decoder"}) {
        json bad = good;
        bad[component] = {{"type", "Metaspace"}};
        expect_mentions(refusal(bad), std::string(component) + " type 'Metaspace' is not supported yet");
        bad[component] = {{"type", 7}};
        expect_mentions(refusal(bad), component);
    }
    json bad = good;
    for (const char* option : {"byte_fallback", "fuse_unk"}) {
        bad = good;
        bad["model"][option] = true;
        expect_mentions(refusal(bad), option);
    }
    for (const char* option : {"continuing_subword_prefix", "end_of_word_suffix"}) {
        bad = good;
        bad["model"][option] = "";
        EXPECT_EQ(refusal(bad), "");
        bad["model"][option] = "##";
        expect_mentions(refusal(bad), option);
    }
    bad = good;
    bad["model"]["dropout"] = 0.1;
    expect_mentions(refusal(bad), "dropout");
    bad = good;
    bad["pre_tokenizer"] = nullptr;
    expect_mentions(refusal(bad), "pre_tokenizer");
    bad["decoder"] = nullptr;
    expect_mentions(refusal(bad), "decoder");
}

TEST(TokenizerFile, RefusesBrokenVocabulariesAndMerges) {
    const json good = read(fixture("gpt2") / "tokenizer.json");
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
    bad["model"]["vocab"].erase("Q");
    expect_mentions(refusal(bad), "'Q'");
    for (const char* part : {"model", "decoder", "pre_tokenizer"}) {
        bad = good;
        bad.erase(part);
        expect_mentions(refusal(bad), part);
    }
}

TEST(TokenizerFile, RefusesDuplicateVocabularyKeys) {
    std::string text = read(fixture("gpt2") / "tokenizer.json").dump();
    text.insert(text.find("\"vocab\":{") + 9, "\"Q\":4000,");
    EXPECT_NE(refusal_of_text(text), "");
}

TEST(TokenizerFile, RefusesRegularExpressionsThatDoNotCompile) {
    json bad = read(fixture("llama3") / "tokenizer.json");
    bad["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(unclosed";
    expect_mentions(refusal(bad), "'(unclosed' does not compile");
    bad["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", ""}};
    expect_mentions(refusal(bad), "empty");
}

TEST(TokenizerFile, RefusesTemplatesThatNameUnknownTokens) {
    json bad = read(fixture("llama3") / "tokenizer.json");
    json& processor = bad["post_processor"]["processors"][1];
    processor["special_tokens"]["<|begin_of_text|>"]["ids"][0] = 3'999'999;
    expect_mentions(refusal(bad), "3999999");
    processor["special_tokens"] = json::object();
    expect_mentions(refusal(bad), "<|begin_of_text|>");
    processor["single"][1]["Sequence"]["id"] = "B";
    processor["single"].erase(0);
    expect_mentions(refusal(bad), "other than A");
}

} // namespace
} // namespace entrodraft::model
