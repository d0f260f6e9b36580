// A model sharded over GPUs that sum through the real NCCL: the bits of a row, and of a prompt. Skipped where there are
// fewer GPUs than ranks, unless NCCL_HOSTID makes ranks of one GPU look like ranks of several hosts. From three ranks
// on the sums of rows are pushed (dist/comm/push.h) where the GPUs reach each other's memory. The same over stand-ins,
// whose ranks are threads: gpu_ranks_test.cpp.
#ifdef ENTRODRAFT_CUDA
#include "dist/comm/nccl_comm.h"
#include "dist/rank/device.h"
#include "model/gpu/decoder.h"
#include "tests/dist/session_of_tests.h"
#include "tests/model/golden_models.h"

#include <unistd.h>

namespace gpu_multi_mpi {

using namespace entrodraft;
using model::TokenId;

constexpr unsigned kSeconds = 120; // a test that hangs ends its process

class GpuMulti : public testing::Test {
  protected:
    void SetUp() override {
        const dist::Session& session = session_of_tests();
        const int devices = dist::device_count(), ranks = session.node_local_size();
        if (session.world_size() == 1) GTEST_SKIP() << "one rank sums with nobody";
        if (devices == 0 || (devices < ranks && std::getenv("NCCL_HOSTID") == nullptr))
            GTEST_SKIP() << "needs a GPU a rank, " << ranks << " here; this machine has " << devices;
        alarm(kSeconds);
        device_ = session.node_local_rank() % devices;
        dist::use_device(device_);
        tp_ = dist::make_nccl_comm(session_of_tests().world(), {.device = device_}, dist::Deadline::after_seconds(60));
    }
    void TearDown() override {
        tp_.reset();
        alarm(0);
    }

    TestModelOptions options(model::WeightType type) const {
        TestModelOptions options;
        options.tp = tp_.get();
        options.load = [](const model::Checkpoint& checkpoint, const model::ModelConfig& config,
                          const model::DecoderOptions& decoder, dist::Communicator& tp,
                          model::ThreadTeam&) { return model::gpu::load_decoder(checkpoint, config, decoder, tp); };
        options.decoder.weight_type = type;
        options.decoder.capacity = 300;
        return options;
    }

    const std::filesystem::path directory_ = source_directory() / "tests/model/families/llama/target"; // 8 heads
    int device_ = 0;
    std::unique_ptr<dist::Communicator> tp_;
};

TEST_F(GpuMulti, BitsOfARowDoNotDependOnTheRowsOfItsPass) {
    for (const model::WeightType type : {model::WeightType::float32, model::WeightType::bfloat16}) {
        TestModel model(directory_, options(type));
        const std::vector<TokenId> tokens = varied_tokens(140, model.config.vocab_size);
        const std::vector<float> alone = model.read(tokens, 1);
        for (const int chunk : {2, 4, 16, 128})
            for (const char* pass : {"the first", "a captured"}) {
                model.forget();
                EXPECT_TRUE(same_bits(model.read(tokens, chunk), alone)) << pass << " pass of " << chunk;
            }
    }
}

TEST_F(GpuMulti, APromptIsRoundedByItsTokensAndPositionsAlone) {
    TestModel model(directory_, options(model::WeightType::bfloat16));
    const std::vector<TokenId> prompt = varied_tokens(200, model.config.vocab_size), next = {7, 11};
    const auto next_after = [&](std::size_t read) {
        model.forget();
        model.read_prompt(std::span(prompt).first(read));
        model.decoder.cache().truncate(0, 20);
        return model.read(next);
    };
    const std::vector<float> expected = next_after(20);
    for (const std::size_t read : {21U, 40U, 130U, 200U, 20U})
        EXPECT_TRUE(same_bits(next_after(read), expected)) << "of a prompt of " << read;
}

} // namespace gpu_multi_mpi
#endif
