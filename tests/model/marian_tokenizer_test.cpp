// Marian's source.spm, target.spm and vocab.json: ids and text are those of transformers' MarianTokenizer, and files
// that are broken are refused. Made by marian_tokenizer.py.
#include "model/text/tokenizer/tokenizer_files.h"
#include "tests/model/tokenizer_support.h"

#include <sstream>

namespace entrodraft::model {
namespace marian_tokenizer_test {

using nlohmann::json;

const std::filesystem::path kFiles = fixture("marian");

TEST(MarianTokenizer, EncodesAndDecodesAsTransformers) {
    const Tokenizer texts = Tokenizer::open(kFiles);
    const std::optional<Tokenizer> sources = Tokenizer::open_source(kFiles);
    ASSERT_TRUE(sources);
    int differing = 0;
    for (const json& one : read(kFiles / "expected.json")) {
        const auto text = one.at("text").get<std::string>();
        const auto target = one.at("target").get<std::vector<TokenId>>();
        EXPECT_EQ(sources->encode(text, true), one.at("source").get<std::vector<TokenId>>()) << text;
        EXPECT_EQ(texts.encode(text, true), target) << text;
        EXPECT_EQ(texts.decode(target, true), one.at("decoded").get<std::string>()) << text;
        differing += one.at("source") != one.at("target") ? 1 : 0;
    }
    EXPECT_GT(differing, 10) << "sources are cut by a file of their own";
    EXPECT_NE(texts.fingerprint(), sources->fingerprint());
}

TEST(MarianTokenizer, OtherTokenizersEncodeSourcesAsTexts) {
    EXPECT_FALSE(Tokenizer::open_source(fixture("t5-new")));
    EXPECT_FALSE(has_marian_files(fixture("t5-new")));
}

TEST(MarianTokenizer, RefusesFilesThatAreBroken) {
    const auto bytes_of = [](const char* name) {
        std::ifstream in(kFiles / name, std::ios::binary);
        return (std::ostringstream() << in.rdbuf()).str();
    };
    const std::string spm = bytes_of("target.spm"), vocab = bytes_of("vocab.json");
    const auto refusal_of = [&](const std::string& pieces, const std::string& ids) {
        const TemporaryDirectory directory;
        directory.write("source.spm", bytes_of("source.spm"));
        directory.write("target.spm", pieces);
        directory.write("vocab.json", ids);
        return refusal_of_directory(directory.path());
    };
    EXPECT_EQ(refusal_of(spm, vocab), "");
    EXPECT_NE(refusal_of("", vocab).find("it has no pieces"), std::string::npos);
    EXPECT_NE(refusal_of(spm.substr(0, spm.size() / 2), vocab).find("cut off"), std::string::npos);
    EXPECT_NE(refusal_of("\xff\xff" + spm, vocab).find("target.spm"), std::string::npos);
    EXPECT_NE(refusal_of(spm, R"({"a": 0})").find("unknown token"), std::string::npos);
    EXPECT_NE(refusal_of(spm, R"({"<unk>": 0, "a": 0})").find("the id 0"), std::string::npos);
    EXPECT_NE(refusal_of(spm, R"({"<unk>": -1})").find("whole number"), std::string::npos);
}

} // namespace marian_tokenizer_test
} // namespace entrodraft::model
