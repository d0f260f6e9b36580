// Sources that keep nothing of a text: see logit_source.h.
#include "spec/draft/logit_source.h"

#include "spec/draft/token_table.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace entrodraft::spec {

namespace {

class FunctionSource final : public LogitSource {
  public:
    FunctionSource(std::string name, int vocab, FillLogits fill, std::size_t weight_bytes)
        : name_(std::move(name)), vocab_(static_cast<std::size_t>(vocab)), fill_(std::move(fill)),
          weight_bytes_(weight_bytes) {}

    std::string name() const override { return name_; }
    std::size_t weight_bytes() const override { return weight_bytes_; }

    SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) override {
        summaries_.clear();
        std::size_t n_rows = 0;
        for (const TextEnd& text : texts)
            for (std::size_t i = text.n; i > 0; --i) {
                logits_.resize(std::max(logits_.size(), ++n_rows * vocab_));
                const auto row = std::span(logits_).subspan((n_rows - 1) * vocab_, vocab_);
                fill_(text.tokens.first(text.tokens.size() - i + 1), row);
                if (needs.summary != model::LogitSummary::none)
                    summaries_.push_back(
                        model::kernels::best_kernels().logit_stats(row.data(), static_cast<int>(vocab_), 0));
            }
        return {logits_, vocab_, vocab_, summaries_};
    }

  private:
    std::string name_;
    std::size_t vocab_;
    FillLogits fill_;
    std::size_t weight_bytes_;
    std::vector<float> logits_; // [most rows so far][vocab]
    std::vector<model::kernels::LogitStats> summaries_;
};

} // namespace

std::unique_ptr<LogitSource> make_function_source(std::string name, int vocab, FillLogits fill,
                                                  std::size_t weight_bytes) {
    return std::make_unique<FunctionSource>(std::move(name), vocab, std::move(fill), weight_bytes);
}

std::unique_ptr<LogitSource> make_table_source(const TokenTable& table, int order, int vocab) {
    if (order != 1 && order != 2) throw std::invalid_argument("a table knows unigrams and bigrams alone");
    const auto fill = [&table, order](std::span<const TokenId> text, std::span<float> logits) {
        table.row(order, text.back(), logits);
    };
    // What a row costs: the vocabulary once.
    return make_function_source(order == 1 ? "unigram" : "bigram", vocab, fill,
                                static_cast<std::size_t>(vocab) * sizeof(float));
}

} // namespace entrodraft::spec
