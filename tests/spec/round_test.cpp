// What a round refuses and what it never asks for, seen through an engine on one rank.
#include "engine_support.h"
#include "model/temporary_directory.h"

#include <limits>

namespace {

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
        std::size_t most_drafted = 0;
        const std::vector<TokenId> prompt = varied_tokens(prompt_length, 512);
        ScriptedDrafter eager(127, [&](std::size_t position) {
            most_drafted = std::max(most_drafted, position - prompt.size() + 1);
            return 0;
        });
        pair.run({request_of(prompt, max_new_tokens)}, {.rule = constant_rule(15)}, &eager);
        EXPECT_EQ(most_drafted, room) << prompt_length << " tokens, " << max_new_tokens << " asked for";
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
                EXPECT_EQ(error.step(), "decide");
                EXPECT_NE(std::string(error.what()).find("logit"), std::string::npos) << error.what();
            }
        }
    }
}

} // namespace
