// Reading what torch.save writes: golden files made by torch (make_torch_files.py) against the same tensors as
// safetensors, and archives and pickles made here that must be refused, each with its message.
#include "model/files/tensor_view.h"

#include "model/files/checkpoint.h"
#include "model/files/pickle.h"
#include "tests/model/checkpoint_files.h"
#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace entrodraft::model {
namespace torch_file_test {

using namespace pickled;
using std::string_literals::operator""s;
namespace fs = std::filesystem;

const fs::path kGolden = fs::path(ENTRODRAFT_SOURCE_DIR) / "tests/model/golden/torch_files";

std::string bytes_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

std::string text_of(const TensorView& tensor) {
    return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

std::string replaced(std::string bytes, std::size_t at, const std::string& by) {
    return bytes.replace(at, by.size(), by);
}

void expect_same(const Checkpoint& found, const Checkpoint& expected) {
    ASSERT_EQ(found.tensors().size(), expected.tensors().size());
    for (const auto& [name, tensor] : expected.tensors()) {
        const TensorView& other = found.tensor(name);
        EXPECT_EQ(other.name, name);
        EXPECT_EQ(other.dtype, tensor.dtype) << name;
        EXPECT_EQ(other.type, tensor.type) << name;
        EXPECT_EQ(other.shape, tensor.shape) << name;
        EXPECT_EQ(text_of(other), text_of(tensor)) << name;
    }
}

TEST(TorchFile, HoldsWhatSafetensorsHold) {
    for (const std::string name : {"state_dict", "every_type"}) {
        const Checkpoint found = Checkpoint::open_file(kGolden / (name + ".bin"));
        expect_same(found, Checkpoint::open_file(kGolden / (name + ".safetensors")));
        EXPECT_EQ(*found.tensors().begin()->second.file, (kGolden / (name + ".bin")).string());
    }
}

TEST(TorchFile, HoldsWhatSafetensorsHoldOverSeveralFiles) {
    expect_same(Checkpoint::open(kGolden / "sharded"), Checkpoint::open_file(kGolden / "every_type.safetensors"));
}

TEST(TorchFile, TakesParametersForTensors) {
    const Checkpoint found = Checkpoint::open_file(kGolden / "parameters.bin");
    const Checkpoint expected = Checkpoint::open_file(kGolden / "state_dict.safetensors");
    ASSERT_EQ(found.tensors().size(), 4u);
    for (const auto& [name, tensor] : found.tensors())
        EXPECT_EQ(text_of(tensor), text_of(expected.tensor(name))) << name;
}

TEST(TorchFile, SharesTheBytesOfTiedWeights) {
    const Checkpoint tied = Checkpoint::open_file(kGolden / "state_dict.bin");
    EXPECT_EQ(tied.tensor("embed.weight").bytes.data(), tied.tensor("head.weight").bytes.data());
    EXPECT_EQ(tied.total_bytes(), 5u * 3 * 4 + 2 * 3 * 4 + 4 * 8); // the embedding once
    const Checkpoint views = Checkpoint::open_file(kGolden / "every_type.bin");
    EXPECT_EQ(views.tensor("row").bytes.data(), views.tensor("float32").bytes.data() + 3 * 4);
}

// A message's place is the file; its reason is the second member.
void expect_refused(const fs::path& file, const std::string& reason, const std::string& what) {
    const std::string message = message_of([&] { open_torch_file(file); });
    EXPECT_NE(message.find(reason), std::string::npos) << what << ": " << message;
    EXPECT_TRUE(message.starts_with(file.string())) << what << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << what << ": " << message;
}

TEST(TorchFile, RefusesWhatTorchWritesAndNoStateDictNeeds) {
    const std::pair<const char*, const char*> cases[] = {
        {"malicious.bin", "the name 'posix.system' has no place in a state dict; nothing was run"},
        {"nested.bin", "the entry 'model' is a dict, not a tensor; save the model's state_dict() by itself"},
        {"transposed.bin", "tensor 'a': its elements do not lie row by row (dimension 1 has stride 3, not 1)"},
        {"float8.bin", "the name 'torch._utils._rebuild_tensor_v3'"},
        {"negative.bin", "save it with .resolve_neg()"},
        {"legacy.bin", "written by torch before 1.6"},
        {"protocol4.bin", "pickle protocol 4; only 2 is read"},
        {"list.bin", "holds a list where a dict of tensors must be"},
        {"compressed.bin", "is compressed (method 8)"},
        {"every_type.safetensors", "no zip archive"},
    };
    for (const auto& [file, reason] : cases)
        expect_refused(kGolden / file, reason, file);
}

// A dict of one tensor of two floats, and the archive around a pickle that may use the storage '0'.
const std::string kStorage = storage("FloatStorage", "0", 2);
const std::string kTensor = tensor(kStorage, 0, {2}, {1});

std::vector<FileInZip> files_with(const std::string& pickle) {
    return {{"m/data.pkl", pickle}, {"m/data/0", counting_bytes(8)}};
}

const std::vector<FileInZip> kGood = files_with(whole(dict(text("a") + kTensor)));

struct Case {
    std::string what;
    std::string bytes; // of an archive or of a pickle
    std::string reason;
};

ZipParts with_entry(std::size_t at, const std::string& by, bool is_64 = false) { // in the last entry of the directory
    ZipParts parts = zip_parts(kGood, is_64);
    parts.directory.replace(parts.directory.rfind("PK\1\2") + at, by.size(), by);
    return parts;
}
ZipParts with_local(std::size_t at, const std::string& by) {
    ZipParts parts = zip_parts(kGood);
    parts.local.replace(parts.local.rfind("PK\3\4") + at, by.size(), by);
    return parts;
}
ZipParts with_end(std::size_t at, const std::string& by) {
    ZipParts parts = zip_parts(kGood);
    parts.end.replace(at, by.size(), by);
    return parts;
}
ZipParts with_end_64(std::size_t at, const std::string& by) {
    ZipParts parts = zip_parts(kGood, true);
    parts.end_64.replace(at, by.size(), by);
    return parts;
}

// The data of m/data/0 holds a second, whole entry, which the directory names as well.
std::string overlapping_zip() {
    const std::string inner = zip_parts({{"m/data/1", counting_bytes(4)}}).local;
    ZipParts parts = zip_parts({kGood[0], {"m/data/0", inner}, {"m/data/1", counting_bytes(4)}});
    const auto inner_at = parts.local.find(inner);
    parts.directory.replace(parts.directory.rfind("PK\1\2") + 42, 4, little_endian(inner_at, 4));
    return parts.bytes();
}

std::vector<Case> bad_archives() {
    const std::string good = zip_parts(kGood).bytes();
    ZipParts without_record = zip_parts(kGood, true);
    without_record.end_64.clear();
    ZipParts without_fields = with_entry(46 + 8, "YY", true); // the first extra field; zip64's becomes unknown too:
    without_fields.directory.replace(without_fields.directory.rfind("PK\1\2") + 46 + 8 + 6, 2, "YY");
    return {
        {"a byte after the end", good + " ", "no directory at the end"},
        {"a comment", replaced(good, good.size() - 2, little_endian(2, 2)) + "hi", "no directory at the end"},
        {"bytes before the archive", "PK\3\4" + good, "the directory is not where the end record says"},
        {"a directory elsewhere", with_end(16, little_endian(3, 4)).bytes(), "not where the end record says"},
        {"a directory longer than the file", with_end(12, little_endian(0xfffffffe, 4)).bytes(), "not where the end"},
        {"one entry less", with_end(8, little_endian(0x00010001, 4)).bytes(), "longer than its entries"},
        {"an entry more", with_end(8, little_endian(0x00030003, 4)).bytes(), "too short for its entries"},
        {"entries on another disk", with_end(8, little_endian(1, 2)).bytes(), "one part of several"},
        {"another disk", with_end(4, little_endian(1, 2)).bytes(), "one part of several"},
        {"an entry on another disk", with_entry(34, little_endian(1, 2)).bytes(), "one part of several"},
        {"a compressed entry", with_entry(10, little_endian(8, 2)).bytes(), "'m/data/0': is compressed (method 8)"},
        {"an encrypted entry", with_entry(8, little_endian(1, 2)).bytes(), "'m/data/0': is encrypted"},
        {"a strongly encrypted entry", with_entry(8, little_endian(0x41, 2)).bytes(), "'m/data/0': is encrypted"},
        {"data that is encrypted after all", with_local(6, little_endian(1, 2)).bytes(), "not as the directory says"},
        {"data that is compressed after all", with_local(8, little_endian(8, 2)).bytes(), "not as the directory says"},
        {"data of another name", with_local(30, "n").bytes(), "not as the directory says"},
        {"data without its header", with_local(0, "XX").bytes(), "not as the directory says"},
        {"two sizes", with_entry(20, little_endian(7, 4)).bytes(), "its two sizes differ"},
        {"an offset beyond the file", with_entry(42, little_endian(1u << 30, 4)).bytes(), "begins outside the file"},
        {"an offset into the directory", with_entry(42, little_endian(good.size() - 40, 4)).bytes(), "begins outside"},
        {"a size beyond the file", with_entry(20, little_endian(9, 4) + little_endian(9, 4)).bytes(), "ends outside"},
        {"padding beyond the file", with_local(28, little_endian(9, 2)).bytes(), "ends outside the file"},
        {"a name beyond the directory", with_entry(28, little_endian(0xffff, 2)).bytes(), "a broken entry"},
        {"a broken mark", with_entry(0, "XX").bytes(), "a broken entry"},
        {"a name twice", zip_parts({kGood[0], kGood[1], kGood[1]}).bytes(), "the entry 'm/data/0' appears twice"},
        {"an entry within another", overlapping_zip(), "'m/data/1': lies within the entry 'm/data/0'"},
        {"a 64-bit end record that is missing", without_record.bytes(), "64-bit directory is missing"},
        {"a locator that points elsewhere", with_end_64(56 + 8, little_endian(1, 8)).bytes(), "not where it must be"},
        {"a 64-bit end record without its mark", with_end_64(0, "XX").bytes(), "not where it must be"},
        {"a 64-bit end record of another length", with_end_64(4, little_endian(45, 8)).bytes(), "not where it must"},
        {"a 64-bit end record on another disk", with_end_64(16, little_endian(1, 4)).bytes(), "one part of several"},
        {"a directory of exabytes", with_end_64(40, little_endian(~std::uint64_t{0}, 8)).bytes(), "not where the end"},
        {"2^60 entries", with_end_64(24, little_endian(1ull << 60, 8) + little_endian(1ull << 60, 8)).bytes(),
         "1152921504606846976 entries are more than"},
        {"two end records that differ",
         zip_parts(kGood).local + zip_parts(kGood, true).directory + zip_parts(kGood, true).end_64 +
             replaced(zip_parts(kGood, true).end, 16, little_endian(3, 4)),
         "its two end records differ"},
        {"an entry without its 64-bit fields", without_fields.bytes(), "its 64-bit sizes are missing"},
        {"an entry with one of them", with_entry(46 + 8 + 8, little_endian(8, 2), true).bytes(), "sizes are missing"},
        {"an entry of exabytes",
         with_entry(46 + 8 + 10, std::string(7, '\xff') + '\x7f' + std::string(7, '\xff') + '\x7f', true).bytes(),
         "ends outside the file"},
        {"no pickle", zip_parts({{"m/data/0", "12"}}).bytes(), "holds no data.pkl"},
        {"a pickle without a root", zip_parts({{"data.pkl", "12"}}).bytes(), "holds no data.pkl"},
        {"two pickles", zip_parts({kGood[0], kGood[1], {"n/data.pkl", ""}}).bytes(), "two pickles, 'm' and 'n'"},
        {"no data", zip_parts({kGood[0]}).bytes(), "tensor 'a': its storage '0' is not in the archive"},
        {"data elsewhere", zip_parts({kGood[0], {"n/data/0", kGood[1].bytes}}).bytes(), "is not in the archive"},
        {"short data", zip_parts({kGood[0], {"m/data/0", "1234"}}).bytes(),
         "its storage '0' has 4 bytes, and 2 elements of F32 should be there"},
        {"long data", zip_parts({kGood[0], {"m/data/0", "123456789"}}).bytes(), "has 9 bytes, and 2 elements"},
        {"big-endian data", zip_parts({kGood[0], kGood[1], {"m/byteorder", "big"}}).bytes(), "'big' endian"},
    };
}

TEST(TorchFile, RefusesArchivesThatAreNotAsTheyShouldBe) {
    const TemporaryDirectory directory;
    for (const Case& each : bad_archives())
        expect_refused(directory.write("x.bin", each.bytes), each.reason, each.what);
}

// An entry of which 64 bits are needed for the offset alone, as small ones behind large ones have it.
ZipParts with_one_64_bit_field() {
    ZipParts parts = zip_parts(kGood);
    const auto entry = parts.directory.rfind("PK\1\2");
    const std::string offset = parts.directory.substr(entry + 42, 4);
    parts.directory.replace(entry + 42, 4, little_endian(0xffffffff, 4));
    parts.directory.replace(entry + 30, 2, little_endian(12, 2));
    parts.directory += little_endian(1, 2) + little_endian(8, 2) + offset + std::string(4, '\0');
    parts.end.replace(12, 4, little_endian(parts.directory.size(), 4));
    return parts;
}

TEST(TorchFile, ReadsArchivesThatOtherVersionsAndToolsWrite) {
    const TemporaryDirectory directory;
    std::vector<FileInZip> more = kGood;
    more.insert(more.begin(), {"m/", ""}); // a folder's own entry
    more.push_back({"m/byteorder", "little"});
    more.push_back({"m/version", "3\n"});
    ZipParts streamed = with_entry(8, little_endian(8, 2)); // sizes behind the data, and in the directory
    streamed.local.replace(streamed.local.rfind("PK\3\4") + 18, 8, std::string(8, '\0'));
    for (const std::string& bytes : {zip_parts(kGood).bytes(), zip_parts(kGood, true).bytes(), streamed.bytes(),
                                     with_one_64_bit_field().bytes(), zip_parts(more, true, 63).bytes()}) {
        const Checkpoint checkpoint = Checkpoint::open_file(directory.write("x.bin", bytes));
        ASSERT_EQ(checkpoint.tensors().size(), 1u);
        EXPECT_EQ(text_of(checkpoint.tensor("a")), counting_bytes(8));
        EXPECT_EQ(checkpoint.total_bytes(), 8u);
    }
}

std::vector<Case> bad_machines() {
    return {
        {"nothing", "", "the pickle is cut short"},
        {"no end", "\x80\x02}", "the pickle is cut short"},
        {"bytes after the end", whole("}") + "}", "bytes follow the pickle's end"},
        {"nothing at the end", whole(""), "finds too few values"},
        {"two values at the end", whole("}}"), "values left over"},
        {"a mark at the end", whole("}(}"), "values left over"},
        {"protocol 3", "\x80\x03}.", "pickle protocol 3; only 2 is read"},
        {"an opcode of protocol 4",
         whole("\x8c\x01"
               "a"),
         "opcode 0x8c has no place"},
        {"a class that is called", whole(")\x81"), "opcode 0x81 (NEWOBJ) has no place"},
        {"a name off the stack", whole(text("os") + text("system") + "\x93"), "opcode 0x93 (STACK_GLOBAL) has no"},
        {"a name of another module", whole(name("os", "system")), "the name 'os.system' has no place"},
        {"eval", whole(name("builtins", "eval")), "the name 'builtins.eval' has no place"},
        {"a known name of another module", whole(name("os", "OrderedDict")), "the name 'os.OrderedDict' has no place"},
        {"a name with a dot", whole(name("collections", "OrderedDict.fromkeys")), "'collections.OrderedDict.fromkeys'"},
        {"a name split otherwise", whole(name("torch._utils._rebuild_tensor_v2", "")), "has no place"},
        {"a parameter with state", whole(name("torch._utils", "_rebuild_parameter_with_state")), "_with_state' has no"},
        {"a name with escapes", whole(name("\x1b[2J", "x")), "'\\x1b[2J.x'"},
        {"a name without end",
         "\x80\x02"
         "cos\nsys",
         "the pickle is cut short"},
        {"a text without end", whole("X" + little_endian(0xffffffff, 4)), "the pickle is cut short"},
        {"a number of 9 bytes", whole("\x8a\x09" + std::string(9, '\1')), "does not fit 64 bits"},
        {"a number without end", "\x80\x02J\1", "the pickle is cut short"},
        {"a memo that is empty", whole("h\5"), "the memo has no entry 5"},
        {"a memo with holes", whole("}r" + little_endian(9, 4) + "h\5"), "the memo has no entry 5"},
        {"a memo of gigabytes", whole("}r" + little_endian(0xffffffff, 4)), "a memo of 4294967295 entries is too long"},
        {"nothing for the memo", whole("q" + std::string(1, '\0')), "finds too few values"},
        {"a tuple without mark", whole("t"), "finds no mark"},
        {"a tuple of too few", whole("}\x86"), "finds too few values"},
        {"a tuple over a mark", whole("}}(\x85"), "finds too few values"},
        {"a value below a mark", whole("}(Q"), "finds too few values"},
        {"items for a tuple", whole(")" + text("a") + text("b") + "s"), "items are put into a tuple"},
        {"items for a list", whole("]" + text("a") + text("b") + "s"), "items are put into a list"},
        {"an item for a dict", whole("}" + text("a") + "a"), "items are put into a dict"},
        {"a key without a value", whole("}(" + text("a") + "u"), "a key of a dict has no value"},
        {"a text that is called", whole(text("a") + ")R"), "a text is called with a tuple"},
        {"a call with a dict", whole(name("collections", "OrderedDict") + "}R"), "a name is called with a dict"},
        {"a call without arguments", whole(")R"), "finds too few values"},
        {"a dict made of something", whole(name("collections", "OrderedDict") + ")\x85R"), "called with arguments"},
        {"a storage type that is called", whole(name("torch", "FloatStorage") + ")R"), "type FloatStorage is called"},
        {"attributes of a plain dict", whole("}}b"), "attributes are set on a dict"},
        {"attributes of a tensor", whole(kTensor + "}b"), "attributes are set on a tensor"},
        {"attributes that are no dict", whole(ordered_dict() + ")b"), "attributes are set on"},
    };
}

std::vector<Case> bad_contents() {
    const auto one = [](const std::string& of, std::int64_t offset, const std::vector<std::int64_t>& shape,
                        const std::vector<std::int64_t>& strides) {
        return whole(dict(text("a") + tensor(of, offset, shape, strides)));
    };
    const std::string rebuild = name("torch._utils", "_rebuild_tensor_v2");
    constexpr std::int64_t kMax = INT64_MAX;
    return {
        {"a tensor alone", whole(kTensor), "holds a tensor where a dict of tensors must be"},
        {"None", whole("N"), "holds None where"},
        {"a number in the dict", whole(dict(text("a") + kTensor + text("b") + number(3))),
         "the entry 'b' is a whole number, not a tensor"},
        {"dicts are named first", whole(dict(text("epoch") + number(3) + text("model") + dict(text("a") + kTensor))),
         "the entry 'model' is a dict, not a tensor; save the model's state_dict() by itself"},
        {"a key that is a number", whole(dict(number(1) + kTensor)), "a key is a whole number, not a tensor's name"},
        {"a name that is no UTF-8", whole(dict(text("\xff") + kTensor)), "the name is not valid UTF-8"},
        {"a name with NUL", whole(dict(text(std::string("a\0b", 3)) + kTensor)), "a NUL character in the name"},
        {"a long name", whole(dict(text(std::string(1001, 'a')) + kTensor)), "a name of 1001 bytes is longer than"},
        {"a name twice", whole(dict(text("a") + kTensor + text("a") + kTensor)), "tensor 'a': the name appears twice"},
        {"a storage that is none", whole(text("0") + "Q"), "a persistent id that names no storage"},
        {"a storage of no type", whole("(" + text("storage") + text("F") + text("0") + text("cpu") + number(2) + "tQ"),
         "a persistent id that names no storage"},
        {"a storage of a function", whole("(" + text("storage") + rebuild + text("0") + text("cpu") + number(2) + "tQ"),
         "names no storage"},
        {"a storage of another kind",
         whole("(" + text("file") + name("torch", "FloatStorage") + text("0") + text("cpu") + number(2) + "tQ"),
         "names no storage"},
        {"a storage of complex numbers", whole(storage("ComplexFloatStorage", "0", 1)),
         "the name 'torch.ComplexFloatStorage' has no place"},
        {"a negative storage", whole(storage("FloatStorage", "0", -2)), "names no storage"},
        {"a storage with a long key", whole(storage("FloatStorage", std::string(1001, '0'), 2)), "names no storage"},
        {"a storage outside", one(storage("FloatStorage", "../0", 2), 0, {2}, {1}), "'../0' is not in the archive"},
        {"another count of elements", one(storage("FloatStorage", "0", 3), 0, {2}, {1}), "has 8 bytes, and 3 elements"},
        {"a count whose bytes overflow", one(storage("FloatStorage", "0", (1ll << 62) + 2), 0, {2}, {1}),
         "has 8 bytes, and 4611686018427387906 elements"},
        {"another type", one(storage("LongStorage", "0", 2), 0, {2}, {1}), "has 8 bytes, and 2 elements of I64"},
        {"a tensor beyond its storage", one(kStorage, 1, {2}, {1}),
         "its 2 elements from 1 on go beyond the 2 of its storage"},
        {"an offset beyond its storage", one(kStorage, 3, {0}, {1}), "its 0 elements from 3 on go beyond"},
        {"an offset that would wrap", one(kStorage, kMax, {2}, {1}), "go beyond the 2 of its storage"},
        {"exabytes", one(kStorage, 0, {1ll << 60}, {1}), "its 1152921504606846976 elements from 0 on go beyond"},
        {"a product that overflows", one(kStorage, 0, {4194305, 4194305, 211106198978564}, {1, 1, 1}),
         "the product of its dimensions does not fit 64 bits"},
        {"an overflow before a dimension of 0", one(kStorage, 0, {1ll << 32, 1ll << 32, 0}, {1, 1, 1}),
         "does not fit 64 bits"},
        {"a negative dimension", one(kStorage, 0, {-2}, {1}), "must be whole numbers from 0"},
        {"a negative offset", one(kStorage, -1, {2}, {1}), "a tensor that is not described by"},
        {"a negative offset of 4 bytes",
         whole(rebuild + "(" + kStorage + "J\xff\xff\xff\xff" + numbers({2}) + numbers({1}) + "\x89}tR"),
         "a tensor that is not described by"},
        {"a negative offset of 1 byte",
         whole(rebuild + "(" + kStorage + "\x8a\1\xff" + numbers({2}) + numbers({1}) + "\x89}tR"),
         "a tensor that is not described by"},
        {"a negative stride", one(kStorage, 1, {2}, {-1}), "must be whole numbers from 0"},
        {"a repeated element", one(kStorage, 0, {2, 2}, {0, 1}), "dimension 0 has stride 0, not 2"},
        {"every other element", one(kStorage, 0, {2}, {2}), "dimension 0 has stride 2, not 1"},
        {"strides of another number", one(kStorage, 0, {2}, {1, 1}), "shape and strides differ in number"},
        {"nine dimensions", one(kStorage, 0, {2, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}),
         "a tensor of 9 dimensions; at most 8"},
        {"a shape that is a number", whole(rebuild + "(" + kStorage + number(0) + number(2) + numbers({1}) + "\x89}tR"),
         "a tensor whose shape is a whole number"},
        {"a tensor of no storage", whole(rebuild + "(N" + number(0) + numbers({2}) + numbers({1}) + "\x89}tR"),
         "a tensor that is not described by"},
        {"a tensor with too few arguments", whole(rebuild + "(" + kStorage + "tR"), "a tensor that is not described"},
        {"a parameter of nothing", whole(name("torch._utils", "_rebuild_parameter") + "(N\x89}tR"),
         "a parameter that holds no tensor"},
    };
}

TEST(TorchFile, RefusesPicklesThatNoStateDictNeeds) {
    const TemporaryDirectory directory;
    for (const auto& cases : {bad_machines(), bad_contents()}) {
        for (const Case& each : cases)
            expect_refused(directory.write("x.bin", zip_parts(files_with(each.bytes)).bytes()), each.reason, each.what);
    }
}

// The message with which the pickle itself is refused; empty where it is read.
std::string message_of_pickle(const std::string& pickle) {
    return message_of([&] { read_pickled_tensors(std::as_bytes(std::span(pickle)), "here"); });
}

TEST(TorchFile, KnowsNoOtherOpcodes) {
    const std::string known = ".(qrcRQbNKMJGXhj)]}taesu\x80\x88\x89\x8a\x85\x86\x87";
    for (int opcode = 0; opcode < 256; ++opcode) {
        const char c = static_cast<char>(opcode);
        const std::string message = message_of_pickle(whole(std::string("}}(}}") + c));
        EXPECT_EQ(message.find(": opcode 0x") != std::string::npos, known.find(c) == std::string::npos) << message;
    }
}

TEST(TorchFile, TakesWhatAStateDictMayHold) {
    const TemporaryDirectory directory;
    const auto opened = [&](const std::string& pickle) {
        return Checkpoint::open_file(directory.write("x.bin", zip_parts(files_with(pickle)).bytes()));
    };
    EXPECT_TRUE(opened(whole("}")).tensors().empty());
    EXPECT_TRUE(opened(whole(ordered_dict() + dict(text("_metadata") + ordered_dict()) + "b")).tensors().empty());
    EXPECT_EQ(opened(whole("}" + text("") + kTensor + "s")).tensor("").shape, std::vector<std::int64_t>{2});
    const auto shape_of = [&](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides) {
        return opened(whole(dict(text("a") + tensor(kStorage, 0, shape, strides)))).tensor("a").bytes.size();
    };
    EXPECT_EQ(shape_of({}, {}), 4u);
    EXPECT_EQ(shape_of({1, 2, 1}, {77, 1, 0}), 8u);
    EXPECT_EQ(shape_of({0, 3}, {9, 9}), 0u);
    EXPECT_EQ(shape_of({0, INT64_MAX, INT64_MAX}, {1, 1, 1}), 0u); // a zero first: as safetensors has it
    EXPECT_EQ(opened(whole(dict(text("a") + tensor(storage("IntStorage", "0", 2), 0, {2}, {1})))).tensor("a").type,
              DiskType::other);
}

TEST(TorchFile, ReadsEveryFormOfAWholeNumber) {
    const std::string rebuild = name("torch._utils", "_rebuild_tensor_v2");
    for (const std::string& offset : {"K\1"s, "M\1\0"s, "J\1\0\0\0"s, "\x8a\1\1"s, "\x8a\3\1\0\0"s, number(1)}) {
        const auto pickle = whole(dict(text("a") + rebuild + "(" + kStorage + offset + ")" + ")" + "\x89}tR"));
        const auto tensors = read_pickled_tensors(std::as_bytes(std::span(pickle)), "here");
        EXPECT_EQ(tensors.at(0).offset, 1u);
    }
    const auto pickle = whole(dict(text("a") + rebuild + "(" + kStorage + "\x8a\0"s + "))\x89}tR"));
    EXPECT_EQ(read_pickled_tensors(std::as_bytes(std::span(pickle)), "here").at(0).offset, 0u);
}

TEST(TorchFile, BoundsTimeAndMemoryForPicklesMadeToBlowUp) {
    const double begin = cpu_seconds();
    const auto expect_reason = [](const std::string& pickle, const std::string& reason) {
        const std::string message = message_of_pickle(whole(pickle));
        EXPECT_NE(message.find(reason), std::string::npos) << message;
    };
    std::string doubling = ")", repeats = text(std::string(1000, 'a')) + "q\x01" + kTensor + "q\x02";
    for (int i = 0; i < 100'000; ++i) {
        doubling += "q\x01h\x01\x86"; // each tuple holds the one before twice
        repeats += "h\x01h\x02";
    }
    expect_reason(doubling, "holds a tuple");
    expect_reason(")" + std::string(100'000, '\x85'), "holds a tuple");
    expect_reason(dict(repeats), "the name appears twice");
    expect_reason(std::string(kMaxPickleValues + 1, '('), "values are too many");
    expect_reason(std::string(kMaxPickleValues + 1, 'N'), "values are too many");
    expect_reason(std::string(kMaxPickleBytes, 'N'), "bytes are more than");
    EXPECT_LT(cpu_seconds() - begin, 20);
}

// Opens a file whose bytes may be anything: it must be refused, or every tensor must lie in memory that can be read.
void open_and_touch(const fs::path& file) {
    message_of([&] {
        const TensorFile opened = open_torch_file(file);
        unsigned sum = 0;
        for (const TensorView& tensor : opened.tensors) {
            for (const std::byte byte : tensor.bytes)
                sum += std::to_integer<unsigned>(byte);
        }
        EXPECT_LT(sum, 1u << 31);
    });
}

TEST(TorchFile, SurvivesEveryPrefixAndEveryBytePutWrong) {
    const TemporaryDirectory directory;
    const std::string good = bytes_of(kGolden / "state_dict.bin");
    ASSERT_GT(good.size(), 1000u);
    const auto file = directory.write("x.bin", good);
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](std::size_t at, char byte) {
        out.seekp(static_cast<std::streamoff>(at));
        out.put(byte).flush();
    };
    for (std::size_t i = 0; i < good.size(); ++i) {
        for (const int change : {0x01, 0x02, 0x04, 0x10, 0x40, 0x80, 0xff}) {
            put(i, static_cast<char>(good[i] ^ change));
            open_and_touch(file);
        }
        put(i, good[i]);
    }
    for (std::size_t n = good.size(); n-- > 0;) {
        fs::resize_file(file, n);
        EXPECT_NE(message_of([&] { open_torch_file(file); }), "") << n;
    }
}

TEST(TorchFile, SurvivesPicklesOfShuffledOpcodes) {
    const std::vector<std::string> opcodes = {"(",
                                              "t",
                                              "\x85",
                                              "\x86",
                                              "\x87",
                                              "}",
                                              "]",
                                              ")",
                                              "u",
                                              "s",
                                              "a",
                                              "e",
                                              "R",
                                              "Q",
                                              "b",
                                              "N",
                                              "h\1",
                                              "q\1",
                                              "h\2",
                                              "q\2",
                                              text("a"),
                                              text("0"),
                                              text("storage"),
                                              text("cpu"),
                                              number(2),
                                              number(1),
                                              number(-1),
                                              number(INT64_MAX),
                                              "\x89",
                                              name("torch", "FloatStorage"),
                                              name("torch._utils", "_rebuild_tensor_v2"),
                                              name("torch._utils", "_rebuild_parameter"),
                                              name("collections", "OrderedDict"),
                                              numbers({2}),
                                              numbers({1}),
                                              kStorage,
                                              kTensor,
                                              ordered_dict()};
    std::mt19937 random(1); // its numbers are the same everywhere
    int n_read = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string pickle = "}";
        for (std::size_t n = random() % 12; n-- > 0;)
            pickle += opcodes[random() % opcodes.size()];
        n_read += message_of_pickle(whole(pickle)).empty();
    }
    EXPECT_GT(n_read, 100); // mostly the empty ones
}

} // namespace torch_file_test
} // namespace entrodraft::model
