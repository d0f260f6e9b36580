// The whole engine on one rank: speculative text is plain text, texts end where they should, and sampled text has the
// target's distribution.
#include "model/files/tensor_values.h"
#include "tests/dist/manual_clock.h"
#include "tests/spec/engine_support.h"

#include "spec/verify/sampling.h"

#include <array>
#include <cmath>
#include <numeric>
#include <set>

namespace engine_test {

using namespace entrodraft;
using spec::Completion;
using spec::FinishReason;
using spec::Request;

const std::filesystem::path kTarget = golden_directory("llama-target");
const std::filesystem::path kDraft = golden_directory("llama-draft");

std::vector<TokenId> golden_prompt(std::size_t i) {
    return golden_expectations("llama-target").at(i).at("prompt").get<std::vector<TokenId>>();
}

RunOptions with_rule(const spec::StopRuleOptions& rule) {
    RunOptions options;
    options.rule = rule;
    return options;
}

// ---- times ----

// A step of the protocol takes a second here. Two texts run at a time; the third waits for a slot and then shares the
// steps with another.
TEST(Engine, TimeToFirstTokenRunsFromAdmissionToTheRoundThatGaveIt) {
    TestModelOptions two_slots;
    two_slots.decoder.n_slots = 2;
    TestPair pair(kTarget, kDraft, two_slots);
    dist::ManualClock clock;
    spec::EngineOptions options;
    options.n_slots = 2;
    options.vocab_size = pair.vocab_size();
    spec::Engine engine(options, spec::EngineParts{&pair.layout, pair.replica, &pair.target.decoder, nullptr,
                                                   &pair.tokenizer, &clock, &pair.target.config, 1, nullptr, nullptr});
    std::deque<Request> requests = {request_of(golden_prompt(0), 12), request_of(golden_prompt(1), 40),
                                    request_of(golden_prompt(2), 9)};
    std::map<std::string, double> admitted, first_round, total;
    std::map<std::string, spec::Stats> stats;
    spec::EngineCallbacks callbacks;
    callbacks.on_step = [&] {
        clock.advance(1);
        return true;
    };
    callbacks.next_request = [&]() -> std::optional<Request> {
        if (requests.empty()) return std::nullopt;
        Request request = std::move(requests.front());
        requests.pop_front();
        request.id = std::to_string(admitted.size());
        admitted[request.id] = clock.now_seconds();
        return request;
    };
    callbacks.on_round = [&](const Request& request, const spec::RoundTrace&) {
        first_round.emplace(request.id, clock.now_seconds());
    };
    callbacks.on_complete = [&](const Request& request, Completion completion) {
        stats[request.id] = completion.stats;
        total[request.id] = clock.now_seconds();
    };
    const volatile int no_signal = 0;
    engine.run(callbacks, no_signal);
    ASSERT_EQ(stats.size(), 3U);
    for (const auto& [id, text] : stats) {
        EXPECT_DOUBLE_EQ(text.seconds.first_token, first_round[id] - admitted[id]) << id;
        EXPECT_GE(text.seconds.first_token, 2) << id << ": its prompt and its first round at least";
        EXPECT_DOUBLE_EQ(text.seconds.total, total[id] - admitted[id]) << id;
        EXPECT_GT(text.seconds.total, text.seconds.first_token) << id;
    }
    EXPECT_GT(admitted["2"], 5) << "it waited for a slot, which is before its admission";
}

// ---- greedy: speculative equals plain ----

TEST(Engine, PlainGreedyTextIsTheGoldenOne) {
    TestPair pair(kTarget, kDraft);
    for (const auto& golden : golden_expectations("llama-target")) {
        const auto done = pair.run({request_of(golden.at("prompt").get<std::vector<TokenId>>(), 48, true)});
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].tokens, golden.at("greedy").get<std::vector<TokenId>>());
        EXPECT_EQ(done[0].text, pair.tokenizer.decode(done[0].tokens, true));
        EXPECT_EQ(done[0].stats.rounds, 48);
        EXPECT_EQ(done[0].stats.drafted, 0);
    }
}

// Both models in both roles, and a draft that is the target itself.
TEST(Engine, GreedySpeculativeTextIsPlainTextForEveryRuleSettingAndDraft) {
    for (const auto& [target, draft] : {std::pair{kTarget, kDraft}, {kDraft, kTarget}, {kTarget, kTarget}}) {
        TestPair pair(target, draft);
        const std::vector<Request> plain = {request_of(golden_prompt(3), 40, true), request_of({7}, 40, true)};
        std::vector<Request> drafted = plain;
        for (Request& request : drafted)
            request.plain = false;
        const std::vector<Completion> want = pair.run(plain);
        std::int64_t all_drafted = 0;
        for (const int max_tokens : {1, 5, 15, 127}) {
            for (const spec::StopRuleOptions& rule : rule_settings(max_tokens)) {
                for (const bool drop : {false, true}) {
                    SCOPED_TRACE(draft.filename().string() + " drafts for " + target.filename().string() + ", " +
                                 describe(rule) + (drop ? ", stop token dropped" : ""));
                    RunOptions options = with_rule(rule);
                    options.rule.drop_stop_token = drop && may_drop_stop_token(rule);
                    const std::vector<Completion> got = pair.run(drafted, options);
                    ASSERT_EQ(got.size(), 2U);
                    for (std::size_t i = 0; i < 2; ++i) {
                        ASSERT_EQ(got[i].tokens, want[i].tokens);
                        ASSERT_EQ(got[i].text, want[i].text);
                        all_drafted += got[i].stats.drafted;
                        if (draft == target) {
                            ASSERT_EQ(got[i].stats.accepted, got[i].stats.drafted);
                        }
                    }
                }
            }
        }
        EXPECT_GT(all_drafted, 5000);
    }
}

TEST(Engine, AdjustedEntropiesChangeNoTextAndOtherDrafts) {
    TestPair pair(kTarget, kDraft);
    for (const double temperature : {0.0, 0.5}) {
        Request plain = request_of(golden_prompt(3), 40, true);
        plain.sampling.temperature = temperature;
        plain.processing.repetition_penalty = 1.3;
        Request drafted = plain;
        drafted.plain = false;
        RunOptions options;
        options.acceptance = spec::Acceptance::gumbel;
        const std::vector<Completion> want = pair.run({plain}, options);
        for (const std::string& kind : spec::stop_rule_names()) {
            options.rule = rule_of(kind);
            const std::vector<Completion> raw = pair.run({drafted}, options);
            options.rule.entropy_of = spec::EntropyOf::adjusted;
            const std::vector<Completion> adjusted = pair.run({drafted}, options);
            EXPECT_EQ(adjusted[0].tokens, want[0].tokens) << kind;
            if (kind == "static" && temperature > 0) {
                EXPECT_NE(adjusted[0].stats.drafted, raw[0].stats.drafted) << "temperature 0.5 has less entropy";
            }
        }
    }
}

// The enumeration in verify_lengths_test.cpp shows the bias that is refused here.
TEST(Engine, DropsATokenForWhatItIsUnlessRejectionOrBlockSamples) {
    TestPair pair(kTarget, kDraft);
    Request plain = request_of(golden_prompt(3), 40, true);
    plain.sampling.temperature = 0.5;
    Request drafted = plain;
    drafted.plain = false;
    RunOptions options = with_rule({"confidence", {{"threshold", 0.05}}});
    options.acceptance = spec::Acceptance::gumbel;
    const std::vector<Completion> want = pair.run({plain}, options), kept = pair.run({drafted}, options);
    options.rule.drop_stop_token = true;
    const std::vector<Completion> got = pair.run({drafted}, options);
    EXPECT_EQ(got[0].tokens, want[0].tokens);
    EXPECT_LT(got[0].stats.drafted, kept[0].stats.drafted);
    EXPECT_GT(got[0].stats.drafted, 0);
    for (const spec::Acceptance acceptance : {spec::Acceptance::rejection, spec::Acceptance::block}) {
        options.acceptance = acceptance;
        EXPECT_ANY_THROW(pair.run({drafted}, options)) << to_string(acceptance);
        EXPECT_EQ(pair.run({request_of(golden_prompt(3), 40)}, options)[0].tokens,
                  pair.run({request_of(golden_prompt(3), 40, true)}, options)[0].tokens)
            << "greedy text has no bias";
    }
}

TEST(Engine, ADraftThatIsTheTargetIsAcceptedWholeInTheFewestRounds) {
    TestPair pair(kTarget, kTarget);
    const auto done = pair.run({request_of(golden_prompt(2), 48)}, with_rule(constant_rule(5)));
    EXPECT_EQ(done[0].tokens, golden_expectations("llama-target")[2].at("greedy").get<std::vector<TokenId>>());
    EXPECT_EQ(done[0].stats.rounds, 8); // 6 tokens each
    EXPECT_EQ(done[0].stats.accepted, done[0].stats.drafted);
    EXPECT_EQ(done[0].stats.drafted, 40);
    EXPECT_EQ(done[0].stats.draft_passes, 40);
}

TEST(Engine, ADraftThatIsAlwaysWrongCostsRoundsAndNothingElse) {
    TestPair pair(kTarget, kDraft);
    const std::vector<TokenId> prompt = golden_prompt(1);
    const auto want = golden_expectations("llama-target")[1].at("greedy").get<std::vector<TokenId>>();
    for (const int length : {1, 4, 127}) {
        ScriptedDrafter wrong(length, [&](std::size_t position) {
            const std::size_t at = position - prompt.size();
            return at < want.size() ? (want[at] + 1) % 512 : 3;
        });
        const auto done = pair.run({request_of(prompt, 48)}, with_rule(constant_rule(length, length)), &wrong);
        EXPECT_EQ(done[0].tokens, want);
        EXPECT_EQ(done[0].stats.accepted, 0);
        EXPECT_EQ(done[0].stats.rounds, 48);
    }
}

TEST(Engine, ADraftThatIsWrongAtEveryThirdTokenIsAcceptedUpToThere) {
    TestPair pair(kTarget, kDraft);
    const std::vector<TokenId> prompt = golden_prompt(1);
    const auto want = golden_expectations("llama-target")[1].at("greedy").get<std::vector<TokenId>>();
    ScriptedDrafter sloppy(10, [&](std::size_t position) {
        const std::size_t at = std::min(position - prompt.size(), want.size() - 1);
        return at % 3 == 2 ? (want[at] + 7) % 512 : want[at];
    });
    const auto done = pair.run({request_of(prompt, 48)}, {}, &sloppy);
    EXPECT_EQ(done[0].tokens, want);
    EXPECT_EQ(done[0].stats.accepted, 32); // two of every three
    EXPECT_EQ(done[0].stats.rounds, 16);
}

// Asks for the target's embeddings: the simplest hidden states that a test can compute itself.
class ListeningDrafter final : public spec::Drafter {
  public:
    ListeningDrafter(
        spec::Drafter& inner, std::function<void(const spec::DraftTask&)> on_draft,
        std::function<void(std::span<const TokenId>)> on_prefill = [](auto) {},
        std::function<void(int, std::span<const float>)> on_hidden = [](auto...) {})
        : Drafter({.name = "listening", .hidden_layers = {3, 0}}), inner_(inner), on_draft_(std::move(on_draft)),
          on_prefill_(std::move(on_prefill)), on_hidden_(std::move(on_hidden)) {}
    void begin_sequence(int slot, const spec::Request& request) override { inner_.begin_sequence(slot, request); }
    void prefill(int slot, std::span<const TokenId> prompt) override {
        on_prefill_(prompt);
        inner_.prefill(slot, prompt);
    }
    void observe(int, const spec::TargetOutcome& outcome) override {
        on_hidden_(outcome.first_position, outcome.states);
    }
    void propose(std::span<const spec::DraftTask> tasks) override {
        for (const spec::DraftTask& task : tasks)
            on_draft_(task);
        inner_.propose(tasks);
    }

  private:
    spec::Drafter& inner_;
    std::function<void(const spec::DraftTask&)> on_draft_;
    std::function<void(std::span<const TokenId>)> on_prefill_;
    std::function<void(int, std::span<const float>)> on_hidden_;
};

TEST(Engine, ADrafterGetsTheTargetsStatesOfTheLayersItAsksFor) {
    TestPair pair(kTarget, kDraft);
    const model::Checkpoint checkpoint = model::Checkpoint::open(kTarget);
    const int width = pair.target.config.hidden_size;
    std::vector<TokenId> read; // found by their embeddings, which are layer 0
    std::vector<std::vector<TokenId>> texts;
    const auto inner = pair.model_drafter();
    ListeningDrafter drafter(
        *inner,
        [&](const spec::DraftTask& task) {
            EXPECT_EQ(read.size() + 1, task.tokens.size()) << "all but the next token";
            texts.assign(1, {task.tokens.begin(), task.tokens.end()});
        },
        [](auto) {},
        [&](int first_position, std::span<const float> states) {
            if (first_position == 0) read.clear();
            ASSERT_EQ(static_cast<std::size_t>(first_position), read.size());
            const auto size = static_cast<std::size_t>(width);
            ASSERT_EQ(states.size() % (2 * size), 0U);
            for (std::size_t row = 0; row < states.size(); row += 2 * size) {
                for (TokenId token = 0; token < pair.target.config.vocab_size; ++token) {
                    std::vector<float> embedding(size);
                    const std::int64_t begin = std::int64_t{token} * width;
                    model::read_floats(checkpoint.tensor("model.embed_tokens.weight"), {begin, begin + width},
                                       embedding.data());
                    if (!std::ranges::equal(states.subspan(row + size, size), embedding)) continue;
                    read.push_back(token);
                    break;
                }
            }
        });
    RunOptions run;
    run.hidden_layers = drafter.facts().hidden_layers;
    const auto completions = pair.run({request_of(golden_prompt(0), 40)}, run, &drafter);
    std::vector<TokenId> whole = golden_prompt(0);
    whole.insert(whole.end(), completions[0].tokens.begin(), completions[0].tokens.end());
    ASSERT_GT(read.size(), golden_prompt(0).size() + 30);
    EXPECT_TRUE(std::equal(read.begin(), read.end(), whole.begin())) << "of accepted rows alone, in order";
}

TEST(Engine, ADrafterReadsThePromptPieceByPieceWithTheTarget) {
    TestPair pair(kTarget, kDraft);
    constexpr std::size_t kPiece = model::Decoder::kMaxRows, kLength = kPiece + 6;
    const std::vector<TokenId> prompt = varied_tokens(kLength, 512);
    std::vector<std::size_t> lengths;
    const auto inner = pair.model_drafter();
    ListeningDrafter drafter(
        *inner, [](const spec::DraftTask&) {},
        [&](std::span<const TokenId> read) {
            lengths.push_back(read.size());
            EXPECT_TRUE(std::ranges::equal(read, std::span(prompt).first(read.size())));
        });
    RunOptions run;
    run.hidden_layers = drafter.facts().hidden_layers;
    pair.run({request_of(prompt, 8)}, run, &drafter);
    EXPECT_EQ(lengths, (std::vector<std::size_t>{kPiece + 1, kLength}));
    lengths.clear();
    pair.run({request_of(prompt, 8, true)}, run, &drafter);
    EXPECT_TRUE(lengths.empty()) << "nothing drafts for a plain text";
}

TEST(Engine, LongTextsStayEqual) {
    TestModelOptions options;
    options.max_positions = 1024;
    TestPair pair(kTarget, kDraft, options);
    for (const std::size_t prompt : {0U, 5U}) {
        const auto plain = pair.run({request_of(golden_prompt(prompt), 600, true)});
        ASSERT_EQ(plain[0].tokens.size(), 600U);
        for (const std::string& kind : spec::stop_rule_names()) {
            auto drafting = with_rule(rule_of(kind));
            drafting.costs = spec::Costs{.t_draft = 0.1, .t_target = {1}}; // with measured costs drafting might not pay
            const auto drafted = pair.run({request_of(golden_prompt(prompt), 600)}, drafting);
            EXPECT_EQ(drafted[0].tokens, plain[0].tokens) << kind;
            EXPECT_GT(drafted[0].stats.accepted, 0) << kind;
        }
    }
}

// The passes that the first tokens of a text take do not depend on where the text or the context ends.
TEST(Engine, TreesAreAsWideAtTheEndOfATextAsWithinIt) {
    const std::vector<TokenId> prompt = golden_prompt(0);
    struct Drafted {
        std::vector<std::size_t> begins; // of rounds
        std::int64_t nodes = 0;
    };
    const auto draft = [&](int max_new_tokens, int max_positions, int tree_room) {
        TestModelOptions options;
        options.max_positions = max_positions;
        options.decoder.tree_room = tree_room;
        TestPair pair(kTarget, kDraft, options);
        const auto plain = pair.run({request_of(prompt, max_new_tokens, true)});
        spec::DrafterParts parts{{pair.limits(), pair.clock, 1}};
        parts.models = {&pair.draft.decoder};
        parts.tree = spec::parse_tree("4,3,2");
        const auto inner = spec::drafter_type("model").make(parts);
        Drafted drafted;
        ListeningDrafter drafter(*inner,
                                 [&](const spec::DraftTask& task) { drafted.begins.push_back(task.tokens.size()); });
        RunOptions run;
        run.hidden_layers = drafter.facts().hidden_layers;
        run.rule = spec::tree_rule(*parts.tree);
        const auto texts = pair.run({request_of(prompt, max_new_tokens)}, run, &drafter);
        EXPECT_EQ(texts[0].tokens, plain[0].tokens);
        drafted.nodes = texts[0].stats.drafted;
        return drafted;
    };
    const std::vector<std::size_t> whole = draft(60, 0, 127).begins;
    std::int64_t with_room = 0, without_room = 0;
    for (int tokens = 2; tokens <= 12; ++tokens) {
        const std::size_t end = prompt.size() + static_cast<std::size_t>(tokens);
        const std::vector<std::size_t> begins(whole.begin(), std::ranges::lower_bound(whole, end));
        std::int64_t nodes = 0;
        for (const std::size_t begin : begins)
            nodes += std::array{0, 4, 4 + 12, 4 + 12 + 24}[std::min<std::size_t>(end - begin - 1, 3)];
        for (const Drafted& drafted : {draft(tokens, 0, 127), draft(60, static_cast<int>(end), 127)}) {
            EXPECT_EQ(drafted.begins, begins) << tokens;
            EXPECT_EQ(drafted.nodes, nodes) << tokens;
        }
        without_room += draft(60, static_cast<int>(end), 0).nodes;
        with_room += nodes;
    }
    EXPECT_LT(without_room, with_room) << "a cache that ends with the context has no room for them";
}

TEST(Engine, ARowOfABatchThatCostsNothingIsDraftedOnce) {
    TestModelOptions three_slots;
    three_slots.decoder.n_slots = 3;
    TestPair pair(kTarget, kDraft, three_slots);
    RunOptions run = with_rule(rule_of("expected-gain"));
    run.n_slots = 3;
    run.costs = spec::Costs{.t_draft = 0.001, .t_target = {1, 1, 1, 1, 50}}; // a fourth row next to three is free
    std::vector<spec::Request> requests;
    for (const std::size_t prompt : {0U, 1U, 2U})
        requests.push_back(request_of(golden_prompt(prompt), 60));
    std::int64_t drafted = 0, most_rounds = 0;
    for (const auto& result : pair.run(requests, run)) {
        drafted += result.stats.drafted;
        most_rounds = std::max(most_rounds, result.stats.rounds);
    }
    EXPECT_GT(drafted, 10);
    EXPECT_LT(drafted, 3 * most_rounds / 2) << "one a round, two once a text is over";
}

TEST(Engine, SixteenBitWeightsKeepTheEquality) {
    for (const model::WeightType type : {model::WeightType::bfloat16, model::WeightType::float16}) {
        TestModelOptions options;
        options.decoder.weight_type = type;
        options.threads = 2;
        TestPair pair(kTarget, kDraft, options);
        const auto plain = pair.run({request_of(golden_prompt(4), 100, true)});
        const auto drafted = pair.run({request_of(golden_prompt(4), 100)}, with_rule(constant_rule(5)));
        EXPECT_EQ(drafted[0].tokens, plain[0].tokens);
        EXPECT_GT(drafted[0].stats.drafted, 50);
    }
}

// ---- ends ----

TEST(Engine, EndsExactlyWhereTheContextIsFull) {
    TestPair pair(kTarget, kDraft);
    for (const int prompt_length : {255, 254, 250, 200}) {
        const std::vector<TokenId> prompt = varied_tokens(prompt_length, 512);
        const auto plain = pair.run({request_of(prompt, 100, true)});
        EXPECT_EQ(plain[0].tokens.size(), static_cast<std::size_t>(256 - prompt_length));
        EXPECT_EQ(plain[0].finish_reason, FinishReason::length);
        for (const int max_tokens : {1, 5, 127}) {
            const auto rule = with_rule(constant_rule(max_tokens, max_tokens));
            EXPECT_EQ(pair.run({request_of(prompt, 100)}, rule)[0].tokens, plain[0].tokens);
            ScriptedDrafter right(max_tokens, [&](std::size_t position) { // wants to go past the end
                const std::size_t at = position - prompt.size();
                return at < plain[0].tokens.size() ? plain[0].tokens[at] : 3;
            });
            EXPECT_EQ(pair.run({request_of(prompt, 100)}, rule, &right)[0].tokens, plain[0].tokens);
        }
    }
}

TEST(Engine, EndsAtTheEndOfTextTokenWhereverItFallsInARound) {
    const auto golden = golden_expectations("llama-target")[3].at("greedy").get<std::vector<TokenId>>();
    std::set<TokenId> tried;
    for (const std::size_t at : {0U, 1U, 7U, 13U, 20U, 31U}) {
        if (!tried.insert(golden[at]).second) continue;
        TestModelOptions options;
        options.eos_token_ids = {511, golden[at]}; // makes a token that is emitted an end of text
        TestPair pair(kTarget, kDraft, options);
        const auto first = std::find(golden.begin(), golden.end(), golden[at]);
        const std::vector<TokenId> want(golden.begin(), first + 1);
        for (const int k : {1, 2, 5, 15}) {
            const auto rule = with_rule(constant_rule(k));
            const auto done = pair.run({request_of(golden_prompt(3), 48)}, rule);
            EXPECT_EQ(done[0].tokens, want) << "k " << k;
            EXPECT_EQ(done[0].finish_reason, FinishReason::eos);
            Request deaf = request_of(golden_prompt(3), 48);
            deaf.ignore_eos = true;
            EXPECT_EQ(pair.run({deaf}, rule)[0].tokens, golden) << "k " << k;
        }
    }
}

TEST(Engine, EndsAtAStopStringAtTheSameTokenAsPlainDecoding) {
    TestPair pair(kTarget, kDraft);
    const std::string text = pair.run({request_of(golden_prompt(2), 48, true)})[0].text;
    for (const std::size_t at : {std::size_t{0}, text.size() / 3, text.size() / 2}) {
        Request request = request_of(golden_prompt(2), 48, true);
        request.stop_strings = {"never said", text.substr(at, 4)};
        const auto plain = pair.run({request});
        EXPECT_EQ(plain[0].finish_reason, FinishReason::stop);
        EXPECT_EQ(plain[0].text, text.substr(0, text.find(text.substr(at, 4))));
        request.plain = false;
        const auto drafted = pair.run({request}, with_rule(constant_rule(5)));
        EXPECT_EQ(drafted[0].tokens, plain[0].tokens);
        EXPECT_EQ(drafted[0].text, plain[0].text);
    }
}

TEST(Engine, SaysExactlyAsManyTokensAsAskedFor) {
    TestPair pair(kTarget, kDraft);
    const auto golden = golden_expectations("llama-target")[0].at("greedy").get<std::vector<TokenId>>();
    for (int budget = 1; budget <= 12; ++budget) {
        const auto done = pair.run({request_of(golden_prompt(0), budget)}, with_rule(constant_rule(5)));
        EXPECT_EQ(done[0].tokens, std::vector<TokenId>(golden.begin(), golden.begin() + budget));
        EXPECT_EQ(done[0].finish_reason, FinishReason::length);
    }
}

TEST(Engine, ServesOneRequestAfterAnotherAsIfEachWereAlone) {
    TestPair pair(kTarget, kDraft);
    const RunOptions options = with_rule(rule_of("heuristic"));
    std::vector<Request> requests;
    std::vector<Completion> alone;
    for (std::size_t i = 0; i < 6; ++i) {
        requests.push_back(request_of(golden_prompt(i), 10 + 7 * static_cast<int>(i), i % 4 == 3));
        alone.push_back(pair.run({requests.back()}, options)[0]);
    }
    const auto drafter = pair.model_drafter();
    const auto engine = pair.engine(options, drafter.get());
    const volatile int no_signal = 0;
    for (int run = 0; run < 2; ++run) { // the engine goes on after its first stop
        const auto together = pair.serve(*engine, requests, no_signal);
        ASSERT_EQ(together.size(), 6U);
        for (std::size_t i = 0; i < 6; ++i) {
            EXPECT_EQ(together[i].tokens, alone[i].tokens);
            EXPECT_EQ(together[i].stats.rounds, alone[i].stats.rounds);
            EXPECT_EQ(together[i].stats.drafted, alone[i].stats.drafted);
        }
    }
    EXPECT_TRUE(pair.serve(*engine, {}, no_signal).empty());
}

TEST(Engine, RecordsTheMarginOfEveryToken) {
    if (const std::string why = lacking_on_torch(kRowBits); !why.empty()) GTEST_SKIP() << why;
    TestPair pair(kTarget, kDraft);
    const std::vector<TokenId> prompt = golden_prompt(5);
    const auto done = pair.run({request_of(prompt, 30)}, with_rule(constant_rule(5)));
    ASSERT_EQ(done[0].logit_margins.size(), 30U);
    std::vector<TokenId> text = prompt;
    text.insert(text.end(), done[0].tokens.begin(), done[0].tokens.end());
    pair.target.forget();
    const std::vector<float> logits = pair.target.read(text);
    for (std::size_t i = 0; i < 30; ++i) {
        const auto begin = logits.begin() + static_cast<std::ptrdiff_t>((prompt.size() - 1 + i) * 512);
        std::vector<float> row(begin, begin + 512);
        std::partial_sort(row.begin(), row.begin() + 2, row.end(), std::greater<>());
        EXPECT_EQ(done[0].logit_margins[i], row[0] - row[1]) << "token " << i;
    }
}

TEST(Engine, ASignalEndsTheRunAndDropsOnlyWhatIsUnfinished) {
    TestPair pair(kTarget, kDraft);
    const auto drafter = pair.model_drafter();
    const auto engine = pair.engine({}, drafter.get());
    volatile int signal = 0;
    std::vector<Completion> completions;
    int handed_out = 0;
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [&]() -> std::optional<Request> {
        return request_of(golden_prompt(static_cast<std::size_t>(handed_out++) % 6), 20);
    };
    callbacks.on_complete = [&](const Request&, Completion completion) {
        completions.push_back(std::move(completion));
        if (completions.size() == 2) signal = 15;
    };
    EXPECT_EQ(engine->run(callbacks, signal), spec::RunEnd::interrupted);
    EXPECT_EQ(completions.size(), 2U);
    EXPECT_EQ(handed_out, 3);
}

TEST(Engine, IdlesWhileRequestsAreStillToCome) {
    TestPair pair(kTarget, kDraft);
    const auto drafter = pair.model_drafter();
    const auto engine = pair.engine({}, drafter.get());
    const volatile int signal = 0;
    int asked = 0;
    std::size_t completed = 0;
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [&]() -> std::optional<Request> {
        ++asked;
        if (asked % 3 != 0) return std::nullopt; // none, none, one, none, none, one, ...
        return request_of(golden_prompt(0), 4);
    };
    callbacks.waiting = [&] { return completed < 2; };
    callbacks.on_complete = [&](const Request&, Completion) { ++completed; };
    EXPECT_EQ(engine->run(callbacks, signal), spec::RunEnd::finished);
    EXPECT_EQ(completed, 2U);
    EXPECT_EQ(asked, 7);
}

TEST(Engine, ASignalEndsTheIdling) {
    TestPair pair(kTarget, kDraft);
    const auto engine = pair.engine({}, nullptr);
    volatile int signal = 0;
    int asked = 0;
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [&]() -> std::optional<Request> {
        if (++asked == 3) signal = 10;
        return std::nullopt;
    };
    callbacks.waiting = [&] { return asked < 100; };
    EXPECT_EQ(engine->run(callbacks, signal), spec::RunEnd::interrupted);
    EXPECT_EQ(asked, 3);
}

TEST(Engine, IsAskedBeforeEachStepWhetherToGoOn) {
    TestPair pair(kTarget, kDraft);
    const auto engine = pair.engine({}, nullptr);
    const volatile int signal = 0;
    int steps = 0, completed = 0;
    bool goes_on = true;
    spec::EngineCallbacks callbacks;
    callbacks.next_request = [&]() -> std::optional<Request> { return request_of({7}, 3); };
    callbacks.on_complete = [&](const Request&, Completion) { ++completed; };
    callbacks.on_round = [&](const Request&, const spec::RoundTrace&) {
        if (steps == 9) goes_on = false; // in the round that ends the second text
    };
    callbacks.on_step = [&] {
        ++steps;
        return goes_on;
    };
    EXPECT_EQ(engine->run(callbacks, signal), spec::RunEnd::interrupted);
    EXPECT_EQ(completed, 2); // finished texts are handed out
    EXPECT_EQ(steps, 11);    // twice: admit, three rounds, retire; then the step that is told to end
}

TEST(Engine, ATextThatIsFinishedInTheRoundOfASignalIsStillHandedOut) {
    TestPair pair(kTarget, kDraft);
    const auto engine = pair.engine({}, nullptr);
    volatile int signal = 0;
    spec::RunEnd end{};
    Request request = request_of({7}, 1); // one token: no prefill, one round
    signal = 15;
    EXPECT_EQ(pair.serve(*engine, {request}, signal, &end).size(), 1U);
    EXPECT_EQ(end, spec::RunEnd::interrupted);
}

// ---- sampling ----

Request sampled_request(std::vector<TokenId> prompt, int max_new_tokens, std::uint64_t seed) {
    Request request = request_of(std::move(prompt), max_new_tokens);
    request.sampling.temperature = 1;
    request.sampling.seed = seed;
    request.ignore_eos = true;
    return request;
}

TEST(EngineSampling, TheSameSeedGivesTheSameTextAndOthersOtherTexts) {
    TestPair pair(kTarget, kDraft);
    std::set<std::vector<TokenId>> texts;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
        const auto once = pair.run({sampled_request(golden_prompt(0), 30, seed)});
        const auto again = pair.run({sampled_request(golden_prompt(0), 30, seed)});
        EXPECT_EQ(once[0].tokens, again[0].tokens);
        texts.insert(once[0].tokens);
    }
    EXPECT_EQ(texts.size(), 8U);
    Request other_line = sampled_request(golden_prompt(0), 30, 0);
    other_line.sequence_key = 77; // another line of input gets other numbers at the same seed
    texts.insert(pair.run({other_line})[0].tokens);
    EXPECT_EQ(texts.size(), 9U);
}

// The z value of chi-square of counts against probabilities (Wilson-Hilferty). Bins of less than 5 expected are pooled.
double chi_square_z(const std::vector<int>& counts, const std::vector<float>& probabilities) {
    const double n = std::accumulate(counts.begin(), counts.end(), 0);
    double chi = 0, pooled_expected = 0, pooled_count = 0;
    int bins = 0;
    auto add = [&](double count, double expected) {
        chi += (count - expected) * (count - expected) / expected;
        ++bins;
    };
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const double expected = n * static_cast<double>(probabilities[i]);
        if (expected >= 5) {
            add(counts[i], expected);
        } else {
            pooled_expected += expected;
            pooled_count += counts[i];
        }
    }
    if (pooled_expected > 0.5) add(pooled_count, pooled_expected);
    const double df = bins - 1, spread = 2 / (9 * df);
    EXPECT_GE(bins, 4) << "too few bins to say anything";
    return (std::cbrt(chi / df) - (1 - spread)) / std::sqrt(spread);
}

// The model's distribution after `text`.
std::vector<float> distribution(TestModel& model, const std::vector<TokenId>& text, const spec::SamplingOptions& how) {
    model.forget();
    const std::vector<float> logits = model.read(text);
    std::vector<float> p(512);
    spec::adjust(std::span(logits).last(512), how, p);
    return p;
}

constexpr int kSeeds = 2000;
constexpr double kMaxZ = 3.5; // one in 4,000 by chance; the seeds are fixed
const spec::StopRuleOptions kThreeTokens = constant_rule(3);

// Texts of four tokens, three of them drafted, for seeds 0 to kSeeds - 1.
std::vector<Completion> sample_texts(TestPair& pair, const Request& like, const RunOptions& options) {
    std::vector<Request> requests;
    for (int seed = 0; seed < kSeeds; ++seed) {
        requests.push_back(like);
        requests.back().sampling.seed = static_cast<std::uint64_t>(seed);
    }
    return pair.run(requests, options);
}

TEST(EngineSampling, RejectionKeepsTheTargetsDistribution) {
    TestPair pair(kTarget, kDraft);
    const std::vector<TokenId> prompt = golden_prompt(3);
    for (const double temperature : {1.0, 1.6}) {
        Request like = sampled_request(prompt, 4, 0);
        like.sampling.temperature = temperature;
        SCOPED_TRACE(temperature);
        const std::vector<Completion> texts = sample_texts(pair, like, with_rule(kThreeTokens));
        const std::vector<float> p = distribution(pair.target, prompt, like.sampling);
        const std::vector<float> q = distribution(pair.draft, prompt, like.sampling);
        std::vector<int> first(512, 0), second(512, 0);
        const auto likely = static_cast<TokenId>(std::max_element(p.begin(), p.end()) - p.begin());
        std::int64_t accepted = 0, drafted = 0;
        for (const Completion& text : texts) {
            ++first[static_cast<std::size_t>(text.tokens[0])];
            if (text.tokens[0] == likely) ++second[static_cast<std::size_t>(text.tokens[1])];
            accepted += text.stats.accepted;
            drafted += text.stats.drafted;
        }
        EXPECT_GT(accepted, kSeeds / 10) << "were drafted tokens ever accepted?";
        EXPECT_LT(accepted, drafted - kSeeds / 10) << "were drafted tokens ever rejected?";
        EXPECT_LT(chi_square_z(first, p), kMaxZ);
        EXPECT_GT(chi_square_z(first, q), 5 * kMaxZ) << "the draft's distribution must not pass for the target's";
        if (temperature > 1) continue; // too few texts begin with the same tokens
        std::vector<TokenId> then = prompt;
        then.push_back(likely);
        EXPECT_LT(chi_square_z(second, distribution(pair.target, then, like.sampling)), kMaxZ);
        EXPECT_GT(chi_square_z(second, distribution(pair.draft, then, like.sampling)), kMaxZ);
    }
}

TEST(EngineSampling, PlainSamplingHasTheTargetsDistribution) {
    TestPair pair(kTarget, kDraft);
    Request like = sampled_request(golden_prompt(0), 1, 0);
    like.plain = true;
    std::vector<int> first(512, 0);
    for (const Completion& text : sample_texts(pair, like, {}))
        ++first[static_cast<std::size_t>(text.tokens[0])];
    EXPECT_LT(chi_square_z(first, distribution(pair.target, like.prompt, like.sampling)), kMaxZ);
}

TEST(EngineSampling, TopKAndTopPNeverSayWhatTheyFilter) {
    TestPair pair(kTarget, kDraft);
    for (const bool top_k : {true, false}) {
        Request like = sampled_request(golden_prompt(0), 60, 0);
        like.sampling.temperature = 1.5;
        if (top_k)
            like.sampling.top_k = 5;
        else
            like.sampling.top_p = 0.6;
        std::set<TokenId> said;
        for (std::uint64_t seed = 0; seed < 8; ++seed) {
            like.sampling.seed = seed;
            const auto done = pair.run({like}, with_rule(kThreeTokens));
            std::vector<TokenId> text = like.prompt;
            text.insert(text.end(), done[0].tokens.begin(), done[0].tokens.end());
            pair.target.forget();
            const std::vector<float> logits = pair.target.read(text);
            for (std::size_t at = like.prompt.size(); at < text.size(); ++at) {
                const auto row = std::span(logits).subspan((at - 1) * 512, 512);
                std::vector<float> p(512);
                spec::adjust(row, like.sampling, p);
                const auto token = static_cast<std::size_t>(text[at]);
                ASSERT_GT(p[token], 0.0F) << "seed " << seed << ", position " << at;
                if (top_k) {
                    ASSERT_LT(std::count_if(row.begin(), row.end(), [&](float x) { return x > row[token]; }), 5);
                }
                said.insert(text[at]);
            }
        }
        EXPECT_GT(said.size(), 20U) << "was anything sampled?";
    }
}

// ---- lossy ----

TEST(EngineBild, GreedyEmitsWhatIsWithinTheDistanceAndNothingElse) {
    TestPair pair(kTarget, kDraft);
    RunOptions strict = with_rule(constant_rule(5)), lossy = strict;
    lossy.acceptance = spec::Acceptance::bild;
    std::int64_t strictly = 0, lossily = 0;
    for (std::size_t i = 0; i < 6; ++i) {
        const std::vector<TokenId> prompt = golden_prompt(i);
        strictly += pair.run({request_of(prompt, 60)}, strict)[0].stats.accepted;
        const auto done = pair.run({request_of(prompt, 60)}, lossy);
        lossily += done[0].stats.accepted;
        std::vector<TokenId> text = prompt;
        text.insert(text.end(), done[0].tokens.begin(), done[0].tokens.end());
        pair.target.forget();
        const std::vector<float> logits = pair.target.read(text);
        std::vector<float> p(512);
        for (std::size_t at = prompt.size(); at < text.size(); ++at) {
            const auto row = std::span(logits).subspan((at - 1) * 512, 512);
            spec::adjust(row, {.temperature = 1}, p);
            const double distance = -std::log(static_cast<double>(p[static_cast<std::size_t>(text[at])]));
            ASSERT_TRUE(distance <= 5 + 1e-4 || text[at] == spec::arg_max(row)) << "prompt " << i << ", at " << at;
        }
    }
    EXPECT_GT(lossily, strictly);
}

TEST(EngineLenience, GreedyAcceptsWhatIsLikelyEnoughAndNothingElse) {
    TestPair pair(kTarget, kDraft);
    RunOptions strict = with_rule(constant_rule(5)), lenient = strict;
    lenient.lenience = 0.05;
    std::int64_t strictly = 0, leniently = 0;
    for (std::size_t i = 0; i < 6; ++i) {
        const std::vector<TokenId> prompt = golden_prompt(i);
        strictly += pair.run({request_of(prompt, 60)}, strict)[0].stats.accepted;
        const auto done = pair.run({request_of(prompt, 60)}, lenient);
        leniently += done[0].stats.accepted;
        std::vector<TokenId> text = prompt;
        text.insert(text.end(), done[0].tokens.begin(), done[0].tokens.end());
        pair.target.forget();
        const std::vector<float> logits = pair.target.read(text);
        for (std::size_t at = prompt.size(); at < text.size(); ++at) {
            const auto row = std::span(logits).subspan((at - 1) * 512, 512);
            const double gap = static_cast<double>(*std::max_element(row.begin(), row.end())) -
                               static_cast<double>(row[static_cast<std::size_t>(text[at])]);
            ASSERT_LE(gap, -std::log(0.05) + 1e-4) << "prompt " << i << ", position " << at;
        }
    }
    EXPECT_GT(leniently, strictly);
}

TEST(EngineLenience, RejectionAcceptsMoreAndIsThenNoLongerTheTargetsDistribution) {
    TestPair pair(kTarget, kDraft);
    const Request like = sampled_request(golden_prompt(3), 4, 0);
    RunOptions strict = with_rule(kThreeTokens), lenient = strict;
    lenient.lenience = 0.1;
    std::int64_t strictly = 0, leniently = 0;
    for (const Completion& text : sample_texts(pair, like, strict))
        strictly += text.stats.accepted;
    std::vector<int> first(512, 0);
    for (const Completion& text : sample_texts(pair, like, lenient)) {
        leniently += text.stats.accepted;
        ++first[static_cast<std::size_t>(text.tokens[0])];
    }
    EXPECT_GT(leniently, strictly + strictly / 10);
    EXPECT_GT(chi_square_z(first, distribution(pair.target, like.prompt, like.sampling)), kMaxZ);
}

} // namespace engine_test
