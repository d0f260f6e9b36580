// Texts of chance: see synthetic.h.
#include "entrodraft/spec/synthetic.h"

#include "entrodraft/spec/philox.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

constexpr double kShape = 1.3, kScale = 3; // of the entropies' distribution
constexpr TokenId kSaid = 1, kWrong = 2;
constexpr int kQuantiles = 10'000; // that stand for the whole distribution

double logistic(double x) {
    return 1 / (1 + std::exp(-x));
}

double mean_acceptance(double shift, double slope, const std::vector<double>& root_entropies) {
    double sum = 0;
    for (const double root : root_entropies)
        sum += logistic(shift - slope * root);
    return sum / static_cast<double>(root_entropies.size());
}

// What is drawn for one text.
class Draws {
  public:
    Draws(const SyntheticOptions& options, double shift, std::uint64_t text)
        : options_(options), shift_(shift), entropies_(options.seed, text + 1, Purpose::draft_sample),
          luck_(options.seed, text + 1, Purpose::acceptance) {}

    // Of a place, or of a step of the chain behind it, from 1.
    double entropy(std::size_t place, std::size_t step = 0) const {
        return synthetic_entropy(entropies_.uniform(place, static_cast<std::uint32_t>(step)));
    }
    bool stands(std::size_t place, double entropy) const {
        double probability = options_.alpha;
        if (options_.alpha > 0 && options_.alpha < 1)
            probability = logistic(shift_ - options_.slope * std::sqrt(entropy));
        return luck_.uniform(place) < probability;
    }

  private:
    const SyntheticOptions& options_;
    double shift_;
    RandomStream entropies_, luck_;
};

void add(std::vector<float>& entropies, std::vector<float>& probabilities, double entropy) {
    entropies.push_back(static_cast<float>(entropy));
    probabilities.push_back(static_cast<float>(std::exp(-entropy)));
}

DraftRecord draft_of(const Draws& draws, const SyntheticOptions& options) {
    DraftRecord draft;
    const auto places = static_cast<std::size_t>(options.new_tokens);
    for (std::size_t place = 0; place < places; ++place) {
        const double entropy = draws.entropy(place);
        const bool stands = draws.stands(place, entropy);
        draft.token.push_back(stands ? kSaid : kWrong);
        draft.rank.push_back(stands ? 0 : 1);
        add(draft.entropy, draft.probability, entropy);
        if (stands) continue;
        // No draft goes on beyond the end of its text.
        const auto length = std::min(static_cast<std::size_t>(options.max_draft_tokens) - 1, places - 1 - place);
        draft.astray_length.push_back(static_cast<std::int32_t>(length));
        draft.astray_token.insert(draft.astray_token.end(), length, kWrong);
        for (std::size_t step = 1; step <= length; ++step)
            add(draft.astray_entropy, draft.astray_probability, draws.entropy(place, step));
    }
    return draft;
}

void check(const SyntheticOptions& options) {
    if (!(options.alpha >= 0 && options.alpha <= 1))
        throw std::invalid_argument("synthetic acceptance must be in [0, 1]");
    if (!(options.slope >= 0) || !std::isfinite(options.slope))
        throw std::invalid_argument("the slope of synthetic acceptance must be a number of at least 0");
    if (options.texts < 1 || options.new_tokens < 1 || options.max_draft_tokens < 1)
        throw std::invalid_argument("a synthetic recording has texts, tokens and drafts of at least 1");
}

} // namespace

std::vector<const TextRecord*> SyntheticRecording::pointers() const {
    std::vector<const TextRecord*> all;
    for (const TextRecord& text : texts)
        all.push_back(&text);
    return all;
}

double synthetic_entropy(double u) {
    return kScale * std::pow(-std::log1p(-u), 1 / kShape);
}

double synthetic_shift(double alpha, double slope) {
    std::vector<double> roots;
    for (int i = 0; i < kQuantiles; ++i)
        roots.push_back(std::sqrt(synthetic_entropy((i + 0.5) / kQuantiles)));
    double low = -50, high = 50 + 10 * slope; // the acceptance rises with the shift
    constexpr int kHalvings = 60;
    for (int i = 0; i < kHalvings; ++i) {
        const double middle = (low + high) / 2;
        (mean_acceptance(middle, slope, roots) < alpha ? low : high) = middle;
    }
    return (low + high) / 2;
}

SyntheticRecording make_synthetic(const SyntheticOptions& options) {
    check(options);
    SyntheticRecording recording;
    if (options.alpha > 0 && options.alpha < 1) recording.shift = synthetic_shift(options.alpha, options.slope);
    RecordingHead& head = recording.head;
    head.target = {"synthetic", "none", INT_MAX};
    head.drafts = {{"synthetic", "none", INT_MAX}};
    head.max_draft_tokens = options.max_draft_tokens;
    head.vocab_size = kWrong + 1;
    head.max_positions = INT_MAX;
    head.costs = {options.costs};
    for (int i = 0; i < options.texts; ++i) {
        const Draws draws(options, recording.shift, static_cast<std::uint64_t>(i));
        TextRecord& text = recording.texts.emplace_back();
        text.id = std::to_string(i);
        text.new_tokens = text.max_new_tokens = options.new_tokens;
        text.prompt = {kSaid};
        text.token.assign(static_cast<std::size_t>(options.new_tokens), kSaid);
        text.drafts.push_back(draft_of(draws, options));
    }
    return recording;
}

} // namespace entrodraft::spec
