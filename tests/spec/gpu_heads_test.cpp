// Draft heads on a GPU give the results of their authors' code, and texts are plain texts. The heads are random, so
// most drafted tokens are rejected.
#include "spec/gpu/device_round.h"
#include "tests/model/gpu_models.h"
#include "tests/spec/every_drafter.h"
#include "tests/spec/golden_head.h"

namespace gpu_heads_test {

using namespace entrodraft;
using model::WeightType;
using spec::Acceptance;
using spec::Completion;

constexpr int kLengths[] = {1, 20}; // of prompts
constexpr int kNewTokens = 6;

struct GpuHead : testing::TestWithParam<std::string> {};

TEST_P(GpuHead, GivesTheLogitsOfItsAuthorsCodeOverRounds) {
    HeadAndTarget head(GetParam(), on_gpu());
    expect_golden_rounds(head);
}

TEST_P(GpuHead, GivesAChainTheRowsOfItsBranch) {
    HeadAndTarget head(GetParam(), on_gpu());
    expect_golden_chain(head);
}

INSTANTIATE_TEST_SUITE_P(All, GpuHead, testing::ValuesIn(heads_without(model::what_needs_cpu)), name_of_head);

std::vector<Completion> draft(TestPair& pair, LoadedHead& head, double temperature, const char* tree, int n_slots) {
    spec::DrafterParts parts{{pair.limits(), pair.clock, n_slots}};
    parts.head = &head.modules;
    parts.device = pair.device.get();
    if (tree) parts.tree = spec::parse_tree(tree);
    const auto drafter = spec::drafter_type("head").make(parts);
    RunOptions options;
    options.acceptance = Acceptance::gumbel;
    options.n_slots = n_slots;
    options.hidden_layers = head.head.target_layers;
    options.rule = constant_rule(4, 20);
    return pair.run(requests_of(kLengths, pair.target.config.vocab_size, temperature, kNewTokens), options,
                    drafter.get());
}

void expect_same(const std::vector<Completion>& got, const std::vector<Completion>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(got[i].tokens, want[i].tokens) << "text " << i;
        EXPECT_GT(got[i].stats.drafted, 0) << "text " << i;
    }
}

// Texts drafted with heads on a GPU are compared with plain ones there.
struct GpuTexts {
    GpuTexts(const char* name, WeightType type)
        : options(on_gpu(type, 2)), pair(head_directory("target"), head_directory("target"), options),
          head(head_directory(name), head_directory("target"), pair.target.team, options) {
        pair.device = spec::gpu::make_device_round();
    }
    std::vector<Completion> plain(double temperature) {
        RunOptions run;
        run.acceptance = Acceptance::gumbel;
        return pair.run(plainly(requests_of(kLengths, pair.target.config.vocab_size, temperature, kNewTokens)), run);
    }

    TestModelOptions options;
    TestPair pair;
    LoadedHead head;
};

// In 16 bits prompts are rounded differently from the rows after them.
TEST(GpuHeads, DraftForThePlainText) {
    for (const char* name : {"eagle3", "mlp-speculator", "falcon"}) {
        GpuTexts texts(name, WeightType::bfloat16);
        for (const auto& [temperature, tree] :
             {std::pair{0.0, "expected-gain:2:3"}, {1.0, static_cast<const char*>(nullptr)}}) {
            SCOPED_TRACE(fmt::format("{}, temperature {}", name, temperature));
            expect_same(draft(texts.pair, texts.head, temperature, tree, 2), texts.plain(temperature));
        }
    }
}

TEST(GpuHeads, DraftWhatTheCpuDrafts) {
    for (const char* name : {"eagle3", "medusa"}) {
        GpuTexts texts(name, WeightType::float32);
        TestPair on_cpu(head_directory("target"), head_directory("target"));
        LoadedHead head(head_directory(name), head_directory("target"), on_cpu.target.team);
        for (const double temperature : {0.0, 1.0}) {
            SCOPED_TRACE(fmt::format("{}, temperature {}", name, temperature));
            const auto got = draft(texts.pair, texts.head, temperature, nullptr, 1),
                       want = draft(on_cpu, head, temperature, nullptr, 1);
            expect_same(got, want);
            for (std::size_t i = 0; i < want.size(); ++i)
                EXPECT_EQ(got[i].stats.accepted, want[i].stats.accepted) << "text " << i;
        }
    }
}

// The draft of a text's last row, by a head with this weight type; float32 for the reference.
std::vector<float> row_of(const std::string& name, WeightType type) {
    HeadAndTarget head(name, on_gpu(type));
    const auto text = head.expected["rounds"][0]["text"].get<std::vector<model::TokenId>>();
    head.source->begin_sequence(0, {});
    head.read(text, text.size() - 1);
    const spec::TextEnd end = {0, text, 1};
    const spec::SourceLogits rows = head.source->rows_after(std::span(&end, 1), {});
    std::vector<float> known;
    for (const float logit : rows.row(0))
        if (std::isfinite(logit)) known.push_back(logit);
    return known;
}

TEST(GpuHeads, OfFewerBitsStayNearFloat32) {
    for (const char* name : {"eagle", "eagle31-fc-norm", "hydra", "medusa", "mlp-speculator", "falcon", "blockwise"}) {
        const std::vector<float> reference = row_of(name, WeightType::float32);
        for (const auto& [type, bound] :
             {std::pair{WeightType::bfloat16, 0.1}, {WeightType::float16, 0.02}, {WeightType::int8, 0.2}}) {
            const double distance = relative_difference(row_of(name, type), reference);
            EXPECT_LT(distance, bound) << name << ", " << to_string(type);
            EXPECT_GT(distance, 0) << name << ", " << to_string(type);
        }
    }
}

#ifdef ENTRODRAFT_ON_STAND_IN
TEST(GpuHeads, RepeatTheirGraphsAndTheTargets) {
    HeadAndTarget head("eagle3", on_gpu());
    const std::vector<model::TokenId> text = varied_tokens(60, head.target.config.vocab_size);
    head.source->begin_sequence(0, {});
    const auto round = [&](std::size_t n) { // the text of n tokens, and two levels of drafts
        head.read(text, n - 1);
        const spec::TextEnd end = {0, std::span(text).first(n), 1};
        head.source->rows_after(std::span(&end, 1), {});
        for (const auto& level : {std::vector<spec::TreeNode>{{5, -1}, {6, -1}}, {{7, 0}, {8, 1}}}) {
            const spec::NewNodes tree = {0, level};
            head.source->rows_after_nodes(std::span(&tree, 1), {});
        }
    };
    for (const std::size_t n : {10, 14, 18}) // first directly, then captured
        round(n);
    const long before = cuda_stand_in::graphs_made();
    for (const std::size_t n : {22, 26, 30})
        round(n);
    EXPECT_EQ(cuda_stand_in::graphs_made(), before);
}
#endif

} // namespace gpu_heads_test
