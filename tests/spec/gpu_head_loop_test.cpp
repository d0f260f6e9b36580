// A device that drafts by itself with a head gives the same drafts as passes of the head, whether states go from row to
// row on the device or through the host. A draft takes one launch and one wait.
#include "tests/spec/golden_head.h"
#include "tests/spec/gpu_drafts.h"

namespace gpu_head_loop_test {

using namespace entrodraft;
using spec::Acceptance;

Drafts drafts_of(const std::string& head_name, const Rounds& of, bool is_on_gpu, spec::DeviceRound* device) {
    HeadAndTarget head(head_name, is_on_gpu ? on_gpu(of.type) : TestModelOptions{});
    TestDrafter with(of, "head", head.target.config.vocab_size, [&](spec::DrafterParts& parts) {
        parts.head = &head.loaded.modules;
        parts.device = device;
    });
    return rounds_of(of, with, head.loaded.decoders.front()->cache(), [&](std::span<const spec::TokenId> text) {
        const auto begin = head.target.decoder.cache().length(0);
        const std::vector<float> states = head.states_of(text, text.size() - 1);
        with.drafter->observe(0, {.first_position = begin, .states = states});
    });
}

// Compares drafts in float32 with drafts level by level, on the device and on the CPU.
void expect_looped(const std::string& head, const Rounds& of) {
    const auto device = spec::gpu::make_device_round();
    const Drafts loop = drafts_of(head, of, true, device.get()), levels = drafts_of(head, of, true, nullptr);
    expect_same(loop, levels);
    if (!of.tree.empty()) { // a chain's loop does not know where texts end
        EXPECT_EQ(loop.cached, levels.cached) << "no more is read";
    }
    expect_same(loop, drafts_of(head, of, false, nullptr));
    expect_loops(loop, levels);
}

// EAGLE has no norm after its layers, MiMo's module passes its normed state on, and EAGLE-3 knows only some tokens.
struct GpuHeadLoops : testing::TestWithParam<std::string> {};

TEST_P(GpuHeadLoops, TreesAreThoseDraftedLevelByLevelAndOfTheCpu) {
    for (const auto& [tree, acceptance, temperature] : {std::tuple{"3,2,1", Acceptance::gumbel, 0.0},
                                                        {"eagle2:4:3", Acceptance::gumbel, 1.0},
                                                        {"eagle2:3:2", Acceptance::rejection, 0.8}}) {
        SCOPED_TRACE(fmt::format("{}, {}, temperature {}", tree, to_string(acceptance), temperature));
        Rounds of{tree};
        of.acceptance = acceptance;
        of.temperature = temperature;
        expect_looped(GetParam(), of);
    }
}

TEST_P(GpuHeadLoops, ChainsAreThoseDraftedTokenByTokenAndOfTheCpu) {
    for (const auto& [rule, temperature] : {std::pair{constant_rule(5, 20), 0.0}, {rule_of("cumulative"), 1.0}}) {
        SCOPED_TRACE(fmt::format("{}, temperature {}", rule.name(), temperature));
        Rounds of;
        of.rule = rule;
        of.temperature = temperature;
        expect_looped(GetParam(), of);
    }
}

INSTANTIATE_TEST_SUITE_P(All, GpuHeadLoops, testing::Values("eagle", "eagle3", "mimo", "glm-mtp"), name_of_head);

// Rows that the device has not read are read by passes over the states that it has passed on.
TEST(GpuHeadLoop, WhatADeviceReadsOtherwiseChangesNoDraft) {
    for (const char* head : {"eagle", "eagle3"}) {
        SCOPED_TRACE(head);
        Rounds of{"eagle2:4:4"};
        of.temperature = 1;
        of.rounds = 2;
        expect_same_whatever_is_read([&](spec::DeviceRound* device) { return drafts_of(head, of, true, device); });
    }
}

TEST(GpuHeadLoop, AChainThatADeviceEndsEarlyGoesOn) {
    Rounds of;
    of.rule = constant_rule(5, 20);
    for (const double temperature : {0.0, 1.0})
        for (const int rows : {1, 3}) {
            SCOPED_TRACE(fmt::format("temperature {}, {} rows", temperature, rows));
            of.temperature = temperature;
            ChangedPlans device({}, [rows](spec::DeviceStopRule& rule) { rule.max_rows = rows; });
            const Drafts got = drafts_of("eagle3", of, true, &device), want = drafts_of("eagle3", of, true, nullptr);
            expect_same(got, want);
            EXPECT_EQ(got.cached, want.cached);
        }
}

// With 16-bit weights states are still passed on in float32.
TEST(GpuHeadLoop, OfSixteenBitsToo) {
    for (const char* tree : {"eagle2:4:3", ""}) {
        Rounds of{tree};
        of.rule = constant_rule(*tree != 0 ? 63 : 5, 63);
        of.type = model::WeightType::bfloat16;
        const auto device = spec::gpu::make_device_round();
        const Drafts loop = drafts_of("eagle3", of, true, device.get()),
                     levels = drafts_of("eagle3", of, true, nullptr);
        expect_same(loop, levels);
        EXPECT_EQ(loop.cached, levels.cached);
    }
}

// Heads with a module for each depth, or with several tokens a pass, still take one pass each.
TEST(GpuHeadLoop, HeadsThatHandNoStateOnDraftPassByPass) {
    for (const char* head : {"medusa", "falcon", "mlp-speculator", "peagle"}) {
        SCOPED_TRACE(head);
        Rounds of{"3,2,1"};
        of.rounds = 2;
        const auto device = spec::gpu::make_device_round();
        const Drafts with = drafts_of(head, of, true, device.get()), without = drafts_of(head, of, true, nullptr);
        expect_same(with, without);
        EXPECT_EQ(with.waits, without.waits);
    }
}

} // namespace gpu_head_loop_test
