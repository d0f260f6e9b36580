// The forward pass on one rank: against the golden figures, and bit for bit against itself however rows are grouped.
#include "model/files/tensor_values.h"
#include "model/gpu/device_extension.h"
#include "tests/model/tree_bits.h"

#include <array>
#include <numeric>
#include <random>
#include <stdexcept>
#include <tuple>

namespace decoder_test {

using namespace entrodraft;
using model::Mask;
using model::Row;
using model::TokenId;

std::vector<TokenId> prompt_of(const nlohmann::json& golden) {
    return golden.at("prompt").get<std::vector<TokenId>>();
}

std::span<const float> row_of(const std::vector<float>& logits, std::size_t row, std::size_t vocab = 512) {
    return std::span<const float>(logits).subspan(row * vocab, vocab);
}

// ---- against the goldens ----

void check_golden_logits(TestModel& model, const nlohmann::json& golden) {
    model.forget();
    const std::vector<float> logits = model.read(prompt_of(golden));
    for (const auto& expected : golden.at("logits")) {
        const auto row = row_of(logits, expected.at("position").get<std::size_t>());
        const double scale = expected.at("max_abs"), log_sum_exp = expected.at("logsumexp");
        const auto first = expected.at("first").get<std::vector<double>>();
        for (std::size_t i = 0; i < first.size(); ++i)
            EXPECT_NEAR(row[i], first[i], kRowBound * scale) << "token " << i;
        double sum = 0, largest = 0;
        for (const float value : row) {
            sum += std::exp(static_cast<double>(value) - log_sum_exp);
            largest = std::max(largest, std::fabs(static_cast<double>(value)));
        }
        EXPECT_NEAR(sum, 1.0, 2 * kRowBound * scale);
        EXPECT_NEAR(largest, scale, kRowBound * scale);
        EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), expected.at("argmax").get<std::ptrdiff_t>());
    }
}

void check_goldens(const std::string& name, const std::string& checkpoint, const TestModelOptions& options) {
    TestModel model(golden_directory(checkpoint), options);
    for (const auto& golden : golden_expectations(name)) {
        SCOPED_TRACE(checkpoint + ": " + golden.at("text").get<std::string>());
        check_golden_logits(model, golden);
        EXPECT_EQ(model.greedy(prompt_of(golden), 48), golden.at("greedy").get<std::vector<TokenId>>());
    }
}

TEST(Decoder, EqualsTheGoldenLogitsAndGreedyContinuationsWithEveryKernelTable) {
    for (const char* name : {"avx512", "avx2", "portable"}) {
        TestModelOptions options;
        options.decoder.kernels = model::kernels::kernels_named(name);
        if (options.decoder.kernels == nullptr) continue; // kernels_test says so
        SCOPED_TRACE(name);
        check_goldens("llama-target", "llama-target", options);
        check_goldens("llama-draft", "llama-draft", options);
    }
}

TEST(Decoder, EqualsTheGoldenFiguresWithSeveralThreads) {
    for (const int threads : {2, 3}) { // 3 threads do not divide the key heads
        TestModelOptions options;
        options.threads = threads;
        TestModel model(golden_directory("llama-target"), options);
        for (const auto& golden : golden_expectations("llama-target"))
            check_golden_logits(model, golden);
    }
}

TEST(Decoder, ReadsOneFileAndShardsToTheSameBits) {
    TestModel single(golden_directory("llama-target")), sharded(golden_directory("llama-target-sharded"));
    const std::vector<TokenId> tokens = varied_tokens(90, 512);
    EXPECT_TRUE(same_bits(single.read(tokens), sharded.read(tokens)));
}

// The largest difference of a row, relative to its largest logit.
double worst_difference(const std::vector<float>& got, const std::vector<float>& want) {
    double worst = 0;
    for (std::size_t row = 0; row < want.size() / 512; ++row)
        worst = std::max(worst, relative_difference(row_of(got, row), row_of(want, row)));
    return worst;
}

// 16-bit weights move every weight by up to 2^-9 (bfloat16) or 2^-12 (float16) of itself; over the three layers of the
// golden target the logits move by less than these shares of the largest.
TEST(Decoder, SixteenBitWeightsStayNearFloat32) {
    TestModel reference(golden_directory("llama-target"));
    const std::vector<TokenId> tokens = varied_tokens(60, 512);
    const std::vector<float> want = reference.read(tokens);
    for (const auto& [type, bound] :
         {std::pair{model::WeightType::bfloat16, 0.05}, {model::WeightType::float16, 0.006}}) {
        TestModelOptions options;
        options.decoder.weight_type = type;
        TestModel half(golden_directory("llama-target"), options);
        const double worst = worst_difference(half.read(tokens), want);
        EXPECT_LT(worst, bound) << to_string(type);
        EXPECT_GT(worst, bound / 50) << to_string(type) << ": were the weights rounded at all?";
        EXPECT_LT(half.decoder.weight_bytes(), reference.decoder.weight_bytes() * 6 / 10);
    }
}

// Keys and values alone, beside weights of float32.
TEST(Decoder, RoundedKeysAndValuesStayNearFloat32) {
    if (const std::string why = lacking_on_torch("a type of its own for keys and values"); !why.empty())
        GTEST_SKIP() << why;
    TestModel reference(golden_directory("llama-target"));
    const std::vector<TokenId> tokens = varied_tokens(200, 512);
    const std::vector<float> want = reference.read(tokens);
    for (const auto& [type, bound] : {std::pair{model::WeightType::bfloat16, 2e-2},
                                      {model::WeightType::float16, 2.5e-3},
                                      {model::WeightType::int8, 4e-2}}) {
        TestModelOptions options;
        options.decoder.kv_type = type;
        TestModel rounded(golden_directory("llama-target"), options);
        const double worst = worst_difference(rounded.read(tokens), want);
        EXPECT_LT(worst, bound) << to_string(type);
        EXPECT_GT(worst, bound / 50) << to_string(type) << ": were keys and values rounded at all?";
    }
}

TEST(Decoder, KeysAndValuesAreAsGoodAsTheWeightsUnlessATypeIsGiven) {
    const model::ModelConfig config = model::read_config(golden_directory("llama-target"));
    using model::WeightType;
    EXPECT_EQ(kv_type_of(config, WeightType::float32, {}), WeightType::float32);
    for (const WeightType weights : {WeightType::bfloat16, WeightType::float16, WeightType::int8, WeightType::int4})
        EXPECT_EQ(kv_type_of(config, weights, {}), WeightType::float16);
    EXPECT_EQ(kv_type_of(config, WeightType::float32, WeightType::int8), WeightType::int8);
    model::ModelConfig quantised = config;
    quantised.quantization.emplace();
    EXPECT_EQ(kv_type_of(quantised, WeightType::float32, {}), WeightType::float16);
}

// ---- bit for bit against itself ----

class DecoderBits : public testing::TestWithParam<std::tuple<const char*, int, model::WeightType>> {
  protected:
    void SetUp() override {
        const std::string why = lacking_on_torch("float32 activations beside 16-bit weights");
        if (std::get<2>(GetParam()) != model::WeightType::float32 && !why.empty()) GTEST_SKIP() << why;
    }
    TestModelOptions options() const {
        TestModelOptions options;
        options.threads = std::get<1>(GetParam());
        options.decoder.weight_type = std::get<2>(GetParam());
        constexpr model::WeightType kKvTypes[] = {model::WeightType::float16, model::WeightType::bfloat16,
                                                  model::WeightType::int8};
        if (options.decoder.weight_type != model::WeightType::float32)
            options.decoder.kv_type = kKvTypes[options.threads - 1];
        options.decoder.n_slots = 3;
        return options;
    }
    std::filesystem::path directory() const { return golden_directory(std::get<0>(GetParam())); }
};

INSTANTIATE_TEST_SUITE_P(All, DecoderBits,
                         testing::Combine(testing::Values("llama-target", "llama-draft"), testing::Values(1, 2, 3),
                                          testing::Values(model::WeightType::float32, model::WeightType::bfloat16)));

TEST_P(DecoderBits, DoNotDependOnTheNumberOfThreads) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModelOptions alone = options();
    alone.threads = 1;
    TestModel reference(directory(), alone), model(directory(), options());
    const std::vector<TokenId> tokens = varied_tokens(100, 512);
    EXPECT_TRUE(same_bits(model.read(tokens), reference.read(tokens)));
}

TEST_P(DecoderBits, OfARowDoNotDependOnTheRowsOfItsPass) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModel model(directory(), options());
    const std::vector<TokenId> tokens = varied_tokens(150, 512);
    const std::vector<float> one_by_one = model.read(tokens, 1);
    for (const int chunk : {2, 3, 5, 6, 7, 13, 14, 15, 16, 17, 29, 64, 127, 128}) {
        model.forget();
        EXPECT_TRUE(same_bits(model.read(tokens, chunk), one_by_one)) << "chunks of " << chunk;
    }
}

TEST_P(DecoderBits, AreThoseOfAFreshPassAfterTruncating) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModel model(directory(), options());
    const std::vector<TokenId> tokens = varied_tokens(70, 512), others = varied_tokens(70, 512, 1);
    const std::vector<float> fresh = model.read(tokens);
    for (const int kept : {0, 1, 15, 16, 17, 40, 69}) {
        model.forget();
        model.read(std::span(tokens).first(static_cast<std::size_t>(kept)));
        model.read(others, 11); // what was drafted and rejected
        model.decoder.cache().truncate(0, kept);
        const std::vector<float> again = model.read(std::span(tokens).subspan(static_cast<std::size_t>(kept)), 9);
        EXPECT_TRUE(same_bits(again, std::span(fresh).subspan(static_cast<std::size_t>(kept) * 512)))
            << "cut back to " << kept;
    }
}

TEST_P(DecoderBits, OfASequenceDoNotDependOnTheOtherSequencesOfItsPass) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModel model(directory(), options());
    const std::vector<TokenId> a = varied_tokens(40, 512, 1), b = varied_tokens(61, 512, 2),
                               c = varied_tokens(5, 512, 3);
    const std::vector<float> alone_a = model.read(a, 128, 0), alone_b = model.read(b, 128, 1),
                             alone_c = model.read(c, 128, 2);
    for (int slot = 0; slot < 3; ++slot)
        model.forget(slot);
    // Ragged: b has a head start of 24, the three then grow by unequal numbers of rows in two passes.
    model.read(std::span(b).first(24), 7, 1);
    std::vector<float> got_a, got_b, got_c;
    const std::array<std::array<std::size_t, 2>, 3> grow = {{{17, 23}, {30, 7}, {1, 4}}};
    for (std::size_t pass = 0; pass < 2; ++pass) {
        std::vector<Row> rows;
        auto add = [&](const std::vector<TokenId>& tokens, int slot) {
            const auto cached = static_cast<std::size_t>(model.decoder.cache().length(slot));
            const int base = static_cast<int>(rows.size());
            for (Row row :
                 model.chain(std::span(tokens).subspan(cached, grow[static_cast<std::size_t>(slot)][pass]), slot)) {
                if (row.parent >= 0) row.parent += base;
                rows.push_back(row);
            }
        };
        add(c, 2); // slots need not come in order
        add(a, 0);
        add(b, 1);
        const std::vector<float> logits = model.forward(rows, TestModel::all_of(rows.size()));
        for (std::size_t row = 0; row < rows.size(); ++row) {
            std::vector<float>& to = rows[row].slot == 0 ? got_a : rows[row].slot == 1 ? got_b : got_c;
            const auto from = row_of(logits, row);
            to.insert(to.end(), from.begin(), from.end());
        }
    }
    EXPECT_TRUE(same_bits(got_a, alone_a));
    EXPECT_TRUE(same_bits(got_b, std::span(alone_b).subspan(24 * 512)));
    EXPECT_TRUE(same_bits(got_c, alone_c));
}

TEST_P(DecoderBits, OfAChainByParentAreThoseOfACausalPass) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModel model(directory(), options());
    const std::vector<TokenId> tokens = varied_tokens(120, 512);
    const std::vector<float> causal = model.read(tokens);
    for (const std::size_t cached : {0U, 1U, 16U, 37U}) {
        model.forget();
        model.read(std::span(tokens).first(cached));
        const std::vector<Row> rows = model.chain(std::span(tokens).subspan(cached));
        const std::vector<float> by_parent = model.forward(rows, TestModel::all_of(rows.size()), Mask::by_parent);
        EXPECT_TRUE(same_bits(by_parent, std::span(causal).subspan(cached * 512))) << cached << " cached";
    }
}

TEST_P(DecoderBits, OfAForkAreThoseOfTheSequenceItWasForkedFrom) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModel model(directory(), options());
    const std::vector<TokenId> tokens = varied_tokens(50, 512), others = varied_tokens(20, 512, 4);
    const std::vector<float> whole = model.read(tokens);
    model.decoder.cache().truncate(0, 21);
    model.decoder.cache().fork(0, 2);
    model.read(others, 128, 0); // the first goes another way
    EXPECT_TRUE(same_bits(model.read(std::span(tokens).subspan(21), 128, 2), std::span(whole).subspan(21 * 512)));
}

// Texts in slots, continued in ragged passes of many, against the same texts read alone.
class ManySlots {
  public:
    ManySlots(const std::filesystem::path& directory, const TestModelOptions& options, unsigned seed)
        : generator_(seed), together_(directory, options), alone_(directory, same_type(options)), texts_(slots()) {
        for (int slot = 0; slot < 4; ++slot) {
            texts_[at(slot)] = varied_tokens(40 + 8 * slot, 512, slot);
            together_.read(texts_[at(slot)], 128, slot);
        }
    }

    void share_some() {
        for (int i = 0; i < 8; ++i) {
            const std::size_t from = at(random(6)), to = at(i == 0 ? random(kSlots) : 4 + random(kSlots - 4));
            const int size = static_cast<int>(texts_[from].size()), length = size - random(size / 2 + 1);
            try {
                cache().share(static_cast<int>(from), static_cast<int>(to), length);
            } catch (const std::logic_error&) {
                continue; // another slot reads what would go
            }
            texts_[to] = {texts_[from].begin(), texts_[from].begin() + length};
            shares_ += length >= model::KvCache::kBlock && from != to;
        }
    }

    // A pass of up to `most` rows, few of each slot.
    void continue_some(int most) {
        std::vector<int> order(slots());
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), generator_);
        std::vector<Row> rows;
        for (const int slot : order) {
            const int room =
                std::min(kLongest - static_cast<int>(texts_[at(slot)].size()), most - static_cast<int>(rows.size()));
            for (int i = std::min(random(12), room), first = static_cast<int>(rows.size()); i > 0; --i) {
                const int index = static_cast<int>(rows.size()), position = static_cast<int>(texts_[at(slot)].size());
                rows.push_back({random(512), slot, position, index > first ? index - 1 : -1});
                texts_[at(slot)].push_back(rows.back().token);
            }
        }
        if (rows.empty()) return;
        const std::vector<float> logits = together_.forward(rows, TestModel::all_of(rows.size()));
        for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
            while (end < rows.size() && rows[end].slot == rows[begin].slot)
                ++end;
            expect_same(std::span(logits).subspan(begin * 512, (end - begin) * 512), rows[begin].slot);
        }
        widest_ = std::max(widest_, rows.size());
    }

    void cut_some() {
        for (int slot = 0; slot < kSlots; ++slot) {
            if (random(6) != 0 && static_cast<int>(texts_[at(slot)].size()) < kLongest) continue;
            const int length = random(static_cast<int>(texts_[at(slot)].size()) + 1);
            try {
                cache().truncate(slot, length);
                texts_[at(slot)].resize(at(length));
            } catch (const std::logic_error&) { // it is read
            }
        }
    }

    int shares() const { return shares_; }
    std::size_t widest() const { return widest_; }

    static constexpr int kSlots = 16;

  private:
    static constexpr int kLongest = 96;

    static std::size_t at(int value) { return static_cast<std::size_t>(value); }
    static std::size_t slots() { return at(kSlots); }
    static TestModelOptions same_type(const TestModelOptions& options) {
        TestModelOptions alone;
        alone.decoder.weight_type = options.decoder.weight_type;
        alone.decoder.kv_type = options.decoder.kv_type;
        return alone;
    }
    model::KvCache& cache() { return together_.decoder.cache(); }
    int random(int n) { return std::uniform_int_distribution<int>(0, n - 1)(generator_); }

    void expect_same(std::span<const float> logits, int slot) {
        alone_.forget();
        const std::vector<float> whole = alone_.read(texts_[at(slot)]);
        EXPECT_TRUE(same_bits(logits, std::span(whole).last(logits.size())))
            << "slot " << slot << ", " << logits.size() / 512 << " rows up to " << texts_[at(slot)].size() << ", "
            << cache().prefix(slot).length << " of them in slot " << cache().prefix(slot).slot;
    }

    std::mt19937 generator_;
    TestModel together_, alone_;
    std::vector<std::vector<TokenId>> texts_;
    int shares_ = 0;
    std::size_t widest_ = 0;
};

TEST_P(DecoderBits, OfManySequencesInRaggedPassesSharingBeginningsAreThoseOfEachAlone) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModelOptions many = options();
    many.decoder.n_slots = ManySlots::kSlots;
    ManySlots slots(directory(), many, 7);
    for (const int most : {128, 16, 128, 5, 64, 32, 100, 128}) {
        slots.continue_some(most);
        slots.cut_some();
        slots.share_some();
    }
    EXPECT_GT(slots.shares(), 20);
    EXPECT_GT(slots.widest(), 60u);
}

// Draft-ahead: one text, and continuations that differ, all in one pass with the text's own next rows.
TEST_P(DecoderBits, OfContinuationsBesideTheTextThatTheyShareAreThoseOfEachAlone) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModel model(directory(), options());
    const std::vector<TokenId> text = varied_tokens(90, 512);
    const std::vector<float> alone = model.read(text, 1);
    for (const int shared : {32, 45, 63}) {
        const auto begin = static_cast<std::size_t>(shared);
        const auto own = std::span(text).subspan(begin + 3, 4);
        std::vector<TokenId> other(text.begin(), text.begin() + shared);
        other.insert(other.end(), {7, 300, 11});
        model.forget(0);
        const std::vector<float> alone_other = model.read(other, 1);
        model.forget(0);
        model.read(std::span(text).first(begin + 3));
        model.decoder.cache().share(0, 1, shared);
        model.decoder.cache().share(1, 2, shared);
        std::vector<Row> rows;
        const auto add = [&](std::span<const TokenId> tokens, int slot) {
            const int base = static_cast<int>(rows.size());
            for (Row row : model.chain(tokens, slot)) {
                if (row.parent >= 0) row.parent += base;
                rows.push_back(row);
            }
        };
        add(std::span(other).last(3), 1);
        add(own, 0);
        add(std::span(text).subspan(begin, 5), 2);
        for (const Mask mask : {Mask::causal, Mask::by_parent}) {
            const std::vector<float> logits = model.forward(rows, TestModel::all_of(rows.size()), mask);
            EXPECT_TRUE(same_bits(std::span(logits).first(3 * 512), std::span(alone_other).last(3 * 512)));
            EXPECT_TRUE(same_bits(std::span(logits).subspan(3 * 512, 4 * 512),
                                  std::span(alone).subspan((begin + 3) * 512, 4 * 512)));
            EXPECT_TRUE(same_bits(std::span(logits).subspan(7 * 512), std::span(alone).subspan(begin * 512, 5 * 512)));
            for (const int slot : {1, 2})
                model.decoder.cache().truncate(slot, shared);
            model.decoder.cache().truncate(0, shared + 3);
        }
        // The right one goes back into the text's slot.
        model.forward(rows, {});
        model.decoder.cache().share(2, 0, shared + 5);
        EXPECT_TRUE(same_bits(model.read(std::span(text).subspan(begin + 5, 6)),
                              std::span(alone).subspan((begin + 5) * 512, 6 * 512)));
        model.forget(1);
        model.forget(2);
    }
}

// ---- trees ----

// Two branches behind a prefix: rows 0-1-2 and 0-3-4-5, and a lone row 6 beside them.
struct Tree {
    std::vector<TokenId> prefix = varied_tokens(27, 512, 5);
    std::vector<TokenId> tokens = {11, 200, 37, 411, 98, 7, 300};
    std::vector<int> parents = {-1, 0, 1, 0, 3, 4, -1};

    std::vector<Row> rows() const {
        std::vector<Row> rows;
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            const int parent = parents[i];
            const int position =
                parent < 0 ? static_cast<int>(prefix.size()) : rows[static_cast<std::size_t>(parent)].position + 1;
            rows.push_back({tokens[i], 0, position, parent});
        }
        return rows;
    }
    std::vector<std::vector<int>> branches() const { return {{0, 1, 2}, {0, 3, 4, 5}, {6}}; }
};

TEST_P(DecoderBits, OfATreesBranchesAreThoseOfSeparateChains) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModel model(directory(), options());
    const Tree tree;
    model.read(tree.prefix);
    const std::vector<float> logits =
        model.forward(tree.rows(), TestModel::all_of(tree.tokens.size()), Mask::by_parent);
    for (const std::vector<int>& branch : tree.branches()) {
        std::vector<TokenId> text;
        for (const int row : branch)
            text.push_back(tree.tokens[static_cast<std::size_t>(row)]);
        model.decoder.cache().truncate(0, static_cast<int>(tree.prefix.size()));
        const std::vector<float> chain = model.read(text);
        for (std::size_t i = 0; i < branch.size(); ++i)
            EXPECT_TRUE(same_bits(row_of(logits, static_cast<std::size_t>(branch[i])), row_of(chain, i)));
    }
}

TEST_P(DecoderBits, AfterKeepingABranchAreThoseOfAFreshPassOverIt) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModel model(directory(), options());
    const Tree tree;
    const std::vector<TokenId> next = varied_tokens(9, 512, 6);
    for (const std::vector<int>& branch : tree.branches()) {
        std::vector<TokenId> text = tree.prefix;
        for (const int row : branch)
            text.push_back(tree.tokens[static_cast<std::size_t>(row)]);
        model.forget();
        model.read(text);
        const std::vector<float> fresh = model.read(next);
        model.forget();
        model.read(tree.prefix);
        model.forward(tree.rows(), {}, Mask::by_parent);
        model.decoder.cache().keep(0, static_cast<int>(tree.prefix.size()), branch);
        const std::vector<float> kept = model.read(next);
        for (std::size_t i = 0; i < next.size(); ++i)
            EXPECT_TRUE(same_bits(row_of(kept, i), row_of(fresh, i)));
    }
}

TEST_P(DecoderBits, OfATreeThatGrowsOverSeveralPassesAreThoseOfOnePass) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModel model(directory(), options());
    const Tree tree;
    model.read(tree.prefix);
    const std::vector<Row> rows = tree.rows();
    const std::vector<float> whole = model.forward(rows, TestModel::all_of(rows.size()), Mask::by_parent);
    for (const std::vector<std::size_t>& ends : {std::vector<std::size_t>{1, 4, 7}, {2, 3, 7}, {6, 7}}) {
        model.decoder.cache().truncate(0, static_cast<int>(tree.prefix.size()));
        for (std::size_t begin = 0; const std::size_t end : ends) {
            const std::vector<int> wanted = TestModel::all_of(end - begin);
            const model::PassResult result = model.decoder.forward({.rows = std::span(rows).subspan(begin, end - begin),
                                                                    .logit_rows = wanted,
                                                                    .hidden_layers = {},
                                                                    .mask = Mask::by_parent,
                                                                    .cached_nodes = std::span(rows).first(begin)});
            for (std::size_t i = begin; i < end; ++i)
                EXPECT_TRUE(same_bits(result.logits.subspan((i - begin) * result.logits_stride, 512), row_of(whole, i)))
                    << "row " << i << " of a pass over those from " << begin << " on";
            begin = end;
        }
    }
}

TEST_P(DecoderBits, OfATreeOfMoreNodesThanAPassAreThoseOfItsBranchesAlone) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModelOptions wide = options();
    wide.decoder.tree_positions = 400;
    TestModel model(directory(), wide);
    const Tree small;
    model.read(small.prefix);
    const int cached = static_cast<int>(small.prefix.size());
    const std::vector<Row> rows = random_tree(330, cached, 512);
    std::vector<float> last; // logits of the last pass's rows
    for (std::size_t begin = 0; begin < rows.size(); begin += 110) {
        const std::vector<int> wanted = TestModel::all_of(110);
        const model::PassResult result = model.decoder.forward({.rows = std::span(rows).subspan(begin, 110),
                                                                .logit_rows = wanted,
                                                                .hidden_layers = {},
                                                                .mask = Mask::by_parent,
                                                                .cached_nodes = std::span(rows).first(begin)});
        last.clear();
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const auto row = result.logits.subspan(i * result.logits_stride, 512);
            last.insert(last.end(), row.begin(), row.end());
        }
    }
    for (int node = 329; node >= 220; node -= 13) {
        std::vector<TokenId> branch;
        for (const int each : branch_to(rows, node))
            branch.push_back(rows[static_cast<std::size_t>(each)].token);
        model.decoder.cache().truncate(0, cached);
        const std::vector<float> alone = model.read(branch);
        EXPECT_TRUE(same_bits(row_of(last, static_cast<std::size_t>(node - 220)), row_of(alone, branch.size() - 1)))
            << "node " << node;
    }
}

TEST(DecoderContract, RefusesCachedNodesThatCannotBe) {
    TestModel model(golden_directory("llama-target"));
    model.read(std::vector<TokenId>{1, 2});
    const auto forward = [&](const std::vector<Row>& rows, const std::vector<Row>& cached, Mask mask) {
        model.decoder.forward(
            {.rows = rows, .logit_rows = {}, .hidden_layers = {}, .mask = mask, .cached_nodes = cached});
    };
    EXPECT_THROW(forward({{3, 0, 2, -1}}, {{2, 0, 1, -1}}, Mask::causal), std::invalid_argument);
    EXPECT_THROW(forward({{3, 0, 2, -1}}, std::vector<Row>(3, {2, 0, 1, -1}), Mask::by_parent), std::invalid_argument);
    EXPECT_THROW(forward({{3, 0, 2, 1}}, {{2, 0, 1, -1}}, Mask::by_parent), std::invalid_argument); // its own parent
    EXPECT_NO_THROW(forward({{3, 0, 2, 0}}, {{2, 0, 1, -1}}, Mask::by_parent));
}

// Of rows in blocks, which see one another: a tree of blocks gives each the logits of its branch alone, and the rows of
// a block those that they have under any later row.
TEST(DecoderBlocks, OfATreeHaveTheRowsOfTheirBranch) {
    TestModel model(golden_directory("llama-target"));
    const std::vector<TokenId> text = varied_tokens(9, 512);
    const std::vector<Row> blocks[] = {{{11, 0, 9, -1}, {12, 0, 10, 0}}, {{21, 0, 9, -1}, {22, 0, 10, 0}}};
    const auto logits_of = [&](const std::vector<Row>& rows, Mask mask, int block_rows) {
        model.decoder.cache().truncate(0, 0);
        model.read(text);
        std::vector<int> all;
        for (int i = 0; i < static_cast<int>(rows.size()); ++i)
            all.push_back(i);
        const model::PassResult result = model.decoder.forward(
            {.rows = rows, .logit_rows = all, .hidden_layers = {}, .mask = mask, .block_rows = block_rows});
        return std::vector<float>(result.logits.begin(), result.logits.end());
    };
    std::vector<float> alone;
    for (const auto& block : blocks) {
        const std::vector<float> own = logits_of(block, Mask::causal, 2);
        alone.insert(alone.end(), own.begin(), own.end());
        const std::vector<float> closed = logits_of(block, Mask::causal, 1);
        EXPECT_GT(relative_difference(own, closed), 1e-3) << "the first row sees the second";
    }
    const std::vector<Row> tree = {blocks[0][0], blocks[0][1], {21, 0, 9, -1}, {22, 0, 10, 2}};
    EXPECT_LT(relative_difference(logits_of(tree, Mask::by_parent, 2), alone), 1e-5);
    EXPECT_GT(relative_difference(logits_of(tree, Mask::causal, 2), alone), 1e-3);
    EXPECT_THROW(logits_of(tree, Mask::causal, 0), std::invalid_argument);
}

TEST_P(DecoderBits, AfterKeepingTheBeginningOfAChainAreThoseOfAFreshPass) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModel model(directory(), options());
    const std::vector<TokenId> tokens = varied_tokens(40, 512), others = varied_tokens(6, 512, 7);
    const std::vector<float> fresh = model.read(tokens);
    model.forget();
    model.read(std::span(tokens).first(30));
    model.read(others);
    const int path[] = {10, 11, 12, 13, 14}; // tokens 25..29 where the last 20 count as the pass
    model.decoder.cache().keep(
        0, 15, std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, path[0], path[1], path[2], path[3], path[4]});
    EXPECT_TRUE(same_bits(model.read(std::span(tokens).subspan(30)), std::span(fresh).subspan(30 * 512)));
}

TEST(DecoderWindows, AreCausalWhereAsLongAsTheTextAndForgetWhereShorter) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    const auto with_windows = [](int window) {
        TestModelOptions options;
        options.windows = {window, window, window};
        return options;
    };
    TestModel unlimited(golden_directory("llama-target")), as_long(golden_directory("llama-target"), with_windows(40)),
        shorter(golden_directory("llama-target"), with_windows(5));
    const std::vector<TokenId> tokens = varied_tokens(40, 512);
    const std::vector<float> causal = unlimited.read(tokens);
    EXPECT_TRUE(same_bits(as_long.read(tokens), causal));
    const std::vector<float> short_window = shorter.read(tokens);
    EXPECT_TRUE(same_bits(std::span(short_window).first(5 * 512), std::span(causal).first(5 * 512)));
    EXPECT_GT(relative_difference(row_of(short_window, 39), row_of(causal, 39)), 1e-3);
    for (const int rows : {1, 7}) {
        shorter.forget();
        EXPECT_TRUE(same_bits(shorter.read(tokens, rows), short_window)) << rows << " rows a pass";
    }
    // Three layers of a window of 5 reach back 12 positions: what is before them is forgotten.
    std::vector<TokenId> other = tokens;
    other[26] = (other[26] + 1) % 512;
    shorter.forget();
    const std::vector<float> after = shorter.read(other);
    EXPECT_TRUE(same_bits(row_of(after, 39), row_of(short_window, 39)));
    EXPECT_FALSE(same_bits(row_of(after, 38), row_of(short_window, 38)));
}

// ---- what else a pass returns and refuses ----

// The sums that the head keeps while it multiplies say what a separate look at the finished logits says.
TEST(Decoder, SummarisesLogitsAsASeparateLookDoes) {
    const std::vector<model::Row> rows = {{7, 0, 0, -1}, {19, 0, 1, 0}, {300, 0, 2, 1}};
    const std::vector<int> logit_rows = {0, 2};
    for (const char* name : {"avx512", "avx2", "portable"}) {
        const model::kernels::Kernels* table = model::kernels::kernels_named(name);
        if (!table) continue;
        for (const int threads : {1, 3}) {
            for (const int known : {512, 500, 37, 5}) {
                TestModelOptions options{.threads = threads};
                options.decoder.kernels = table;
                TestModel model(golden_directory("llama-target"), options);
                for (const auto wanted : {model::LogitSummary::max, model::LogitSummary::entropy}) {
                    model.decoder.cache().truncate(0, 0);
                    const model::PassResult result = model.decoder.forward({.rows = rows,
                                                                            .logit_rows = logit_rows,
                                                                            .hidden_layers = {},
                                                                            .mask = Mask::causal,
                                                                            .needs = wanted,
                                                                            .summary_vocab = known});
                    ASSERT_EQ(result.summaries.size(), 2u);
                    for (std::size_t i = 0; i < 2; ++i) {
                        const float* logits = result.logits.data() + i * result.logits_stride;
                        const model::LogitStats apart = table->logit_stats(logits, known, 0);
                        EXPECT_EQ(result.summaries[i].arg_max, apart.arg_max);
                        EXPECT_EQ(result.summaries[i].max, apart.max);
                        if (wanted == model::LogitSummary::max) continue;
                        EXPECT_NEAR(result.summaries[i].entropy_nats(), apart.entropy_nats(), 3e-6) << name << known;
                        EXPECT_NEAR(result.summaries[i].log_sum_exp(), apart.log_sum_exp(), 3e-6) << name << known;
                    }
                }
            }
        }
    }
}

TEST(Decoder, ReturnsHiddenStatesOfTheLayersAskedFor) {
    TestModel model(golden_directory("llama-target"));
    const std::vector<TokenId> tokens = varied_tokens(7, 512);
    const std::vector<Row> rows = model.chain(tokens);
    const int layers[] = {3, 0, 1};
    const model::PassResult result =
        model.decoder.forward({.rows = rows, .logit_rows = {}, .hidden_layers = layers, .mask = Mask::causal});
    const std::size_t width = 72, each = tokens.size() * width;
    ASSERT_EQ(result.hidden.size(), 3 * each);
    EXPECT_TRUE(result.logits.empty());
    const std::vector<float> hidden(result.hidden.begin(), result.hidden.end());

    const model::Checkpoint checkpoint = model::Checkpoint::open(golden_directory("llama-target"));
    std::vector<float> embedding(width);
    for (std::size_t r = 0; r < tokens.size(); ++r) {
        const std::int64_t begin = tokens[r] * 72;
        model::read_floats(checkpoint.tensor("model.embed_tokens.weight"), {begin, begin + 72}, embedding.data());
        EXPECT_TRUE(same_bits(std::span(hidden).subspan(each + r * width, width), embedding)) << "layer 0, row " << r;
    }
    // The last layer's states, normed and projected, are the logits.
    model.forget();
    const std::vector<float> logits = model.read(tokens);
    std::vector<float> norm(width), head(512 * width);
    model::read_floats(checkpoint.tensor("model.norm.weight"), {0, 72}, norm.data());
    model::read_floats(checkpoint.tensor("lm_head.weight"), {0, 512 * 72}, head.data());
    for (std::size_t r = 0; r < tokens.size(); ++r) {
        double squares = 0, logit = 0;
        for (std::size_t i = 0; i < width; ++i)
            squares += std::pow(static_cast<double>(hidden[r * width + i]), 2);
        for (std::size_t i = 0; i < width; ++i)
            logit += static_cast<double>(hidden[r * width + i]) / std::sqrt(squares / 72 + 1e-5) *
                     static_cast<double>(norm[i]) * static_cast<double>(head[100 * width + i]);
        EXPECT_NEAR(logits[r * 512 + 100], logit, 1e-4);
    }
    EXPECT_FALSE(same_bits(std::span(hidden).subspan(2 * each, each), std::span(hidden).first(each)));
}

TEST(Decoder, UsesAStoredHeadThoughTheConfigTiesIt) {
    TestModelOptions tied;
    tied.load = [](const model::Checkpoint& checkpoint, const model::ModelConfig& config,
                   const model::DecoderOptions& options, dist::Communicator& tp, model::ThreadTeam& team) {
        model::ModelConfig changed = config;
        changed.tied_embeddings = true;
        return load_for_tests(checkpoint, changed, options, tp, team);
    };
    TestModel model(golden_directory("llama-target"), tied), own(golden_directory("llama-target"));
    EXPECT_FALSE(model.decoder.config().tied_embeddings);
    const std::vector<TokenId> tokens = varied_tokens(7, 512);
    const std::vector<float> logits = model.read(tokens), expected = own.read(tokens);
    EXPECT_TRUE(same_bits(logits, expected));
}

// With a head of its own, with one that is the embedding, and with one that has a bias.
TEST(Decoder, GivesLogitsOfTheTokensThatADraftIsLeft) {
    for (const std::filesystem::path& directory :
         {golden_directory("llama-target"), source_directory() / "tests/model/families/gpt2/target",
          source_directory() / "tests/model/families/phi/target"}) {
        SCOPED_TRACE(directory);
        TestModelOptions picking;
        picking.load = [](const model::Checkpoint& checkpoint, const model::ModelConfig& config,
                          const model::DecoderOptions& options, dist::Communicator& tp, model::ThreadTeam& team) {
            model::ModelConfig changed = config;
            changed.output_tokens = {0, 1, 2, 3, 9, 10, 11, 40, 41, 77, 90};
            changed.picks_outputs = true;
            return model::load_cpu_decoder(checkpoint, changed, options, tp, team);
        };
        TestModel all(directory), some(directory, picking);
        const std::vector<TokenId> tokens = varied_tokens(7, 90);
        const std::vector<float> expected = all.read(tokens), logits = some.read(tokens);
        const std::vector<TokenId>& left = some.decoder.config().output_tokens;
        const auto vocab = static_cast<std::size_t>(all.config.vocab_size);
        ASSERT_EQ(logits.size(), left.size() * tokens.size());
        for (std::size_t row = 0; row < tokens.size(); ++row)
            for (std::size_t i = 0; i < left.size(); ++i)
                EXPECT_EQ(logits[row * left.size() + i], expected[row * vocab + static_cast<std::size_t>(left[i])])
                    << "row " << row << ", token " << left[i];
    }
}

TEST(Decoder, GivesLogitsOfTheRowsAskedForInTheirOrder) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestModel model(golden_directory("llama-target"));
    const std::vector<TokenId> tokens = varied_tokens(20, 512);
    const std::vector<float> all = model.read(tokens);
    model.forget();
    const int wanted[] = {19, 0, 7};
    const std::vector<float> some = model.forward(model.chain(tokens), wanted);
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(same_bits(row_of(some, i), row_of(all, static_cast<std::size_t>(wanted[i]))));
}

TEST(Decoder, RefusesRowsThatBreakTheContractAndChangesNothing) {
    TestModelOptions options;
    options.decoder.n_slots = 2;
    options.decoder.capacity = 32;
    TestModel model(golden_directory("llama-target"), options);
    const std::vector<TokenId> prefix = varied_tokens(20, 512);
    model.read(prefix);
    const std::vector<Row> good = {{5, 0, 20, -1}, {6, 0, 21, 0}};
    auto refused = [&](std::vector<Row> rows, const std::string& word, std::vector<int> logit_rows = {},
                       std::vector<int> hidden_layers = {}) {
        try {
            model.decoder.forward(
                {.rows = rows, .logit_rows = logit_rows, .hidden_layers = hidden_layers, .mask = Mask::causal});
            ADD_FAILURE() << "not refused: " << word;
        } catch (const std::invalid_argument& error) {
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
        }
        EXPECT_EQ(model.decoder.cache().length(0), 20);
        EXPECT_EQ(model.decoder.cache().length(1), 0);
    };
    refused({}, "1 to 128 rows");
    refused(std::vector<Row>(129, Row{1, 0, 20, -1}), "129");
    refused({{512, 0, 20, -1}}, "token id 512");
    refused({{-1, 0, 20, -1}}, "token id -1");
    refused({{5, 2, 20, -1}}, "slot 2");
    refused({{5, -1, 20, -1}}, "slot -1");
    refused({{5, 0, 256, -1}}, "position 256");
    refused({{5, 0, -1, -1}}, "position -1");
    refused({{5, 0, 20, 0}}, "parent");
    refused({{5, 0, 20, -1}, {5, 0, 21, 2}}, "parent");
    refused({{5, 0, 20, -1}, {5, 1, 0, 0}}, "parent");
    refused({{5, 0, 20, -1}, {5, 1, 0, -1}, {6, 0, 21, 0}}, "contiguous");
    refused(std::vector<Row>(13, Row{1, 0, 20, -1}), "32 positions");
    refused(good, "row 2", {2});
    refused(good, "row -1", {-1});
    refused(good, "more rows", {0, 1, 1});
    refused(good, "layer 4", {0}, {4});
    refused(good, "layer -1", {0}, {-1});

    const std::vector<float> after = model.forward(good, TestModel::all_of(2));
    model.forget();
    model.read(prefix);
    EXPECT_TRUE(same_bits(after, model.forward(good, TestModel::all_of(2)))) << "a refused pass left something behind";
}

TEST(Decoder, HoldsAsManyPositionsAsItsCapacitySaysAndNoMore) {
    TestModelOptions options;
    options.decoder.capacity = 48;
    TestModel model(golden_directory("llama-target"), options);
    model.read(varied_tokens(48, 512));
    EXPECT_EQ(model.decoder.cache().length(0), 48);
    EXPECT_THROW(model.read(std::vector<TokenId>{1}), std::invalid_argument);
    model.decoder.cache().truncate(0, 47);
    EXPECT_NO_THROW(model.read(std::vector<TokenId>{1}));
}

TEST(Decoder, CountsTheBytesAndOperationsOfAPass) {
    TestModel model(golden_directory("llama-target"));
    // Query, key and value of 6 + 2 + 2 heads of 32, output, gate, up and down, three layers, and the head.
    const double weights = 3 * (72.0 * 320 + 72 * 192 + 3 * 72 * 112) + 72 * 512;
    EXPECT_EQ(model.decoder.operations_per_row(), 2 * weights);
    EXPECT_GE(static_cast<double>(model.decoder.weight_bytes()), 4 * weights);
    EXPECT_LE(static_cast<double>(model.decoder.weight_bytes()), 4.4 * weights); // outputs padded to whole vectors
}

struct NoWork final : model::DeviceExtension {
    void prepare(const model::DeviceLogits&, dist::Deadline) override {}
    void copy_in(const model::DeviceLogits&) override {}
    void enqueue(const model::DeviceLogits&) override {}
};

TEST(Decoder, RefusesWorkOnAGpu) {
    TestModel model(golden_directory("llama-draft"));
    NoWork work;
    model::LogitNeeds needs;
    needs.extension = &work;
    EXPECT_THROW(model.decoder.forward({.rows = model.chain(std::vector<TokenId>{1}),
                                        .logit_rows = TestModel::all_of(1),
                                        .hidden_layers = {},
                                        .needs = needs}),
                 std::invalid_argument);
}

TEST(DecoderOverSameWeights, HasACacheOfItsOwnAndTheFirstLayers) {
    if (const std::string why = lacking_on_torch("decoders over the same weights"); !why.empty()) GTEST_SKIP() << why;
    TestModel model(golden_directory("llama-target"));
    const std::vector<TokenId> tokens = varied_tokens(50, 512);
    const auto hidden_after = [&](model::Decoder& decoder, int layers) {
        const std::vector<Row> rows = model.chain(tokens);
        decoder.cache().truncate(0, 0);
        const std::span<const float> hidden =
            decoder.forward({.rows = rows, .logit_rows = {}, .hidden_layers = std::span(&layers, 1)}).hidden;
        return std::vector<float>(hidden.begin(), hidden.end());
    };
    const auto whole = model.decoder.over_same_weights(model.config, {});
    const auto first = model.decoder.over_same_weights(model::first_layers(model.config, 1), {});
    EXPECT_EQ(hidden_after(*first, 1), hidden_after(*whole, 1));
    EXPECT_NE(hidden_after(*whole, 1), hidden_after(*whole, model.config.n_layers));
    EXPECT_EQ(model.decoder.cache().length(0), 0);
    EXPECT_EQ(first->cache().length(0), 50);
    EXPECT_EQ(whole->weight_bytes(), model.decoder.weight_bytes());
    EXPECT_LT(first->weight_bytes(), whole->weight_bytes());
    EXPECT_LT(first->operations_per_row(), whole->operations_per_row());
    whole->cache().truncate(0, 0);
    const std::vector<float> logits = model.read(tokens);
    const std::vector<Row> last = {{tokens[0], 0, 0, -1}};
    const model::PassResult again = whole->forward({.rows = last, .logit_rows = std::array{0}, .hidden_layers = {}});
    EXPECT_TRUE(same_bits(again.logits.first(512), std::span(logits).first(512)));
}

} // namespace decoder_test
