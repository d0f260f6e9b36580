// Distilling without the trainer: the order of texts, the learning rate, the target's figures at each place, their
// file, and the ends of the loop.
#include "model/files/bad_file.h"
#include "spec/distill/scored_texts.h"
#include "spec/distill/target_scorer.h"
#include "spec/distill/training.h"
#include "tests/model/golden_models.h"
#include "tests/model/temporary_directory.h"

#include <random>
#include <set>

namespace distill_test {

using namespace entrodraft;
using model::TensorBytes;
using model::torch::TrainingSums;
using spec::Evaluation;
using spec::ScoredText;
using spec::ScoredTexts;
using spec::TrainingEnd;
using spec::TrainingPlan;
using spec::TrainingProgress;

TEST(DistillPlan, TheRateRisesAndFallsToATenth) {
    TrainingPlan plan;
    plan.steps = 110;
    plan.warmup_steps = 10;
    plan.learning_rate = 1;
    EXPECT_DOUBLE_EQ(learning_rate_at(plan, 0), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate_at(plan, 9), 1);
    EXPECT_DOUBLE_EQ(learning_rate_at(plan, 10), 1);
    EXPECT_DOUBLE_EQ(learning_rate_at(plan, 60), 0.55);
    EXPECT_NEAR(learning_rate_at(plan, 109), 0.1, 1e-3);
    for (int step = 10; step < 109; ++step)
        EXPECT_GT(learning_rate_at(plan, step), learning_rate_at(plan, step + 1));
}

TEST(DistillPlan, EveryEpochHasEachTextOnceInAnOrderOfItsOwn) {
    TrainingPlan plan;
    plan.texts_a_step = 4;
    constexpr std::size_t kTexts = 10;
    std::vector<std::size_t> all;
    for (int step = 0; step < 5; ++step) // two epochs
        for (const std::size_t text : texts_of_step(plan, kTexts, step))
            all.push_back(text);
    const std::vector<std::size_t> first(all.begin(), all.begin() + kTexts), second(all.begin() + kTexts, all.end());
    EXPECT_EQ(std::set(first.begin(), first.end()).size(), kTexts);
    EXPECT_EQ(std::set(second.begin(), second.end()).size(), kTexts);
    EXPECT_NE(first, second);
    plan.seed = 1;
    EXPECT_NE(texts_of_step(plan, kTexts, 0), std::vector(all.begin(), all.begin() + 4));
    plan.texts_a_step = 25; // more texts than there are
    EXPECT_EQ(texts_of_step(plan, kTexts, 0).size(), 25U);
}

ScoredText scored_by_target(TestModel& target, int n_top, int known, std::uint64_t seed) {
    ScoredText text;
    text.tokens = varied_tokens(150, known); // more rows than a pass takes
    text.n_prompt = 7;
    dist::SelfComm self;
    spec::ScorerOptions options;
    options.vocab_size = known;
    options.n_top = n_top;
    options.seed = seed;
    spec::TargetScorer(options, &target.decoder, self).score(text, 1);
    return text;
}

TEST(TargetScorer, KeepsTheMostLikelyTokensAndTheMassOfTheOthers) {
    TestModel target(golden_directory("llama-target"));
    const int known = target.config.vocab_size - 3, n_top = 5; // padding does not count
    const ScoredText text = scored_by_target(target, n_top, known, 0);
    const std::vector<float> logits = target.read(text.tokens);
    ASSERT_EQ(std::ssize(text.rest_mass), text.places());
    double from_rest = 0;
    for (int place = 0; place < text.places(); ++place) {
        const std::size_t at = static_cast<std::size_t>(place);
        const float* row = &logits[(at + 6) * static_cast<std::size_t>(target.config.vocab_size)];
        std::vector<std::pair<double, int>> order; // -log p, token
        double sum = 0;
        for (int token = 0; token < known; ++token)
            sum += std::exp(static_cast<double>(row[token]));
        for (int token = 0; token < known; ++token)
            order.emplace_back(std::log(sum) - static_cast<double>(row[token]), token);
        std::ranges::sort(order);
        double mass = 1;
        for (std::size_t i = 0; i < static_cast<std::size_t>(n_top); ++i) {
            EXPECT_EQ(text.top_tokens[at * static_cast<std::size_t>(n_top) + i], order[i].second);
            EXPECT_NEAR(text.top_log_probs[at * static_cast<std::size_t>(n_top) + i], -order[i].first, 1e-4);
            mass -= std::exp(-order[i].first);
        }
        EXPECT_NEAR(text.rest_mass[at], mass, 1e-5);
        const auto drawn = std::ranges::find(order, text.rest_token[at], &std::pair<double, int>::second);
        ASSERT_GE(drawn - order.begin(), n_top);
        EXPECT_NEAR(text.rest_log_prob[at], -drawn->first, 1e-4);
        from_rest += drawn - order.begin() == n_top ? 1 : 0;
    }
    EXPECT_LT(from_rest, text.places()); // tokens are drawn; they are not always the best of the others
}

// Among tokens outside the top, a token's share of draws is its probability.
TEST(TargetScorer, DrawsTheOtherTokenFromTheTargetsDistribution) {
    TestModel target(golden_directory("llama-target"));
    const int known = target.config.vocab_size;
    double seen = 0, should = 0, variance = 0;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        const ScoredText text = scored_by_target(target, 3, known, seed), next = scored_by_target(target, 4, known, 9);
        for (std::size_t place = 0; place < static_cast<std::size_t>(text.places()); ++place) {
            // The fourth most likely token, which `next` knows.
            const double p = std::exp(next.top_log_probs[place * 4 + 3]) / text.rest_mass[place];
            seen += text.rest_token[place] == next.top_tokens[place * 4 + 3] ? 1 : 0;
            should += p;
            variance += p * (1 - p);
        }
    }
    EXPECT_LT(std::abs(seen - should), 4 * std::sqrt(variance));
}

ScoredTexts some_texts(bool with_sources = false) {
    ScoredTexts texts;
    texts.description = R"({"target": "x"})";
    for (int i = 0; i < 5; ++i) {
        ScoredText text;
        text.tokens = varied_tokens(4 + i, 50, i);
        if (with_sources) text.source = varied_tokens(1 + i, 90, i);
        text.n_prompt = 1 + i % 3;
        text.n_top = 2;
        text.temperature = 0.5F * static_cast<float>(i);
        for (int place = 0; place < text.places(); ++place) {
            for (int k = 0; k < 2; ++k) {
                text.top_tokens.push_back((i + place + k) % 50);
                text.top_log_probs.push_back(-0.5F * static_cast<float>(k + 1));
            }
            text.rest_mass.push_back(0.25F);
            text.rest_token.push_back(place % 2 == 0 ? -1 : 7);
            text.rest_log_prob.push_back(-3);
        }
        (i == 2 ? texts.held_out : texts.learned).push_back(std::move(text));
    }
    return texts;
}

std::string file_of(const std::vector<TensorBytes>& tensors) {
    std::string file = model::safetensors_beginning(tensors);
    for (const TensorBytes& tensor : tensors)
        file.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    return file;
}

TEST(ScoredTexts, AreInTheFileWhatTheyWere) {
    for (const bool with_sources : {false, true}) {
        const ScoredTexts texts = some_texts(with_sources);
        const TemporaryDirectory scratch;
        const auto file = scratch.write("texts", file_of(to_tensors(texts)));
        const ScoredTexts read = spec::scored_texts(model::Checkpoint::open_file(file), "texts", 50);
        EXPECT_EQ(read.description, texts.description);
        ASSERT_EQ(read.learned.size(), 4U);
        ASSERT_EQ(read.held_out.size(), 1U);
        EXPECT_EQ(read.held_out[0].tokens, texts.held_out[0].tokens);
        EXPECT_EQ(read.held_out[0].source, texts.held_out[0].source);
        EXPECT_EQ(read.learned[3].source, texts.learned[3].source);
        EXPECT_EQ(file_of(to_tensors(read)), file_of(to_tensors(texts)));
        EXPECT_THROW(spec::scored_texts(model::Checkpoint::open_file(file), "texts", 49), model::BadFile);
    }
}

// Files of any bytes either give consistent texts or are refused.
TEST(ScoredTexts, OfAnyBytesAreRefusedOrHoldTogether) {
    const std::string files[] = {file_of(to_tensors(some_texts())), file_of(to_tensors(some_texts(true)))};
    const TemporaryDirectory scratch;
    std::mt19937 random(3);
    int refused = 0;
    for (int i = 0; i < 2000; ++i) {
        std::string bytes = files[i % 2];
        for (unsigned n = 0; n < 1 + random() % 3; ++n)
            bytes[random() % bytes.size()] = static_cast<char>(random() & 255U);
        const auto file = scratch.write("texts", bytes);
        try {
            const ScoredTexts read = spec::scored_texts(model::Checkpoint::open_file(file), "texts", 50);
            for (const auto* texts : {&read.learned, &read.held_out})
                for (const ScoredText& text : *texts) {
                    ASSERT_GE(text.n_prompt, 1);
                    ASSERT_GE(text.places(), 1);
                    ASSERT_EQ(std::ssize(text.top_tokens), std::int64_t{text.places()} * text.n_top);
                    ASSERT_EQ(std::ssize(text.rest_mass), text.places());
                    for (const model::TokenId token : text.top_tokens)
                        ASSERT_TRUE(token >= 0 && token < 50);
                }
        } catch (const model::BadFile&) {
            ++refused;
        }
    }
    EXPECT_GT(refused, 500);
}

// Its overlap on held-out texts is scripted, evaluation by evaluation.
class ScriptedTrainer final : public model::torch::Trainer {
  public:
    explicit ScriptedTrainer(std::vector<double> overlaps) : overlaps_(std::move(overlaps)) {}
    TrainingSums measure(std::span<const ScoredText* const> texts) override {
        const auto n = static_cast<std::int64_t>(texts.size());
        if (n == 0) return {};
        const double overlap = overlaps_.at(measured_++) * static_cast<double>(n);
        return {n, 0, overlap, overlap + static_cast<double>(n)};
    }
    TrainingSums add_gradients(std::span<const ScoredText* const> texts, double weight) override {
        for (const ScoredText* text : texts) {
            learned_.push_back(text);
            weight_ += weight * text->places();
        }
        return {1, 2, 0, 0};
    }
    double step(double) override {
        EXPECT_NEAR(std::exchange(weight_, 0), 1, 1e-9); // the weights make a mean over the step's places
        return 0;
    }
    std::vector<TensorBytes> parameters(model::WeightType) const override { return {}; }
    std::vector<TensorBytes> gradients() const override { return {}; }
    std::vector<TensorBytes> state() const override { return {}; }
    void restore(const model::Checkpoint&) override {}

    std::vector<const ScoredText*> learned_;

  private:
    std::vector<double> overlaps_;
    std::size_t measured_ = 0;
    double weight_ = 0;
};

struct ScriptedRun {
    TrainingEnd end{};
    TrainingProgress progress;
    std::vector<bool> were_best;
    std::vector<const ScoredText*> learned;
};
ScriptedRun run_script(const TrainingPlan& plan, std::vector<double> overlaps, const ScoredTexts& texts,
                       TrainingProgress progress = {}, int stop_signal = 0) {
    ScriptedTrainer trainer(std::move(overlaps));
    ScriptedRun run;
    run.progress = std::move(progress);
    dist::SelfComm self;
    const volatile int signal = stop_signal;
    run.end = train(trainer, plan, {texts.learned, texts.held_out, plan.steps}, self, run.progress,
                    {[](const TrainingProgress&) {},
                     [&](const TrainingProgress&, bool is_best) { run.were_best.push_back(is_best); }},
                    signal);
    run.learned = trainer.learned_;
    return run;
}

TEST(DistillTraining, EndsWhereNothingGetsBetterAndGoesOnWhereItWas) {
    const ScoredTexts texts = some_texts();
    TrainingPlan plan;
    plan.steps = 40;
    plan.evaluate_every = 10;
    plan.texts_a_step = 3;
    plan.texts_a_pass = 2;
    plan.patience = 2;
    const ScriptedRun whole = run_script(plan, {0.5, 0.6, 0.55, 0.7, 0.65}, texts);
    EXPECT_EQ(whole.end, TrainingEnd::finished);
    EXPECT_EQ(whole.were_best, (std::vector{true, true, false, true, false}));
    EXPECT_EQ(whole.progress.best()->step, 30);
    EXPECT_EQ(whole.learned.size(), 120U);

    const ScriptedRun early = run_script(plan, {0.5, 0.6, 0.6, 0.55, 1}, texts);
    EXPECT_EQ(early.end, TrainingEnd::converged);
    EXPECT_EQ(early.progress.step, 30);
    EXPECT_EQ(early.progress.best()->step, 10);

    TrainingProgress half;
    half.step = 20;
    half.evaluations = {{0, 0, 0, 0, 0, 0.5}, {10, 0, 0, 0, 0, 0.6}, {20, 0, 0, 0, 0, 0.55}};
    const ScriptedRun resumed = run_script(plan, {0.7, 0.65}, texts, half);
    EXPECT_EQ(resumed.end, TrainingEnd::finished);
    EXPECT_TRUE(std::equal(resumed.learned.begin(), resumed.learned.end(), whole.learned.begin() + 60));
    EXPECT_EQ(resumed.progress.evaluations.size(), 5U);
    EXPECT_EQ(run_script(plan, {}, texts, half, 15).end, TrainingEnd::interrupted);
}

TEST(DistillTraining, GreedyTextsAreMeasuredByAgreementAndSampledOnesByOverlap) {
    ScoredTexts texts = some_texts();
    texts.held_out = {texts.learned[0], texts.learned[1], texts.learned[1]}; // the first one is greedy
    TrainingPlan plan;
    plan.steps = 1;
    const Evaluation first = run_script(plan, {0.25, 0.5, 0.25, 0.5}, texts).progress.evaluations.front();
    EXPECT_DOUBLE_EQ(first.agreement, 1.25);
    EXPECT_DOUBLE_EQ(first.overlap, 0.5);
    EXPECT_DOUBLE_EQ(first.acceptance, (1.25 + 2 * 0.5) / 3);
}

} // namespace distill_test
