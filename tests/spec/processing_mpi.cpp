// Penalties, bans and biases through the engine, over ranks. Greedy text is transformers' (processing_golden.json), or
// a reference's for penalties that transformers does not have; plainly and with every drafter.
#include "tests/spec/every_drafter.h"
#include "tests/spec/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

namespace processing_mpi {

using namespace entrodraft;
using spec::Completion;
using spec::Request;

struct Case {
    Request request;
    std::vector<TokenId> tokens; // of the text; all of it if `whole`
    bool whole = true;
    bool changed = true; // the processing changes the text
};

spec::LogitProcessing processing_of(const nlohmann::json& options) {
    spec::LogitProcessing processing;
    processing.repetition_penalty = options.value("repetition_penalty", 1.0);
    processing.no_repeat_ngram_size = options.value("no_repeat_ngram_size", 0);
    processing.min_new_tokens = options.value("min_new_tokens", 0);
    processing.logit_bias = options.value("logit_bias", std::vector<std::pair<TokenId, float>>());
    processing.banned_tokens = options.value("banned_tokens", std::vector<TokenId>());
    return processing;
}

std::vector<Case> golden_cases(const nlohmann::json& golden) {
    std::vector<Case> cases;
    for (const auto& one : golden.at("cases")) {
        Case made;
        made.request = request_of(one.at("prompt").get<std::vector<TokenId>>(), 40);
        made.request.processing = processing_of(one.at("options"));
        made.tokens = one.at("tokens").get<std::vector<TokenId>>();
        made.whole = one.at("whole");
        made.changed = one.at("changed");
        cases.push_back(made);
    }
    return cases;
}

// Runs the cases plainly and with several drafters and rules.
void check(TestPair& pair, const std::vector<Case>& cases, bool coordinates) {
    const spec::TokenTable table = table_of(pair.vocab_size(), std::vector<std::vector<TokenId>>{cases[0].tokens});
    EveryDrafter drafters({pair.limits(), pair.clock, &pair.draft.decoder, nullptr, table, nullptr});
    std::vector<Request> requests;
    for (const Case& one : cases)
        requests.push_back(one.request);
    const auto expect = [&](const std::string& name, const std::vector<Completion>& found) {
        EXPECT_EQ(found.size(), coordinates ? cases.size() : 0U);
        for (std::size_t i = 0; i < found.size(); ++i) {
            const std::size_t n = cases[i].whole ? found[i].tokens.size() : cases[i].tokens.size();
            EXPECT_EQ(std::vector<TokenId>(found[i].tokens.begin(),
                                           found[i].tokens.begin() +
                                               static_cast<std::ptrdiff_t>(std::min(n, found[i].tokens.size()))),
                      cases[i].tokens)
                << name << ", case " << i;
        }
    };
    for (const char* name : {"model", "ngram", "model<bigram", "ngram,model"})
        for (const char* kind : {"constant", "moving-average"}) {
            RunOptions options;
            options.rule = rule_of(kind);
            const auto drafter = drafters.make(name, rule_of(kind, 3));
            const auto found = pair.run(requests, options, drafter.get());
            expect(std::string(name) + ", " + kind, found);
            spec::Stats stats;
            for (const Completion& completion : found)
                stats += completion.stats;
            if (coordinates) {
                EXPECT_GT(stats.accepted, 0) << name;
            }
        }
    for (Request& request : requests)
        request.plain = true;
    expect("plain", pair.run(requests));
}

TEST(ProcessingOnRanks, GreedyTextIsTransformersPlainlyAndWhoeverDrafts) {
    Ranks ranks;
    const auto golden = nlohmann::json::parse(std::ifstream(source_directory() / "tests/spec/processing_golden.json"))
                            .at("models")
                            .at(ranks.target.filename().string());
    TestModelOptions options = ranks.options();
    options.eos_token_ids = {golden.at("eos").get<std::int64_t>()};
    TestPair pair(ranks.target, ranks.draft, options, ranks.replica.get());
    const std::vector<Case> cases = golden_cases(golden);
    EXPECT_EQ(cases.size(), 32U);
    EXPECT_GT(std::ranges::count(cases, true, &Case::changed), 15) << "processing changed next to nothing";
    check(pair, cases, ranks.coordinates());
}

// The definition of presence and frequency penalties: looks at all of the text for every token. Ends before a step
// whose two best are closer than rounding over ranks.
Case by_reference(TestModel& target, const std::vector<TokenId>& prompt, double presence, double frequency) {
    Case made;
    made.request = request_of(prompt, 40);
    made.request.ignore_eos = true;
    made.request.processing.presence_penalty = presence;
    made.request.processing.frequency_penalty = frequency;
    std::vector<TokenId> text = prompt;
    while (made.tokens.size() < 40) {
        target.forget();
        const std::vector<float> logits = target.read(text);
        std::vector<float> last(logits.end() - target.config.vocab_size, logits.end());
        for (std::size_t token = 0; token < last.size(); ++token) {
            const auto times = std::ranges::count(made.tokens, static_cast<TokenId>(token));
            if (times > 0) last[token] -= static_cast<float>(frequency * static_cast<double>(times) + presence);
        }
        const auto best = std::ranges::max_element(last);
        const float largest = *best;
        const auto token = static_cast<TokenId>(best - last.begin());
        *best = -1e30F;
        if (largest - *std::ranges::max_element(last) < 1e-3F * std::max(std::fabs(largest), 1.0F)) {
            made.whole = false;
            break;
        }
        made.tokens.push_back(token);
        text.push_back(token);
    }
    return made;
}

TEST(ProcessingOnRanks, PresenceAndFrequencyPenaltiesAreThoseOfAReference) {
    Ranks ranks;
    TestPair pair(ranks.target, ranks.draft, ranks.options(), ranks.replica.get());
    TestModel alone(ranks.target);
    std::vector<Case> cases;
    std::size_t compared = 0;
    for (const std::size_t prompt : {0U, 2U, 3U})
        for (const auto& [presence, frequency] : {std::pair{1.5, 0.0}, {0.0, 0.8}, {-0.5, 0.3}, {0.7, -0.4}}) {
            cases.push_back(by_reference(alone, golden_prompt(prompt), presence, frequency));
            compared += cases.back().tokens.size();
        }
    EXPECT_GT(compared, 300U);
    check(pair, cases, ranks.coordinates());
}

} // namespace processing_mpi
