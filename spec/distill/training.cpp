// See training.h.
#include "spec/distill/training.h"

#include "spec/verify/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace entrodraft::spec {

using model::torch::Trainer;
using model::torch::TrainingSums;

namespace {

class TrainingRun {
  public:
    TrainingRun(Trainer& trainer, const TrainingPlan& plan, dist::Communicator& ranks)
        : trainer_(trainer), plan_(plan), ranks_(ranks) {}

    Evaluation evaluate(std::span<const ScoredText> held_out) {
        const auto measure = [&](bool is_greedy) {
            std::vector<std::size_t> numbers;
            for (std::size_t i = 0; i < held_out.size(); ++i)
                if ((held_out[i].temperature == 0) == is_greedy) numbers.push_back(i);
            return summed(trainer_.measure(own(held_out, numbers)));
        };
        const TrainingSums greedy = measure(true), sampled = measure(false);
        const auto places = static_cast<double>(greedy.places + sampled.places);
        const auto share = [&](double TrainingSums::*of, const TrainingSums& some) {
            return some.places > 0 ? some.*of / static_cast<double>(some.places) : (greedy.*of + sampled.*of) / places;
        };
        Evaluation made;
        made.loss = (greedy.loss + sampled.loss) / places;
        made.overlap = share(&TrainingSums::overlap, sampled);
        made.agreement = share(&TrainingSums::agreement, greedy);
        made.acceptance = (greedy.agreement + sampled.overlap) / places;
        return made;
    }

    // Makes a step. Returns the mean loss before it.
    double step(std::span<const ScoredText> learned, int number) {
        const std::vector<std::size_t> numbers = texts_of_step(plan_, learned.size(), number);
        std::int64_t places = 0;
        for (const std::size_t text : numbers)
            places += learned[text].places();
        const std::vector<const ScoredText*> texts = own(learned, numbers);
        double loss = 0;
        const auto a_pass = static_cast<std::size_t>(plan_.texts_a_pass);
        for (std::size_t begin = 0; begin < texts.size(); begin += a_pass) {
            const auto some = std::span(texts).subspan(begin, std::min(a_pass, texts.size() - begin));
            loss += trainer_.add_gradients(some, 1.0 / static_cast<double>(places)).loss;
        }
        trainer_.step(learning_rate_at(plan_, number));
        return sum_of(loss) / static_cast<double>(places);
    }

    bool is_any(bool mine) { return sum_of(mine ? 1 : 0) > 0; }

  private:
    // This rank's part of the texts.
    std::vector<const ScoredText*> own(std::span<const ScoredText> texts, const std::vector<std::size_t>& numbers) {
        std::vector<const ScoredText*> mine;
        for (std::size_t i = static_cast<std::size_t>(ranks_.rank()); i < numbers.size();
             i += static_cast<std::size_t>(ranks_.size()))
            mine.push_back(&texts[numbers[i]]);
        return mine;
    }

    // The sums over the ranks; they are sent as floats. Collective over the ranks.
    TrainingSums summed(const TrainingSums& mine) {
        if (ranks_.size() == 1) return mine;
        std::array<float, 4> sums = {static_cast<float>(mine.places), static_cast<float>(mine.loss),
                                     static_cast<float>(mine.overlap), static_cast<float>(mine.agreement)};
        ranks_.all_reduce_sum(sums.data(), sums.size(), dist::Deadline::after_seconds(plan_.timeout_seconds));
        return {std::llround(sums[0]), sums[1], sums[2], sums[3]};
    }
    double sum_of(double mine) { return summed({0, mine, 0, 0}).loss; }

    Trainer& trainer_;
    const TrainingPlan& plan_;
    dist::Communicator& ranks_;
};

} // namespace

double learning_rate_at(const TrainingPlan& plan, int step) {
    constexpr double kLast = 0.1; // share of learning_rate
    if (step < plan.warmup_steps) return plan.learning_rate * (step + 1) / plan.warmup_steps;
    const double done = static_cast<double>(step - plan.warmup_steps) / std::max(1, plan.steps - plan.warmup_steps);
    return plan.learning_rate * (kLast + (1 - kLast) * (1 + std::cos(std::numbers::pi * done)) / 2);
}

std::vector<std::size_t> texts_of_step(const TrainingPlan& plan, std::size_t n_texts, int step) {
    const auto a_step = static_cast<std::size_t>(plan.texts_a_step);
    std::vector<std::size_t> texts, order(n_texts);
    std::size_t of_epoch = n_texts; // the epoch of `order`; none yet
    for (std::size_t i = 0; i < a_step; ++i) {
        const std::size_t at = static_cast<std::size_t>(step) * a_step + i, epoch = at / n_texts;
        if (i == 0 || epoch != of_epoch) {
            of_epoch = epoch;
            std::vector<std::pair<std::uint64_t, std::size_t>> keys;
            for (std::size_t text = 0; text < n_texts; ++text) {
                const std::uint64_t place[] = {epoch, text};
                keys.emplace_back(hash_bytes(place, sizeof place, plan.seed), text);
            }
            std::ranges::sort(keys);
            std::ranges::transform(keys, order.begin(), [](const auto& key) { return key.second; });
        }
        texts.push_back(order[at % n_texts]);
    }
    return texts;
}

const Evaluation* TrainingProgress::best() const {
    const auto found = std::ranges::max_element(evaluations, {}, &Evaluation::acceptance);
    return found == evaluations.end() ? nullptr : &*found;
}

int TrainingProgress::since_best() const {
    return evaluations.empty() ? 0 : static_cast<int>(&evaluations.back() - best());
}

TrainingEnd train(Trainer& trainer, const TrainingPlan& plan, const TrainingPhase& phase, dist::Communicator& ranks,
                  TrainingProgress& progress, const TrainingCallbacks& callbacks, const volatile int& stop_signal) {
    TrainingRun run(trainer, plan, ranks);
    double loss = 0;
    int steps = 0; // since the last evaluation
    const auto evaluate = [&] {
        Evaluation made = run.evaluate(phase.held_out);
        made.step = progress.step;
        made.training_loss = steps > 0 ? loss / steps : 0;
        loss = steps = 0;
        progress.evaluations.push_back(made);
        callbacks.on_evaluation(progress, progress.since_best() == 0);
    };
    if (progress.evaluations.empty()) evaluate();
    while (progress.step < phase.end) {
        if (progress.since_best() >= plan.patience) return TrainingEnd::converged;
        if (run.is_any(stop_signal != 0)) return TrainingEnd::interrupted;
        loss += run.step(phase.learned, progress.step++);
        ++steps;
        callbacks.on_step(progress);
        if (progress.step % plan.evaluate_every == 0 || progress.step == phase.end) evaluate();
    }
    return TrainingEnd::finished;
}

} // namespace entrodraft::spec
