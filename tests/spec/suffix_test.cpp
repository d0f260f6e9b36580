// Suffix automata compared with a search of every place of a text, their cost in steps, and the index over a text and a
// corpus.
#include "spec/draft/lookup_corpus.h"
#include "spec/draft/suffix_automaton.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace suffix_test {

using namespace entrodraft::spec;
using Tokens = std::vector<TokenId>;

Tokens random_text(std::mt19937& random, int kinds, std::size_t size) {
    Tokens text(size);
    for (TokenId& token : text)
        token = static_cast<TokenId>(random() % static_cast<unsigned>(kinds));
    return text;
}

// Before each place of `source`, the number of tokens that equal the end of the fed text, updated token by token.
class Comparison {
  public:
    explicit Comparison(std::size_t size) : common_(size + 1) {}
    void feed(const Tokens& source, std::size_t size, TokenId token) {
        for (std::size_t end = size; end > 0; --end)
            common_[end] = source[end - 1] == token ? common_[end - 1] + 1 : 0;
    }
    // The longest match that ends before `last`, and where it ends last; length 0: there is none.
    LookupMatch best(std::size_t last) const {
        LookupMatch best;
        for (std::size_t end = 1; end < last; ++end)
            if (common_[end] > 0 && common_[end] >= best.length) best = {end, common_[end], {}, false};
        return best;
    }

  private:
    std::vector<int> common_;
};

enum class Place { exact, any };

// Feeds `text` token by token and compares every match with the search of all places.
void expect_searched(const Tokens& text, Place place) {
    SuffixAutomaton automaton;
    Comparison all(text.size());
    for (std::size_t size = 1; size <= text.size(); ++size) {
        automaton.append(text[size - 1]);
        all.feed(text, size, text[size - 1]);
        const LookupMatch want = all.best(size);
        const auto got = automaton.match();
        ASSERT_EQ(got ? got->length : 0, want.length) << "after " << size << " of " << testing::PrintToString(text);
        if (!got) continue;
        if (place == Place::exact) {
            ASSERT_EQ(got->next, want.next) << "after " << size << " of " << testing::PrintToString(text);
        }
        const auto length = static_cast<std::size_t>(got->length);
        ASSERT_TRUE(got->next < size && got->next >= length);
        ASSERT_TRUE(std::equal(text.begin() + static_cast<std::ptrdiff_t>(size - length),
                               text.begin() + static_cast<std::ptrdiff_t>(size),
                               text.begin() + static_cast<std::ptrdiff_t>(got->next - length)));
    }
}

Tokens repeated(const Tokens& period, std::size_t size) {
    Tokens text(size);
    for (std::size_t i = 0; i < size; ++i)
        text[i] = period[i % period.size()];
    return text;
}

Tokens fibonacci_word(std::size_t size) {
    Tokens before = {1}, word = {1, 2};
    while (word.size() < size) {
        Tokens next = word;
        next.insert(next.end(), before.begin(), before.end());
        before = std::exchange(word, next);
    }
    word.resize(size);
    return word;
}

Tokens demo_bytes(std::size_t most) {
    std::ifstream file(ENTRODRAFT_SOURCE_DIR "/model/demo/prompts_text.jsonl", std::ios::binary);
    Tokens text{std::istreambuf_iterator<char>(file), {}};
    text.resize(std::min(text.size(), most));
    return text;
}

TEST(SuffixAutomaton, FindsWhatASearchFindsInThousandsOfTexts) {
    std::mt19937 random(1);
    for (int round = 0; round < 3000; ++round) {
        const Tokens text = random_text(random, 1 + round % 6, 1 + random() % 60);
        expect_searched(text, round % 6 == 0 ? Place::any : Place::exact);
        if (HasFatalFailure()) return;
    }
    for (const int kinds : {2, 3, 40, 500}) {
        const Tokens text = random_text(random, kinds, 3000);
        expect_searched(text, Place::exact);
    }
}

TEST(SuffixAutomaton, FindsWhatASearchFindsInTextsThatRepeatThemselves) {
    for (const Tokens& period :
         {Tokens{5}, Tokens{1, 2}, Tokens{1, 1, 2}, Tokens{3, 1, 3, 2}, Tokens{1, 2, 3, 4, 5, 6}})
        for (const TokenId last : {9, 1}) {
            Tokens text = repeated(period, 150);
            text.push_back(last);
            const Tokens again = repeated(period, 200);
            text.insert(text.end(), again.begin(), again.end());
            expect_searched(text, Place::any);
        }
    expect_searched(fibonacci_word(700), Place::any);
}

TEST(SuffixAutomaton, FindsWhatASearchFindsInEnglishText) {
    const Tokens text = demo_bytes(5000);
    ASSERT_EQ(text.size(), 5000u);
    expect_searched(text, Place::exact);
}

TEST(SuffixAutomaton, KeepsTheLatestOccurrenceWithinItsBound) {
    // After "a"s, "x" comes with ever longer suffixes before it; each is refreshed, at most kRefreshed of them a token.
    const int n = 3 * SuffixAutomaton::kRefreshed;
    SuffixAutomaton automaton;
    for (int i = 0; i < n; ++i)
        automaton.append(0);
    ASSERT_TRUE(automaton.match());
    EXPECT_EQ(automaton.match()->length, n - 1);
    EXPECT_EQ(automaton.match()->next, static_cast<std::size_t>(n - 1)) << "the latest, though all overlap";
    automaton.append(1);
    automaton.append(0);
    EXPECT_EQ(automaton.match()->length, 1);
    EXPECT_LE(automaton.match()->next, static_cast<std::size_t>(n));
    EXPECT_GE(automaton.match()->next, static_cast<std::size_t>(SuffixAutomaton::kRefreshed));
}

// Linear: the bound on the steps of each token is the same at every length; known bounds on the sizes also hold.
TEST(SuffixAutomaton, TakesStepsAndStatesInProportionToTheText) {
    std::mt19937 random(3);
    constexpr std::size_t n = 60000;
    Tokens worst_states = repeated({1}, n); // a b b ... b: most states
    worst_states.front() = 0;
    Tokens worst_transitions = worst_states; // a b b ... b c: most transitions
    worst_transitions.back() = 2;
    Tokens branches = repeated({1, 2}, n); // a b ... a b c and again: the beginnings of the text branch
    for (std::size_t i = n / 2; i < n; i += 101)
        branches[i] = 3 + static_cast<TokenId>(i % 977);
    const std::vector<Tokens> texts = {random_text(random, 2, n),
                                       random_text(random, 50, n),
                                       random_text(random, 60000, n),
                                       repeated({1}, n),
                                       repeated({1, 2, 3, 2}, n),
                                       fibonacci_word(n),
                                       worst_states,
                                       worst_transitions,
                                       branches,
                                       demo_bytes(n)};
    for (const Tokens& text : texts) {
        SuffixAutomaton automaton;
        for (const TokenId token : text)
            automaton.append(token);
        const SuffixAutomaton::Counts counts = automaton.counts();
        const auto kind = &text - texts.data();
        EXPECT_LE(counts.states, 2 * text.size()) << kind;
        EXPECT_LE(counts.transitions, 3 * text.size()) << kind;
        EXPECT_LE(counts.steps, 40 * text.size()) << kind;
        EXPECT_LE(counts.bytes, 130 * text.size() + 1000) << kind;
    }
}

TEST(SuffixAutomaton, RefusesATextThatIsTooLong) {
    SuffixAutomaton automaton(3);
    for (const TokenId token : {4, 4, 4})
        automaton.append(token);
    try {
        automaton.append(4);
        ADD_FAILURE() << "taken";
    } catch (const std::length_error& error) {
        EXPECT_NE(std::string(error.what()).find("more than 3 tokens"), std::string::npos) << error.what();
    }
    automaton.clear();
    automaton.append(4);
    EXPECT_EQ(automaton.text().size(), 1u);
    EXPECT_FALSE(automaton.match());
}

TEST(LookupMatch, GoesOnWithItsCopyInTheTextAndEndsWithACorpus) {
    const Tokens text = {9, 1, 2, 3};
    LookupMatch match{1, 1, text, false};
    Tokens copied;
    for (std::size_t i = 0; i < 7; ++i)
        copied.push_back(match.token(i).value_or(-1));
    EXPECT_EQ(copied, (Tokens{1, 2, 3, 1, 2, 3, 1}));
    match.in_corpus = true;
    EXPECT_EQ(match.token(2), 3);
    EXPECT_EQ(match.token(3), std::nullopt);
    EXPECT_EQ((LookupMatch{4, 1, text, false}).token(0), std::nullopt);
}

// Copies the same as the n-gram drafter, token by token, so that one drafter may use either index.
TEST(LookupIndex, GivesTheSameContinuationThroughEitherIndexWhereMatchesAreShort) {
    std::mt19937 random(4);
    const auto ngrams = make_ngram_index({1, 64, NgramMatch::latest}), suffixes = make_suffix_index(1);
    EXPECT_FALSE(ngrams->find());
    EXPECT_FALSE(suffixes->find());
    Tokens text;
    for (int step = 0; step < 3000; ++step) {
        if (step % 997 == 996) text.assign(1, 3); // another text
        text.push_back(static_cast<TokenId>(random() % 12));
        ngrams->follow(text);
        suffixes->follow(text);
        const auto one = ngrams->find(), other = suffixes->find();
        ASSERT_EQ(one.has_value(), other.has_value());
        if (!one) continue;
        ASSERT_EQ(one->length, other->length);
        for (std::size_t i = 0; i < 20; ++i)
            ASSERT_EQ(one->token(i), other->token(i));
    }
}

TEST(SuffixIndex, TakesTheLongerMatchAndOfEqualOnesTheTexts) {
    const auto corpus = std::make_shared<const LookupCorpus>(Tokens{5, 6, 7, 8, 9}, 10);
    const auto index = make_suffix_index(1, corpus);
    index->follow(Tokens{6, 7, 1, 5, 6, 7});
    ASSERT_TRUE(index->find());
    EXPECT_TRUE(index->find()->in_corpus);
    EXPECT_EQ(index->find()->length, 3);
    EXPECT_EQ(index->find()->token(0), 8);
    EXPECT_EQ(index->find()->token(1), 9);
    EXPECT_EQ(index->find()->token(2), std::nullopt);
    index->follow(Tokens{6, 7, 1, 6, 7}); // another text: the old one is forgotten, the corpus stays
    ASSERT_TRUE(index->find());
    EXPECT_FALSE(index->find()->in_corpus);
    EXPECT_EQ(index->find()->length, 2);
    EXPECT_EQ(index->find()->token(0), 1);
    index->follow(Tokens{8});
    ASSERT_TRUE(index->find());
    EXPECT_TRUE(index->find()->in_corpus);
    EXPECT_EQ(index->find()->length, 1) << "nor the place in the corpus";
    index->follow(Tokens{8, 9});
    EXPECT_FALSE(index->find()) << "nothing follows the end of the corpus";
}

TEST(SuffixIndex, LeavesShortMatchesOut) {
    const auto index = make_suffix_index(2);
    index->follow(Tokens{1, 2, 3, 1});
    EXPECT_FALSE(index->find());
    index->follow(Tokens{1, 2, 3, 1, 2});
    ASSERT_TRUE(index->find());
    EXPECT_EQ(index->find()->token(0), 3);
    EXPECT_THROW(make_suffix_index(0), std::invalid_argument);
}

} // namespace suffix_test
