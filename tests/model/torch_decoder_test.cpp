// The torch backend against the CPU's decoder, pass by pass: every family, every mask, several slots, and everything
// that the cache can do between passes. Run with the label torch; skipped where the backend was not built.
#include "tests/model/family_golden.h"
#include "tests/model/tree_bits.h"

#include <random>
#include <stdexcept>

namespace torch_decoder_test {

using namespace entrodraft;
using model::Mask;
using model::Row;
using model::TokenId;
using model::WeightType;

class TorchDecoder : public FamilyGoldenTest {
  protected:
    void SetUp() override {
        if (const std::string why = model::torch::why_missing(); !why.empty()) GTEST_SKIP() << why;
    }
};

INSTANTIATE_TEST_SUITE_P(Torch, TorchDecoder, testing::ValuesIn(family_models_without(model::what_torch_lacks)),
                         test_name);

constexpr int kSlots = 4;

TestModelOptions options_of(decltype(&model::load_cpu_decoder) load, WeightType type = WeightType::float32) {
    TestModelOptions options;
    options.load = load;
    options.decoder.weight_type = type;
    options.decoder.n_slots = kSlots;
    return options;
}

// The same passes on both, and the greatest distance of anything that comes out of them.
class SameWork {
  public:
    explicit SameWork(const FamilyGolden& golden)
        : expected_(golden.directory, options_of(&model::load_cpu_decoder)),
          model_(golden.directory, options_of(&load_on_torch)) {}

    const model::ModelConfig& config() const { return model_.config; }
    int length(int slot) { return model_.decoder.cache().length(slot); }
    template <typename Change> void change_caches(const Change& change) {
        for (TestModel* each : {&expected_, &model_}) {
            try {
                change(each->decoder.cache());
            } catch (const std::logic_error&) { // what another slot reads stays as it is
            }
        }
    }

    void compare(const model::Pass& pass) {
        const model::PassResult want = expected_.decoder.forward(pass), got = model_.decoder.forward(pass);
        const auto width = static_cast<std::size_t>(model_.decoder.local_vocab().size());
        for (std::size_t i = 0; i < pass.logit_rows.size(); ++i) {
            EXPECT_LE(relative_difference(got.logits.subspan(i * got.logits_stride, width),
                                          want.logits.subspan(i * want.logits_stride, width)),
                      kRowBound);
            EXPECT_NEAR(got.summaries[i].entropy_nats(), want.summaries[i].entropy_nats(), 1e-3);
            EXPECT_NEAR(got.summaries[i].max, want.summaries[i].max, 1e-3 * std::abs(want.summaries[i].max) + 1e-4);
        }
        ASSERT_EQ(got.hidden.size(), want.hidden.size());
        if (want.hidden.empty()) return;
        EXPECT_LE(relative_difference(got.hidden, want.hidden), kRowBound);
    }

  private:
    TestModel expected_, model_;
};

// Rows of some slots: chains, or trees whose rows follow random ones.
std::vector<Row> random_rows(SameWork& work, Mask mask, std::mt19937& random) {
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    std::vector<Row> rows;
    for (int slot = 0; slot < kSlots; ++slot) {
        const int begin = static_cast<int>(rows.size());
        const int room = work.config().max_positions - work.length(slot);
        const int count = std::min(below(2) == 0 ? 0 : 1 + below(9), room);
        for (int i = 0; i < count; ++i) {
            const int parent = mask == Mask::by_parent ? below(i + 1) - 1 : i - 1;
            const int position =
                parent < 0 ? work.length(slot) : rows[static_cast<std::size_t>(begin + parent)].position + 1;
            rows.push_back({below(work.config().vocab_size), slot, position, parent < 0 ? -1 : begin + parent});
        }
    }
    return rows;
}

TEST_P(TorchDecoder, PassesAndCachesAreTheCpus) {
    SameWork work(golden());
    std::mt19937 random(7);
    const std::vector<int> layers = {0, work.config().n_layers};
    int passes = 0, shared = 0, kept = 0;
    for (int step = 0; step < 60; ++step) {
        const Mask mask = step % 4 == 3 ? Mask::by_parent : Mask::causal;
        const std::vector<Row> rows = random_rows(work, mask, random);
        if (rows.empty()) continue;
        const std::vector<int> wanted = {static_cast<int>(rows.size()) - 1, 0};
        work.compare({.rows = rows,
                      .logit_rows = std::span(wanted).first(rows.size() > 1 ? 2 : 1),
                      .hidden_layers = layers,
                      .mask = mask,
                      .needs = model::LogitSummary::entropy,
                      .summary_vocab = golden().known});
        ++passes;
        const int from = static_cast<int>(random() % kSlots), to = static_cast<int>(random() % kSlots);
        const int length = work.length(from);
        const unsigned change = random() % 4;
        shared += change == 1 && from != to && length >= model::KvCache::kBlock ? 1 : 0;
        kept += change == 3 && length >= 4 ? 1 : 0;
        work.change_caches([&](model::KvCache& cache) {
            if (change == 0) cache.truncate(from, length / 2);
            if (change == 1) cache.share(from, to, length);
            if (change == 2) cache.fork(from, to);
            if (change == 3 && length >= 4) cache.keep(from, length - 4, std::vector<int>{1, 3});
        });
    }
    EXPECT_GT(passes, 30);
    EXPECT_GT(shared, 0);
    EXPECT_GT(kept, 0);
}

TEST_P(TorchDecoder, ATreeThatGrowsOverSeveralPassesIsTheCpus) {
    SameWork work(golden());
    const std::vector<Row> tree = random_tree(12, 0, work.config().vocab_size);
    for (std::size_t begin = 0; const std::size_t end : {3, 4, 9, 12}) {
        const std::vector<int> wanted = TestModel::all_of(end - begin);
        work.compare({.rows = std::span(tree).subspan(begin, end - begin),
                      .logit_rows = wanted,
                      .hidden_layers = {},
                      .mask = Mask::by_parent,
                      .needs = model::LogitSummary::entropy,
                      .summary_vocab = golden().known,
                      .cached_nodes = std::span(tree).first(begin)});
        begin = end;
    }
}

TEST_P(TorchDecoder, SixteenBitWeightsStayNearFloat32) {
    const std::vector<TokenId>& tokens = golden().texts[0].tokens;
    for (const auto& [type, bound] : {std::pair{WeightType::bfloat16, 0.06}, {WeightType::float16, 0.008}}) {
        TestModel reference(golden().directory), model(golden().directory, options_of(&load_on_torch, type));
        const std::vector<float> want = reference.read(tokens), got = model.read(tokens);
        const auto width = static_cast<std::size_t>(model.config.vocab_size);
        std::vector<double> of_rows;
        for (std::size_t at = 0; at < want.size(); at += width)
            of_rows.push_back(
                relative_difference(std::span(got).subspan(at, width), std::span(want).subspan(at, width)));
        const double distance = distance_of(of_rows, model.config);
        RecordProperty(to_string(type), std::to_string(distance));
        EXPECT_LE(distance, bound) << to_string(type);
        EXPECT_GT(distance, 0);
        EXPECT_DOUBLE_EQ(model.decoder.operations_per_row(), reference.decoder.operations_per_row());
        EXPECT_LT(model.decoder.weight_bytes(), reference.decoder.weight_bytes());
    }
}

TEST(TorchBackend, RefusesWhatItHasNot) {
    if (const std::string why = model::torch::why_missing(); !why.empty()) GTEST_SKIP() << why;
    EXPECT_THROW(TestModel(golden_directory("llama-target"), options_of(&load_on_torch, WeightType::int8)),
                 std::invalid_argument);
    EXPECT_EQ(model::torch::devices_of("cpu").count, 1);
    const model::torch::Devices unknown = model::torch::devices_of("abacus");
    EXPECT_EQ(unknown.count, 0);
    EXPECT_NE(unknown.why_none.find("libtorch_abacus.so"), std::string::npos) << unknown.why_none;
    TestModelOptions elsewhere;
    elsewhere.load = [](const model::Checkpoint& checkpoint, const model::ModelConfig& config,
                        const model::DecoderOptions& options, dist::Communicator& tp, model::ThreadTeam&) {
        return model::torch::load_decoder(checkpoint, config, options, tp, {"abacus:0", 1});
    };
    EXPECT_THROW(TestModel(golden_directory("llama-target"), elsewhere), std::invalid_argument);
}

} // namespace torch_decoder_test
