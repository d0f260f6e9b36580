// Texts with a grammar, over ranks: whoever drafts them, they are those of constrained plain decoding, and satisfy the
// grammar. The models do not know the grammar.
#include "tests/spec/every_drafter.h"
#include "tests/spec/loaded_head.h"
#include "tests/spec/ranks.h"

#include "model/text/grammar/token_grammar.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace constraints_mpi {

using namespace entrodraft;
using model::grammar::Language;
using model::grammar::Source;
using spec::Acceptance;
using spec::Completion;
using spec::Request;

const std::vector<Source> kSources = {
    {Language::json_schema,
     R"({"type": "object", "properties": {"a name": {"type": "string", "maxLength": 9}, "list of numbers":
        {"type": "array", "items": {"type": "integer"}, "maxItems": 3}, "kind": {"enum": ["first", "second"]}},
        "required": ["a name", "kind"]})"},
    {Language::regex, "the answer is [a-z]{2,9}( and then [a-z ]{5}){0,3}\\."},
    {Language::grammar, "root ::= item (\", \" item){2,6}\nitem ::= [a-z]{1,3} | \"(\" root \")\"\n"},
    {Language::regex, "only this, and no other text"}};

std::vector<Request> constrained_requests(double temperature) {
    std::vector<Request> requests;
    for (std::size_t i = 0; i < 2 * kSources.size(); ++i) {
        Request& request = requests.emplace_back(request_of(golden_prompt(i % 4), 60));
        request.sequence_key = i;
        request.processing.constraint = kSources[i / 2];
        request.sampling.temperature = temperature;
        request.sampling.seed = 70 + i;
        if (i % 2 == 1) request.processing.repetition_penalty = 1.2;
        if (i % 4 == 3) request.sampling.top_k = temperature > 0 ? 30 : 0;
    }
    return requests;
}

bool is_as_asked(const Source& source, const Completion& completion) {
    const auto automaton = compile(source);
    model::grammar::Recognizer recognizer(*automaton);
    model::grammar::StateId state = recognizer.start();
    for (const char byte : completion.text)
        state = recognizer.next(state, static_cast<std::uint8_t>(byte));
    if (completion.finish_reason == spec::FinishReason::eos) return recognizer.accepts(state);
    return state != model::grammar::Recognizer::kDead ||
           !completion.text.empty(); // the text is cut short, maybe within a character
}

void expect_same(const std::vector<Completion>& found, const std::vector<Completion>& plain, const std::string& name) {
    EXPECT_EQ(found.size(), plain.size()) << name;
    for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].tokens, plain[i].tokens) << name << ", text " << i;
        EXPECT_EQ(found[i].text, plain[i].text) << name << ", text " << i;
        EXPECT_EQ(found[i].failure, "") << name << ", text " << i;
    }
}

TEST(ConstraintsOnRanks, TextsAreThoseOfPlainDecodingWhoeverDrafts) {
    Ranks ranks;
    TestModelOptions options = ranks.options();
    options.decoder.n_slots = 3;
    TestPair pair(ranks.target, ranks.draft, options, ranks.replica.get());
    TestModelOptions of_third;
    of_third.decoder.n_slots = 3;
    TestModel third(ranks.draft, of_third);
    const std::vector<std::vector<TokenId>> known = {golden_prompt(0)};
    const spec::TokenTable table = table_of(pair.vocab_size(), known);
    EveryDrafter drafters({pair.limits(), pair.clock, &pair.draft.decoder, &third.decoder, table, nullptr});
    for (const double temperature : {0.0, 1.0}) {
        const std::vector<Request> requests = constrained_requests(temperature);
        RunOptions run;
        run.acceptance = Acceptance::gumbel;
        const std::vector<Completion> plain = pair.run(plainly(requests), run);
        std::size_t ended = 0;
        for (std::size_t i = 0; i < plain.size(); ++i) {
            EXPECT_TRUE(is_as_asked(requests[i].processing.constraint, plain[i])) << plain[i].text;
            ended += plain[i].finish_reason == spec::FinishReason::eos ? 1 : 0;
        }
        EXPECT_GE(ended, ranks.coordinates() ? 4U : 0U);
        for (const std::string& name : drafters.names(false))
            for (const char* rule : {"constant", "expected-gain"})
                for (const int n_slots : {1, 3}) {
                    if (n_slots == 3 && std::string_view(rule) == "constant") continue;
                    run.rule = name.find("tree") == std::string::npos ? rule_of(rule) : constant_rule(20, 20);
                    run.n_slots = n_slots;
                    const auto drafter = drafters.make(name, rule_of(rule, 3), n_slots);
                    expect_same(pair.run(requests, run, drafter.get()), plain, name + ", " + rule);
                }
    }
}

TEST(ConstraintsOnRanks, HeadsDraftWhatIsAllowed) {
    Ranks ranks;
    const auto directory = head_directory("eagle");
    const auto target = head_directory(head_target("eagle"));
    TestModelOptions options = ranks.options();
    TestPair pair(target, target, options, ranks.replica.get());
    LoadedHead head(directory, target, pair.target.team, options);
    const std::vector<TokenId> ends = pair.limits().eos_tokens;
    for (const double temperature : {0.0, 1.0}) {
        std::vector<Request> requests = constrained_requests(temperature);
        for (Request& request : requests)
            for (TokenId& token : request.prompt)
                token %= pair.vocab_size();
        RunOptions run;
        run.acceptance = Acceptance::gumbel;
        run.hidden_layers = head.head.target_layers;
        const std::vector<Completion> plain = pair.run(plainly(requests), run);
        for (const char* tree : {"", "2,2"}) {
            spec::DrafterParts parts{{pair.limits(), pair.clock}};
            parts.head = &head.modules;
            if (*tree) parts.tree = spec::parse_tree(tree);
            const auto drafter = spec::drafter_type("head").make(parts);
            run.rule = *tree ? constant_rule(6, 6) : constant_rule(4);
            expect_same(pair.run(requests, run, drafter.get()), plain, std::string("head ") + tree);
        }
    }
}

// A text that the grammar fixes is drafted without a draft pass, and never beyond its end.
TEST(ConstraintsOnRanks, ATokenWithoutAnyOtherCostsNoPass) {
    Ranks ranks;
    TestPair pair(ranks.target, ranks.draft, ranks.options(), ranks.replica.get());
    Request request = request_of(golden_prompt(0), 60);
    // The text can be cut into tokens in one way only, as the vocabulary has no longer tokens for it.
    request.processing.constraint = {Language::regex, "\xE2\x86\xA6\xE2\x86\xA6\xE2\x86\xA6"};
    RunOptions run;
    run.rule = constant_rule(15);
    for (const spec::Completion& found : pair.run({request}, run)) {
        EXPECT_EQ(found.text, "\xE2\x86\xA6\xE2\x86\xA6\xE2\x86\xA6");
        EXPECT_EQ(found.finish_reason, spec::FinishReason::eos);
        EXPECT_EQ(found.stats.draft_passes, 0);
        EXPECT_EQ(found.stats.accepted, found.stats.drafted);
        EXPECT_EQ(found.stats.target_passes, 1);
    }
}

} // namespace constraints_mpi
