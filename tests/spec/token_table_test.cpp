// Unigram and bigram tables: counting, files, faults of bad files, and the distributions.
#include "model/files/bad_file.h"
#include "spec/draft/token_table.h"
#include "spec/verify/random.h"
#include "tests/model/temporary_directory.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace token_table_test {

using namespace entrodraft;
using namespace entrodraft::spec;
using Tokens = std::vector<TokenId>;

constexpr std::uint64_t kFingerprint = 0x1122334455667788;
const Tokens kText = {2, 0, 2, 0, 3, 3, 2, 0, 3};

TokenCounts counted(const Tokens& text, int vocab_size) {
    TokenCounter counter(vocab_size, kFingerprint);
    counter.add(text);
    return counter.take();
}

std::string bytes_of(const TokenCounts& counts) {
    std::string bytes;
    write_token_counts(counts, [&](std::span<const std::byte> part) {
        bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    });
    return bytes;
}

TokenCounts parse(const std::string& bytes) {
    return parse_token_counts(std::as_bytes(std::span(bytes)), "some.table");
}

std::string refusal(const std::function<void()>& call) {
    try {
        call();
    } catch (const model::BadFile& error) {
        return error.what();
    }
    return "accepted";
}

void expect_refused(const std::string& bytes, const std::string& part) {
    const std::string message = refusal([&] { parse(bytes); });
    EXPECT_EQ(message.find("some.table: "), 0u) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("entrodraft build-table"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

// The file with the right checksum, by the sizes in its own header.
std::string sealed(std::string bytes) {
    std::uint32_t vocab = 0;
    std::memcpy(&vocab, &bytes[12], 4);
    std::uint64_t hash = hash_bytes(bytes.data(), 40);
    const std::size_t n = std::size_t{4} * vocab;
    if (bytes.size() < 48 + 2 * n) return bytes;
    hash = hash_bytes(&bytes[48], n, hash);
    hash = hash_bytes(bytes.data() + 48 + n, n, hash);
    hash = hash_bytes(bytes.data() + 48 + 2 * n, bytes.size() - 48 - 2 * n, hash);
    std::memcpy(&bytes[40], &hash, 8);
    return bytes;
}

void expect_counts_of(const TokenCounts& counts, const Tokens& text) {
    std::map<TokenId, std::uint32_t> tokens;
    std::map<std::pair<TokenId, TokenId>, std::uint32_t> pairs;
    for (std::size_t i = 0; i < text.size(); ++i) {
        ++tokens[text[i]];
        if (i > 0) ++pairs[{text[i - 1], text[i]}];
    }
    EXPECT_EQ(counts.total, text.size());
    ASSERT_EQ(counts.followers.size(), pairs.size());
    auto expected = pairs.begin();
    for (TokenId y = 0; y < counts.vocab_size; ++y) {
        const auto at = static_cast<std::size_t>(y);
        EXPECT_EQ(counts.unigrams[at], tokens[y]);
        for (std::uint64_t i = counts.row_starts[at]; i < counts.row_starts[at + 1]; ++i, ++expected) {
            ASSERT_EQ(expected->first, std::pair(y, counts.followers[i].token));
            ASSERT_EQ(expected->second, counts.followers[i].count);
        }
    }
    EXPECT_TRUE(expected == pairs.end());
}

TEST(TokenCounter, CountsTokensAndPairsHoweverTheTextIsCut) {
    std::mt19937 random(1);
    for (const int vocab : {1, 2, 7, 300}) {
        Tokens text(2000);
        for (TokenId& token : text)
            token = static_cast<TokenId>(random() % static_cast<unsigned>(vocab));
        TokenCounter counter(vocab, kFingerprint);
        for (std::size_t from = 0, n = 0; from < text.size(); from += n) {
            n = std::min<std::size_t>(random() % 40, text.size() - from);
            counter.add(std::span(text).subspan(from, n));
        }
        expect_counts_of(counter.take(), text);
    }
    Tokens many(1200000); // more than are gathered before they are sorted in
    for (TokenId& token : many)
        token = static_cast<TokenId>(random() % 12 * (random() % 20));
    std::fill(many.end() - 100000, many.end(), 5); // the last pairs are no longer the highest ones
    expect_counts_of(counted(many, 1200), many);
}

TEST(TokenCounter, RefusesWhatItCannotCount) {
    EXPECT_THROW(TokenCounter(0, kFingerprint), std::invalid_argument);
    TokenCounter counter(4, kFingerprint, 2);
    EXPECT_THROW(counter.add(Tokens{4}), std::out_of_range);
    EXPECT_THROW(counter.add(Tokens{-1}), std::out_of_range);
    counter.add(Tokens{0, 1, 0, 1, 2});
    EXPECT_THROW(counter.take(), std::length_error);
}

TEST(TokenTableFile, IsWhatItsHeaderFileSays) {
    const std::string bytes = bytes_of(counted(kText, 4));
    const auto number = [&](std::size_t at, std::size_t n) {
        std::uint64_t value = 0;
        for (std::size_t i = n; i-- > 0;)
            value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
        return value;
    };
    EXPECT_EQ(bytes.substr(0, 8), "EDTABLE\n");
    EXPECT_EQ(number(8, 4), 1u);
    EXPECT_EQ(number(12, 4), 4u);
    EXPECT_EQ(number(16, 8), kFingerprint);
    EXPECT_EQ(number(24, 8), 9u);
    EXPECT_EQ(number(32, 8), 5u);
    EXPECT_EQ(bytes, sealed(bytes));
    std::vector<std::uint64_t> rest;
    for (std::size_t at = 48; at < bytes.size(); at += 4)
        rest.push_back(number(at, 4));
    EXPECT_EQ(rest, (std::vector<std::uint64_t>{3, 0, 3, 3, /**/ 2, 0, 1, 2, /**/ 2, 1, 3, 2, 0, 3, 2, 1, 3, 1}));
    EXPECT_EQ(bytes.size(), token_counts_bytes(counted(kText, 4)));
}

TEST(TokenTableFile, GivesBackWhatWasCounted) {
    for (const Tokens& text : {kText, Tokens{1}, Tokens{3, 3}}) {
        const TokenCounts counts = parse(bytes_of(counted(text, 4)));
        expect_counts_of(counts, text);
        EXPECT_EQ(counts.fingerprint, kFingerprint);
        EXPECT_EQ(counts.vocab_size, 4);
    }
}

TEST(TokenTableFile, IsRefusedAtEveryLengthButItsOwnAndWithAnyByteChanged) {
    const std::string good = bytes_of(counted(kText, 4));
    for (std::size_t size = 0; size < good.size(); ++size)
        expect_refused(good.substr(0, size), "");
    for (std::size_t more = 1; more < 20; ++more)
        expect_refused(good + std::string(more, '\0'), "do not hold");
    for (std::size_t at = 0; at < good.size(); ++at)
        for (int change = 1; change < 256; ++change) {
            std::string bad = good;
            bad[at] = static_cast<char>(bad[at] ^ change);
            ASSERT_NE(refusal([&] { parse(bad); }), "accepted") << at << " ^ " << change;
        }
    expect_refused("hello", "is not a token table");
    std::string later = good;
    later[8] = 2;
    expect_refused(later, "version 2");
}

// Sizes that overflow or ask for much memory, with a right checksum.
TEST(TokenTableFile, IsRefusedWhereItsHeaderLies) {
    const std::string good = bytes_of(counted(kText, 4));
    for (const auto& [at, n] : std::vector<std::pair<std::size_t, std::size_t>>{{12, 4}, {32, 8}})
        for (const std::uint64_t value : std::initializer_list<std::uint64_t>{
                 0, 3, 5, 6, 0x7fffffff, 0x80000000, 0xffffffff, std::uint64_t{1} << 61, std::uint64_t(-1),
                 std::uint64_t(-3), (std::uint64_t{1} << 61) + 5}) {
            std::uint64_t old = 0;
            std::memcpy(&old, &good[at], n);
            if (value == old || (n == 4 && value >> 32 != 0)) continue;
            std::string bad = good;
            std::memcpy(&bad[at], &value, n);
            expect_refused(bad, "do not hold");
        }
    std::string empty = good.substr(0, 48);
    std::fill(empty.begin() + 12, empty.end(), '\0');
    expect_refused(sealed(empty), "a vocabulary of 0 tokens");
}

TEST(TokenTableFile, IsRefusedWhereItsCountsDisagree) {
    const auto expect = [](const std::string& part, const std::function<void(TokenCounts&)>& change) {
        TokenCounts counts = counted(kText, 4);
        change(counts);
        expect_refused(bytes_of(counts), part);
    };
    expect("outside the vocabulary", [](TokenCounts& c) { c.followers[1].token = 4; });
    expect("outside the vocabulary", [](TokenCounts& c) { c.followers[0].token = -1; });
    expect("out of order", [](TokenCounts& c) { std::swap(c.followers[0], c.followers[1]); });
    expect("out of order", [](TokenCounts& c) { c.followers[1].token = c.followers[0].token; });
    expect("counts nothing", [](TokenCounts& c) { c.followers[1].count = 0; });
    expect("followed more often", [](TokenCounts& c) { c.followers[1].count += 1; });
    expect("the tokens' counts do not add up", [](TokenCounts& c) { c.total += 1; });
    expect("the tokens' counts do not add up", [](TokenCounts& c) { c.unigrams[1] += 1; });
    expect("the pairs' counts do not add up", [](TokenCounts& c) { c.followers[1].count -= 1; });
    expect("the pairs' counts do not add up", [](TokenCounts& c) { ++c.total, ++c.unigrams[1]; });
    expect("rows do not add up", [](TokenCounts& c) { c.row_starts[4] -= 1; });
    expect("rows do not add up",
           [](TokenCounts& c) { c.row_starts[1] += std::uint64_t{1} << 32, c.row_starts[4] -= 1; });
    expect("the tokens' counts do not add up", [](TokenCounts& c) {
        c.unigrams.assign(4, 0);
        c.row_starts.assign(5, 0);
        c.followers.clear();
        c.total = 0;
    });
}

TEST(TokenTableFile, IsNeverMisreadHoweverItsBytesAreChanged) {
    const std::string good = bytes_of(counted(kText, 4));
    std::mt19937 random(2);
    int accepted = 0;
    for (int round = 0; round < 20000; ++round) {
        std::string bytes = good;
        for (auto changes = 1 + random() % 3; changes > 0; --changes)
            bytes[12 + random() % (bytes.size() - 12)] = static_cast<char>(random() % (round % 2 == 0 ? 4 : 256));
        try {
            const TokenCounts counts = parse(sealed(bytes));
            ++accepted;
            std::uint64_t total = 0, pairs = 0;
            for (const std::uint32_t count : counts.unigrams)
                total += count;
            for (const Follower& follower : counts.followers)
                pairs += follower.count;
            ASSERT_EQ(total, counts.total);
            ASSERT_EQ(pairs + 1, counts.total);
            ASSERT_EQ(counts.row_starts.back(), counts.followers.size());
        } catch (const model::BadFile&) {
        }
    }
    EXPECT_GT(accepted, 0) << "as with another fingerprint";
    EXPECT_LT(accepted, 10000);
}

TEST(TokenTable, GivesTheInterpolatedProbabilities) {
    const TokenTable table(counted(kText, 4));
    const double b = TokenTable::kPrior;
    const std::vector<double> q1 = {4 / 13.0, 1 / 13.0, 4 / 13.0, 4 / 13.0};
    std::vector<float> row(4);
    table.row(1, -1, row);
    for (std::size_t x = 0; x < 4; ++x)
        EXPECT_NEAR(std::exp(row[x]), q1[x], 1e-6);
    const double pairs[4][4] = {{0, 0, 1, 2}, {0, 0, 0, 0}, {3, 0, 0, 0}, {0, 0, 1, 1}};
    for (TokenId y = 0; y < 4; ++y) {
        double sum = 0;
        table.row(2, y, row);
        for (const double count : pairs[y])
            sum += count;
        for (std::size_t x = 0; x < 4; ++x)
            EXPECT_NEAR(std::exp(row[x]), (pairs[y][x] + b * q1[x]) / (sum + b), 1e-6) << y << " " << x;
    }
}

TEST(TokenTable, GivesEveryTokenSomeProbabilityAndOneInAll) {
    std::mt19937 random(3);
    Tokens text(30000);
    for (TokenId& token : text)
        token = static_cast<TokenId>(random() % 50 * (random() % 20));
    const TokenTable table(counted(text, 1000));
    std::vector<float> row(1000);
    for (TokenId y = -1; y < 1000; ++y) {
        table.row(y < 0 ? 1 : 2, y, row);
        double sum = 0;
        for (const float log_probability : row) {
            ASSERT_TRUE(std::isfinite(log_probability));
            sum += std::exp(static_cast<double>(log_probability));
        }
        ASSERT_NEAR(sum, 1, 1e-5) << y;
    }
}

TEST(TokenTable, FillsRowsOfOtherLengthsThanItsVocabulary) {
    const TokenTable table(counted(kText, 4));
    std::vector<float> row(4), shorter(4, 7.0f), longer(6);
    for (const int order : {1, 2}) {
        table.row(order, 0, row);
        table.row(order, 0, std::span(shorter).first(3));
        table.row(order, 0, longer);
        EXPECT_TRUE(std::equal(shorter.begin(), shorter.end() - 1, row.begin()));
        EXPECT_EQ(shorter[3], 7) << "behind the row";
        EXPECT_TRUE(std::equal(row.begin(), row.end(), longer.begin()));
        EXPECT_EQ(longer[4], -std::numeric_limits<float>::infinity());
        EXPECT_EQ(longer[5], -std::numeric_limits<float>::infinity());
    }
    EXPECT_THROW(table.row(0, 0, row), std::invalid_argument);
    EXPECT_THROW(table.row(3, 0, row), std::invalid_argument);
    EXPECT_THROW(table.row(2, -1, row), std::out_of_range);
    EXPECT_THROW(table.row(2, 4, row), std::out_of_range);
}

TEST(TokenTable, OpensOnlyAFileOfTheSameVocabularyAndTokenizer) {
    const TemporaryDirectory directory;
    const std::string file = directory.write("a.table", bytes_of(counted(kText, 4))).string();
    EXPECT_EQ(TokenTable::open(file, 4, kFingerprint).vocab_size(), 4);
    const auto expect = [&](const std::string& path, int vocab, std::uint64_t fingerprint, const std::string& part) {
        const std::string message = refusal([&] { TokenTable::open(path, vocab, fingerprint); });
        EXPECT_EQ(message.find(path + ": "), 0u) << message;
        EXPECT_NE(message.find(part), std::string::npos) << message;
    };
    const std::string remedy = "make it again: entrodraft build-table --model DIR --input TEXT --output " + file;
    expect(file, 5, kFingerprint, "4 tokens, and the model's tokenizer has 5; " + remedy);
    expect(file, 4, kFingerprint + 1, "another tokenizer than the model's; " + remedy);
    expect(file + ".none", 4, kFingerprint, "cannot be opened");
    expect(directory.path().string(), 4, kFingerprint, "not a regular file");
    expect(directory.write("empty", "").string(), 4, kFingerprint, "too few");
    expect(directory.write("text", "It was a dark and stormy night; the rain fell in torrents.").string(), 4,
           kFingerprint, "is not a token table");
}

} // namespace token_table_test
