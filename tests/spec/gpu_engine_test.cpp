// The whole engine over models on a GPU: speculative text is plain text, bit for bit, and in float32 the CPU's.
#include "engine_support.h"
#include "model/gpu_models.h"

namespace {

using namespace entrodraft;
using model::WeightType;
using spec::Acceptance;
using spec::Completion;
using spec::Request;

const std::filesystem::path kTarget = golden_directory("llama-target");
const std::filesystem::path kDraft = golden_directory("llama-draft");

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
    TestPair pair(kTarget, kDraft, on_gpu());
    const auto golden = golden_expectations("llama-target").at(3);
    const auto done = pair.run({request_of(golden.at("prompt").get<std::vector<TokenId>>(), 24, true)});
    const auto greedy = golden.at("greedy").get<std::vector<TokenId>>();
    EXPECT_EQ(done.at(0).tokens, std::vector<TokenId>(greedy.begin(), greedy.begin() + 24));
}

TEST(GpuEngine, SpeculativeTextIsPlainText) {
    for (const auto& [type, temperature] :
         {std::pair{WeightType::float32, 0.0}, {WeightType::bfloat16, 0.0}, {WeightType::bfloat16, 1.0}}) {
        SCOPED_TRACE(to_string(type) + ", temperature " + std::to_string(temperature));
        TestPair pair(kTarget, kDraft, on_gpu(type));
        RunOptions options;
        options.acceptance = temperature > 0 ? Acceptance::gumbel : Acceptance::rejection;
        const std::vector<Completion> plain = pair.run(requests(10, true, temperature), options);
        std::int64_t drafted = 0;
        for (const spec::StopRuleOptions& rule : {constant_rule(3), rule_of(spec::StopRuleKind::static_threshold)}) {
            options.rule = rule;
            const std::vector<Completion> got = pair.run(requests(10, false, temperature), options);
            expect_same(got, plain);
            drafted += got.at(0).stats.drafted;
        }
        EXPECT_GT(drafted, 10);
    }
}

TEST(GpuEngine, SequencesOfABatchHaveTheTextsTheyHaveAlone) {
    TestPair one(kTarget, kDraft, on_gpu(WeightType::bfloat16)),
        three(kTarget, kDraft, on_gpu(WeightType::bfloat16, 3));
    const std::vector<Completion> alone = one.run(requests(12, true));
    RunOptions options;
    options.n_slots = 3;
    options.rule = constant_rule(4);
    std::vector<std::unique_ptr<spec::Drafter>> drafters;
    for (int slot = 0; slot < 3; ++slot)
        drafters.push_back(spec::make_chain_drafter(
            spec::make_model_source(three.draft.decoder, three.vocab_size(), slot), three.limits(), three.clock));
    const auto together = spec::make_turns_drafter(std::move(drafters));
    expect_same(three.run(requests(12, false), options, together.get()), alone);
}

} // namespace
