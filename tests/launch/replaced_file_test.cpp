// A file is replaced by a whole one or not at all.
#include "launch/start/replaced_file.h"

#include "tests/model/temporary_directory.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/stat.h>

namespace replaced_file_test {

using namespace entrodraft;
using launch::ReplacedFile;

std::string text_of(const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
}

std::size_t n_files(const std::filesystem::path& directory) {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory))
        ++n;
    return n;
}

void write(ReplacedFile& file, const std::string& text) {
    file.write(std::as_bytes(std::span(text)));
}

std::string refusal(const std::string& file) {
    try {
        launch::require_replaceable(file);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "accepted";
}

TEST(ReplacedFile, TakesItsPlaceWithTheCommit) {
    const TemporaryDirectory directory;
    const std::string path = directory.write("out", "old").string();
    {
        ReplacedFile file(path);
        write(file, "new ");
        write(file, "text");
        EXPECT_EQ(text_of(path), "old");
        file.commit();
        EXPECT_EQ(text_of(path), "new text");
    }
    EXPECT_EQ(text_of(path), "new text");
    EXPECT_EQ(n_files(directory.path()), 1u);
    ReplacedFile fresh((directory.path() / "other").string());
    fresh.commit();
    EXPECT_EQ(n_files(directory.path()), 2u) << "where there was none";
}

TEST(ReplacedFile, KeepsTheModeOfTheFileThatItReplaces) {
    const TemporaryDirectory directory;
    const std::string path = directory.write("out", "old").string();
    for (const auto mode : {0600, 0640, 0604}) {
        ASSERT_EQ(chmod(path.c_str(), static_cast<mode_t>(mode)), 0);
        launch::replace_file(path, "new");
        struct stat info {};
        ASSERT_EQ(stat(path.c_str(), &info), 0);
        EXPECT_EQ(info.st_mode & 07777, static_cast<mode_t>(mode));
        EXPECT_EQ(text_of(path), "new");
    }
}

TEST(ReplacedFile, FollowsALinkToTheFileThatItNames) {
    const TemporaryDirectory directory;
    const std::filesystem::path real = directory.write("real", "old"), link = directory.path() / "link",
                                second = directory.path() / "second", none = directory.path() / "dangling";
    std::filesystem::create_symlink("real", link);
    std::filesystem::create_symlink(link, second);
    launch::replace_file(second.string(), "new");
    EXPECT_TRUE(std::filesystem::is_symlink(link) && std::filesystem::is_symlink(second));
    EXPECT_EQ(text_of(real), "new");
    std::filesystem::create_symlink("fresh", none);
    launch::replace_file(none.string(), "first");
    EXPECT_TRUE(std::filesystem::is_symlink(none));
    EXPECT_EQ(text_of(directory.path() / "fresh"), "first");
    std::filesystem::create_symlink("loop", directory.path() / "loop");
    EXPECT_NE(refusal((directory.path() / "loop").string()).find("is a chain of links without an end"),
              std::string::npos);
}

TEST(ReplacedFile, LeavesTheOldOneWithoutACommit) {
    const TemporaryDirectory directory;
    const std::string path = directory.write("out", "old").string();
    {
        ReplacedFile file(path);
        write(file, "half");
    }
    EXPECT_EQ(text_of(path), "old");
    EXPECT_EQ(n_files(directory.path()), 1u);
}

TEST(ReplacedFile, IsRefusedWhereNothingCanBeReplaced) {
    const TemporaryDirectory directory;
    const std::string path = directory.path().string();
    EXPECT_EQ(refusal(path + "/new"), "accepted");
    EXPECT_EQ(refusal("new-in-this-directory"), "accepted");
    EXPECT_EQ(refusal(path), path + ": is not a regular file; name another");
    const std::string pipe = path + "/pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(refusal(pipe), pipe + ": is not a regular file; name another");
    EXPECT_EQ(refusal(path + "/none/new"), path + "/none/new: cannot be written: No such file or directory");
    EXPECT_THROW(ReplacedFile(path + "/none/new"), std::runtime_error);
}

} // namespace replaced_file_test
