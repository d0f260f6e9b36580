// Logits that mean nothing: for tests of everything that must hold whatever a draft says.
#include "spec/logit_source.h"
#include "spec/verify/philox.h"

#include <algorithm>
#include <vector>

namespace entrodraft::spec {

namespace {

class RandomSource final : public LogitSource {
  public:
    explicit RandomSource(int vocab) : vocab_(static_cast<std::size_t>(vocab)) {}

    std::string name() const override { return "random"; }
    std::size_t context() const override { return std::size_t{1} << 40; }
    std::size_t max_rows() const override { return 128; }
    void begin_sequence() override {}
    void prefill(std::span<const TokenId>) override {}
    SourceRows rows_after(std::span<const TokenId> tokens, std::size_t n, model::LogitNeeds needs) override;

  private:
    void fill(std::size_t position, TokenId last, std::span<float> row) const;

    std::size_t vocab_;
    std::vector<float> logits_;
    std::vector<model::kernels::LogitStats> summaries_;
};

SourceRows RandomSource::rows_after(std::span<const TokenId> tokens, std::size_t n, model::LogitNeeds needs) {
    logits_.resize(n * vocab_);
    summaries_.clear();
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t position = tokens.size() - n + 1 + i;
        const std::span<float> row(logits_.data() + i * vocab_, vocab_);
        fill(position, tokens[position - 1], row);
        if (needs.summary != model::LogitSummary::none)
            summaries_.push_back(model::kernels::best_kernels().logit_stats(row.data(), static_cast<int>(vocab_), 0));
    }
    return {logits_, vocab_, vocab_, summaries_};
}

void RandomSource::fill(std::size_t position, TokenId last, std::span<float> row) const {
    const float sharpness = static_cast<float>(position % 5) * 4.0F; // from flat to nearly certain
    for (std::size_t first = 0; first < row.size(); first += 4) {
        const auto words = philox4x32({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(position),
                                       static_cast<std::uint32_t>(last), 0},
                                      {0, 0});
        for (std::size_t i = first; i < std::min(first + 4, row.size()); ++i)
            row[i] = sharpness * static_cast<float>(words[i - first]) * 0x1p-32F;
    }
}

} // namespace

std::unique_ptr<LogitSource> make_random_source(int vocab) {
    return std::make_unique<RandomSource>(vocab);
}

} // namespace entrodraft::spec
