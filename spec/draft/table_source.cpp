// Logits of a table of counts: as good as free, and right now and then.
#include "spec/draft/token_table.h"
#include "spec/logit_source.h"

#include <stdexcept>
#include <vector>

namespace entrodraft::spec {

namespace {

class TableSource final : public LogitSource {
  public:
    TableSource(const TokenTable& table, int order, int vocab)
        : table_(table), order_(order), vocab_(static_cast<std::size_t>(vocab)) {
        if (order != 1 && order != 2) throw std::invalid_argument("a table knows unigrams and bigrams alone");
    }

    std::string name() const override { return order_ == 1 ? "unigram" : "bigram"; }
    // What a row of them costs: the vocabulary once.
    std::size_t weight_bytes() const override { return vocab_ * sizeof(float); }
    std::size_t context() const override { return std::size_t{1} << 40; }
    std::size_t max_rows() const override { return 128; }
    void begin_sequence() override {}
    void prefill(std::span<const TokenId>) override {}

    SourceRows rows_after(std::span<const TokenId> tokens, std::size_t n, model::LogitNeeds needs) override {
        const auto& kernels = model::kernels::best_kernels();
        logits_.resize(n * vocab_);
        summaries_.clear();
        for (std::size_t i = 0; i < n; ++i) {
            const std::span<float> row(logits_.data() + i * vocab_, vocab_);
            table_.row(order_, tokens[tokens.size() - n + i], row);
            if (needs.summary != model::LogitSummary::none)
                summaries_.push_back(kernels.logit_stats(row.data(), static_cast<int>(vocab_), 0));
        }
        return {logits_, vocab_, vocab_, summaries_};
    }

  private:
    const TokenTable& table_;
    int order_;
    std::size_t vocab_;
    std::vector<float> logits_; // [rows][vocab]
    std::vector<model::kernels::LogitStats> summaries_;
};

} // namespace

std::unique_ptr<LogitSource> make_table_source(const TokenTable& table, int order, int vocab) {
    return std::make_unique<TableSource>(table, order, vocab);
}

} // namespace entrodraft::spec
