// The forward pass sharded across ranks, against the same pass on this rank alone.
#include "model/families/read_config.h"
#include "model/weights/rank_shard.h"
#include "tests/dist/session_of_tests.h"
#include "tests/model/golden_models.h"

#include <stdexcept>

namespace decoder_mpi {

using namespace entrodraft;
using model::Row;
using model::TokenId;

// 4 ranks share the draft's 2 key heads, and cut the target's 6 heads unevenly.
std::vector<std::filesystem::path> checkpoints() {
    std::vector<std::filesystem::path> all = {golden_directory("llama-draft"), golden_directory("llama-target")};
    const std::filesystem::path demo = source_directory() / "model/demo/target";
    if (std::filesystem::exists(demo / "model.safetensors")) all.push_back(demo);
    return all;
}

// The ranks' slices put side by side, on rank 0: [rows][vocab].
std::vector<float> gather_logits(dist::Communicator& comm, TestModel& model, std::span<const float> mine,
                                 std::size_t n_rows) {
    const dist::Slice own = model.decoder.local_vocab();
    const auto vocab = static_cast<std::size_t>(model.config.vocab_size);
    const auto local = static_cast<std::size_t>(own.size());
    std::vector<float> sent(n_rows * vocab, 0.0F), all(sent.size());
    for (std::size_t row = 0; row < n_rows; ++row)
        std::copy_n(mine.begin() + static_cast<std::ptrdiff_t>(row * local), local,
                    sent.begin() + static_cast<std::ptrdiff_t>(row * vocab) + own.begin);
    all = sent;
    comm.all_reduce_sum(all.data(), all.size(), dist::Deadline::after_seconds(60)); // zeros but for one rank's part
    return all;
}

double worst_row(std::span<const float> a, std::span<const float> b, std::size_t vocab) {
    double worst = 0;
    for (std::size_t begin = 0; begin < a.size(); begin += vocab)
        worst = std::max(worst, relative_difference(a.subspan(begin, vocab), b.subspan(begin, vocab)));
    return worst;
}

class DecoderOnRanks : public testing::Test {
  protected:
    DecoderOnRanks() : tp_(session_of_tests().split(0)) {}
    TestModelOptions options(int threads = 1) {
        TestModelOptions options;
        options.tp = tp_.get();
        options.threads = threads;
        options.decoder.timeout_seconds = 60;
        return options;
    }
    std::unique_ptr<dist::Communicator> tp_;
};

TEST_F(DecoderOnRanks, LogitsAreThoseOfOneRankWithinTheBound) {
    for (const auto& directory : checkpoints()) {
        SCOPED_TRACE(directory.string());
        TestModel cut(directory, options()), whole(directory);
        const auto vocab = static_cast<std::size_t>(whole.config.vocab_size);
        const std::vector<TokenId> tokens = varied_tokens(70, whole.config.vocab_size);
        const std::vector<float> want = whole.read(tokens);
        const std::vector<float> got = gather_logits(*tp_, cut, cut.read(tokens, 33), tokens.size());
        EXPECT_LE(worst_row(got, want, vocab), kRowBound);
        if (tp_->size() > 1) {
            EXPECT_LT(cut.decoder.weight_bytes(), whole.decoder.weight_bytes() * 3 / 4);
        }
    }
}

TEST_F(DecoderOnRanks, RowsKeepTheirBitsHoweverTheyAreGrouped) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    for (const int threads : {1, 2}) {
        const auto directory = checkpoints()[0];
        TestModel cut(directory, options(threads));
        const std::vector<TokenId> tokens = varied_tokens(40, 512);
        const std::vector<float> one_by_one = cut.read(tokens, 1);
        for (const int chunk : {3, 16, 17, 40}) {
            cut.forget();
            EXPECT_TRUE(same_bits(cut.read(tokens, chunk), one_by_one)) << "chunks of " << chunk;
        }
    }
}

TEST_F(DecoderOnRanks, GreedyTokensAreThoseOfOneRank) {
    for (const auto& directory : checkpoints()) {
        SCOPED_TRACE(directory.string());
        TestModel cut(directory, options()), whole(directory);
        const auto vocab = static_cast<std::size_t>(whole.config.vocab_size);
        const std::vector<TokenId> prompt = varied_tokens(9, whole.config.vocab_size, 2);
        const std::vector<TokenId> want = whole.greedy(prompt, 24);
        whole.forget();
        std::vector<TokenId> text = prompt;
        text.insert(text.end(), want.begin(), want.end());
        const std::vector<float> reference = whole.read(text);
        cut.read(std::span(text).first(prompt.size() - 1));
        for (std::size_t at = prompt.size(); at < text.size(); ++at) { // teacher-forced: one difference is one
            const std::vector<float> row = gather_logits(*tp_, cut, cut.read({&text[at - 1], 1}), 1);
            const auto best = static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
            const auto expected = std::span(reference).subspan((at - 1) * vocab, vocab);
            const float top = expected[static_cast<std::size_t>(text[at])];
            if (top - expected[best] > 2 * kRowBound * std::fabs(static_cast<double>(top))) {
                EXPECT_EQ(static_cast<TokenId>(best), text[at]) << "token " << at - prompt.size();
            }
        }
    }
}

TEST_F(DecoderOnRanks, HiddenStatesAreWholeOnEveryRank) {
    const auto directory = checkpoints()[0];
    TestModel cut(directory, options()), whole(directory);
    const std::vector<TokenId> tokens = varied_tokens(11, 512);
    const int layers[] = {0, 1, 2};
    auto hidden = [&](TestModel& model) {
        const std::vector<Row> rows = model.chain(tokens);
        const auto result = model.decoder.forward(
            {.rows = rows, .logit_rows = {}, .hidden_layers = layers, .mask = model::Mask::causal});
        return std::vector<float>(result.hidden.begin(), result.hidden.end());
    };
    const std::vector<float> got = hidden(cut), want = hidden(whole);
    EXPECT_LE(worst_row(got, want, static_cast<std::size_t>(whole.config.hidden_size)), kRowBound);
}

TEST_F(DecoderOnRanks, SharesKeyHeadsWhereRanksOutnumberThem) {
    TestModel cut(golden_directory("llama-draft"), options());
    EXPECT_EQ(cut.decoder.cache().shape().n_kv_heads, std::max(1, 2 / tp_->size()));
}

TEST_F(DecoderOnRanks, RefusesMoreRanksThanHeads) {
    if (tp_->size() == 1) GTEST_SKIP() << "a single rank holds any number of heads";
    const auto config = [&] {
        model::ModelConfig changed = model::read_config(golden_directory("llama-target"));
        changed.n_heads = changed.n_kv_heads = 1;
        return changed;
    };
    EXPECT_THROW(model::shard_of(config(), tp_->rank(), tp_->size()), std::invalid_argument);
}

} // namespace decoder_mpi
