// generation_config.json of a target, from outside and in: texts are transformers' (generation_config_golden.json)
// plainly and whoever drafts; which of line, option and file counts; what is said of fields that do not count; what is
// refused.
#include "launch/cli/generation_defaults.h"
#include "launch/io/requests.h"
#include "tests/launch/command_line.h"
#include "tests/launch/model_copy.h"
#include "tests/launch/prompt_limits.h"
#include "tests/model/temporary_directory.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>

namespace generation_config_test {

using namespace test;
using namespace entrodraft;
using namespace entrodraft::launch;

const std::string kSource = ENTRODRAFT_SOURCE_DIR "/";
const std::string kDemo = kSource + "model/demo/target";

// A target whose generation_config.json is this one.
class Target {
  public:
    Target(const std::string& original, const Json& file) : copy_(original) {
        std::ofstream(copy_.file("generation_config.json")) << file;
    }
    std::string path() const { return copy_.path(); }
    std::string file() const { return copy_.file("generation_config.json"); }

  private:
    ModelCopy copy_;
};

std::string lines_of_prompts(const Json& prompts) {
    std::string lines;
    for (const Json& prompt : prompts)
        lines += Json{{"prompt_token_ids", prompt}}.dump() + "\n";
    return lines;
}

Json tokens_of(const Ended& ended) {
    Json tokens = Json::array();
    for (const Json& line : lines_of(ended.out))
        tokens.push_back(line.value("token_ids", line));
    return tokens;
}

// Every `step`-th of the golden's cases, from `first` on, with each way to decode.
void expect_golden(std::size_t first, std::size_t step, const std::vector<Strings>& ways) {
    const Json golden = Json::parse(std::ifstream(kSource + "tests/launch/generation_config_golden.json"));
    ASSERT_EQ(golden.at("cases").size(), 40U);
    std::size_t changed = 0, n = 0;
    for (std::size_t i = first; i < 40; i += step, ++n) {
        const Json& one = golden.at("cases")[i];
        SCOPED_TRACE(one.at("file").dump());
        const Target target(kSource + one.at("model").get<std::string>(), one.at("file"));
        const ScratchFile input(lines_of_prompts(one.at("prompts")));
        const Strings options = one.at("options").get<Strings>();
        const Strings command =
            Strings{"generate", "--target", target.path(), "--input", input.path(), "--quiet", "--threads", "1"} +
            options;
        const bool has_beams = std::ranges::count(options, "--num-beams") > 0;
        const std::string draft = kSource + one.at("model").get<std::string>() + "/../draft";
        for (Strings way : ways) {
            if (has_beams && way.size() > 2) continue; // beams are drafted for by one draft, without more
            std::ranges::replace(way, std::string("DRAFT"), draft);
            EXPECT_EQ(tokens_of(run(command + way)), one.at("tokens")) << testing::PrintToString(way);
        }
        const bool is_all = options.front() == "--generation-config";
        const Ended without = run(command + (is_all ? Strings{"--max-new-tokens", "24"} : Strings{}) +
                                  (is_all ? Strings{} : Strings{"--generation-config", "none"}));
        if (tokens_of(without) != one.at("tokens")) ++changed;
    }
    EXPECT_GT(2 * changed, n) << "the file changes next to nothing";
}

TEST(GenerationConfig, TextsAreThoseOfTransformers) {
    expect_golden(0, 1, {{}});
}

TEST(GenerationConfig, SpeculativeTextsAreThoseOfTransformersToo) {
    expect_golden(0, 4, {{"--draft", "DRAFT"}});
    expect_golden(1, 4, {{"--draft", "DRAFT", "--tree", "2,1"}});
    expect_golden(2, 4, {{"--drafter", "ngram", "--batch-size", "2"}, {"--draft", "DRAFT"}});
    expect_golden(3, 4, {{"--draft", "DRAFT", "--stop-rule", "constant", "--batch-size", "3"}});
}

TEST(GenerationConfig, IsAppliedByEveryRankToItsSlice) {
    const Json golden = Json::parse(std::ifstream(kSource + "tests/launch/generation_config_golden.json"));
    const Json& one = golden.at("cases")[17]; // all rules at once
    ASSERT_TRUE(one.at("file").contains("sequence_bias") && one.at("file").contains("bad_words_ids"));
    const Target target(kDemo, one.at("file"));
    const ScratchFile input(lines_of_prompts(one.at("prompts")));
    const Strings command = Strings{"generate", "--target", target.path(), "--input", input.path(), "--quiet"} +
                            one.at("options").get<Strings>() + Strings{"--draft", kSource + "model/demo/draft"};
    EXPECT_EQ(tokens_of(run_ranks(2, command)), one.at("tokens"));
    EXPECT_EQ(tokens_of(run_ranks(2, command + Strings{"--replicas", "2"})), one.at("tokens"));
}

// ---- what counts ----

RequestDefaults defaults_of(const Json& file, const Strings& given = {}, GenerationConfigUse use = {},
                            RequestDefaults requests = {}) {
    const Target target(kTarget, file);
    ModelOptions models;
    models.target = target.path();
    requests.given.insert(given.begin(), given.end());
    requests.generation_config = use;
    take_generation_config(models, requests);
    return requests;
}

TEST(GenerationConfig, OptionsGoBeforeTheFileAndLinesBeforeBoth) {
    const Json file = {{"repetition_penalty", 1.5}, {"suppress_tokens", {3}}, {"sequence_bias", {{{4}, -2.0}}},
                       {"bad_words_ids", {{5, 6}}}, {"stop_strings", "end"},  {"min_length", 8}};
    RequestDefaults options;
    options.processing.repetition_penalty = 1.25;
    const RequestDefaults of_file = defaults_of(file);
    EXPECT_EQ(of_file.processing.repetition_penalty, 1.5);
    EXPECT_EQ(of_file.stop_strings, Strings{"end"});
    const RequestDefaults given =
        defaults_of(file, {"repetition-penalty", "banned-tokens", "logit-bias", "stop", "min-new-tokens"}, {}, options);
    EXPECT_EQ(given.processing.repetition_penalty, 1.25);
    EXPECT_TRUE(given.processing.suppress_tokens.empty() && given.stop_strings.empty());
    EXPECT_EQ(given.processing.sequence_bias.size(), 1U) << "bad words stay";
    EXPECT_EQ(given.file_lengths.min_length, 0);
    const auto request = [&](const std::string& fields) {
        const Line line = {R"({"prompt": "abc")" + fields + "}"};
        return std::get<spec::Request>(parse_request(line, 1, of_file, limits_of_bytes()));
    };
    const spec::Request plain = request("");
    EXPECT_EQ(plain.processing.min_new_tokens, 8 - static_cast<int>(plain.prompt.size()));
    EXPECT_EQ(plain.processing.sequence_bias.size(), 2U);
    const spec::Request line = request(R"(, "repetition_penalty": 1, "banned_tokens": [7], "logit_bias": {"9": 1},
                                          "stop": "x", "min_new_tokens": 0)");
    EXPECT_EQ(line.processing.repetition_penalty, 1);
    EXPECT_TRUE(line.processing.suppress_tokens.empty());
    EXPECT_EQ(line.processing.sequence_bias.size(), 1U) << "bad words stay";
    EXPECT_EQ(line.stop_strings, Strings{"x"});
    EXPECT_EQ(line.processing.min_new_tokens, 0);
}

TEST(GenerationConfig, SamplingAndLengthsCountWithAllAndNothingWithNone) {
    const Json file = {
        {"do_sample", true}, {"temperature", 0.5}, {"top_p", 0.75}, {"max_new_tokens", 9}, {"repetition_penalty", 1.5}};
    const RequestDefaults greedy = defaults_of(file), all = defaults_of(file, {"top-p"}, GenerationConfigUse::all),
                          none = defaults_of(file, {}, GenerationConfigUse::none);
    EXPECT_EQ(greedy.sampling.temperature, 0);
    EXPECT_FALSE(greedy.file_lengths.max_new_tokens.has_value());
    EXPECT_EQ(all.sampling.temperature, 0.5);
    EXPECT_EQ(all.body_temperature, 0.5);
    EXPECT_EQ(all.sampling.top_k, 50) << "transformers' own";
    EXPECT_EQ(all.sampling.top_p, 1) << "the option's";
    EXPECT_EQ(all.file_lengths.max_new_tokens, 9);
    EXPECT_EQ(none.processing.repetition_penalty, 1);
    EXPECT_EQ(defaults_of({{"temperature", 0.5}}, {}, GenerationConfigUse::all).sampling.temperature, 0)
        << "without do_sample it has no effect in transformers";
    const auto item = [](const std::string& fields) {
        const RequestDefaults defaults = defaults_of({{"max_length", 3}}, {}, GenerationConfigUse::all);
        return parse_request({R"({"prompt": "abc")" + fields + "}"}, 1, defaults, limits_of_bytes());
    };
    EXPECT_NE(std::get<BadLine>(item("")).error.find(
                  "max_length of generation_config.json, of which the prompt takes 3, leaves no room"),
              std::string::npos);
    EXPECT_EQ(std::get<spec::Request>(item(R"(, "max_new_tokens": 5)")).max_new_tokens, 5);
}

TEST(GenerationConfig, WithoutTheFileFieldsOfConfigCount) {
    const ModelCopy target(kTarget);
    target.set_in_config("repetition_penalty", 1.75);
    std::filesystem::remove(target.file("generation_config.json"));
    ModelOptions models;
    models.target = target.path();
    RequestDefaults requests;
    take_generation_config(models, requests);
    EXPECT_EQ(requests.processing.repetition_penalty, 1.75);
    std::ofstream(target.file("generation_config.json")) << "{}";
    RequestDefaults others;
    take_generation_config(models, others);
    EXPECT_EQ(others.processing.repetition_penalty, 1);
}

// ---- what is said ----

TEST(GenerationConfig, WhatDoesNotCountIsNamedInALineAndWhatIsNotServedInAnother) {
    const Target target(kTarget, {{"do_sample", true},
                                  {"temperature", 0.5},
                                  {"top_k", 7},
                                  {"max_length", 99},
                                  {"num_beams", 4},
                                  {"guidance_scale", 1.5},
                                  {"penalty_alpha", 0}});
    const Strings command = {"generate", "--target", target.path(), "--prompt", "a", "--max-new-tokens", "2"};
    const std::string unserved =
        "warning: " + target.file() +
        ": not served, so that transformers' texts are others: num_beams 4, guidance_scale 1.5;";
    const Ended greedy = run(command), all = run(command + Strings{"--generation-config", "all"}),
                none = run(command + Strings{"--generation-config", "none"}), quiet = run(command + Strings{"--quiet"});
    EXPECT_NE(greedy.err.find("note: " + target.file() + ": not applied: do_sample true, temperature 0.5, top_k 7;"),
              std::string::npos)
        << greedy.err;
    for (const Ended& ended : {greedy, all})
        EXPECT_NE(ended.err.find(unserved), std::string::npos) << ended.err;
    EXPECT_EQ(all.err.find("not applied"), std::string::npos) << all.err;
    EXPECT_EQ(none.err.find("generation_config"), std::string::npos) << none.err;
    EXPECT_EQ(quiet.err, "");
    EXPECT_EQ(quiet.out, greedy.out);
}

TEST(GenerationConfig, WhatMakesNoSenseIsRefusedByFileAndField) {
    const Strings last = {"--prompt", "a", "--max-new-tokens", "2"};
    for (const auto& [file, message] : std::vector<std::pair<Json, std::string>>{
             {{{"repetition_penalty", "x"}}, "field 'repetition_penalty' holds 'x', which is not a number"},
             {{{"repetition_penalty", 2000}}, "--repetition-penalty must be a number from 0.001 to 1000"},
             {{{"bad_words_ids", {Json::array()}}}, "field 'bad_words_ids' holds []"},
             {{{"sequence_bias", {{{1, -1}, 2.0}}}}, "field 'sequence_bias' holds -1, which is not a token id"},
             {{{"exponential_decay_length_penalty", {1}}}, "field 'exponential_decay_length_penalty' holds [1]"},
             {{{"stop_strings", ""}}, "one is empty"},
             {{{"max_length", 0}}, "field 'max_length' is 0"}}) {
        const Target target(kTarget, file);
        const Ended ended = run(Strings{"generate", "--target", target.path()} + last);
        EXPECT_NE(ended.code, 0) << file;
        EXPECT_NE(ended.err.find(target.file()), std::string::npos) << ended.err;
        EXPECT_NE(ended.err.find(message), std::string::npos) << ended.err;
        EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
        const Ended without = run(Strings{"generate", "--target", target.path(), "--generation-config", "none"} + last);
        EXPECT_EQ(without.code, 0) << without.err;
    }
    const Strings all = {"--generation-config", "all"};
    const Target below(kTarget, {{"do_sample", true}, {"temperature", -1}});
    EXPECT_EQ(run(Strings{"generate", "--target", below.path()} + last + all).code, 2);
    const Target greedy(kTarget, Json::object());
    const Ended unused = run(Strings{"generate", "--target", greedy.path(), "--top-k", "5"} + last + all);
    EXPECT_EQ(unused.code, 2) << "neither options nor the file sample";
    EXPECT_NE(unused.err.find("--top-k has no effect at temperature 0"), std::string::npos) << unused.err;
    const Target stops(kTarget, {{"stop_strings", "x"}});
    const Ended beams = run(Strings{"generate", "--target", stops.path(), "--num-beams", "2"} + last);
    EXPECT_EQ(beams.code, 2);
    EXPECT_NE(beams.err.find("--num-beams does not go with stop_strings of " + stops.file()), std::string::npos);
}

// ---- other commands ----

TEST(GenerationConfig, RecordsAndTheirResumptionTakeIt) {
    const Target target(kDemo, {{"repetition_penalty", 1.5}, {"suppress_tokens", {263}}, {"eos_token_id", 0}});
    const ScratchFile input("{\"prompt\": \"The ferry\"}\n"), costs(wide_costs_file());
    const TemporaryDirectory directory;
    const std::string recording = (directory.path() / "recording").string();
    const Strings pair = {
        "--target", target.path(), "--draft", kSource + "model/demo/draft", "--input", input.path(), "--max-new-tokens",
        "12",       "--threads",   "1"};
    const Strings command =
        Strings{"record"} + pair + Strings{"--output", recording, "--costs", costs.path(), "--quiet"};
    ASSERT_EQ(run(command).code, 0);
    const Ended generated = run(Strings{"generate", "--quiet"} + pair);
    const Ended without = run(Strings{"generate", "--quiet", "--generation-config", "none"} + pair);
    EXPECT_NE(tokens_of(without), tokens_of(generated));
    const Ended simulated = run({"simulate", "--recording", recording, "--rules", "expected-gain", "--json"});
    ASSERT_EQ(simulated.code, 0) << simulated.err;
    const Ended resumed = run(command + Strings{"--resume"});
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    const Ended other = run(command + Strings{"--resume", "--generation-config", "none"});
    EXPECT_EQ(other.code, 1);
    EXPECT_NE(other.err.find("was begun with other options: requests.generation_config was "
                             "{\"suppress_tokens\":[263]}, and is null now"),
              std::string::npos)
        << other.err;
}

} // namespace generation_config_test
