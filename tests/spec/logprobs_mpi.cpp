// Log-probabilities of new tokens over ranks. For greedy text they are those of transformers (logprobs_golden.json).
// For any text they are the log-softmax of the target's logits, the same to the bit whoever drafts, and change no text.
#include "tests/spec/every_drafter.h"
#include "tests/spec/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

namespace logprobs_mpi {

using namespace entrodraft;
using spec::Completion;
using spec::Request;
using spec::TokenLogProb;
using spec::TokenLogProbs;

constexpr int kTop = 5;
constexpr float kClose = 1e-4F;
const char* const kDrafters[] = {"model", "ngram", "model tree 3,2,1", "model<bigram"};

std::vector<std::pair<TokenId, float>> flat(const std::vector<TokenLogProbs>& logprobs) {
    std::vector<std::pair<TokenId, float>> all;
    for (const TokenLogProbs& of_token : logprobs) {
        all.emplace_back(of_token.emitted.token, of_token.emitted.log_prob);
        for (const TokenLogProb& token : of_token.top)
            all.emplace_back(token.token, token.log_prob);
    }
    return all;
}

// Checks that draft, tree and batch change neither tokens nor a bit of log-probabilities. Returns the plain ones.
std::vector<Completion> run_all(TestPair& pair, const std::vector<Request>& requests, RunOptions options) {
    const std::vector<Completion> plain = pair.run(plainly(requests), options);
    const spec::TokenTable table = table_of(pair.vocab_size(), std::vector<std::vector<TokenId>>{golden_prompt(0)});
    EveryDrafter drafters({pair.limits(), pair.clock, &pair.draft.decoder, nullptr, table, nullptr});
    spec::Stats stats;
    for (const int n_slots : {1, 3})
        for (const char* name : kDrafters) {
            options.rule = constant_rule(4);
            options.n_slots = n_slots;
            const auto drafter = drafters.make(name, constant_rule(3), n_slots);
            const std::vector<Completion> drafted = pair.run(requests, options, drafter.get());
            EXPECT_EQ(drafted.size(), plain.size());
            for (std::size_t i = 0; i < drafted.size(); ++i) {
                EXPECT_EQ(drafted[i].tokens, plain[i].tokens) << name << ", text " << i;
                EXPECT_EQ(flat(drafted[i].logprobs), flat(plain[i].logprobs)) << name << ", text " << i;
                stats += drafted[i].stats;
            }
        }
    if (pair.layout.is_coordinator()) {
        EXPECT_GT(stats.accepted, 0);
    }
    return plain;
}

TEST(LogprobsOnRanks, OfGreedyTextAreThoseOfTransformers) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    Ranks ranks;
    const auto golden = nlohmann::json::parse(std::ifstream(source_directory() / "tests/spec/logprobs_golden.json"))
                            .at(ranks.target.filename().string());
    TestModelOptions model_options = ranks.options();
    model_options.decoder.n_slots = 3;
    TestPair pair(ranks.target, ranks.draft, model_options, ranks.replica.get());
    std::vector<Request> requests;
    for (const auto& text : golden) {
        requests.push_back(request_of(text.at("prompt").get<std::vector<TokenId>>(), 24));
        requests.back().ignore_eos = true;
        requests.back().logprobs = kTop;
    }
    const std::vector<Completion> found = run_all(pair, requests, {.acceptance = spec::Acceptance::gumbel});
    for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].tokens, golden[i].at("tokens").get<std::vector<TokenId>>());
        ASSERT_EQ(found[i].logprobs.size(), found[i].tokens.size());
        for (std::size_t t = 0; t < found[i].tokens.size(); ++t) {
            const TokenLogProbs& of_token = found[i].logprobs[t];
            EXPECT_EQ(of_token.emitted.token, found[i].tokens[t]);
            EXPECT_NEAR(of_token.emitted.log_prob, golden[i].at("logprobs")[t].get<float>(), kClose);
            ASSERT_EQ(of_token.top.size(), std::size_t{kTop});
            for (std::size_t k = 0; k < kTop; ++k)
                EXPECT_NEAR(of_token.top[k].log_prob, golden[i].at("top")[t][k][1].get<float>(), kClose);
            EXPECT_EQ(of_token.top[0].token, golden[i].at("top")[t][0][0].get<TokenId>());
        }
    }
}

// The log-softmax of each row after the prompt.
std::vector<std::vector<double>> reference(TestModel& target, std::vector<TokenId> text, std::size_t n_prompt) {
    target.forget();
    const std::vector<float> logits = target.read(text);
    const auto vocab = static_cast<std::size_t>(target.config.vocab_size);
    std::vector<std::vector<double>> rows;
    for (std::size_t row = n_prompt - 1; row + 1 < text.size(); ++row) {
        std::vector<double> values(logits.begin() + static_cast<std::ptrdiff_t>(row * vocab),
                                   logits.begin() + static_cast<std::ptrdiff_t>((row + 1) * vocab));
        double sum = 0;
        for (const double value : values)
            sum += std::exp(value);
        for (double& value : values)
            value -= std::log(sum);
        rows.push_back(values);
    }
    return rows;
}

struct Mode {
    spec::SamplingOptions sampling;
    double presence = 0;
    std::vector<TokenId> banned = {};
};

// The emitted tokens depend on temperature, filters, penalties and bans; their log-probabilities do not.
TEST(LogprobsOnRanks, AreBeforeProcessingAndChangeNoText) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    Ranks ranks;
    TestModelOptions model_options = ranks.options();
    model_options.decoder.n_slots = 3;
    TestPair pair(ranks.target, ranks.draft, model_options, ranks.replica.get());
    TestModel alone(ranks.target);
    const Mode modes[] = {{{.temperature = 0}, 1.5, {11}},
                          {{.temperature = 0.9, .seed = 3}, 0, {}},
                          {{.temperature = 1.2, .seed = 4}, 0.8, {262, 17}},
                          {{.temperature = 1.5, .top_k = 20, .seed = 5}, 0.8, {}},
                          {{.temperature = 1.1, .top_p = 0.8, .seed = 6}, 0, {17}},
                          {{.temperature = 1.1, .min_p = 0.05, .seed = 7}, 0, {}}};
    for (const Mode& mode : modes) {
        std::vector<Request> requests;
        for (const std::size_t prompt : {0U, 1U, 3U}) {
            requests.push_back(request_of(golden_prompt(prompt), 16));
            requests.back().ignore_eos = true;
            requests.back().sampling = mode.sampling;
            requests.back().sequence_key = prompt;
            requests.back().processing.presence_penalty = mode.presence;
            requests.back().processing.banned_tokens = mode.banned;
        }
        const RunOptions options = {.acceptance = spec::Acceptance::gumbel};
        const std::vector<Completion> without = pair.run(plainly(requests), options);
        for (Request& request : requests)
            request.logprobs = kTop;
        const std::vector<Completion> with = run_all(pair, requests, options);
        for (std::size_t i = 0; i < with.size(); ++i) {
            EXPECT_EQ(with[i].tokens, without[i].tokens);
            EXPECT_TRUE(without[i].logprobs.empty());
            std::vector<TokenId> text = requests[i].prompt;
            text.insert(text.end(), with[i].tokens.begin(), with[i].tokens.end());
            const auto rows = reference(alone, text, requests[i].prompt.size());
            ASSERT_EQ(with[i].logprobs.size(), rows.size());
            for (std::size_t t = 0; t < rows.size(); ++t) {
                for (const TokenLogProb& token : with[i].logprobs[t].top)
                    EXPECT_NEAR(token.log_prob, rows[t][static_cast<std::size_t>(token.token)], kClose);
                const TokenLogProb& emitted = with[i].logprobs[t].emitted;
                EXPECT_NEAR(emitted.log_prob, rows[t][static_cast<std::size_t>(emitted.token)], kClose);
                EXPECT_NEAR(with[i].logprobs[t].top[0].log_prob, *std::ranges::max_element(rows[t]), kClose);
            }
        }
    }
}

TEST(LogprobsOnRanks, GoWithEveryAcceptance) {
    Ranks ranks;
    TestPair pair(ranks.target, ranks.draft, ranks.options(), ranks.replica.get());
    TestModel alone(ranks.target);
    for (const spec::Acceptance acceptance :
         {spec::Acceptance::rejection, spec::Acceptance::block, spec::Acceptance::typical, spec::Acceptance::bild}) {
        Request request = request_of(golden_prompt(1), 20);
        request.ignore_eos = true;
        request.sampling = {.temperature = 0.8, .seed = 9};
        request.processing.repetition_penalty = 1.3;
        request.logprobs = 0;
        for (const Completion& completion : pair.run({request}, {.rule = constant_rule(4), .acceptance = acceptance})) {
            std::vector<TokenId> text = request.prompt;
            text.insert(text.end(), completion.tokens.begin(), completion.tokens.end());
            const auto rows = reference(alone, text, request.prompt.size());
            ASSERT_EQ(completion.logprobs.size(), 20U);
            for (std::size_t t = 0; t < rows.size(); ++t) {
                const TokenLogProb& emitted = completion.logprobs[t].emitted;
                EXPECT_EQ(emitted.token, completion.tokens[t]);
                EXPECT_TRUE(completion.logprobs[t].top.empty());
                EXPECT_NEAR(emitted.log_prob, rows[t][static_cast<std::size_t>(emitted.token)], kClose);
            }
        }
    }
}

} // namespace logprobs_mpi
