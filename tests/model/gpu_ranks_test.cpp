// A model sharded over GPUs, here over threads on the stand-ins for CUDA and NCCL: the bits of a row, what is gathered,
// and ranks that stay away. Skipped on a device, which NCCL gives to one rank of a group alone.
#include "dist/comm/nccl_comm.h"
#include "dist/comm/push.h"
#include "dist/comm/staged_comm.h"
#include "dist/rank/error.h"
#include "model/gpu/memory.h"
#include "tests/dist/thread_ranks.h"
#include "tests/model/family_golden.h"
#include "tests/model/gpu_models.h"
#include "tests/model/tree_bits.h"
#ifdef ENTRODRAFT_ON_STAND_IN
#include "dist/rank/kernel_launch.cuh"
#include "tests/cuda_stand_in/nccl.h"
#endif

#include <chrono>
#include <fmt/format.h>
#include <optional>

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

std::unique_ptr<dist::Communicator> sums_over(dist::Communicator& ranks, bool staged, double seconds = 20) {
    if (ranks.size() == 1) return std::make_unique<dist::SelfComm>();
    if (staged) return dist::make_staged_comm(std::make_unique<Borrowed>(ranks), seconds);
    return dist::make_nccl_comm(ranks, {.close_seconds = 1, .gather_seconds = seconds}, soon());
}

long grids_run() {
#ifdef ENTRODRAFT_ON_STAND_IN
    return cuda_stand_in::grids_run();
#else
    return 0; // the tests are skipped
#endif
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
    for (int n_ranks = 1; n_ranks <= 8; ++n_ranks)
        EXPECT_EQ(chunks_that_differ(n_ranks, {}), 0) << n_ranks << " ranks";
    EXPECT_EQ(chunks_that_differ(3, {.model = "gemma2"}), 0) << "sums that are normed before they are added";
    EXPECT_EQ(chunks_that_differ(4, {.type = model::WeightType::bfloat16, .tokens = 128}), 0) << "passes of 128 rows";
    for (const char* family : {"gpt-oss", "deepseek-v3", "qwen3-next"})
        EXPECT_EQ(chunks_that_differ(3, {.model = family, .type = model::WeightType::bfloat16}), 0) << family;
}

// Sinks of own heads, biases of experts that one rank adds, latent vectors that all ranks hold, states of own key
// heads, heads that do not divide.
TEST_F(GpuRanks, LogitsAreThoseOfTransformersWhateverTheRanks) {
    for (const char* family : {"gpt-oss", "deepseek-v2", "deepseek-v3", "qwen3-next", "qwen3-5"})
        for (const int n_ranks : {2, 3}) {
            SCOPED_TRACE(fmt::format("{}, {} ranks", family, n_ranks));
            const auto pair = source_directory() / "tests/model/families" / family;
            const FamilyText text = read_family_golden(pair / "target").texts.front();
            std::vector<std::vector<float>> of_ranks(static_cast<std::size_t>(n_ranks));
            test::ThreadRanks(n_ranks).run([&](dist::Communicator& ranks) {
                const std::unique_ptr<dist::Communicator> sums = sums_over(ranks, false);
                TestModelOptions options = on_gpu();
                options.tp = sums.get();
                TestModel model(pair / "target", options);
                of_ranks[static_cast<std::size_t>(ranks.rank())] = model.read(text.tokens, 9);
            });
            std::vector<float> logits;
            for (std::size_t r = 0; r < text.tokens.size(); ++r)
                for (const std::vector<float>& mine : of_ranks) {
                    const auto width = static_cast<std::ptrdiff_t>(mine.size() / text.tokens.size());
                    const auto row = mine.begin() + static_cast<std::ptrdiff_t>(r) * width;
                    logits.insert(logits.end(), row, row + width);
                }
            EXPECT_LE(worst_kept_row(logits, text), kRowBound);
        }
}

TEST_F(GpuRanks, BitsOfATreesBranchesAreThoseOfTheirTextsAloneWhateverTheRanks) {
    for (const int n_ranks : {1, 2, 3, 4})
        test::ThreadRanks(n_ranks).run([&](dist::Communicator& ranks) {
            const std::unique_ptr<dist::Communicator> sums = sums_over(ranks, false);
            TestModelOptions options = on_gpu(model::WeightType::bfloat16);
            options.tp = sums.get();
            TestModel model(golden_directory("llama-target"), options);
            model.read(varied_tokens(29, model.config.vocab_size));
            expect_bits_of_branches(model, random_tree(16, 29, model.config.vocab_size));
        });
}

// NCCL adds in an order that depends on the size of a message: chunks of all lengths have one size, those of quantised
// models too, whose prompts are passes like others.
void expect_prompts_alike(int n_ranks, model::WeightType type) {
    test::ThreadRanks(n_ranks).run([&](dist::Communicator& ranks) {
        const std::unique_ptr<dist::Communicator> sums = sums_over(ranks, false);
        TestModelOptions options = on_gpu(type);
        options.tp = sums.get();
        TestModel model(golden_directory("llama-target"), options);
        const std::vector<TokenId> prompt = varied_tokens(70, model.config.vocab_size);
        const int last_layer = model.config.n_layers;
        const auto first_rows_of = [&](std::size_t read) { // 20 of them, behind the last layer
            model.forget();
            const std::vector<model::Row> rows = model.chain(std::span(prompt).first(read));
            const model::PassResult result = model.decoder.forward(
                {.rows = rows, .logit_rows = {}, .hidden_layers = {&last_layer, 1}, .is_prompt = true});
            const auto width = static_cast<std::ptrdiff_t>(result.hidden.size() / read);
            return std::vector<float>(result.hidden.begin(), result.hidden.begin() + 20 * width);
        };
        EXPECT_TRUE(same_bits(first_rows_of(20), first_rows_of(70))) << n_ranks << " ranks";
    });
}

TEST_F(GpuRanks, APromptIsRoundedByItsTokensAndPositionsAlone) {
    for (const int n_ranks : {2, 3, 4})
        for (const model::WeightType type : {model::WeightType::bfloat16, model::WeightType::int8})
            expect_prompts_alike(n_ranks, type);
}

// By whichever way two parts are added, the sum is the same.
TEST_F(GpuRanks, TwoRanksPushWhatIsSmallAndGetTheBitsOfNcclsSums) {
    std::vector<std::vector<float>> logits;
    for (const TensorParallelSum sum : {TensorParallelSum::automatic, TensorParallelSum::all_reduce})
        test::ThreadRanks(2).run([&](dist::Communicator& ranks) {
            const std::unique_ptr<dist::Communicator> sums = sums_over(ranks, false);
            TestModelOptions options = on_gpu(model::WeightType::bfloat16);
            options.tp = sums.get();
            options.decoder.sum = sum;
            TestModel model(golden_directory("llama-target"), options);
            const auto layers = static_cast<std::uint64_t>(model.config.n_layers);
            const dist::Traffic before = sums->traffic();
            const std::vector<float> read = model.read(varied_tokens(20, model.config.vocab_size));
            const bool pushes = sum == TensorParallelSum::automatic;
            EXPECT_EQ(sums->traffic().gathers - before.gathers, pushes ? 2 * layers : 0U);
            EXPECT_EQ(sums->traffic().all_reduces - before.all_reduces, pushes ? 0 : 2 * layers);
            if (ranks.rank() == 0) logits.push_back(read);
        });
    EXPECT_TRUE(same_bits(logits[0], logits[1]));
}

// With learned positions, with a narrower embedding, with one that is the head.
TEST_F(GpuRanks, ASmallEmbeddingIsLookedUpWithoutASumAndALargeOneSummedToTheSameBits) {
    for (const char* model : {"families/gpt2/target", "families/opt-post-norm/target", "families/gemma2/target"})
        for (const int n_ranks : {2, 3}) {
            SCOPED_TRACE(fmt::format("{}, {} ranks", model, n_ranks));
            std::vector<std::vector<float>> logits;
            std::vector<std::uint64_t> sums_of_embedding;
            for (const std::int64_t largest : {model::kMaxWholeEmbedding, std::int64_t{0}})
                test::ThreadRanks(n_ranks).run([&](dist::Communicator& ranks) {
                    const std::unique_ptr<dist::Communicator> sums = sums_over(ranks, false);
                    TestModelOptions options = on_gpu(model::WeightType::bfloat16);
                    options.tp = sums.get();
                    options.decoder.max_whole_embedding = largest;
                    TestModel read(source_directory() / "tests/model" / model, options);
                    const dist::Traffic before = sums->traffic();
                    const std::vector<float> rows = read.read(varied_tokens(20, read.config.vocab_size));
                    if (ranks.rank() > 0) return;
                    logits.push_back(rows);
                    sums_of_embedding.push_back(sums->traffic().all_reduces - before.all_reduces);
                });
            EXPECT_TRUE(same_bits(logits[0], logits[1]));
            EXPECT_EQ(sums_of_embedding, (std::vector<std::uint64_t>{0, 1}));
        }
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
    for (int n_ranks = 2; n_ranks <= 8; ++n_ranks) {
        std::string message;
        std::chrono::duration<double> took{};
        test::ThreadRanks(n_ranks).run([&](dist::Communicator& ranks) {
            const std::unique_ptr<dist::Communicator> sums = sums_over(ranks, false, 0.5);
            TestModelOptions options = on_gpu();
            options.tp = sums.get();
            options.decoder.timeout_seconds = 0.5;
            TestModel model(source_directory() / "tests/model/families" / Setting().model / "target", options);
            for (const TokenId token : {7, 11, 30}) // the second pass of a form is captured, the third launched
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

// Messages of the kernel that pushes, and beyond: in any order, at once and from graphs, whose further launches it has
// to tell from those before.
TEST_F(GpuRanks, EveryRankGathersWhatTheOthersHave) {
    const std::vector<std::size_t> sizes = {8, 2048, 1000, dist::kMaxPushedBytes, dist::kMaxPushedBytes + 8, 1024, 16};
    for (int n_ranks = 2; n_ranks <= 8; ++n_ranks)
        test::ThreadRanks(n_ranks).run([&](dist::Communicator& ranks) {
            const std::unique_ptr<dist::Communicator> sums = sums_over(ranks, false);
            const model::gpu::Stream stream;
            std::vector<model::gpu::DeviceArray<std::uint32_t>> mine, all;
            for (const std::size_t bytes : sizes) {
                mine.emplace_back(bytes / 4);
                all.emplace_back(bytes / 4 * static_cast<std::size_t>(n_ranks));
            }
            const auto gather = [&] {
                for (std::size_t i = 0; i < sizes.size(); ++i)
                    sums->enqueue_all_gather(mine[i].data(), all[i].data(), sizes[i], stream.handle());
            };
            const auto word = [](int turn, int rank, std::size_t place) {
                return static_cast<std::uint32_t>(place * 2654435761U + static_cast<std::size_t>(turn * 64 + rank));
            };
            std::optional<model::gpu::Graph> graph;
            for (int turn = 0; turn < 5; ++turn) {
                for (const auto& part : mine)
                    for (std::size_t place = 0; place < part.size(); ++place)
                        part.data()[place] = word(turn, ranks.rank(), place);
                const long grids = grids_run();
                graph ? graph->launch(stream) : gather();
                sums->await_stream(stream.handle(), soon());
                EXPECT_EQ(grids_run() - grids, 7) << "NCCL gathers what is too long alone, behind its guard";
                std::size_t wrong = 0;
                for (std::size_t i = 0; i < sizes.size(); ++i)
                    for (std::size_t at = 0; at < all[i].size(); ++at)
                        wrong +=
                            all[i].data()[at] == word(turn, static_cast<int>(at / mine[i].size()), at % mine[i].size())
                                ? 0
                                : 1;
                EXPECT_EQ(wrong, 0U) << n_ranks << " ranks, turn " << turn;
                if (turn == 1) graph.emplace(stream, gather);
            }
            ranks.barrier(soon());
        });
}

// All sums of a pass that is under way end at once then, not each at a deadline of its own.
TEST_F(GpuRanks, AGatherWithoutAllRanksEndsInTime) {
    for (int n_ranks = 2; n_ranks <= 8; ++n_ranks) {
        std::string message;
        test::ThreadRanks(n_ranks).run([&](dist::Communicator& ranks) {
            const std::unique_ptr<dist::Communicator> sums = sums_over(ranks, false, 0.5);
            const model::gpu::Stream stream;
            const model::gpu::DeviceArray<float> mine(512), all(512 * static_cast<std::size_t>(n_ranks));
            const model::gpu::Graph graph(stream, [&] {
                for (int i = 0; i < 20; ++i)
                    sums->enqueue_all_gather(mine.data(), all.data(), 2048, stream.handle());
            });
            graph.launch(stream);
            sums->await_stream(stream.handle(), soon());
            if (ranks.rank() == n_ranks - 1) return;
            const auto began = std::chrono::steady_clock::now();
            graph.launch(stream);
            try {
                sums->await_stream(stream.handle(), soon());
                ADD_FAILURE() << "a gather without all ranks";
            } catch (const dist::Timeout& timeout) {
                if (ranks.rank() == 0) message = timeout.what();
            }
            EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(), 2);
            EXPECT_THROW(sums->await_stream(stream.handle(), soon()), dist::Timeout);
            sums->abort();
            EXPECT_THROW(sums->enqueue_all_gather(mine.data(), all.data(), 2048, stream.handle()), dist::Error);
        });
        EXPECT_NE(message.find(fmt::format("for the other {} ranks", n_ranks - 1)), std::string::npos) << message;
    }
}

TEST_F(GpuRanks, AnAbortEndsInTimeEvenIfAGraphIsLeft) {
    for (int n_ranks = 2; n_ranks <= 8; ++n_ranks)
        test::ThreadRanks(n_ranks).run([&](dist::Communicator& ranks) {
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

#ifdef ENTRODRAFT_ON_STAND_IN
// ---- NCCL that begins too early: dist/comm/nccl_guard.h ----

void let_next_begin() {
    dist::begin_kernel();
}

// One sum behind a kernel that lets it begin, at once and from a graph: how many kernels ran.
long kernels_of_sums(int n_ranks, int version) {
    cuda_stand_in::load_nccl(version);
    long of_rank_0 = 0;
    test::ThreadRanks(n_ranks).run([&](dist::Communicator& ranks) {
        const auto sums = dist::make_nccl_comm(ranks, {.close_seconds = 1, .gather_seconds = 20}, soon());
        const model::gpu::Stream stream;
        const model::gpu::DeviceArray<float> numbers(8), all(8 * 64 * 1024);
        const auto enqueue = [&] {
            dist::launch(stream.handle(), {1, 32}, let_next_begin);
            sums->enqueue_all_reduce_sum(numbers.data(), 8, dist::ElementType::float32, stream.handle());
            dist::launch(stream.handle(), {1, 32}, let_next_begin);
            sums->enqueue_all_gather(all.data(), all.data(), dist::kMaxPushedBytes + 8, stream.handle());
        };
        const long before = grids_run();
        enqueue();
        sums->await_stream(stream.handle(), soon());
        const model::gpu::Graph graph(stream, enqueue);
        graph.launch(stream);
        sums->await_stream(stream.handle(), soon());
        if (ranks.rank() == 0) of_rank_0 = grids_run() - before;
        ranks.barrier(soon());
    });
    cuda_stand_in::load_nccl(NCCL_VERSION_CODE);
    return of_rank_0;
}

TEST_F(GpuRanks, NoSumOfNcclBeginsBesideAKernelOfOurs) {
    for (int n_ranks = 2; n_ranks <= 8; ++n_ranks) {
        for (const int version : {22800, 22809, 22902, 23004})
            EXPECT_EQ(kernels_of_sums(n_ranks, version), 8) << version << ", " << n_ranks << " ranks";
        for (const int version : {22707, 23007, 23100})
            EXPECT_EQ(kernels_of_sums(n_ranks, version), 4) << version << ", " << n_ranks << " ranks";
    }
}

// A sum that no guard is before: without this the test above could not fail.
void sum_unguarded(int version) {
    cuda_stand_in::load_nccl(version);
    ncclUniqueId id = {};
    ncclGetUniqueId(&id);
    ncclConfig_t config = {0};
    ncclComm_t comm = nullptr;
    ncclCommInitRankConfig(&comm, 1, id, 0, &config);
    const model::gpu::Stream stream;
    const model::gpu::DeviceArray<float> numbers(8);
    dist::launch(stream.handle(), {1, 32}, let_next_begin);
    ncclAllReduce(numbers.data(), numbers.data(), 8, ncclFloat32, ncclSum, comm,
                  static_cast<cudaStream_t>(stream.handle()));
    ncclCommDestroy(comm);
    cuda_stand_in::load_nccl(NCCL_VERSION_CODE);
}

TEST_F(GpuRanks, TheStandInTellsASumThatBeginsTooEarly) {
    EXPECT_DEATH(sum_unguarded(22809), "rank 0 reads beside a kernel that has not ended");
    EXPECT_DEATH(sum_unguarded(23004), "rank 0 reads beside a kernel that has not ended");
    sum_unguarded(23007);
}

// Code for an earlier device does not wait, so it is launched behind the end of all before it.
TEST_F(GpuRanks, CodeForEarlierDevicesIsNotOverlappedByLaterOnes) {
    EXPECT_TRUE(dist::overlaps_kernels(let_next_begin));
    cuda_stand_in::compile_for(80);
    EXPECT_FALSE(dist::overlaps_kernels(let_next_begin));
    EXPECT_EQ(chunks_that_differ(2, {}), 0);
    EXPECT_EQ(kernels_of_sums(2, 22809), 4) << "there is nothing to guard from";
    cuda_stand_in::compile_for(90);
}
#endif

} // namespace gpu_ranks_test
