// Sampled text follows the target's distribution, whoever drafts and whenever drafting stops: chi-square over many
// texts. The texts are of an engine over a real target, and of toys, which are fast enough to show the small errors
// that rules that learn could cause.
#include "spec/draft/lookup_index.h"

#include "tests/dist/manual_clock.h"
#include "tests/spec/exactness_support.h"
#include "tests/spec/toy_drafting.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

namespace exactness_test {

using namespace entrodraft;
using spec::Acceptance;
using spec::Tokens;
using spec::ToyModel;

const spec::Costs kCosts = {0.1, {1, 1.1, 1.2, 1.3, 1.4, 1.5}, std::nullopt};

// A rule that sometimes goes on and sometimes stops, by the figures of the draft.
spec::StopRuleOptions stopping_rule(const std::string& kind, int max_tokens = 4) {
    spec::StopRuleOptions rule = rule_of(kind, 1, max_tokens);
    if (kind == "static") rule.set("threshold", 1.0); // entropies are at most ln 3 = 1.1 nats
    if (kind == "constant") rule.set("tokens", 2);
    return rule;
}

// Toy models of a draft and of its own drafts, and drafters over them.
struct ToyDrafters {
    ToyModel middle{kVocab, 31, spec::options_of(1)}, small{kVocab, 32, spec::options_of(1)};
    dist::ManualClock clock;
    spec::DraftLimits limits{static_cast<int>(kVocab), {}};
    std::size_t n_prompt = kPrompt.size();

    std::unique_ptr<spec::Drafter> chain(const ToyModel& toy) {
        return spec::make_chain_drafter(std::make_unique<spec::ToySource>(toy, n_prompt), {limits, clock});
    }
    std::unique_ptr<spec::Drafter> ngram() {
        return spec::make_lookup_drafter("ngram",
                                         [] {
                                             return spec::make_ngram_index({2, 4});
                                         },
                                         spec::LookupTexts::own, {}, {limits, clock});
    }
    std::unique_ptr<spec::Drafter> cascade(std::unique_ptr<spec::Drafter> inner, const std::string& rule) {
        return spec::make_cascade_drafter(
            {std::make_unique<spec::ToySource>(middle, n_prompt), std::move(inner), stopping_rule(rule, 3), kCosts},
            {limits, clock});
    }
    std::unique_ptr<spec::Drafter> make(const std::string& name) {
        if (name == "model") return chain(middle);
        if (name == "ngram") return ngram();
        if (name == "cascade") return cascade(chain(small), "adaptive");
        if (name == "cascade over ngram") return cascade(ngram(), "heuristic");
        if (name == "cascade of three") return cascade(cascade(chain(small), "static"), "expected-gain");
        std::vector<std::unique_ptr<spec::Drafter>> both;
        both.push_back(ngram());
        both.push_back(chain(middle));
        return spec::make_fallback_drafter(std::move(both));
    }
};

const char* const kDrafters[] = {"model", "ngram", "cascade", "cascade over ngram", "cascade of three", "combination"};

// ---- an engine ----

// The golden draft is the target, as it is the faster of the two.
class EngineExactness : public testing::Test {
  protected:
    EngineExactness() : pair_(golden_directory("llama-draft"), golden_directory("llama-draft")) {
        sampling_.temperature = 4; // makes its first tokens about equally likely
        sampling_.seed = 5;
        probabilities_ = target_probabilities(pair_.target, sampling_, kLength);
    }

    double z_of(const std::string& drafter_name, Acceptance acceptance, const std::string& rule, int n) {
        const auto drafter = toys_.make(drafter_name);
        RunOptions options;
        options.acceptance = acceptance;
        options.rule = stopping_rule(rule);
        options.vocab_size = static_cast<int>(kVocab);
        options.costs = kCosts;
        const Sampled sampled = sample_texts(pair_, *drafter, options, sampling_, n, kLength);
        const double z = chi_square_z(sampled.counts, probabilities_, n);
        std::cout << drafter_name << ", " << to_string(acceptance) << ", " << rule << ": z " << z << " over " << n
                  << " texts; drafted in a round "
                  << static_cast<double>(sampled.stats.drafted) / static_cast<double>(sampled.stats.rounds)
                  << ", accepted " << sampled.stats.draft_acceptance_rate() << "\n";
        EXPECT_GT(sampled.stats.accepted, n / 20);
        return z;
    }

    static constexpr std::size_t kLength = 4;
    TestPair pair_;
    ToyDrafters toys_;
    spec::SamplingOptions sampling_;
    std::map<Tokens, double> probabilities_;
};

TEST_F(EngineExactness, OneHundredThousandTextsFollowTheTargetUnderRejectionWithACascade) {
    EXPECT_LT(z_of("cascade", Acceptance::rejection, "static", 100000), kMaxZ);
}

TEST_F(EngineExactness, OneHundredThousandTextsFollowTheTargetUnderBlockWithAModel) {
    EXPECT_LT(z_of("model", Acceptance::block, "expected-gain", 100000), kMaxZ);
}

TEST_F(EngineExactness, TextsFollowTheTargetWithEveryDrafterUnderRejectionAndBlock) {
    for (const char* drafter : kDrafters)
        for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::block})
            for (const char* rule : {"static", "expected-gain"})
                EXPECT_LT(z_of(drafter, acceptance, rule, 10000), kMaxZ) << drafter;
}

TEST_F(EngineExactness, TextsFollowTheTargetWithTreesUnderRejection) {
    TestPair pair(golden_directory("llama-draft"), golden_directory("llama-target"));
    const int n = 10000;
    for (const char* shape : {"2,2", "3,1,1", "eagle2:3:2", "expected-gain:3:2"}) {
        spec::DrafterParts parts{{toys_.limits, toys_.clock}};
        parts.models = {&pair.draft.decoder};
        parts.tree = spec::parse_tree(shape);
        const auto drafter = spec::drafter_type("model").make(parts);
        RunOptions options;
        options.acceptance = Acceptance::rejection;
        options.rule = rule_of("expected-gain", 1, 12);
        options.vocab_size = static_cast<int>(kVocab);
        options.costs = kCosts;
        const Sampled sampled = sample_texts(pair, *drafter, options, sampling_, n, kLength);
        EXPECT_LT(chi_square_z(sampled.counts, probabilities_, n), kMaxZ) << shape;
        EXPECT_GT(sampled.stats.accepted, n / 20) << shape;
        EXPECT_LT(sampled.stats.accepted, sampled.stats.drafted) << shape;
    }
}

TEST_F(EngineExactness, TextsFollowTheTargetWithLookaheadUnderRejection) {
    const int n = 10000;
    for (const spec::LookaheadOptions& shape : {spec::LookaheadOptions{2, 3, 1}, {1, 2, 3}, {3, 4, 2}}) {
        spec::DrafterParts parts{{toys_.limits, toys_.clock}};
        const auto drafter =
            spec::drafter_type("lookahead")
                .make(parts, {{"window", shape.window}, {"ngram", shape.ngram}, {"candidates", shape.candidates}});
        for (const std::string rule : {"constant", "expected-gain"}) { // all rounds draft, or only some
            RunOptions options;
            options.acceptance = Acceptance::rejection;
            options.rule = rule_of(rule, 1, shape.max_tokens());
            options.vocab_size = static_cast<int>(kVocab);
            options.costs = kCosts;
            const Sampled sampled = sample_texts(pair_, *drafter, options, sampling_, n, kLength);
            const double z = chi_square_z(sampled.counts, probabilities_, n);
            std::cout << shape.window << " " << shape.ngram << " " << shape.candidates << ", " << rule << ": z " << z
                      << "\n";
            EXPECT_LT(z, kMaxZ) << shape.window << ", " << rule;
            EXPECT_GT(sampled.stats.accepted, rule == "constant" ? n / 20 : 0) << shape.window;
            EXPECT_LT(sampled.stats.accepted, sampled.stats.drafted) << shape.window;
        }
    }
}

TEST_F(EngineExactness, ChiSquareSeesThatAcceptanceByAThresholdIsLossy) {
    for (const Acceptance acceptance : {Acceptance::typical, Acceptance::bild})
        EXPECT_GT(z_of("model", acceptance, "static", 10000), 5 * kMaxZ);
}

// ---- toys ----

double toy_z(spec::Drafter& drafter, const spec::StopRuleOptions& rule, Acceptance acceptance, std::size_t length,
             int texts, const ToyModel& target, const Tokens& prompt = kPrompt) {
    spec::GainModel gain({rule.max_tokens + 1, 0.1, kCosts});
    spec::ToyRounds rounds(target, drafter, rule, acceptance, &gain, prompt);
    const double z =
        spec::chi_square_z(target, length, texts, [&](std::uint64_t key) { return rounds.text(length, key); });
    EXPECT_GT(rounds.accepted, 0);
    EXPECT_LT(rounds.accepted, rounds.drafted);
    return z;
}

TEST(ToyExactness, TextsFollowTheTargetWithEveryDrafterAcceptanceAndRule) {
    ToyDrafters toys;
    const ToyModel target(kVocab, 30, spec::options_of(1));
    for (const char* name : kDrafters)
        for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::block})
            for (const std::string& kind : spec::stop_rule_names()) {
                const auto drafter = toys.make(name);
                EXPECT_LT(toy_z(*drafter, stopping_rule(kind), acceptance, 4, 20000, target), kMaxZ)
                    << name << ", " << to_string(acceptance) << ", " << kind;
            }
}

// An inner rule learns from tokens that a level above rejected. If the next round used any of their numbers, its text
// would depend on them: z was 7.1 (adaptive) and 6.8 (heuristic) when it did.
TEST(ToyExactness, WhatAnInnerRuleLearntFromTokensThatFellBendsNothing) {
    dist::ManualClock clock;
    const Tokens prompt = {0};
    for (const auto& [kind, seed] : {std::pair{"adaptive", 3}, {"heuristic", 2}}) {
        const auto of = [&, s = static_cast<std::uint64_t>(seed)](std::uint64_t n) {
            return ToyModel(2, s + 10 * n, spec::options_of(1));
        };
        const ToyModel target = of(0), middle = of(1), small = of(2);
        const spec::DraftLimits limits{2, {}};
        const auto drafter = spec::make_cascade_drafter(
            {std::make_unique<spec::ToySource>(middle, 1),
             spec::make_chain_drafter(std::make_unique<spec::ToySource>(small, 1), {limits, clock}),
             rule_of(kind, 1, 5),
             {}},
            {limits, clock});
        EXPECT_LT(toy_z(*drafter, constant_rule(5), Acceptance::rejection, 8, 400000, target, prompt), kMaxZ) << kind;
    }
}

// Block verification looks at rejected tokens, so the next round must use new numbers. This is Sun et al.'s first
// example, which shows an error best.
TEST(ToyExactness, WhatBlockVerificationSawOfTokensThatFellBendsNothing) {
    const ToyModel target({1.0F / 3, 2.0F / 3}), draft({2.0F / 3, 1.0F / 3});
    dist::ManualClock clock;
    const auto drafter = spec::make_chain_drafter(std::make_unique<spec::ToySource>(draft, 1), {{2, {}}, clock});
    EXPECT_LT(toy_z(*drafter, constant_rule(3), Acceptance::block, 6, 200000, target, {0}), kMaxZ);
}

// Drafting and resampling use the same number, as if they were one purpose. Chi-square must detect that.
TEST(ToyExactness, ChiSquareSeesADrafterThatKnowsTheVerdictsNumbers) {
    class Cheat final : public spec::Drafter {
      public:
        explicit Cheat(const ToyModel& toy) : Drafter({.name = "cheat"}), toy_(toy) {}
        void begin_sequence(int, const spec::Request&) override {}
        void propose(std::span<const spec::DraftTask> tasks) override {
            const spec::DraftTask& request = tasks.front();
            spec::Draft& draft = *tasks.front().draft;
            tasks.front().rule->begin_round();
            draft.clear();
            if (request.max_tokens < 1) return;
            const Tokens text(request.tokens.begin() + 5, request.tokens.end());
            const spec::RandomStream random(0, request.choice.random_key, spec::Purpose::resample);
            q_ = toy_.after(text);
            draft.add(spec::sample(q_, random.uniform(request.tokens.size())), {});
            draft.q = q_;
            draft.end = spec::DraftEnd::cap;
        }

      private:
        const ToyModel& toy_;
        std::vector<float> q_;
    };
    const ToyModel target(kVocab, 30, spec::options_of(1)), draft(kVocab, 31, spec::options_of(1));
    Cheat cheat(draft);
    EXPECT_GT(toy_z(cheat, constant_rule(1), Acceptance::rejection, 4, 200000, target), 2 * kMaxZ);
}

} // namespace exactness_test
