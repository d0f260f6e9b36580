// Drafters over toy models. Whole texts are drafted and verified in rounds without an engine, fast enough for millions
// of texts. For tests of exactness only.
#pragma once

#include "spec/draft/chain.h"
#include "spec/verify/random.h"
#include "spec/verify/verify.h"
#include "tests/spec/verify_support.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::spec {

// A toy model as a source: its distribution after the text, from the first token on that the toy knows.
class ToySource final : public LogitSource {
  public:
    // The model outlives the source. The first `skipped` tokens of a text, such as a prompt, are not the toy's.
    explicit ToySource(const ToyModel& toy, std::size_t skipped = 0, std::size_t context = 1000,
                       std::size_t max_rows = 16)
        : LogitSource({.name = "toy", .weight_bytes = 1000 * toy.vocab(), .context = context, .max_rows = max_rows}),
          toy_(toy), skipped_(skipped) {}

    SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) override {
        const auto [slot, tokens, n] = texts.front();
        EXPECT_LE(tokens.size(), facts_.context);
        EXPECT_TRUE(n >= 1 && n <= facts_.max_rows && n <= tokens.size()) << n << " rows";
        ++passes;
        logits_.clear();
        summaries_.clear();
        for (std::size_t i = 0; i < n; ++i) {
            const auto prefix = tokens.subspan(skipped_, tokens.size() - n + 1 + i - skipped_);
            for (const float probability : toy_.after({prefix.begin(), prefix.end()}))
                logits_.push_back(std::log(probability));
            if (needs.summary != model::LogitSummary::none)
                summaries_.push_back(model::kernels::best_kernels().logit_stats(logits_.data() + i * toy_.vocab(),
                                                                                static_cast<int>(toy_.vocab()), 0));
        }
        return {logits_, toy_.vocab(), toy_.vocab(), summaries_};
    }

    int passes = 0;

  private:
    const ToyModel& toy_;
    std::size_t skipped_;
    std::vector<float> logits_; // [rows][vocab]
    std::vector<model::LogitStats> summaries_;
};

// Texts of a toy target at temperature 1 with a drafter, as the engine makes them. An end of text ends drafts, as
// there, but not the text.
class ToyRounds {
  public:
    // All outlive it. Texts continue `prompt`, which the target does not know.
    ToyRounds(const ToyModel& target, Drafter& drafter, const StopRuleOptions& rule, Acceptance acceptance,
              GainModel* gain, Tokens prompt)
        : target_(target), drafter_(drafter), gain_(gain), rule_(rule, gain), acceptance_(acceptance),
          prompt_(std::move(prompt)) {
        request_.sampling.temperature = 1;
        request_.prompt = prompt_;
    }

    Tokens text(std::size_t length, std::uint64_t key, std::uint64_t seed = 0) {
        request_.sequence_key = key;
        request_.sampling.seed = seed;
        drafter_.begin_sequence(0, request_);
        rule_ = StopRule(rule_.options(), gain_);
        Tokens tokens = prompt_;
        while (tokens.size() < prompt_.size() + length)
            round(tokens, static_cast<int>(prompt_.size() + length - tokens.size()) - 1);
        return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt_.size()), tokens.end()};
    }

    std::int64_t rounds = 0, drafted = 0, accepted = 0;

  private:
    void round(Tokens& tokens, int most) {
        const ChoiceSetting choice = {acceptance_, request_.sampling.seed, request_.sequence_key};
        drafter_.propose({0, tokens, most, &request_, choice, &rule_, &draft_});
        Tokens prefix(tokens.begin() + static_cast<std::ptrdiff_t>(prompt_.size()), tokens.end());
        std::vector<float> p;
        for (std::size_t i = 0; i <= draft_.tokens.size(); ++i) {
            p.insert(p.end(), target_.after(prefix).begin(), target_.after(prefix).end());
            if (i < draft_.tokens.size()) prefix.push_back(draft_.tokens[i]);
        }
        const RandomStream acceptance(choice.seed, choice.random_key, Purpose::acceptance);
        const RandomStream resample(choice.seed, choice.random_key, Purpose::resample);
        const RejectionInput input = {draft_.tokens, p, draft_.q, tokens.size()};
        const Verification verification = acceptance_ == Acceptance::block
                                              ? verify_block(input, acceptance, resample)
                                              : verify_rejection(input, acceptance, resample);
        rule_.end_round(
            {static_cast<int>(draft_.tokens.size()), verification.accepted, is_cut_short(draft_.end), 0.001, 0.01});
        tokens.insert(tokens.end(), draft_.tokens.begin(), draft_.tokens.begin() + verification.accepted);
        tokens.push_back(verification.next_token);
        ++rounds;
        drafted += static_cast<std::int64_t>(draft_.tokens.size());
        accepted += verification.accepted;
    }

    const ToyModel& target_;
    Drafter& drafter_;
    GainModel* gain_;
    StopRule rule_;
    Acceptance acceptance_;
    Tokens prompt_;
    Request request_;
    Draft draft_;
};

} // namespace entrodraft::spec
