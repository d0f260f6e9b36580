// The chunks of a text that a draft with a window has in its cache, chosen from the target's cache or its own.
#include "spec/draft/model_drafter.h"
#include "tests/model/golden_models.h"

#include <gtest/gtest.h>

#include <cctype>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

namespace entrodraft::spec {
namespace draft_chunks_test {

constexpr int kChunk = model::RetrievalOptions::kChunk;

// Parameters: a directory of tests/model; true if chunks come from the draft's own cache, false if from the target's.
class DraftChunksTest : public testing::TestWithParam<std::tuple<std::string, bool>> {
  protected:
    DraftChunksTest() : target_(directory(), options()) {}

    void SetUp() override {
        if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    }

    static std::filesystem::path directory() { return source_directory() / "tests/model" / std::get<0>(GetParam()); }
    static TestModelOptions options() {
        TestModelOptions options;
        options.max_positions = 1024;
        return options;
    }

    void begin(const DraftWindow& window, std::span<const TokenId> prompt) {
        window_ = window;
        model::DecoderOptions cache;
        cache.kept_positions = window.max_kept();
        cache.retrieval = window.retrieval();
        if (std::get<1>(GetParam()))
            draft_ =
                load_for_tests(model::Checkpoint::open(directory()), target_.config, cache, target_.self, target_.team);
        else
            draft_ = target_.decoder.over_same_weights(model::first_layers(target_.config, 1), cache);
        texts_ = std::make_unique<ModelTexts>(*draft_, 1, target_.config.vocab_size, nullptr, window);
        request_.prompt.assign(prompt.begin(), prompt.end());
        texts_->begin_sequence(0, request_);
        target_.forget();
        target_.read(prompt.first(prompt.size() - 1));
        texts_->prefill(0, prompt);
    }

    // The row after `text`, whose round begins there. The target has read all of it but the last token.
    std::vector<float> row_after(std::span<const TokenId> text, bool begins_round = true) {
        if (begins_round) texts_->begin_round(0, text.size());
        const TextEnd end = {0, text, 1};
        const SourceLogits rows = texts_->rows_after(std::span(&end, 1), {});
        return {rows.row(0).begin(), rows.row(0).end()};
    }
    void target_reads(std::span<const TokenId> text) {
        const auto held = static_cast<std::size_t>(target_.decoder.cache().length(0));
        target_.read(text.subspan(held, text.size() - 1 - held));
    }

    // Keys and values of the first layer, which depend on tokens and positions alone.
    std::vector<float> at(model::Decoder& decoder, int head, int position) {
        const model::KvCache::Shape& shape = decoder.cache().shape();
        std::vector<float> numbers(static_cast<std::size_t>(shape.head_dim + shape.value_dim));
        decoder.cache().read({0, 0, head, position}, numbers.data(), numbers.data() + shape.head_dim);
        return numbers;
    }

    // The numbers of the chunks that a head has: their bits must be those of the target's first layer.
    std::vector<int> chunks_of(int head) {
        std::vector<int> found;
        for (int i = 0; i < window_.chunks; ++i) {
            const int first = window_.sinks + i * kChunk;
            for (int chunk = 0; chunk < target_.decoder.cache().length(0) / kChunk; ++chunk) {
                bool is_same = true;
                for (int j = 0; j < kChunk && is_same; ++j)
                    is_same = at(*draft_, head, first + j) == at(target_.decoder, head, chunk * kChunk + j);
                if (is_same) found.push_back(chunk);
            }
        }
        return found;
    }

    // Checks the chunks of all heads.
    void expect_chunks_before(int window_begin, std::set<int>& seen) {
        for (int head = 0; head < draft_->cache().shape().n_kv_heads; ++head) {
            const std::vector<int> chunks = chunks_of(head);
            ASSERT_EQ(chunks.size(), window_.chunks) << "head " << head;
            EXPECT_TRUE(std::ranges::is_sorted(chunks));
            EXPECT_GE(chunks.front(), window_.retrieval().first_chunk());
            EXPECT_LE((chunks.back() + 1) * kChunk, window_begin);
            seen.insert(chunks.begin(), chunks.end());
        }
    }

    TestModel target_;
    DraftWindow window_;
    Request request_;
    std::unique_ptr<model::Decoder> draft_;
    std::unique_ptr<ModelTexts> texts_;
};

TEST_P(DraftChunksTest, APromptsChunksAreThereInTheFirstRound) {
    const std::vector<TokenId> prompt = varied_tokens(300, target_.config.vocab_size);
    for (const DraftWindow& window : {DraftWindow{16, 4, 5}, DraftWindow{40, 0, 1}, DraftWindow{4, 12, 20}}) {
        begin(window, prompt);
        row_after(prompt);
        std::set<int> seen;
        expect_chunks_before(300 - window.positions, seen);
    }
}

TEST_P(DraftChunksTest, TheyAreChosenAnewAsTheTextGrows) {
    std::vector<TokenId> text = varied_tokens(200, target_.config.vocab_size);
    begin({16, 4, 6}, text);
    std::set<int> seen;
    for (const TokenId token : varied_tokens(200, target_.config.vocab_size, 3)) {
        row_after(text);
        EXPECT_LE(draft_->cache().length(0), window_.head() + window_.positions + window_.slack());
        if (text.size() % kChunk == 0) expect_chunks_before(static_cast<int>(text.size()) - window_.positions, seen);
        text.push_back(token);
        target_reads(text);
    }
    EXPECT_GT(*seen.rbegin(), 300 / kChunk) << "none of what was emitted";
    EXPECT_LT(*seen.begin(), 200 / kChunk) << "none of the prompt";
}

TEST_P(DraftChunksTest, WhatWasEmittedMeanwhileIsAmongThem) {
    std::vector<TokenId> text = varied_tokens(100, target_.config.vocab_size);
    begin({16, 4, 4}, text);
    row_after(text);
    const std::vector<TokenId> more = varied_tokens(400, target_.config.vocab_size, 3);
    text.insert(text.end(), more.begin(), more.end());
    target_reads(text);
    std::set<int> seen;
    for (int round = 0; round < 2; ++round) { // the target's cache is trusted one round later
        row_after(text);
        text.insert(text.end(), more.begin(), more.begin() + kChunk);
        target_reads(text);
    }
    expect_chunks_before(static_cast<int>(text.size()) - kChunk - window_.positions, seen);
    EXPECT_GT(*seen.rbegin(), 100 / kChunk);
}

TEST_P(DraftChunksTest, RejectedTokensLeaveNoTrace) {
    const std::vector<TokenId> prompt = varied_tokens(200, target_.config.vocab_size);
    std::vector<TokenId> text = prompt, drafted = prompt;
    for (const TokenId token : {7, 8, 9})
        text.push_back(token);
    begin({16, 4, 5}, prompt);
    row_after(prompt);
    target_reads(text);
    const std::vector<float> expected = row_after(text);
    begin({16, 4, 5}, prompt);
    row_after(prompt);
    for (const TokenId token : varied_tokens(60, target_.config.vocab_size, 3)) {
        drafted.push_back(token);
        row_after(drafted, false);
    }
    target_reads(text);
    EXPECT_EQ(row_after(text), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, DraftChunksTest,
                         testing::Combine(testing::Values("golden/llama-draft", "families/qwen3/target",
                                                          "families/bloom/target", "families/deepseek-v2/target"),
                                          testing::Bool()),
                         [](const auto& tested) {
                             std::string name = std::get<0>(tested.param) + (std::get<1>(tested.param) ? "own" : "");
                             std::erase_if(name, [](unsigned char c) { return std::isalnum(c) == 0; });
                             return name;
                         });

} // namespace draft_chunks_test
} // namespace entrodraft::spec
