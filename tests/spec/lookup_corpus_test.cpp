// Suffix arrays compared with sorting, and corpora with a search of every place. Files of build-corpus are read back;
// files with any other bytes are refused.
#include "spec/draft/lookup_corpus.h"

#include "model/files/bad_file.h"
#include "spec/draft/suffix_array.h"
#include "spec/verify/random.h"
#include "tests/model/temporary_directory.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace lookup_corpus_test {

using namespace entrodraft;
using namespace entrodraft::spec;
using Tokens = std::vector<TokenId>;

Tokens random_tokens(std::mt19937& random, int kinds, std::size_t size) {
    Tokens tokens(size);
    for (TokenId& token : tokens)
        token = static_cast<TokenId>(random() % static_cast<unsigned>(kinds));
    return tokens;
}

void expect_in_order(const Tokens& tokens, TokenId largest) {
    std::vector<std::uint32_t> sorted(tokens.size());
    std::iota(sorted.begin(), sorted.end(), 0U);
    std::ranges::sort(sorted, [&](std::uint32_t a, std::uint32_t b) {
        return std::lexicographical_compare(tokens.begin() + a, tokens.end(), tokens.begin() + b, tokens.end());
    });
    ASSERT_EQ(suffix_array(tokens, largest), sorted) << testing::PrintToString(tokens);
}

TEST(SuffixArray, IsWhatSortingGives) {
    std::mt19937 random(1);
    expect_in_order({}, 0);
    for (int round = 0; round < 4000; ++round) {
        const int kinds = 1 + round % 7;
        expect_in_order(random_tokens(random, kinds, 1 + random() % 40), kinds + round % 3);
        if (HasFatalFailure()) return;
    }
    for (const int kinds : {2, 50, 5000})
        expect_in_order(random_tokens(random, kinds, 3000), kinds);
    Tokens word = {1}, before = {0}; // Fibonacci's: the most repetitive text without a period
    while (word.size() < 1000) {
        Tokens next = word;
        next.insert(next.end(), before.begin(), before.end());
        before = std::exchange(word, next);
    }
    expect_in_order(word, 1);
    expect_in_order(Tokens(500, 3), 3);
}

// The longest end of `text` in `corpus` that a token below `end` follows, by a search of every place.
int longest_in(const Tokens& corpus, const Tokens& text, TokenId end) {
    std::size_t best = 0;
    for (std::size_t next = 1; next < corpus.size(); ++next) {
        if (corpus[next] >= end) continue;
        std::size_t length = 0;
        while (length < std::min(next, text.size()) && corpus[next - 1 - length] == text[text.size() - 1 - length])
            ++length;
        best = std::max(best, length);
    }
    return static_cast<int>(best);
}

TEST(LookupCorpus, FindsTheLongestMatchThatGoesOn) {
    std::mt19937 random(2);
    for (int round = 0; round < 2000; ++round) {
        const int kinds = 1 + round % 5;
        Tokens corpus = random_tokens(random, kinds + 1, random() % 80); // `kinds` ends a text
        const LookupCorpus searched(corpus, kinds);
        for (int i = 0; i < 20; ++i) {
            const Tokens text = random_tokens(random, kinds, 1 + random() % 20);
            const int longest = longest_in(corpus, text, kinds), shortest = 1 + i % 3;
            const auto found = searched.match(text, shortest);
            ASSERT_EQ(found ? found->length : 0, longest >= shortest ? longest : 0)
                << testing::PrintToString(corpus) << testing::PrintToString(text);
            if (!found) continue;
            const auto length = static_cast<std::size_t>(found->length);
            ASSERT_TRUE(found->in_corpus && found->next >= length && found->next < corpus.size());
            ASSERT_TRUE(std::equal(text.end() - found->length, text.end(),
                                   corpus.begin() + static_cast<std::ptrdiff_t>(found->next - length)));
            ASSERT_LT(*found->token(0), kinds);
        }
    }
}

TEST(LookupCorpus, GoesOnAsMostOfItsTextsDo) {
    //                          one continuation among three others, and the end of a text
    const LookupCorpus corpus({1, 2, 9, 3, 1, 2, 5, 6, 1, 2, 5, 6, 1, 2, 5, 7, 1, 2, 4, 1, 2}, 9);
    const auto match = corpus.match(Tokens{8, 1, 2}, 1);
    ASSERT_TRUE(match);
    EXPECT_EQ(match->length, 2);
    EXPECT_EQ(match->token(0), 5);
    EXPECT_EQ(match->token(1), 6);
    EXPECT_FALSE(corpus.match(Tokens{1, 2}, 3)) << "shorter than asked for";
    EXPECT_FALSE(corpus.match(Tokens{}, 1));
    EXPECT_FALSE(LookupCorpus({1, 2, 9, 1, 2}, 9).match(Tokens{1, 2}, 1)) << "nothing but ends follow";
}

std::string bytes_of(const LookupCorpus& corpus, std::uint64_t fingerprint) {
    std::string bytes;
    corpus.write(fingerprint, [&](std::span<const std::byte> part) {
        bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    });
    EXPECT_EQ(bytes.size(), corpus.file_bytes());
    return bytes;
}

// Returns the fault of the file; empty: none.
std::string refusal(const std::string& bytes, int vocab_size = 9, std::uint64_t fingerprint = 7) {
    const TemporaryDirectory directory;
    const std::string file = directory.write("x.corpus", bytes).string();
    try {
        const auto corpus = LookupCorpus::open(file, vocab_size, fingerprint);
        EXPECT_TRUE(corpus->match(Tokens{1, 2}, 1));
        return {};
    } catch (const model::BadFile& error) {
        EXPECT_EQ(std::string(error.what()).find(file), 0U) << error.what();
        return error.what();
    }
}

const Tokens kTokens = {1, 2, 3, 9, 1, 2, 4, 9};

TEST(LookupCorpus, ReadsItsFileBackAndRefusesAnyOther) {
    const std::string good = bytes_of(LookupCorpus(kTokens, 9), 7);
    EXPECT_EQ(good.size(), 40 + 8 * kTokens.size());
    EXPECT_EQ(refusal(good), "");
    EXPECT_NE(refusal(good, 8).find("a vocabulary of 9 tokens, and the model's tokenizer has 8"), std::string::npos);
    EXPECT_NE(refusal(good, 9, 8).find("another tokenizer"), std::string::npos);
    EXPECT_NE(refusal("some text\n").find("is not a corpus"), std::string::npos);
    for (std::size_t size = 1; size < good.size(); ++size)
        EXPECT_NE(refusal(good.substr(0, size)), "") << size;
    EXPECT_NE(refusal(good.substr(0, good.size() - 3)).find("cut short"), std::string::npos);
    EXPECT_NE(refusal(good + "x").find("cut short or damaged"), std::string::npos);
    for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
        std::string damaged = good;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
        EXPECT_NE(refusal(damaged), "") << "bit " << bit;
    }
    std::string newer = good;
    newer[8] = 2;
    EXPECT_NE(refusal(newer).find("of version 2"), std::string::npos);
}

// A file with wrong contents but the right checksum. The class cannot make one over other suffixes, so the checksum is
// computed here, as hash_bytes does.
std::string with_word(std::string bytes, std::size_t word, std::uint32_t value) {
    std::memcpy(bytes.data() + 4 * word, &value, 4);
    const std::size_t half = (bytes.size() - 40) / 2;
    std::uint64_t hash = hash_bytes(bytes.data(), 32);
    hash = hash_bytes(bytes.data() + 40, half, hash);
    hash = hash_bytes(bytes.data() + 40 + half, half, hash);
    std::memcpy(bytes.data() + 32, &hash, 8);
    return bytes;
}

TEST(LookupCorpus, WorksOrRefusesWhateverHostileFilesHold) {
    const std::string good = bytes_of(LookupCorpus(kTokens, 9), 7);
    EXPECT_EQ(refusal(with_word(good, 10, 1)), "") << "the checksum is the file's own";
    EXPECT_NE(refusal(with_word(good, 11, 10)).find("token 1 is outside the vocabulary"), std::string::npos);
    EXPECT_NE(refusal(with_word(good, 10, 0xffffffff)).find("token 0 is outside"), std::string::npos);
    EXPECT_NE(refusal(with_word(good, 18, 8)).find("suffix 0 begins behind the last token"), std::string::npos);
    std::mt19937 random(3);
    for (int round = 0; round < 2000; ++round) { // any order of any suffixes: a match is in the text, or none is found
        std::string hostile = good;
        for (std::size_t i = 0; i < kTokens.size(); ++i)
            hostile = with_word(hostile, 18 + i, static_cast<std::uint32_t>(random() % kTokens.size()));
        std::vector<std::uint64_t> aligned(hostile.size() / 8);
        std::memcpy(aligned.data(), hostile.data(), hostile.size());
        const LookupCorpus corpus(std::as_bytes(std::span(aligned)), "hostile", 9, 7);
        for (const Tokens& text : {Tokens{1, 2}, Tokens{9, 1}, Tokens{4}, Tokens{3, 1, 2, 3}})
            if (const auto found = corpus.match(text, 1)) {
                ASSERT_TRUE(found->next < kTokens.size() && kTokens[found->next] < 9);
                ASSERT_EQ(kTokens[found->next - 1], text.back());
            }
    }
}

// As if somebody overwrote a file after its check.
TEST(LookupCorpus, ReadsNothingOutsideOfAFileThatChanges) {
    const std::string good = bytes_of(LookupCorpus(kTokens, 9), 7);
    std::vector<std::uint64_t> aligned((good.size() + 7) / 8);
    std::mt19937 random(5);
    for (int round = 0; round < 2000; ++round) {
        std::memcpy(aligned.data(), good.data(), good.size());
        const auto bytes = std::as_writable_bytes(std::span(aligned)).first(good.size());
        const LookupCorpus corpus(bytes, "changing", 9, 7);
        const std::size_t begin = 40 + random() % (bytes.size() - 40);
        for (std::byte& each : bytes.subspan(begin))
            each = round % 2 == 0 ? std::byte{0xff} : static_cast<std::byte>(random());
        for (const Tokens& text : {Tokens{1, 2}, Tokens{kTokens.front()}, Tokens(kTokens.begin(), kTokens.begin() + 3)})
            if (const auto found = corpus.match(text, 1)) {
                ASSERT_LT(found->next, kTokens.size());
            }
    }
}

TEST(LookupCorpus, TellsItsFilesFromTexts) {
    const TemporaryDirectory directory;
    const auto file = directory.write("a", bytes_of(LookupCorpus(kTokens, 9), 7)), text = directory.write("b", "EDC");
    EXPECT_TRUE(LookupCorpus::is_corpus_file(file));
    EXPECT_FALSE(LookupCorpus::is_corpus_file(text));
    EXPECT_FALSE(LookupCorpus::is_corpus_file(directory.path()));
    EXPECT_FALSE(LookupCorpus::is_corpus_file("-"));
    EXPECT_FALSE(LookupCorpus::is_corpus_file("/nowhere"));
}

} // namespace lookup_corpus_test
