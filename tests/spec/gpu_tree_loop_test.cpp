// A tree that a device reads by itself is the tree drafted level by level. A draft takes one launch and one wait.
#include "spec/draft/model_drafter.h"
#include "spec/gpu/kernels.h"
#include "spec/verify/random.h"
#include "tests/model/gpu_arrays.h"
#include "tests/spec/gpu_drafts.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <map>
#include <memory>
#include <random>

namespace gpu_tree_loop_test {

using namespace entrodraft;
using namespace model::gpu;
using model::WeightType;
using spec::Acceptance;
using spec::DeviceTreePlan;
using spec::RankedRow;
using spec::Request;

// ---- ranking ----

struct Ranking {
    int n_children;
    double temperature;
    bool has_noise;
    int step = 1; // for a head that knows one token of `step`
    int token(int place) const { return place * step + step / 2; }
};

// Ranks rows of logits, as rank_rows has them after a tree's first two levels.
std::vector<RankedRow> ranked_rows(const std::vector<float>& logits, int rows, int padded, int count,
                                   const Ranking& how, std::uint64_t position) {
    const std::size_t stride = logits.size() / index(padded);
    const Stream stream;
    const DeviceArray<float> on_device = to_device(logits);
    const DeviceArray<DeviceLogitStats> stats_parts(index(padded) * kStatsBlocks), stats(index(padded));
    SummarizeCall summary = {on_device.data(), stride, padded, count, 0, stats_parts.data(), stats.data()};
    summarize_logits(stream.handle(), summary);
    const spec::GumbelNoise noise(3, 4);
    std::vector<spec::gpu::TreeState> state(1);
    state[0].plan.n_children = how.n_children;
    state[0].plan.has_noise = how.has_noise;
    state[0].noise = {{noise.key()[0], noise.key()[1]}, position - 2, how.temperature};
    state[0].n_rows = rows;
    state[0].depth = 2;
    state[0].first = 5;
    const DeviceArray<spec::gpu::TreeState> state_there = to_device(state);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < count; ++i)
        tokens.push_back(how.token(i));
    const DeviceArray<std::int32_t> tokens_there = to_device(tokens);
    const std::size_t n_parts = index(padded) * spec::gpu::RankCall::kParts;
    const DeviceArray<spec::gpu::RankCall::Part> parts(n_parts * DeviceTreePlan::kMaxChildren);
    const DeviceArray<DeviceLogitStats> part_stats(n_parts);
    const DeviceArray<spec::gpu::DeviceTree> tree(1);
    spec::gpu::rank_rows(stream.handle(),
                         {on_device.data(), stride, padded, count, how.step > 1 ? tokens_there.data() : nullptr,
                          stats.data(), state_there.data(), parts.data(), part_stats.data(), tree.data()});
    stream.wait(kPatience);
    const std::vector<spec::gpu::DeviceTree> got = to_host(tree);
    EXPECT_EQ(got[0].n_rows, 5 + rows);
    std::vector<RankedRow> ranked;
    for (int r = 0; r < rows; ++r)
        ranked.push_back(got[0].rows[5 + r].row);
    return ranked;
}

// Compares with a sort of all tokens of the row.
void expect_ranked(const RankedRow& got, std::span<const float> logits, const Ranking& how, std::uint64_t position) {
    std::vector<float> values(logits.begin(), logits.end()), noise(logits.size() * index(how.step));
    if (how.has_noise) spec::GumbelNoise(3, 4).fill(position, noise);
    const auto scale = static_cast<float>(how.temperature > 0 ? 1 / how.temperature : 1);
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = how.temperature > 0 ? values[i] * scale + noise[index(how.token(static_cast<int>(i)))] : values[i];
    std::vector<int> tokens;
    for (std::size_t i = 0; i < values.size(); ++i)
        if (values[i] > -INFINITY) tokens.push_back(static_cast<int>(i));
    std::ranges::stable_sort(tokens, [&](int a, int b) { return values[index(a)] > values[index(b)]; });
    tokens.resize(std::min(tokens.size(), index(how.n_children)));
    ASSERT_EQ(got.n, static_cast<int>(tokens.size()));
    for (int i = 0; i < got.n; ++i) {
        EXPECT_EQ(got.best[i].token, how.token(tokens[index(i)])) << "rank " << i;
        EXPECT_EQ(got.best[i].logit, logits[index(tokens[index(i)])]);
        EXPECT_NEAR(got.best[i].value, values[index(tokens[index(i)])], 2e-5);
    }
    const auto expect_stats = [](const model::LogitStats& stats, std::span<const float> of) {
        const auto want = model::kernels::best_kernels().logit_stats(of.data(), static_cast<int>(of.size()), 0);
        EXPECT_NEAR(stats.max, want.max, 2e-5);
        EXPECT_NEAR(stats.entropy_nats(), want.entropy_nats(), 1e-3);
        EXPECT_NEAR(stats.probability(of[0]), want.probability(of[0]), 1e-4);
    };
    expect_stats(got.raw, logits);
    expect_stats(got.ranked, values);
}

TEST(GpuTreeLoop, RanksTheTokensOfARow) {
    std::mt19937 random(11);
    constexpr int kRows = 3, kPadded = 4;
    for (const int count : {5, 300, 9000})
        for (const Ranking& how : {Ranking{8, 0, false},
                                   {1, 1.3, true},
                                   {16, 0.7, true},
                                   {4, 0.5, false},
                                   {5, 0, false, 3},
                                   {5, 0.9, true, 3}}) {
            SCOPED_TRACE(fmt::format("{} logits, every {}, {} children, temperature {}{}", count, how.step,
                                     how.n_children, how.temperature, how.has_noise ? ", noise" : ""));
            const std::size_t stride = index(count + 3);
            std::vector<float> logits = random_floats(kPadded * stride, random, 3);
            for (std::size_t i = 0; i < stride && !how.has_noise; ++i) // ties
                logits[i] = std::round(logits[i]);
            for (std::size_t i = 0; i < stride; i += 2) // banned tokens
                logits[stride + i] = -INFINITY;
            const auto rows = ranked_rows(logits, kRows, kPadded, count, how, 41);
            for (int r = 0; r < kRows; ++r)
                expect_ranked(rows[index(r)], std::span(logits).subspan(index(r) * stride, index(count)), how, 41);
        }
}

// ---- drafting ----

const std::filesystem::path kDraft = golden_directory("llama-draft");

Drafts drafts_of(const Rounds& of, bool is_on_gpu, spec::DeviceRound* device) {
    TestModel model(kDraft, is_on_gpu ? on_gpu(of.type) : TestModelOptions{});
    TestDrafter with(of, "model", 500, [&](spec::DrafterParts& parts) {
        parts.models = {&model.decoder};
        parts.device = device;
    });
    return rounds_of(of, with, model.decoder.cache(), [](std::span<const TokenId>) {});
}

// Paths of about twenty nodes.
std::string random_paths(std::mt19937& random) {
    std::vector<std::vector<int>> paths;
    std::map<std::vector<int>, int> children;
    while (paths.size() < 20) {
        std::vector<int> path = paths.empty() ? std::vector<int>() : paths[random() % paths.size()];
        if (path.size() > 4 || random() % 4 == 0) path.clear();
        const int rank = children[path]++;
        path.push_back(rank);
        paths.push_back(path);
    }
    std::string text = "[";
    for (const std::vector<int>& path : paths)
        text += fmt::format("{}[{}]", text.size() > 1 ? ", " : "", fmt::join(path, ", "));
    return text + "]";
}

TEST(GpuTreeLoop, TreesAreThoseDraftedLevelByLevelAndOfTheCpu) {
    std::mt19937 random(8);
    const std::filesystem::path file = testing::TempDir() + "gpu_tree_loop_paths.json";
    std::ofstream(file) << random_paths(random);
    for (const auto& [tree, acceptance, temperature] : {std::tuple{file.string(), Acceptance::gumbel, 0.0},
                                                        {"3,2,1", Acceptance::gumbel, 0.7},
                                                        {"1,1,1", Acceptance::gumbel, 1.0},
                                                        {"eagle2:3:4", Acceptance::gumbel, 0.0},
                                                        {"eagle2:4:3", Acceptance::gumbel, 1.0},
                                                        {"eagle2:3:2", Acceptance::rejection, 0.8}}) {
        SCOPED_TRACE(fmt::format("{}, {}, temperature {}", tree, to_string(acceptance), temperature));
        Rounds of{tree};
        of.acceptance = acceptance;
        of.temperature = temperature;
        const auto device = spec::gpu::make_device_round();
        const Drafts loop = drafts_of(of, true, device.get()), levels = drafts_of(of, true, nullptr);
        EXPECT_GT(loop.drafts.at(0).passes, 2);
        expect_same(loop, levels);
        EXPECT_EQ(loop.cached, levels.cached) << "no more is read";
        expect_same(loop, drafts_of(of, false, nullptr));
        expect_loops(loop, levels);
    }
}

TEST(GpuTreeLoop, OfSixteenBitsToo) {
    Rounds of{"medusa-63"};
    of.temperature = 1;
    of.type = WeightType::bfloat16;
    of.rounds = kOnStandIn ? 1 : 4;
    const auto device = spec::gpu::make_device_round();
    const Drafts loop = drafts_of(of, true, device.get()), levels = drafts_of(of, true, nullptr);
    expect_same(loop, levels);
    EXPECT_EQ(loop.cached, levels.cached);
}

// A rule that looks at tokens ends the reading where it ends the tree.
TEST(GpuTreeLoop, EndsWithTheRule) {
    for (const spec::StopRuleOptions& rule : {constant_rule(2, 63), rule_of("static"), rule_of("confidence")}) {
        SCOPED_TRACE(rule.name());
        Rounds of{"3,2,2,1"};
        of.rule = rule;
        of.rule.max_tokens = 63;
        const auto device = spec::gpu::make_device_round();
        const Drafts loop = drafts_of(of, true, device.get()), levels = drafts_of(of, true, nullptr);
        expect_same(loop, levels);
        EXPECT_EQ(loop.cached, levels.cached) << "no more is read";
        expect_loops(loop, levels);
    }
}

// Whatever a device reads, drafts are those of the growth.
TEST(GpuTreeLoop, WhatADeviceReadsOtherwiseChangesNoDraft) {
    Rounds of{"eagle2:4:4"};
    of.temperature = 1;
    of.rounds = 2;
    expect_same_whatever_is_read([&](spec::DeviceRound* device) { return drafts_of(of, true, device); });
}

// Trees of expected-gain, with the costs of a GPU and a run whose rate is known.
TEST(GpuTreeLoop, WeighsWhatTreesCost) {
    spec::Costs costs;
    costs.t_draft = 0.05;
    for (int rows = 0; rows < 64; ++rows)
        costs.t_target.push_back(1 + rows * 0.002);
    for (const double temperature : {0.0, 1.0}) {
        SCOPED_TRACE(temperature);
        spec::GainModel gain({.max_rows = 64, .draft_to_target_cost = 0.05, .costs = costs});
        const spec::DraftedToken token = {0.5F, 0.7F, 0};
        for (int round = 0; round < spec::Pace::kFirstRounds; ++round)
            gain.learn({{.accepted = 1, .draft_seconds = 0.05}, std::span(&token, 1), 0, 1});
        ASSERT_GT(gain.pace.tokens_per_second(), 0);
        Rounds of{"expected-gain:4:3"};
        of.rule = spec::tree_rule(spec::parse_tree(of.tree));
        of.temperature = temperature;
        of.gain = &gain;
        of.rounds = 6;
        const auto device = spec::gpu::make_device_round();
        const Drafts loop = drafts_of(of, true, device.get()), levels = drafts_of(of, true, nullptr);
        expect_same(loop, levels);
        long in_loop = 0, by_level = 0, passes = 0;
        for (std::size_t i = 3; i < loop.waits.size(); ++i) {
            in_loop += loop.waits[i];
            by_level += levels.waits[i];
            passes += levels.drafts[i].passes;
        }
        EXPECT_GT(levels.drafts.at(0).passes, 2);
        if (!kOnStandIn) continue;
        EXPECT_GE(by_level, passes);
        EXPECT_LT(in_loop, by_level - 2) << "some drafts wait once";
    }
}

// Compares texts of the engine with plain ones, and counts with the CPU's.
TEST(GpuTreeLoop, TextsAreThePlainOnes) {
    const std::filesystem::path target = golden_directory("llama-target");
    TestPair on_cpu(target, kDraft), on_device(target, kDraft, on_gpu());
    on_device.device = spec::gpu::make_device_round();
    for (const auto& [tree, temperature] : {std::pair{"3,2,1", 0.0}, {"eagle2:3:3", 1.0}}) {
        SCOPED_TRACE(tree);
        RunOptions options;
        options.acceptance = Acceptance::gumbel;
        options.rule = spec::tree_rule(spec::parse_tree(tree));
        Request request = request_of({300, 12, 5, 9}, 9);
        request.sampling.temperature = temperature;
        request.sampling.seed = 5;
        const auto completion_of = [&](TestPair& pair, bool is_plain) {
            spec::DrafterParts parts{{pair.limits(), pair.clock, 1}};
            parts.models = {&pair.draft.decoder};
            parts.device = pair.device.get();
            parts.tree = spec::parse_tree(tree);
            const auto drafter = spec::drafter_type("model").make(parts);
            Request asked = request;
            asked.plain = is_plain;
            return pair.run({asked}, options, drafter.get()).at(0);
        };
        const spec::Completion got = completion_of(on_device, false), want = completion_of(on_cpu, false);
        EXPECT_EQ(got.tokens, completion_of(on_device, true).tokens);
        EXPECT_EQ(got.tokens, want.tokens);
        EXPECT_GT(got.stats.drafted, 0);
        EXPECT_EQ(got.stats.drafted, want.stats.drafted);
        EXPECT_EQ(got.stats.accepted, want.stats.accepted);
        EXPECT_EQ(got.stats.draft_passes, want.stats.draft_passes);
    }
}

} // namespace gpu_tree_loop_test
