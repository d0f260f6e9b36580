// Encoder-decoder models in the engine, over ranks: greedy text is what transformers generates, and speculative text is
// plain text, for every drafter, rule and placement.
#include "model/families/read_config.h"
#include "tests/model/encoder_decoders.h"
#include "tests/spec/every_drafter.h"
#include "tests/spec/ranks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace encoder_decoders_of_engines_mpi {

using namespace entrodraft;
using spec::Acceptance;
using spec::Completion;
using spec::Request;

struct Case : EncoderDecoderPair {
    using EncoderDecoderPair::EncoderDecoderPair;

    // The golden texts as requests; each starts with the first tokens of its decoder's text.
    std::vector<Request> requests(bool gumbel) const {
        std::vector<Request> requests;
        for (const auto& [source, text] : golden.texts) {
            Request request = request_of(text.tokens, static_cast<int>(text.greedy.size()));
            request.source = source;
            request.processing.banned_tokens = banned_tokens(directory / "target");
            request.sequence_key = requests.size();
            if (gumbel) request.sampling = {.temperature = 0.8, .seed = 7 + requests.size()};
            requests.push_back(request);
        }
        return requests;
    }
};

class EncoderDecoderEngine : public testing::TestWithParam<bool> { // parameter: true for gumbel noise
  protected:
    static RunOptions run_options(int n_slots) {
        RunOptions run;
        run.n_slots = n_slots;
        run.acceptance = GetParam() ? Acceptance::gumbel : Acceptance::rejection;
        return run;
    }
    // Returns whether these ranks can hold the model.
    static bool fits(const Case& models, const Ranks& ranks) {
        const model::ModelConfig config = model::read_config(models.directory / "target");
        return !ranks.tp || ranks.tp->size() <= std::min(config.n_heads, config.encoder.n_heads);
    }
    static void expect_equal(const std::vector<Completion>& found, const std::vector<Completion>& plain,
                             const std::string& what) {
        EXPECT_EQ(found.size(), plain.size()) << what;
        for (std::size_t i = 0; i < std::min(found.size(), plain.size()); ++i)
            EXPECT_EQ(found[i].tokens, plain[i].tokens) << what << ", text " << i;
    }
};
INSTANTIATE_TEST_SUITE_P(Acceptance, EncoderDecoderEngine, testing::Bool());

TEST_P(EncoderDecoderEngine, PlainGreedyTextIsThatOfTransformersForEveryKind) {
    if (GetParam()) GTEST_SKIP() << "transformers has no such noise";
    for (const std::filesystem::path& directory : encoder_decoder_pairs()) {
        const Case models(directory.filename());
        SCOPED_TRACE(directory.filename());
        Ranks ranks;
        if (!fits(models, ranks)) continue;
        TestModelOptions options = ranks.options();
        options.decoder.n_slots = 2;
        TestPair pair(directory / "target", directory / "draft", options, ranks.replica.get());
        const std::vector<Completion> texts = pair.run(plainly(models.requests(false)), run_options(2));
        for (std::size_t i = 0; i < texts.size(); ++i)
            EXPECT_EQ(texts[i].tokens, models.golden.texts[i].text.greedy) << "text " << i;
    }
}

void check_every_drafter(const Case& models, dist::DraftPlacement placement, int n_slots, const RunOptions& run,
                         const std::vector<std::string>& rules) {
    Ranks ranks{placement};
    TestModelOptions options = ranks.options();
    options.decoder.n_slots = n_slots;
    TestPair pair(models.directory / "target", models.directory / "draft", options, ranks.replica.get(), placement);
    const std::vector<Request> requests = models.requests(run.acceptance == Acceptance::gumbel);
    const std::vector<Completion> plain = pair.run(plainly(requests), run);
    const std::vector<std::vector<TokenId>> known = {models.golden.texts[0].source, models.golden.texts[0].text.greedy};
    const spec::TokenTable table = table_of(pair.vocab_size(), known);
    EveryDrafter drafters({pair.limits(), pair.clock, &pair.draft.decoder, nullptr, table,
                           std::make_shared<const spec::LookupCorpus>(known.back(), pair.vocab_size())});
    std::int64_t of_model = 0;
    for (const std::string& name : drafters.names(placement == dist::DraftPlacement::dedicated && n_slots == 1)) {
        for (const std::string& rule : rules) {
            RunOptions ruled = run;
            ruled.rule = rule_of(rule, 3, 7);
            const auto drafter = drafters.make(name, rule_of("constant", 3, 7), n_slots);
            const std::vector<Completion> texts = pair.run(requests, ruled, drafter.get());
            EXPECT_EQ(texts.size(), plain.size());
            for (std::size_t i = 0; i < std::min(texts.size(), plain.size()); ++i) {
                EXPECT_EQ(texts[i].tokens, plain[i].tokens) << name << ", " << rule << ", text " << i;
                if (name == "model") of_model += texts[i].stats.accepted;
            }
        }
    }
    if (ranks.coordinates()) {
        EXPECT_GT(of_model, 0);
    }
}

TEST_P(EncoderDecoderEngine, SpeculativeTextIsPlainTextWithEveryDrafter) {
    for (const char* name : {"t5", "marian"}) {
        const Case models(name);
        SCOPED_TRACE(name);
        if (Ranks ranks; !fits(models, ranks)) continue;
        for (const int n_slots : {1, 3})
            check_every_drafter(models, dist::DraftPlacement::colocated, n_slots, run_options(n_slots),
                                {"constant", "static"});
    }
}

TEST_P(EncoderDecoderEngine, SpeculativeTextIsPlainTextUnderEveryRule) {
    const Case models("bart");
    Ranks ranks;
    if (!fits(models, ranks)) return;
    TestPair pair(models.directory / "target", models.directory / "draft", ranks.options(), ranks.replica.get());
    const std::vector<Request> requests = models.requests(GetParam());
    RunOptions run = run_options(1);
    const std::vector<Completion> plain = pair.run(plainly(requests), run);
    for (const std::string& rule : spec::stop_rule_names()) {
        run.rule = rule_of(rule);
        expect_equal(pair.run(requests, run), plain, rule);
    }
}

TEST_P(EncoderDecoderEngine, ADedicatedDrafterChangesNothing) {
    if (session_of_tests().world_size() == 1) GTEST_SKIP() << "needs a rank for the target beside the drafter's";
    check_every_drafter(Case("t5-untied"), dist::DraftPlacement::dedicated, 1, run_options(1), {"constant"});
}

TEST_P(EncoderDecoderEngine, ADraftThatIsShardedChangesNothing) {
    const Case models("mbart");
    for (const int n_slots : {1, 3}) {
        Ranks ranks;
        if (!fits(models, ranks)) return;
        TestModelOptions options = ranks.options();
        options.decoder.n_slots = n_slots;
        TestPair pair(models.directory / "target", models.directory / "draft", options, ranks.replica.get(),
                      dist::DraftPlacement::sharded);
        const auto drafter = spec::make_chain_drafter(
            std::make_unique<spec::ModelTexts>(*pair.sharded_draft, n_slots, pair.limits().vocab_size),
            {pair.limits(), pair.clock, n_slots});
        const std::vector<Request> requests = models.requests(GetParam());
        RunOptions run = run_options(n_slots);
        const std::vector<Completion> plain = pair.run(plainly(requests), run, drafter.get());
        run.rule = rule_of("constant", 3, 7);
        expect_equal(pair.run(requests, run, drafter.get()), plain, "sharded");
    }
}

} // namespace encoder_decoders_of_engines_mpi
