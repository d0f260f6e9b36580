// Linear attention on a device: states near the CPU's, and the bits of a fresh text whatever a text has been through.
// Run as gpu_decoder_test.cpp is, which has the families with linear attention beside all others.
#include "tests/model/delta_texts.h"
#include "tests/model/gpu_models.h"

namespace gpu_delta_net_test {

using namespace entrodraft;
using model::WeightType;

constexpr int kVocab = DeltaTexts::kVocab;
constexpr std::size_t kRows = 128; // of a pass over a fresh text

TestModelOptions on_cpu() {
    TestModelOptions options;
    options.load = &model::load_cpu_decoder;
    return options;
}

TEST(GpuDeltaNet, HasTheBitsOfAFreshTextAfterWhateverHasBeenCutKeptAndShared) {
    DeltaTexts texts(on_gpu(WeightType::bfloat16)), fresh(on_gpu(WeightType::bfloat16));
    expect_bits_of_fresh_texts(texts, {fresh, kRows}, kOnStandIn ? 15 : 120);
}

TEST(GpuDeltaNet, FollowsTreesThatGrowPassByPassOverLongTexts) {
    DeltaTexts texts(on_gpu(WeightType::bfloat16), 300), fresh(on_gpu(WeightType::bfloat16));
    for (int i = 0; i < 2; ++i) {
        texts.read(0, varied_tokens(128, kVocab, i));
        texts.read_branch(0, 280, 100, 279 - i);
        expect_bits_of_fresh_text(texts, 0, {fresh, kRows}, "tree " + std::to_string(i));
    }
}

// Long enough for bases that move, a chunk of 512 rows, and inputs that take the places of older ones.
TEST(GpuDeltaNet, LongTextsAreNearTheCpus) {
    struct Setting {
        int key_dim, rows; // of a prompt's chunk
    };
    for (const auto& [key_dim, rows] : {Setting{7, 512}, {40, 70}, {128, 70}, {160, 70}}) {
        model::ModelConfig config = small_linear_config();
        config.linear.key_dim = key_dim;
        DeltaTexts texts(on_gpu(), 0, config), reference(on_cpu(), 0, config);
        const std::vector<model::TokenId> chunk = varied_tokens(rows, kVocab), more = varied_tokens(90, kVocab, 1);
        texts.read_prompt(0, chunk);
        for (std::size_t begin = 0; begin < chunk.size(); begin += kRows)
            reference.read(0, std::span(chunk).subspan(begin, std::min(kRows, chunk.size() - begin)));
        for (const int cut : {80, 3}) {
            for (DeltaTexts* each : {&texts, &reference}) {
                each->read(0, more);
                each->cut(0, static_cast<int>(each->text(0).size()) - cut);
            }
            EXPECT_LT(relative_difference(texts.read(0, more), reference.read(0, more)), kRowBound)
                << key_dim << " dimensions, " << texts.text(0).size() << " positions";
        }
    }
}

TEST(GpuDeltaNet, APromptsChunksLeaveTheStatesOfTheWholeWhateverIsCut) {
    DeltaTexts whole(on_gpu(WeightType::bfloat16)), parts(on_gpu(WeightType::bfloat16));
    const std::vector<model::TokenId> prompt = varied_tokens(600, kVocab), next = varied_tokens(5, kVocab, 3);
    whole.read_prompt(0, std::span(prompt).first(512));
    whole.read_prompt(0, std::span(prompt).subspan(512));
    for (int begin = 0; begin < 600; begin += 100)
        parts.read_prompt(0, std::span(prompt).subspan(static_cast<std::size_t>(begin), 100));
    const std::vector<float> expected = whole.read(0, next);
    EXPECT_TRUE(same_bits(parts.read(0, next), expected));
    parts.cut(0, 600); // into what a pass has read, whose front is where it began
    EXPECT_TRUE(same_bits(parts.read(0, next), expected));
    parts.share(0, 1, 600);
    parts.share(0, 2, 597);
    EXPECT_TRUE(same_bits(parts.read(1, next), expected));
    EXPECT_EQ(parts.text(2).size(), 597U) << "a front behind the chunk is no obstacle";
    parts.read_prompt(2, std::span(prompt).subspan(597));
    EXPECT_TRUE(same_bits(parts.read(2, next), expected));
}

// One graph, launched with other segments, positions and trees.
TEST(GpuDeltaNet, SegmentsOfAPassKeepTheirOwnStates) {
    const TestModelOptions options = on_gpu(WeightType::bfloat16);
    DeltaTexts together(options), alone(options);
    for (int round = 0; round < 4; ++round) {
        std::vector<model::Row> rows;
        for (const int slot : {2, 0, 1}) {
            const std::vector<model::TokenId> tokens = varied_tokens(1 + (slot + round) % 4, kVocab, slot + 5 * round);
            std::vector<float> of_text = alone.read(slot, tokens);
            for (const model::TokenId token : tokens) {
                const bool is_first = rows.empty() || rows.back().slot != slot;
                rows.push_back({token, slot, static_cast<int>(together.text(slot).size()),
                                is_first ? -1 : static_cast<int>(rows.size()) - 1});
                together.text(slot).push_back(token);
            }
        }
        std::vector<int> last;
        for (int r = 0; r < static_cast<int>(rows.size()); ++r)
            if (r + 1 == static_cast<int>(rows.size()) || rows[model::index(r + 1)].slot != rows[model::index(r)].slot)
                last.push_back(r);
        const model::Mask mask = round % 2 == 0 ? model::Mask::causal : model::Mask::by_parent;
        together.decoder().forward({.rows = rows, .logit_rows = last, .hidden_layers = {}, .mask = mask});
        for (const int slot : {0, 1, 2}) { // the one a word longer, the other a word shorter than the next pass has it
            const std::vector<model::TokenId> next = {3};
            EXPECT_TRUE(same_bits(together.read(slot, next), alone.read(slot, next))) << "slot " << slot;
            together.cut(slot, static_cast<int>(together.text(slot).size()) - 1);
            alone.cut(slot, static_cast<int>(alone.text(slot).size()) - 1);
        }
    }
}

TEST(GpuDeltaNet, RefusesATreeThatThereIsNoRoomFor) {
    DeltaTexts texts(on_gpu());
    for (int i = 0; i < 3; ++i)
        texts.read(0, varied_tokens(100, kVocab, i));
    EXPECT_THROW(texts.read_branch(0, 700, 100, 3), std::invalid_argument);
}

} // namespace gpu_delta_net_test
