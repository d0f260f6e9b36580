// Files that somebody changes while the program has them mapped: one that was cut ends the process with its name, one
// that was written over is read within its bounds, and told of.
#include "launch/io/changed_files.h"

#include "model/files/checkpoint.h"
#include "model/files/mapped_file.h"
#include "tests/launch/command_line.h"
#include "tests/launch/model_copy.h"
#include "tests/model/temporary_directory.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <utime.h>

namespace changed_files_test {

using namespace entrodraft;
using launch::end_on_lost_pages;
using test::Ended;

const std::string kModel = ENTRODRAFT_SOURCE_DIR "/model/demo/target";
constexpr std::size_t kBytes = 1 << 20;

// Adds up what the file holds, on a thread of its own.
int sum_of(std::span<const std::byte> bytes) {
    int sum = 0;
    std::thread([&] {
        for (const std::byte each : bytes)
            sum += static_cast<int>(each);
    }).join();
    return sum;
}

TEST(ChangedFiles, AFileThatWasCutEndsTheProcessWithItsName) {
    const TemporaryDirectory directory;
    const std::string file = directory.write("weights", std::string(kBytes, 'x')).string();
    const auto read_cut_file = [&] {
        dist::Session session = dist::Session::start();
        end_on_lost_pages(session);
        const model::MappedFile other(kModel + "/config.json", 1, "JSON"), mapped(file, 1, "test");
        std::filesystem::resize_file(file, kBytes / 2);
        std::_Exit(10 + sum_of(mapped.bytes()) % 2);
    };
    EXPECT_EXIT(read_cut_file(), testing::ExitedWithCode(1),
                "^entrodraft: \\[rank 0, host .*\\] " + file + ": became shorter while it was in use.*\n$");
}

TEST(ChangedFiles, AModelThatIsCutWhileItLoadsEndsTheProcessWithItsName) {
    const test::ModelCopy copy(kModel);
    const auto load_cut_model = [&] {
        dist::Session session = dist::Session::start();
        end_on_lost_pages(session);
        const model::Checkpoint checkpoint = model::Checkpoint::open(copy.path());
        std::filesystem::resize_file(copy.file("model.safetensors"), 100'000);
        int sum = 0;
        for (const auto& [name, tensor] : checkpoint.tensors())
            sum += sum_of(tensor.bytes);
        std::_Exit(10 + sum % 2);
    };
    EXPECT_EXIT(load_cut_model(), testing::ExitedWithCode(1), "model.safetensors: became shorter");
}

TEST(ChangedFiles, AnyOtherBusErrorIsWhatItWasBefore) {
    const TemporaryDirectory directory;
    const std::string file = directory.write("other", std::string(kBytes, 'x')).string();
    const auto read_unknown_file = [&] {
        dist::Session session = dist::Session::start();
        end_on_lost_pages(session);
        FILE* const opened = std::fopen(file.c_str(), "r");
        const void* data = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, fileno(opened), 0);
        std::filesystem::resize_file(file, 0);
        std::_Exit(10 + sum_of({static_cast<const std::byte*>(data), kBytes}) % 2);
    };
    EXPECT_EXIT(read_unknown_file(), testing::KilledBySignal(SIGBUS), "^$");
    const auto receive = [] {
        dist::Session session = dist::Session::start();
        end_on_lost_pages(session);
        raise(SIGBUS);
    };
    EXPECT_EXIT(receive(), testing::KilledBySignal(SIGBUS), "^$");
}

TEST(ChangedFiles, AreToldOnceWhetherMappedStillOrNot) {
    const TemporaryDirectory directory;
    const auto write = [&](const std::string& name) { return directory.write(name, "before").string(); };
    const std::string still = write("still"), gone = write("gone"), same = write("same"), removed = write("removed"),
                      replaced = write("replaced");
    (void)model::take_changed_files();
    const model::MappedFile mapped(still, 1, "test"), again(still, 1, "test"), alike(same, 1, "test"),
        other(replaced, 1, "test");
    {
        const model::MappedFile briefly(gone, 1, "test"), unlinked(removed, 1, "test");
        for (const std::string& file : {still, gone})
            std::ofstream(file) << "longer than before";
        std::filesystem::remove(removed);
        std::filesystem::rename(write("new"), replaced);
    }
    EXPECT_EQ(model::take_changed_files(), (std::vector<std::string>{gone, still}));
    EXPECT_EQ(model::take_changed_files(), std::vector<std::string>());
    const utimbuf long_ago = {1, 1}; // a time of change alone
    ASSERT_EQ(utime(same.c_str(), &long_ago), 0);
    EXPECT_EQ(model::take_changed_files(), std::vector<std::string>{same});
}

// A run that waits for its second line while `change` happens to the corpus that it drafts from.
Ended run_while_corpus_changes(const std::string& before,
                               const std::function<void(const std::string& corpus)>& change) {
    const TemporaryDirectory directory;
    std::string text;
    for (int i = 0; i < 3000; ++i)
        text += "It was a dark night, and the ferry " + std::to_string(i) + " left at nine.\n";
    const std::string input = directory.write("text", text).string(), corpus = directory.path() / "the.corpus",
                      out = directory.path() / "out", err = directory.path() / "err";
    EXPECT_EQ(test::run({"build-corpus", "--model", kModel, "--input", input, "--output", corpus}).code, 0);
    const std::string command = before + " " + test::quoted(ENTRODRAFT_BINARY) + " generate --target " + kModel +
                                " --drafter suffix --lookup-corpus " + corpus +
                                " --input - --max-new-tokens 8 --threads 1 > " + out + " 2> " + err;
    FILE* const program = popen(command.c_str(), "w");
    const auto say_line = [&] {
        std::fputs("{\"prompt\": \"It was a dark\"}\n", program);
        std::fflush(program);
    };
    const auto text_of = [](const std::string& file) {
        std::ostringstream read;
        read << std::ifstream(file).rdbuf();
        return read.str();
    };
    say_line();
    for (int i = 0; i < 6000 && text_of(out).find('\n') == std::string::npos; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    change(corpus);
    say_line();
    const int status = pclose(program);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text_of(out), text_of(err)};
}

void cut(const std::string& corpus) {
    std::filesystem::resize_file(corpus, 0);
}

// In place: positions and tokens that are out of all bounds.
void write_over(const std::string& corpus) {
    std::fstream file(corpus, std::ios::in | std::ios::out | std::ios::binary);
    file << std::string(std::filesystem::file_size(corpus), '\xff');
}

TEST(CliRanks, ACorpusThatIsCutUnderTheRunEndsAllRanks) {
    for (const int ranks : {1, 2}) {
        const Ended ended = run_while_corpus_changes(ranks == 1 ? "" : test::mpirun(ranks), cut);
        EXPECT_EQ(ended.code, 1) << ended.err;
        EXPECT_NE(ended.err.find("the.corpus: became shorter while it was in use"), std::string::npos) << ended.err;
        EXPECT_EQ(test::lines_of(ended.out).size(), 1U) << ended.out;
    }
}

TEST(CliRanks, ACorpusThatIsWrittenOverUnderTheRunIsToldOf) {
    const Ended plain = run_while_corpus_changes("", [](const std::string&) {});
    const Ended ended = run_while_corpus_changes("", write_over);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(test::without_stats(ended.out), test::without_stats(plain.out));
    EXPECT_NE(ended.err.find("the.corpus: was written to or touched while it was in use"), std::string::npos)
        << ended.err;
    EXPECT_EQ(plain.err.find("the.corpus: was"), std::string::npos) << plain.err;
}

} // namespace changed_files_test
