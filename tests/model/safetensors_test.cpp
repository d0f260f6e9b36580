// Reading safetensors: every row of what the reference reader (0.8.0) rejects and accepts, with bytes made here, and
// checkpoints over several files.
#include "entrodraft/model/checkpoint.h"

#include "entrodraft/model/bad_file.h"
#include "model/temporary_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace entrodraft::model {
namespace {

using std::string_literals::operator""s;

// Little-endian length, header, then `data_bytes` bytes 0, 1, 2, ...
std::string file_of(const std::string& header, std::size_t data_bytes) {
    std::string bytes;
    for (int i = 0; i < 8; ++i)
        bytes += static_cast<char>(header.size() >> (8 * i) & 255);
    bytes += header;
    for (std::size_t i = 0; i < data_bytes; ++i)
        bytes += static_cast<char>(i & 255);
    return bytes;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape, std::size_t begin,
                   std::size_t end) {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
           std::to_string(begin) + "," + std::to_string(end) + "]}";
}

struct Case {
    std::string what;
    std::string header;
    std::size_t data_bytes = 0;
    std::string reason; // part of the message; empty for files that load
};

const std::string kPlain = tensor("a", "F32", "[2]", 0, 8);

std::string with_field(const std::string& shape, const std::string& offsets) {
    return "{\"a\":{\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}

std::vector<Case> rejected() {
    const std::string deep = std::string(200, '[') + std::string(200, ']');
    return {
        {"an empty header", "", 0, "no valid JSON"},
        {"a header that is no UTF-8", "{\"\xff\xfe\":{}}", 0, "UTF-8"},
        {"a byte order mark", "\xef\xbb\xbf{" + kPlain + "}", 8, "byte order mark"},
        {"trailing NUL padding", "{" + kPlain + "}\0\0"s, 8, "NUL"},
        {"two JSON values", "{}{}", 0, "no valid JSON"},
        {"an array for a header", "[]", 0, "an object of tensors"},
        {"a string for a header", "\"a\"", 0, "an object of tensors"},
        {"an extra byte after the last tensor", "{" + kPlain + "}", 9, "bytes of no tensor"},
        {"data and no tensor", "{}", 1, "bytes of no tensor"},
        {"short data", "{" + kPlain + "}", 7, "cut short"},
        {"a hole at the start", "{" + tensor("a", "F32", "[1]", 4, 8) + "}", 8, "behind a hole"},
        {"a hole in the middle", "{" + tensor("a", "U8", "[2]", 0, 2) + "," + tensor("b", "U8", "[2]", 3, 5) + "}", 5,
         "behind a hole"},
        {"an overlap", "{" + tensor("a", "U8", "[4]", 0, 4) + "," + tensor("b", "U8", "[4]", 2, 6) + "}", 6,
         "within another"},
        {"two names on one range", "{" + kPlain + "," + tensor("b", "F32", "[2]", 0, 8) + "}", 8, "within another"},
        {"an empty tensor within another", "{" + kPlain + "," + tensor("b", "F32", "[0]", 4, 4) + "}", 8, "'b'"},
        {"offsets that run backwards", with_field("[2]", "[8,0]"), 8, "before they begin"},
        {"a negative dimension", with_field("[-2]", "[0,8]"), 8, "negative"},
        {"minus zero", with_field("[2]", "[-0,8]"), 8, "negative"},
        {"a floating-point dimension", with_field("[2.0]", "[0,8]"), 8, "point or exponent"},
        {"a dimension with an exponent", with_field("[2e0]", "[0,8]"), 8, "point or exponent"},
        {"a string for an offset", with_field("[2]", "[0,\"8\"]"), 8, "found a string"},
        {"a number beyond 64 bits", with_field("[99999999999999999999]", "[0,8]"), 8, "does not fit 64 bits"},
        {"three offsets", with_field("[2]", "[0,8,8]"), 8, "more than two"},
        {"one offset", with_field("[2]", "[0]"), 8, "two numbers"},
        {"no offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "two numbers"},
        {"no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "'shape' is missing"},
        {"no dtype", "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "'dtype' is missing"},
        {"an array within a shape", with_field("[[2]]", "[0,8]"), 8, "found an array"},
        {"a shape that is an object", with_field("{}", "[0,8]"), 8, "found an object"},
        {"an unknown dtype", "{" + tensor("a", "F33", "[2]", 0, 8) + "}", 8, "unknown dtype 'F33'"},
        {"a null dtype", "{\"a\":{\"dtype\":null,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "found null"},
        {"a null tensor", "{\"a\":null}", 0, "found null"},
        {"an array for a tensor", "{\"a\":[\"F32\",[2],[0,8]]}", 8, "found an array"},
        {"a lone surrogate", "{" + tensor("\\ud800", "F32", "[2]", 0, 8) + "}", 8, "surrogate"},
        {"deep nesting", "{\"a\":{\"x\":" + deep + ",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         "nested deeper"},
        {"a product of dimensions that overflows", with_field("[4194305,4194305,211106198978564]", "[0,16]"), 16,
         "does not fit 64 bits"},
        {"an overflow before a dimension of 0", with_field("[4294967296,4294967296,0]", "[0,0]"), 0,
         "does not fit 64 bits"},
        {"an overflow by the element's bits", with_field("[576460752303423488]", "[0,0]"), 0, "does not fit 64 bits"},
        {"an odd count of F4", "{" + tensor("a", "F4", "[3]", 0, 2) + "}", 2, "whole number of bytes"},
        {"a size other than the offsets", with_field("[3]", "[0,8]"), 8, "need 12"},
        {"two __metadata__", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "two __metadata__"},
        {"a field that stands twice", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,8]}}",
         8, "'shape' stands twice"},
        {"a number in the metadata", "{\"__metadata__\":{\"a\":1}}", 0, "must hold strings"},
        {"a null in the metadata", "{\"__metadata__\":{\"a\":null}}", 0, "must hold strings"},
        {"an array for the metadata", "{\"__metadata__\":[]}", 0, "must hold strings"},
        // Stricter than the reference, on purpose.
        {"a tensor name that stands twice", "{" + kPlain + "," + kPlain + "}", 8, "stands twice"},
        {"a NUL in a name", "{" + tensor("a\\u0000b", "F32", "[2]", 0, 8) + "}", 8, "NUL"},
    };
}

std::vector<Case> accepted() {
    return {
        {"no tensors", "{}", 0, ""},
        {"white space around", " \n\t{" + kPlain + "}\r\n  ", 8, ""},
        {"a header of odd length", "{" + kPlain + "}   ", 8, ""},
        {"a scalar", "{" + tensor("a", "F32", "[]", 0, 4) + "}", 4, ""},
        {"an empty tensor at the start", "{" + tensor("z", "F32", "[0]", 0, 0) + "," + kPlain + "}", 8, ""},
        {"an empty tensor at the end", "{" + tensor("z", "F32", "[3,0]", 8, 8) + "," + kPlain + "}", 8, ""},
        {"an empty tensor between two",
         "{" + tensor("b", "U8", "[2]", 2, 4) + "," + tensor("z", "I64", "[0]", 2, 2) + "," +
             tensor("a", "U8", "[2]", 0, 2) + "}",
         4, ""},
        {"bytes before floats that are not aligned",
         "{" + tensor("a", "U8", "[3]", 0, 3) + "," + tensor("b", "F32", "[1]", 3, 7) + "}", 7, ""},
        {"a field that is not of the format",
         "{\"a\":{\"note\":{\"x\":[1,-2.5,{\"y\":null}]},\"dtype\":\"F32\",\"more\":true,\"shape\":[2],"
         "\"data_offsets\":[0,8]}}",
         8, ""},
        {"metadata", "{\"__metadata__\":{\"format\":\"pt\"}," + kPlain + "}", 8, ""},
        {"null for metadata", "{\"__metadata__\":null," + kPlain + "}", 8, ""},
        {"a key twice within the metadata", "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}," + kPlain + "}", 8, ""},
        {"an empty name", "{" + tensor("", "F32", "[2]", 0, 8) + "}", 8, ""},
        {"zero first, then a huge dimension", with_field("[0,9223372036854775807,9223372036854775807]", "[0,0]"), 0,
         ""},
        {"an even count of F4", "{" + tensor("a", "F4", "[4]", 0, 2) + "}", 2, ""},
    };
}

// The message of the BadFile that `action` throws; empty where it throws none.
std::string message_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const BadFile& error) {
        return error.what();
    }
    return "";
}

void expect_refused(const std::filesystem::path& file, const std::string& reason, const std::string& what) {
    const std::string message = message_of([&] { Checkpoint::open_file(file); });
    EXPECT_NE(message.find(reason), std::string::npos) << what << ": " << message;
    EXPECT_TRUE(message.starts_with(file.string())) << what << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << what << ": " << message;
}

TEST(Safetensors, RejectsWhatTheReferenceRejects) {
    const TemporaryDirectory directory;
    for (const Case& each : rejected()) {
        expect_refused(directory.write("x.safetensors", file_of(each.header, each.data_bytes)), each.reason, each.what);
    }
}

TEST(Safetensors, LoadsWhatTheReferenceLoads) {
    const TemporaryDirectory directory;
    for (const Case& each : accepted()) {
        const auto file = directory.write("x.safetensors", file_of(each.header, each.data_bytes));
        EXPECT_EQ(message_of([&] { EXPECT_EQ(Checkpoint::open_file(file).total_bytes(), each.data_bytes); }), "")
            << each.what;
    }
}

TEST(Safetensors, RejectsHeaderLengthsThatCannotBe) {
    const TemporaryDirectory directory;
    const std::string good = file_of("{}", 0);
    const auto with_length = [&](std::uint64_t length) {
        std::string bytes = good;
        for (std::size_t i = 0; i < 8; ++i)
            bytes[i] = static_cast<char>(length >> (8 * i) & 255);
        return directory.write("x.safetensors", bytes);
    };
    expect_refused(with_length(3), "goes beyond", "a header longer than the file");
    expect_refused(with_length(100'000'000), "goes beyond", "the longest header, not there");
    expect_refused(with_length(100'000'001), "over the format's limit", "over the limit");
    expect_refused(with_length(~std::uint64_t{0}), "over the format's limit", "all ones");
    expect_refused(with_length(0), "", "none");
    expect_refused(directory.write("x.safetensors", ""), "too few", "an empty file");
    expect_refused(directory.write("x.safetensors", good.substr(0, 7)), "too few", "seven bytes");
}

TEST(Safetensors, RefusesWhatIsNoFileWithoutWaiting) {
    const TemporaryDirectory directory;
    const auto pipe = directory.path() / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    expect_refused(pipe, "not a regular file", "a pipe");
    expect_refused(directory.path(), "not a regular file", "a directory");
    expect_refused(directory.path() / "none", "cannot be opened", "nothing");
}

TEST(Safetensors, SurvivesEveryPrefixAndEveryBytePutWrong) {
    const TemporaryDirectory directory;
    const std::string good = file_of("{" + kPlain + "," + tensor("b", "U8", "[2]", 8, 10) + "}", 10);
    for (std::size_t n = 0; n < good.size(); ++n) {
        EXPECT_NE(message_of([&] { Checkpoint::open_file(directory.write("x", good.substr(0, n))); }), "") << n;
        for (const char wrong : {'\0', '\xff', '9', '"', '{', '}', '[', ' '}) {
            std::string bad = good;
            bad[n] = wrong;
            message_of([&] { Checkpoint::open_file(directory.write("x", bad)); }); // must not crash; BadFile or fine
        }
    }
}

TEST(Safetensors, TakesHeadersOfManyEntriesInBoundedTime) {
    const TemporaryDirectory directory;
    std::string header = "{";
    constexpr int kEntries = 200'000;
    for (int i = 0; i < kEntries; ++i)
        header += tensor(std::to_string(i), "U8", "[0]", 0, 0) + ",";
    header.back() = '}';
    const auto file = directory.write("x.safetensors", file_of(header, 0));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(Checkpoint::open_file(file).tensors().size(), static_cast<std::size_t>(kEntries));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(Safetensors, ShowsNoControlCharactersOfAHostileName) {
    const TemporaryDirectory directory;
    const auto file = directory.write("x", file_of("{" + tensor("\\u001b[2J\\n", "F33", "[2]", 0, 8) + "}", 8));
    expect_refused(file, "\\x1b[2J\\x0a", "a name with escapes");
}

TEST(Safetensors, GivesNameTypeShapeAndBytes) {
    const TemporaryDirectory directory;
    const std::string header = "{" + tensor("b", "BF16", "[2,1]", 3, 7) + "," + tensor("a", "U8", "[3]", 0, 3) + "}";
    const auto file = directory.write("x.safetensors", file_of(header, 7));
    Checkpoint checkpoint = Checkpoint::open_file(file);
    const Checkpoint moved = std::move(checkpoint);
    const TensorView& b = moved.tensor("b");
    EXPECT_EQ(b.name, "b");
    EXPECT_EQ(b.dtype, "BF16");
    EXPECT_EQ(b.type, DiskType::bfloat16);
    EXPECT_EQ(b.shape, (std::vector<std::int64_t>{2, 1}));
    ASSERT_EQ(b.bytes.size(), 4u);
    EXPECT_EQ(std::memcmp(b.bytes.data(), "\3\4\5\6", 4), 0);
    EXPECT_EQ(*b.file, file.string());
    EXPECT_EQ(moved.tensor("a").type, DiskType::other);
    EXPECT_TRUE(moved.has("a"));
    EXPECT_FALSE(moved.has("c"));
    EXPECT_NE(message_of([&] { moved.tensor("c"); }).find("'c' is missing"), std::string::npos);
}

TEST(Safetensors, KnowsTheBitsOfEveryType) {
    EXPECT_EQ(element_bits("F4"), 4u);
    EXPECT_EQ(element_bits("F6_E3M2"), 6u);
    EXPECT_EQ(element_bits("F8_E4M3FNUZ"), 8u);
    EXPECT_EQ(element_bits("BOOL"), 8u);
    EXPECT_EQ(element_bits("BF16"), 16u);
    EXPECT_EQ(element_bits("F32"), 32u);
    EXPECT_EQ(element_bits("C64"), 64u);
    EXPECT_THROW(element_bits("f32"), BadFile);
}

// A directory with two shards, a and b, and an index that a test may put wrong.
class ShardedCheckpoint : public testing::Test {
  protected:
    ShardedCheckpoint() {
        directory_.write("a.safetensors", file_of("{" + kPlain + "}", 8));
        directory_.write("b.safetensors", file_of("{" + tensor("b", "U8", "[2]", 0, 2) + "}", 2));
    }
    std::string message_with_index(const std::string& index) {
        directory_.write("model.safetensors.index.json", index);
        return message_of([&] { Checkpoint::open(directory_.path()); });
    }
    void expect_refused_index(const std::string& index, const std::string& reason) {
        const std::string message = message_with_index(index);
        EXPECT_NE(message.find(reason), std::string::npos) << index << ": " << message;
    }

    TemporaryDirectory directory_;
};

TEST_F(ShardedCheckpoint, HoldsTheTensorsOfAllFiles) {
    // total_size is advisory, and wrong here
    ASSERT_EQ(message_with_index(R"({"metadata":{"total_size":1},
        "weight_map":{"a":"a.safetensors","b":"b.safetensors"}})"),
              "");
    const Checkpoint checkpoint = Checkpoint::open(directory_.path());
    EXPECT_EQ(checkpoint.tensors().size(), 2u);
    EXPECT_EQ(checkpoint.total_bytes(), 10u);
    EXPECT_EQ(*checkpoint.tensor("b").file, (directory_.path() / "b.safetensors").string());
}

TEST_F(ShardedCheckpoint, IsPassedOverWhereThereIsASingleFile) {
    directory_.write("model.safetensors", file_of("{" + tensor("c", "U8", "[2]", 0, 2) + "}", 2));
    ASSERT_EQ(message_with_index(R"({"weight_map":{"a":"a.safetensors"}})"), "");
    EXPECT_TRUE(Checkpoint::open(directory_.path()).has("c"));
}

TEST_F(ShardedCheckpoint, RefusesAMissingFile) {
    expect_refused_index(R"({"weight_map":{"a":"a.safetensors","b":"c.safetensors"}})",
                         "'c.safetensors', which is not there");
}

TEST_F(ShardedCheckpoint, RefusesNamesThatAreNotPlain) {
    for (const char* name : {"../a.safetensors", "x/a.safetensors", "/a.safetensors", "..", ".", "", "a\\u0000b"}) {
        expect_refused_index("{\"weight_map\":{\"a\":\"" + std::string(name) + "\"}}", "plain name");
    }
}

TEST_F(ShardedCheckpoint, RefusesATensorThatIsNotInItsFile) {
    expect_refused_index(R"({"weight_map":{"a":"a.safetensors","c":"b.safetensors"}})", "'c' is missing");
    expect_refused_index(R"({"weight_map":{"a":"b.safetensors","b":"a.safetensors"}})", "is missing");
}

TEST_F(ShardedCheckpoint, RefusesATensorInTwoFiles) {
    directory_.write("b.safetensors",
                     file_of("{" + tensor("b", "U8", "[2]", 0, 2) + "," + tensor("a", "U8", "[2]", 2, 4) + "}", 4));
    expect_refused_index(R"({"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})", "is also in");
}

TEST_F(ShardedCheckpoint, RefusesAnIndexThatIsNone) {
    expect_refused_index("[]", "'weight_map' is missing");
    expect_refused_index("{}", "'weight_map' is missing");
    expect_refused_index(R"({"weight_map":["a"]})", "'weight_map' is missing or not an object");
    expect_refused_index(R"({"weight_map":{}})", "is empty");
    expect_refused_index(R"({"weight_map":{"a":1}})", "is no string");
    expect_refused_index(R"({"weight_map":{"a":"a.safetensors","a":"b.safetensors"}})", "stands twice");
    expect_refused_index(R"({"weight_map":{"a":"a.safetensors")", "line 1");
}

TEST(Safetensors, SaysWhatADirectoryLacks) {
    const TemporaryDirectory directory;
    const auto message = [&] { return message_of([&] { Checkpoint::open(directory.path()); }); };
    EXPECT_NE(message().find("neither model.safetensors nor"), std::string::npos);
    directory.write("pytorch_model.bin", "");
    EXPECT_NE(message().find("pytorch_model.bin is not read"), std::string::npos);
    EXPECT_NE(message_of([&] { Checkpoint::open(directory.path() / "none"); }).find("not a directory"),
              std::string::npos);
}

} // namespace
} // namespace entrodraft::model
