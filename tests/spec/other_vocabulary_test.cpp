// Drafts of a model whose vocabulary is not the target's: texts and their distribution are still the target's.
#include "spec/draft/retokenized_drafts.h"

#include "tests/dist/manual_clock.h"
#include "tests/model/temporary_directory.h"
#include "tests/spec/exactness_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

namespace other_vocabulary_test {

using namespace entrodraft;
using spec::Acceptance;
using spec::OtherVocabulary;
using spec::Tokens;

constexpr auto kIntersection = OtherVocabulary::Use::intersection, kRetokenize = OtherVocabulary::Use::retokenize;
constexpr int kTexts = 10000;
constexpr int kShift = 77; // of the draft's ids
constexpr int kTokens = 512;

// The golden tokenizer with other ids and `n_tokens` tokens. The `lost` tokens have other texts.
model::Tokenizer other_tokenizer(const std::vector<TokenId>& lost, int n_tokens = kTokens) {
    std::ifstream file(golden_directory("llama-draft") / "tokenizer.json");
    nlohmann::json json = nlohmann::json::parse(file);
    const auto id_of = [](int id) { return (id + kShift) % kTokens; };
    nlohmann::json vocab = nlohmann::json::object();
    std::vector<std::string> lost_texts;
    for (const auto& [token, id] : json["model"]["vocab"].items()) {
        const bool is_cut_off = id_of(id.get<int>()) >= n_tokens;
        const bool is_lost = is_cut_off || std::ranges::find(lost, id.get<TokenId>()) != lost.end();
        if (is_lost) lost_texts.push_back(token);
        if (is_cut_off) continue;
        vocab[is_lost ? token + "\u0178" : token] = id_of(id.get<int>());
    }
    json["model"]["vocab"] = vocab;
    std::erase_if(json["model"]["merges"].get_ref<nlohmann::json::array_t&>(), [&](const nlohmann::json& merge) {
        const auto left = merge[0].get<std::string>(), right = merge[1].get<std::string>();
        return std::ranges::any_of(
            lost_texts, [&](const std::string& text) { return text == left || text == right || text == left + right; });
    });
    for (nlohmann::json& token : json["added_tokens"]) {
        const int id = token["id"].get<int>();
        if (std::ranges::find(lost, id) != lost.end())
            token["content"] = token["content"].get<std::string>() + "\u0178";
        token["id"] = id_of(id);
    }
    const TemporaryDirectory directory;
    directory.write("tokenizer.json", json.dump());
    return model::Tokenizer::open(directory.path());
}

// Rows of a draft that writes one of the first kVocab tokens, depending on the text's length and last token.
void fill_row(std::span<const TokenId> text, std::span<float> row) {
    std::ranges::fill(row, -30.0F);
    for (std::size_t token = 0; token < kVocab; ++token)
        row[token + kShift] = static_cast<float>((text.size() * 7 + static_cast<std::size_t>(text.back()) + token) % 3);
}

class OtherVocabularies : public testing::Test {
  protected:
    OtherVocabularies() : pair_(golden_directory("llama-draft"), golden_directory("llama-target")) {
        sampling_.temperature = 4; // makes first tokens about equally likely
        sampling_.seed = 5;
        probabilities_ = target_probabilities(pair_.target, sampling_, kLength);
    }

    void expect_the_target(const std::vector<TokenId>& lost, OtherVocabulary::Use use, Acceptance acceptance,
                           const char* rule);

    // The draft lacks `lost`, some of the first kVocab tokens.
    model::VocabularyMap map_without(const std::vector<TokenId>& lost) const {
        return {{pair_.tokenizer, kTokens, {}}, {other_tokenizer(lost), kTokens, {}}};
    }
    std::unique_ptr<spec::Drafter> drafter(const model::VocabularyMap& map, OtherVocabulary::Use use,
                                           const char* tree = nullptr, int context = 64) {
        const spec::DraftLimits limits = {static_cast<int>(kVocab), {}};
        if (use == kRetokenize) // its draft writes only these tokens
            return spec::make_retokenizing_drafter(spec::make_function_source("toy", kTokens, fill_row),
                                                   {&map, use, context}, {limits, clock_});
        spec::DrafterParts parts{{limits, clock_}};
        parts.models = {&pair_.draft.decoder};
        parts.vocabulary = {&map, use, context};
        if (tree) parts.tree = spec::parse_tree(tree);
        return spec::drafter_type("model").make(parts);
    }
    RunOptions options(Acceptance acceptance, const std::string& rule, int most = 4) const {
        RunOptions run;
        run.acceptance = acceptance;
        run.rule = rule_of(rule, 1, most);
        run.vocab_size = static_cast<int>(kVocab);
        run.costs = spec::Costs{0.1, {1, 1.1, 1.2, 1.3, 1.4, 1.5}, std::nullopt};
        return run;
    }

    static constexpr std::size_t kLength = 4;
    TestPair pair_;
    dist::ManualClock clock_;
    spec::SamplingOptions sampling_;
    std::map<Tokens, double> probabilities_;
};

// Drafts the first kVocab tokens without these, and counts.
void OtherVocabularies::expect_the_target(const std::vector<TokenId>& lost, OtherVocabulary::Use use,
                                          Acceptance acceptance, const char* rule) {
    const model::VocabularyMap map = map_without(lost);
    ASSERT_EQ(map.shared().size(), kTokens - lost.size());
    const auto made = drafter(map, use);
    const Sampled sampled = sample_texts(pair_, *made, options(acceptance, rule), sampling_, kTexts, kLength);
    const double z = chi_square_z(sampled.counts, probabilities_, kTexts);
    std::cout << (use == kIntersection ? "intersection" : "retokenize") << " without " << lost.size() << ", "
              << to_string(acceptance) << ", " << rule << ": z " << z << ", accepted "
              << sampled.stats.draft_acceptance_rate() << "\n";
    EXPECT_LT(z, kMaxZ);
    EXPECT_GT(sampled.stats.accepted, kTexts / 20);
}

TEST_F(OtherVocabularies, IntersectionFollowsTheTargetWhateverIsShared) {
    for (const std::vector<TokenId>& lost : {std::vector<TokenId>{}, {1}, {1, 2}}) {
        expect_the_target(lost, kIntersection, Acceptance::rejection, "expected-gain");
        expect_the_target(lost, kIntersection, Acceptance::block, "constant");
    }
    expect_the_target({1}, kIntersection, Acceptance::gumbel, "constant");
}

TEST_F(OtherVocabularies, RetokenizedTextFollowsTheTarget) {
    expect_the_target({}, kRetokenize, Acceptance::rejection, "expected-gain");
    expect_the_target({1}, kRetokenize, Acceptance::block, "constant");
    expect_the_target({1}, kRetokenize, Acceptance::gumbel, "expected-gain");
}

TEST_F(OtherVocabularies, TreesFollowTheTarget) {
    const model::VocabularyMap map = map_without({1});
    for (const char* shape : {"2,2", "expected-gain:3:2"}) {
        const auto made = drafter(map, kIntersection, shape);
        const Sampled sampled =
            sample_texts(pair_, *made, options(Acceptance::rejection, "expected-gain", 12), sampling_, kTexts, kLength);
        EXPECT_LT(chi_square_z(sampled.counts, probabilities_, kTexts), kMaxZ) << shape;
        EXPECT_GT(sampled.stats.accepted, kTexts / 20) << shape;
    }
}

TEST_F(OtherVocabularies, NothingIsDraftedWhereNoSharedTokenCanCome) {
    const model::VocabularyMap map = map_without({0, 1, 2});
    for (const char* tree : {static_cast<const char*>(nullptr), "2,2"}) {
        const auto made = drafter(map, kIntersection, tree);
        for (const Acceptance acceptance : {Acceptance::rejection, Acceptance::gumbel}) {
            const Sampled sampled =
                sample_texts(pair_, *made, options(acceptance, "expected-gain", 12), sampling_, 20, kLength);
            EXPECT_EQ(sampled.stats.drafted, 0);
            EXPECT_EQ(sampled.stats.new_tokens, 20 * static_cast<int>(kLength));
        }
    }
}

TEST_F(OtherVocabularies, TheDraftsLogitsMayBeWiderThanItsTokenizer) {
    const model::VocabularyMap map({pair_.tokenizer, kTokens, {}}, {other_tokenizer({}, 500), kTokens, {}});
    EXPECT_EQ(map.shared().size(), 500U);
    spec::GainModel gain({16, 0, spec::Costs{0, {1}}});
    for (const auto use : {kIntersection, kRetokenize})
        for (const double temperature : {0.0, 9.0}) { // at 9 any token may come
            spec::DrafterParts parts{{{kTokens, {}}, clock_}};
            parts.models = {&pair_.draft.decoder};
            parts.vocabulary = {&map, use, 64};
            const auto made = spec::drafter_type("model").make(parts);
            spec::Request request = request_of(kPrompt, 12);
            request.sampling.temperature = temperature;
            spec::StopRule rule(rule_of("constant", 10, 10), &gain);
            spec::Draft draft;
            for (std::uint64_t seed = 0; seed < 20; ++seed) {
                request.sampling.seed = seed;
                made->begin_sequence(0, request);
                made->propose({0, request.prompt, 10, &request, choice_of(request, Acceptance::gumbel), &rule, &draft});
                EXPECT_NE(draft.end, spec::DraftEnd::none);
                EXPECT_LE(draft.tokens.size(), 10U);
            }
        }
}

TEST_F(OtherVocabularies, ADraftEndsWithTheDraftsContext) {
    const model::VocabularyMap map = map_without({});
    spec::Request request = request_of(kPrompt, 12);
    request.ignore_eos = true;
    spec::GainModel gain({16, 0, spec::Costs{0, {1}}});
    for (const auto use : {kIntersection, kRetokenize})
        for (const char* tree : {static_cast<const char*>(nullptr), "1,1,1,1,1,1"}) {
            if (tree && use == kRetokenize) continue;
            const auto made = drafter(map, use, tree, 8);
            spec::StopRule rule(tree ? rule_of("expected-gain", 1, 10) : rule_of("constant", 1, 10), &gain);
            spec::Draft draft;
            made->begin_sequence(0, request);
            made->prefill(0, request.prompt);
            Tokens text = request.prompt;
            for (std::size_t longest : {4U, 2U, 0U}) { // fewer and fewer fit into the draft's 8 places
                made->propose({0, text, 10, &request, choice_of(request), &rule, &draft});
                EXPECT_LE(draft.tokens.size(), longest) << text.size();
                text.insert(text.end(), {1, 2});
            }
        }
}

} // namespace other_vocabulary_test
