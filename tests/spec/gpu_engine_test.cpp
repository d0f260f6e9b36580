// The whole engine over models on a GPU: speculative text is plain text bit for bit, and in float32 the CPU's.
#include "spec/gpu/device_round.h"
#include "tests/model/gpu_models.h"
#include "tests/spec/exactness_support.h"

namespace gpu_engine_test {

using namespace entrodraft;
using model::WeightType;
using spec::Acceptance;
using spec::Completion;
using spec::Request;

const std::filesystem::path kTarget = golden_directory("llama-target");
const std::filesystem::path kDraft = golden_directory("llama-draft");

struct GpuPair : TestPair {
    explicit GpuPair(const TestModelOptions& options = on_gpu(), const std::filesystem::path& of_target = kTarget,
                     const std::filesystem::path& of_draft = kDraft)
        : TestPair(of_target, of_draft, options) {
        device = spec::gpu::make_device_round();
    }
};

std::vector<Request> requests(int new_tokens, bool plain, double temperature = 0) {
    std::vector<Request> all = {request_of({7}, new_tokens, plain), request_of({300, 12, 5, 9}, new_tokens, plain),
                                request_of({41, 2}, new_tokens, plain)};
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].sampling.temperature = temperature;
        all[i].sampling.seed = 5;
        all[i].sequence_key = i;
    }
    return all;
}

void expect_same(const std::vector<Completion>& got, const std::vector<Completion>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(got[i].tokens, want[i].tokens) << "text " << i;
}

TEST(GpuEngine, PlainGreedyTextIsTheGoldenOne) {
    GpuPair pair;
    const auto golden = golden_expectations("llama-target").at(3);
    const auto done = pair.run({request_of(golden.at("prompt").get<std::vector<TokenId>>(), 24, true)});
    const auto greedy = golden.at("greedy").get<std::vector<TokenId>>();
    EXPECT_EQ(done.at(0).tokens, std::vector<TokenId>(greedy.begin(), greedy.begin() + 24));
}

TEST(GpuEngine, SpeculativeTextIsPlainText) {
    for (const auto& [type, temperature] :
         {std::pair{WeightType::int8, 0.0}, {WeightType::int4, 0.0}, {WeightType::bfloat16, 1.0}}) {
        SCOPED_TRACE(to_string(type) + ", temperature " + std::to_string(temperature));
        GpuPair pair(on_gpu(type));
        RunOptions options;
        options.acceptance = temperature > 0 ? Acceptance::gumbel : Acceptance::rejection;
        const std::vector<Completion> plain = pair.run(requests(6, true, temperature), options);
        std::int64_t drafted = 0;
        for (const spec::StopRuleOptions& rule : {constant_rule(3), rule_of("static")}) {
            options.rule = rule;
            const std::vector<Completion> got = pair.run(requests(6, false, temperature), options);
            expect_same(got, plain);
            drafted += got.at(0).stats.drafted;
        }
        EXPECT_GT(drafted, 6);
    }
}

// Chains and trees of a draft of the same family, with two texts at a time. Rejected branches are cut out of the cache.
TEST(GpuEngine, TextsOverSinksLatentCachesAndStatesArePlainTexts) {
    for (const char* family : {"gpt-oss", "deepseek-v3", "qwen3-next", "qwen3-5"})
        for (const auto& [tree, temperature] : {std::pair{"3,2,1", 0.0}, {"", 1.0}}) {
            SCOPED_TRACE(std::string(family) + ", tree " + tree);
            const auto directory = source_directory() / "tests/model/families" / family;
            GpuPair pair(on_gpu(WeightType::bfloat16, 2), directory / "target", directory / "draft");
            std::vector<Request> asked = {request_of(varied_tokens(20, 100), 5, true), request_of({7, 3}, 5, true)};
            for (Request& request : asked)
                request.sampling.temperature = temperature;
            RunOptions options;
            options.acceptance = Acceptance::gumbel;
            const std::vector<Completion> plain = pair.run(asked, options);
            for (Request& request : asked)
                request.plain = false;
            options.n_slots = 2;
            options.rule = constant_rule(4, 12);
            spec::DrafterParts parts{{pair.limits(), pair.clock, options.n_slots}};
            parts.models = {&pair.draft.decoder};
            parts.device = pair.device.get();
            if (*tree != 0) parts.tree = spec::parse_tree(tree);
            const auto drafter = spec::drafter_type("model").make(parts);
            const std::vector<Completion> got = pair.run(asked, options, drafter.get());
            expect_same(got, plain);
            EXPECT_GT(got.at(0).stats.drafted, got.at(0).stats.accepted);
        }
}

// The samples of one prompt share its states; after them each goes its own way.
TEST(GpuEngine, SamplesThatShareAPromptOverStatesAreThoseOfTheirOwn) {
    const auto directory = source_directory() / "tests/model/families/qwen3-5";
    GpuPair one(on_gpu(WeightType::bfloat16), directory / "target", directory / "draft"),
        three(on_gpu(WeightType::bfloat16, 3), directory / "target", directory / "draft");
    const auto asked = [](bool plain) {
        std::vector<Request> samples;
        for (std::uint64_t i = 0; i < 3; ++i) {
            Request& request = samples.emplace_back(request_of(varied_tokens(30, 100), 5, plain));
            request.num_samples = 3;
            request.sequence_key = i;
            request.sampling.temperature = 1;
        }
        return samples;
    };
    RunOptions options;
    options.acceptance = Acceptance::gumbel;
    const std::vector<Completion> alone = one.run(asked(true), options);
    EXPECT_NE(alone[0].tokens, alone[1].tokens);
    options.n_slots = 3;
    options.rule = constant_rule(3);
    expect_same(three.run(asked(false), options), alone);
}

TEST(GpuEngine, SequencesOfABatchHaveTheTextsTheyHaveAlone) {
    GpuPair one(on_gpu(WeightType::bfloat16)), three(on_gpu(WeightType::bfloat16, 3));
    const std::vector<Completion> alone = one.run(requests(12, true));
    RunOptions options;
    options.n_slots = 3;
    options.rule = constant_rule(4);
    expect_same(three.run(requests(12, false), options), alone);
}

// Chunks of one prompt are read between rounds of other texts.
TEST(GpuEngine, ALongPromptBesideOtherTextsHasTheTextItHasAlone) {
    GpuPair one(on_gpu(WeightType::bfloat16)), two(on_gpu(WeightType::bfloat16, 2));
    const auto asked = [](bool plain) {
        return std::vector<Request>{request_of({7, 300}, 14, plain), request_of({41}, 2, plain),
                                    request_of(varied_tokens(70, 500), 8, plain)};
    };
    const std::vector<Completion> alone = one.run(asked(true));
    RunOptions options;
    options.n_slots = 2;
    options.rule = constant_rule(3);
    expect_same(two.run(asked(false), options), alone);
}

// A device that goes on by itself drafts what the rule wants row by row: the drafts are the CPU's, and few rows are
// made in vain.
TEST(GpuEngine, ChainsAreWhatTheRulesWant) {
    constexpr int kTokens = 7;
    TestPair on_cpu(kTarget, kDraft);
    GpuPair on_device;
    int number = 0;
    for (const std::string& kind : spec::stop_rule_names()) {
        ++number;
        for (const double temperature : {0.0, 1.0}) {
            if (kOnStandIn && (temperature > 0) != (number % 2 == 0)) continue; // a run takes a second
            SCOPED_TRACE(kind + ", temperature " + std::to_string(temperature));
            RunOptions options;
            options.rule = rule_of(kind);
            if (kind == "constant") options.rule.set("tokens", 3);
            options.acceptance = Acceptance::gumbel;
            options.costs = spec::Costs{};
            options.costs->t_draft = 0.05;
            options.costs->t_target = {1, 1.05, 1.1, 1.15, 1.2};
            std::vector<Request> asked = requests(kTokens, false, temperature);
            asked.resize(kOnStandIn ? 1 : 2);
            const std::vector<Completion> want = on_cpu.run(asked, options);
            const std::vector<Completion> got = on_device.run(asked, options);
            expect_same(got, want);
            for (std::size_t i = 0; i < want.size(); ++i) {
                EXPECT_EQ(got[i].stats.drafted, want[i].stats.drafted);
                EXPECT_EQ(got[i].stats.rounds, want[i].stats.rounds);
                EXPECT_EQ(got[i].stats.draft_passes, want[i].stats.draft_passes);
            }
        }
    }
}

// A device knows raw distributions only. For adjusted ones the host looks at rows, and drafts are the CPU's.
TEST(GpuEngine, AdjustedEntropiesAreThoseOfTheHost) {
    TestPair on_cpu(kTarget, kDraft);
    GpuPair on_device;
    RunOptions options;
    options.rule = rule_of("static");
    options.rule.set("threshold", 1.5);
    options.rule.entropy_of = spec::EntropyOf::adjusted;
    for (const Acceptance acceptance : {Acceptance::gumbel, Acceptance::rejection}) {
        options.acceptance = acceptance;
        std::vector<Request> asked = requests(8, false, 0.5);
        asked.resize(2);
        const std::vector<Completion> want = on_cpu.run(asked, options);
        const std::vector<Completion> got = on_device.run(asked, options);
        expect_same(got, want);
        for (std::size_t i = 0; i < want.size(); ++i)
            EXPECT_EQ(got[i].stats.drafted, want[i].stats.drafted)
                << "not verified on the device, nor drafted by a device";
    }
}

// Rejection and block over rows that stay on the device, which draws by other numbers than the CPU: a seed gives one
// text, and some drafted tokens are accepted, others rejected. gpu_verify_rows_test.cpp tests the rows,
// verify_on_device_test.cpp the verification by them.
TEST(GpuEngine, SampledTextIsVerifiedWhereItsRowsAre) {
    TestPair on_cpu(kTarget, kDraft);
    GpuPair on_device;
    EXPECT_TRUE(on_device.model_drafter()->facts().keeps_logits_on_device);
    EXPECT_FALSE(on_cpu.model_drafter()->facts().keeps_logits_on_device);
    for (const auto& [acceptance, kind] :
         {std::pair{Acceptance::rejection, std::string("static")}, {Acceptance::block, "constant"}}) {
        SCOPED_TRACE(to_string(acceptance) + ", " + kind);
        RunOptions options;
        options.acceptance = acceptance;
        options.rule = rule_of(kind);
        if (kind == "constant") options.rule.set("tokens", 3);
        const auto asked = requests(6, false, 1.0);
        const std::vector<Completion> first = on_device.run(asked, options), again = on_device.run(asked, options);
        expect_same(again, first);
        EXPECT_NE(first[0].tokens, on_cpu.run(asked, options)[0].tokens) << "not drawn by noise";
        std::int64_t drafted = 0, accepted = 0;
        for (const Completion& text : first) {
            EXPECT_EQ(text.tokens.size(), 6U);
            EXPECT_GT(text.stats.overlap, 0);
            EXPECT_LT(text.stats.overlap, text.stats.overlaps);
            drafted += text.stats.drafted;
            accepted += text.stats.accepted;
        }
        EXPECT_GT(accepted, 0);
        EXPECT_GT(drafted, accepted);
    }
}

// Chi-square over whole engines: the numbers for drafting, accepting and resampling are independent.
TEST(GpuEngine, TextsVerifiedWhereTheirRowsAreFollowTheTarget) {
    if (kOnStandIn) GTEST_SKIP() << "a text takes a second on the stand-in";
    constexpr int kTexts = 5000;
    constexpr std::size_t kLength = 3;
    spec::SamplingOptions sampling;
    sampling.temperature = 4; // makes the first tokens about equally likely
    sampling.seed = 5;
    TestModel target(kTarget);
    const auto probabilities = target_probabilities(target, sampling, kLength);
    GpuPair pair;
    const spec::DraftLimits limits{static_cast<int>(kVocab), {}};
    for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::block}) {
        RunOptions options;
        options.acceptance = acceptance;
        options.rule = constant_rule(2);
        options.vocab_size = static_cast<int>(kVocab);
        const auto drafter = model_drafter_of(pair.draft.decoder, limits, pair.clock, 1, pair.device.get());
        const Sampled sampled = sample_texts(pair, *drafter, options, sampling, kTexts, kLength);
        EXPECT_LT(chi_square_z(sampled.counts, probabilities, kTexts), kMaxZ) << to_string(acceptance);
        EXPECT_GT(sampled.stats.accepted, kTexts / 20);
        EXPECT_LT(sampled.stats.accepted, sampled.stats.drafted);
    }
}

spec::SourceLogits rows_after(spec::LogitSource& source, std::span<const TokenId> text, model::LogitNeeds needs) {
    const spec::TextEnd end = {0, text, 1};
    return source.rows_after(std::span(&end, 1), needs);
}

TEST(GpuEngine, ASourceHasTheRowsOfAChainReady) {
    TestModel model(kDraft, on_gpu());
    const auto source = spec::make_model_source(model.decoder, 500);
    source->begin_sequence(0, {});
    std::vector<TokenId> text = {7, 12, 19};
    const auto device = spec::gpu::make_device_round();
    model::LogitNeeds needs(model::LogitSummary::entropy, false);
    needs.extension = device->draft({.max_rows = 4}, -1);
    std::vector<float> seen;
    for (int t = 0; t < 5; ++t) {
        const spec::SourceLogits rows = rows_after(*source, text, needs);
        seen.push_back(rows.summary(0).max);
        EXPECT_EQ(model.decoder.cache().length(0), t < 4 ? 6 : 10) << "one launch for four rows";
        text.push_back(rows.summary(0).arg_max);
    }
    // A text that is not the chain's is read anew.
    text[4] = text[4] == 9 ? 10 : 9;
    const float other = rows_after(*source, std::span(text).first(5), model::LogitSummary::entropy).summary(0).max;
    TestModel again(kDraft, on_gpu());
    const auto alone = spec::make_model_source(again.decoder, 500);
    alone->begin_sequence(0, {});
    EXPECT_EQ(other, rows_after(*alone, std::span(text).first(5), model::LogitSummary::entropy).summary(0).max);
    EXPECT_NE(other, seen[2]);
}

} // namespace gpu_engine_test
