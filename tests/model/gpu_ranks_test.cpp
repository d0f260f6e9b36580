// A model sharded over GPUs, here over threads on the stand-ins for CUDA and NCCL: the bits of a row, and ranks that
// stay away. Skipped on a device, which NCCL gives to one rank of a group alone.
#include "dist/comm/nccl_comm.h"
#include "dist/comm/staged_comm.h"
#include "dist/error.h"
#include "model/gpu/memory.h"
#include "tests/dist/thread_ranks.h"
#include "tests/model/gpu_models.h"

#include <chrono>
#include <fmt/format.h>

namespace gpu_ranks_test {

using namespace entrodraft;
using model::TensorParallelSum;
using model::TokenId;

dist::Deadline soon() {
    return dist::Deadline::after_seconds(20);
}

struct Setting {
    std::string model = "llama"; // a family's
    model::WeightType type = model::WeightType::float32;
    int tokens = 20;
    TensorParallelSum sum = TensorParallelSum::automatic;
    bool staged = false; // through host memory in place of NCCL
};

// Forwards to a communicator that it does not own.
class Borrowed final : public dist::Communicator {
  public:
    explicit Borrowed(dist::Communicator& ranks) : ranks_(ranks) {}
    int rank() const override { return ranks_.rank(); }
    int size() const override { return ranks_.size(); }
    std::string name() const override { return ranks_.name(); }
    void start_all_reduce_sum(void* data, std::size_t count, dist::ElementType type) override {
        ranks_.start_all_reduce_sum(data, count, type);
    }
    void start_broadcast(void* data, std::size_t bytes, int root) override {
        ranks_.start_broadcast(data, bytes, root);
    }
    void start_gather(const void* mine, void* all, std::size_t bytes, int root) override {
        ranks_.start_gather(mine, all, bytes, root);
    }
    void wait(dist::Deadline deadline) override { ranks_.wait(deadline); }

  private:
    dist::Communicator& ranks_;
};

std::unique_ptr<dist::Communicator> sums_over(dist::Communicator& ranks, bool staged) {
    if (ranks.size() == 1) return std::make_unique<dist::SelfComm>();
    if (staged) return dist::make_staged_comm(std::make_unique<Borrowed>(ranks), 20);
    return dist::make_nccl_comm(ranks, {.close_seconds = 1}, soon());
}

// How many chunk sizes give rank 0's logits of a text other bits than those of rows alone.
int chunks_that_differ(int n_ranks, const Setting& setting) {
    int differing = 0;
    test::ThreadRanks(n_ranks).run([&](dist::Communicator& ranks) {
        const std::unique_ptr<dist::Communicator> sums = sums_over(ranks, setting.staged);
        TestModelOptions options = on_gpu(setting.type);
        options.tp = sums.get();
        options.decoder.sum = setting.sum;
        TestModel model(source_directory() / "tests/model/families" / setting.model / "target", options);
        const std::vector<TokenId> tokens = varied_tokens(setting.tokens, model.config.vocab_size);
        const std::vector<float> alone = model.read(tokens, 1);
        for (const int chunk : {2, 5, 16, 128}) {
            model.forget();
            const bool differs = !same_bits(model.read(tokens, chunk), alone);
            if (ranks.rank() == 0) differing += differs ? 1 : 0;
        }
    });
    return differing;
}

class GpuRanks : public testing::Test {
  protected:
    void SetUp() override {
        if (!kOnStandIn) GTEST_SKIP() << "its ranks are threads, which share a GPU: NCCL refuses that";
    }
};

TEST_F(GpuRanks, BitsOfARowDoNotDependOnTheRowsOfItsPassWhateverTheRanks) {
    for (const int n_ranks : {1, 2, 3, 4, 8})
        EXPECT_EQ(chunks_that_differ(n_ranks, {}), 0) << n_ranks << " ranks";
    EXPECT_EQ(chunks_that_differ(3, {.model = "gemma2"}), 0) << "sums that are normed before they are added";
    EXPECT_EQ(chunks_that_differ(4, {.type = model::WeightType::bfloat16, .tokens = 128}), 0) << "passes of 128 rows";
}

TEST_F(GpuRanks, BitsOfARowDependOnOthersWhereNcclChoosesTheOrder) {
    EXPECT_EQ(chunks_that_differ(2, {.sum = TensorParallelSum::all_reduce}), 0) << "a + b is b + a";
    EXPECT_GT(chunks_that_differ(4, {.sum = TensorParallelSum::all_reduce}), 0) << "then the test above sees nothing";
}

TEST_F(GpuRanks, PartsAreAddedInRankOrderAsTheHostAddsThem) {
    std::vector<std::vector<float>> logits;
    for (const Setting& setting : {Setting{.sum = TensorParallelSum::all_reduce, .staged = true},
                                   Setting{.sum = TensorParallelSum::ordered, .staged = true}, Setting{}})
        test::ThreadRanks(4).run([&](dist::Communicator& ranks) {
            const std::unique_ptr<dist::Communicator> sums = sums_over(ranks, setting.staged);
            TestModelOptions options = on_gpu();
            options.tp = sums.get();
            options.decoder.sum = setting.sum;
            TestModel model(golden_directory("llama-target"), options);
            const std::vector<float> read = model.read(varied_tokens(20, model.config.vocab_size), 3);
            if (ranks.rank() == 0) logits.push_back(read);
            EXPECT_EQ(sums->traffic().gathers > 0, setting.sum != TensorParallelSum::all_reduce);
        });
    EXPECT_TRUE(same_bits(logits[0], logits[1]));
    EXPECT_TRUE(same_bits(logits[0], logits[2]));
}

// Graphs that hold sums would keep ncclCommAbort waiting for ever.
TEST_F(GpuRanks, ARankThatStaysAwayIsNamedInTimeThoughGraphsAreAlive) {
    for (const int n_ranks : {2, 4}) {
        std::string message;
        std::chrono::duration<double> took{};
        test::ThreadRanks(n_ranks).run([&](dist::Communicator& ranks) {
            const std::unique_ptr<dist::Communicator> sums = sums_over(ranks, false);
            TestModelOptions options = on_gpu();
            options.tp = sums.get();
            options.decoder.timeout_seconds = 0.5;
            TestModel model(golden_directory("llama-target"), options);
            for (const TokenId token : {7, 11, 300}) // the second pass of a form is captured, the third launched
                model.read(std::vector<TokenId>{token});
            if (ranks.rank() == n_ranks - 1) return;
            const auto began = std::chrono::steady_clock::now();
            try {
                model.read(std::vector<TokenId>{5});
                ADD_FAILURE() << "a pass without all ranks";
            } catch (const dist::Timeout& timeout) {
                if (ranks.rank() == 0) message = timeout.what();
            }
            if (ranks.rank() == 0) took = std::chrono::steady_clock::now() - began;
            EXPECT_THROW(model.read(std::vector<TokenId>{5}), dist::Error) << "the communicator has failed";
        });
        EXPECT_NE(message.find(fmt::format("for the other {} ranks", n_ranks - 1)), std::string::npos) << message;
        EXPECT_LT(took.count(), 1.3) << "0.5 s of waiting, and an abort that nothing holds up";
    }
}

TEST_F(GpuRanks, AnAbortEndsInTimeEvenIfAGraphIsLeft) {
    test::ThreadRanks(2).run([&](dist::Communicator& ranks) {
        const std::unique_ptr<dist::Communicator> sums = sums_over(ranks, false);
        const model::gpu::Stream stream;
        const model::gpu::DeviceArray<float> numbers(8);
        const model::gpu::Graph graph(stream, [&] {
            sums->enqueue_all_reduce_sum(numbers.data(), 8, dist::ElementType::float32, stream.handle());
        });
        const auto began = std::chrono::steady_clock::now();
        sums->abort();
        EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), 3);
    });
}

} // namespace gpu_ranks_test
