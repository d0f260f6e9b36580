// Samples of one line: each is the line's text alone with its seed, and the target reads the prompt once.
#include "tests/spec/ranks.h"

#include <gtest/gtest.h>

namespace samples_mpi {

using namespace entrodraft;
using spec::Completion;
using spec::Request;

Request sample_of(int sample, std::uint64_t seed) {
    std::vector<TokenId> prompt;
    for (int i = 0; i < 60; ++i)
        prompt.push_back((7 * i) % 200 + 3);
    Request request = request_of(prompt, 20 + 3 * sample);
    request.sampling = {.temperature = 0.9, .seed = seed + static_cast<std::uint64_t>(sample)};
    request.num_samples = 4;
    request.sample = sample;
    request.id = "1";
    return request;
}

struct Served {
    std::map<int, std::vector<TokenId>> tokens; // by sample
    int most_shared = 0;                        // positions of a slot that lie in another slot
};

Served serve(TestPair& pair, const RunOptions& options, std::vector<Request> requests) {
    Served served;
    const auto drafter = pair.model_drafter(options.n_slots);
    const volatile int no_signal = 0;
    std::size_t next = 0;
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [&]() -> std::optional<Request> {
        return next < requests.size() ? std::optional(requests[next++]) : std::nullopt;
    };
    callbacks.on_round = [&](const Request&, const spec::RoundTrace&) {
        for (int slot = 0; slot < options.n_slots; ++slot)
            served.most_shared = std::max(served.most_shared, pair.target.decoder.cache().prefix(slot).length);
    };
    callbacks.on_complete = [&](const Request& request, Completion completion) {
        EXPECT_TRUE(served.tokens.emplace(request.sample, std::move(completion.tokens)).second);
    };
    pair.engine(options, drafter.get())->run(callbacks, no_signal);
    return served;
}

TEST(Samples, AreTheTextsOfTheirSeedsAndShareThePrompt) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    Ranks ranks;
    for (const int n_slots : {2, 3, 4}) {
        TestModelOptions options = ranks.options();
        options.decoder.n_slots = n_slots;
        TestPair pair(ranks.target, ranks.draft, options, ranks.replica.get());
        RunOptions run;
        run.acceptance = spec::Acceptance::gumbel;
        run.rule = constant_rule(3);
        run.n_slots = n_slots;
        for (const bool plain : {true, false}) {
            std::vector<Request> requests;
            std::map<int, std::vector<TokenId>> alone;
            for (int sample = 0; sample < 4; ++sample) {
                requests.push_back(sample_of(sample, 5));
                requests.back().plain = plain;
                Request one = requests.back();
                one.num_samples = 1;
                alone.merge(serve(pair, run, {one}).tokens);
            }
            const Served together = serve(pair, run, requests);
            EXPECT_EQ(together.tokens, alone) << n_slots << " slots, plain " << plain;
            if (ranks.coordinates()) {
                EXPECT_EQ(together.most_shared, 48) << "whole blocks of the 59 tokens before the last";
            }
        }
    }
}

// A sample begins when another's text has grown too long for its states to go back to the prompt's end.
TEST(Samples, OfATargetWithLinearAttentionReadThePromptWhereItsStatesAreGone) {
    if (const std::string why = lacking_on_torch("linear attention"); !why.empty()) GTEST_SKIP() << why;
    Ranks ranks;
    TestModelOptions options = ranks.options();
    options.decoder.n_slots = 2;
    const auto target = source_directory() / "tests/model/heads/qwen3-next-mtp";
    TestPair pair(target, target, options, ranks.replica.get());
    RunOptions run;
    run.acceptance = spec::Acceptance::gumbel;
    run.rule = constant_rule(3);
    run.n_slots = 2;
    std::vector<Request> requests;
    std::map<int, std::vector<TokenId>> alone;
    for (const int n_tokens : {220, 170, 30}) {
        const int sample = static_cast<int>(requests.size());
        std::vector<TokenId> prompt = varied_tokens(20, 109, 3);
        Request request = request_of(prompt, n_tokens);
        request.sampling = {.temperature = 1, .seed = static_cast<std::uint64_t>(sample)};
        request.ignore_eos = true;
        request.sample = sample;
        request.id = "1";
        alone.merge(serve(pair, run, {request}).tokens);
        request.num_samples = 3;
        requests.push_back(std::move(request));
    }
    EXPECT_EQ(serve(pair, run, requests).tokens, alone);
}

} // namespace samples_mpi
