// Which directory the cache of Hugging Face's tools keeps a model in. The layout is written here as those tools do.
#include "model/files/hub_cache.h"

#include "tests/model/checkpoint_files.h"
#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>

namespace entrodraft::model {
namespace hub_cache_test {

namespace fs = std::filesystem;

TEST(HubCache, LiesWhereHuggingFacesToolsLookFirst) {
    HubEnvironment environment{"/a/cache", "/b", "/c", "/home/x"};
    EXPECT_EQ(hub_cache_directory(environment), "/a/cache");
    environment.hf_hub_cache = "";
    EXPECT_EQ(hub_cache_directory(environment), "/b/hub");
    environment.hf_home = "";
    EXPECT_EQ(hub_cache_directory(environment), "/c/huggingface/hub");
    environment.xdg_cache_home = "";
    EXPECT_EQ(hub_cache_directory(environment), "/home/x/.cache/huggingface/hub");
    environment.home = "";
    EXPECT_EQ(hub_cache_directory(environment), "");
}

TEST(HubCache, TakesATildeForTheHome) {
    EXPECT_EQ(hub_cache_directory({"~/hub", "", "", "/home/x"}), "/home/x/hub");
    EXPECT_EQ(hub_cache_directory({"", "~", "", "/home/x"}), "/home/x/hub");
    EXPECT_EQ(hub_cache_directory({"~y/hub", "", "", "/home/x"}), "~y/hub");
    EXPECT_EQ(hub_cache_directory({"~/hub", "", "", ""}), "~/hub");
}

TEST(HubCache, KnowsTheNamesOfTheHub) {
    for (const char* name : {"gpt2", "facebook/opt-125m", "Qwen/Qwen2.5-0.5B", "a/b", "_a_/b.c", "123"})
        EXPECT_TRUE(is_hub_name(name)) << name;
    for (const char* name :
         {"",     "/",      "a/",    "/a",      "a/b/c", "..",   "../a",         "a/..",     "a..b",
          "a--b", "-a",     "a-",    ".a",      "a.",    "a/.b", "a b",          "a\nb",     "a\\b",
          "a:b",  "a@main", "a.git", "a/b.git", "~",     "~/a",  "models--a--b", "\xc3\xa4", "a/b\x01"})
        EXPECT_FALSE(is_hub_name(name)) << name;
    EXPECT_TRUE(is_hub_name(std::string(96, 'a') + "/" + std::string(96, 'b')));
    EXPECT_FALSE(is_hub_name(std::string(97, 'a')));
    EXPECT_FALSE(is_hub_name(std::string("a\0b", 3)));
}

// A cache with two snapshots of org/name, 0a the older and 0b the newer.
class Cache : public testing::Test {
  protected:
    Cache() {
        const auto now = fs::file_time_type::clock::now();
        for (const char* hash : {"0a", "0b"})
            fs::create_directories(model_ / "snapshots" / hash);
        fs::create_directories(model_ / "refs");
        fs::last_write_time(model_ / "snapshots" / "0a", now - std::chrono::hours(1));
        fs::last_write_time(model_ / "snapshots" / "0b", now);
    }
    void write_ref(const std::string& text) { directory_.write("models--org--name/refs/main", text); }
    std::optional<fs::path> found() { return find_in_hub_cache(directory_.path(), "org/name"); }

    TemporaryDirectory directory_;
    fs::path model_ = directory_.path() / "models--org--name";
};

TEST_F(Cache, GivesTheSnapshotThatMainNames) {
    write_ref("0a");
    EXPECT_EQ(found(), model_ / "snapshots" / "0a");
    write_ref("0b\n");
    EXPECT_EQ(found(), model_ / "snapshots" / "0b");
}

TEST_F(Cache, GivesTheNewestSnapshotWhereThereIsNoMain) {
    EXPECT_EQ(found(), model_ / "snapshots" / "0b");
    fs::last_write_time(model_ / "snapshots" / "0b", fs::last_write_time(model_ / "snapshots" / "0a"));
    EXPECT_EQ(found(), model_ / "snapshots" / "0b"); // equally old: the later name
    fs::last_write_time(model_ / "snapshots" / "0b",
                        fs::last_write_time(model_ / "snapshots" / "0a") - std::chrono::hours(1));
    EXPECT_EQ(found(), model_ / "snapshots" / "0a");
    directory_.write("models--org--name/snapshots/zz", "a file, not a snapshot");
    EXPECT_EQ(found(), model_ / "snapshots" / "0a");
}

TEST_F(Cache, GivesNothingForWhatItDoesNotHold) {
    EXPECT_EQ(find_in_hub_cache(directory_.path(), "org/other"), std::nullopt);
    EXPECT_EQ(find_in_hub_cache(directory_.path(), "name"), std::nullopt);
    EXPECT_EQ(find_in_hub_cache(directory_.path() / "none", "org/name"), std::nullopt);
    fs::remove_all(model_ / "snapshots");
    EXPECT_EQ(found(), std::nullopt);
}

TEST_F(Cache, KnowsNamesWithoutOrganisation) {
    fs::create_directories(directory_.path() / "models--gpt2" / "snapshots" / "0c");
    EXPECT_EQ(find_in_hub_cache(directory_.path(), "gpt2"), directory_.path() / "models--gpt2" / "snapshots" / "0c");
}

TEST_F(Cache, RefusesAMainThatIsNoHash) {
    for (const std::string text : {"", "\n", "../../x", "0a/../0b", "0A", "main", "0a\n0b"}) {
        write_ref(text);
        const std::string message = message_of([&] { found(); });
        EXPECT_TRUE(message.starts_with((model_ / "refs" / "main").string() + ": '")) << message;
        EXPECT_NE(message.find("is not a commit's hash; repair it with hf download org/name"), std::string::npos)
            << message;
    }
    write_ref(std::string(5000, 'a'));
    EXPECT_NE(message_of([&] { found(); }).find("bytes are more than"), std::string::npos);
}

TEST_F(Cache, RefusesAMainWhoseSnapshotIsGone) {
    write_ref("0c");
    const std::string message = message_of([&] { found(); });
    EXPECT_NE(message.find("names the snapshot 0c, which is not there; repair it with hf download org/name"),
              std::string::npos)
        << message;
}

} // namespace hub_cache_test
} // namespace entrodraft::model
