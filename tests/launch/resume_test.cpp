// --resume of another run: OUTPUT.settings says what made the texts that are there, and of which lines.
#include "tests/launch/command_line.h"
#include "tests/launch/model_copy.h"
#include "tests/launch/scratch_file.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

namespace resume_test {

using namespace test;

const std::string kLines = "{\"id\": \"a\", \"prompt\": \"The ferry\"}\n{\"id\": \"b\", \"prompt\": \"left\"}\n"
                           "no JSON\n{\"id\": 7, \"prompt\": \"at\", \"temperature\": 1}\n";

std::string text_of(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
}

std::string first_lines(const std::string& text, int n) {
    std::size_t end = 0;
    for (int i = 0; i < n; ++i)
        end = text.find('\n', end) + 1;
    return text.substr(0, end);
}

// An output in a place of its own, and the run that writes it.
class Output {
  public:
    std::string path() const { return file_.path(); }
    std::string settings() const { return file_.path() + ".settings"; }
    void write(const std::string& text) const { std::ofstream(path(), std::ios::binary) << text; }
    void write_settings(const std::string& text) const { std::ofstream(settings(), std::ios::binary) << text; }
    // Texts without what depends on time.
    std::vector<Json> results() const {
        std::vector<Json> lines = lines_of(file_.text());
        for (Json& line : lines)
            line.erase("stats");
        return lines;
    }

    Strings command(const std::string& input, const Strings& more = {}, const std::string& target = kTarget) const {
        return Strings{"generate", "--target",         target, "--input",   input, "--output",
                       path(),     "--max-new-tokens", "4",    "--threads", "1"} +
               more;
    }

  private:
    ScratchFile file_{""};
};

TEST(ResumeSettings, AreWrittenWithAHashForEachLine) {
    const ScratchFile input(kLines);
    const Output output;
    ASSERT_EQ(run(output.command(input.path())).code, 3);
    const std::vector<Json> lines = lines_of(text_of(output.settings()));
    ASSERT_EQ(lines.size(), 5u);
    EXPECT_EQ(lines[0]["schema_version"], 1);
    const Json& settings = lines[0]["settings"];
    for (const char* name : {"target_digest", "dtype", "max_context", "temperature", "max_new_tokens", "stop", "seed"})
        EXPECT_TRUE(settings.contains(name)) << name;
    EXPECT_EQ(settings["acceptance"], "gumbel");
    for (const std::string& word : {input.path(), output.path(), kTarget, std::string("rank"), std::string("batch")})
        EXPECT_EQ(lines[0].dump().find(word), std::string::npos) << word;
    for (std::size_t i = 1; i < lines.size(); ++i)
        EXPECT_EQ(lines[i].get<std::string>().size(), 16u);
}

TEST(ResumeSettings, OfAnotherRunAreRefusedByNameWithBothValues) {
    const ScratchFile input(kLines);
    const Output output;
    ASSERT_EQ(run(output.command(input.path())).code, 3);
    const std::string before = text_of(output.path()), settings = text_of(output.settings());
    const auto refusal = [&](const Strings& more, const std::string& target = kTarget) {
        const Ended ended = run(output.command(input.path(), Strings{"--resume"} + more, target));
        EXPECT_EQ(ended.code, 2) << ended.err;
        EXPECT_NE(ended.err.find("--resume: " + output.path() + " was written with other settings: "),
                  std::string::npos)
            << ended.err;
        EXPECT_EQ(text_of(output.path()), before);
        EXPECT_EQ(text_of(output.settings()), settings);
        EXPECT_EQ(ended.err.find("openai"), std::string::npos) << ended.err;
        return ended.err;
    };
    EXPECT_NE(refusal({"--temperature", "0.5"}).find("temperature was 0.0, and is 0.5 now"), std::string::npos);
    EXPECT_NE(refusal({"--repetition-penalty", "1.5"}).find("repetition_penalty was 1.0, and is 1.5 now"),
              std::string::npos);
    EXPECT_NE(refusal({"--stop", "x"}).find("stop was [], and is [\"x\"] now"), std::string::npos);
    EXPECT_NE(refusal({"--regex", "a+"}).find("regex was none, and is 'a+' now"), std::string::npos);
    EXPECT_NE(refusal({"--max-context", "60"}).find("max_context was 256, and is 60 now"), std::string::npos);
    EXPECT_NE(refusal({"--dtype", "bfloat16"}).find("dtype was 'float32', and is 'bfloat16' now"), std::string::npos);
    EXPECT_NE(refusal({}, kDraft).find("target_digest was '"), std::string::npos);
    const ModelCopy other(kTarget);
    other.flip_bit_before_end(1);
    EXPECT_NE(refusal({}, other.path()).find("target_digest was '"), std::string::npos) << "a bit of the weights";
}

TEST(ResumeSettings, NameTheOptionsOfDefaultsOfOpenAisRequests) {
    const ScratchFile input("{\"id\": \"a\", \"prompt\": \"The ferry\", \"max_new_tokens\": 2}\n");
    const Output output;
    Strings command = output.command(input.path());
    const auto option = std::find(command.begin(), command.end(), "--max-new-tokens");
    command.erase(option, option + 2);
    ASSERT_EQ(run(command).code, 0);
    const Json head = lines_of(text_of(output.settings()))[0];
    EXPECT_FALSE(head["settings"].contains("openai_max_tokens")) << "nobody has set it";
    const Ended refused =
        run(command + Strings{"--resume", "--max-new-tokens", head["settings"]["max_new_tokens"].dump()});
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("other settings: max_new_tokens of OpenAI's requests was none, and is "),
              std::string::npos)
        << refused.err;
    Json earlier = head; // as earlier versions wrote it
    earlier["settings"]["openai_max_tokens"] = nullptr;
    output.write_settings(earlier.dump() +
                          text_of(output.settings()).substr(first_lines(text_of(output.settings()), 1).size() - 1));
    const Ended resumed = run(command + Strings{"--resume"});
    EXPECT_EQ(resumed.code, 0) << resumed.err;
}

TEST(ResumeSettings, LetAllGoOnThatMakesNoOtherText) {
    const ScratchFile input(kLines);
    const Output whole;
    ASSERT_EQ(run(whole.command(input.path())).code, 3);
    const std::string text = text_of(whole.path()), settings = text_of(whole.settings());
    const ModelCopy elsewhere(kTarget);
    const std::vector<Strings> ways = {{}, {"--batch-size", "2"}, {"--draft", kDraft}, {"--drafter", "ngram"}};
    for (const Strings& way : ways) {
        const Output output;
        output.write(first_lines(text, 2));
        output.write_settings(settings); // and a hash more than lines, as a death leaves it
        const Ended ended = run(output.command(input.path(), Strings{"--resume"} + way, elsewhere.path()));
        EXPECT_EQ(ended.code, 3) << ended.err;
        EXPECT_EQ(ended.err.find("warning: there is no"), std::string::npos) << ended.err;
        EXPECT_EQ(output.results(), whole.results());
        EXPECT_EQ(text_of(output.settings()), settings);
    }
    const Output output;
    output.write(first_lines(text, 1));
    output.write_settings(first_lines(settings, 2) + "\"01"); // torn
    EXPECT_EQ(run_ranks(2, output.command(input.path(), {"--resume", "--replicas", "2"})).code, 3);
    EXPECT_EQ(output.results(), whole.results());
    EXPECT_EQ(text_of(output.settings()), settings);
}

TEST(ResumeSettings, TakeNewLinesAndRefuseAChangedOneByName) {
    const ScratchFile input(kLines), longer(kLines + "{\"id\": \"new\", \"prompt\": \"x\"}\n"),
        changed(first_lines(kLines, 1) + "{\"id\": \"b\", \"prompt\": \"right\"}\n" +
                kLines.substr(first_lines(kLines, 2).size()));
    const Output output;
    ASSERT_EQ(run(output.command(input.path())).code, 3);
    const std::string before = text_of(output.path());
    const Ended refused = run(output.command(changed.path(), {"--resume"}));
    EXPECT_EQ(refused.code, 1);
    EXPECT_NE(refused.err.find(changed.path() + " line 2 (id \"b\") has changed since " + output.path() +
                               " line 2 was made of it"),
              std::string::npos)
        << refused.err;
    EXPECT_EQ(text_of(output.path()), before);
    EXPECT_EQ(run(output.command(longer.path(), {"--resume"})).code, 3);
    EXPECT_EQ(text_of(output.path()).substr(0, before.size()), before);
    EXPECT_EQ(lines_of(text_of(output.path())).size(), 5u);
    EXPECT_EQ(lines_of(text_of(output.settings())).size(), 6u);
    EXPECT_EQ(run(output.command(changed.path(), {"--resume", "--resume-anyway"})).code, 1) << "it lacks a line";
}

TEST(ResumeSettings, GoOnAnywayWhereThatIsAskedFor) {
    const ScratchFile input(kLines);
    const Output output;
    output.write("");
    ASSERT_EQ(run(output.command(input.path())).code, 3);
    output.write(first_lines(text_of(output.path()), 2));
    const Ended anyway =
        run(output.command(input.path(), {"--resume", "--resume-anyway", "--repetition-penalty", "1.5"}));
    EXPECT_EQ(anyway.code, 3) << anyway.err;
    EXPECT_NE(anyway.err.find("goes on with other settings: repetition_penalty was 1.0, and is 1.5 now"),
              std::string::npos)
        << anyway.err;
    EXPECT_EQ(lines_of(text_of(output.path())).size(), 4u);
    const Ended again = run(output.command(input.path(), {"--resume", "--repetition-penalty", "1.5"}));
    EXPECT_EQ(again.code, 3) << again.err;
    EXPECT_EQ(run(output.command(input.path(), {"--resume"})).code, 2) << "these are its settings now";
}

TEST(ResumeSettings, ThatAreMissingAreOneWarning) {
    const ScratchFile input(kLines);
    const Output output;
    ASSERT_EQ(run(output.command(input.path())).code, 3);
    const std::string settings = text_of(output.settings());
    std::filesystem::remove(output.settings());
    const std::string warning = "warning: there is no " + output.settings();
    EXPECT_NE(run(output.command(input.path(), {"--resume"})).err.find(warning), std::string::npos);
    EXPECT_EQ(text_of(output.settings()), settings);
    EXPECT_EQ(run(output.command(input.path(), {"--resume"})).err.find("warning: there"), std::string::npos);
    output.write_settings(first_lines(settings, 3)); // what was not on the disk when the power failed
    const Ended fewer = run(output.command(input.path(), {"--resume"}));
    EXPECT_NE(fewer.err.find("knows 2 of the 4 lines of " + output.path()), std::string::npos) << fewer.err;
    EXPECT_EQ(text_of(output.settings()), settings);
}

TEST(ResumeSettings, AFileOfSomebodyElseIsNotReplaced) {
    const ScratchFile input(kLines);
    for (const std::string text : {"", "mine\n", "{\"settings\": 3}\n"}) {
        const Output output;
        output.write_settings(text);
        const Ended refused = run(output.command(input.path()));
        EXPECT_EQ(refused.code, 1);
        EXPECT_NE(refused.err.find(output.settings() + " is no file of settings that this program wrote"),
                  std::string::npos)
            << refused.err;
        EXPECT_EQ(text_of(output.settings()), text);
    }
}

TEST(ResumeSettings, ASummaryDoesNotTakeTheirPlace) {
    const ScratchFile input(kLines);
    const Output output;
    const Ended refused = run(output.command(input.path(), {"--summary", output.settings()}));
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("is where the settings of --output are kept"), std::string::npos) << refused.err;
}

TEST(ResumeSettings, HoldDraftAndRuleWhereTheseMakeTheText) {
    const ScratchFile input(kLines);
    const Strings rejection = {"--acceptance", "rejection", "--draft", kDraft, "--stop-rule", "static:2"};
    const Output output;
    ASSERT_EQ(run(output.command(input.path(), rejection)).code, 3);
    EXPECT_EQ(run(output.command(input.path(), rejection + Strings{"--resume"})).code, 3);
    const auto refusal = [&](const Strings& more) {
        const Ended ended = run(output.command(input.path(), more + Strings{"--resume"}));
        EXPECT_EQ(ended.code, 2) << ended.err;
        return ended.err;
    };
    const ModelCopy other(kDraft);
    other.flip_bit_before_end(1);
    EXPECT_NE(refusal({"--acceptance", "rejection", "--draft", kDraft, "--stop-rule", "constant:3"})
                  .find("stop_rule was [\"static:2\"], and is [\"constant:3\"] now"),
              std::string::npos);
    EXPECT_NE(refusal({"--acceptance", "rejection", "--draft", other.path(), "--stop-rule", "static:2"})
                  .find("draft_digests was ["),
              std::string::npos);
    EXPECT_NE(refusal({"--draft", kDraft}).find("acceptance was 'rejection', and is 'gumbel' now"), std::string::npos);
}

TEST(ResumeSettings, AreThoseOfShardsAndOfOpenAisLinesToo) {
    const std::string request =
        R"({"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": {"prompt": ")";
    const ScratchFile input(request + "a\"}}\n"), changed(request + "b\"}}\n");
    const Output output;
    ASSERT_EQ(run(output.command(input.path())).code, 0);
    EXPECT_EQ(run(output.command(input.path(), {"--resume"})).code, 0);
    EXPECT_NE(run(output.command(changed.path(), {"--resume"})).err.find("line 1 (id \"x\") has changed"),
              std::string::npos);
    const ScratchFile lines(kLines);
    const Output shard;
    ASSERT_EQ(run(shard.command(lines.path(), {"--shard", "0/2"})).code, 0);
    EXPECT_EQ(lines_of(text_of(shard.settings())).size(), 3u);
    EXPECT_EQ(run(shard.command(lines.path(), {"--resume", "--shard", "0/2"})).code, 0);
}

} // namespace resume_test
