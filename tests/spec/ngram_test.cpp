// N-gram look-up compared with a search through the whole text, and texts decoded with it.
#include "tests/spec/engine_support.h"

#include "spec/draft/lookup_index.h"

#include <gtest/gtest.h>

#include <random>

namespace ngram_test {

using namespace entrodraft;
using spec::LookupMatch;
using spec::NgramMatch;
using spec::NgramOptions;

// The same by a search of every place.
std::optional<LookupMatch> searched(const std::vector<TokenId>& text, const NgramOptions& options) {
    std::optional<LookupMatch> best;
    for (int length = options.shortest; length <= options.longest; ++length) {
        const auto n = static_cast<std::size_t>(length);
        std::optional<std::size_t> found;
        for (std::size_t end = n; end < text.size(); ++end) {
            const bool equal = std::equal(text.end() - length, text.end(), text.begin() + static_cast<long>(end - n));
            if (equal && (!found || options.match == NgramMatch::latest)) found = end;
        }
        if (found) best = {*found, length};
    }
    return best;
}

TEST(NgramIndex, FindsWhatASearchFinds) {
    std::mt19937 random(1);
    for (const NgramMatch match : {NgramMatch::latest, NgramMatch::first}) {
        for (const auto& [shortest, longest] : std::vector<std::pair<int, int>>{{1, 1}, {1, 4}, {2, 3}, {3, 8}}) {
            const NgramOptions options = {shortest, longest, match};
            const auto index = spec::make_ngram_index(options);
            std::vector<TokenId> text;
            for (int step = 0; step < 400; ++step) {
                if (step % 97 == 96) text.resize(text.size() / 2); // another text: nothing of the old one may stay
                text.push_back(static_cast<TokenId>(random() % 5));
                index->follow(text);
                const auto got = index->find(), want = searched(text, options);
                ASSERT_EQ(got.has_value(), want.has_value()) << step;
                if (!got) continue;
                ASSERT_EQ(got->length, want->length) << step;
                ASSERT_EQ(got->next, want->next) << step;
            }
        }
    }
}

// Prompt look-up as its authors wrote it (find_candidate_pred_tokens): n-grams from the longest to the shortest, and
// the matches of each in order; takes the first match with a whole continuation.
std::vector<TokenId> looked_up(const std::vector<TokenId>& text, const NgramOptions& options) {
    const auto full = static_cast<std::size_t>(options.full);
    for (int length = options.longest; length >= options.shortest; --length) {
        const auto n = static_cast<std::size_t>(length);
        std::vector<TokenId> found;
        for (std::size_t begin = 0; begin + n + full <= text.size(); ++begin) {
            const auto at = text.begin() + static_cast<long>(begin);
            if (!std::equal(at, at + length, text.end() - length)) continue;
            found.assign(at + length, at + length + options.full);
            if (options.match == NgramMatch::first) break;
        }
        if (!found.empty()) return found;
    }
    return {};
}

TEST(NgramIndex, TakesOnlyWholeContinuationsWhereAsked) {
    std::mt19937 random(3);
    int with_any = 0, without = 0, shorter = 0;
    for (int trial = 0; trial < 4000; ++trial) {
        const NgramMatch match = trial % 2 == 0 ? NgramMatch::first : NgramMatch::latest;
        const NgramOptions options = {1, 3, match, trial % 3 == 0 ? 10 : 1 + static_cast<int>(random() % 12)};
        const auto index = spec::make_ngram_index(options), any = spec::make_ngram_index({1, 3, match});
        std::vector<TokenId> text;
        const std::size_t length = 2 + random() % 60, period = 1 + random() % 20, vocab = 2 + random() % 30;
        while (text.size() < length) { // sometimes repeats a stretch of it
            const bool repeats = text.size() > period && random() % 8 != 0;
            text.push_back(repeats ? text[text.size() - period] : static_cast<TokenId>(random() % vocab));
        }
        if (trial % 5 == 0) index->follow(std::span(text).first(length / 2)); // texts grow
        index->follow(text);
        any->follow(text);
        std::vector<TokenId> got;
        const auto found = index->find();
        for (std::size_t i = 0; found && found->token(i); ++i)
            got.push_back(*found->token(i));
        EXPECT_EQ(got, looked_up(text, options)) << "trial " << trial;
        with_any += any->find().has_value() ? 1 : 0;
        without += any->find() && !found ? 1 : 0;
        shorter += found && any->find()->length > found->length ? 1 : 0;
    }
    EXPECT_GT(with_any, 2000);
    EXPECT_GT(without, 50) << "texts with a match but no whole continuation";
    EXPECT_GT(shorter, 50) << "texts whose longest match has none";
}

TEST(NgramIndex, RefusesLengthsThatAreNoRange) {
    EXPECT_THROW(spec::make_ngram_index({0, 4, {}}), std::invalid_argument);
    EXPECT_THROW(spec::make_ngram_index({3, 2, {}}), std::invalid_argument);
    const spec::DrafterType& type = spec::drafter_type("ngram");
    for (const spec::DrafterValues& wrong :
         {spec::DrafterValues{{"min", 0}}, {{"min", 3}, {"max", 2}}, {{"max", 65}}, {{"full", 128}}, {{"window", 1}}})
        EXPECT_THROW(type.all_values(wrong), std::invalid_argument);
    EXPECT_EQ(type.all_values({}).at("min"), 1);
    EXPECT_EQ(type.all_values({}, true).at("min"), 3) << "a shorter match leaves the round to the next drafter";
    EXPECT_EQ(type.all_values({{"min", 2}}, true).at("min"), 2);
}

std::unique_ptr<spec::Drafter> ngram_drafter(const NgramOptions& options, const spec::DraftLimits& limits,
                                             const dist::Clock& clock) {
    return spec::make_lookup_drafter("ngram", [options] { return spec::make_ngram_index(options); },
                                     spec::LookupTexts::own, options, {limits, clock});
}

spec::Draft drafted(const std::vector<TokenId>& text, const NgramOptions& options, int k, bool sampled = false) {
    const dist::SteadyClock clock;
    const auto drafter = ngram_drafter(options, {.vocab_size = 16, .eos_tokens = {15}}, clock);
    spec::Request request;
    if (sampled) request.sampling.temperature = 1;
    drafter->begin_sequence(0, request);
    spec::StopRule rule(constant_rule(k));
    spec::Draft draft;
    drafter->propose({0, text, 100, &request, choice_of(request), &rule, &draft});
    if (sampled) { // the drafter holds q
        EXPECT_EQ(draft.q.size(), draft.tokens.size() * 16);
        for (std::size_t i = 0; i < draft.q.size(); ++i)
            EXPECT_EQ(draft.q[i], draft.tokens[i / 16] == static_cast<TokenId>(i % 16) ? 1.0f : 0.0f);
    }
    return draft;
}

TEST(NgramDrafter, CopiesWhatFollowed) {
    using Tokens = std::vector<TokenId>;
    EXPECT_EQ(drafted({1, 2, 3, 4, 5, 1, 2}, {}, 3).tokens, (Tokens{3, 4, 5}));
    EXPECT_EQ(drafted({1, 2, 3, 9, 2, 4, 1, 2}, {}, 1).tokens, (Tokens{3})) << "the longest match, not the latest";
    EXPECT_EQ(drafted({2, 3, 2, 4, 2}, {}, 1).tokens, (Tokens{4}));
    EXPECT_EQ(drafted({2, 3, 2, 4, 2}, {1, 4, NgramMatch::first}, 1).tokens, (Tokens{3}));
    EXPECT_EQ(drafted({7, 8, 7, 8, 7}, {}, 6).tokens, (Tokens{8, 7, 8, 7, 8, 7})) << "goes on in its own copy";
    EXPECT_EQ(drafted({1, 2, 15, 4, 1, 2}, {}, 5).tokens, (Tokens{15})) << "nothing behind the end of text";
    EXPECT_EQ(drafted({1, 2, 15, 4, 1, 2}, {}, 5).end, spec::DraftEnd::end_of_text);
    EXPECT_TRUE(drafted({1, 2, 3}, {}, 5).tokens.empty());
    EXPECT_EQ(drafted({1, 2, 3}, {}, 5).end, spec::DraftEnd::no_match);
    EXPECT_TRUE(drafted({1, 2, 3, 2}, {2, 4, {}}, 5).tokens.empty()) << "a match of one is too short";
    drafted({1, 2, 3, 4, 5, 1, 2}, {}, 3, true);
}

TEST(NgramDrafter, LeavesGreedyTextAsItIs) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    std::vector<spec::Request> plain, fast;
    for (const TokenId first : {7, 60, 300}) {
        plain.push_back(request_of({first, 9, first, 9}, 60, true));
        fast.push_back(request_of({first, 9, first, 9}, 60));
    }
    const auto want = pair.run(plain);
    const auto ngram = ngram_drafter({}, pair.limits(), pair.clock);
    for (const spec::StopRuleOptions& rule : rule_settings(15)) {
        RunOptions options;
        options.rule = rule;
        const auto got = pair.run(fast, options, ngram.get());
        std::int64_t accepted = 0;
        for (std::size_t i = 0; i < want.size(); ++i) {
            EXPECT_EQ(got[i].tokens, want[i].tokens) << describe(rule);
            EXPECT_EQ(got[i].stats.draft_passes, 0);
            accepted += got[i].stats.accepted;
        }
        if (rule.is("expected-gain")) continue; // rows may be too expensive for it with so small a target
        EXPECT_GT(accepted, 0) << describe(rule) << ": greedy text of a small model repeats itself";
    }
}

// With a one-hot q, the accepted token and the residual must give p: each first token as often as p says.
TEST(NgramDrafter, LeavesTheDistributionOfSampledTextAsItIs) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    const auto ngram = ngram_drafter({}, pair.limits(), pair.clock);
    const std::vector<TokenId> prompt = {7, 9, 40, 7, 9};
    std::vector<spec::Request> requests;
    constexpr int kSamples = 4000;
    for (int i = 0; i < kSamples; ++i) {
        requests.push_back(request_of(prompt, 2));
        requests.back().sampling = {.temperature = 1, .top_k = 6, .top_p = 1, .seed = static_cast<std::uint64_t>(i)};
    }
    RunOptions options;
    options.rule = constant_rule(1);
    std::map<TokenId, int> counts;
    for (const spec::Completion& completion : pair.run(requests, options, ngram.get()))
        ++counts[completion.tokens.front()];
    pair.target.forget();
    const std::vector<float> logits = pair.target.read(prompt);
    std::vector<float> p(512);
    spec::adjust(std::span(logits).last(512), requests.front().sampling, p);
    double chi_square = 0;
    int kinds = 0;
    for (std::size_t token = 0; token < p.size(); ++token) {
        if (p[token] == 0) {
            EXPECT_EQ(counts.count(static_cast<TokenId>(token)), 0u);
            continue;
        }
        const double expected = kSamples * static_cast<double>(p[token]);
        const double seen = counts[static_cast<TokenId>(token)];
        chi_square += (seen - expected) * (seen - expected) / expected;
        ++kinds;
    }
    EXPECT_GE(kinds, 6);
    EXPECT_LT(chi_square, 25); // 5 degrees of freedom or a few more: 1 in 7,000
}

} // namespace ngram_test
