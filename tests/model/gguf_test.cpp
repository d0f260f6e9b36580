// GGUF files: their tokenizers against those that they are made of, and files that lie. What their weights compute is
// with the other quantised checkpoints (make_gguf.py).
#include "model/families/config.h"
#include "model/families/read_config.h"
#include "model/files/checkpoint.h"
#include "model/files/gguf_file.h"
#include "model/text/tokenizer/sentencepiece_file.h"
#include "tests/model/gguf_bytes.h"
#include "tests/model/tokenizer_support.h"

#include <sstream>

namespace entrodraft::model {
namespace gguf_test {

Tokenizer tokenizer_of(const json& metadata) {
    const TemporaryDirectory directory;
    return Tokenizer::open(directory.write("model.gguf", gguf(metadata)));
}

// ---- tokenizers ----

json metadata_of(const json& file, const char* pre) {
    std::map<std::size_t, std::pair<std::string, int>> tokens; // with their types
    for (const auto& [token, id] : file["model"]["vocab"].items())
        tokens[id] = {token, 1};
    for (const json& token : file["added_tokens"])
        tokens[token["id"]] = {token["content"], token["special"] == true ? 3 : 4};
    json metadata = {{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", pre}};
    json merges = json::array(), names = json::array(), types = json::array();
    for (const json& merge : file["model"]["merges"])
        merges.push_back(merge.is_string() ? merge.get<std::string>()
                                           : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    for (std::size_t id = 0; id <= tokens.rbegin()->first; ++id) {
        const auto found = tokens.find(id);
        names.push_back(found == tokens.end() ? "[PAD" + std::to_string(id) + "]" : found->second.first);
        types.push_back(found == tokens.end() ? 5U : static_cast<unsigned>(found->second.second));
        if (names.back() == "<|begin_of_text|>") metadata["tokenizer.ggml.bos_token_id"] = id;
    }
    metadata["tokenizer.ggml.tokens"] = names;
    metadata["tokenizer.ggml.token_type"] = types;
    metadata["tokenizer.ggml.merges"] = merges;
    return metadata;
}

TEST(GgufTokenizers, OfByteLevelBpeEncodeAsTheFilesTheyAreMadeOf) {
    for (const auto& [family, pre] : {std::pair("gpt2", "gpt-2"), {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}}) {
        SCOPED_TRACE(family);
        const Tokenizer tokenizer = tokenizer_of(metadata_of(fixture_json(family), pre));
        for (const Expected& expected : expected_of(family)) {
            EXPECT_EQ(tokenizer.encode(expected.text, true), expected.ids) << expected.text;
            EXPECT_EQ(tokenizer.decode(expected.ids, true), expected.decoded) << expected.text;
        }
    }
}

// Ways to cut text, as tokenizer.json has them.
json regex_parts(const char* pattern) {
    const json split = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    return {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
}

TEST(GgufTokenizers, CutTextByTheNameOfTheirPreTokenizer) {
    const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
    const json digits = {{"type", "Sequence"},
                         {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, bytes}}};
    const json words = regex_parts(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                                   R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
    const json cased = regex_parts(
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
        R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
    const json tekken = regex_parts(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
                                    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                                    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
    json original = fixture_json("gpt2");
    std::size_t n_tokens = original["model"]["vocab"].size() + original["added_tokens"].size();
    for (const char* merge : {"3 4", "1 2", "o W"}) { // of what one pattern or another parts
        original["model"]["merges"].push_back(merge);
        original["model"]["vocab"][std::string{merge[0], merge[2]}] = n_tokens++;
    }
    std::vector<std::string> texts = {"1234 HelloWorld"};
    for (const Expected& one : expected_of("gpt2"))
        texts.push_back(one.text);
    const Tokenizer plain = tokenizer_of(metadata_of(original, "gpt-2"));
    for (const auto& [pre, cutting, ignores_merges] :
         std::vector<std::tuple<const char*, json, bool>>{{"starcoder", digits, false},
                                                          {"refact", digits, false},
                                                          {"smollm", digits, false},
                                                          {"command-r", digits, false},
                                                          {"dbrx", words, false},
                                                          {"smaug-bpe", words, false},
                                                          {"chatglm-bpe", words, false},
                                                          {"glm4", words, true},
                                                          {"tekken", tekken, true},
                                                          {"gpt-4o", cased, false}}) {
        SCOPED_TRACE(pre);
        json file = original;
        file["pre_tokenizer"] = cutting;
        file["model"]["ignore_merges"] = ignores_merges;
        if (pre == std::string("command-r")) file["normalizer"] = {{"type", "NFC"}};
        const TemporaryDirectory directory;
        directory.write("tokenizer.json", file.dump());
        const Tokenizer expected = Tokenizer::open(directory.path()),
                        tokenizer = tokenizer_of(metadata_of(original, pre));
        bool differs = false; // from GPT-2's own
        for (const std::string& text : texts) {
            EXPECT_EQ(tokenizer.encode(text, false), expected.encode(text, false)) << text;
            differs = differs || tokenizer.encode(text, false) != plain.encode(text, false);
        }
        EXPECT_TRUE(differs);
    }
}

TEST(GgufTokenizers, OfSentencePieceEncodeAsItsModel) {
    for (const char* family : {"sentencepiece-llama", "sentencepiece-gemma"}) {
        SCOPED_TRACE(family);
        std::ifstream in(fixture(family) / "tokenizer.model", std::ios::binary);
        const SentencePieceFile file = parse_sentencepiece((std::ostringstream() << in.rdbuf()).str());
        json names = json::array(), scores = json::array(), types = json::array();
        for (const SentencePieceFile::Piece& piece : file.pieces) {
            names.push_back(piece.text);
            scores.push_back(piece.score);
            types.push_back(static_cast<unsigned>(piece.type));
        }
        json metadata = {{"tokenizer.ggml.model", "llama"},
                         {"tokenizer.ggml.tokens", names},
                         {"tokenizer.ggml.scores", scores},
                         {"tokenizer.ggml.token_type", types},
                         {"tokenizer.ggml.add_space_prefix", file.adds_space},
                         {"tokenizer.ggml.remove_extra_whitespaces", file.removes_extra_spaces},
                         {"tokenizer.ggml.bos_token_id", 1},
                         {"tokenizer.ggml.eos_token_id", 2}};
        const Tokenizer tokenizer = tokenizer_of(metadata);
        const auto piece =
            std::ranges::find(file.pieces, SentencePieceFile::PieceType::unknown, &SentencePieceFile::Piece::type);
        ASSERT_NE(piece, file.pieces.end());
        const auto unknown = static_cast<std::size_t>(piece - file.pieces.begin());
        metadata["tokenizer.ggml.token_type"][unknown] = 3U; // as Gemma 3's files have it
        metadata["tokenizer.ggml.unknown_token_id"] = unknown;
        const Tokenizer by_key = tokenizer_of(metadata);
        for (const json& one : read(fixture(family) / "expected.json"))
            for (const Tokenizer* each : {&tokenizer, &by_key})
                EXPECT_EQ(each->encode(one.at("text").get<std::string>(), false),
                          one.at("ids").get<std::vector<TokenId>>());
    }
}

// ---- what is refused ----

std::string refusal_of_bytes(const std::string& bytes) {
    const TemporaryDirectory directory;
    try {
        const GgufFile file = open_gguf(directory.write("model.gguf", bytes));
        for (const TensorView& tensor : file.parts.front().tensors)
            EXPECT_LE(tensor.bytes.size(), bytes.size());
    } catch (const BadFile& error) {
        return error.what();
    }
    return "";
}

TEST(Gguf, RefusesHeadersThatLie) {
    const std::string good = gguf({{"a", 1U}}, {{"t", {32, 2}, 8, 0}}, 68);
    EXPECT_EQ(refusal_of_bytes(good), "");
    constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;
    const auto with = [&](std::size_t at, auto value) {
        std::string bytes = good;
        const std::string put = bytes_of(value);
        bytes.replace(at, put.size(), put);
        return bytes;
    };
    for (const auto& [bytes, word] : std::vector<std::pair<std::string, std::string>>{
             {with(0, std::uint32_t{0}), "GGUF"},
             {with(4, std::uint32_t{1}), "version 1"},
             {with(8, kHuge), "cannot hold 9223372036854775808 tensors"},
             {with(16, kHuge), "values"},
             {with(24, kHuge), "bytes of a string"},
             {with(33, std::uint32_t{77}), "of kind 77"},
             {good.substr(0, 60), "within its header"},
             {good.substr(0, good.size() - 1), "beyond the end"},
             {gguf({}, {{"t", {32}, 0, kHuge}}, 64), "begins at byte 9223372036854775808"},
             {gguf({}, {{"t", {kHuge, 2}, 0, 0}}, 64), "too large"},
             {gguf({}, {{"t", {0}, 0, 0}}, 64), "dimension of 0"},
             {gguf({}, {{"t", {1, 1, 1, 1, 1}, 0, 0}}, 64), "5 dimensions"},
             {gguf({}, {{"t", {33, 2}, 8, 0}}, 640), "whole blocks of 32"},
             {gguf({}, {{"t", {32}, 8, 0}}, 640), "of type Q8_0, but not a matrix"},
             {gguf({}, {{"t", {4}, 0, 0}, {"u", {4}, 0, 16}}, 64), "'u' begins at byte 16 of the tensors, where 32"},
             {gguf({}, {{"t", {9}, 0, 0}, {"u", {4}, 0, 32}}, 96), "'u' begins at byte 32 of the tensors, where 64"},
             {gguf({}, {{"t", {4}, 0, 0}, {"u", {4}, 0, 64}}, 96), "'u' begins at byte 64 of the tensors, where 32"},
             {gguf({}, {{"t", {4}, 0, 32}, {"u", {4}, 0, 0}}, 64), "'t' begins at byte 32 of the tensors, where 0"},
             {gguf({{"general.alignment", 64U}}, {{"t", {4}, 0, 0}, {"u", {4}, 0, 32}}, 96), "where 64"},
             {gguf({}, {{"t", {4}, 0, 0}, {"t", {4}, 0, 0}}, 64), "twice"},
             {gguf({{"general.alignment", 3U}}), "power of two"}})
        EXPECT_NE(refusal_of_bytes(bytes).find(word), std::string::npos)
            << refusal_of_bytes(bytes) << " lacks " << word;
}

TEST(Gguf, RefusesWhatItDoesNotKnowByName) {
    const TemporaryDirectory directory;
    const auto refusal_of_config = [&](const json& metadata) -> std::string {
        try {
            read_config(directory.write("model.gguf", gguf(metadata, {{"token_embd.weight", {32, 4}, 0, 0}}, 512)));
        } catch (const BadFile& error) {
            return error.what();
        }
        return "";
    };
    json llama = {{"general.architecture", "llama"},
                  {"llama.embedding_length", 32U},
                  {"llama.feed_forward_length", 32U},
                  {"llama.block_count", 1U},
                  {"llama.attention.head_count", 2U},
                  {"llama.context_length", 64U},
                  {"llama.attention.layer_norm_rms_epsilon", 1e-5}};
    EXPECT_EQ(refusal_of_config(llama), "");
    EXPECT_NE(refusal_of_config({{"general.architecture", "mamba"}}).find("\"mamba\""), std::string::npos);
    llama["llama.attention.sliding_window"] = 8U;
    EXPECT_NE(refusal_of_config(llama).find("llama.attention.sliding_window"), std::string::npos);
    directory.write("other.gguf", "");
    EXPECT_THROW(read_config(directory.path()), BadFile) << "two files";
}

// ---- split files ----

class SplitGguf : public testing::Test {
  protected:
    static constexpr const char* kFirst = "m-00001-of-00003.gguf";

    SplitGguf() {
        for (unsigned part = 0; part < 3; ++part)
            write(part, {{"split.no", part}, {"split.count", 3U}, {"split.tensors.count", 3U}});
    }
    void write(unsigned part, const json& metadata) {
        directory.write("m-0000" + std::to_string(part + 1) + "-of-00003.gguf",
                        gguf(metadata, {{"t" + std::to_string(part), {4}, 0, 0}}, 32));
    }
    std::string refusal(const std::string& file) const {
        try {
            open_gguf(directory.path() / file);
        } catch (const BadFile& error) {
            return error.what();
        }
        return "";
    }

    const TemporaryDirectory directory;
};

TEST_F(SplitGguf, HasTheTensorsOfAllParts) {
    for (const auto& path : {directory.path(), directory.path() / kFirst}) {
        const auto first = gguf_file_of(path);
        ASSERT_TRUE(first);
        EXPECT_EQ(first->filename(), kFirst);
        const GgufFile file = open_gguf(*first);
        ASSERT_EQ(file.parts.size(), 3U);
        for (std::size_t part = 0; part < 3; ++part)
            EXPECT_EQ(file.parts[part].tensors.at(0).name, "t" + std::to_string(part));
    }
    EXPECT_EQ(gguf_parts(directory.path() / kFirst).back().filename(), "m-00003-of-00003.gguf");
    EXPECT_EQ(gguf_parts("m-00001-of-00000.gguf").size(), 1U);
}

TEST_F(SplitGguf, IsFoundBesideTheProjectorOfItsImages) {
    std::filesystem::copy(directory.path() / kFirst, directory.path() / "mmproj-model-f16.gguf");
    const auto found = gguf_file_of(directory.path());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->filename(), kFirst);
    std::filesystem::copy(directory.path() / kFirst, directory.path() / "another.gguf");
    EXPECT_THROW(gguf_file_of(directory.path()), BadFile);
}

TEST_F(SplitGguf, NamesThePartThatIsMissingOrOutOfPlace) {
    EXPECT_NE(refusal("m-00002-of-00003.gguf").find("part 2 of 3; name the first"), std::string::npos);
    write(2, {{"split.no", 1U}, {"split.count", 3U}});
    EXPECT_NE(refusal(kFirst).find("m-00003-of-00003.gguf: is not part 3 of 3"), std::string::npos);
    std::filesystem::remove(directory.path() / "m-00002-of-00003.gguf");
    EXPECT_NE(refusal(kFirst).find("m-00002-of-00003.gguf"), std::string::npos) << refusal(kFirst);
    std::filesystem::rename(directory.path() / kFirst, directory.path() / "other.gguf");
    EXPECT_NE(refusal("other.gguf").find("named NAME-00001-of-00003.gguf"), std::string::npos);
}

TEST_F(SplitGguf, CountsTheTensorsOfAllParts) {
    write(0, {{"split.no", 0U}, {"split.count", 3U}, {"split.tensors.count", 4U}});
    EXPECT_NE(refusal(kFirst).find("'split.tensors.count' is 4, but the 3 parts have 3 tensors"), std::string::npos)
        << refusal(kFirst);
    write(0, {{"split.no", 0U}, {"split.count", 3U}});
    EXPECT_NE(refusal(kFirst).find("'split.tensors.count' is null"), std::string::npos) << refusal(kFirst);
}

} // namespace gguf_test
} // namespace entrodraft::model
