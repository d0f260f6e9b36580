// Speculative text is plain text, whoever drafts and whatever the stop rule: greedy, and by gumbel noise with filters
// and penalties, over ranks. The small scale always runs. The full scale takes long and is run by hand:
//     mpirun -n 2 test_spec_mpi --gtest_also_run_disabled_tests --gtest_filter='*FullScale.*'
#include "tests/spec/every_drafter.h"
#include "tests/spec/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <iostream>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace exactness_mpi {

using namespace entrodraft;
using spec::Acceptance;
using spec::Completion;
using spec::Request;

using Texts = std::vector<std::vector<TokenId>>;

// Penalties and banned tokens for two of three requests.
spec::LogitProcessing processing_of(std::size_t i) {
    spec::LogitProcessing processing;
    if (i % 3 == 1) {
        processing.repetition_penalty = 1.3;
        processing.presence_penalty = 0.4;
        processing.min_new_tokens = 10;
    }
    if (i % 3 == 2) {
        processing.no_repeat_ngram_size = 3;
        processing.frequency_penalty = 0.2;
        processing.logit_bias = {{17, 1.5F}, {300, -2.0F}};
        processing.banned_tokens = {5, 260};
    }
    return processing;
}

// Filters whose rows ranks send as arg maxima, as shortlists and as whole rows, in turn.
spec::SamplingOptions sampling_of(std::size_t i) {
    spec::SamplingOptions sampling;
    sampling.temperature = 1;
    sampling.seed = 1000 + i;
    switch (i % 5) {
    case 1:
        sampling.top_k = 20;
        break;
    case 2:
        sampling.top_p = 0.9;
        break;
    case 3:
        sampling.min_p = 0.05;
        break;
    case 4:
        sampling.top_k = 50;
        sampling.top_p = 0.8;
        break;
    default:
        break;
    }
    return sampling;
}

std::vector<Request> requests_of(const Texts& prompts, int new_tokens, bool gumbel) {
    std::vector<Request> requests;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        Request request = request_of(prompts[i], new_tokens);
        request.sequence_key = i;
        request.ignore_eos = i % 4 != 3;
        request.processing = processing_of(i);
        if (gumbel) request.sampling = sampling_of(i);
        requests.push_back(request);
    }
    return requests;
}

// The counts of a drafter over rules and requests.
struct Outcome {
    std::size_t texts = 0, equal = 0;
    spec::Stats stats;
};

struct Scale {
    Texts prompts;
    int new_tokens = 0;
    std::vector<std::string> rules = spec::stop_rule_names();
    bool rules_in_turn = false; // one rule for each request, in turn, in place of all
    int n_slots = 1;            // sequences decoded together
};

// A pair of models over the ranks, and its plain texts of a scale.
class Exactness {
  public:
    // `third`: another draft model besides the pair's.
    Exactness(TestPair& pair, const std::filesystem::path& third, const Scale& scale, bool gumbel)
        : pair_(pair), scale_(scale), gumbel_(gumbel), requests_(requests_of(scale.prompts, scale.new_tokens, gumbel)) {
        TestModelOptions third_options;
        third_options.max_positions = pair.target.config.max_positions;
        third_options.decoder.n_slots = scale.n_slots;
        if (!third.empty()) third_.emplace(third, third_options);
        std::vector<Request> plain = requests_;
        for (Request& request : plain)
            request.plain = true;
        RunOptions options;
        options.acceptance = gumbel ? Acceptance::gumbel : Acceptance::rejection;
        plain_ = pair.run(plain, options);
    }

    // Checks every drafter, or one, under every rule: texts must be plain ones. The coordinator prints a line for each.
    void check(const std::string& only = {}) {
        Texts known = scale_.prompts; // the corpus holds every second answer
        for (std::size_t i = 0; i < plain_.size(); i += 2)
            known.push_back(plain_[i].tokens);
        std::vector<TokenId> joined;
        for (const std::vector<TokenId>& text : known)
            joined.insert(joined.end(), text.begin(), text.end());
        const spec::TokenTable table = table_of(pair_.vocab_size(), known);
        EveryDrafter drafters({pair_.limits(), pair_.clock, &pair_.draft.decoder, third_ ? &third_->decoder : nullptr,
                               table, std::make_shared<const spec::LookupCorpus>(joined, pair_.vocab_size())});
        for (const std::string& name : drafters.names(pair_.layout.placement == dist::DraftPlacement::dedicated))
            if (only.empty() || name == only) check(drafters, name);
    }

  private:
    void check(EveryDrafter& drafters, const std::string& name) {
        Outcome outcome;
        const std::size_t n_rules = scale_.rules.size();
        for (std::size_t rule = 0; rule < n_rules; ++rule) {
            SCOPED_TRACE(name + ", " + scale_.rules[rule]);
            std::vector<std::size_t> served; // numbers of requests
            for (std::size_t i = 0; i < requests_.size(); ++i)
                if (!scale_.rules_in_turn || i % n_rules == rule) served.push_back(i);
            // Inner levels take the rules in turn too, from another one on.
            const auto drafter = drafters.make(name, rule_of(scale_.rules[(rule + 3) % n_rules], 3, 7), scale_.n_slots);
            compare(run(served, scale_.rules[rule], rule % 2 == 0, *drafter), served, outcome);
        }
        if (plain_.empty()) return; // this rank does not coordinate
        std::cout << (gumbel_ ? "gumbel " : "greedy ") << name << ": " << outcome.equal << " of " << outcome.texts
                  << " texts equal, " << outcome.stats.accepted << " of " << outcome.stats.drafted
                  << " drafted tokens accepted" << std::endl;
        EXPECT_EQ(outcome.equal, outcome.texts) << name;
        EXPECT_GT(outcome.stats.drafted, outcome.stats.rounds / 20) << name << " drafted next to nothing";
        if (name.ends_with("model ahead")) {
            EXPECT_GT(outcome.stats.ahead.hits, outcome.stats.ahead.rounds / 5) << "next to nothing was foreseen";
        }
        if (name != "random") {
            EXPECT_GT(outcome.stats.accepted, 0) << name;
        }
    }

    std::vector<Completion> run(const std::vector<std::size_t>& served, const std::string& rule, bool rejection,
                                spec::Drafter& drafter) {
        std::vector<Request> requests;
        for (const std::size_t i : served)
            requests.push_back(requests_[i]);
        RunOptions options;
        options.rule = rule_of(rule);
        options.n_slots = scale_.n_slots;
        options.acceptance = gumbel_ ? Acceptance::gumbel : rejection ? Acceptance::rejection : Acceptance::block;
        return pair_.run(requests, options, &drafter);
    }

    void compare(const std::vector<Completion>& found, const std::vector<std::size_t>& served, Outcome& outcome) const {
        if (plain_.empty()) return;
        EXPECT_EQ(found.size(), served.size());
        for (std::size_t i = 0; i < found.size(); ++i) {
            const Completion& plain = plain_[served[i]];
            const std::vector<TokenId>&got = found[i].tokens, &want = plain.tokens;
            const auto parts = std::mismatch(got.begin(), got.end(), want.begin(), want.end()).first - got.begin();
            EXPECT_TRUE(got == want) << "text " << served[i] << " parts from the plain one at token " << parts << " of "
                                     << want.size();
            EXPECT_EQ(found[i].finish_reason, plain.finish_reason) << "text " << served[i];
            ++outcome.texts;
            outcome.equal += got == want ? 1 : 0;
            outcome.stats += found[i].stats;
        }
    }

    TestPair& pair_;
    Scale scale_;
    bool gumbel_;
    std::vector<Request> requests_;
    std::optional<TestModel> third_; // on every rank, although only the coordinator drafts
    std::vector<Completion> plain_;  // empty on ranks that do not coordinate
};

// ---- always ----

class ExactnessOnRanks : public testing::TestWithParam<bool> {}; // parameter: true for gumbel noise

// The target's twin serves as a middle model. Plain texts are decoded one at a time.
void check_golden_pair(const Scale& scale, bool gumbel,
                       dist::DraftPlacement placement = dist::DraftPlacement::colocated) {
    Ranks ranks{placement};
    TestModelOptions options = ranks.options();
    options.decoder.n_slots = scale.n_slots;
    options.max_positions = 1024;
    TestPair pair(ranks.target, ranks.draft, options, ranks.replica.get(), placement);
    Exactness(pair, ranks.target, scale, gumbel).check();
}

Scale golden_scale(int n_slots) {
    Scale scale{{}, 24};
    scale.n_slots = n_slots;
    for (const std::size_t i : {0U, 1U, 2U, 3U, 4U, 3U})
        scale.prompts.push_back(golden_prompt(i));
    return scale;
}

TEST_P(ExactnessOnRanks, GoldenModelsSayThePlainTextWithEveryDrafterAndRule) {
    check_golden_pair(golden_scale(1), GetParam());
}

TEST_P(ExactnessOnRanks, SequencesOfABatchSayTheirPlainTextsWithEveryDrafterAndRule) {
    check_golden_pair(golden_scale(4), GetParam());
}

TEST_P(ExactnessOnRanks, ADedicatedDrafterChangesNothingWithEveryDrafterAndRule) {
    if (session_of_tests().world_size() == 1) GTEST_SKIP() << "needs a rank for the target beside the drafter's";
    check_golden_pair(golden_scale(1), GetParam(), dist::DraftPlacement::dedicated);
}

TEST_P(ExactnessOnRanks, ADraftThatIsCutOverTheRanksChangesNothing) {
    Ranks ranks;
    for (const int n_slots : {1, 3}) {
        TestModelOptions options = ranks.options();
        options.decoder.n_slots = n_slots;
        TestPair pair(ranks.target, ranks.draft, options, ranks.replica.get(), dist::DraftPlacement::sharded);
        const auto drafter = spec::make_chain_drafter(
            std::make_unique<spec::ModelTexts>(*pair.sharded_draft, n_slots, pair.limits().vocab_size),
            {pair.limits(), pair.clock, n_slots});
        const std::vector<Request> requests = requests_of(golden_scale(1).prompts, 24, GetParam());
        RunOptions run;
        run.n_slots = n_slots;
        run.acceptance = GetParam() ? Acceptance::gumbel : Acceptance::rejection;
        const std::vector<Completion> alone = pair.run(plainly(requests), run, drafter.get());
        std::int64_t accepted = 0;
        for (const std::string& rule : spec::stop_rule_names()) {
            run.rule = rule_of(rule);
            const std::vector<Completion> texts = pair.run(requests, run, drafter.get());
            EXPECT_EQ(texts.size(), alone.size());
            for (std::size_t i = 0; i < texts.size(); ++i) {
                EXPECT_EQ(texts[i].tokens, alone[i].tokens) << rule << ", text " << i;
                accepted += texts[i].stats.accepted;
            }
        }
        if (ranks.coordinates()) {
            EXPECT_GT(accepted, 0);
        }
    }
}

TEST_P(ExactnessOnRanks, TreesOfADraftThatIsShardedChangeNothing) {
    Ranks ranks;
    for (const int n_slots : {1, 3}) {
        TestModelOptions options = ranks.options();
        options.decoder.n_slots = n_slots;
        TestPair pair(ranks.target, ranks.draft, options, ranks.replica.get(), dist::DraftPlacement::sharded);
        const std::vector<Request> requests = requests_of(golden_scale(1).prompts, 24, GetParam());
        RunOptions run;
        run.n_slots = n_slots;
        run.acceptance = GetParam() ? Acceptance::gumbel : Acceptance::rejection;
        for (const char* shape : {"3,2,1", "eagle2:4:4", "expected-gain"}) {
            spec::DrafterParts parts{{pair.limits(), pair.clock, n_slots}};
            parts.models = {&*pair.sharded_draft};
            parts.tree = spec::parse_tree(shape);
            const auto drafter = spec::drafter_type("model").make(parts);
            run.rule = rule_of("expected-gain", 1, 12);
            run.costs = spec::Costs{0.1, std::vector<double>(13, 1.0), std::nullopt}; // drafting pays
            const std::vector<Completion> alone = pair.run(plainly(requests), run, drafter.get()),
                                          texts = pair.run(requests, run, drafter.get());
            std::int64_t drafted = 0, accepted = 0;
            EXPECT_EQ(texts.size(), alone.size());
            for (std::size_t i = 0; i < texts.size(); ++i) {
                EXPECT_EQ(texts[i].tokens, alone[i].tokens) << shape << ", text " << i;
                drafted += texts[i].stats.drafted;
                accepted += texts[i].stats.accepted;
            }
            if (ranks.coordinates()) {
                EXPECT_GT(accepted, 0) << shape;
                EXPECT_GT(drafted, accepted) << shape;
            }
        }
    }
}

// Drafts by the target's own first layer, by all of it, and by a model, whatever their caches keep of a text.
TEST_P(ExactnessOnRanks, ADraftWithAWindowChangesNothing) {
    if (const std::string why = lacking_on_torch("drafts with a window"); !why.empty()) GTEST_SKIP() << why;
    Ranks ranks;
    constexpr int kSlots = 2;
    TestModelOptions options = ranks.options();
    options.decoder.n_slots = kSlots;
    TestPair pair(ranks.target, ranks.draft, options, ranks.replica.get(), dist::DraftPlacement::sharded);
    std::vector<Request> requests = requests_of({varied_tokens(90, 500), varied_tokens(30, 500, 1)}, 40, GetParam());
    RunOptions run;
    run.acceptance = GetParam() ? Acceptance::gumbel : Acceptance::rejection;
    run.rule = constant_rule(7);
    const std::vector<Completion> alone = pair.run(plainly(requests), run);
    run.n_slots = kSlots;
    const model::ModelConfig& config = pair.target.config;
    std::int64_t accepted = 0, rejected = 0;
    const auto set_window = [](model::DecoderOptions& decoder, const spec::DraftWindow& window) {
        decoder.n_slots = kSlots;
        decoder.kept_positions = window.is_on() ? window.max_kept() : 0;
        decoder.retrieval = window.retrieval();
    };
    const auto check_draft = [&](model::Decoder& draft, const spec::DraftWindow& window) {
        pair.sharded_draft.emplace(draft, *pair.replica, 60);
        for (const char* shape : {"", "3,2,1", "eagle2:7:20"}) {
            if (*shape == 'e' && window.positions != 1) continue; // 120 nodes fit the smallest cache
            SCOPED_TRACE(fmt::format("{}, {} and {} {}", window.positions, window.sinks, window.chunks, shape));
            spec::DrafterParts parts{{pair.limits(), pair.clock, kSlots}};
            parts.models = {&*pair.sharded_draft};
            parts.window = window;
            if (*shape) parts.tree = spec::parse_tree(shape);
            const auto drafter = spec::drafter_type("model").make(parts);
            const std::vector<Completion> texts = pair.run(requests, run, drafter.get());
            EXPECT_EQ(texts.size(), alone.size());
            for (std::size_t i = 0; i < texts.size(); ++i) {
                EXPECT_EQ(texts[i].tokens, alone[i].tokens) << "text " << i;
                accepted += texts[i].stats.accepted;
                rejected += texts[i].stats.drafted - texts[i].stats.accepted;
            }
        }
    };
    const auto check = [&](model::Decoder& whole, const model::ModelConfig& drafting, const spec::DraftWindow& window) {
        model::DecoderOptions cache;
        set_window(cache, window);
        check_draft(*whole.over_same_weights(drafting, cache), window);
    };
    for (const int positions : {1, 4, 16, 64})
        for (const int sinks : {0, 4}) {
            check(pair.draft.decoder, pair.draft.config, {positions, sinks});
            check(pair.target.decoder, config, {positions, sinks});
        }
    check(pair.target.decoder, model::first_layers(config, 1), {});
    check(pair.target.decoder, model::first_layers(config, 1), {16, 4});
    for (const spec::DraftWindow& window :
         {spec::DraftWindow{1, 0, 2}, spec::DraftWindow{4, 4, 3}, spec::DraftWindow{16, 1, 4}}) {
        check(pair.target.decoder, config, window);
        check(pair.target.decoder, model::first_layers(config, 1), window);
        TestModelOptions own = options;
        set_window(own.decoder, window);
        TestModel draft(ranks.draft, own);
        check_draft(draft.decoder, window);
    }
    if (ranks.coordinates()) {
        EXPECT_GT(accepted, 100);
        EXPECT_GT(rejected, 100);
    }
}

std::filesystem::path smallest_of_demo() {
    const std::filesystem::path smallest = source_directory() / "model/demo/smallest";
    return std::filesystem::exists(smallest / "model.safetensors") ? smallest : std::filesystem::path();
}

Scale demo_scale(std::size_t n_prompts, int new_tokens) {
    Scale scale{{}, new_tokens};
    for (const auto& [id, prompt] : demo_prompts())
        if (scale.prompts.size() < n_prompts) scale.prompts.push_back(prompt);
    return scale;
}

void check_demo_pair(const Scale& scale, bool gumbel, const std::string& only = {}) {
    Ranks ranks;
    const std::filesystem::path demo = source_directory() / "model/demo";
    TestModelOptions options = ranks.options(600);
    options.decoder.n_slots = scale.n_slots;
    TestPair pair(demo / "target", demo / "draft", options, ranks.replica.get());
    EXPECT_FALSE(scale.prompts.empty());
    Exactness(pair, smallest_of_demo(), scale, gumbel).check(only);
}

TEST_P(ExactnessOnRanks, TheDemoPairSaysThePlainTextWithEveryDrafter) {
    Scale scale = demo_scale(3, 32);
    scale.rules = {"expected-gain", "moving-average"};
    check_demo_pair(scale, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Texts, ExactnessOnRanks, testing::Bool(),
                         [](const auto& gumbel) { return gumbel.param ? "Gumbel" : "Greedy"; });

// ---- by hand ----

class FullScale : public testing::TestWithParam<bool> {};

TEST_P(FullScale, DISABLED_GoldenModelsSay64TextsOf256TokensWithEveryDrafterAndRule) {
    Scale scale{{}, 256};
    for (int i = 0; i < 64; ++i)
        scale.prompts.push_back(varied_tokens(4 + static_cast<std::size_t>(i % 23), 512, i));
    check_golden_pair(scale, GetParam());
}

TEST_P(FullScale, DISABLED_GoldenModelsSayATextOf900TokensWithEveryDrafterAndRule) {
    check_golden_pair({{varied_tokens(20, 512)}, 900}, GetParam());
}

TEST_P(FullScale, DISABLED_TheDemoPairSays64TextsOf256TokensWithEveryDrafterAndTheRulesInTurn) {
    Scale scale = demo_scale(64, 256);
    scale.rules_in_turn = true;
    check_demo_pair(scale, GetParam());
}

TEST_P(FullScale, DISABLED_TheDemoPairSaysATextOf900TokensWithEveryDrafterAndRule) {
    check_demo_pair(demo_scale(1, 900), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Texts, FullScale, testing::Bool(),
                         [](const auto& gumbel) { return gumbel.param ? "Gumbel" : "Greedy"; });

// Each drafter apart, as all take hours.
class FullScaleOf : public testing::TestWithParam<std::tuple<bool, std::string>> {};

TEST_P(FullScaleOf, DISABLED_TheDemoPairSays64TextsOf256TokensWithEveryRule) {
    check_demo_pair(demo_scale(64, 256), std::get<bool>(GetParam()), std::get<std::string>(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Texts, FullScaleOf,
                         testing::Combine(testing::Bool(),
                                          testing::ValuesIn(EveryDrafter::names(true, !smallest_of_demo().empty()))),
                         [](const auto& test) {
                             std::string name = std::get<bool>(test.param) ? "Gumbel_" : "Greedy_";
                             for (const char letter : std::get<std::string>(test.param))
                                 name += letter == '<' ? "_over_" : std::isalnum(letter) ? std::string(1, letter) : "_";
                             return name;
                         });

} // namespace exactness_mpi
