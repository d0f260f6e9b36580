// Output lines: their form, their order, and what --resume makes of a file.
#include "launch/io/results.h"
#include "launch/start/failure.h"
#include "tests/launch/prompt_limits.h"
#include "tests/launch/scratch_file.h"

#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace results_test {

using namespace entrodraft;
using namespace entrodraft::launch;

// Serves the rest of `input` into `output` as generate would, with the prompt itself as its text.
void serve(const std::string& input, const std::string& output, Existing existing, int at_most = 1000) {
    ResultWriter writer(output, existing);
    RequestReader reader(input, RequestDefaults{}, test::limits_of_bytes());
    skip_served(reader, writer, output);
    auto order = static_cast<std::int64_t>(writer.served().size());
    for (int i = 0; i < at_most; ++i) {
        const auto item = reader.next();
        if (!item) return;
        if (const auto* bad = std::get_if<BadLine>(&*item)) {
            writer.put(order++, error_line(*bad));
            continue;
        }
        spec::Completion completion;
        completion.tokens = std::get<spec::Request>(*item).prompt;
        completion.text = "text";
        writer.put(order++, result_line(std::get<spec::Request>(*item), completion));
    }
}

template <typename Call> std::string message_of(Call call) {
    try {
        call();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "nothing thrown";
}

const std::string kInput =
    "{\"id\":\"a\",\"prompt\":\"x\"}\nbroken\n\n{\"prompt\":\"y\"}\n{\"id\":\"a\",\"prompt\":\"z\"}\n"
    "{\"id\":9,\"prompt\":\"w\",\"note\":1}\n";

TEST(Results, LineHoldsTheFieldsOfTheDesignInOrder) {
    spec::Request request;
    request.id = "{\"k\":1}";
    spec::Completion completion;
    completion.text = "a \"b\"\n\xc3\xa9";
    completion.tokens = {4, 5};
    completion.finish_reason = spec::FinishReason::stop;
    completion.stats.prompt_tokens = 3;
    completion.stats.new_tokens = 2;
    completion.stats.seconds.total = 0.5;
    completion.stats.seconds.prefill = 0.1;
    completion.stats.seconds.first_token = 0.2;
    const std::string line = result_line(request, completion);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const auto json = nlohmann::ordered_json::parse(line);
    std::vector<std::string> names, stats;
    for (const auto& [name, value] : json.items())
        names.push_back(name);
    for (const auto& [name, value] : json["stats"].items())
        stats.push_back(name);
    EXPECT_EQ(names, (std::vector<std::string>{"id", "text", "token_ids", "finish_reason", "stats"}));
    EXPECT_EQ(stats, (std::vector<std::string>{"prompt_tokens", "new_tokens", "rounds", "drafted", "accepted",
                                               "target_passes", "draft_passes", "further_draft_rows",
                                               "draft_acceptance_rate", "mean_acceptance_length", "alpha", "seconds",
                                               "ms_per_token", "ttft_ms", "tpot_ms"}));
    EXPECT_EQ(json["stats"]["ttft_ms"], 200);
    EXPECT_EQ(json["stats"]["tpot_ms"], 300);
    EXPECT_EQ(json["text"], completion.text);
    EXPECT_EQ(json["id"]["k"], 1);
    EXPECT_EQ(json["finish_reason"], "stop");
    EXPECT_DOUBLE_EQ(json["stats"]["ms_per_token"].get<double>(), 200);
}

TEST(Results, MetadataStandsInTheLineAsItIs) {
    spec::Request request;
    request.metadata = "{\"n\":12345678901234567890123}";
    EXPECT_EQ(result_line(request, {}).find(R"({"id":null,"metadata":{"n":12345678901234567890123},"text":"")"), 0u);
}

TEST(Resume, KnowsIdsThatADoubleWouldRound) {
    const test::ScratchFile input("{\"id\":18446744073709551616,\"prompt\":\"x\"}\n"
                                  "{\"id\":18446744073709551617,\"prompt\":\"y\"}\n");
    const test::ScratchFile whole("");
    serve(input.path(), whole.path(), Existing::refuse);
    const std::string expected = whole.text();
    EXPECT_EQ(expected.find("error"), std::string::npos) << expected;
    const test::ScratchFile cut(expected.substr(0, expected.find('\n') + 1));
    serve(input.path(), cut.path(), Existing::resume);
    EXPECT_EQ(cut.text(), expected);
}

TEST(Resume, TakesMetadataAsDeepAsAnInputLineMayBe) {
    const std::string deepest = std::string(kMaxDepth - 1, '[') + std::string(kMaxDepth - 1, ']');
    const test::ScratchFile input("{\"id\":1,\"prompt\":\"x\",\"own\":" + deepest + "}\n{\"id\":2,\"prompt\":\"y\"}\n");
    const test::ScratchFile whole("");
    serve(input.path(), whole.path(), Existing::refuse);
    const std::string expected = whole.text();
    EXPECT_EQ(expected.find("error"), std::string::npos) << expected;
    const test::ScratchFile cut(expected.substr(0, expected.find('\n') + 1));
    serve(input.path(), cut.path(), Existing::resume);
    EXPECT_EQ(cut.text(), expected);
}

TEST(Resume, RefusesAPipeBeforeItWaitsForAReader) {
    const test::ScratchFile place("");
    const std::string pipe = place.path() + "-pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_NE(message_of([&] { ResultWriter(pipe, Existing::resume); }).find("to be a plain file"), std::string::npos);
    const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
    EXPECT_FALSE(ResultWriter(pipe, Existing::refuse).is_plain_file()) << "nothing that --resume could go on with";
    close(reader);
    unlink(pipe.c_str());
}

TEST(Results, ErrorLinesCarryIdOrLine) {
    EXPECT_EQ(error_line({"null", 7, "not JSON"}), R"({"id":null,"line":7,"error":"not JSON"})");
    EXPECT_EQ(error_line({"\"x\"", std::nullopt, "bad \xff byte"}),
              "{\"id\":\"x\",\"error\":\"bad \xef\xbf\xbd byte\"}");
}

TEST(Results, LinesComeOutInInputOrder) {
    const test::ScratchFile file("");
    ResultWriter writer(file.path(), Existing::refuse);
    writer.put(2, "c");
    writer.put(0, "a");
    EXPECT_EQ(file.text(), "a\n");
    writer.put(1, "b");
    EXPECT_EQ(file.text(), "a\nb\nc\n");
}

TEST(Results, AFileThatHoldsResultsIsNotOverwritten) {
    const test::ScratchFile file("precious\n");
    EXPECT_NE(message_of([&] { ResultWriter(file.path(), Existing::refuse); }).find("holds results already"),
              std::string::npos);
    EXPECT_EQ(file.text(), "precious\n");
}

TEST(Results, ANewFileGoesWithItsWriterWhileItIsEmpty) {
    const test::ScratchFile scratch("");
    const std::string file = scratch.path();
    { const ResultWriter there_before(file, Existing::refuse); }
    EXPECT_TRUE(std::filesystem::exists(file));
    std::filesystem::remove(file);
    { const ResultWriter left(file, Existing::resume); }
    EXPECT_FALSE(std::filesystem::exists(file));
    { ResultWriter(file, Existing::refuse).keep(); }
    EXPECT_TRUE(std::filesystem::exists(file));
    std::filesystem::remove(file);
    { ResultWriter(file, Existing::refuse).write_text("x"); }
    EXPECT_EQ(scratch.text(), "x");
    std::filesystem::remove(file);
    {
        const ResultWriter replaced(file, Existing::refuse);
        std::filesystem::remove(file);
        std::ofstream(file) << "";
    }
    EXPECT_TRUE(std::filesystem::exists(file)) << "it is another's";
}

TEST(Results, OneRunAtATimeWritesAFile) {
    const test::ScratchFile file("");
    const ResultWriter first(file.path(), Existing::refuse);
    EXPECT_NE(message_of([&] { ResultWriter(file.path(), Existing::resume); }).find("another run"), std::string::npos);
}

TEST(Results, WriteErrorsAreReported) {
    EXPECT_NE(message_of([] {
                  ResultWriter("/dev/full", Existing::refuse).put(0, "x");
              }).find("/dev/full: cannot be written"),
              std::string::npos);
    EXPECT_NE(message_of([] { ResultWriter("/dev/null/nonexistent/out", Existing::refuse); }).find("cannot be opened"),
              std::string::npos);
}

TEST(Results, AFileThatIsRemovedOrCutMeanwhileIsNoticed) {
    const test::ScratchFile scratch("");
    const std::string file = scratch.path();
    ResultWriter removed(file, Existing::refuse);
    removed.put(0, "a");
    std::filesystem::rename(file, file + "-moved"); // still there
    removed.put(1, "b");
    removed.require_intact();
    std::filesystem::remove(file + "-moved");
    EXPECT_EQ(message_of([&] { removed.require_intact(); }),
              file + ": was removed during the run; what it held is lost");
    EXPECT_NE(message_of([&] { removed.put(2, "c"); }).find("was removed"), std::string::npos);

    ResultWriter cut(file, Existing::refuse);
    cut.put(0, "abc");
    std::filesystem::resize_file(file, 2);
    EXPECT_EQ(message_of([&] { cut.require_intact(); }),
              file + ": was cut to 2 of 4 bytes during the run; what it held is lost");
}

TEST(Results, ANamedPipeIsWrittenForItsReaderAlone) {
    const test::ScratchFile place("");
    const std::string pipe = place.path() + "-pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    std::string read;
    std::thread reader([&] { // comes late and leaves early
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        std::ifstream in(pipe);
        std::getline(in, read);
    });
    std::optional<ResultWriter> writer(std::in_place, pipe, Existing::refuse);
    writer->put(0, "first");
    reader.join();
    signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(message_of([&] { writer->put(1, "second"); }), pipe + ": cannot be written: Broken pipe");
    signal(SIGPIPE, SIG_DFL);
    EXPECT_EQ(read, "first");
    unlink(pipe.c_str());
}

TEST(Resume, TakesZerosAtTheEndForATornLine) {
    const test::ScratchFile input(kInput), whole("");
    serve(input.path(), whole.path(), Existing::refuse);
    const std::string expected = whole.text();
    for (const std::size_t bytes : {std::size_t{0}, expected.size() / 2, expected.size()}) {
        const test::ScratchFile cut(expected.substr(0, bytes) + std::string(4096, '\0'));
        serve(input.path(), cut.path(), Existing::resume);
        EXPECT_EQ(cut.text(), expected) << "cut at byte " << bytes;
    }
    const std::string foreign = "a note" + std::string(10, '\0');
    const test::ScratchFile file(foreign);
    EXPECT_NE(message_of([&] { ResultWriter(file.path(), Existing::resume); }).find(" line 1"), std::string::npos);
    EXPECT_EQ(file.text(), foreign);
}

TEST(Resume, FromAnyByteEqualsAnUninterruptedRun) {
    const test::ScratchFile input(kInput), whole("");
    serve(input.path(), whole.path(), Existing::refuse);
    const std::string expected = whole.text();
    for (std::size_t bytes = 0; bytes <= expected.size(); ++bytes) {
        const test::ScratchFile cut(expected.substr(0, bytes));
        serve(input.path(), cut.path(), Existing::resume);
        ASSERT_EQ(cut.text(), expected) << "cut at byte " << bytes;
    }
}

TEST(Resume, CountsErrorLinesAsServed) {
    const test::ScratchFile input(kInput), output("");
    serve(input.path(), output.path(), Existing::refuse, 2);
    const ResultWriter writer(output.path(), Existing::resume);
    EXPECT_EQ(writer.served().size(), 2u);
    EXPECT_EQ(writer.served_with_error(), 1);
}

TEST(Resume, RefusesAnotherInputsOutput) {
    const test::ScratchFile input(kInput), output("{\"id\":\"other\",\"text\":\"\"}\n");
    EXPECT_NE(message_of([&] {
                  serve(input.path(), output.path(), Existing::resume);
              }).find("resume with the input of that run"),
              std::string::npos);
    const test::ScratchFile short_input("");
    EXPECT_NE(
        message_of([&] { serve(short_input.path(), output.path(), Existing::resume); }).find("has no line for it"),
        std::string::npos);
    EXPECT_EQ(output.text(), "{\"id\":\"other\",\"text\":\"\"}\n");
}

TEST(Resume, RefusesAFileThatIsNoOutput) {
    const test::ScratchFile text("hello\nworld\n"), json("{\"id\":1}\n");
    EXPECT_NE(message_of([&] { ResultWriter(text.path(), Existing::resume); }).find("line 1: not JSON"),
              std::string::npos);
    EXPECT_NE(message_of([&] { ResultWriter(json.path(), Existing::resume); }).find("is not a result"),
              std::string::npos);
    EXPECT_EQ(text.text(), "hello\nworld\n");
}

TEST(Resume, CutsOffNothingButALineOfItsOwn) {
    for (const std::string foreign : {"a note", "{ \"id\": 1, \"text\": \"\"}", "{\"id\":1,\"prompt\":\"x\"}", "[1"}) {
        const test::ScratchFile file(foreign); // without a newline, as a torn line is
        EXPECT_NE(message_of([&] { ResultWriter(file.path(), Existing::resume); }).find(" line 1"), std::string::npos)
            << foreign;
        EXPECT_EQ(file.text(), foreign);
    }
}

} // namespace results_test
