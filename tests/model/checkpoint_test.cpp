// A checkpoint directory: which of its files are read, what an index may say, what a directory lacks, and that opening
// reads headers alone.
#include "model/files/checkpoint.h"

#include "tests/model/checkpoint_files.h"
#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace entrodraft::model {
namespace checkpoint_test {

namespace fs = std::filesystem;

std::string safetensors_with(const std::string& name) { // one tensor of two bytes
    return safetensors_of("{" + header_entry(name, "U8", "[2]", 0, 2) + "}", 2);
}

std::string torch_file_with(const std::string& name) { // the same
    using namespace pickled;
    const std::string value = tensor(storage("ByteStorage", "0", 2), 0, {2}, {1});
    return zip_parts({{"x/data.pkl", whole(dict(text(name) + value))}, {"x/data/0", counting_bytes(2)}}).bytes();
}

// A directory with two shards of each kind, a and b, and an index that a test may put wrong.
class ShardedCheckpoint : public testing::TestWithParam<const char*> {
  protected:
    ShardedCheckpoint() {
        write_shard("a", "a");
        write_shard("b", "b");
    }
    bool is_torch() const { return std::string(GetParam()) == "bin"; }
    std::string single() const { return is_torch() ? "pytorch_model.bin" : "model.safetensors"; }
    void write_shard(const std::string& shard, const std::string& tensor) {
        const std::string bytes = is_torch() ? torch_file_with(tensor) : safetensors_with(tensor);
        directory_.write(shard + "." + GetParam(), bytes);
    }
    // In `index`, "@" stands for the ending of a file's name.
    std::string message_with_index(std::string index) {
        for (auto at = index.find('@'); at != std::string::npos; at = index.find('@'))
            index.replace(at, 1, GetParam());
        directory_.write(single() + ".index.json", index);
        return message_of([&] { Checkpoint::open(directory_.path()); });
    }
    void expect_refused(const std::string& index, const std::string& reason) {
        const std::string message = message_with_index(index);
        EXPECT_NE(message.find(reason), std::string::npos) << index << ": " << message;
        EXPECT_TRUE(message.starts_with(directory_.path().string())) << message;
    }

    TemporaryDirectory directory_;
};
INSTANTIATE_TEST_SUITE_P(Files, ShardedCheckpoint, testing::Values("safetensors", "bin"));

TEST_P(ShardedCheckpoint, HoldsTheTensorsOfAllFiles) {
    // total_size is advisory, and wrong here
    for (const char* total_size : {"1", "-1", "1e300", "18446744073709551615", "\"x\""}) {
        ASSERT_EQ(message_with_index("{\"metadata\":{\"total_size\":" + std::string(total_size) +
                                     "},\"weight_map\":{\"a\":\"a.@\",\"b\":\"b.@\"}}"),
                  "");
    }
    const Checkpoint checkpoint = Checkpoint::open(directory_.path());
    EXPECT_EQ(checkpoint.tensors().size(), 2u);
    EXPECT_EQ(checkpoint.total_bytes(), 4u);
    EXPECT_EQ(*checkpoint.tensor("b").file, (directory_.path() / (std::string("b.") + GetParam())).string());
    EXPECT_FALSE(checkpoint.has("c"));
    EXPECT_EQ(message_of([&] { checkpoint.tensor("c"); }), directory_.path().string() + ": tensor 'c' is missing");
}

TEST_P(ShardedCheckpoint, IsPassedOverWhereThereIsASingleFile) {
    directory_.write(single(), is_torch() ? torch_file_with("c") : safetensors_with("c"));
    ASSERT_EQ(message_with_index(R"({"weight_map":{"a":"a.@"}})"), "");
    EXPECT_TRUE(Checkpoint::open(directory_.path()).has("c"));
}

TEST_P(ShardedCheckpoint, RefusesAMissingFile) {
    expect_refused(R"({"weight_map":{"a":"a.@","b":"c.@"}})",
                   std::string("names the file 'c.") + GetParam() + "', which is not there");
}

TEST_P(ShardedCheckpoint, RefusesNamesThatAreNotPlain) {
    for (const char* name : {"../a.@", "x/a.@", "/a.@", "..", ".", "", "a\\u0000b"})
        expect_refused("{\"weight_map\":{\"a\":\"" + std::string(name) + "\"}}", "plain name");
}

TEST_P(ShardedCheckpoint, RefusesATensorThatIsNotInItsFile) {
    expect_refused(R"({"weight_map":{"a":"a.@","c":"b.@"}})", "'c' is missing, though the index says it is there");
    expect_refused(R"({"weight_map":{"a":"b.@","b":"a.@"}})", "is missing, though the index says it is there");
}

TEST_P(ShardedCheckpoint, RefusesATensorInTwoFiles) {
    write_shard("b", "a");
    expect_refused(R"({"weight_map":{"a":"a.@","b":"b.@"}})", "tensor 'a' is also in " + directory_.path().string());
}

TEST_P(ShardedCheckpoint, RefusesAnIndexThatIsNone) {
    expect_refused("[]", "'weight_map' is missing");
    expect_refused("{}", "'weight_map' is missing");
    expect_refused(R"({"weight_map":["a"]})", "'weight_map' is missing or not an object");
    expect_refused(R"({"weight_map":{}})", "is empty");
    expect_refused(R"({"weight_map":{"a":1}})", "the file of 'a' is not a string");
    expect_refused(R"({"weight_map":{"a":"a.@","a":"b.@"}})", "appears twice");
    expect_refused(R"({"weight_map":{"a":"a.@")", "line 1");
    expect_refused(R"({"metadata":{"total_size":99999999999999999999999},"weight_map":{"a":"a.@"}})", "64 bits");
}

TEST_P(ShardedCheckpoint, RefusesAnIndexOfHugeCountsSoon) {
    const double begin = cpu_seconds();
    std::string index = "{\"weight_map\":{\"a\":\"a.@\"";
    for (int i = 0; i < 50'000; ++i)
        index += ",\"" + std::to_string(i) + "\":\"b." + GetParam() + "\"";
    expect_refused(index + "}}", "tensor '0' is missing");
    directory_.write(single() + ".index.json", "{");
    fs::resize_file(directory_.path() / (single() + ".index.json"), 1u << 30); // a hole: no disk is used
    const std::string message = message_of([&] { Checkpoint::open(directory_.path()); });
    EXPECT_NE(message.find("1073741824 bytes are more than"), std::string::npos) << message;
    EXPECT_LT(cpu_seconds() - begin, 20);
}

TEST(Checkpoint, PrefersSafetensors) {
    const TemporaryDirectory directory;
    const auto holds = [&](const char* name) { return Checkpoint::open(directory.path()).has(name); };
    directory.write("b.bin", torch_file_with("torch shards"));
    directory.write("pytorch_model.bin.index.json", R"({"weight_map":{"torch shards":"b.bin"}})");
    EXPECT_TRUE(holds("torch shards"));
    directory.write("pytorch_model.bin", torch_file_with("torch"));
    EXPECT_TRUE(holds("torch"));
    directory.write("s.safetensors", safetensors_with("shards"));
    directory.write("model.safetensors.index.json", R"({"weight_map":{"shards":"s.safetensors"}})");
    EXPECT_TRUE(holds("shards"));
    directory.write("model.safetensors", safetensors_with("single"));
    EXPECT_TRUE(holds("single"));
}

TEST(Checkpoint, SaysWhatADirectoryLacks) {
    const TemporaryDirectory directory;
    const auto message = [&] { return message_of([&] { Checkpoint::open(directory.path()); }); };
    const std::string lacks =
        directory.path().string() + ": neither model.safetensors nor pytorch_model.bin nor an index of either is there";
    directory.write("config.json", "{}");
    EXPECT_EQ(message(), lacks);
    directory.write("weights.safetensors", safetensors_with("a"));
    EXPECT_EQ(message(), lacks + "; not read under such a name: 'weights.safetensors'");
    for (const char* name : {"d.gguf", "c.pth", "b.h5"})
        directory.write(name, "");
    EXPECT_EQ(message(), lacks + "; not read under such a name: 'b.h5', 'c.pth', 'd.gguf'");
    EXPECT_NE(message_of([&] { Checkpoint::open(directory.path() / "none"); }).find("not a directory"),
              std::string::npos);
}

TEST(Checkpoint, NamesTheFileThatIsNotWhatItsNameSays) {
    const TemporaryDirectory directory;
    const auto expect_reason = [&](const char* name, const std::string& bytes, const std::string& reason) {
        const auto file = directory.write(name, bytes);
        const std::string message = message_of([&] { Checkpoint::open(directory.path()); });
        EXPECT_EQ(message.find(file.string() + ": "), 0u) << message;
        EXPECT_NE(message.find(reason), std::string::npos) << message;
    };
    const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n";
    expect_reason("pytorch_model.bin", pointer, "fetch the file with git lfs pull");
    expect_reason("pytorch_model.bin", safetensors_with("a"), "no zip archive");
    expect_reason("pytorch_model.bin", "", "0 bytes are too few for a torch file");
    expect_reason("model.safetensors", pointer, "fetch the file with git lfs pull");
    expect_reason("model.safetensors", torch_file_with("a"), "rename it pytorch_model.bin");
    expect_reason("model.safetensors", std::string("PK\3\4\0\0\x08\x08", 8), "rename it pytorch_model.bin");
}

TEST(Checkpoint, GivesATypeThatWasPutWrongAsWhatTheFileSays) {
    const TemporaryDirectory directory; // which type a tensor must have is for those to say who take it
    const auto file = directory.write("x", safetensors_of("{" + header_entry("a", "I32", "[2]", 0, 8) + "}", 8));
    EXPECT_EQ(Checkpoint::open_file(file).tensor("a").type, DiskType::other);
    EXPECT_EQ(Checkpoint::open_file(file).tensor("a").dtype, "I32");
}

std::size_t resident_bytes() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    return pages * 4096;
}

// 5 GiB, for which 32 bits are not enough, in a file with a hole.
constexpr std::uint64_t kHugeBytes = 5ull << 30;

TEST(Checkpoint, OpensWithoutReadingTensors) {
    const TemporaryDirectory directory;
    const std::string header =
        "{" + header_entry("a", "U8", "[" + std::to_string(kHugeBytes) + "]", 0, kHugeBytes) + "}";
    const auto safetensors = directory.write("x.safetensors", safetensors_of(header, 0));
    fs::resize_file(safetensors, fs::file_size(safetensors) + kHugeBytes);

    // The data is cut out of the archive's middle and put back as a hole.
    using namespace pickled;
    const auto n = static_cast<std::int64_t>(kHugeBytes);
    const std::string pickle = whole(dict(text("a") + tensor(storage("ByteStorage", "0", n), 0, {n}, {1})));
    ZipParts parts = zip_parts({{"x/data.pkl", pickle}, {"x/data/0", ""}}, true);
    const std::string size = little_endian(kHugeBytes, 8);
    parts.directory.replace(parts.directory.rfind("PK\1\2") + 46 + 8 + 10, 16, size + size);
    parts.end_64.replace(48, 8, little_endian(parts.local.size() + kHugeBytes, 8));
    parts.end_64.replace(56 + 8, 8, little_endian(parts.local.size() + kHugeBytes + parts.directory.size(), 8));
    const auto torch_file = directory.write("x.bin", parts.local);
    fs::resize_file(torch_file, parts.local.size() + kHugeBytes);
    std::ofstream(torch_file, std::ios::binary | std::ios::app) << parts.directory << parts.end_64 << parts.end;

    const std::size_t before = resident_bytes();
    const Checkpoint first = Checkpoint::open_file(safetensors), second = Checkpoint::open_file(torch_file);
    EXPECT_LT(resident_bytes(), before + (32u << 20));
    for (const Checkpoint* checkpoint : {&first, &second}) {
        EXPECT_EQ(checkpoint->total_bytes(), kHugeBytes);
        EXPECT_EQ(checkpoint->tensor("a").bytes.size(), kHugeBytes);
        EXPECT_EQ(checkpoint->tensor("a").bytes.back(), std::byte{0});
    }
}

} // namespace checkpoint_test
} // namespace entrodraft::model
