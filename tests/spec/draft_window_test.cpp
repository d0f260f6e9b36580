// The part of a text that the cache of a draft with a window keeps, and that its passes read.
#include "spec/draft/model_drafter.h"
#include "tests/model/golden_models.h"

#include <gtest/gtest.h>

#include <cctype>
#include <memory>
#include <optional>
#include <vector>

namespace entrodraft::spec {
namespace draft_window_test {

class DraftWindowTest : public testing::TestWithParam<std::string> { // parameter: a directory of tests/model
  protected:
    void SetUp() override { // skips models that libtorch cannot run
        if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
        model_.emplace(source_directory() / "tests/model" / GetParam(), options());
    }

    static TestModelOptions options() {
        TestModelOptions options;
        options.max_positions = 1024;
        return options;
    }

    // Begins a text. The cache has only the window's positions.
    void begin(const DraftWindow& window, const Request& request) {
        model::DecoderOptions options;
        options.kept_positions = window.max_kept();
        decoder_ = model_->decoder.over_same_weights(model_->config, options);
        texts_ = std::make_unique<ModelTexts>(*decoder_, 1, vocab(), nullptr, window);
        texts_->begin_sequence(0, request);
        texts_->prefill(0, request.prompt);
    }

    // The row after `text`, in a round that began after the first `settled` tokens; 0: after all.
    std::vector<float> row_after(std::span<const TokenId> text, std::size_t settled = 0) {
        texts_->begin_round(0, settled > 0 ? settled : text.size());
        const TextEnd end = {0, text, 1};
        const SourceLogits rows = texts_->rows_after(std::span(&end, 1), {});
        return {rows.row(0).begin(), rows.row(0).end()};
    }

    int vocab() const { return model_->config.vocab_size; }
    Request request_of(int n) const {
        Request request;
        request.prompt = varied_tokens(n, vocab());
        return request;
    }
    int length() { return decoder_->cache().length(0); }

    // The row of a single pass over the first `sinks` and the last `last` tokens of a text, at their positions.
    std::vector<float> row_of(std::span<const TokenId> text, std::size_t sinks, std::size_t last) {
        std::vector<model::Row> rows;
        for (std::size_t i = 0; i < text.size(); ++i)
            if (i < sinks || i + last >= text.size())
                rows.push_back({text[i], 0, static_cast<int>(i), static_cast<int>(rows.size()) - 1});
        model_->forget();
        return model_->forward(rows, std::vector{static_cast<int>(rows.size()) - 1});
    }

    std::optional<TestModel> model_;
    std::unique_ptr<model::Decoder> decoder_;
    std::unique_ptr<ModelTexts> texts_;
};

TEST_P(DraftWindowTest, OfAPromptItReadsTheFirstTokensAndTheLast) {
    const Request request = request_of(100);
    for (const int positions : {1, 4, 16, 64})
        for (const int sinks : {0, 4}) {
            begin({positions, sinks}, request);
            EXPECT_EQ(length(), sinks + positions - 1); // the first pass reads the last token
            EXPECT_EQ(row_after(request.prompt),
                      row_of(request.prompt, static_cast<std::size_t>(sinks), static_cast<std::size_t>(positions)))
                << positions << " and " << sinks;
        }
}

TEST_P(DraftWindowTest, ATextThatFitsIsReadWhole) {
    const Request request = request_of(60);
    begin({60, 4}, request);
    EXPECT_EQ(row_after(request.prompt), row_of(request.prompt, 0, 60));
}

TEST_P(DraftWindowTest, TheCacheStaysAsLargeAsTheWindow) {
    Request request = request_of(40);
    const DraftWindow window = {16, 4};
    begin(window, request);
    std::vector<TokenId> text = request.prompt;
    for (const TokenId token : varied_tokens(400, vocab(), 3)) {
        row_after(text);
        EXPECT_LE(length(), window.sinks + window.positions + window.slack());
        EXPECT_GE(length(), window.sinks + window.positions);
        text.push_back(token);
    }
}

TEST_P(DraftWindowTest, WhatWasEmittedMeanwhileIsReadFromTheWindowOn) {
    const Request request = request_of(40);
    begin({16, 4}, request);
    row_after(request.prompt);
    std::vector<TokenId> text = request.prompt;
    const std::vector<TokenId> more = varied_tokens(300, vocab(), 3);
    text.insert(text.end(), more.begin(), more.end());
    EXPECT_EQ(row_after(text), row_of(text, 4, 16));
    EXPECT_EQ(length(), 20);
}

TEST_P(DraftWindowTest, RejectedTokensLeaveNoTrace) {
    const Request request = request_of(100);
    std::vector<TokenId> text = request.prompt, drafted = request.prompt;
    text.push_back(7);
    begin({16, 4}, request);
    row_after(request.prompt);
    const std::vector<float> expected = row_after(text);
    begin({16, 4}, request);
    for (const TokenId token : varied_tokens(100, vocab(), 3)) { // all in one round
        row_after(drafted, request.prompt.size());
        drafted.push_back(token);
    }
    EXPECT_EQ(row_after(text), expected);
}

TEST_P(DraftWindowTest, ATextMayBeginWithin) {
    const Request request = request_of(100);
    begin({}, request);
    EXPECT_FALSE(texts_->begin_within(0, request.prompt, 40)) << "it was read";
    texts_->begin_sequence(0, request);
    for (const std::size_t n : {40, 100, 1, 16}) { // until it is read, anywhere
        ASSERT_TRUE(texts_->begin_within(0, request.prompt, n));
        EXPECT_EQ(texts_->unread(0, request.prompt), n - 1);
    }
    EXPECT_TRUE(texts_->prefill(0, request.prompt));
    EXPECT_EQ(length(), 15);
    EXPECT_FALSE(texts_->begin_within(0, request.prompt, 40));
    EXPECT_EQ(row_after(request.prompt), row_of(request.prompt, 0, 16));
    std::vector<TokenId> text = request.prompt, rejected = request.prompt;
    for (const TokenId token : {5, 6, 8}) {
        rejected.push_back(token);
        row_after(rejected, request.prompt.size());
    }
    text.push_back(7);
    EXPECT_EQ(row_after(text), row_of(text, 0, 17)) << "it goes on as it began";
    begin({16, 4}, request);
    texts_->begin_sequence(0, request);
    EXPECT_FALSE(texts_->begin_within(0, request.prompt, 40)) << "a window is all that is read";
}

INSTANTIATE_TEST_SUITE_P(Models, DraftWindowTest,
                         testing::Values("golden/llama-draft", "families/mistral/target", "families/bloom/target",
                                         "families/deepseek-v2/target"),
                         [](const auto& directory) {
                             std::string name = directory.param;
                             std::erase_if(name, [](unsigned char c) { return std::isalnum(c) == 0; });
                             return name;
                         });

} // namespace draft_window_test
} // namespace entrodraft::spec
