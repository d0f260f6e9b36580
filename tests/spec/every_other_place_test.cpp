// Acceptance measured at every other place: each is judged once, and the figures are those of the distributions.
#include "spec/draft/every_other_place.h"

#include "spec/draft/token_table.h"
#include "tests/spec/engine_support.h"

#include <cmath>
#include <gtest/gtest.h>

namespace every_other_place_test {

using namespace entrodraft;

RunOptions one_token() {
    RunOptions options;
    options.rule = constant_rule(1, 1);
    return options;
}

std::vector<spec::Request> requests(double temperature) {
    std::vector<spec::Request> all;
    for (const std::vector<TokenId>& prompt : std::vector<std::vector<TokenId>>{{1, 2, 3}, {40, 12, 7, 9}, {5}}) {
        all.push_back(request_of(prompt, 40));
        all.back().sampling.temperature = temperature;
        all.back().sampling.seed = 11;
        all.back().ignore_eos = true;
    }
    return all;
}

// Even places behind which at least one more token is said.
std::int64_t even_places(const std::vector<spec::Request>& requests) {
    std::int64_t n = 0;
    for (const spec::Request& request : requests)
        for (std::size_t place = request.prompt.size();
             place + 1 < request.prompt.size() + static_cast<std::size_t>(request.max_new_tokens); ++place)
            n += place % 2 == 0 ? 1 : 0;
    return n;
}

spec::Stats measure(TestPair& pair, const std::vector<spec::Request>& asked, std::unique_ptr<spec::Drafter> drafter,
                    spec::PlaceCounts& counts, std::vector<spec::Completion>* texts = nullptr) {
    std::vector<std::unique_ptr<spec::Drafter>> drafters;
    drafters.push_back(std::move(drafter));
    const auto every_other =
        spec::make_every_other_place_drafter(spec::make_turns_drafter(std::move(drafters)), counts);
    const std::vector<spec::Completion> completions = pair.run(asked, one_token(), every_other.get());
    spec::Stats stats;
    for (const spec::Completion& completion : completions)
        stats += completion.stats;
    if (texts) *texts = completions;
    return stats;
}

TEST(EveryOtherPlace, IsJudgedOnceWhateverStands) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    for (const double temperature : {0.0, 1.0}) {
        const auto asked = requests(temperature);
        for (const bool knows : {true, false}) { // the draft model, or a drafter that is always wrong when greedy
            spec::PlaceCounts counts;
            auto drafter = knows ? pair.model_drafter()
                                 : spec::make_chain_drafter(spec::make_random_source(pair.vocab_size()), pair.limits(),
                                                            pair.clock);
            const spec::Stats stats = measure(pair, asked, std::move(drafter), counts);
            EXPECT_EQ(counts.asked, even_places(asked));
            EXPECT_EQ(counts.proposed, counts.asked);
            EXPECT_EQ(stats.drafted, counts.asked);
            EXPECT_EQ(stats.overlaps, counts.asked);
            EXPECT_EQ(stats.new_tokens, 3 * 40);
        }
    }
}

TEST(EveryOtherPlace, GivesATargetAsItsOwnDraftOne) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-target"));
    for (const double temperature : {0.0, 1.0}) {
        spec::PlaceCounts counts;
        const spec::Stats stats = measure(pair, requests(temperature), pair.model_drafter(), counts);
        EXPECT_EQ(stats.accepted, counts.asked);
        EXPECT_NEAR(stats.alpha().value(), 1, 1e-6);
    }
}

std::vector<double> softmax(std::span<const float> logits) {
    double largest = -1e300, sum = 0;
    for (const float logit : logits)
        largest = std::max(largest, static_cast<double>(logit));
    std::vector<double> p;
    for (const float logit : logits)
        sum += p.emplace_back(std::exp(static_cast<double>(logit) - largest));
    for (double& one : p)
        one /= sum;
    return p;
}

TEST(EveryOtherPlace, GivesTheOverlapOfTheDistributions) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    const int vocab = pair.vocab_size();
    spec::TokenCounter counter(vocab, 1);
    std::vector<TokenId> seen;
    for (int i = 0; i < 5000; ++i)
        seen.push_back(static_cast<TokenId>((i * i + i / 7) % vocab));
    counter.add(seen);
    const spec::TokenTable table(counter.take());
    const auto asked = requests(1);
    spec::PlaceCounts counts;
    std::vector<spec::Completion> texts;
    const spec::Stats stats = measure(
        pair, asked, spec::make_chain_drafter(spec::make_table_source(table, 2, vocab), pair.limits(), pair.clock),
        counts, &texts);
    double overlap = 0;
    for (std::size_t i = 0; i < asked.size(); ++i) {
        std::vector<TokenId> tokens = asked[i].prompt;
        tokens.insert(tokens.end(), texts[i].tokens.begin(), texts[i].tokens.end());
        TestModel target(golden_directory("llama-target"));
        const std::vector<float> logits = target.read(tokens);
        const auto width = static_cast<std::size_t>(target.config.vocab_size);
        for (std::size_t place = asked[i].prompt.size(); place + 1 < tokens.size(); ++place) {
            if (place % 2 != 0) continue;
            std::vector<float> row(static_cast<std::size_t>(vocab));
            table.row(2, tokens[place - 1], row);
            const auto p = softmax(std::span(logits).subspan((place - 1) * width, row.size())), q = softmax(row);
            for (std::size_t token = 0; token < p.size(); ++token)
                overlap += std::min(p[token], q[token]);
        }
    }
    EXPECT_GT(overlap, 1) << "nothing overlaps: the test says little";
    EXPECT_NEAR(stats.overlap, overlap, 1e-4 * static_cast<double>(stats.overlaps));
    EXPECT_EQ(stats.overlaps, even_places(asked));
}

TEST(EveryOtherPlace, RefusesLongerDrafts) {
    TestPair pair(golden_directory("llama-target"), golden_directory("llama-draft"));
    spec::PlaceCounts counts;
    EXPECT_THROW(spec::make_every_other_place_drafter(nullptr, counts), std::invalid_argument);
    std::vector<std::unique_ptr<spec::Drafter>> drafters;
    drafters.push_back(pair.model_drafter());
    const auto drafter = spec::make_every_other_place_drafter(spec::make_turns_drafter(std::move(drafters)), counts);
    RunOptions longer;
    longer.rule = constant_rule(2);
    EXPECT_ANY_THROW(pair.run(requests(0), longer, drafter.get()));
}

} // namespace every_other_place_test
