// Logit processing, compared with transformers (golden file) and with its definition over random histories; edge cases.
#include "spec/verify/logit_processing.h"

#include "spec/verify/random.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>

namespace entrodraft::spec {
namespace logit_processing_test {

using Tokens = std::vector<TokenId>;

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// Draws random numbers in order.
class Chance {
  public:
    explicit Chance(std::uint64_t seed) : stream_(seed, 0, Purpose::draft_sample) {}
    int below(int n) { return static_cast<int>(stream_.uniform(next_++) * n); }
    Tokens tokens(int n, int vocab) {
        Tokens result;
        for (int i = 0; i < n; ++i)
            result.push_back(below(vocab));
        return result;
    }
    std::vector<float> logits(int n) {
        std::vector<float> result;
        for (int i = 0; i < n; ++i)
            result.push_back(static_cast<float>(below(513) - 256) / 32);
        return result;
    }

  private:
    RandomStream stream_;
    std::uint64_t next_ = 0;
};

LogitProcessing everything(int no_repeat_ngram_size = 2) {
    LogitProcessing options;
    options.repetition_penalty = 1.3;
    options.presence_penalty = 0.5;
    options.frequency_penalty = -0.25;
    options.no_repeat_ngram_size = no_repeat_ngram_size;
    options.min_new_tokens = 6;
    options.logit_bias = {{3, 1.5F}, {0, -2}};
    options.banned_tokens = {5};
    return options;
}

const Tokens kEos = {2, 7};

std::vector<float> processed(const LogitProcessor& processor, std::vector<float> logits, TokenId first_token = 0) {
    processor.apply(logits, first_token);
    return logits;
}

// The banned tokens among `vocab`.
std::set<TokenId> banned(const LogitProcessor& processor, int vocab) {
    std::vector<float> logits(static_cast<std::size_t>(vocab), 1);
    processor.ban(logits);
    std::set<TokenId> result;
    for (std::size_t i = 0; i < logits.size(); ++i)
        if (logits[i] == kBanned) result.insert(static_cast<TokenId>(i));
    return result;
}

TEST(LogitProcessor, AgreesWithTransformers) {
    std::ifstream in(ENTRODRAFT_SOURCE_DIR "/tests/spec/logit_processing_golden.json");
    const auto golden = nlohmann::json::parse(in);
    ASSERT_EQ(golden["cases"].size(), 40u);
    for (const auto& one : golden["cases"]) {
        const auto& given = one["options"];
        LogitProcessing options;
        options.repetition_penalty = given["repetition_penalty"];
        options.presence_penalty = given["presence_penalty"];
        options.frequency_penalty = given["frequency_penalty"];
        options.no_repeat_ngram_size = given["no_repeat_ngram_size"];
        options.min_new_tokens = given["min_new_tokens"];
        options.logit_bias = given["logit_bias"].get<std::vector<std::pair<TokenId, float>>>();
        options.banned_tokens = given["banned_tokens"].get<Tokens>();
        LogitProcessor processor(options, one["prompt"].get<Tokens>(), golden["eos"].get<Tokens>());
        for (const TokenId token : one["text"])
            processor.push(token);
        const auto found = processed(processor, one["logits"].get<std::vector<float>>());
        for (std::size_t i = 0; i < found.size(); ++i) {
            const auto& expected = one["processed"][i];
            if (expected.is_null())
                EXPECT_EQ(found[i], kBanned) << given << " token " << i;
            else
                EXPECT_NEAR(found[i], expected.get<float>(), 2e-6F) << given << " token " << i;
        }
    }
}

// The definition of no_repeat_ngram_size: looks at every place.
std::set<TokenId> would_repeat(const Tokens& tokens, std::size_t n) {
    std::set<TokenId> result;
    for (std::size_t end = n; end <= tokens.size(); ++end) {
        const auto ngram = tokens.end() - static_cast<std::ptrdiff_t>(tokens.size() - end + n);
        if (std::equal(ngram, ngram + static_cast<std::ptrdiff_t>(n - 1),
                       tokens.end() - static_cast<std::ptrdiff_t>(n - 1)))
            result.insert(tokens[end - 1]);
    }
    return result;
}

TEST(LogitProcessor, BansEveryTokenThatWouldRepeatAnNGram) {
    for (const int n : {1, 2, 3, 5})
        for (std::uint64_t seed = 0; seed < 40; ++seed) {
            Chance chance(seed);
            LogitProcessing options;
            options.no_repeat_ngram_size = n;
            Tokens tokens = chance.tokens(chance.below(6), 4);
            LogitProcessor processor(options, tokens, {});
            for (int i = 0; i < 40; ++i) {
                const TokenId token = chance.below(4);
                processor.push(token);
                tokens.push_back(token);
                ASSERT_EQ(banned(processor, 4), would_repeat(tokens, static_cast<std::size_t>(n)))
                    << "n " << n << " seed " << seed << " after " << tokens.size();
            }
        }
}

TEST(LogitProcessor, AfterPoppingIsAsIfNothingHadBeenPushed) {
    for (const int n : {0, 1, 2, 3})
        for (std::uint64_t seed = 0; seed < 40; ++seed) {
            Chance chance(seed);
            const LogitProcessing options = everything(n);
            const Tokens prompt = chance.tokens(chance.below(8), 9);
            LogitProcessor walked(options, prompt, kEos);
            for (int step = 0; step < 60; ++step) {
                if (walked.new_tokens() > 0 && chance.below(5) < 2)
                    walked.pop(1 + chance.below(walked.new_tokens()));
                else
                    walked.push(chance.below(9));
                LogitProcessor fresh(options, prompt, kEos);
                for (const TokenId token : walked.tokens().subspan(prompt.size()))
                    fresh.push(token);
                const auto logits = chance.logits(9);
                ASSERT_EQ(processed(walked, logits), processed(fresh, logits)) << "n " << n << " seed " << seed;
            }
        }
}

TEST(LogitProcessor, GivesEveryRowOfADraftItsOwnPrefix) {
    Chance chance(3);
    const Tokens prompt = chance.tokens(5, 9), drafted = chance.tokens(6, 9);
    auto rows = chance.logits(9 * 7);
    LogitProcessor together(everything(), prompt, kEos), one_by_one(everything(), prompt, kEos);
    std::vector<float> expected;
    for (std::size_t i = 0; i < 7; ++i) {
        const auto row = processed(one_by_one, {rows.begin() + static_cast<std::ptrdiff_t>(9 * i),
                                                rows.begin() + static_cast<std::ptrdiff_t>(9 * i + 9)});
        expected.insert(expected.end(), row.begin(), row.end());
        if (i < 6) one_by_one.push(drafted[i]);
    }
    together.apply_to_rows(drafted, chain_parents(drafted.size()), rows);
    EXPECT_EQ(rows, expected);
    EXPECT_EQ(together.new_tokens(), 0);
    EXPECT_THROW(together.apply_to_rows(drafted, chain_parents(drafted.size()), std::span(rows).first(62)),
                 std::invalid_argument);
}

TEST(LogitProcessor, DoesToSlicesWhatItDoesToTheWhole) {
    Chance chance(4);
    LogitProcessor processor(everything(), chance.tokens(20, 9), kEos);
    for (const TokenId token : chance.tokens(20, 9))
        processor.push(token);
    const auto logits = chance.logits(9), whole = processed(processor, logits);
    for (std::size_t cut = 0; cut <= 9; ++cut) {
        auto parts = logits;
        processor.apply(std::span(parts).first(cut));
        processor.apply(std::span(parts).subspan(cut), static_cast<TokenId>(cut));
        EXPECT_EQ(parts, whole) << "cut at " << cut;
    }
}

TEST(LogitProcessor, BansFirstAndWeighsThenOrTheOtherWayRound) {
    Chance chance(5);
    LogitProcessor processor(everything(), chance.tokens(20, 9), kEos);
    for (const TokenId token : chance.tokens(4, 9))
        processor.push(token);
    const auto logits = chance.logits(9);
    auto banned_first = logits;
    processor.ban(banned_first);
    EXPECT_NE(banned_first, logits);
    processor.weigh(banned_first);
    EXPECT_EQ(banned_first, processed(processor, logits));
}

// All that generation_config.json may ask for, at once.
LogitProcessing rules() {
    LogitProcessing options = everything(3);
    options.encoder_repetition_penalty = 1.4;
    options.encoder_no_repeat_ngram_size = 3;
    options.sequence_bias = {{{1, 4}, -2.5F},   {{8}, 0.75F},   {{6}, 0.5F},   {{3, 1, 4}, 2},
                             {{0, 6}, kBanned}, {{7}, kBanned}, {{4}, kBanned}};
    options.suppress_tokens = {1, 300};
    options.begin_suppress_tokens = {8};
    options.forced_eos_tokens = {2, 3};
    options.forced_eos_at = 9;
    options.decay = {1.2, 4};
    return options;
}

TEST(LogitProcessor, RulesDependOnTheTextAloneWhateverTheWayThereOrTheSlice) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        Chance chance(seed);
        LogitProcessing options = rules();
        if (seed % 2 == 1) options.forced_bos_token = 6;
        const Tokens prompt = chance.tokens(1 + chance.below(6), 9), source = chance.tokens(chance.below(6), 9);
        LogitProcessor walked(options, prompt, kEos, source);
        for (int step = 0; step < 40; ++step) {
            if (walked.new_tokens() > 0 && chance.below(5) < 1)
                walked.pop(1 + chance.below(walked.new_tokens()));
            else
                walked.push(chance.below(9));
            LogitProcessor fresh(options, prompt, kEos, source);
            for (const TokenId token : walked.tokens().subspan(prompt.size()))
                fresh.push(token);
            const auto logits = chance.logits(9), whole = processed(fresh, logits);
            ASSERT_EQ(processed(walked, logits), whole) << "seed " << seed;
            auto parts = logits, banned_first = logits;
            walked.apply(std::span(parts).first(4));
            walked.apply(std::span(parts).subspan(4), 4);
            ASSERT_EQ(parts, whole) << "seed " << seed;
            walked.ban(banned_first);
            walked.weigh(banned_first);
            ASSERT_EQ(banned_first, whole) << "seed " << seed;
        }
    }
}

TEST(LogitProcessor, BiasesAndBansTheLastTokenOfWhatTheTextBeginsToSay) {
    LogitProcessing options;
    options.sequence_bias = {{{1, 2}, 3}, {{2}, 1}, {{0, 1, 2}, -8}, {{1, 3}, kBanned}, {{2}, kBanned}};
    LogitProcessor processor(options, Tokens{0}, kEos); // only token 2 is an end, which no bad word bans
    EXPECT_EQ(processed(processor, {5, 5, 5, 5}), (std::vector<float>{5, 5, 6, 5}));
    processor.push(1);
    EXPECT_EQ(processed(processor, {5, 5, 5, 5}), (std::vector<float>{5, 5, 1, kBanned}));
}

TEST(LogitProcessor, ForcesTokensByTheirPlacesAndSuppressesBehindThat) {
    LogitProcessing options;
    options.forced_bos_token = 3;
    options.begin_suppress_tokens = {0};
    options.forced_eos_tokens = {1, 2};
    options.forced_eos_at = 2;
    options.suppress_tokens = {1};
    options.min_new_tokens = 9;
    LogitProcessor processor(options, Tokens{5}, kEos);
    EXPECT_EQ(processed(processor, {5, 6, 7, 8}), (std::vector<float>{kBanned, kBanned, kBanned, 0}));
    processor.push(3);
    EXPECT_EQ(processed(processor, {5, 6, 7, 8}), (std::vector<float>{kBanned, kBanned, kBanned, 8}));
    processor.push(3);
    EXPECT_EQ(processed(processor, {5, 6, 7, 8}), (std::vector<float>{kBanned, kBanned, 0, kBanned}));
    LogitProcessor longer(options, Tokens{5, 5}, kEos); // no first token is forced: the first new one is the beginning
    EXPECT_EQ(processed(longer, {5, 6, 7, 8}), (std::vector<float>{kBanned, kBanned, kBanned, 8}));
}

TEST(LogitProcessor, LooksAtTheSourceWhereThereIsOneAndElseAtThePrompt) {
    LogitProcessing options;
    options.encoder_repetition_penalty = 2;
    options.encoder_no_repeat_ngram_size = 2;
    const LogitProcessor prompt(options, Tokens{1, 3, 1}, kEos),
        source(options, Tokens{1, 3, 1}, kEos, Tokens{0, 1, 2});
    EXPECT_EQ(processed(prompt, {2, 2, 2, -2}), (std::vector<float>{2, 4, 2, kBanned}));
    EXPECT_EQ(processed(source, {2, 2, -2, -2}), (std::vector<float>{4, 4, kBanned, -2}));
}

TEST(LogitProcessor, CountsThePromptForRepetitionOnly) {
    LogitProcessing options;
    options.presence_penalty = 1;
    LogitProcessor presence(options, Tokens{1, 1}, {});
    EXPECT_EQ(processed(presence, {2, 2, 2}), (std::vector<float>{2, 2, 2}));
    presence.push(1);
    presence.push(1);
    EXPECT_EQ(processed(presence, {2, 2, 2}), (std::vector<float>{2, 1, 2}));
    options = {};
    options.frequency_penalty = 0.5;
    LogitProcessor frequency(options, Tokens{1, 1}, {});
    frequency.push(1);
    frequency.push(1);
    EXPECT_EQ(processed(frequency, {2, 2, 2}), (std::vector<float>{2, 1, 2}));
    options = {};
    options.repetition_penalty = 2;
    const LogitProcessor repetition(options, Tokens{1, 2}, {});
    EXPECT_EQ(processed(repetition, {2, 2, -2}), (std::vector<float>{2, 1, -4}));
}

TEST(LogitProcessor, BansTheEndOfTextUntilThereAreEnoughTokens) {
    LogitProcessing options;
    options.min_new_tokens = 2;
    LogitProcessor processor(options, Tokens{1, 1, 1}, kEos);
    EXPECT_EQ(banned(processor, 9), (std::set<TokenId>{2, 7}));
    processor.push(0);
    EXPECT_EQ(banned(processor, 9), (std::set<TokenId>{2, 7}));
    processor.push(0);
    EXPECT_TRUE(banned(processor, 9).empty());
    processor.pop();
    EXPECT_EQ(banned(processor, 9), (std::set<TokenId>{2, 7}));
}

TEST(LogitProcessor, DoesNothingUnlessAsked) {
    EXPECT_FALSE(LogitProcessing{}.bans());
    EXPECT_FALSE(LogitProcessing{}.weighs());
    EXPECT_TRUE(everything().bans() && everything().weighs());
    const LogitProcessor processor({}, Tokens{1, 2, 1, 2}, kEos);
    EXPECT_EQ(processed(processor, {1, -1, 2, -2}), (std::vector<float>{1, -1, 2, -2}));
}

TEST(LogitProcessor, NeverPopsThePrompt) {
    LogitProcessor processor(everything(), Tokens{1, 2}, kEos);
    processor.push(3);
    EXPECT_THROW(processor.pop(2), std::out_of_range);
    EXPECT_THROW(processor.pop(-1), std::out_of_range);
    processor.pop();
    EXPECT_THROW(processor.pop(), std::out_of_range);
    EXPECT_EQ(processor.tokens().size(), 2u);
}

TEST(LogitProcessing, IsRefusedWithTheOptionsName) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    const auto reason = [](auto&& change) {
        LogitProcessing options = everything();
        change(options);
        return why_invalid(options, 9);
    };
    EXPECT_EQ(reason([](auto&) {}), "");
    for (const double value : {0.0, -1.0, 1e9, kNan}) {
        EXPECT_EQ(reason([&](auto& o) { o.repetition_penalty = value; }).find("--repetition-penalty"), 0u);
    }
    for (const double value : {-2.1, 2.1, kNan}) {
        EXPECT_EQ(reason([&](auto& o) { o.presence_penalty = value; }).find("--presence-penalty"), 0u);
        EXPECT_EQ(reason([&](auto& o) { o.frequency_penalty = value; }).find("--frequency-penalty"), 0u);
    }
    for (const int size : {-1, std::numeric_limits<int>::max()})
        EXPECT_EQ(reason([&](auto& o) { o.no_repeat_ngram_size = size; }).find("--no-repeat-ngram-size"), 0u);
    EXPECT_EQ(reason([](auto& o) { o.min_new_tokens = -1; }).find("--min-new-tokens"), 0u);
    for (const auto& bias : {std::pair{9, 1.0F}, {-1, 1.0F}, {0, 1.0F}, {1, kBanned}, {1, std::nanf("")}})
        EXPECT_EQ(reason([&](auto& o) { o.logit_bias.push_back(bias); }).find("--logit-bias"), 0u);
    for (const TokenId token : {-1, 9})
        EXPECT_EQ(reason([&](auto& o) { o.banned_tokens.push_back(token); }).find("--banned-tokens"), 0u);
    EXPECT_EQ(reason([](auto& o) { o.banned_tokens = {0, 1, 2, 3, 4, 5, 6, 7, 8}; }).find("--banned-tokens"), 0u);
    LogitProcessing options;
    options.repetition_penalty = kNan;
    EXPECT_THROW(LogitProcessor(options, Tokens{1}, kEos), std::invalid_argument);
}

} // namespace logit_processing_test
} // namespace entrodraft::spec
