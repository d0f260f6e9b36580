// The binary from outside: what it answers, writes and exits with, on the golden pair. Mostly on one rank; a few
// cases through mpirun, where every rank must end with the same message, once.
#include "tests/launch/command_line.h"
#include "tests/launch/model_copy.h"
#include "tests/launch/scratch_file.h"
#include "tests/model/temporary_directory.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace cli_test {

using namespace test;
using entrodraft::TemporaryDirectory;
namespace fs = std::filesystem;

const Strings kPair = {"generate", "--target", kTarget, "--draft", kDraft};

// One line on stderr that holds all `parts`, nothing on stdout, and this code.
void expect_refusal(const Ended& ended, int code, const Strings& parts) {
    EXPECT_EQ(ended.code, code) << ended.err;
    EXPECT_EQ(ended.out, "");
    std::istringstream stream(ended.err);
    int messages = 0;
    std::string message;
    for (std::string line; std::getline(stream, line);)
        if (line.rfind("entrodraft: ", 0) == 0) {
            ++messages;
            message = line;
        }
    EXPECT_EQ(messages, 1) << ended.err;
    for (const std::string& part : parts)
        EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << ended.err;
}

TEST(Cli, HelpAndVersionGoToStdoutWithCodeZero) {
    for (const std::string version : {"--version", "version"})
        EXPECT_EQ(run({version}).out.rfind("entrodraft ", 0), 0u);
    for (const std::string asking : {"--help", "-h", "help"})
        EXPECT_NE(run({asking}).out.find("generate"), std::string::npos);
    for (const Strings& asking : {Strings{"bench", "latency", "-h"}, Strings{"help", "bench", "latency"}})
        EXPECT_EQ(run(asking).out, run({"bench", "latency", "--help"}).out);
    const Ended help = run({"generate", "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_NE(help.out.find("--stop-rule"), std::string::npos);
    EXPECT_EQ(help.err, "");
}

TEST(Cli, UnknownCommandsAndOptionsExitTwoWithASuggestion) {
    expect_refusal(run({}), 2, {"no command is given"});
    expect_refusal(run({"generat"}), 2, {"unknown command 'generat'; did you mean generate?"});
    expect_refusal(run({"bench", "latencies"}), 2, {"did you mean bench latency?"});
    expect_refusal(run({"help", "generat"}), 2, {"did you mean generate?"});
    expect_refusal(run(kPair + Strings{"--prompt", "p", "--max-new-token", "5"}), 2,
                   {"did you mean --max-new-tokens?"});
    expect_refusal(run(kPair + Strings{"--prompt", "p", "--stop-rule", "nonsense"}), 2, {"--stop-rule nonsense"});
}

TEST(Cli, AConflictWithAConfigNamesItsLine) {
    const ScratchFile config("max-new-tokens = 4\ncosts = c.json\n");
    expect_refusal(run(kPair + Strings{"--prompt", "p", "--config", config.path(), "--stop-rule", "constant"}), 2,
                   {"--costs has no effect", "is in " + config.path() + " line 2"});
}

TEST(Cli, BadCheckpointsAreNamed) {
    const Strings prompt = {"--prompt", "p"};
    expect_refusal(run(Strings{"generate", "--target", "/dev/null/nonexistent"} + prompt), 2,
                   {"--target /dev/null/nonexistent", "does not exist"});
    expect_refusal(run(kPair + Strings{"--target=/dev/null"} + prompt), 2, {"--target is given 2 times"});
    expect_refusal(run(Strings{"generate", "--target", kTarget + "/config.json"} + prompt), 2, {"is not a directory"});
    {
        const ModelCopy cut(kTarget);
        fs::resize_file(cut.file("model.safetensors"), 5000);
        expect_refusal(run(Strings{"generate", "--target", cut.path()} + prompt), 1, {cut.file("model.safetensors")});
    }
    {
        const ModelCopy missing(kTarget);
        fs::remove(missing.file("model.safetensors"));
        expect_refusal(run(Strings{"generate", "--target", missing.path()} + prompt), 1, {missing.path()});
    }
    {
        const ModelCopy other(kTarget);
        other.set_in_config("model_type", "mamba");
        expect_refusal(run(Strings{"generate", "--target", other.path()} + prompt), 1,
                       {"config.json", "mamba", "llama"});
    }
    {
        const ModelCopy other(kTarget);
        other.set_in_config("hidden_size", 80);
        expect_refusal(run(Strings{"generate", "--target", other.path()} + prompt), 1, {"shape"});
    }
    {
        const ModelCopy no_json(kTarget);
        std::ofstream(no_json.file("tokenizer.json")) << "{";
        expect_refusal(run(Strings{"generate", "--target", no_json.path()} + prompt), 1, {"tokenizer.json"});
    }
}

TEST(Cli, ADirectoryThatIsNoCheckpointIsNamedWithItsOption) {
    const std::string parent = fs::path(kTarget).parent_path();
    for (const Strings& command : {Strings{"generate", "--prompt", "p", "--target"}, Strings{"inspect", "--model"}})
        expect_refusal(run(command + Strings{parent}), 2,
                       {command.back() + " " + parent, "holds no config.json; name a directory"});
}

TEST(Cli, MemoryIsPlannedBeforeWeightsAreRead) {
    const ModelCopy endless(kTarget);
    endless.set_in_config("max_position_embeddings", 1 << 29);
    const Strings arguments = {"generate",         "--target", endless.path(), "--prompt",    "The ferry",
                               "--max-new-tokens", "500",      "--quiet",      "--ignore-eos"};
    expect_refusal(run(arguments), 2,
                   {"not enough memory", "KV cache of 1 sequence of 536,870,912 positions", "--max-context"});
    const Ended bounded = run(arguments + Strings{"--max-context", "32"});
    EXPECT_EQ(bounded.code, 0) << bounded.err;
    EXPECT_EQ(bounded.out, run({"generate", "--target", kTarget, "--prompt", "The ferry", "--max-new-tokens", "500",
                                "--quiet", "--ignore-eos", "--max-context", "32"})
                               .out);
    EXPECT_LT(bounded.out.size(), 300u);
}

TEST(Cli, DifferentVocabulariesAreRefusedNamingBothDirectories) {
    const ModelCopy draft(kDraft);
    Json tokenizer = Json::parse(std::ifstream(draft.file("tokenizer.json")));
    tokenizer["model"]["merges"].erase(tokenizer["model"]["merges"].size() - 1);
    std::ofstream(draft.file("tokenizer.json")) << tokenizer;
    const Strings pair = {"--target", kTarget, "--draft", draft.path()};
    const Strings generate = Strings{"generate"} + pair + Strings{"--prompt", "p", "--max-new-tokens", "4"};
    const Strings why = {draft.path(), kTarget, "different vocabularies"};
    expect_refusal(run(generate + Strings{"--draft-vocabulary", "same"}), 2, why);
    const ScratchFile input(""), output("");
    expect_refusal(run(Strings{"record"} + pair + Strings{"--input", input.path(), "--output", output.path()}), 2, why);
    expect_refusal(run(Strings{"bench", "compare"} + pair + Strings{"--input", input.path()}), 2, why);
    const Ended mapped = run(generate);
    EXPECT_EQ(mapped.code, 0) << mapped.err;
    EXPECT_NE(mapped.err.find("512 of 512 tokens (100.0 %)"), std::string::npos) << mapped.err;
    EXPECT_NE(mapped.err.find("drafts by intersection"), std::string::npos);
}

TEST(Cli, WhatADraftWithAWindowAndTheTargetAsDraftCannotDoIsRefused) {
    const auto refused = [&](const Strings& options, const Strings& words) {
        expect_refusal(run(Strings{"generate", "--target", kTarget, "--prompt", "p"} + options), 2, words);
    };
    refused({"--draft", kDraft, "--draft-window", "4:sinks=65"}, {"'65' must be a whole number from 0 to 64"});
    refused({"--draft", kDraft, "--draft-window", "4:sink=2"}, {"sink must be one of sinks, chunks"});
    refused({"--draft-window", "4"}, {"--draft-window is for one --draft"});
    refused({"--draft", kDraft, "--draft", kDraft, "--draft-window", "4"}, {"--draft-window is for one --draft"});
    refused({"--draft", kDraft, "--draft-window", "0"}, {"--draft-window 0"});
    refused({"--draft", kDraft, "--draft-window", "2000000000"}, {"--draft-window 2000000000"});
    refused({"--draft", kDraft, "--draft-window", "4", "--num-beams", "2"}, {"--num-beams", "--draft-window"});
    refused({"--draft", kDraft, "--draft-window", "4", "--backend", "torch"}, {"--draft-window", "--device cpu"});
    refused({"--draft-vocab", "4"}, {"--draft-vocab is for one --draft DIR"});
    refused({"--draft", "self:layers=1", "--draft-vocab", "4"}, {"--draft-vocab is for one --draft DIR"});
    refused({"--draft", kDraft, "--draft-vocab", "0"}, {"--draft-vocab 0"});
    refused({"--draft", kDraft, "--draft-vocab", "4", "--num-beams", "2"}, {"--num-beams", "--draft-vocab"});
    refused({"--draft", kDraft, "--draft-vocab", "512"}, {"--draft-vocab 512", "has 512 tokens"});
    refused({"--draft", kDraft, "--draft-vocab", "4:"}, {"--draft-vocab 4:", "build-table"});
    refused({"--draft", kDraft, "--draft-vocab", "4", "--device", "cuda"}, {"--draft-vocab", "--device cpu"});
    refused({"--draft", "self"}, {"--draft self", "--draft-window W", "self:layers=N"});
    refused({"--draft", "self:layers=0"}, {"--draft self:layers=0"});
    refused({"--draft", "self:layers=100"}, {"--draft self:layers=100", "layers"});
    refused({"--draft", "self:layers=1", "--draft", kDraft}, {"--draft self is the only --draft"});
    refused({"--draft", "self:layers=1", "--draft-dtype", "int8"}, {"no --draft-dtype"});
    refused({"--draft", "self:layers=1", "--draft-vocabulary", "same"}, {"--draft-vocabulary has no effect"});
    refused({"--draft", "self:layers=1", "--device", "cuda"}, {"--draft self", "--device cpu"});
    const Strings shards = {"generate", "--target", kTarget, "--prompt", "p", "--draft", "self:layers=1"};
    expect_refusal(run_ranks(2, shards), 2, {"--draft self", "2 ranks", "--draft-placement sharded"});
    expect_refusal(run_ranks(2, shards + Strings{"--draft-placement", "dedicated"}), 2, {"colocated", "sharded"});
    expect_refusal(run({"record", "--target", kTarget, "--draft", "self:layers=1", "--input", "i", "--output", "o"}), 2,
                   {"--draft self:layers=1", "record takes a checkpoint of its own"});
}

TEST(Cli, WhatADraftOfAnotherVocabularyCannotDoIsRefused) {
    const std::string demo = ENTRODRAFT_SOURCE_DIR "/model/demo/";
    const Strings pair = {"generate", "--target", kTarget, "--draft", demo + "draft", "--prompt", "The ferry"};
    const auto refused = [&](const Strings& more, const Strings& words) { expect_refusal(run(pair + more), 2, words); };
    refused({"--num-beams", "2"}, {"--num-beams needs a draft of the target's vocabulary", "demo/draft"});
    refused({"--draft-vocabulary", "retokenize", "--tree", "2,2"}, {"leave out --tree"});
    refused({"--draft-vocabulary", "retokenize", "--draft", kDraft}, {"one --draft"});
    refused({"--draft", kDraft}, {"different vocabularies", "but for the last of several"});
    expect_refusal(run_ranks(2, pair + Strings{"--draft-placement", "dedicated", "--draft-ahead", "2"}), 2,
                   {"--draft-ahead needs a draft of the target's vocabulary"});
    expect_refusal(run({"generate", "--target", kTarget, "--draft-vocabulary", "same", "--prompt", "p"}), 2,
                   {"--draft-vocabulary", "without --draft DIR"});
    const ModelCopy bare(kDraft);
    std::filesystem::remove(bare.file("tokenizer.json"));
    for (const std::string how : {"intersection", "retokenize"})
        expect_refusal(
            run({"generate", "--target", kTarget, "--draft", bare.path(), "--draft-vocabulary", how, "--prompt", "p"}),
            2, {"--draft-vocabulary " + how + " needs the tokenizers of both models", bare.path()});
    const Ended mapped = run(pair + Strings{"--max-new-tokens", "4"});
    EXPECT_EQ(mapped.code, 0) << mapped.err;
    const ModelCopy strange(kDraft); // no token of which is one of the target's
    Json tokenizer = Json::parse(std::ifstream(strange.file("tokenizer.json"))), vocab = Json::object();
    for (const auto& [token, id] : tokenizer["model"]["vocab"].items())
        vocab[token + "\u0178"] = id;
    tokenizer["model"]["vocab"] = vocab;
    tokenizer["model"]["merges"] = Json::array();
    tokenizer["added_tokens"] = Json::array();
    std::ofstream(strange.file("tokenizer.json")) << tokenizer;
    const Strings with_strange = {"generate", "--target", kTarget, "--draft", strange.path(), "--prompt", "p"};
    expect_refusal(run(with_strange), 2, {"no token in common", "retokenize"});
}

TEST(Cli, ADraftLargerThanItsTargetIsWarnedOf) {
    const Strings exchanged = {"generate",  "--target",         kDraft, "--draft", kTarget, "--prompt",
                               "The ferry", "--max-new-tokens", "4"};
    const std::string warning = "warning: --draft " + kTarget + " has ";
    const Ended one = run(exchanged), two = run_ranks(2, exchanged);
    EXPECT_EQ(one.code, 0) << one.err;
    EXPECT_NE(one.err.find(warning), std::string::npos) << one.err;
    EXPECT_NE(two.err.find(warning), std::string::npos) << two.err;
    EXPECT_EQ(two.err.find(warning), two.err.rfind(warning)) << "once: " << two.err;
    EXPECT_EQ(run(exchanged + Strings{"--quiet"}).err, "");
    EXPECT_EQ(run(kPair + Strings{"--prompt", "p", "--max-new-tokens", "4"}).err.find(warning), std::string::npos);
}

TEST(Cli, ADraftThatKnowsFewerTokensThanItsTargetIsNotOfItsVocabulary) {
    const ModelCopy draft(kDraft);
    draft.set_in_config("vocab_size", 448);
    expect_refusal(
        run({"generate", "--target", kTarget, "--draft", draft.path(), "--draft-vocabulary", "same", "--prompt", "p"}),
        2, {draft.path(), kTarget, "vocab_size of 448", "512"});
}

TEST(Cli, ARunThatCannotBeginLeavesNoFile) {
    const ScratchFile input("{\"prompt\": \"p\"}\n"), full("x"), empty("");
    const TemporaryDirectory directory;
    const std::string output = directory.path() / "out", trace = directory.path() / "trace";
    const Strings missing_input = {"generate", "--target", kTarget, "--input", "/dev/null/nonexistent"};
    const Strings missing_target = {"generate", "--target", "/dev/null/nonexistent", "--input", input.path()};
    const Strings bad_trace = {"generate", "--target", kTarget, "--input", input.path(), "--timeline", full.path()};
    const Strings bad_resume = {"generate", "--target", "/dev/null/nonexistent", "--input", input.path(), "--resume"};
    for (const Strings& arguments : {missing_input, missing_target, bad_trace, bad_resume}) {
        EXPECT_NE(run(arguments + Strings{"--output", output, "--trace", trace}).code, 0);
        EXPECT_TRUE(fs::is_empty(directory.path())) << arguments[2];
    }
    EXPECT_NE(run_ranks(2, missing_target + Strings{"--output", output}).code, 0);
    EXPECT_TRUE(fs::is_empty(directory.path()));
    EXPECT_NE(run(missing_target + Strings{"--output", empty.path()}).code, 0);
    EXPECT_TRUE(fs::exists(empty.path())) << "it was there before";
    EXPECT_EQ(run({"generate", "--target", kTarget, "--input", empty.path(), "--output", output}).code, 0);
    EXPECT_TRUE(fs::exists(output)) << "results of no prompts";
}

TEST(Cli, BadPromptsAreNamed) {
    expect_refusal(run(kPair + Strings{"--prompt", ""}), 2, {"--prompt is empty"});
    std::string longer;
    for (int i = 0; i < 400; ++i)
        longer += "ferry ";
    expect_refusal(run(kPair + Strings{"--prompt", longer}), 2, {"--prompt: ", "256"});
    expect_refusal(run(kPair + Strings{"--prompt", "a\xff"}), 2, {"--prompt: "});
    expect_refusal(run(kPair + Strings{"--input", "/dev/null/nonexistent.jsonl"}), 1, {"/dev/null/nonexistent.jsonl"});
    expect_refusal(run(kPair + Strings{"--input", kGolden}), 1, {kGolden, "directory"});
}

TEST(Cli, OnePromptStreamsItsTextToStdout) {
    const Ended speculative =
        run(kPair + Strings{"--prompt", "The ferry left", "--max-new-tokens", "24", "--device", "cpu"});
    EXPECT_EQ(speculative.code, 0) << speculative.err;
    EXPECT_NE(speculative.err.find("tokens per target pass"), std::string::npos) << speculative.err;
    EXPECT_EQ(std::count(speculative.err.begin(), speculative.err.end(), '\n'), 2) << speculative.err;
    EXPECT_NE(run(kPair + Strings{"--prompt", "The", "--max-new-tokens", "4", "--verbose"}).err.find("  time "),
              std::string::npos);
    expect_refusal(run(kPair + Strings{"--prompt", "p", "--quiet", "--verbose"}), 2, {"--quiet", "--verbose"});
    const Ended plain =
        run({"generate", "--target", kTarget, "--prompt", "The ferry left", "--max-new-tokens", "24", "--quiet"});
    EXPECT_EQ(plain.err, "");
    EXPECT_EQ(plain.out, speculative.out);
    EXPECT_GT(plain.out.size(), 10u);
}

const std::string kMixedInput = "{\"id\": \"a\", \"prompt\": \"The ferry left\"}\n"
                                "{\"id\": 2, \"prompt_token_ids\": [282, 369, 276], \"max_new_tokens\": 5}\n"
                                "{\"id\": 3, \"prompt_token_ids\": [282, 512]}\n"
                                "{\"id\": \"a\", \"prompt\": \"again\"}\n"
                                "{\"id\": \"e\", \"prompt\": \"\"}\n"
                                "{\"prompt\": \"No id\", \"temperature\": 1.0, \"seed\": 3}\n"
                                "{\"id\": 6, \"prompt\": 7}\n"
                                "this is no JSON\n"
                                "{\"id\": 8, \"prompt\": \"last\"}\n";

TEST(Cli, ABadLineDoesNotStopTheOthers) {
    const ScratchFile input(kMixedInput);
    const Ended ended = run(kPair + Strings{"--input", input.path(), "--max-new-tokens", "8", "--check"});
    EXPECT_EQ(ended.code, 3) << ended.err;
    const auto lines = lines_of(ended.out);
    ASSERT_EQ(lines.size(), 9u);
    for (std::size_t served : {0u, 1u, 5u, 8u})
        EXPECT_TRUE(lines[served].contains("text")) << lines[served];
    for (std::size_t bad : {2u, 3u, 4u, 6u, 7u})
        EXPECT_TRUE(lines[bad].contains("error")) << lines[bad];
    EXPECT_EQ(lines[1]["token_ids"].size(), 5u);
    EXPECT_EQ(lines[1]["stats"]["prompt_tokens"], 3);
    EXPECT_EQ(lines[5]["id"], 6); // its line number
    EXPECT_EQ(lines[7]["line"], 8);
}

// Of one prompt at a time, of a batch, and of replicas, whose times come by messages.
TEST(Cli, TheSummaryFileHoldsTimesOfEveryPrompt) {
    std::string lines;
    for (int i = 0; i < 6; ++i)
        lines += "{\"prompt\": \"The ferry left\", \"max_new_tokens\": " + std::to_string(1 + 5 * i) + "}\n";
    const ScratchFile input(lines + "broken\n");
    const TemporaryDirectory directory;
    const std::string file = directory.path() / "summary.json";
    const Strings arguments = kPair + Strings{"--input", input.path(), "--ignore-eos", "--summary", file, "--quiet"};
    for (const Strings& more : {Strings{}, Strings{"--batch-size", "4"}, Strings{"--replicas", "2"}}) {
        const int ranks = !more.empty() && more.front() == "--replicas" ? 2 : 1;
        const Ended ended = ranks > 1 ? run_ranks(ranks, arguments + more) : run(arguments + more);
        ASSERT_EQ(ended.code, 3) << ended.err;
        EXPECT_TRUE(ranks > 1 || ended.err.empty()) << ended.err; // mpirun speaks of exit codes
        const Json summary = Json::parse(std::ifstream(file));
        double ttft = 0, tpot = 0;
        for (const Json& line : lines_of(ended.out)) {
            if (!line.contains("stats")) continue;
            const Json& stats = line["stats"];
            EXPECT_GT(stats["ttft_ms"], 0);
            EXPECT_LE(stats["ttft_ms"].get<double>(), stats["seconds"].get<double>() * 1e3 + 1e-3);
            const double n = stats["new_tokens"].get<double>();
            EXPECT_EQ(stats["tpot_ms"].is_null(), n == 1);
            const double tpot_ms = n > 1 ? stats["tpot_ms"].get<double>() : 0;
            EXPECT_NEAR(stats["ttft_ms"].get<double>() + (n - 1) * tpot_ms, stats["seconds"].get<double>() * 1e3,
                        n > 1 ? 1e-2 : 1e3);
            tpot += tpot_ms / 5;
            ttft += stats["ttft_ms"].get<double>() / 6;
        }
        EXPECT_EQ(summary["prompts"], (Json{{"completed", 6}, {"failed", 1}, {"resumed", 0}}));
        EXPECT_NEAR(summary["ttft_ms"]["mean"].get<double>(), ttft, 1e-3);
        EXPECT_NEAR(summary["tpot_ms"]["mean"].get<double>(), tpot, 1e-3);
        EXPECT_EQ(summary["new_tokens"], 6 + 5 * 15);
        EXPECT_EQ(summary["environment"]["ranks"], ranks);
        EXPECT_EQ(summary["options"]["input"], input.path());
    }
    expect_refusal(run(kPair + Strings{"--prompt", "p", "--summary", directory.path() / "none/s.json"}), 1, {"none"});
    expect_refusal(run(kPair + Strings{"--prompt", "p", "--summary", "-"}), 2, {"--summary writes a file"});
    expect_refusal(run(arguments + Strings{"--output", file}), 2, {"the same file"});
}

TEST(Cli, TheSummarySaysWhichWeightsStayCodesOfTheFile) {
    const TemporaryDirectory directory;
    const std::string gptq = ENTRODRAFT_SOURCE_DIR "/tests/model/quantized/gptq/target";
    const std::string file = (directory.path() / "s.json").string();
    const ScratchFile input("{\"prompt_token_ids\": [1, 2]}\n");
    const auto run_with = [&](const Strings& draft) {
        const Ended ended = run(Strings{"generate", "--target", gptq, "--input", input.path(), "--summary", file,
                                        "--max-new-tokens", "2", "--threads", "1"} +
                                draft);
        EXPECT_EQ(ended.code, 0) << ended.err;
        return Json::parse(std::ifstream(file));
    };
    const std::string codes = "codes of the file, gptq of 4 bits in groups of ";
    const Json summary = run_with({"--draft", gptq, "--draft-dtype", "int4"});
    EXPECT_TRUE(summary["load_bytes"].is_number_integer()) << summary["load_bytes"];
    EXPECT_TRUE(summary["environment"]["dtype"].get<std::string>().starts_with(codes)) << summary["environment"];
    EXPECT_EQ(summary["environment"]["draft_dtype"], "int4");
    const std::string shown = run({"inspect", gptq}).out;
    EXPECT_NE(shown.find(summary["environment"]["dtype"].get<std::string>()), std::string::npos) << shown;
    EXPECT_EQ(run_with({})["environment"]["draft_dtype"], summary["environment"]["dtype"]);
}

// ---- ways of drafting ----

TEST(Cli, NoDrafterChangesGreedyOrGumbelText) {
    const ScratchFile corpus("The ferry left the harbour, and the ferry left the harbour again.\n"), table("");
    ASSERT_EQ(run({"build-table", "--model", kTarget, "--input", corpus.path(), "--output", table.path()}).code, 0);
    const std::vector<Strings> drafters = {
        {"--draft", kDraft},
        {"--draft", kDraft, "--draft", kDraft, "--stop-rule", "static", "--stop-rule", "constant:2"},
        {"--drafter", "ngram"},
        {"--drafter", "suffix", "--lookup-corpus", corpus.path()},
        {"--drafter", "bigram", "--draft-table", table.path()},
        {"--drafter", "unigram", "--draft-table", table.path()},
        {"--drafter", "random"},
        {"--drafter", "ngram,model", "--draft", kDraft},
        {"--drafter", "lookahead:window=3", "--stop-rule", "constant"},
        {"--draft", kDraft, "--draft-window", "4"},
        {"--draft", kDraft, "--draft-vocab", "100"},
        {"--draft", kDraft, "--draft-vocab", "60:" + table.path(), "--tree", "2,2"},
        {"--draft", "self", "--draft-window", "4:sinks=0"},
        {"--draft", kDraft, "--draft-window", "1:sinks=0:chunks=1"},
        {"--draft", "self:layers=1", "--draft-window", "2:chunks=1"},
        {"--draft", "self:layers=1", "--tree", "2,2"}};
    const Strings target = {"generate",       "--target",         kTarget, "--prompt",
                            "The ferry left", "--max-new-tokens", "24",    "--quiet"};
    for (const Strings& sampling :
         {Strings{}, Strings{"--temperature", "1", "--seed", "4"},
          Strings{"--temperature", "1", "--top-k", "40", "--seed", "4"},
          Strings{"--repetition-penalty", "1.2", "--no-repeat-ngram-size", "2", "--min-new-tokens", "20"}}) {
        const Ended plain = run(target + sampling);
        ASSERT_EQ(plain.code, 0) << plain.err;
        for (const Strings& drafter : drafters) {
            const Ended drafted = run(target + sampling + drafter + Strings{"--check"});
            EXPECT_EQ(drafted.code, 0) << drafted.err;
            EXPECT_EQ(drafted.out, plain.out) << drafter[1];
        }
    }
}

// The N most frequent of a text, or the lowest ids, and the ends, which this prompt's text does not reach.
TEST(Cli, ADraftOfSomeTokensProposesNoOthers) {
    const ScratchFile text("The ferry left the harbour, and the ferry left the harbour again.\n"), table("");
    ASSERT_EQ(run({"build-table", "--model", kTarget, "--input", text.path(), "--output", table.path()}).code, 0);
    const Strings target = {"generate",         "--target", kTarget,       "--prompt",   "The ferry left",
                            "--max-new-tokens", "24",       "--stop-rule", "constant:3", "--quiet"};
    const auto proposed = [&](const Strings& draft) {
        const TemporaryDirectory directory;
        const std::string trace = (directory.path() / "trace.jsonl").string();
        const Ended ended = run(target + Strings{"--draft", kDraft, "--trace", trace} + draft);
        EXPECT_EQ(ended.code, 0) << ended.err;
        std::ifstream file(trace);
        std::set<int> tokens;
        for (const Json& round : lines_of({std::istreambuf_iterator<char>(file), {}}))
            for (const Json& token : round["drafted"])
                tokens.insert(token.get<int>());
        return tokens;
    };
    const std::set<int> all = proposed({}), lowest = proposed({"--draft-vocab", "100"});
    EXPECT_GT(*all.rbegin(), 99);
    ASSERT_FALSE(lowest.empty());
    EXPECT_LT(*lowest.rbegin(), 100);
    const std::set<int> of_text = proposed({"--draft-vocab", "20:" + table.path()});
    EXPECT_LE(of_text.size(), 20U);
    EXPECT_TRUE(std::ranges::any_of(of_text, [](int token) { return token > 99; }));
}

TEST(Cli, ATraceHoldsALineForEachRound) {
    const ScratchFile input("{\"id\": \"a\", \"prompt\": \"The ferry left\"}\n{\"id\": 2, \"prompt\": \"One\"}\n");
    const TemporaryDirectory directory;
    const std::string trace = (directory.path() / "trace.jsonl").string();
    const Ended ended = run(
        kPair + Strings{"--input", input.path(), "--max-new-tokens", "24", "--stop-rule", "static", "--trace", trace});
    ASSERT_EQ(ended.code, 0) << ended.err;
    std::ifstream file(trace);
    const std::vector<Json> rounds = lines_of({std::istreambuf_iterator<char>(file), {}});
    std::size_t n_rounds = 0;
    for (const Json& line : lines_of(ended.out)) {
        std::vector<int> said;
        for (const Json& round : rounds) {
            if (round["id"] != line["id"]) continue;
            ++n_rounds;
            EXPECT_EQ(round["drafted"].size(), round["entropies_nats"].size());
            for (int i = 0; i < round["accepted"].get<int>(); ++i)
                said.push_back(round["drafted"][static_cast<std::size_t>(i)].get<int>());
            said.push_back(round["next_token"].get<int>());
        }
        const auto text = line["token_ids"].get<std::vector<int>>();
        ASSERT_GE(said.size(), text.size()); // a round may say more than the text has room for
        said.resize(text.size());
        EXPECT_EQ(said, text);
    }
    EXPECT_EQ(n_rounds, rounds.size());
    expect_refusal(run(kPair + Strings{"--prompt", "p", "--trace", trace}), 2, {"--trace " + trace, "remove it"});
}

// A level of the trees of 32 sequences has more rows than a pass of the draft.
TEST(Cli, TreesOfManySequencesAreReadInPassesThatHaveRoom) {
    std::string lines;
    for (int i = 0; i < 32; ++i)
        lines += "{\"id\": " + std::to_string(i) + ", \"prompt_token_ids\": [" + std::to_string(10 + 3 * i) + ", " +
                 std::to_string(200 + i) + "]}\n";
    const ScratchFile input(lines);
    const Strings options = {"--input", input.path(), "--max-new-tokens", "24", "--ignore-eos", "--batch-size", "32"};
    const Ended plain = run(Strings{"generate", "--target", kTarget} + options);
    const Ended drafted = run(kPair + options + Strings{"--tree", "eagle2:4:8", "--check"});
    ASSERT_EQ(drafted.code, 0) << drafted.err;
    const std::vector<Json> expected = lines_of(plain.out), found = lines_of(drafted.out);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(found[i]["token_ids"], expected[i]["token_ids"]);
}

// Trees with the parent of each token, siblings of one behind another; samples with their numbers.
TEST(Cli, ATraceShowsTreesAndSamples) {
    const ScratchFile input("{\"prompt\": \"The ferry left\", \"num_samples\": 2}\n");
    const TemporaryDirectory directory;
    const std::string trace = (directory.path() / "trace.jsonl").string();
    const Ended ended = run(kPair + Strings{"--input", input.path(), "--max-new-tokens", "12", "--tree", "2,1",
                                            "--temperature", "1", "--batch-size", "2", "--trace", trace});
    ASSERT_EQ(ended.code, 0) << ended.err;
    std::ifstream file(trace);
    std::vector<int> rounds_of(2, 0);
    bool has_tree = false;
    for (const Json& round : lines_of({std::istreambuf_iterator<char>(file), {}})) {
        ++rounds_of.at(round.at("sample").get<std::size_t>());
        if (!round.contains("parents")) continue;
        has_tree = true;
        ASSERT_EQ(round["parents"].size(), round["drafted"].size());
        for (std::size_t i = 0; i < round["parents"].size(); ++i)
            EXPECT_LT(round["parents"][i].get<int>(), static_cast<int>(i));
    }
    EXPECT_TRUE(has_tree);
    EXPECT_GT(rounds_of[0], 0);
    EXPECT_GT(rounds_of[1], 0);
}

// All but three tokens banned and none twice: after these nothing can be said. That is the end of this text alone.
TEST(Cli, ATextThatComesToNothingToSayIsAnErrorLine) {
    std::string banned;
    for (int token = 0; token < 512; ++token)
        if (token < 10 || token > 12) banned += (banned.empty() ? "" : ",") + std::to_string(token);
    const std::string doomed = "\"prompt_token_ids\": [10, 10, 12, 10, 11, 10, 11], \"no_repeat_ngram_size\": 2, "
                               "\"banned_tokens\": [" +
                               banned + "], \"max_new_tokens\": ";
    const ScratchFile input("{\"id\": 1, " + doomed + "2}\n{\"id\": 2, " + doomed +
                            "200}\n{\"id\": 3, \"prompt\": \"on\"}\n");
    const Strings target = {"generate", "--target",         kTarget, "--input", input.path(),
                            "--quiet",  "--max-new-tokens", "5"};
    for (const Strings& sampling : {Strings{}, Strings{"--temperature", "1"}}) {
        const Ended plain = run(target + sampling);
        EXPECT_EQ(plain.code, 3) << plain.err;
        const std::vector<Json> want = without_stats(plain.out);
        ASSERT_EQ(want.size(), 3u);
        EXPECT_TRUE(want[0].contains("text"));
        EXPECT_NE(want[1].value("error", "").find("every token is banned"), std::string::npos) << want[1];
        EXPECT_TRUE(want[2].contains("text"));
        for (const Strings& drafter : {Strings{"--drafter", "ngram"}, Strings{"--draft", kDraft},
                                       Strings{"--draft", kDraft, "--draft", kDraft}, Strings{"--drafter", "random"}})
            EXPECT_EQ(without_stats(run(target + sampling + drafter).out), want) << drafter.back();
    }
    for (const std::string acceptance : {"rejection", "block", "typical", "bild"}) {
        const Ended sampled =
            run(target + Strings{"--drafter", "ngram", "--temperature", "1", "--acceptance", acceptance});
        EXPECT_EQ(sampled.code, 3) << sampled.err;
        ASSERT_EQ(lines_of(sampled.out).size(), 3u);
        EXPECT_TRUE(lines_of(sampled.out)[1].contains("error"));
    }
}

TEST(Cli, FilesOfDraftersAreNamedWhenTheyAreBad) {
    const ScratchFile empty(""), text("no table\n");
    const Strings target = {"generate", "--target", kTarget, "--prompt", "p"};
    expect_refusal(run(target + Strings{"--drafter", "suffix", "--lookup-corpus", "/dev/null/nonexistent.txt"}), 1,
                   {"/dev/null/nonexistent.txt"});
    expect_refusal(run(target + Strings{"--drafter", "suffix", "--lookup-corpus", empty.path()}), 1, {empty.path()});
    expect_refusal(run(target + Strings{"--drafter", "bigram", "--draft-table", text.path()}), 1, {text.path()});
    expect_refusal(run(target + Strings{"--banned-tokens", "99999"}), 2, {"99999"});
}

TEST(Cli, InputComesFromStdinToo) {
    const ScratchFile input("{\"id\": 1, \"prompt\": \"The ferry\"}\n");
    const Ended ended =
        run(kPair + Strings{"--input", "-", "--max-new-tokens", "4", "--quiet"}, "", "< " + input.path());
    EXPECT_EQ(ended.code, 0) << ended.err;
    ASSERT_EQ(lines_of(ended.out).size(), 1u);
}

TEST(Cli, ResumedOutputEqualsAnUninterruptedRuns) {
    const ScratchFile input(kMixedInput);
    const ScratchFile whole(""), half("");
    const auto arguments = [&](const ScratchFile& output) {
        return kPair + Strings{"--input", input.path(), "--output", output.path(), "--max-new-tokens", "8", "--quiet"};
    };
    EXPECT_EQ(run(arguments(whole)).code, 3);
    const std::string text = whole.text();
    const std::size_t third_line = text.find('\n', text.find('\n') + 1) + 20;
    std::ofstream(half.path()) << text.substr(0, third_line);
    expect_refusal(run(arguments(half)), 2, {"holds results already", "--resume"});
    EXPECT_EQ(run(arguments(half) + Strings{"--resume"}).code, 3);
    EXPECT_EQ(without_stats(half.text()), without_stats(text));
    EXPECT_EQ(run(arguments(half) + Strings{"--resume"}).code, 3); // nothing left to do: the same file, the same code
    EXPECT_EQ(without_stats(half.text()), without_stats(text));
}

TEST(Cli, AFullDiskIsAFailure) {
    const ScratchFile input("{\"prompt\": \"The ferry\"}\n");
    const Ended ended = run(kPair + Strings{"--input", input.path(), "--output", "/dev/full"});
    EXPECT_EQ(ended.code, 1);
    EXPECT_NE(ended.err.find("/dev/full: cannot be written: No space left on device"), std::string::npos) << ended.err;
    const Ended streamed = run(kPair + Strings{"--prompt", "The ferry"}, "", "", "/dev/full");
    EXPECT_EQ(streamed.code, 1);
    EXPECT_NE(streamed.err.find("stdout: cannot be written"), std::string::npos) << streamed.err;
}

TEST(Cli, StopStringsEndTheTextBeforeThem) {
    const Strings prompt = {"--prompt", "The ferry left the island", "--max-new-tokens", "48", "--quiet"};
    const std::string whole = run(kPair + prompt).out;
    const std::string stop = whole.substr(10, 4);
    const std::string cut = run(kPair + prompt + Strings{"--stop", stop}).out;
    EXPECT_EQ(cut, whole.substr(0, whole.find(stop)) + "\n");
}

TEST(Cli, TokenizeGoesThereAndBack) {
    const ScratchFile texts("{\"id\": \"x\", \"text\": \"The ferry left\"}\nbroken\n{\"text\": 5}\n");
    const Ended there = run({"tokenize", "--model", kTarget, "--input", texts.path()});
    EXPECT_EQ(there.code, 3);
    const auto lines = lines_of(there.out);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[1]["line"], 2);
    EXPECT_EQ(lines[2]["id"], 3);
    const ScratchFile ids(lines[0].dump() + "\n{\"token_ids\": [99999]}\n{\"token_ids\": [-1]}\n");
    const auto back = lines_of(run({"tokenize", "--model", kTarget, "--input", ids.path(), "--decode"}).out);
    ASSERT_EQ(back.size(), 3u);
    EXPECT_EQ(back[0]["text"], "The ferry left");
    EXPECT_TRUE(back[1].contains("error"));
    EXPECT_TRUE(back[2].contains("error"));
    EXPECT_EQ(Json::parse(run({"tokenize", "--model", kTarget, "--text", "The ferry left"}).out),
              lines[0]["token_ids"]);
}

TEST(Cli, ConversationsAreTheIdsOfTheirRenderedText) {
    const TemporaryDirectory directory; // the target, with a chat template
    for (const auto& file : fs::directory_iterator(kTarget))
        fs::create_symlink(file.path(), directory.path() / file.path().filename());
    fs::copy(ENTRODRAFT_SOURCE_DIR "/tests/model/chatml.jinja", directory.path() / "chat_template.jinja");
    const std::string target = directory.path().string();
    const std::string rendered = "<|im_start|>user\nHi<|endoftext|><|im_end|>\n<|im_start|>assistant\n";
    const std::string ids = run({"tokenize", "--model", target, "--text", rendered}).out;
    const ScratchFile input(R"({"id": 1, "messages": [{"role": "user", "content": "Hi<|endoftext|>"}]})"
                            "\n{\"id\": 2, \"prompt_token_ids\": " +
                            ids.substr(0, ids.size() - 1) +
                            "}\n{\"id\": 3, \"prompt\": \"Hi<|endoftext|>\"}\n"
                            R"({"id": 4, "messages": [{"role": 5, "content": "Hi"}]})"
                            "\n");
    const Strings generate = {"generate", "--target", target, "--input", input.path(), "--max-new-tokens", "6"};
    const Ended ended = run(generate + Strings{"--chat", "--quiet"});
    EXPECT_EQ(ended.code, 3) << ended.err;
    const auto lines = lines_of(ended.out);
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[0]["token_ids"], lines[1]["token_ids"]);
    EXPECT_EQ(lines[0]["stats"]["prompt_tokens"], lines[1]["stats"]["prompt_tokens"]);
    EXPECT_EQ(lines[2]["stats"]["prompt_tokens"], lines[0]["stats"]["prompt_tokens"]);
    EXPECT_NE(lines[3]["error"].get<std::string>().find("role must be a string"), std::string::npos);
    EXPECT_EQ(lines_of(run(generate + Strings{"--quiet"}).out)[0]["token_ids"], lines[0]["token_ids"]);
    const Ended one = run(
        {"generate", "--target", target, "--chat", "--prompt", "Hi<|endoftext|>", "--max-new-tokens", "6", "--quiet"});
    EXPECT_EQ(one.out, lines[0]["text"].get<std::string>() + "\n");
}

TEST(Cli, ChatWithoutATemplateIsRefusedBeforeAnyLine) {
    expect_refusal(run(kPair + Strings{"--chat", "--prompt", "Hi"}), 2, {"--chat: ", kTarget, "has no chat template"});
    expect_refusal(run(kPair + Strings{"--chat", "--chat-template", "lama", "--prompt", "Hi"}), 2,
                   {"--chat-template", "'lama'", "chatml"});
    EXPECT_EQ(
        run(kPair + Strings{"--chat", "--chat-template", "chatml", "--prompt", "Hi", "--max-new-tokens", "3"}).code, 0);
}

// Runs `command` until `output` has grown by a line, then sends the signal. Returns its exit code.
int code_after_signal(const std::string& command, const std::string& signal, const std::string& output) {
    const std::string lines = "$(wc -l < " + output + ")";
    const int status =
        std::system(("before=" + lines + "; " + command + " & pid=$!; while [ " + lines +
                     " = $before ] && kill -0 $pid; do sleep 0.1; done; kill -s " + signal + " $pid; wait $pid")
                        .c_str());
    return WEXITSTATUS(status);
}

TEST(Cli, SigusrStopsAfterTheRoundWithCode75AndWholeLines) {
    std::string many;
    for (int i = 0; i < 20000; ++i)
        many += "{\"prompt\": \"The ferry left the island\"}\n";
    const ScratchFile input(many), output("");
    const TemporaryDirectory directory;
    const std::string summary = (directory.path() / "summary.json").string();
    const std::string command = quoted(ENTRODRAFT_BINARY) + " generate --target " + kTarget + " --input " +
                                input.path() + " --output " + output.path() +
                                " --quiet --ignore-eos --max-new-tokens 200 --summary " + summary;
    // A machine that stalls may not end the round in the half second that SIGTERM leaves; the summary is of the last
    // run.
    for (const std::string signal : {"TERM", "USR1"}) {
        EXPECT_EQ(code_after_signal(command + (signal == "USR1" ? " --resume" : ""), signal, output.path()), 75);
        const std::string text = output.text();
        ASSERT_FALSE(text.empty());
        EXPECT_EQ(text.back(), '\n');
        std::size_t id = 0;
        for (const Json& line : lines_of(text))
            EXPECT_EQ(line["id"], ++id);
    }
    const Json stopped = Json::parse(std::ifstream(summary));
    EXPECT_EQ(stopped["interrupted"], true);
    EXPECT_GT(stopped["prompts"]["resumed"], 0);
    EXPECT_EQ(stopped["prompts"]["completed"].get<std::size_t>() + stopped["prompts"]["resumed"].get<std::size_t>(),
              lines_of(output.text()).size());
}

TEST(Cli, AFileIsNotItsOwnOutput) {
    const ScratchFile file("{\"id\":1,\"prompt\":\"x\"}");
    const std::string text = file.text();
    expect_refusal(run(kPair + Strings{"--input", file.path(), "--output", file.path(), "--resume"}), 2,
                   {"--output and --input are the same file", file.path()});
    expect_refusal(run(kPair + Strings{"--input", "-", "--output", file.path(), "--resume"}, "", "< " + file.path()), 2,
                   {"the same file"});
    EXPECT_EQ(file.text(), text);
}

TEST(Cli, ClosedStandardDescriptorsAreNotTakenForFiles) {
    const ScratchFile input("{\"prompt\": \"The ferry\"}\n"), output("");
    const Strings files = {"--input", input.path(), "--output", output.path(), "--max-new-tokens", "4"};
    EXPECT_EQ(run(kPair + files, "bash -c 'exec \"$0\" \"$@\" <&- >&- 2>&-'").code, 0);
    EXPECT_EQ(lines_of(output.text()).size(), 1u); // and no summary between
    const Ended unread = run(kPair + Strings{"--input", "-"}, "bash -c 'exec \"$0\" \"$@\" <&-'");
    EXPECT_EQ(unread.code, 1);
    EXPECT_NE(unread.err.find("stdin: cannot be read"), std::string::npos) << unread.err;
}

TEST(Cli, FilesWithoutEndAreRefused) {
    const auto expect_named = [](const Ended& ended, const std::string& file) {
        EXPECT_EQ(ended.code, 1) << ended.err;
        EXPECT_NE(ended.err.find(file + ": is "), std::string::npos) << ended.err;
    };
    const std::string limits = "bash -c 'ulimit -t 20; exec \"$0\" \"$@\"'";
    expect_named(run({"simulate", "--recording", "/dev/zero"}, limits), "/dev/zero");
    expect_named(run(kPair + Strings{"--input", "/dev/urandom"}, limits), "/dev/urandom");
    expect_named(run(Strings{"generate", "--target", kTarget, "--drafter", "suffix", "--lookup-corpus", "/dev/zero",
                             "--prompt", "p"},
                     limits),
                 "/dev/zero");
}

TEST(Cli, ATimeoutBeyondAllClocksIsRefusedAlways) {
    for (const std::string seconds : {"1e10", "1e300", "9223372037"})
        expect_refusal(run(kPair + Strings{"--prompt", "p", "--collective-timeout", seconds}), 2,
                       {"--collective-timeout " + seconds});
}

TEST(Cli, AStoredHeadIsUsedThoughTheConfigTiesIt) {
    const Strings prompt = {"--prompt", "The ferry", "--max-new-tokens", "8"};
    const Ended own = run(Strings{"generate", "--target", kTarget} + prompt);
    EXPECT_EQ(own.err.find("warning"), std::string::npos) << own.err;
    const ModelCopy tied(kTarget);
    tied.set_in_config("tie_word_embeddings", true);
    const Ended ended = run(Strings{"generate", "--target", tied.path()} + prompt);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.out, own.out);
    const std::string warning =
        " " + tied.path() + ": config.json ties the head to the embedding, but the file stores a head of other values";
    EXPECT_NE(ended.err.find("warning: --target" + warning), std::string::npos) << ended.err;
    const Ended inspected = run({"inspect", tied.path(), "--draft", tied.path()});
    EXPECT_NE(inspected.out.find("a head of its own"), std::string::npos) << inspected.out;
    for (const std::string option : {"--model", "--draft"})
        EXPECT_NE(inspected.err.find("warning: " + option + warning), std::string::npos) << inspected.err;
}

TEST(Cli, AHangupIsACleanStopUnlessNohupWantsOtherwise) {
    const ScratchFile output(""), err(""), place("");
    const std::string pipe = place.path() + "-pipe";
    const auto hang_up = [&](const std::string& before, const std::string& after) {
        const int status =
            std::system(("rm -f " + output.path() + "; mkfifo " + pipe + "; exec 9<>" + pipe +
                         "; echo '{\"prompt\": \"The ferry\"}' >&9; " + before + quoted(ENTRODRAFT_BINARY) +
                         " generate --target " + kTarget + " --max-new-tokens 4 --input " + pipe + " --output " +
                         output.path() + " 2> " + err.path() + " & run=$!; i=0; while [ $i -lt 200 ] && ! [ -s " +
                         output.path() + " ]; do sleep 0.1; i=$((i + 1)); done; kill -HUP $run; " + after +
                         " wait $run; code=$?; rm -f " + pipe + "; exit $code")
                            .c_str());
        return WEXITSTATUS(status);
    };
    EXPECT_EQ(hang_up("", ""), 75) << err.text();
    EXPECT_NE(err.text().find("stopped by a signal"), std::string::npos) << err.text();
    EXPECT_EQ(hang_up("nohup ", "sleep 0.3; kill -0 $run || exit 99; kill -USR1 $run;"), 75) << err.text();
}

// ---- several ranks ----

const std::string kMpirun = "mpirun --oversubscribe --bind-to none -n 2" +
                            std::string(geteuid() == 0 ? " --allow-run-as-root " : " ") + quoted(ENTRODRAFT_BINARY) +
                            " generate --target " + kTarget + " --max-new-tokens 4 ";

TEST(CliRanks, APauseOnStdinLongerThanTheTimeoutEndsNothing) {
    const ScratchFile output(""), err("");
    const std::string lines = "(echo '{\"prompt\": \"The ferry\"}'; sleep 6; echo '{\"prompt\": \"The sea\"}')";
    const int status = std::system((lines + " | timeout 60 " + kMpirun + "--input - --collective-timeout 4 --quiet > " +
                                    output.path() + " 2> " + err.path())
                                       .c_str());
    EXPECT_EQ(WEXITSTATUS(status), 0) << err.text();
    EXPECT_EQ(lines_of(output.text()).size(), 2u);
}

TEST(CliRanks, ASignalEndsTheWaitForInput) {
    const ScratchFile output(""), err(""), place("");
    const std::string pipe = place.path() + "-pipe";
    // The pipe stays open; mpirun hands the signal on. timeout would hand it on twice, to its child and to its group,
    // and a second signal ends a run at once.
    const int status = std::system(
        ("mkfifo " + pipe + "; exec 9<>" + pipe + "; rm -f " + output.path() + "; " +
         "echo '{\"prompt\": \"The ferry\"}' >&9; " + kMpirun + "--input " + pipe + " --output " + output.path() +
         " 2> " + err.path() + " & run=$!; { sleep 60; kill -9 $run; } > /dev/null 2>&1 & " +
         "guard=$!; while kill -0 $run && ! [ -s " + output.path() +
         " ]; do sleep 0.1; done; kill -USR1 $run; wait $run; code=$?; kill $guard; exit $code")
            .c_str());
    unlink(pipe.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 75) << err.text();
    EXPECT_NE(err.text().find("stopped by a signal"), std::string::npos) << err.text();
    EXPECT_EQ(lines_of(output.text()).size(), 1u);
}

TEST(CliRanks, TwoRanksSayWhatOneSays) {
    const ScratchFile input(kMixedInput);
    const Strings arguments =
        kPair + Strings{"--input", input.path(), "--max-new-tokens", "8", "--quiet", "--dtype", "float32"};
    const Ended one = run(arguments), two = run_ranks(2, arguments);
    EXPECT_EQ(two.code, 3) << two.err;
    const auto greedy = [](std::vector<Json> lines) {
        std::erase_if(lines, [](const Json& line) { return line["id"] == 5; }); // sampled
        return lines;
    };
    EXPECT_EQ(greedy(without_stats(two.out)), greedy(without_stats(one.out)));
}

TEST(CliRanks, EveryRankLeavesWithOneMessageAndOneCode) {
    expect_refusal(run_ranks(2, kPair + Strings{"--prompt", "p", "--nonsense"}), 2, {"unknown option --nonsense"});
    expect_refusal(run_ranks(2, {"generate", "--target", "/dev/null/nonexistent", "--prompt", "p"}), 2,
                   {"/dev/null/nonexistent"});
    expect_refusal(run_ranks(2, kPair + Strings{"--input", "/dev/null/nonexistent.jsonl"}), 1,
                   {"/dev/null/nonexistent.jsonl"});
    expect_refusal(run_ranks(2, kPair + Strings{"--prompt", ""}), 2, {"--prompt is empty"});
}

TEST(CliRanks, MoreRanksThanHeadsAreRefusedWithTheMostThatWork) {
    expect_refusal(run_ranks(7, kPair + Strings{"--prompt", "p"}), 2, {kTarget, "7 ranks", "at most 6"});
}

TEST(CliRanks, ADraftThatCannotBeCutIsNamed) {
    const Strings sharded = {"--prompt", "p", "--draft-placement", "sharded", "--threads", "1"};
    const Ended ended = run_ranks(5, Strings{"generate", "--target", kTarget, "--draft", kDraft} + sharded);
    EXPECT_EQ(ended.code, 2);
    EXPECT_NE(ended.err.find("--draft " + kDraft + " on 5 ranks: "), std::string::npos) << ended.err;
}

TEST(CliRanks, MessagesGoOverMpiWhereSharedMemoryIsTooSmall) {
    const std::string tiny = "unshare -m sh -c 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec \"$@\"' sh ";
    if (std::system((tiny + "true 2> /dev/null").c_str()) != 0) GTEST_SKIP() << "needs the right to mount";
    const Strings arguments = kPair + Strings{"--prompt", "The ferry", "--max-new-tokens", "8"};
    const Ended roomy = run_ranks(2, arguments), small = run(arguments, tiny + mpirun(2));
    EXPECT_EQ(small.code, 0) << small.err;
    EXPECT_EQ(small.out, roomy.out);
    EXPECT_EQ(roomy.err.find("/dev/shm"), std::string::npos) << roomy.err;
    EXPECT_NE(small.err.find("warning: host "), std::string::npos) << small.err;
    EXPECT_NE(small.err.find(": /dev/shm has 64 KiB free"), std::string::npos) << small.err;
}

TEST(CliRanks, DifferentCommandLinesAreNoticed) {
    const ScratchFile err("");
    const std::string root = geteuid() == 0 ? " --allow-run-as-root" : "";
    const std::string generate =
        quoted(ENTRODRAFT_BINARY) + " generate --target " + kTarget + " --prompt p --temperature 1 --seed ";
    const int status = std::system(("timeout 60 mpirun --oversubscribe --bind-to none" + root + " -n 1 " + generate +
                                    "1 : -n 1 " + generate + "2 2> " + err.path())
                                       .c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1);
    EXPECT_NE(err.text().find("the command line of rank 1 differs"), std::string::npos) << err.text();
}

} // namespace cli_test
