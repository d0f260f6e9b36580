// Options of the commands: values, refusals, conflicts, suggestions, config files.
#include "launch/cli/options.h"
#include "launch/start/failure.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace options_test {

using namespace entrodraft;
using namespace entrodraft::launch;
using Strings = std::vector<std::string>;

// What most cases need before they say anything of their own.
const Strings kDrafting = {"--target", "t", "--draft", "d", "--prompt", "p"};

GenerateOptions parse(const Strings& arguments) {
    return options_of<GenerateOptions>(parse_options(groups_of<GenerateOptions>(), arguments));
}

GenerateOptions parse_more(Strings more) {
    more.insert(more.begin(), kDrafting.begin(), kDrafting.end());
    return parse(more);
}

template <typename Call> std::string refusal(Call call) {
    try {
        call();
    } catch (const BadOption& error) {
        return error.what();
    }
    return "accepted";
}

std::string refusal_of(const Strings& more) {
    return refusal([&] { parse_more(more); });
}

void expect_refused(const Strings& more, const std::string& part) {
    const std::string message = refusal_of(more);
    EXPECT_NE(message, "accepted") << more.front();
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

class ConfigFile {
  public:
    explicit ConfigFile(const std::string& text)
        : path_(std::filesystem::temp_directory_path() / ("entrodraft-options-" + std::to_string(getpid()) + ".conf")) {
        std::ofstream(path_) << text;
    }
    ~ConfigFile() { std::filesystem::remove(path_); }
    std::string path() const { return path_.string(); }

  private:
    std::filesystem::path path_;
};

TEST(Options, OurCpuKernelsAloneChooseTypesOfActivationsKeysAndValues) {
    for (const std::string option : {"--activation-dtype", "--kv-dtype"}) {
        EXPECT_EQ(parse_more({option, "int8"}).models.needs_cpu, option);
        EXPECT_EQ(parse_more({option, "auto"}).models.needs_cpu, "");
        EXPECT_EQ(parse_more({option, "int8", "--device", "cpu"}).models.needs_cpu, "");
        for (const Strings& other : {Strings{"--device", "cuda"}, {"--backend", "torch"}})
            EXPECT_NE(refusal_of({option, "int8", other[0], other[1]}).find("give --device cpu"), std::string::npos)
                << option << other[1];
    }
    expect_refused({"--kv-dtype", "int4"}, "auto, float32, bfloat16, float16, int8");
}

TEST(Options, DefaultsAreThoseOfTheDesign) {
    const GenerateOptions options = parse(kDrafting);
    EXPECT_EQ(options.requests.max_new_tokens, 128);
    EXPECT_TRUE(options.requests.sampling.greedy());
    EXPECT_EQ(options.requests.sampling.top_k, 0);
    EXPECT_EQ(options.requests.sampling.top_p, 1);
    EXPECT_EQ(options.speculation.stop_rules.at(0).name(), "expected-gain");
    EXPECT_EQ(options.speculation.stop_rules.at(0).max_tokens, 15);
    EXPECT_EQ(options.speculation.stop_rules.at(0).min_tokens, 1);
    EXPECT_EQ(options.speculation.acceptance.kind, spec::Acceptance::gumbel);
    EXPECT_EQ(options.speculation.acceptance.lenience, 1);
    EXPECT_EQ(options.models.collective_timeout_seconds, 300);
    EXPECT_FALSE(options.models.dtype.has_value());
    EXPECT_EQ(options.output, "-");
}

TEST(Options, DraftTypeFollowsTheTargetsUnlessGiven) {
    EXPECT_EQ(parse_more({"--dtype", "float32"}).models.draft_dtype, model::WeightType::float32);
    const auto both = parse_more({"--dtype", "float32", "--draft-dtype", "bfloat16"}).models;
    EXPECT_EQ(both.dtype, model::WeightType::float32);
    EXPECT_EQ(both.draft_dtype, model::WeightType::bfloat16);
    EXPECT_FALSE(parse_more({"--dtype", "float32", "--draft-dtype", "auto"}).models.draft_dtype.has_value());
}

TEST(Options, Int4IsForOurOwnKernels) {
    EXPECT_EQ(parse_more({"--dtype", "int4"}).models.dtype, model::WeightType::int4);
    EXPECT_EQ(parse_more({"--dtype", "int4", "--device", "cuda"}).models.dtype, model::WeightType::int4);
    expect_refused({"--dtype", "int4", "--backend", "torch"}, "others are for --backend native");
}

TEST(Options, Float8IsForGpus) {
    expect_refused({"--dtype", "float8"}, "float8 weights are for --device cuda");
    expect_refused({"--draft-dtype", "float8", "--device", "cpu"}, "float8 weights are for --device cuda");
    const auto inspect = [](const Strings& more) {
        Strings all = {"--model", "m", "--draft", "d"};
        all.insert(all.end(), more.begin(), more.end());
        return options_of<InspectOptions>(parse_options(groups_of<InspectOptions>(), all));
    };
    for (const char* option : {"--dtype", "--draft-dtype"})
        EXPECT_NE(refusal([&] {
                      inspect({option, "float8"});
                  }).find("float8 weights are for --device cuda"),
                  std::string::npos);
    EXPECT_TRUE(inspect({"--dtype", "float8", "--device", "gpu"}).on_gpu);
    EXPECT_EQ(parse_more({"--dtype", "float8", "--device", "cuda"}).models.dtype, model::WeightType::float8);
    for (const char* option : {"--dtype", "--draft-dtype"})
        EXPECT_EQ(refusal([&] {
                      inspect({option, "wide"});
                  }),
                  std::string(option) + " wide: must be one of auto, float32, bfloat16, float16, int8, int4, float8");
}

TEST(Options, TheOracleIsForSimulateAlone) {
    expect_refused({"--stop-rule", "oracle"}, "see entrodraft simulate --rules oracle");
}

TEST(Options, ReplicasShareOutPromptsOfAFile) {
    EXPECT_NE(refusal_of({"--replicas", "2"}).find("one --prompt needs one replica"), std::string::npos);
    EXPECT_EQ(parse({"--target", "t", "--input", "prompts", "--replicas", "2"}).replicas, 2);
}

TEST(Options, AShardedDraftIsOneModelAlone) {
    EXPECT_EQ(refusal_of({"--draft-placement", "sharded"}), "accepted");
    EXPECT_EQ(refusal_of({"--draft-placement", "sharded", "--drafter", "ngram,model"}),
              "--draft-placement sharded is for one --draft; it goes with no other drafter");
}

TEST(Options, DraftingAheadNeedsARankThatDraftsAlone) {
    const auto ahead_of = [](const Strings& more) { return parse_more(more).speculation.drafter.ahead; };
    EXPECT_FALSE(ahead_of({}).has_value());
    ASSERT_TRUE(ahead_of({"--draft-placement", "dedicated"}).has_value());
    EXPECT_EQ(ahead_of({"--draft-placement", "dedicated"})->outcomes, 0); // as many as fit
    EXPECT_EQ(ahead_of({"--draft-placement", "dedicated", "--draft-ahead", "5"})->outcomes, 5);
    EXPECT_FALSE(ahead_of({"--draft-placement", "dedicated", "--draft-ahead", "0"}).has_value());
    EXPECT_EQ(ahead_of({"--draft-placement", "dedicated", "--draft-ahead", "auto:passes=7"})->passes, 7);
    EXPECT_TRUE(ahead_of({"--draft-placement", "dedicated", "--drafter", "ngram,model"}).has_value());
    EXPECT_FALSE(ahead_of({"--draft-placement", "dedicated", "--drafter", "model,ngram"}).has_value());
    const std::string needs =
        "--draft-ahead needs --draft-placement dedicated, --batch-size 1 and one --draft, which drafts last";
    EXPECT_EQ(refusal_of({"--draft-ahead", "4"}), needs);
    EXPECT_EQ(refusal_of({"--draft-ahead", "0"}), needs);
    EXPECT_EQ(refusal_of({"--draft-placement", "dedicated", "--draft-ahead", "0:passes=3"}),
              "--draft-ahead 0:passes=3: passes has no effect with 0");
    EXPECT_EQ(refusal_of({"--draft-placement", "dedicated", "--draft-ahead", "4:passes=1"}),
              "--draft-ahead 4:passes=1: '1' must be a whole number of at least 2");
    expect_refused({"--draft-placement", "dedicated", "--draft-ahead", "33"}, "--draft-ahead ");
    Strings batch = {"--target",          "t",         "--draft",      "d", "--input", "f",
                     "--draft-placement", "dedicated", "--batch-size", "2"};
    EXPECT_FALSE(parse(batch).speculation.drafter.ahead.has_value());
    batch.insert(batch.end(), {"--draft-ahead", "4"});
    EXPECT_EQ(refusal([&] { parse(batch); }), needs);
}

TEST(Options, ComparisonsTakeValuesOfRulesAndAcceptances) {
    const auto compared = [](Strings more) {
        more.insert(more.begin(), {"--target", "t", "--draft", "d", "--input", "f"});
        return options_of<CompareOptions>(parse_options(groups_of<CompareOptions>(), more));
    };
    const auto acceptances = compared({"--acceptances", "gumbel,rejection:lenience=0.3"}).acceptances;
    ASSERT_EQ(acceptances.size(), 2u);
    EXPECT_EQ(describe(acceptances[0]), "gumbel");
    EXPECT_EQ(acceptances[1].lenience, 0.3);
    const auto rule =
        compared({"--rules", "static:2", "--drop-stop-token", "--min-draft-tokens", "2"}).rules.front().front();
    EXPECT_TRUE(rule.drop_stop_token);
    EXPECT_EQ(rule.min_tokens, 2);
    EXPECT_EQ(refusal([&] {
                  compared({"--acceptances", "gumbel:lenience=0.3"});
              }),
              "--acceptances gumbel:lenience=0.3: gumbel takes no values");
    const auto drafters = compared({"--drafters", "ngram:max=3+model,ngram:max=6:match=first+model"}).drafters;
    EXPECT_EQ(describe(drafters.at(0)), "ngram:max=3+model");
    EXPECT_EQ(describe(drafters.at(1)), "ngram:max=6:match=first+model");
}

TEST(Options, ComparisonsDraftAheadWhereOneCan) {
    const auto compared = [](Strings more) {
        more.insert(more.begin(), {"--target", "t", "--draft", "d", "--input", "f"});
        return options_of<CompareOptions>(parse_options(groups_of<CompareOptions>(), more));
    };
    const auto refused = [&](const Strings& more) { return refusal([&] { compared(more); }); };
    const auto drafters =
        compared({"--draft-placement", "dedicated", "--draft-ahead", "0,8", "--drafters", "model,ngram"}).drafters;
    ASSERT_EQ(drafters.size(), 3u);
    EXPECT_FALSE(drafters[0].ahead.has_value());
    EXPECT_EQ(drafters[1].ahead->outcomes, 8);
    EXPECT_FALSE(drafters[2].ahead.has_value());
    EXPECT_TRUE(compared({"--draft-placement", "dedicated"}).drafters.front().ahead.has_value());
    const std::string needs = "--draft-ahead needs --draft-placement dedicated and one --draft, which drafts last";
    EXPECT_EQ(refused({"--draft-ahead", "8"}), needs);
    EXPECT_EQ(refused({"--draft-placement", "dedicated", "--draft-ahead", "8", "--drafters", "model+ngram"}), needs);
    EXPECT_EQ(refused({"--draft-placement", "dedicated", "--draft-ahead", "1.5"}),
              "--draft-ahead 1.5: must be a whole number from 0 to 32");
    EXPECT_EQ(refused({"--draft-placement", "dedicated", "--draft-ahead", "4,0:passes=4"}),
              "--draft-ahead 0:passes=4: passes has no effect with 0");
}

TEST(Options, OneTextIsDecodedAlone) {
    EXPECT_EQ(refusal_of({"--batch-size", "4"}),
              "--batch-size decodes prompts of --input together; one --prompt is decoded alone");
    EXPECT_EQ(refusal([] {
                  options_of<LatencyOptions>(
                      parse_options(groups_of<LatencyOptions>(), {"--target", "t", "--draft-placement", "dedicated"}));
              }),
              "--draft-placement has no effect without --draft DIR or --head DIR");
}

TEST(Options, ValuesOfLaterOptionsThatThisVersionHonoursAreTaken) {
    EXPECT_EQ(refusal_of({"--replicas", "1", "--device", "cpu", "--draft-placement", "colocated", "--acceptance",
                          "rejection", "--temperature", "1", "--no-repeat-ngram-size", "0"}),
              "accepted");
}

TEST(Options, WhatCountsForSampledTextAloneIsRefusedWhereNoneCanBe) {
    constexpr const char* kRemedy = " has no effect at temperature 0: give --temperature T above 0, or leave it out";
    const std::vector<std::pair<std::string, std::string>> options = {
        {"--top-k", "50"}, {"--top-p", "0.9"}, {"--min-p", "0.1"}, {"--seed", "4"}};
    for (const auto& [name, value] : options) {
        EXPECT_EQ(refusal_of({name, value}), name + kRemedy);
        EXPECT_EQ(refusal_of({name, value, "--temperature", "1"}), "accepted");
        EXPECT_EQ(refusal([&] {
                      parse({"--target", "t", "--input", "i", name, value});
                  }),
                  "accepted")
            << "a line may have a temperature";
        EXPECT_EQ(refusal([&] {
                      parse({"--target", "t", "--input", "i", "--num-beams", "2", name, value});
                  }),
                  name + kRemedy)
            << "no line may have one beside beams";
    }
    for (const char* acceptance : {"rejection", "block", "gumbel"})
        EXPECT_EQ(refusal_of({"--acceptance", acceptance}), std::string("--acceptance") + kRemedy);
    for (const char* lossy : {"typical", "bild"})
        EXPECT_EQ(refusal_of({"--acceptance", lossy}), "accepted") << "greedy text is another one too";
    EXPECT_EQ(refusal_of({"--acceptance", "rejection:lenience=0.5"}), "accepted");
    EXPECT_EQ(refusal_of({"--top-k", "50", "--seed", "4"}),
              "--top-k and --seed have no effect at temperature 0: give --temperature T above 0, or leave them out");
    EXPECT_EQ(parse({"--target", "t", "--input", "i", "--seed", "1"}).requests.of_sampled_text, Strings{"--seed"});
    EXPECT_EQ(parse({"--target", "t", "--input", "i", "--seed", "1", "--temperature", "1"}).requests.of_sampled_text,
              Strings{});
    const auto tuned = [](Strings more) {
        more.insert(more.begin(), {"--target", "t", "--draft", "d", "--input", "f", "--output", "o", "--seed", "1"});
        return refusal([&] { options_of<TuneOptions>(parse_options(groups_of<TuneOptions>(), more)); });
    };
    EXPECT_EQ(tuned({}), std::string("--seed") + kRemedy) << "all its prompts have one temperature";
    EXPECT_EQ(tuned({"--temperature", "1"}), "accepted");
    const auto compared = [](Strings more) {
        more.insert(more.begin(), {"--target", "t", "--draft", "d", "--input", "f", "--temperatures"});
        return refusal([&] { options_of<CompareOptions>(parse_options(groups_of<CompareOptions>(), more)); });
    };
    EXPECT_EQ(compared({"0", "--seed", "1"}), "--seed has no effect at --temperatures 0");
    EXPECT_EQ(compared({"0", "--acceptances", "block,gumbel"}),
              "--acceptances has no effect at --temperatures 0, where all but typical, bild and lenience are alike");
    EXPECT_EQ(compared({"0", "--acceptances", "block,typical"}), "accepted");
    EXPECT_EQ(compared({"0", "--seed", "1", "--synthetic-acceptance", "0.5"}), "accepted");
    EXPECT_EQ(compared({"0,1", "--seed", "1", "--acceptances", "block"}), "accepted");
}

TEST(Options, NumbersOfAListHaveNoBlanksAroundThem) {
    EXPECT_EQ(parse_more({"--banned-tokens", "3, 4"}).requests.processing.banned_tokens,
              (std::vector<spec::TokenId>{3, 4}));
    expect_refused({"--banned-tokens", " 5"}, "--banned-tokens  5: begins or ends with a blank; leave it out");
    expect_refused({"--banned-tokens", "5 "}, "begins or ends with a blank");
}

TEST(Options, ResumeAnywayGoesWithResume) {
    const Strings input = {"--target", "t", "--input", "i", "--output", "o"};
    const auto refused = [&](Strings more) {
        more.insert(more.begin(), input.begin(), input.end());
        return refusal([&] { parse(more); });
    };
    EXPECT_EQ(refused({"--resume-anyway"}), "--resume-anyway has no effect without --resume");
    EXPECT_EQ(refused({"--resume", "--resume-anyway"}), "accepted");
}

TEST(Options, LookaheadDraftsAloneAndByNoRuleOfChains) {
    const std::string shape = "lookahead:window=4:ngram=3:candidates=2";
    const auto parsed = [](const std::string& drafter, const Strings& more = {}) {
        Strings all = {"--target", "t", "--prompt", "p", "--drafter", drafter};
        all.insert(all.end(), more.begin(), more.end());
        return parse(all).speculation;
    };
    const auto refused = [&](const std::string& drafter, const Strings& more = {}) {
        return refusal([&] { parsed(drafter, more); });
    };
    EXPECT_EQ(parsed(shape).drafter.own_tree_tokens(), 11);
    EXPECT_EQ(parsed(shape).stop_rules.at(0).name(), "expected-gain");
    EXPECT_EQ(parsed(shape).stop_rules.at(0).max_tokens, 11);
    EXPECT_EQ(refused("lookahead", {"--stop-rule", "constant"}), "accepted");
    EXPECT_EQ(refused(shape, {"--max-draft-tokens", "11"}), "accepted");
    EXPECT_EQ(refused(shape, {"--max-draft-tokens", "10"}),
              "--drafter lookahead drafts up to 11 tokens, and --max-draft-tokens is 10");
    EXPECT_EQ(refused("lookahead", {"--stop-rule", "static"}),
              "--stop-rule static stops chains; --drafter lookahead drafts where that pays with expected-gain, always "
              "with constant");
    EXPECT_NE(refused("lookahead", {"--stop-rule", "constant:3"}).find("its values have no effect"), std::string::npos);
    EXPECT_NE(refused("lookahead", {"--acceptance", "block", "--temperature", "1"}).find("block is for chains"),
              std::string::npos);
    EXPECT_NE(refused("lookahead", {"--acceptance", "rejection:lenience=0.5", "--temperature", "1"})
                  .find("for greedy text alone"),
              std::string::npos);
    EXPECT_EQ(refused("lookahead:window=17:ngram=5:candidates=16"),
              "--drafter lookahead:window=17:ngram=5:candidates=16: window=17, ngram=5 and candidates=16 of lookahead "
              "make more than 127 drafted tokens, (window + candidates)(ngram - 1) - 1");
    EXPECT_EQ(refused("lookahead:ngram=1"), "--drafter lookahead:ngram=1: '1' must be a whole number from 2 to 32");
    EXPECT_EQ(refused("ngram:window=2"),
              "--drafter ngram:window=2: window must be one of max, min, match, full, texts");
    EXPECT_EQ(refusal([] {
                  parse({"--target", "t", "--draft", "d", "--prompt", "p", "--drafter", "lookahead,model"});
              }),
              "--drafter lookahead,model: lookahead goes with no model and no head");
    const auto rule = [&](const std::string& drafters, const Strings& more = {}) {
        return parsed(drafters, more).stop_rules.at(0);
    };
    EXPECT_EQ(rule("ngram,lookahead").max_tokens, 15) << "of ngram's chains";
    EXPECT_EQ(rule("ngram,lookahead", {"--max-draft-tokens", "12"}).max_tokens, 12);
    EXPECT_EQ(rule("ngram,lookahead:window=12", {"--stop-rule", "constant:3"}).max_tokens, 25);
    EXPECT_EQ(rule("ngram,lookahead", {"--stop-rule", "constant:3"}).get("tokens"), 3);
    EXPECT_THROW(rule("ngram,lookahead", {"--stop-rule", "static"}), BadOption);
    EXPECT_THROW(rule("ngram,lookahead:window=4", {"--max-draft-tokens", "8"}), BadOption);
    const auto batch = [&](const char* n) {
        return refusal([&] { parse({"--target", "t", "--input", "i", "--drafter", shape, "--batch-size", n}); });
    };
    EXPECT_EQ(batch("10"), "accepted");
    EXPECT_EQ(batch("11"), "--drafter lookahead makes passes of up to 12 rows a sequence, and a pass has 128: lower "
                           "--batch-size, or window, ngram or candidates of lookahead");
}

TEST(Options, DraftersComeWithTheirOwnValues) {
    const auto refused = [](Strings more) {
        more.insert(more.begin(), {"--target", "t", "--prompt", "p"});
        return refusal([&] { parse(more); });
    };
    const std::string ngram = "ngram:max=6:min=2:match=first:full=10";
    EXPECT_EQ(refused({"--drafter", ngram}), "accepted");
    EXPECT_EQ(parse_more({"--drafter", "model"}).speculation.drafter.kinds, std::vector<spec::NamedDrafter>{"model"});
    const SpeculationOptions both = parse_more({"--drafter", "ngram:full=10,model"}).speculation;
    EXPECT_EQ(both.drafter.kinds, (std::vector<spec::NamedDrafter>{{"ngram", {{"full", 10}}}, "model"}));
    EXPECT_EQ(describe(both.drafter), "ngram:full=10+model");
    EXPECT_EQ(refused({"--drafter", "suffix:min=2:texts=run", "--lookup-corpus", "f"}), "accepted");
    EXPECT_EQ(refused({"--drafter", "bigram", "--draft-table", "f"}), "accepted");
    EXPECT_NE(refused({"--drafter", "unigram"}).find("need --draft-table FILE"), std::string::npos);
    EXPECT_NE(refused({"--drafter", "ngram", "--lookup-corpus", "f"}).find("without the drafter suffix"),
              std::string::npos);
    EXPECT_EQ(refused({"--drafter", "suffix:max=4"}), "--drafter suffix:max=4: max must be one of min, texts");
    EXPECT_EQ(refused({"--drafter", "random:max=4"}), "--drafter random:max=4: random takes no values");
    EXPECT_EQ(refused({"--drafter", "ngram:4"}),
              "--drafter ngram:4: what is 4? ngram takes max, min, match, full and texts");
    EXPECT_NE(refused({"--drafter", "ngram:4=3"}).find("4 must be one of max, min"), std::string::npos);
    EXPECT_NE(refused({"--drafter", "ngram", "--stop-rule", "static:4=3"}).find("4 must be one of"), std::string::npos);
    EXPECT_EQ(refused({"--drafter", "ngram:max"}), "--drafter ngram:max: max needs a value: max=...");
    EXPECT_EQ(refused({"--drafter", "ngram:max=4:max=5"}), "--drafter ngram:max=4:max=5: max is given twice");
    EXPECT_NE(refused({"--drafter", "ngram:texts=runs"}).find("did you mean run?"), std::string::npos);
    EXPECT_NE(refused({"--drafter", "ngram,ngram"}).find("names ngram twice"), std::string::npos);
    EXPECT_NE(refused({"--drafter", "ngrams"}).find("did you mean ngram?"), std::string::npos);
    EXPECT_EQ(refused({"--drafter", "model"}), "--drafter model needs --draft DIR");
    EXPECT_EQ(refused({"--drafter", "ngram:full=128"}),
              "--drafter ngram:full=128: '128' must be a whole number from 0 to 127");
    EXPECT_EQ(refused({"--drafter", "ngram:min=5:max=4"}),
              "--drafter ngram:min=5:max=4: min=5 of ngram is above max=4");
    EXPECT_EQ(refused({"--drafter", "ngram:max=2,suffix"}),
              "--drafter ngram:max=2,suffix: min=3 of ngram is above max=2")
        << "of several drafters";
    EXPECT_EQ(refused({"--stop-rule", "static"}),
              "--stop-rule has no effect without --draft DIR, --head DIR or --drafter NAME");
    expect_refused({"--drafter", "ngram"}, "--drafter ngram drafts without a model");
}

TEST(Options, UnknownNamesGetTheNearestOne) {
    expect_refused({"--max-new-token", "5"}, "unknown option --max-new-token; did you mean --max-new-tokens?");
    expect_refused({"--temprature", "1"}, "did you mean --temperature?");
    expect_refused({"--temprature=1"}, "unknown option --temprature; did you mean --temperature?");
    expect_refused({"--zzzzzzzz"}, "unknown option --zzzzzzzz; --help lists those there are");
    expect_refused({"--stop-rule", "statik"}, "did you mean static?");
    expect_refused({"--hepl"}, "--help lists those there are");
    expect_refused({"--stop-rule", "exp"}, "did you mean expected-gain?");
    EXPECT_EQ(refusal_of({"--acceptance", "exact"}),
              "--acceptance exact: must be one of rejection, block, gumbel, typical, bild"); // none is near
}

TEST(Options, NamesOfOtherProgramsAreAliasesWhereTheyMeanTheSame) {
    const GenerateOptions options = parse({"-m", "t", "-md", "d", "-p", "x", "-n", "7", "--stop-rule", "constant:4"});
    EXPECT_EQ(options.models.target, "t");
    EXPECT_EQ(options.models.drafts, Strings{"d"});
    EXPECT_EQ(options.prompt, "x");
    EXPECT_EQ(options.requests.max_new_tokens, 7);
    EXPECT_EQ(options.speculation.stop_rules.at(0).get("tokens"), 4);
    EXPECT_EQ(parse({"--model=t", "--input", "f", "--share", "1/2"}).shard->index, 1);
    EXPECT_EQ(parse({"--model", "t", "--draft-model", "d", "--prompt=-m"}).prompt, "-m");
    EXPECT_EQ(refusal([] { parse({"-m", "-p", "x"}); }), "-m needs a value: DIR; write -m=-p if -p is meant as one");
    EXPECT_EQ(refusal([] {
                  parse({"--target", "t", "--model", "u", "--prompt", "p"});
              }),
              "--target is given 2 times; give it once");
    EXPECT_EQ(refusal([] { parse({"-m"}); }), "--target needs a value: DIR");
    EXPECT_EQ(refusal_of({"--m", "t"}).find("unknown option --m"), 0u) << "one dash";
    const ConfigFile config("model = t\nmax-tokens = 9\n");
    EXPECT_EQ(parse({"--config", config.path(), "--prompt", "p"}).requests.max_new_tokens, 9);
    EXPECT_NE(options_text(groups_of<GenerateOptions>(), false).find("also -m, --model"), std::string::npos);
}

TEST(Options, WhatBeamSearchDoesNotGoWithIsRefusedByName) {
    const auto expect = [](Strings more, const std::string& part) {
        more.insert(more.end(), {"--num-beams", "4"});
        expect_refused(more, part);
    };
    expect_refused({"--num-beams", "1:length-penalty=2"}, "its values have no effect without K above 1");
    expect_refused({"--num-beams", "4:early-stopping=maybe"}, "must be one of false, true, never");
    const GenerateOptions beams =
        parse({"--target", "t", "--input", "f", "--num-beams", "4:length-penalty=0.5:num-return-sequences=2"});
    EXPECT_EQ(beams.requests.beams.num_beams, 4);
    EXPECT_EQ(beams.requests.beams.length_penalty, 0.5);
    EXPECT_TRUE(beams.requests.given.contains("length-penalty")) << "before generation_config.json";
    EXPECT_FALSE(beams.requests.given.contains("early-stopping"));
    expect({"--temperature", "1"}, "--temperature above 0 samples");
    expect_refused({"--num-beams", "4:num-return-sequences=5"}, "must be 1 to num_beams, which is 4, not 5");
    expect_refused({"--num-beams", "4:num-return-sequences=2"},
                   "num-return-sequences of --num-beams goes with --input");
    expect({"--acceptance", "gumbel"}, "does not go with --acceptance");
    expect({"--tree", "eagle2"}, "does not go with --tree");
    expect({"--stop-rule", "static"}, "drafts end by expected gain");
    expect({"--stop", "x"}, "does not go with --stop");
    expect({"--drafter", "ngram,model"}, "drafted for by one --draft");
    expect_refused({"--num-samples", "2"}, "--num-samples goes with --input");
}

TEST(Options, NamesOfOtherProgramsWithoutAnEqualAreAnsweredWithTheRemedy) {
    expect_refused({"--tensor-parallel-size", "2"}, "--tensor-parallel-size: the target is sharded over the ranks; "
                                                    "start N of them: mpirun -n N entrodraft");
    expect_refused({"-tp", "2"}, "unknown option -tp: the target is sharded");
    expect_refused({"--speculative-config", "{}"}, "use --draft DIR");
    expect_refused({"--speculative_config={}"}, "unknown option --speculative_config: use --draft DIR");
    expect_refused({"--speculative-model", "d"}, "use --draft DIR");
    expect_refused({"--assistant-model", "d"}, "use --draft DIR");
    expect_refused({"--prompt-lookup-num-tokens", "3"}, "use --drafter ngram");
    expect_refused({"--use-beam-search", "4"}, "give --num-beams N");
    expect_refused({"--temp", "1"}, "use --temperature T");
    expect_refused({"--expert-placement", "spread"}, "unknown option --expert-placement: it is gone;");
    expect_refused({"-x", "1"}, "unknown option -x; --help lists");
    EXPECT_NE(refusal([] {
                  parse_options(groups_of<SimulateOptions>(), {"--tensor-parallel-size", "2"});
              }).find("--help lists"),
              std::string::npos)
        << "a remedy is for commands that have it";
    EXPECT_NE(refusal([] {
                  parse_options(groups_of<InspectOptions>(), {"--target", "t"});
              }).find("use --model DIR"),
              std::string::npos);
    EXPECT_EQ(options_of<InspectOptions>(parse_options(groups_of<InspectOptions>(), {"-m", "t", "-tp", "4"})).ranks, 4);
    EXPECT_EQ(parse_options(groups_of<TokenizeOptions>(), {"-m", "t"}).text("model", ""), "t");
    EXPECT_EQ(parse_options(groups_of<BuildTableOptions>(), {"-m", "t"}).text("model", ""), "t");
}

TEST(Options, WhatACommandIsAboutNeedsNoName) {
    EXPECT_EQ(options_of<InspectOptions>(parse_options(groups_of<InspectOptions>(), {"dir", "--json"})).model, "dir");
    EXPECT_EQ(options_of<DoctorOptions>(parse_options(groups_of<DoctorOptions>(), {"--threads", "2", "dir"})).target,
              "dir");
    EXPECT_EQ(
        parse_options(groups_of<SimulateOptions>(), {"a.edr", "b.edr", "--recording", "c.edr"}).texts("recording"),
        (Strings{"a.edr", "b.edr", "c.edr"}));
    EXPECT_EQ(parse_options(groups_of<SimulateOptions>(), {"a", "--json", "b"}).texts("recording"),
              (Strings{"a", "b"}));
    EXPECT_EQ(refusal([] {
                  parse_options(groups_of<InspectOptions>(), {"a", "b"});
              }),
              "--model is given 2 times; give it once");
}

TEST(Options, ValuesOfOtherProgramsAreUnderstood) {
    using Type = model::WeightType;
    const std::vector<std::pair<std::string, Type>> types = {{"bf16", Type::bfloat16}, {"fp16", Type::float16},
                                                             {"half", Type::float16},  {"fp32", Type::float32},
                                                             {"float", Type::float32}, {"bfloat16", Type::bfloat16}};
    for (const auto& [name, type] : types) {
        EXPECT_EQ(parse_more({"--dtype", name}).models.dtype, type) << name;
        EXPECT_EQ(parse_more({"--draft-dtype", name}).models.draft_dtype, type) << name;
    }
    EXPECT_EQ(parse_more({"--device", "gpu", "--dtype", "fp8"}).models.device, DeviceChoice::cuda);
    expect_refused({"--dtype", "fp8"}, "float8 weights are for --device cuda");
    EXPECT_EQ(parse_more({"--backend", "torch", "--device", "xpu"}).models.backend, Backend::torch);
    expect_refused({"--device", "xpu"}, "--device xpu is for --backend torch");
    expect_refused({"--backend", "torch", "--draft", "d", "--draft-dtype", "int8"}, "others are for --backend native");
    EXPECT_NE(
        refusal([] {
            options_of<InspectOptions>(parse_options(groups_of<InspectOptions>(), {"--model", "m", "--dtype", "fp8"}));
        }).find("float8 weights are for --device cuda"),
        std::string::npos);
    expect_refused({"--stop-rule", "entropy"}, "did you mean static?");
    expect_refused({"--stop-rule", "fixed"}, "did you mean constant?");
}

TEST(Options, AWholeNumberIsWrittenInOneWay) {
    for (const std::string text : {"1e3", " 5", "5 ", "-0", "+5", "0x5", "5.0", ""}) {
        EXPECT_NE(refusal_of({"--top-k", text}), "accepted") << text;
        EXPECT_NE(refusal_of({"--seed", text}), "accepted") << text;
        EXPECT_NE(refusal_of({"--logit-bias", text + ":1"}), "accepted") << text;
    }
    for (const std::string text : {"1e3", "-0", "+5", "5.0", "3,1e3", "3,,4"})
        EXPECT_NE(refusal_of({"--banned-tokens", text}), "accepted") << text;
    EXPECT_EQ(refusal_of({"--banned-tokens", "3, 4"}), "accepted") << "lists may have blanks";
    expect_refused({"--temperature", "-0"}, "--temperature -0: must be a number of at least 0");
}

TEST(Options, NamesAreNotGuessedFromTheirBeginning) {
    expect_refused({"--max-new", "5"}, "unknown option --max-new");
}

TEST(Options, BadValuesNameTheirOption) {
    expect_refused({"--max-new-tokens", "0"}, "--max-new-tokens 0: must be a whole number of at least 1");
    expect_refused({"--max-new-tokens", "abc"}, "--max-new-tokens abc");
    expect_refused({"--max-new-tokens", "5.5"}, "--max-new-tokens 5.5");
    expect_refused({"--max-new-tokens", "99999999999"},
                   "--max-new-tokens 99999999999: must be a whole number from 1 to 2147483647");
    expect_refused({"--max-draft-tokens", "128"}, "--max-draft-tokens 128: must be a whole number from 1 to 127");
    expect_refused({"--max-draft-tokens", "0"}, "--max-draft-tokens");
    expect_refused({"--temperature", "-1"}, "--temperature -1");
    expect_refused({"--temperature", "nan"}, "--temperature nan");
    expect_refused({"--temperature", "inf"}, "--temperature inf");
    expect_refused({"--top-p", "1.5"}, "--top-p 1.5");
    expect_refused({"--top-p", "-0.1"}, "--top-p -0.1");
    expect_refused({"--top-k", "-3"}, "--top-k -3");
    expect_refused({"--seed", "-1"}, "--seed -1");
    expect_refused({"--acceptance", "rejection:lenience=0"}, "lenience must be above 0, at most 1");
    expect_refused({"--acceptance", "rejection:lenience=2"}, "lenience=2: '2' must be a number from 0 to 1");
    expect_refused({"--threads", "0"}, "--threads 0");
    expect_refused({"--collective-timeout", "0"}, "--collective-timeout 0");
    expect_refused({"--dtype", "float64"}, "--dtype float64: must be one of auto, float32, bfloat16, float16");
    expect_refused({"--stop-rule", "nonsense"}, "--stop-rule nonsense: must be one of");
    expect_refused({"--stop", ""}, "--stop is empty");
    expect_refused({"--stop", "a\xff"}, "--stop is not UTF-8 from byte 1 on");
    expect_refused({"--stop-rule", "static:-2"}, "--stop-rule static:-2: '-2' must be a number of at least 0");
    expect_refused({"--stop-rule", "cumulative:window=0"},
                   "--stop-rule cumulative:window=0: '0' must be a whole number");
    expect_refused({"--stop-rule", "moving-average:0"}, "--stop-rule moving-average: factor must be a number above 0");
}

TEST(Options, MissingValuesAndStrayArgumentsAreNamed) {
    expect_refused({"--max-new-tokens"}, "--max-new-tokens needs a value");
    expect_refused({"--stop", "--seed", "5"}, "--stop needs a value: STRING; write --stop=--seed if");
    expect_refused({"--stop", "--seed=5"}, "--stop needs a value");
    EXPECT_EQ(parse_more({"--stop=--seed"}).requests.stop_strings, Strings{"--seed"});
    EXPECT_EQ(parse_more({"--stop", "--"}).requests.stop_strings, Strings{"--"});
    expect_refused({"stray"}, "unexpected argument 'stray'");
    expect_refused({"--quiet=yes"}, "--quiet takes no value");
    expect_refused({"--seed", "1", "--seed", "2"}, "--seed is given 2 times");
}

TEST(Options, OfSeveralMistakesTheFirstIsNamed) {
    const std::vector<std::pair<Strings, std::string>> by_message = {
        {{"---seed", "1"}, "unknown option ---seed"},
        {{"---quiet"}, "unknown option ---quiet"},
        {{"--/tmp"}, "unknown option --/tmp"},
        {{"--=3"}, "unknown option --;"},
        {{"---"}, "unknown option ---"},
        {{"--stop", "--foobar", "--foo"}, "unknown option --foo;"},
        {{"--presence-penalty", "-5", "---"}, "unknown option ---"},
        {{"stray", "--foo"}, "unexpected argument 'stray'"},
        {{"--foo", "stray"}, "unknown option --foo"},
        {{"--seed", "--quiet", "--foo"}, "--seed needs a value: N; write --seed=--quiet if --quiet is meant as one"},
        {{"--seed=", "5"}, "--seed needs a value: N"},
        {{"-n=", "5"}, "--max-new-tokens needs a value: N"},
        {{"--quiet=yes", "--foo"}, "--quiet takes no value"},
    };
    for (const auto& [arguments, message] : by_message)
        EXPECT_EQ(refusal([&] { parse(arguments); }).find(message), 0U) << refusal([&] { parse(arguments); });
    EXPECT_EQ(parse({"--target", "t", "--prompt", "--x="}).prompt, "--x=") << "no option has the name";
}

TEST(Options, NamesOfFilesAndDirectoriesAreNotEmpty) {
    EXPECT_EQ(refusal_of({"--draft", ""}), "--draft is empty; name a directory");
    EXPECT_EQ(refusal_of({"--costs", ""}), "--costs is empty; name a file");
    EXPECT_EQ(refusal_of({"--trace", ""}), "--trace is empty; name a file");
    EXPECT_EQ(refusal([] { parse({"--target", "t", "--input", ""}); }), "--input is empty; name a file or -");
    EXPECT_EQ(refusal([] { parse({"--target", "", "--prompt", "p"}); }), "--target is empty; name a directory");
}

TEST(Options, TreesAreForOneDraftAndWhatTheyWouldIgnoreIsRefused) {
    expect_refused({"--tree", "eagle2", "--stop-rule", "static:2:drop"}, "drop of --stop-rule is for chains");
    expect_refused({"--tree", "eagle2", "--stop-rule", "static:of=adjusted"}, "of=adjusted of --stop-rule");
    expect_refused({"--tree", "eagle2", "--acceptance", "block"}, "--acceptance block");
    expect_refused({"--tree", "eagle2", "--drafter", "ngram,model"}, "one --draft");
    for (Strings more : {Strings{"--device", "cuda"}, {"--backend", "torch"}, {"--draft-placement", "sharded"}}) {
        more.insert(more.end(), {"--tree", "eagle2"});
        EXPECT_TRUE(parse_more(more).speculation.drafter.tree) << more[1];
    }
    expect_refused({"--tree", "medusa-63", "--max-draft-tokens", "15"}, "63 tokens");
    expect_refused({"--tree", "expected-gain", "--stop-rule", "static:2"}, "--stop-rule expected-gain alone");
}

TEST(Options, WhatWouldHaveNoEffectIsRefused) {
    expect_refused({"--stop-rule", "constant:threshold=2"},
                   "--stop-rule constant:threshold=2: threshold must be one of tokens, min");
    expect_refused({"--stop-rule", "expected-gain:2"}, "what is 2? expected-gain takes min and of");
    expect_refused({"--stop-rule", "heuristic:drop"}, "--stop-rule heuristic:drop: drop must be one of tokens");
    expect_refused({"--stop-rule", "expected-gain:drop"}, "drop must be one of min, of");
    for (const spec::StopRuleType& type : spec::all_stop_rules())
        for (const spec::StopRuleParameter& parameter : type.parameters)
            if (spec::find_stop_rule("constant")->index_of(parameter.name) < 0 &&
                parameter.kind != spec::StopRuleParameter::Kind::on_off)
                expect_refused({"--stop-rule", std::string("constant:") + parameter.name + "=1"},
                               std::string(parameter.name) + " must be one of tokens, min");
    expect_refused({"--stop-rule", "static", "--costs", "c.json"}, "it belongs to expected-gain");
    for (const std::string option : {"stop-rule", "acceptance"})
        EXPECT_EQ(refusal([&] {
                      parse({"--target", "t", "--prompt", "p", "--" + option, "1"});
                  }),
                  "--" + option + " has no effect without --draft DIR, --head DIR or --drafter NAME");
}

// The table of old names: launch/cli/foreign_options.cpp.
TEST(Options, OldNamesOfValuesAreRefusedWithTheNewSpelling) {
    const std::map<std::string, std::string> spelled = {{"entropy-threshold", "--stop-rule static:threshold=X"},
                                                        {"entropy-factor", "--stop-rule moving-average:factor=X"},
                                                        {"entropy-window", "--stop-rule moving-average:window=N"},
                                                        {"num-draft-tokens", "--stop-rule constant:tokens=K"},
                                                        {"num-speculative-tokens", "--stop-rule constant:tokens=K"},
                                                        {"heuristic-persistent", "--stop-rule heuristic:persistent"},
                                                        {"confidence-threshold", "--stop-rule confidence:threshold=P"},
                                                        {"svip-threshold", "--stop-rule svip:threshold=X"},
                                                        {"adaedl-gamma", "--stop-rule adaedl:gamma=X"},
                                                        {"disco-bias", "--stop-rule disco:threshold=H:bias=B"},
                                                        {"entropy-unit", "it is gone; thresholds are in nats"},
                                                        {"entropy-of", "--stop-rule RULE:of=adjusted"},
                                                        {"min-draft-tokens", "--stop-rule RULE:min=N"},
                                                        {"drop-stop-token", "--stop-rule RULE:drop"},
                                                        {"ngram-max", "--drafter ngram:max=N"},
                                                        {"ngram-min", "--drafter ngram:min=N"},
                                                        {"ngram-match", "--drafter ngram:match=first"},
                                                        {"ngram-full", "--drafter ngram:full=N"},
                                                        {"lookup-texts", "--drafter ngram:texts=run"},
                                                        {"lookahead-window", "--drafter lookahead:window=W"},
                                                        {"lookahead-ngram", "--drafter lookahead:window=W:ngram=N"},
                                                        {"lookahead-candidates", "window=W:ngram=N:candidates=G"},
                                                        {"lenience", "--acceptance rejection:lenience=L"},
                                                        {"typical-epsilon", "--acceptance typical:epsilon=E"},
                                                        {"typical-delta", "--acceptance typical:epsilon=E:delta=D"},
                                                        {"rollback-distance", "--acceptance bild:distance=D"},
                                                        {"draft-sinks", "--draft-window W:sinks=S"},
                                                        {"draft-chunks", "--draft-window W:sinks=S:chunks=N"},
                                                        {"draft-ahead-passes", "--draft-ahead F:passes=N"},
                                                        {"length-penalty", "--num-beams K:length-penalty=P"},
                                                        {"early-stopping", "--num-beams K:length-penalty=P:early"},
                                                        {"num-return-sequences", "num-return-sequences=N"}};
    for (const auto& [old, now] : spelled) {
        EXPECT_NE(refusal_of({"--" + old, "1"}).find(now), std::string::npos) << refusal_of({"--" + old, "1"});
        const ConfigFile config(old + " = 1\n");
        EXPECT_NE(refusal_of({"--config", config.path()}).find(now), std::string::npos) << old;
    }
}

TEST(Options, APersistentHeuristicDraftsAsFarAsAPacketGoes) {
    const auto rules = [](const Strings& more) { return parse_more(more).speculation.stop_rules; };
    const auto kept = rules({"--stop-rule", "heuristic:persistent"});
    EXPECT_TRUE(kept.at(0).is_persistent());
    EXPECT_EQ(kept.at(0).max_tokens, 127);
    EXPECT_EQ(kept.at(0).get("tokens"), 5);
    EXPECT_EQ(describe(kept.at(0)), "heuristic:tokens=5:persistent");
    EXPECT_FALSE(rules({"--stop-rule", "heuristic"}).at(0).is_persistent());
    EXPECT_EQ(rules({"--stop-rule", "heuristic:persistent", "--max-draft-tokens", "9"}).at(0).max_tokens, 9);
    const auto levels = rules({"--draft", "e", "--stop-rule", "static", "--stop-rule", "heuristic:persistent"});
    EXPECT_FALSE(levels.at(0).is_persistent());
    EXPECT_EQ(levels.at(0).max_tokens, 15);
    EXPECT_TRUE(levels.at(1).is_persistent());
    expect_refused({"--stop-rule", "static:persistent"},
                   "--stop-rule static:persistent: persistent must be one of threshold, min, of, drop");
    const auto compared = options_of<CompareOptions>(
        parse_options(groups_of<CompareOptions>(),
                      {"--target", "t", "--draft", "d", "--input", "i", "--rules", "heuristic:4:persistent"}));
    EXPECT_TRUE(compared.rules.at(0).at(0).is_persistent());
    EXPECT_EQ(compared.rules.at(0).at(0).get("tokens"), 4);
    EXPECT_NE(refusal([] {
                  options_of<CompareOptions>(
                      parse_options(groups_of<CompareOptions>(),
                                    {"--target", "t", "--draft", "d", "--input", "i", "--rules", "heuristic:4:kept"}));
              }).find("kept must be one of tokens, persistent, min"),
              std::string::npos);
}

TEST(Options, EntropiesAreRawUnlessAdjustedOnesAreAskedFor) {
    const auto rule = [](const Strings& more) { return parse_more(more).speculation.stop_rules.at(0); };
    EXPECT_EQ(rule({"--stop-rule", "static"}).entropy_of, spec::EntropyOf::raw);
    EXPECT_EQ(rule({"--stop-rule", "static:of=raw"}).entropy_of, spec::EntropyOf::raw);
    for (const spec::StopRuleType& type : spec::all_stop_rules()) {
        if (type.looks_at == spec::LooksAt::nothing) continue;
        EXPECT_EQ(rule({"--stop-rule", type.name + ":of=adjusted"}).entropy_of, spec::EntropyOf::adjusted) << type.name;
    }
    expect_refused({"--stop-rule", "constant:of=adjusted"}, "of must be one of tokens, min");
    expect_refused({"--stop-rule", "static:of=scores"},
                   "--stop-rule static:of=scores: 'scores' must be one of raw, adjusted");
    const auto compared = options_of<CompareOptions>(
        parse_options(groups_of<CompareOptions>(), {"--target", "t", "--draft", "d", "--input", "i", "--rules",
                                                    "static,constant", "--entropy-of", "adjusted"}));
    EXPECT_EQ(describe(compared.rules.at(0).at(0)), "static:threshold=0.75:of=adjusted");
    EXPECT_EQ(describe(compared.rules.at(1).at(0)), "constant:tokens=5");
    EXPECT_EQ(refusal([] {
                  options_of<CompareOptions>(
                      parse_options(groups_of<CompareOptions>(), {"--target", "t", "--draft", "d", "--input", "i",
                                                                  "--rules", "constant", "--entropy-of", "adjusted"}));
              }),
              "--entropy-of adjusted has no effect on --rules constant, none of which looks at distributions");
    const std::string refused = refusal([] {
        options_of<RecordOptions>(
            parse_options(groups_of<RecordOptions>(), {"--target", "t", "--draft", "d", "--input", "i", "--output", "o",
                                                       "--entropy-of", "adjusted"}));
    });
    EXPECT_EQ(refused, "--entropy-of adjusted: a recording holds raw entropies; generate and bench compare take it");
    EXPECT_EQ(
        refusal([] {
            options_of<SimulateOptions>(
                parse_options(groups_of<SimulateOptions>(), {"f.edr", "--rules", "static:1:of=adjusted"}));
        }),
        "--rules static:threshold=1:of=adjusted: a recording holds raw entropies; generate and bench compare take it");
}

TEST(Options, ConflictsAreRefused) {
    expect_refused({"--input", "f"}, "--prompt and --input exclude each other");
    expect_refused({"--output", "f"}, "--output goes with --input");
    expect_refused({"--resume"}, "--resume needs --output FILE");
    expect_refused({"--check", "--temperature", "1", "--acceptance", "rejection"},
                   "--check compares texts that a draft must not change");
    expect_refused({"--stop-rule", "static:min=9", "--max-draft-tokens", "4"},
                   "--stop-rule static: min 9 is above --max-draft-tokens 4");
    expect_refused({"--stop-rule", "constant:16"},
                   "--stop-rule constant:16: '16' must be at most --max-draft-tokens 15");
    EXPECT_NE(refusal([] { parse({"--target", "t"}); }).find("nothing to decode"), std::string::npos);
    EXPECT_NE(refusal([] { parse({"--prompt", "t"}); }).find("--target DIR is missing"), std::string::npos);
    EXPECT_NE(refusal([] { parse({"--target", "t", "--prompt", ""}); }).find("--prompt is empty"), std::string::npos);
    EXPECT_NE(refusal([] {
                  parse({"--target", "t", "--prompt", "p", "--check"});
              }).find("needs --draft"),
              std::string::npos);
    EXPECT_NE(refusal([] {
                  parse({"--target", "t", "--input", "i", "--resume"});
              }).find("--resume needs"),
              std::string::npos);
}

TEST(Options, ChatOptionsNeedWhatTheyActOn) {
    const GenerateOptions options = parse_more({"--chat", "--system", "s", "--chat-template", "chatml"});
    EXPECT_TRUE(options.requests.chat && options.models.chat_template.is_needed);
    EXPECT_EQ(options.requests.system, "s");
    EXPECT_EQ(options.models.chat_template.name, "chatml");
    EXPECT_FALSE(parse(kDrafting).models.chat_template.is_needed);
    expect_refused({"--system", "s"}, "--system has no effect without --chat");
    expect_refused({"--chat-template", "chatml"}, "--chat-template has no effect on a --prompt without --chat");
    expect_refused({"--chat", "--chat-template", ""}, "--chat-template is empty");
    expect_refused({"--chat-date", "1 May"}, "--chat-date has no effect on a --prompt without --chat");
    EXPECT_EQ(parse({"--target", "t", "--input", "i", "--chat-template", "chatml"}).models.chat_template.name,
              "chatml");
}

TEST(Options, LevelsOfACascadeTakeTheirOptionsInOrder) {
    const auto two = parse_more({"--draft", "e", "--stop-rule", "static:3", "--stop-rule", "constant:tokens=2",
                                 "--max-draft-tokens", "9", "--max-draft-tokens", "4"})
                         .speculation;
    EXPECT_EQ(two.drafter.drafts, (std::vector<std::size_t>{0, 1}));
    ASSERT_EQ(two.stop_rules.size(), 2u);
    EXPECT_EQ(two.stop_rules[0].name(), "static");
    EXPECT_EQ(two.stop_rules[0].get("threshold"), 3);
    EXPECT_EQ(two.stop_rules[0].max_tokens, 9);
    EXPECT_EQ(two.stop_rules[1].name(), "constant");
    EXPECT_EQ(two.stop_rules[1].get("tokens"), 2);
    EXPECT_EQ(two.stop_rules[1].max_tokens, 4);
    const auto alike = parse_more({"--draft", "e", "--stop-rule", "static:3"}).speculation;
    EXPECT_EQ(alike.stop_rules[1].get("threshold"), 3) << "the last value goes on to the levels after it";
    expect_refused({"--stop-rule", "static", "--stop-rule", "static"},
                   "--stop-rule is given 2 times, but there is 1 level of drafting");
    expect_refused(
        {"--draft", "e", "--stop-rule", "static", "--stop-rule", "expected-gain", "--costs", "a", "--costs", "b"},
        "--costs is given 2 times, but 1 level takes it");
}

TEST(Options, AcceptancesComeWithTheirOwnValues) {
    EXPECT_EQ(parse_more({"--acceptance", "block", "--temperature", "1"}).speculation.acceptance.kind,
              spec::Acceptance::block);
    EXPECT_EQ(parse_more({"--acceptance", "typical:delta=0.5"}).speculation.acceptance.typical.delta, 0.5);
    EXPECT_EQ(parse_more({"--acceptance", "bild:distance=2"}).speculation.acceptance.distance, 2);
    EXPECT_EQ(describe(parse_more({"--acceptance", "rejection:lenience=0.5"}).speculation.acceptance),
              "rejection:lenience=0.5");
    expect_refused({"--acceptance", "gumble"}, "did you mean gumbel?");
    expect_refused({"--acceptance", "block:lenience=0.5"}, "--acceptance block:lenience=0.5: block takes no values");
    expect_refused({"--acceptance", "typical:distance=2"}, "distance must be one of epsilon, delta");
    expect_refused({"--acceptance", "bild:distance=-1"}, "'-1' must be a number of at least 0");
    expect_refused({"--acceptance", "bild", "--check"}, "which a lossy acceptance is not after");
    EXPECT_EQ(refusal([] {
                  parse({"--target", "t", "--prompt", "p", "--temperature", "1", "--acceptance", "gumbel"});
              }),
              "accepted")
        << "plain decoding samples so anyway";
    EXPECT_EQ(refusal_of({"--check", "--temperature", "1"}), "accepted");
    expect_refused({"--check", "--temperature", "1", "--acceptance", "block"},
                   "with --acceptance block it needs --temperature 0");
}

TEST(Options, ATokenIsDroppedForWhatItIsWhereThatBendsNoText) {
    const auto dropping = [](const char* option, const std::string& value) {
        return Strings{"--stop-rule", "confidence:0.6:drop", option, value};
    };
    for (const char* acceptance : {"typical", "bild"})
        EXPECT_TRUE(parse_more(dropping("--acceptance", acceptance)).speculation.stop_rules.front().drop_stop_token);
    EXPECT_TRUE(parse_more(dropping("--temperature", "1")).speculation.stop_rules.front().drop_stop_token) << "gumbel";
    for (const std::string acceptance : {"rejection", "block"})
        expect_refused(dropping("--acceptance", acceptance), "would bias --acceptance " + acceptance);
    expect_refused(dropping("--acceptance", "rejection:lenience=0.5"), "would bias --acceptance rejection");
    const auto compared = [](Strings more) {
        more.insert(more.begin(), {"--target", "t", "--draft", "d", "--input", "f", "--drop-stop-token", "--rules",
                                   "static:2,confidence:0.6", "--acceptances", "gumbel,rejection", "--temperatures"});
        return refusal([&] { options_of<CompareOptions>(parse_options(groups_of<CompareOptions>(), more)); });
    };
    EXPECT_EQ(compared({"0"}).find("would bias"), std::string::npos);
    EXPECT_NE(compared({"0,1"}).find("would bias --acceptance rejection"), std::string::npos);
}

TEST(Options, LogitProcessingIsReadAndChecked) {
    const spec::LogitProcessing processing =
        parse_more({"--repetition-penalty", "1.2", "--presence-penalty", "-0.5", "--frequency-penalty", "0.25",
                    "--no-repeat-ngram-size", "3", "--min-new-tokens", "7", "--logit-bias", "5:-1.5", "--logit-bias",
                    "9:2", "--banned-tokens", "3,4"})
            .requests.processing;
    EXPECT_EQ(processing.repetition_penalty, 1.2);
    EXPECT_EQ(processing.presence_penalty, -0.5);
    EXPECT_EQ(processing.frequency_penalty, 0.25);
    EXPECT_EQ(processing.no_repeat_ngram_size, 3);
    EXPECT_EQ(processing.min_new_tokens, 7);
    EXPECT_EQ(processing.logit_bias, (std::vector<std::pair<spec::TokenId, float>>{{5, -1.5F}, {9, 2.0F}}));
    EXPECT_EQ(processing.banned_tokens, (std::vector<spec::TokenId>{3, 4}));
    expect_refused({"--logit-bias", "5"}, "--logit-bias 5: must be TOKEN:BIAS");
    expect_refused({"--logit-bias", "x:1"}, "--logit-bias x:1: 'x' must be a whole number");
    expect_refused({"--banned-tokens", "1.5"}, "--banned-tokens 1.5: must be a whole number of at least 0");
    expect_refused({"--repetition-penalty", "0"}, "--repetition-penalty must be a number from 0.001");
    expect_refused({"--presence-penalty", "3"}, "--presence-penalty must be a number from -2 to 2");
}

TEST(Options, ASmallCapHoldsTheDefaultLengthToo) {
    EXPECT_EQ(
        parse_more({"--stop-rule", "constant", "--max-draft-tokens", "3"}).speculation.stop_rules.at(0).get("tokens"),
        3);
}

TEST(Options, AShareIsAPieceOfAFile) {
    const Strings file = {"--target", "t", "--input", "f"};
    const auto with = [&](const std::string& share, Strings more = {}) {
        more.insert(more.begin(), file.begin(), file.end());
        more.insert(more.end(), {"--shard", share});
        return parse(more);
    };
    EXPECT_FALSE(parse(file).shard.has_value());
    EXPECT_EQ(with("3/16").shard->index, 3);
    EXPECT_EQ(with("3/16").shard->of, 16);
    for (const char* bad : {"3", "/4", "3/", "-1/4", "1/0", "1.5/4", "a/b", "1/2/3"})
        EXPECT_NE(refusal([&] { with(bad); }).find("--shard " + std::string(bad)), std::string::npos) << bad;
    EXPECT_NE(refusal([&] { with("4/4"); }).find("the last of 4 is 3/4"), std::string::npos);
    expect_refused({"--shard", "0/2"}, "--shard needs --input FILE");
    EXPECT_NE(refusal([] {
                  parse({"--target", "t", "--input", "-", "--shard", "0/2"});
              }).find("--input FILE"),
              std::string::npos);
}

TEST(Options, StopStringsAddUp) {
    EXPECT_EQ(parse_more({"--stop", "a", "--stop=--b"}).requests.stop_strings, (Strings{"a", "--b"}));
}

TEST(Options, ConfigFileFillsWhatTheCommandLineLeavesOpen) {
    const ConfigFile config("# a comment\n\nmax-new-tokens = 7\n temperature=0.5 \nstop = \"a # b\\n\"\nquiet = true\n"
                            "ignore-eos = false\n");
    const GenerateOptions options = parse_more({"--config", config.path(), "--temperature", "0.25"});
    EXPECT_EQ(options.requests.max_new_tokens, 7);
    EXPECT_EQ(options.requests.sampling.temperature, 0.25);
    EXPECT_EQ(options.requests.stop_strings, Strings{"a # b\n"});
    EXPECT_TRUE(options.quiet);
    EXPECT_FALSE(options.requests.ignore_eos);
}

TEST(Options, ConfigFileErrorsNameFileAndLine) {
    const auto message = [](const std::string& text) {
        const ConfigFile config(text);
        return refusal_of({"--config", config.path()});
    };
    EXPECT_NE(message("\nmax-new-token = 7\n")
                  .find(".conf line 2: unknown option 'max-new-token'; did you mean max-new-tokens?"),
              std::string::npos);
    EXPECT_NE(message("quiet\n").find("line 1: must read 'option = value'"), std::string::npos);
    EXPECT_NE(message("quiet = maybe\n").find("it takes true or false"), std::string::npos);
    EXPECT_NE(message("stop = \"open\n").find("must be a JSON string"), std::string::npos);
    EXPECT_NE(message("\n\nmax-new-tokens = x\n").find("line 3): must be a whole number"), std::string::npos);
    EXPECT_NE(message("dtype = int3\n").find("--dtype int3"), std::string::npos);
    EXPECT_NE(message("seed = 1\nseed = 2\n").find("--seed is given 2 times"), std::string::npos);
    EXPECT_NE(message("config = other\n").find("line 1: config belongs on the command line"), std::string::npos);
    EXPECT_NE(message("\xef\xbb\xbfseed = x\r\n").find("--seed x ("), std::string::npos); // as some editors write
    EXPECT_EQ(refusal_of({"--config", ""}), "--config is empty; name a file");
    EXPECT_EQ(refusal_of({"--config", "/dev/zero"}), "--config /dev/zero: is larger than 1 MiB; name a smaller file");
    EXPECT_NE(refusal_of({"--config", "/dev/null/nonexistent.conf"}).find("/dev/null/nonexistent.conf: cannot be read"),
              std::string::npos);
}

TEST(Options, AMessageNamesTheConfigLineOfEachOptionInIt) {
    const ConfigFile config("seed = 1\ncosts = c\nthreads = 0.5\n");
    const ParsedOptions given = parse_options(groups_of<GenerateOptions>(),
                                              {"--config", config.path(), "--stop-rule", "constant", "--seed", "2"});
    const std::string place = config.path() + " line ";
    EXPECT_EQ(given.with_places("--costs has no effect with --stop-rule constant"),
              "--costs has no effect with --stop-rule constant; --costs is in " + place + "2");
    const std::string said = given.values("threads").front().spelled() + " is wrong"; // has it already
    EXPECT_EQ(given.with_places(said), said);
    EXPECT_EQ(given.with_places("--seed 2 is odd"), "--seed 2 is odd");
    EXPECT_EQ(given.with_places("--costs-of-another"), "--costs-of-another");
}

TEST(Options, ADeclarationBindsFieldDefaultRangeAndHelp) {
    struct {
        int tokens = 7;
        double share = 0.5;
        std::vector<double> temperatures = {0, 1};
        std::optional<int> limit;
        spec::EntropyOf of = spec::EntropyOf::adjusted;
    } own;
    OptionSet set;
    set.group("Own");
    set.add("tokens", "N", own.tokens, at_least(1), "tokens at most").also("n");
    set.add("share", "P", own.share, {0, 1}, "part of it [{}: half]");
    set.add("temperatures", "T,T", own.temperatures, at_least(0), "each by itself");
    set.add("limit", "N", own.limit, at_least(1), "no more than that");
    set.add("of", "WHICH", own.of, {"raw", "adjusted"}, "{}: of rules");
    const std::string help = options_text(set.groups(), false);
    for (const char* part : {"tokens at most [7]; also -n\n", "part of it [0.5: half]\n", "each by itself [0,1]\n",
                             "no more than that\n", "raw, adjusted: of rules [adjusted]\n"})
        EXPECT_NE(help.find(part), std::string::npos) << help;
    set.read(parse_options(set.groups(), {"-n", "9", "--temperatures=2", "--limit", "3", "--of", "raw"}));
    EXPECT_EQ(own.tokens, 9);
    EXPECT_EQ(own.share, 0.5);
    EXPECT_EQ(own.temperatures, std::vector{2.0});
    EXPECT_EQ(own.limit, 3);
    EXPECT_EQ(own.of, spec::EntropyOf::raw);
    EXPECT_EQ(refusal([&] {
                  set.read(parse_options(set.groups(), {"--share", "2"}));
              }),
              "--share 2: must be a number from 0 to 1");
}

TEST(Options, HelpHoldsEveryOptionInItsGroup) {
    const std::vector<OptionGroup>& groups = groups_of<GenerateOptions>();
    const std::string help = options_text(groups, true), first = options_text(groups, false);
    int n_common = 0;
    for (const OptionGroup& group : groups) {
        EXPECT_NE(help.find(group.title + ":"), std::string::npos);
        for (const OptionSpec& option : group.options) {
            n_common += option.is_common ? 1 : 0;
            const std::string begin = "\n  --" + option.name + " ";
            EXPECT_NE(help.find(begin), std::string::npos) << option.name;
            EXPECT_EQ(first.find(begin) != std::string::npos, option.is_common) << option.name;
        }
    }
    EXPECT_EQ(n_common, 25) << "what a new user needs";
    const std::vector<OptionGroup>& of_another = groups_of<DoctorOptions>();
    EXPECT_EQ(options_text(of_another, false), options_text(of_another, true)) << "it has few options";
    EXPECT_EQ(parse_options(groups, {"--nonsense", "--help"}).text("help"), "true");
    EXPECT_EQ(parse_options(groups, {"-h"}).text("help"), "true");
    EXPECT_EQ(parse_options(groups, {"-h", "--help=all"}).text("help"), "all");
}

TEST(Options, CompareRulesAreParsedWithTheirSettings) {
    const auto parse_rules = [](const std::string& rules) {
        return options_of<CompareOptions>(
                   parse_options(groups_of<CompareOptions>(),
                                 {"--target", "t", "--draft", "d", "--input", "i", "--rules", rules}))
            .rules;
    };
    const auto rules = parse_rules("none,static:2.5,moving-average:0.6:3,constant:4");
    ASSERT_EQ(rules.size(), 3u);
    EXPECT_EQ(rules[0][0].get("threshold"), 2.5);
    EXPECT_EQ(rules[1][0].get("factor"), 0.6);
    EXPECT_EQ(rules[1][0].get("window"), 3);
    EXPECT_EQ(rules[2][0].get("tokens"), 4);
    EXPECT_EQ(parse_rules("all").size(), spec::all_stop_rules().size());
    EXPECT_NE(refusal([&] { parse_rules("statics:2"); }).find("--rules statics:2"), std::string::npos);
    EXPECT_NE(refusal([&] { parse_rules("constant:4:4"); }).find("what is 4?"), std::string::npos);
    EXPECT_NE(refusal([&] { parse_rules("constant:4/static"); }).find("rules of 2 levels, but there is 1"),
              std::string::npos);
    const auto cascade = options_of<CompareOptions>(
        parse_options(groups_of<CompareOptions>(), {"--target", "t", "--draft", "d", "--draft", "e", "--input", "i",
                                                    "--rules", "constant:4/static:1,heuristic", "--drafters",
                                                    "model,draft2,ngram+model", "--acceptances", "block,gumbel"}));
    ASSERT_EQ(cascade.rules.size(), 2u);
    EXPECT_EQ(cascade.rules[0][1].get("threshold"), 1);
    EXPECT_EQ(cascade.rules[1][1].name(), "heuristic");
    ASSERT_EQ(cascade.drafters.size(), 3u);
    EXPECT_EQ(describe(cascade.drafters[0]), "draft1<draft2");
    EXPECT_EQ(describe(cascade.drafters[1]), "draft2");
    EXPECT_EQ(describe(cascade.drafters[2]), "ngram+draft1<draft2");
    EXPECT_EQ(cascade.acceptances,
              (std::vector<spec::AcceptanceOptions>{{spec::Acceptance::block}, {spec::Acceptance::gumbel}}));
}

TEST(Options, ANumberMayStandBehindTheNameOfTheRule) {
    const auto levels = parse_more({"--draft", "e", "--stop-rule", "moving-average:0.6:3", "--stop-rule",
                                    "heuristic:4:persistent", "--max-draft-tokens", "9"})
                            .speculation.stop_rules;
    EXPECT_EQ(describe(levels.at(0)), "moving-average:factor=0.6:window=3");
    EXPECT_EQ(describe(levels.at(1)), "heuristic:tokens=4:persistent");
    const std::string all = "cumulative:threshold=2:window=3:min=2:of=adjusted:drop";
    EXPECT_EQ(describe(parse_more({"--stop-rule", all}).speculation.stop_rules.at(0)), all) << "as it is typed";
    EXPECT_EQ(parse_more({"--stop-rule", "heuristic:4:persistent"}).speculation.stop_rules.at(0).max_tokens, 127);
    expect_refused({"--stop-rule", "constant:x"}, "--stop-rule constant:x: x must be one of tokens, min");
    expect_refused({"--stop-rule", "constant:2:3"},
                   "--stop-rule constant:2:3: what is 3? constant takes tokens and min");
    expect_refused({"--stop-rule", "statik:2"}, "--stop-rule statik: must be one of static, ");
    expect_refused({"--stop-rule", "static:2:threshold=3"},
                   "--stop-rule static:2:threshold=3: threshold is given twice");
}

TEST(Options, ARuleOfAListIsRefusedUnderItsOwnName) {
    const auto refused = [](const std::string& rules) {
        return refusal([&] {
            options_of<CompareOptions>(parse_options(
                groups_of<CompareOptions>(), {"--target", "t", "--draft", "d", "--input", "i", "--rules", rules}));
        });
    };
    EXPECT_EQ(refused("constant:x"), "--rules constant:x: x must be one of tokens, min");
    EXPECT_EQ(refused("constant:20"), "--rules constant:20: '20' must be at most --max-draft-tokens 15");
    EXPECT_EQ(refused("static:1..3..1"),
              "--rules static:1..3..1: ranges are for entrodraft simulate; name each setting here");
    EXPECT_NE(refused("statik:2").find("expected-gain, all or none; did you mean static?"), std::string::npos);
    EXPECT_NE(refused("oracle").find("simulate replays it"), std::string::npos);
    EXPECT_NE(refused("grid").find("bench compare has --tune"), std::string::npos);
}

TEST(Options, ListsMayHaveBlanks) {
    const auto given =
        parse_options(groups_of<CompareOptions>(), {"--target", "t", "--draft", "d", "--input", "i", "--rules",
                                                    "static:2, constant:3", "--temperatures", "0, 0.5"});
    const CompareOptions options = options_of<CompareOptions>(given);
    ASSERT_EQ(options.rules.size(), 2u);
    EXPECT_EQ(options.rules[1][0].name(), "constant");
    EXPECT_EQ(options.temperatures, (std::vector{0.0, 0.5}));
}

TEST(Options, ADraftByNumberMustBeThere) {
    EXPECT_EQ(refusal([] {
                  options_of<CompareOptions>(
                      parse_options(groups_of<CompareOptions>(),
                                    {"--target", "t", "--draft", "d", "--input", "i", "--drafters", "draft2"}));
              }),
              "--drafters draft2: --draft is given 1 time; draft1 is the first of them");
}

TEST(Options, TokenizeRefusesWhatHasNoEffect) {
    const auto message = [](const Strings& arguments) {
        return refusal([&] { options_of<TokenizeOptions>(parse_options(groups_of<TokenizeOptions>(), arguments)); });
    };
    EXPECT_EQ(message({"--model", "m", "--text", "t"}), "accepted");
    EXPECT_NE(message({"--text", "t"}).find("--model DIR is missing"), std::string::npos);
    EXPECT_NE(message({"--model", "m"}).find("nothing to do"), std::string::npos);
    EXPECT_NE(message({"--model", "m", "--text", "t", "--input", "i"}).find("exclude each other"), std::string::npos);
    EXPECT_NE(message({"--model", "m", "--input", "i", "--skip-special-tokens"}).find("without --decode"),
              std::string::npos);
    EXPECT_NE(message({"--model", "m", "--text", "t", "--decode"}).find("--decode goes with --input"),
              std::string::npos);
}

} // namespace options_test
