// Reading safetensors: every row of what the reference reader (0.8.0) rejects and accepts, with bytes made here.
#include "model/files/checkpoint.h"

#include "model/files/bad_file.h"
#include "model/files/safetensors.h"
#include "tests/model/checkpoint_files.h"
#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace entrodraft::model {
namespace safetensors_test {

using std::string_literals::operator""s;

struct Case {
    std::string what;
    std::string header;
    std::size_t data_bytes = 0;
    std::string reason; // part of the message; empty for files that load
};

const std::string kPlain = header_entry("a", "F32", "[2]", 0, 8);

std::string with_field(const std::string& shape, const std::string& offsets) {
    return "{\"a\":{\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}

std::string nested(std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
}

// The header's beginning; 2^64 - 8 bytes, the most that 64 bits of bits allow each.
std::string eight_exabyte_tensors() {
    constexpr std::uint64_t kBytes = (1ull << 61) - 1;
    std::string header = "{";
    for (std::uint64_t i = 0; i < 8; ++i) {
        header += (i == 0 ? "" : ",") + header_entry(std::string(1, static_cast<char>('a' + i)), "U8",
                                                     "[2305843009213693951]", i * kBytes, (i + 1) * kBytes);
    }
    return header;
}

std::vector<Case> rejected() {
    const std::string deep = nested(200);
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
        {"a hole at the start", "{" + header_entry("a", "F32", "[1]", 4, 8) + "}", 8, "behind a hole"},
        {"a hole in the middle",
         "{" + header_entry("a", "U8", "[2]", 0, 2) + "," + header_entry("b", "U8", "[2]", 3, 5) + "}", 5,
         "behind a hole"},
        {"an overlap", "{" + header_entry("a", "U8", "[4]", 0, 4) + "," + header_entry("b", "U8", "[4]", 2, 6) + "}", 6,
         "within another"},
        {"two names on one range", "{" + kPlain + "," + header_entry("b", "F32", "[2]", 0, 8) + "}", 8,
         "within another"},
        {"an empty tensor within another", "{" + kPlain + "," + header_entry("b", "F32", "[0]", 4, 4) + "}", 8, "'b'"},
        {"offsets that run backwards", with_field("[2]", "[8,0]"), 8, "before they begin"},
        {"a negative dimension", with_field("[-2]", "[0,8]"), 8, "negative"},
        {"minus zero", with_field("[2]", "[-0,8]"), 8, "negative"},
        {"a floating-point dimension", with_field("[2.0]", "[0,8]"), 8, "point or exponent"},
        {"a dimension with an exponent", with_field("[2e0]", "[0,8]"), 8, "point or exponent"},
        {"a string for an offset", with_field("[2]", "[0,\"8\"]"), 8, "found a string"},
        {"a number beyond 64 bits", with_field("[99999999999999999999]", "[0,8]"), 8, "does not fit 64 bits"},
        {"offsets whose difference wraps to the size", with_field("[2]", "[18446744073709551608,0]"), 8,
         "before they begin"},
        {"offsets at the end of 64 bits", with_field("[2]", "[18446744073709551607,18446744073709551615]"), 8,
         "behind a hole"},
        {"a dimension beyond 63 bits", with_field("[9223372036854775808]", "[0,8]"), 8, "does not fit 63 bits"},
        {"exabytes", "{" + header_entry("a", "U8", "[1152921504606846976]", 0, 1ull << 60) + "}", 8, "cut short"},
        {"a sum of sizes that nearly wraps", eight_exabyte_tensors() + "}", 8, "cut short"},
        {"a sum of sizes that wraps", eight_exabyte_tensors() + "," + header_entry("i", "U8", "[16]", ~7ull, 8) + "}",
         8, "tensor 'i': data_offsets end before they begin"},
        {"many names on one range",
         "{" + kPlain + "," + header_entry("b", "F32", "[2]", 0, 8) + "," + header_entry("c", "F32", "[2]", 0, 8) + "}",
         8, "within another"},
        {"three offsets", with_field("[2]", "[0,8,8]"), 8, "more than two"},
        {"one offset", with_field("[2]", "[0]"), 8, "two numbers"},
        {"no offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "two numbers"},
        {"no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "'shape' is missing"},
        {"no dtype", "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "'dtype' is missing"},
        {"an array within a shape", with_field("[[2]]", "[0,8]"), 8, "found an array"},
        {"a shape that is an object", with_field("{}", "[0,8]"), 8, "found an object"},
        {"an unknown dtype", "{" + header_entry("a", "F33", "[2]", 0, 8) + "}", 8, "unknown dtype 'F33'"},
        {"a null dtype", "{\"a\":{\"dtype\":null,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "found null"},
        {"a null tensor", "{\"a\":null}", 0, "found null"},
        {"an array for a tensor", "{\"a\":[\"F32\",[2],[0,8]]}", 8, "found an array"},
        {"a lone surrogate", "{" + header_entry("\\ud800", "F32", "[2]", 0, 8) + "}", 8, "surrogate"},
        {"nesting at the limit", "{\"a\":{\"x\":" + nested(127) + ",\"dtype\":\"F32\",\"shape\":[2]}}", 8,
         "nested deeper"},
        {"deep nesting", "{\"a\":{\"x\":" + deep + ",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         "nested deeper"},
        {"a product of dimensions that overflows", with_field("[4194305,4194305,211106198978564]", "[0,16]"), 16,
         "does not fit 64 bits"},
        {"an overflow before a dimension of 0", with_field("[4294967296,4294967296,0]", "[0,0]"), 0,
         "does not fit 64 bits"},
        {"an overflow by the element's bits", with_field("[576460752303423488]", "[0,0]"), 0, "does not fit 64 bits"},
        {"an odd count of F4", "{" + header_entry("a", "F4", "[3]", 0, 2) + "}", 2, "whole number of bytes"},
        {"a size other than the offsets", with_field("[3]", "[0,8]"), 8, "need 12"},
        {"two __metadata__", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "two __metadata__"},
        {"a field that appears twice", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,8]}}",
         8, "'shape' appears twice"},
        {"a number in the metadata", "{\"__metadata__\":{\"a\":1}}", 0, "must hold strings"},
        {"a null in the metadata", "{\"__metadata__\":{\"a\":null}}", 0, "must hold strings"},
        {"an array for the metadata", "{\"__metadata__\":[]}", 0, "must hold strings"},
        // Stricter than the reference, on purpose.
        {"a tensor name that appears twice", "{" + kPlain + "," + kPlain + "}", 8, "appears twice"},
        {"a NUL in a name", "{" + header_entry("a\\u0000b", "F32", "[2]", 0, 8) + "}", 8, "NUL"},
    };
}

std::vector<Case> accepted() {
    return {
        {"no tensors", "{}", 0, ""},
        {"white space around", " \n\t{" + kPlain + "}\r\n  ", 8, ""},
        {"a header of odd length", "{" + kPlain + "}   ", 8, ""},
        {"a scalar", "{" + header_entry("a", "F32", "[]", 0, 4) + "}", 4, ""},
        {"an empty tensor at the start", "{" + header_entry("z", "F32", "[0]", 0, 0) + "," + kPlain + "}", 8, ""},
        {"an empty tensor at the end", "{" + header_entry("z", "F32", "[3,0]", 8, 8) + "," + kPlain + "}", 8, ""},
        {"an empty tensor between two",
         "{" + header_entry("b", "U8", "[2]", 2, 4) + "," + header_entry("z", "I64", "[0]", 2, 2) + "," +
             header_entry("a", "U8", "[2]", 0, 2) + "}",
         4, ""},
        {"bytes before floats that are not aligned",
         "{" + header_entry("a", "U8", "[3]", 0, 3) + "," + header_entry("b", "F32", "[1]", 3, 7) + "}", 7, ""},
        {"a field that is not of the format",
         "{\"a\":{\"note\":{\"x\":[1,-2.5,{\"y\":null}]},\"dtype\":\"F32\",\"more\":true,\"shape\":[2],"
         "\"data_offsets\":[0,8]}}",
         8, ""},
        {"metadata", "{\"__metadata__\":{\"format\":\"pt\"}," + kPlain + "}", 8, ""},
        {"null for metadata", "{\"__metadata__\":null," + kPlain + "}", 8, ""},
        {"a key twice within the metadata", "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}," + kPlain + "}", 8, ""},
        {"an empty name", "{" + header_entry("", "F32", "[2]", 0, 8) + "}", 8, ""},
        {"zero first, then a huge dimension", with_field("[0,9223372036854775807,9223372036854775807]", "[0,0]"), 0,
         ""},
        {"nesting up to the limit",
         "{\"a\":{\"x\":" + nested(126) + ",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, ""},
        {"an even count of F4", "{" + header_entry("a", "F4", "[4]", 0, 2) + "}", 2, ""},
    };
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
        expect_refused(directory.write("x.safetensors", safetensors_of(each.header, each.data_bytes)), each.reason,
                       each.what);
    }
}

TEST(Safetensors, LoadsWhatTheReferenceLoads) {
    const TemporaryDirectory directory;
    for (const Case& each : accepted()) {
        const auto file = directory.write("x.safetensors", safetensors_of(each.header, each.data_bytes));
        EXPECT_EQ(message_of([&] { EXPECT_EQ(Checkpoint::open_file(file).total_bytes(), each.data_bytes); }), "")
            << each.what;
    }
}

TEST(Safetensors, RejectsHeaderLengthsThatCannotBe) {
    const TemporaryDirectory directory;
    const std::string good = safetensors_of("{}", 0);
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
    expect_refused(with_length(0), "no valid JSON", "none");
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

TEST(Safetensors, RefusesAHeaderOfTenMillionEntriesUnread) {
    const TemporaryDirectory directory;
    const auto file = directory.write("x.safetensors", little_endian(550'000'000, 8) + "{");
    std::filesystem::resize_file(file, 600'000'000); // a hole: no disk is used
    const double begin = cpu_seconds();
    expect_refused(file, "over the format's limit", "550 MB");
    EXPECT_LT(cpu_seconds() - begin, 5);
}

TEST(Safetensors, SurvivesEveryPrefixAndEveryBytePutWrong) {
    const TemporaryDirectory directory;
    const std::string good = safetensors_of("{" + kPlain + "," + header_entry("b", "U8", "[2]", 8, 10) + "}", 10);
    for (std::size_t n = 0; n < good.size(); ++n) {
        EXPECT_NE(message_of([&] { Checkpoint::open_file(directory.write("x", good.substr(0, n))); }), "") << n;
        for (const char wrong : {'\0', '\xff', '9', '"', '{', '}', '[', ' '}) {
            std::string bad = good;
            bad[n] = wrong;
            message_of([&] { Checkpoint::open_file(directory.write("x", bad)); }); // must not crash; BadFile or fine
        }
    }
}

TEST(Safetensors, SurvivesHeadersPutTogetherAtRandom) {
    const std::vector<std::string> pieces = {"{",
                                             "}",
                                             "[",
                                             "]",
                                             ",",
                                             ":",
                                             "\"",
                                             "0",
                                             "8",
                                             "-1",
                                             "2.5",
                                             "1e9",
                                             "18446744073709551615",
                                             "null",
                                             "true",
                                             "\"a\"",
                                             "\"F32\"",
                                             "\"dtype\":",
                                             "\"shape\":",
                                             "\"data_offsets\":",
                                             "\"__metadata__\":",
                                             "[0,8]",
                                             "[2]",
                                             "\\u0000",
                                             "\xff",
                                             " ",
                                             kPlain};
    std::mt19937 random(1); // its numbers are the same everywhere
    for (int round = 0; round < 20'000; ++round) {
        std::string header = "{" + kPlain + "}";
        for (std::size_t n = 1 + random() % 4; n-- > 0;) {
            const std::size_t at = random() % header.size();
            header.replace(at, random() % 3 * (random() % 8), pieces[random() % pieces.size()]);
        }
        message_of([&] { // must not crash; BadFile, or every tensor within the data
            for (const HeaderEntry& entry : parse_safetensors_header(header, 8, "here"))
                EXPECT_LE(entry.end, 8u) << header;
        });
    }
}

TEST(Safetensors, TakesHeadersOfManyEntriesInBoundedTime) {
    const TemporaryDirectory directory;
    std::string header = "{";
    constexpr int kEntries = 200'000;
    for (int i = 0; i < kEntries; ++i)
        header += header_entry(std::to_string(i), "U8", "[0]", 0, 0) + ",";
    header.back() = '}';
    const auto file = directory.write("x.safetensors", safetensors_of(header, 0));
    const double begin = cpu_seconds();
    EXPECT_EQ(Checkpoint::open_file(file).tensors().size(), static_cast<std::size_t>(kEntries));
    EXPECT_LT(cpu_seconds() - begin, 20);
}

TEST(Safetensors, ShowsNoControlCharactersOfAHostileName) {
    const TemporaryDirectory directory;
    const auto file =
        directory.write("x", safetensors_of("{" + header_entry("\\u001b[2J\\n", "F33", "[2]", 0, 8) + "}", 8));
    expect_refused(file, "\\x1b[2J\\x0a", "a name with escapes");
}

TEST(Safetensors, GivesNameTypeShapeAndBytes) {
    const TemporaryDirectory directory;
    const std::string header =
        "{" + header_entry("b", "BF16", "[2,1]", 3, 7) + "," + header_entry("a", "U8", "[3]", 0, 3) + "}";
    const auto file = directory.write("x.safetensors", safetensors_of(header, 7));
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

} // namespace safetensors_test
} // namespace entrodraft::model
