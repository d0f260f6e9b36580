// The model drafter: it drafts its model's own text, whatever was rejected before, and it ends when it should.
#include "tests/dist/manual_clock.h"
#include "tests/spec/engine_support.h"

#include "spec/verify/random.h"

#include <cmath>

namespace drafter_test {

using namespace entrodraft;
using spec::Acceptance;
using spec::Draft;
using spec::DraftEnd;
using spec::Request;
using spec::StopRule;

const std::filesystem::path kDraft = golden_directory("llama-draft");

// A drafter over the golden draft, and a second copy of that model to compare with.
struct Bench {
    explicit Bench(const spec::DraftLimits& drafter_options = {.vocab_size = 512, .eos_tokens = {}},
                   int max_positions = 0)
        : model(kDraft, {.threads = 2, .max_positions = max_positions}), check(kDraft),
          drafter(model_drafter_of(model.decoder, drafter_options, clock)) {
        drafter->begin_sequence(0, request);
    }

    Draft draft(const std::vector<TokenId>& tokens, const spec::StopRuleOptions& options, int max_tokens = 100) {
        StopRule rule(options);
        Draft result;
        drafter->propose({0, tokens, max_tokens, &request, choice_of(request), &rule, &result});
        return result;
    }

    // The row of logits after `text`, from the second copy.
    std::vector<float> logits_after(const std::vector<TokenId>& text) {
        check.forget();
        const std::vector<float> all = check.read(text);
        return {all.end() - 512, all.end()};
    }

    TestModel model, check;
    dist::SteadyClock clock;
    Request request;
    std::unique_ptr<spec::Drafter> drafter;
};

std::vector<TokenId> golden_prompt(std::size_t i = 2) {
    return golden_expectations("llama-draft").at(i).at("prompt").get<std::vector<TokenId>>();
}

std::vector<TokenId> golden_text(std::size_t i, std::size_t n) {
    auto tokens = golden_expectations("llama-draft").at(i).at("greedy").get<std::vector<TokenId>>();
    tokens.resize(n);
    return tokens;
}

TEST(ModelDrafter, DraftsItsModelsGreedyTextAsAChain) {
    Bench bench;
    const Draft draft = bench.draft(golden_prompt(), constant_rule(12));
    EXPECT_EQ(draft.tokens, golden_text(2, 12));
    EXPECT_EQ(draft.passes, 12);
    EXPECT_EQ(draft.end, DraftEnd::rule);
    EXPECT_TRUE(draft.q.empty());
    EXPECT_EQ(bench.drafter->facts().name, "model");
    EXPECT_TRUE(bench.drafter->facts().hidden_layers.empty());
}

TEST(ModelDrafter, ReadingThePromptAheadChangesNothing) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    for (const int length : {1, 2, 40, 200}) {
        const std::vector<TokenId> prompt = varied_tokens(length, 512);
        Bench cold, warm;
        warm.drafter->prefill(0, prompt);
        EXPECT_EQ(warm.model.decoder.cache().length(0), length - 1);
        const auto rule = rule_of("static");
        const Draft a = cold.draft(prompt, rule), b = warm.draft(prompt, rule);
        EXPECT_EQ(a.tokens, b.tokens);
        EXPECT_TRUE(same_bits(a.entropies_nats, b.entropies_nats));
        EXPECT_EQ(a.passes, b.passes);
    }
}

// Counts the rows that are read as a prompt.
class PromptCounter final : public model::Decoder {
  public:
    explicit PromptCounter(model::Decoder& inner) : Decoder(inner), inner_(inner) {}
    std::size_t weight_bytes() const override { return inner_.weight_bytes(); }
    double operations_per_row() const override { return inner_.operations_per_row(); }
    model::PassResult forward(const model::Pass& pass) override {
        if (pass.is_prompt) n_rows += pass.rows.size();
        return inner_.forward(pass);
    }
    std::size_t n_rows = 0;

  private:
    model::Decoder& inner_;
};

TEST(ModelSource, ReadsLateWhatItWouldHaveReadEarly) {
    Bench bench;
    PromptCounter decoder(bench.model.decoder);
    const auto source = spec::make_model_source(decoder, 512);
    bench.request.prompt = varied_tokens(150, 512);
    const std::vector<TokenId> text = varied_tokens(240, 512);
    for (const std::size_t first_read : {std::size_t{0}, std::size_t{200}}) { // behind it tokens were rejected
        source->begin_sequence(0, bench.request);
        decoder.n_rows = 0;
        if (first_read > 0) {
            std::vector<TokenId> rejected(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(first_read));
            rejected.resize(first_read + 20, 7);
            EXPECT_TRUE(source->prefill(0, rejected));
        }
        EXPECT_TRUE(source->prefill(0, text));
        EXPECT_EQ(decoder.n_rows, 149U) << "emitted tokens are not a prompt";
        EXPECT_EQ(decoder.cache().length(0), 239);
        EXPECT_EQ(source->unread(0, text), 0U);
        const spec::TextEnd end = {0, text, 1};
        const spec::SourceLogits rows = source->rows_after(std::span(&end, 1), {});
        if (lacking_on_torch(kRowBits).empty()) {
            EXPECT_TRUE(same_bits(rows.row(0), bench.logits_after(text)));
        }
    }
}

// Reads at most 1,000 tokens a round.
class SlowReader final : public spec::LogitSource {
  public:
    SlowReader() : LogitSource({.name = "slow", .shares_passes = true}) {}
    std::size_t unread(int slot, std::span<const TokenId> tokens) const override {
        return tokens.size() - 1 - std::min(tokens.size() - 1, read_.at(static_cast<std::size_t>(slot)));
    }
    bool prefill(int slot, std::span<const TokenId> tokens, std::size_t /*most*/) override {
        std::size_t& read = read_.at(static_cast<std::size_t>(slot));
        read = std::min(read + 1000, tokens.size() - 1);
        return read == tokens.size() - 1;
    }
    spec::SourceLogits rows_after(std::span<const spec::TextEnd> texts, model::LogitNeeds needs) override {
        return source_->rows_after(texts, needs);
    }

  private:
    std::unique_ptr<spec::LogitSource> source_ = spec::make_random_source(512);
    std::vector<std::size_t> read_ = {0, 0};
};

TEST(ChainDrafter, DraftsWhenTheDraftHasReadAll) {
    dist::SteadyClock clock;
    const auto drafter =
        spec::make_chain_drafter(std::make_unique<SlowReader>(), {{.vocab_size = 512, .eos_tokens = {}}, clock, 2});
    const std::vector<std::vector<TokenId>> texts = {varied_tokens(2500, 512), varied_tokens(5, 512)};
    const Request request;
    std::vector<StopRule> rules(2, StopRule(constant_rule(4)));
    std::vector<Draft> drafts(2);
    for (const int slot : {0, 1})
        drafter->begin_sequence(slot, request);
    for (const int caught_up : {1000, 1000, 499}) {
        std::vector<spec::DraftTask> tasks;
        for (const int slot : {0, 1}) {
            const auto i = static_cast<std::size_t>(slot);
            rules[i].begin_round();
            drafts[i].clear();
            tasks.push_back({slot, texts[i], 15, &request, choice_of(request), &rules[i], &drafts[i]});
        }
        drafter->propose(tasks);
        EXPECT_EQ(drafts[0].caught_up, caught_up);
        EXPECT_EQ(drafts[0].tokens.size(), caught_up < 1000 ? 4U : 0U);
        EXPECT_EQ(drafts[0].end, DraftEnd::rule);
        EXPECT_EQ(drafts[1].tokens.size(), 4U) << "who has read all does not wait";
        EXPECT_EQ(drafts[1].caught_up, 0);
    }
}

// Has read nothing of any text, and notes how much of a text is to be read.
class Beginnings final : public spec::LogitSource {
  public:
    explicit Beginnings(std::size_t& read) : LogitSource({.name = "beginnings"}), read_(read) {}
    bool begin_within(int, std::span<const TokenId>, std::size_t n) override {
        read_ = n;
        return true;
    }
    std::size_t unread(int, std::span<const TokenId>) const override { return read_ - 1; }
    spec::SourceLogits rows_after(std::span<const spec::TextEnd> texts, model::LogitNeeds needs) override {
        return source_->rows_after(texts, needs);
    }

  private:
    std::unique_ptr<spec::LogitSource> source_ = spec::make_random_source(512);
    std::size_t& read_;
};

TEST(ChainDrafter, ReadsTheEndOfALongTextWhereItsRuleSaysSo) {
    dist::SteadyClock clock;
    std::size_t read = 0;
    const auto drafter =
        spec::make_chain_drafter(std::make_unique<Beginnings>(read), {{.vocab_size = 512, .eos_tokens = {}}, clock});
    const auto tokens_read = [&](const spec::StopRuleOptions& options, int length,
                                 std::optional<spec::Costs> costs = {}) {
        const std::vector<TokenId> text = varied_tokens(length, 512);
        const Request request;
        drafter->begin_sequence(0, request);
        spec::GainModel gain({.costs = costs});
        StopRule rule(options, &gain);
        rule.begin_round();
        Draft draft;
        drafter->propose(spec::DraftTask{0, text, 15, &request, choice_of(request), &rule, &draft, 15, false, &gain});
        return read;
    };
    EXPECT_EQ(tokens_read(rule_of("expected-gain"), 2500), 257U) << "with the last one, which a pass reads";
    EXPECT_EQ(tokens_read(rule_of("expected-gain"), 400), 400U);
    EXPECT_EQ(tokens_read(rule_of("expected-gain"), 2500, spec::Costs{.t_draft = 0.1, .t_target = {1}}), 2500U)
        << "that a run can be repeated";
    EXPECT_EQ(tokens_read(constant_rule(4), 2500), 2500U) << "it weighs nothing";
}

TEST(ModelDrafter, ForgetsWhatWasRejected) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    Bench bench;
    std::vector<TokenId> text = golden_prompt();
    spec::StopRuleOptions rule = rule_of("static");
    rule.set("threshold", 1e9);
    for (const int accepted : {0, 3, 15, 1, 14}) { // of the 15 drafted
        const Draft draft = bench.draft(text, rule);
        Bench fresh;
        const Draft want = fresh.draft(text, rule);
        ASSERT_EQ(draft.tokens, want.tokens);
        ASSERT_TRUE(same_bits(draft.entropies_nats, want.entropies_nats));
        text.insert(text.end(), draft.tokens.begin(), draft.tokens.begin() + accepted);
        text.push_back((draft.tokens.back() + 100 + accepted) % 512); // the target emits another token
    }
}

TEST(ModelDrafter, BeginsEverySequenceAfresh) {
    Bench bench, fresh;
    bench.draft(golden_prompt(0), constant_rule(5));
    bench.drafter->begin_sequence(0, bench.request);
    EXPECT_EQ(bench.model.decoder.cache().length(0), 0);
    EXPECT_EQ(bench.draft(golden_prompt(3), constant_rule(9)).tokens, golden_text(3, 9));
}

TEST(ModelDrafter, ReportsEntropyAndProbabilityOfTheUnadjustedDistribution) {
    for (const double temperature : {0.0, 0.7}) {
        Bench bench;
        bench.request.sampling.temperature = temperature;
        spec::StopRuleOptions rule = rule_of("static");
        rule.set("threshold", 1e9);
        std::vector<TokenId> text = golden_prompt();
        const Draft draft = bench.draft(text, rule);
        ASSERT_EQ(draft.tokens.size(), 15U);
        EXPECT_EQ(draft.end, DraftEnd::cap);
        for (std::size_t i = 0; i < draft.tokens.size(); ++i) {
            const std::vector<float> logits = bench.logits_after(text);
            double sum = 0, entropy = 0;
            const double top = *std::max_element(logits.begin(), logits.end());
            for (const float x : logits)
                sum += std::exp(static_cast<double>(x) - top);
            for (const float x : logits) {
                const double log_p = static_cast<double>(x) - top - std::log(sum);
                entropy -= std::exp(log_p) * log_p;
            }
            const auto token = static_cast<std::size_t>(draft.tokens[i]);
            EXPECT_NEAR(draft.entropies_nats[i], entropy, 1e-5 * (1 + entropy)) << i;
            EXPECT_NEAR(draft.probabilities[i], std::exp(static_cast<double>(logits[token]) - top) / sum, 1e-5) << i;
            text.push_back(draft.tokens[i]);
        }
    }
}

// The scores are like transformers' under do_sample: after penalties, temperature and filters.
TEST(ModelDrafter, ReportsThoseOfTheAdjustedDistributionWhereAsked) {
    for (const double temperature : {0.0, 0.7})
        for (const spec::Acceptance acceptance : {spec::Acceptance::rejection, spec::Acceptance::gumbel})
            for (const bool penalised : {false, true}) {
                Bench bench;
                bench.request.sampling.temperature = temperature;
                if (temperature > 0) bench.request.sampling.top_k = 20;
                if (penalised) bench.request.processing.repetition_penalty = 1.5;
                bench.request.prompt = golden_prompt();
                bench.drafter->begin_sequence(0, bench.request);
                spec::StopRuleOptions rule = rule_of("static");
                rule.set("threshold", 1e9);
                rule.entropy_of = spec::EntropyOf::adjusted;
                StopRule state(rule);
                Draft draft;
                std::vector<TokenId> text = golden_prompt();
                bench.drafter->propose(
                    {0, text, 100, &bench.request, choice_of(bench.request, acceptance), &state, &draft});
                ASSERT_EQ(draft.tokens.size(), 15U);
                spec::LogitProcessor processor(bench.request.processing, bench.request.prompt, {});
                spec::SamplingOptions sampling = bench.request.sampling;
                if (temperature == 0) sampling.temperature = 1;
                for (std::size_t i = 0; i < draft.tokens.size(); ++i) {
                    std::vector<float> logits = bench.logits_after(text), q(512);
                    processor.follow(text);
                    processor.ban(logits);
                    processor.weigh(logits);
                    spec::adjust(logits, sampling, q);
                    const double entropy = spec::entropy_nats(q);
                    EXPECT_NEAR(draft.entropies_nats[i], entropy, 1e-5 * (1 + entropy)) << i;
                    EXPECT_NEAR(draft.probabilities[i], q[static_cast<std::size_t>(draft.tokens[i])], 1e-5) << i;
                    text.push_back(draft.tokens[i]);
                }
            }
}

TEST(ModelDrafter, AdjustedEntropiesOfPlainSamplingAreTheRawOnes) {
    Bench bench;
    bench.request.sampling.temperature = 1;
    spec::StopRuleOptions rule = rule_of("static");
    rule.set("threshold", 1e9);
    const Draft raw = bench.draft(golden_prompt(), rule);
    rule.entropy_of = spec::EntropyOf::adjusted;
    const Draft adjusted = bench.draft(golden_prompt(), rule);
    EXPECT_EQ(adjusted.tokens, raw.tokens);
    for (std::size_t i = 0; i < raw.tokens.size(); ++i)
        EXPECT_NEAR(adjusted.entropies_nats[i], raw.entropies_nats[i], 1e-4);
}

TEST(ModelDrafter, ARuleThatLooksAtNoEntropyGetsNone) {
    Bench bench;
    const Draft draft = bench.draft(golden_prompt(), constant_rule(4));
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_TRUE(std::isnan(draft.entropies_nats[i]));
        EXPECT_TRUE(std::isnan(draft.probabilities[i]));
    }
}

// Rules see the margin of each token: the value it was chosen by, minus that of the second-best.
TEST(ModelDrafter, TellsTheMarginOfTokensThatTheTargetWouldChooseAlike) {
    for (const double temperature : {0.0, 0.8})
        for (const Acceptance acceptance : {Acceptance::gumbel, Acceptance::rejection}) {
            SCOPED_TRACE(temperature);
            Bench bench;
            bench.request.sampling.temperature = temperature;
            bench.drafter->begin_sequence(0, bench.request);
            spec::GainModel gain({.costs = spec::Costs{0.01, {1}}});
            StopRule rule(rule_of("expected-gain"), &gain);
            Draft draft;
            std::vector<TokenId> text = golden_prompt();
            bench.drafter->propose({0, text, 100, &bench.request, choice_of(bench.request, acceptance), &rule, &draft});
            ASSERT_GT(draft.tokens.size(), 3U);
            for (std::size_t i = 0; i < draft.tokens.size(); ++i) {
                const float margin = draft.margins[i];
                std::vector<float> logits = bench.logits_after(text);
                if (temperature > 0 && acceptance == Acceptance::rejection) {
                    EXPECT_TRUE(std::isnan(margin)) << "drawn by a number of its own";
                } else if (temperature > 0) {
                    const spec::GumbelNoise noise(bench.request.sampling.seed, bench.request.sequence_key);
                    const spec::BestToken best = gumbel_max({logits, 0, text.size()}, temperature, noise);
                    EXPECT_NEAR(margin, best.margin(), 1e-4);
                } else {
                    std::ranges::sort(logits, std::greater<>());
                    EXPECT_NEAR(margin, logits[0] - logits[1], 1e-4);
                }
                text.push_back(draft.tokens[i]);
            }
        }
}

TEST(ModelDrafter, StopsAtTheTokenThatFiresAThresholdRuleAndKeepsOrDropsIt) {
    spec::StopRuleOptions rule = rule_of("static");
    rule.set("threshold", 1e9);
    std::size_t prompt = 0, fires = 0; // prompt: one where a later token is more uncertain than the first
    Draft whole;
    for (; prompt < 6 && fires == 0; ++prompt) {
        Bench bench;
        whole = bench.draft(golden_prompt(prompt), rule);
        const auto& x = whole.entropies_nats;
        const auto above = std::find_if(x.begin(), x.end(), [&](float entropy) { return entropy > x[0] + 0.1F; });
        if (above != x.end()) fires = static_cast<std::size_t>(above - x.begin());
    }
    ASSERT_GT(fires, 0U);
    --prompt;
    rule.set("threshold", static_cast<double>(whole.entropies_nats[fires]) - 1e-6);
    ASSERT_LT(whole.entropies_nats[0], rule.get("threshold"));
    for (const bool drop : {false, true}) {
        rule.drop_stop_token = drop;
        Bench bench({.vocab_size = 512, .eos_tokens = {}});
        const Draft draft = bench.draft(golden_prompt(prompt), rule);
        const std::size_t n = fires + (drop ? 0 : 1);
        EXPECT_EQ(draft.tokens,
                  std::vector<TokenId>(whole.tokens.begin(), whole.tokens.begin() + static_cast<std::ptrdiff_t>(n)));
        EXPECT_EQ(draft.entropies_nats.size(), n);
        EXPECT_EQ(draft.passes, static_cast<int>(fires) + 1) << "a dropped token was computed all the same";
        EXPECT_EQ(draft.end, DraftEnd::rule);
    }
}

TEST(ModelDrafter, DoesNotDropTheLastTokenOfAConstantRule) {
    spec::StopRuleOptions rule = constant_rule(4);
    rule.drop_stop_token = true;
    Bench bench;
    EXPECT_EQ(bench.draft(golden_prompt(), rule).tokens.size(), 4U);
}

TEST(ModelDrafter, SaysWhyItEnded) {
    spec::StopRuleOptions never = rule_of("static", 5, 7);
    never.set("threshold", 1e9);
    Bench bench;
    EXPECT_EQ(bench.draft(golden_prompt(), never).end, DraftEnd::cap);
    const Draft budget = bench.draft(golden_prompt(), never, 3);
    EXPECT_EQ(budget.end, DraftEnd::budget);
    EXPECT_EQ(budget.tokens, golden_text(2, 3));
    const Draft nothing = bench.draft(golden_prompt(), never, 0);
    EXPECT_EQ(nothing.end, DraftEnd::budget);
    EXPECT_TRUE(nothing.tokens.empty());
    EXPECT_EQ(nothing.passes, 0);

    const std::vector<TokenId> text = golden_text(2, 7);
    Bench ending({.vocab_size = 512, .eos_tokens = {511, text[2]}});
    const Draft ended = ending.draft(golden_prompt(), never);
    const auto first = std::find(text.begin(), text.end(), text[2]) - text.begin();
    EXPECT_EQ(ended.end, DraftEnd::end_of_text);
    EXPECT_EQ(ended.tokens, golden_text(2, static_cast<std::size_t>(first) + 1));
    ending.request.ignore_eos = true;
    EXPECT_EQ(ending.draft(golden_prompt(), never).tokens, text);
}

TEST(ModelDrafter, DraftsNothingPastItsOwnContext) {
    Bench bench({.vocab_size = 512, .eos_tokens = {}}, 32);
    const auto rule = constant_rule(5);
    const Draft some = bench.draft(varied_tokens(30, 512), rule);
    EXPECT_EQ(some.tokens.size(), 3U) << "after tokens 30, 31 and 32";
    EXPECT_EQ(some.end, DraftEnd::context);
    EXPECT_EQ(bench.draft(varied_tokens(32, 512), rule).tokens.size(), 1U);
    const Draft none = bench.draft(varied_tokens(33, 512), rule);
    EXPECT_TRUE(none.tokens.empty());
    EXPECT_EQ(none.end, DraftEnd::context);
    bench.drafter->prefill(0, varied_tokens(100, 512)); // a prompt longer than the draft's context is not an error
    EXPECT_LE(bench.model.decoder.cache().length(0), 32);
    EXPECT_TRUE(bench.draft(varied_tokens(100, 512), rule).tokens.empty());
}

TEST(ModelDrafter, ReadsAPromptThatIsLongerThanAPass) {
    Bench bench;
    const std::vector<TokenId> prompt = varied_tokens(210, 512);
    const Draft draft = bench.draft(prompt, constant_rule(6)); // without prefill
    EXPECT_EQ(draft.tokens, bench.check.greedy(prompt, 6));
}

TEST(ModelDrafter, SamplesFromTheAdjustedDistributionsThatItReports) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    Bench bench;
    bench.request.sampling = {.temperature = 1.3, .top_k = 40, .top_p = 0.95, .seed = 12};
    bench.request.sequence_key = 99;
    std::vector<TokenId> text = golden_prompt();
    const auto round_start = static_cast<std::uint32_t>(text.size());
    const Draft draft = bench.draft(text, constant_rule(10));
    ASSERT_EQ(draft.tokens.size(), 10U);
    ASSERT_EQ(draft.q.size(), 10U * 512U);
    const spec::RandomStream random(12, 99, spec::Purpose::draft_sample);
    std::vector<float> p(512);
    for (std::size_t i = 0; i < 10; ++i) {
        spec::adjust(bench.logits_after(text), bench.request.sampling, p);
        EXPECT_TRUE(same_bits(draft.q.subspan(i * 512, 512), p)) << i;
        EXPECT_EQ(draft.tokens[i], spec::sample(p, random.uniform(text.size(), 0, round_start))) << i;
        text.push_back(draft.tokens[i]);
    }
}

TEST(ModelDrafter, TimesItselfOnTheClockItWasGiven) {
    TestModel model(kDraft);
    dist::ManualClock still;
    const auto drafter = model_drafter_of(model.decoder, {.vocab_size = 512, .eos_tokens = {}}, still);
    const Request request;
    drafter->begin_sequence(0, request);
    StopRule rule(rule_of("static"));
    Draft draft;
    const std::vector<TokenId> prompt = golden_prompt();
    drafter->propose({0, prompt, 5, &request, choice_of(request), &rule, &draft});
    EXPECT_EQ(draft.seconds, 0);
    EXPECT_EQ(draft.entropy_seconds, 0);
    Bench bench;
    const Draft timed = bench.draft(golden_prompt(), rule_of("static"));
    EXPECT_GT(timed.seconds, 0);
    EXPECT_GT(timed.entropy_seconds, 0);
}

} // namespace drafter_test
