// What --target, --draft and --model mean: a directory, or a name in the local Hugging Face cache.
#include "launch/start/model_directory.h"

#include "launch/start/failure.h"

#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

namespace entrodraft::launch {
namespace model_directory_test {

namespace fs = std::filesystem;

std::string refusal_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const BadOption& error) {
        return error.what();
    }
    return "";
}

struct ModelDirectory : testing::Test {
    std::string resolved(const std::string& name) {
        return resolve_model_directory(name, "--target", {cache.path().string(), "", "", ""});
    }
    std::string refusal(const std::string& name) {
        return refusal_of([&] { resolved(name); });
    }
    TemporaryDirectory cache;
};

TEST_F(ModelDirectory, IsTheDirectoryOfThatName) {
    EXPECT_EQ(resolved(cache.path().string()), cache.path().string());
    EXPECT_EQ(resolved("."), ".");
}

TEST_F(ModelDirectory, IsASnapshotOfTheCacheElse) {
    const auto snapshot = cache.path() / "models--org--name" / "snapshots" / "0a";
    fs::create_directories(snapshot);
    EXPECT_EQ(resolved("org/name"), snapshot.string());
}

TEST_F(ModelDirectory, PrefersALocalDirectoryToTheCache) {
    const fs::path before = fs::current_path();
    fs::create_directories(cache.path() / "models--org--name" / "snapshots" / "0a");
    fs::create_directories(cache.path() / "org" / "name");
    fs::current_path(cache.path());
    EXPECT_EQ(resolved("org/name"), "org/name");
    fs::current_path(before);
}

TEST_F(ModelDirectory, NamesTheCommandThatDownloadsWhatIsAbsent) {
    EXPECT_EQ(refusal("facebook/opt-125m"),
              "--target facebook/opt-125m: is not a directory here, and the Hugging Face cache " +
                  cache.path().string() + " does not hold it; to download it: hf download facebook/opt-125m");
}

TEST_F(ModelDirectory, NamesAMissingFileAsAFile) {
    for (const char* name : {"none.gguf", "models/none.gguf", "/dev/null/none.gguf"})
        EXPECT_EQ(refusal(name), "--target " + std::string(name) +
                                     ": there is no such file; name a GGUF file, or the directory that holds "
                                     "config.json, tokenizer and weights");
}

TEST_F(ModelDirectory, LooksUpNoPathsAndOddNames) {
    for (const char* name : {"/dev/null/nonexistent", "./none", "../none", "a/b/c", "no ne", ""})
        EXPECT_TRUE(refusal(name).starts_with("--target " + std::string(name) + ": does not exist; name the directory"))
            << refusal(name);
    EXPECT_TRUE(refusal(cache.write("file", "").string())
                    .ends_with("is not a directory; name the one that holds "
                               "config.json, tokenizer and weights"));
}

TEST_F(ModelDirectory, SaysWhereNoCacheIsKnown) {
    const std::string message =
        refusal_of([&] { resolve_model_directory("org/name", "--draft", model::HubEnvironment{}); });
    EXPECT_EQ(message,
              "--draft org/name: does not exist, and where the Hugging Face cache lies is not known; set HF_HOME");
}

} // namespace model_directory_test
} // namespace entrodraft::launch
