// Sampled texts with a grammar follow the target's constrained distribution, under every acceptance: chi-square against
// an enumeration. Also tests texts that cannot go on.
#include "tests/spec/every_drafter.h"
#include "tests/spec/exactness_support.h"

#include "model/text/grammar/token_grammar.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

namespace constraints_test {

using namespace entrodraft;
using model::grammar::Language;
using model::grammar::TokenGrammar;
using model::grammar::TokenMatcher;
using spec::Acceptance;
using spec::Request;

// Tokens a, b and c of the golden models' vocabulary.
const model::grammar::Source kSource = {Language::regex, "(a[ab]|b|ca)[abc]+"};

std::shared_ptr<TokenGrammar> grammar_of_three() {
    const auto vocabulary =
        std::make_shared<model::grammar::Vocabulary>(std::vector<std::string>{"a", "b", "c"}, std::vector<TokenId>{});
    return std::make_shared<TokenGrammar>(compile(kSource), vocabulary);
}

void ban_what_is_illegal(std::span<const TokenId> before, std::span<float> row) {
    TokenMatcher matcher(grammar_of_three());
    for (const TokenId token : before)
        matcher.push(token);
    matcher.mask().ban_others(row, 0);
}

TEST(ConstraintExactness, SampledTextsFollowTheConstrainedDistribution) {
    constexpr int kTexts = 6000;
    constexpr std::size_t kLength = 3;
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    spec::SamplingOptions sampling;
    sampling.temperature = 1.3;
    TestModel alone(golden_directory("llama-target"));
    const std::map<Tokens, double> expected = target_probabilities(alone, sampling, kLength, ban_what_is_illegal);
    EXPECT_EQ(expected.size(), 18U) << "of 27 texts";
    spec::DraftLimits limits = pair.limits();
    limits.vocab_size = kVocab;
    const spec::TokenTable table = table_of(kVocab, std::vector<Tokens>{kPrompt});
    EveryDrafter drafters({limits, pair.clock, &pair.draft.decoder, nullptr, table, nullptr});
    const auto grammar = grammar_of_three();
    for (const char* name : {"model", "ngram", "model<bigram", "model tree 2,1"})
        for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::block, Acceptance::gumbel}) {
            const bool is_tree = std::string_view(name).find("tree") != std::string_view::npos;
            if (is_tree && acceptance == Acceptance::block) continue;
            RunOptions options;
            options.acceptance = acceptance;
            options.vocab_size = kVocab;
            options.rule = constant_rule(is_tree ? 4 : 2);
            const auto drafter = drafters.make(name, constant_rule(2));
            std::map<Tokens, int> counts;
            spec::Stats stats;
            int asked = 0;
            spec::EngineCallbacks callbacks;
            callbacks.next_request = [&]() -> std::optional<Request> {
                if (asked == kTexts) return std::nullopt;
                Request request = request_of(kPrompt, kLength);
                request.sampling = sampling;
                request.ignore_eos = true; // the models' end of text is the letter a here
                request.processing.constraint = kSource;
                request.processing.grammar = grammar;
                request.sequence_key = static_cast<std::uint64_t>(asked++);
                return request;
            };
            callbacks.on_complete = [&](const Request&, const spec::Completion& completion) {
                ++counts[completion.tokens];
                stats += completion.stats;
            };
            const volatile int no_signal = 0;
            pair.engine(options, drafter.get())->run(callbacks, no_signal);
            for (const auto& [text, count] : counts)
                EXPECT_TRUE(expected.contains(text)) << count << " times " << testing::PrintToString(text);
            EXPECT_LT(chi_square_z(counts, expected, kTexts), kMaxZ) << name << ", " << to_string(acceptance);
            EXPECT_GT(stats.accepted, 0) << name;
        }
}

TEST(Constraints, ATextThatCannotGoOnFails) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    Request request = request_of(kPrompt, 20);
    request.processing.constraint = {Language::regex, "a{3}"};
    request.processing.min_new_tokens = 15; // the text has at most 3 tokens
    Request other = request_of(kPrompt, 20);
    const auto found = pair.run({request, other});
    ASSERT_EQ(found.size(), 2U);
    EXPECT_NE(found[0].failure.find("goes against its regex"), std::string::npos) << found[0].failure;
    EXPECT_EQ(found[1].failure, "");
}

} // namespace constraints_test
