// The checks of a round, and the work that it never asks for, seen through an engine on one rank.
#include "tests/model/temporary_directory.h"
#include "tests/spec/engine_support.h"

#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace round_test {

using namespace entrodraft;

const std::filesystem::path kTarget = golden_directory("llama-target");
const std::filesystem::path kDraft = golden_directory("llama-draft");

TEST(Round, AsksForNoDraftOfTheLastTokenThatBudgetOrContextLeaves) {
    TestPair pair(kTarget, kDraft); // 256 positions
    struct Case {
        int prompt_length, max_new_tokens, room;
    };
    for (const auto& [prompt_length, max_new_tokens, room] :
         {Case{255, 100, 0}, Case{254, 100, 1}, Case{250, 100, 5}, Case{20, 1, 0}, Case{20, 4, 3}, Case{250, 3, 2}}) {
        std::size_t max_drafted = 0;
        const std::vector<TokenId> prompt = varied_tokens(prompt_length, 512);
        ScriptedDrafter eager(127, [&](std::size_t position) {
            max_drafted = std::max(max_drafted, position - prompt.size() + 1);
            return 0;
        });
        pair.run({request_of(prompt, max_new_tokens)}, {.rule = constant_rule(15)}, &eager);
        EXPECT_EQ(max_drafted, room) << prompt_length << " tokens, " << max_new_tokens << " asked for";
    }
}

// A copy of the golden target whose final norm is `value` throughout.
void write_broken_target(const TemporaryDirectory& directory, float value) {
    for (const char* name : {"config.json", "tokenizer.json"})
        std::filesystem::copy_file(kTarget / name, directory.path() / name);
    const auto checkpoint = model::Checkpoint::open(kTarget);
    const model::TensorView& norm = checkpoint.tensor("model.norm.weight");
    ASSERT_EQ(norm.type, model::DiskType::float32);
    std::ifstream file(kTarget / "model.safetensors", std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(file), {});
    const std::size_t at = bytes.find(std::string(reinterpret_cast<const char*>(norm.bytes.data()), norm.bytes.size()));
    ASSERT_NE(at, std::string::npos);
    for (std::size_t i = 0; i < norm.bytes.size(); i += sizeof value)
        std::memcpy(bytes.data() + at + i, &value, sizeof value);
    directory.write("model.safetensors", bytes);
}

TEST(Round, SaysThatLogitsAreNoNumbersInsteadOfDecodingThem) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        const TemporaryDirectory directory;
        write_broken_target(directory, value);
        TestPair pair(directory.path(), kDraft);
        for (const double temperature : {0.0, 1.0}) {
            spec::Request request = request_of(varied_tokens(10, 512), 5);
            request.sampling.temperature = temperature;
            try {
                pair.run({request});
                ADD_FAILURE() << "text was made of " << value << " at temperature " << temperature;
            } catch (const spec::RoundError& error) {
                EXPECT_EQ(error.step(), temperature == 0 ? "gather" : "verify");
                EXPECT_NE(std::string(error.what()).find("logit"), std::string::npos) << error.what();
            }
        }
    }
}

// ---- the figures of a round ----

struct Told {
    std::vector<spec::RoundTrace> traces;
    std::vector<std::vector<TokenId>> drafts;
    std::vector<std::vector<float>> entropies;
    std::vector<std::vector<spec::Stats>> levels;
    spec::Completion completion;
};

Told tell(TestPair& pair, const spec::Request& request, const RunOptions& options, spec::Drafter& drafter,
          const std::function<bool(const spec::Request&)>& ends_text = {}) {
    Told told;
    bool asked = false;
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [&]() -> std::optional<spec::Request> {
        if (std::exchange(asked, true)) return std::nullopt;
        return request;
    };
    callbacks.on_round = [&](const spec::Request& of, const spec::RoundTrace& trace) {
        EXPECT_EQ(of.id, request.id);
        told.traces.push_back(trace);
        told.drafts.push_back(trace.draft->tokens);
        told.entropies.push_back(trace.draft->entropies_nats);
        told.levels.push_back(trace.draft->levels);
    };
    callbacks.ends_text = ends_text;
    callbacks.on_complete = [&](const spec::Request&, spec::Completion completion) {
        told.completion = std::move(completion);
    };
    const volatile int no_signal = 0;
    pair.engine(options, &drafter)->run(callbacks, no_signal);
    return told;
}

// A tree's drafter needs entropies all the same.
TEST(RoundTrace, ARuleWithoutEntropiesHasNoAcceptanceByThem) {
    TestPair pair(kTarget, kDraft);
    spec::DrafterParts parts{{pair.limits(), pair.clock, 1}};
    parts.models = {&pair.draft.decoder};
    parts.tree = spec::parse_tree("2,1");
    RunOptions options;
    options.rule = spec::tree_rule(*parts.tree);
    const auto drafter = spec::drafter_type("model").make(parts);
    const Told told = tell(pair, request_of(varied_tokens(20, 512), 12), options, *drafter);
    ASSERT_FALSE(told.entropies.front().empty());
    EXPECT_FALSE(std::isnan(told.entropies.front().front()));
    EXPECT_TRUE(told.completion.stats.by_entropy.empty());
}

TEST(RoundTrace, SecondsOfPassesAreToldByTheirRows) {
    TestPair pair(kTarget, kDraft);
    RunOptions options;
    options.rule = rule_of("static");
    options.rule.set("threshold", 2);
    const auto drafter = pair.model_drafter();
    const spec::Stats stats = tell(pair, request_of(varied_tokens(20, 512), 60), options, *drafter).completion.stats;
    ASSERT_EQ(stats.seconds_of_rows.size(), stats.passes_of_rows.size());
    double seconds = 0;
    for (std::size_t rows = 0; rows < stats.passes_of_rows.size(); ++rows) {
        EXPECT_EQ(stats.seconds_of_rows[rows] > 0, stats.passes_of_rows[rows] > 0) << rows;
        seconds += stats.seconds_of_rows[rows];
    }
    EXPECT_NEAR(seconds, stats.seconds.score, 1e-9);
    spec::Stats twice = stats;
    twice += stats;
    EXPECT_DOUBLE_EQ(twice.seconds_of_rows.back(), 2 * stats.seconds_of_rows.back());
}

// The text is cut after a round, whatever was asked for.
TEST(RoundTrace, ATextMayBeEndedBehindAnyRound) {
    TestPair pair(kTarget, kDraft);
    const auto drafter = pair.model_drafter();
    int rounds = 0;
    const Told told = tell(pair, request_of(varied_tokens(20, 512), 60), {.rule = constant_rule(3)}, *drafter,
                           [&](const spec::Request&) { return ++rounds == 3; });
    EXPECT_EQ(told.completion.stats.rounds, 3);
    EXPECT_EQ(told.completion.finish_reason, spec::FinishReason::length);
    EXPECT_LT(told.completion.tokens.size(), 13U);
    EXPECT_EQ(static_cast<std::int64_t>(told.completion.tokens.size()), told.completion.stats.new_tokens);
}

// The traces alone give the text and the figures.
TEST(RoundTrace, TellsEachRoundOnceAndAllThatBecameOfIt) {
    TestPair pair(kTarget, kDraft);
    spec::Request request = request_of(varied_tokens(20, 512), 60);
    request.id = "\"a line\"";
    RunOptions options;
    options.rule = rule_of("static");
    options.rule.set("threshold", 2);
    const auto drafter = pair.model_drafter();
    const Told told = tell(pair, request, options, *drafter);
    ASSERT_EQ(told.traces.size(), static_cast<std::size_t>(told.completion.stats.rounds));
    std::vector<TokenId> text;
    spec::Stats stats;
    for (std::size_t i = 0; i < told.traces.size(); ++i) {
        const spec::RoundTrace& trace = told.traces[i];
        const auto& drafted = told.drafts[i];
        EXPECT_EQ(trace.position, static_cast<int>(request.prompt.size() + text.size()))
            << "of the first drafted token";
        if (i > 0) {
            EXPECT_EQ(trace.number, told.traces[i - 1].number + 1);
        }
        EXPECT_GE(trace.draft_seconds, 0);
        EXPECT_GT(trace.target_seconds, 0);
        EXPECT_EQ(told.entropies[i].size(), drafted.size());
        ASSERT_LE(trace.verification.accepted, static_cast<int>(drafted.size()));
        text.insert(text.end(), drafted.begin(), drafted.begin() + trace.verification.accepted);
        text.push_back(trace.verification.next_token);
        stats.count_round(static_cast<int>(drafted.size()), trace.verification.accepted,
                          static_cast<int>(drafted.size()));
        stats.count_entropies(told.entropies[i], trace.verification.accepted);
    }
    EXPECT_EQ(text, told.completion.tokens);
    const spec::Stats& counted = told.completion.stats;
    EXPECT_EQ(counted.drafted, stats.drafted);
    EXPECT_EQ(counted.accepted, stats.accepted);
    EXPECT_EQ(counted.draft_passes, stats.draft_passes);
    EXPECT_EQ(counted.passes_of_rows, stats.passes_of_rows);
    EXPECT_EQ(counted.rounds_of_accepted, stats.rounds_of_accepted);
    ASSERT_EQ(counted.by_entropy.size(), stats.by_entropy.size());
    for (std::size_t i = 0; i < stats.by_entropy.size(); ++i) {
        EXPECT_EQ(counted.by_entropy[i].verified, stats.by_entropy[i].verified);
        EXPECT_EQ(counted.by_entropy[i].accepted, stats.by_entropy[i].accepted);
    }
    // In greedy text p and q are one-hot: alpha is the share of verified tokens that were accepted.
    std::int64_t verified = 0;
    for (const spec::Acceptances& at : counted.by_position)
        verified += at.verified;
    EXPECT_DOUBLE_EQ(counted.alpha().value(), static_cast<double>(counted.accepted) / static_cast<double>(verified));
}

TEST(RoundTrace, HoldsTheLevelsOfACascadeWhichAddUpInItsFigures) {
    TestPair pair(kTarget, kDraft);
    const auto limits = pair.limits();
    const auto cascade = spec::make_cascade_drafter(
        {spec::make_model_source(pair.draft.decoder, limits.vocab_size),
         spec::make_chain_drafter(spec::make_random_source(limits.vocab_size), {limits, pair.clock}),
         constant_rule(2),
         {}},
        {limits, pair.clock});
    RunOptions options;
    options.rule = constant_rule(4);
    const Told told = tell(pair, request_of(varied_tokens(20, 512), 40), options, *cascade);
    spec::Stats sum;
    for (const auto& levels : told.levels) {
        if (!levels.empty()) {
            EXPECT_EQ(levels.size(), 1U);
        }
        add_levels(sum.levels, levels);
    }
    ASSERT_EQ(told.completion.stats.levels.size(), 1U);
    EXPECT_EQ(told.completion.stats.levels[0].rounds, sum.levels[0].rounds);
    EXPECT_EQ(told.completion.stats.levels[0].drafted, sum.levels[0].drafted);
    EXPECT_EQ(told.completion.stats.levels[0].rounds, told.completion.stats.draft_passes);
    EXPECT_GT(sum.levels[0].drafted, 0);
}

TEST(RoundTrace, OfALenientTextKnowsHowOftenTokensWereLikelyToBeAccepted) {
    TestPair pair(kTarget, kDraft);
    const auto drafter = pair.model_drafter();
    for (const double temperature : {0.0, 1.0}) {
        spec::Stats stats;
        for (int text = 0; text < 6; ++text) {
            spec::Request request = request_of(varied_tokens(20 + text, 512), 40);
            request.sampling.temperature = temperature;
            RunOptions options;
            options.acceptance = spec::Acceptance::rejection;
            options.lenience = 0.2;
            options.rule = constant_rule(1);
            stats += tell(pair, request, options, *drafter).completion.stats;
        }
        EXPECT_EQ(stats.overlaps, stats.drafted);
        const double error = std::sqrt(0.25 / static_cast<double>(stats.drafted));
        EXPECT_NEAR(stats.alpha().value(), stats.draft_acceptance_rate(), temperature > 0 ? 4 * error : 0);
    }
}

// In sampled text alpha is the mean of sum min(p, q) over verified tokens.
TEST(RoundTrace, OfASampledTextKnowsItsOverlapsAndOfGumbelNone) {
    TestPair pair(kTarget, kDraft);
    spec::Request request = request_of(varied_tokens(20, 512), 40);
    request.sampling.temperature = 1;
    const auto drafter = pair.model_drafter();
    for (const spec::Acceptance acceptance : {spec::Acceptance::rejection, spec::Acceptance::block}) {
        RunOptions options;
        options.acceptance = acceptance;
        options.rule = constant_rule(1); // both verify it in the same way
        const spec::Stats stats = tell(pair, request, options, *drafter).completion.stats;
        EXPECT_EQ(stats.overlaps, stats.drafted);
        EXPECT_GT(stats.alpha().value(), 0.05);
        EXPECT_LT(stats.alpha().value(), 0.95);
    }
    RunOptions options;
    options.acceptance = spec::Acceptance::gumbel;
    EXPECT_FALSE(tell(pair, request, options, *drafter).completion.stats.alpha().has_value());
}

} // namespace round_test
