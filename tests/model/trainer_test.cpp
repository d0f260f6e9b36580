// Training on autograd over the layer walk: gradients against transformers' (make_gradients.py), losses against
// float64, and steps that go on from a state bit for bit. Skipped where the torch backend was not built.
#include "model/torch/trainer.h"

#include "model/families/read_config.h"
#include "tests/model/encoder_decoders.h"
#include "tests/model/temporary_directory.h"

#include <list>
namespace trainer_test {

using namespace entrodraft;
using model::TensorBytes;
using model::TokenId;
using model::torch::DistillLoss;
using model::torch::ScoredText;
using model::torch::Trainer;
using model::torch::TrainerOptions;
using model::torch::TrainingSums;

constexpr double kTop[] = {0.5, 0.25, 0.125}, kRest = 0.125;

// A target that make_gradients.py knows too.
ScoredText scored(std::vector<TokenId> tokens, int known) {
    ScoredText text;
    text.tokens = std::move(tokens);
    text.n_top = std::ssize(kTop);
    for (int place = 0; place < text.places(); ++place) {
        for (int i = 0; i < text.n_top; ++i) {
            text.top_tokens.push_back((place * 7 + 3 + i) % known);
            text.top_log_probs.push_back(static_cast<float>(std::log(kTop[i])));
        }
        text.rest_mass.push_back(kRest);
        text.rest_token.push_back((place * 7 + 3 + text.n_top + place % 5) % known);
        text.rest_log_prob.push_back(static_cast<float>(std::log(kRest / 2)));
    }
    return text;
}

std::vector<float> floats(const TensorBytes& tensor) {
    std::vector<float> numbers(tensor.bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
    return numbers;
}

// As in make_gradients.py.
double sign(std::uint64_t place, std::uint64_t which) {
    std::uint64_t x = (place * 2654435761U + which * 40503U) & 0xFFFFFFFFU;
    x ^= x >> 15U;
    x = (x * 2246822519U) & 0xFFFFFFFFU;
    x ^= x >> 13U;
    return (x & 1U) != 0 ? 1 : -1;
}

// The greatest distance of a tensor's gradient from the expected one, as a share of its norm. Gradients that are next
// to nothing beside the others', as those of the biases of keys, are measured by these.
double gradient_distance(const std::vector<TensorBytes>& gradients, const nlohmann::json& expected) {
    double largest = 0, distance = 0;
    for (const auto& [name, numbers] : expected.items())
        largest = std::max(largest, numbers.at(0).get<double>());
    for (const TensorBytes& gradient : gradients) {
        if (!expected.contains(gradient.name)) {
            ADD_FAILURE() << "no gradient of " << gradient.name << " is known";
            continue;
        }
        const auto& numbers = expected.at(gradient.name);
        const std::vector<float> found = floats(gradient);
        double square = 0;
        for (std::size_t which = 0; which < 4; ++which) {
            double product = 0;
            for (std::size_t i = 0; i < found.size(); ++i)
                product += found[i] * sign(i, which);
            square += std::pow(product - numbers.at(which + 1).get<double>(), 2) / 4;
        }
        const double of_tensor = std::sqrt(square) / std::max(numbers.at(0).get<double>(), largest * 1e-3);
        if (of_tensor > 1e-4) ADD_FAILURE() << gradient.name << ": " << of_tensor;
        distance = std::max(distance, of_tensor);
    }
    return distance;
}

class TrainerTest : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = model::torch::why_missing(); !why.empty()) GTEST_SKIP() << why;
    }
    std::unique_ptr<Trainer> load(const std::filesystem::path& directory, const TrainerOptions& options) {
        checkpoints_.push_back(model::Checkpoint::open(directory));
        return model::torch::load_trainer(checkpoints_.back(), model::read_config(directory), options, self_, {});
    }

    // Loss and gradients of a text beside those of gradients.json.
    void expect_gradients(const std::filesystem::path& directory, TrainerOptions options, const ScoredText& text,
                          const nlohmann::json& expected) {
        options.max_tokens = static_cast<int>(text.tokens.size());
        options.max_source = static_cast<int>(text.source.size());
        const auto trainer = load(directory, options);
        const ScoredText* texts[] = {&text};
        const TrainingSums sums = trainer->add_gradients(texts, 1);
        const double loss = expected.at("loss").get<double>();
        EXPECT_NEAR(sums.loss, loss, 1e-4 * loss);
        EXPECT_LE(gradient_distance(trainer->gradients(), expected.at("gradients")), 1e-4);
    }
    const nlohmann::json expectations_ =
        nlohmann::json::parse(std::ifstream(source_directory() / "tests/model/gradients.json"));

  private:
    std::list<model::Checkpoint> checkpoints_;
    dist::SelfComm self_;
};

TEST_F(TrainerTest, GradientsAreThoseOfTransformers) {
    int checked = 0;
    for (const FamilyGolden& golden : read_family_goldens(family_models_without(model::what_torch_lacks))) {
        if (golden.directory.parent_path().parent_path().filename() != "families") continue; // more seeds
        const std::string name =
            golden.directory.parent_path().filename().string() + "/" + golden.directory.filename().string();
        for (int which = 0; which <= static_cast<int>(DistillLoss::log_alpha); ++which) {
            TrainerOptions options;
            options.loss = static_cast<DistillLoss>(which);
            const std::string key = name + "/" + to_string(options.loss);
            if (!expectations_.contains(key)) continue;
            SCOPED_TRACE(key);
            const std::vector<TokenId>& tokens = golden.texts[0].tokens;
            expect_gradients(golden.directory, options, scored({tokens.begin(), tokens.begin() + 32}, golden.known),
                             expectations_[key]);
            ++checked;
        }
    }
    EXPECT_GE(checked, 70);
}

TEST_F(TrainerTest, GradientsOfEncodersAndTheirDecodersAreThoseOfTransformers) {
    for (const EncoderDecoderGolden& golden : read_encoder_decoders(models_of(encoder_decoder_pairs()))) {
        SCOPED_TRACE(golden.whole.name());
        const SourceText& first = golden.texts[0];
        ScoredText text = scored({first.text.tokens.begin(), first.text.tokens.begin() + 32}, golden.whole.known);
        text.source = first.source;
        expect_gradients(golden.whole.directory, {}, text, expectations_.at(golden.whole.name()));
    }
}

TEST_F(TrainerTest, ATextWithoutASourceIsRefusedByAnEncoder) {
    const std::filesystem::path directory = models_of(encoder_decoder_pairs()).front();
    TrainerOptions options;
    options.max_tokens = 8;
    const ScoredText text = scored(varied_tokens(8, 50), 50);
    const ScoredText* texts[] = {&text};
    EXPECT_THROW(load(directory, options)->measure(texts), std::invalid_argument);
}

// In float64, of the logits that a decoder computes.
double loss_in_float64(DistillLoss loss, std::span<const float> logits, const ScoredText& text, std::size_t place) {
    double sum = 0;
    for (const float logit : logits)
        sum += std::exp(static_cast<double>(logit));
    std::vector<double> p(std::begin(kTop), std::end(kTop)), q;
    p.push_back(kRest);
    double rest = sum;
    for (std::size_t i = 0; i + 1 < p.size(); ++i) {
        const auto token = static_cast<std::size_t>(text.top_tokens[place * (p.size() - 1) + i]);
        q.push_back(std::exp(static_cast<double>(logits[token])) / sum);
        rest -= std::exp(static_cast<double>(logits[token]));
    }
    q.push_back(rest / sum);
    double total = 0, alpha = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
        const double mean = (p[i] + q[i]) / 2;
        alpha += std::min(p[i], q[i]);
        if (loss == DistillLoss::forward_kl) total += p[i] * std::log(p[i] / q[i]);
        if (loss == DistillLoss::reverse_kl) total += q[i] * std::log(q[i] / p[i]);
        if (loss == DistillLoss::jsd) total += (p[i] * std::log(p[i] / mean) + q[i] * std::log(q[i] / mean)) / 2;
        if (loss == DistillLoss::tvd) total += std::fabs(p[i] - q[i]) / 2;
    }
    return loss == DistillLoss::log_alpha ? -std::log(alpha) : total;
}

TEST_F(TrainerTest, LossesAndOverlapAreThoseOfFloat64) {
    const std::filesystem::path directory = golden_directory("llama-target");
    TestModelOptions decoder;
    decoder.load = &model::load_cpu_decoder;
    TestModel model(directory, decoder);
    const auto width = static_cast<std::size_t>(model.config.vocab_size);
    const ScoredText text = scored(varied_tokens(40, model.config.vocab_size), model.config.vocab_size);
    const std::vector<float> logits = model.read(text.tokens);
    double overlap = 0, agreement = 0;
    const auto row = [&](int place) {
        return std::span(logits).subspan(static_cast<std::size_t>(place) * width, width);
    };
    for (int place = 0; place < text.places(); ++place) {
        double sum = 0;
        for (const float logit : row(place))
            sum += std::exp(static_cast<double>(logit));
        const auto q = [&](TokenId token) {
            return std::exp(static_cast<double>(row(place)[static_cast<std::size_t>(token)])) / sum;
        };
        const std::size_t at = static_cast<std::size_t>(place);
        for (std::size_t i = 0; i < 3; ++i)
            overlap += std::min(kTop[i], q(text.top_tokens[at * 3 + i]));
        overlap += kRest * std::min(1.0, q(text.rest_token[at]) / (kRest / 2));
        agreement += best_of(row(place), model.config.vocab_size) == text.top_tokens[at * 3] ? 1 : 0;
    }
    for (int which = 0; which <= static_cast<int>(DistillLoss::log_alpha); ++which) {
        TrainerOptions options;
        options.loss = static_cast<DistillLoss>(which);
        options.max_tokens = static_cast<int>(text.tokens.size());
        double expected = 0;
        for (int place = 0; place < text.places(); ++place)
            expected += loss_in_float64(options.loss, row(place), text, static_cast<std::size_t>(place));
        const ScoredText* texts[] = {&text};
        const TrainingSums sums = load(directory, options)->measure(texts);
        EXPECT_EQ(sums.places, text.places());
        EXPECT_NEAR(sums.loss, expected, 1e-5 * expected) << to_string(options.loss);
        EXPECT_NEAR(sums.overlap, overlap, 1e-5 * overlap);
        EXPECT_EQ(sums.agreement, agreement);
    }
}

// Several texts in a pass, and one after another; steps; and a state in between.
class SmallTraining {
  public:
    SmallTraining(std::unique_ptr<Trainer> trainer, int vocab) : trainer_(std::move(trainer)) {
        for (int i = 0; i < 6; ++i) {
            texts_.push_back(scored(varied_tokens(12 + 5 * i, vocab, i), vocab));
            texts_.back().n_prompt = 1 + i;
            ScoredText& text = texts_.back();
            const auto places = static_cast<std::size_t>(text.places());
            text.top_tokens.resize(places * 3);
            text.top_log_probs.resize(places * 3);
            for (std::vector<float>* each : {&text.rest_mass, &text.rest_log_prob})
                each->resize(places);
            text.rest_token.resize(places);
        }
    }
    Trainer& trainer() { return *trainer_; }
    std::vector<const ScoredText*> texts(std::size_t begin, std::size_t end) const {
        std::vector<const ScoredText*> some;
        for (std::size_t i = begin; i < end; ++i)
            some.push_back(&texts_[i]);
        return some;
    }
    void step(int number) {
        const std::size_t begin = static_cast<std::size_t>(number) % 3 * 2;
        trainer_->add_gradients(texts(begin, begin + 2), 1e-2);
        trainer_->step(1e-3);
    }

  private:
    std::unique_ptr<Trainer> trainer_;
    std::vector<ScoredText> texts_;
};

std::vector<std::byte> all_bytes(const std::vector<TensorBytes>& tensors) {
    std::vector<std::byte> bytes;
    for (const TensorBytes& tensor : tensors)
        bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    return bytes;
}

TrainerOptions small_options() {
    TrainerOptions options;
    options.max_texts = 6;
    options.max_tokens = 40;
    options.weight_decay = 0.1;
    return options;
}

TEST_F(TrainerTest, ATextsGradientsDoNotDependOnThoseBesideIt) {
    const std::filesystem::path directory = golden_directory("llama-target");
    const int vocab = model::read_config(directory).vocab_size;
    SmallTraining together(load(directory, small_options()), vocab), apart(load(directory, small_options()), vocab);
    together.trainer().add_gradients(together.texts(0, 6), 1);
    for (std::size_t i = 0; i < 6; ++i)
        apart.trainer().add_gradients(apart.texts(i, i + 1), 1);
    const std::vector<TensorBytes> want = apart.trainer().gradients(), got = together.trainer().gradients();
    for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_LE(relative_difference(floats(got[i]), floats(want[i])), 1e-4) << want[i].name;
}

TEST_F(TrainerTest, StepsLowerTheLossAndGoOnFromAStateBitForBit) {
    const std::filesystem::path directory = golden_directory("llama-target");
    const int vocab = model::read_config(directory).vocab_size;
    SmallTraining whole(load(directory, small_options()), vocab);
    const double before = whole.trainer().measure(whole.texts(0, 6)).loss;
    const TemporaryDirectory scratch;
    for (int number = 0; number < 20; ++number) {
        whole.step(number);
        if (number != 7) continue;
        const std::vector<TensorBytes> state = whole.trainer().state();
        std::string file = model::safetensors_beginning(state);
        for (const TensorBytes& tensor : state)
            file.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
        scratch.write("state", file);
    }
    EXPECT_LT(whole.trainer().measure(whole.texts(0, 6)).loss, 0.9 * before);
    SmallTraining resumed(load(directory, small_options()), vocab);
    resumed.trainer().restore(model::Checkpoint::open_file(scratch.path() / "state"));
    for (int number = 8; number < 20; ++number)
        resumed.step(number);
    EXPECT_EQ(all_bytes(resumed.trainer().state()), all_bytes(whole.trainer().state()));
}

} // namespace trainer_test
