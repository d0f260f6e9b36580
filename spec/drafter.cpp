// The model drafter: a small decoder on this rank, one pass a token, its cache cut back to what was accepted.
#include "entrodraft/spec/drafter.h"

#include "entrodraft/model/kernels/kernels.h"
#include "entrodraft/spec/philox.h"

#include <algorithm>
#include <limits>

namespace entrodraft::spec {

using model::kernels::LogitStats;

void Draft::clear() {
    tokens.clear();
    parents.clear();
    entropies_nats.clear();
    probabilities.clear();
    q = {};
    end = DraftEnd::none;
    passes = 0;
    seconds = 0;
    entropy_seconds = 0;
}

DraftEnd DraftLimits::why_end(const DraftRequest& request, const Draft& draft, int most, DraftEnd rule_end) const {
    if (rule_end != DraftEnd::none) return rule_end;
    const bool ends = std::find(eos_tokens.begin(), eos_tokens.end(), draft.tokens.back()) != eos_tokens.end();
    if (ends && !request.request->ignore_eos) return DraftEnd::end_of_text;
    const int drafted = static_cast<int>(draft.tokens.size());
    if (drafted < most) return DraftEnd::none;
    return drafted == request.most_tokens ? DraftEnd::budget : DraftEnd::context;
}

namespace {

constexpr float kNotComputed = std::numeric_limits<float>::quiet_NaN();

class ModelDrafter final : public Drafter {
  public:
    ModelDrafter(model::Decoder& decoder, const DraftLimits& limits, const dist::Clock& clock)
        : decoder_(decoder), limits_(limits), clock_(clock) {}

    std::string name() const override { return "model"; }
    std::size_t weight_bytes() const override { return decoder_.weight_bytes(); }

    void begin_sequence() override {
        decoder_.cache().truncate(kSlot, 0);
        cached_.clear();
    }

    void prefill(std::span<const TokenId> prompt) override {
        if (!prompt.empty()) read(prompt.first(std::min(prompt.size() - 1, context())));
    }

    void draft(const DraftRequest& request, StopRule& rule, Draft& draft) override;

  private:
    static constexpr int kSlot = 0;

    std::size_t context() const { return static_cast<std::size_t>(decoder_.config().max_positions); }
    void forget_rejected(std::span<const TokenId> tokens);
    void read(std::span<const TokenId> tokens);
    struct Step {
        std::span<const float> logits; // [vocab]
        LogitStats stats;
    };
    Step step(std::span<const TokenId> tokens, model::LogitSummary summary);
    TokenId choose(std::span<const float> logits, const DraftRequest& request, std::size_t step,
                   const LogitStats& stats);

    model::Decoder& decoder_;
    DraftLimits limits_;
    const dist::Clock& clock_;
    std::vector<TokenId> cached_; // tokens whose keys and values the cache holds
    std::vector<TokenId> text_;   // the text with what is drafted so far
    std::vector<model::Row> rows_;
    std::vector<float> q_; // [drafted][vocab]
};

// Cuts the cache back to where it agrees with the text, leaving at least the last token to be read.
void ModelDrafter::forget_rejected(std::span<const TokenId> tokens) {
    const std::size_t most = std::min(cached_.size(), tokens.size() - 1);
    const auto agreed =
        std::mismatch(cached_.begin(), cached_.begin() + static_cast<std::ptrdiff_t>(most), tokens.begin()).first;
    cached_.resize(static_cast<std::size_t>(agreed - cached_.begin()));
    decoder_.cache().truncate(kSlot, static_cast<int>(cached_.size()));
}

// Brings the cache up to `tokens` in chunks, asking for no logits.
void ModelDrafter::read(std::span<const TokenId> tokens) {
    while (cached_.size() < tokens.size()) {
        const std::size_t rows =
            std::min(tokens.size() - cached_.size(), static_cast<std::size_t>(decoder_.most_rows()));
        rows_.clear();
        for (std::size_t i = 0; i < rows; ++i)
            rows_.push_back(
                {tokens[cached_.size() + i], kSlot, static_cast<int>(cached_.size() + i), static_cast<int>(i) - 1});
        decoder_.forward({.rows = rows_, .logit_rows = {}, .hidden_layers = {}, .mask = model::Mask::causal});
        cached_.insert(cached_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(cached_.size()),
                       tokens.begin() + static_cast<std::ptrdiff_t>(cached_.size() + rows));
    }
}

// One draft pass: reads what of `tokens` the cache lacks (one or two of them, as a rule); what follows is a row of
// logits and its summary.
ModelDrafter::Step ModelDrafter::step(std::span<const TokenId> tokens, model::LogitSummary summary) {
    const auto most = static_cast<std::size_t>(decoder_.most_rows());
    if (tokens.size() - cached_.size() > most) read(tokens.first(tokens.size() - most));
    rows_.clear();
    for (std::size_t i = cached_.size(); i < tokens.size(); ++i)
        rows_.push_back({tokens[i], kSlot, static_cast<int>(i), static_cast<int>(rows_.size()) - 1});
    const int last_row[] = {static_cast<int>(rows_.size()) - 1};
    const model::PassResult result = decoder_.forward({.rows = rows_,
                                                       .logit_rows = last_row,
                                                       .hidden_layers = {},
                                                       .mask = model::Mask::causal,
                                                       .summary = summary,
                                                       .summary_vocab = limits_.vocab_size});
    for (const model::Row& row : rows_)
        cached_.push_back(row.token);
    return {result.logits.first(static_cast<std::size_t>(limits_.vocab_size)),
            result.summaries.empty() ? LogitStats{} : result.summaries[0]};
}

TokenId ModelDrafter::choose(std::span<const float> logits, const DraftRequest& request, std::size_t step,
                             const LogitStats& stats) {
    const SamplingOptions& sampling = request.request->sampling;
    if (sampling.greedy()) return stats.arg_max;
    const std::span<float> q(q_.data() + step * logits.size(), logits.size());
    adjust(logits, sampling, q);
    const RandomStream random(sampling.seed, request.request->sequence_key, Purpose::draft_sample);
    return sample(q, random.uniform(request.tokens.size() + step));
}

void ModelDrafter::draft(const DraftRequest& request, StopRule& rule, Draft& draft) {
    const double began = clock_.now_seconds();
    draft.clear();
    rule.begin_round();
    // The draft's own context may be the shorter one: it reads at most that many tokens.
    const auto room = static_cast<std::ptrdiff_t>(context()) - static_cast<std::ptrdiff_t>(request.tokens.size()) + 1;
    const int cap = std::min(request.most_tokens, rule.options().max_tokens);
    const int most = static_cast<int>(std::clamp<std::ptrdiff_t>(room, 0, std::max(cap, 0)));
    if (most == 0) {
        draft.end = request.most_tokens <= 0 ? DraftEnd::budget : DraftEnd::context;
        return;
    }
    forget_rejected(request.tokens);
    const bool sampled = !request.request->sampling.greedy();
    const auto vocab = static_cast<std::size_t>(limits_.vocab_size);
    if (sampled) q_.resize(static_cast<std::size_t>(cap) * vocab);

    text_.assign(request.tokens.begin(), request.tokens.end());
    const bool whole = rule.needs_distribution();
    const auto summary = whole     ? model::LogitSummary::entropy
                         : sampled ? model::LogitSummary::none
                                   : model::LogitSummary::max;
    while (draft.end == DraftEnd::none) {
        if (!rule.wants_another()) {
            draft.end = rule.end();
            break;
        }
        const auto [logits, stats] = step(text_, summary);
        ++draft.passes;
        const TokenId token = choose(logits, request, draft.tokens.size(), stats);
        const double before = clock_.now_seconds();
        const DraftedToken seen =
            whole ? DraftedToken{stats.entropy_nats(), stats.probability(logits[static_cast<std::size_t>(token)])}
                  : DraftedToken{kNotComputed, kNotComputed};
        const Judgement judgement = rule.judge(seen);
        draft.entropy_seconds += clock_.now_seconds() - before;
        if (judgement == Judgement::drop) {
            draft.end = rule.end();
            break;
        }
        text_.push_back(token);
        draft.parents.push_back(static_cast<int>(draft.tokens.size()) - 1);
        draft.tokens.push_back(token);
        draft.entropies_nats.push_back(static_cast<float>(seen.entropy_nats));
        draft.probabilities.push_back(static_cast<float>(seen.probability));
        draft.end = limits_.why_end(request, draft, most, rule.end());
    }
    if (sampled) draft.q = std::span<const float>(q_).first(draft.tokens.size() * vocab);
    draft.seconds = clock_.now_seconds() - began - draft.entropy_seconds;
}

} // namespace

std::unique_ptr<Drafter> make_model_drafter(model::Decoder& decoder, const DraftLimits& limits,
                                            const dist::Clock& clock) {
    return std::make_unique<ModelDrafter>(decoder, limits, clock);
}

} // namespace entrodraft::spec
