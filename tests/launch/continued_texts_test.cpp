// Texts that outlive a run: what is found again, and what is refused.
#include "launch/cmd/continued_texts.h"
#include "launch/start/failure.h"
#include "tests/model/temporary_directory.h"

#include <fstream>
#include <gtest/gtest.h>
#include <iterator>

namespace continued_texts_test {

using namespace entrodraft;
using namespace entrodraft::launch;

const Json kSettings = {{"target", "T"}, {"seed", 1}};

std::string read(const std::filesystem::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

TEST(ContinuedTexts, AreFoundAgainButForATornLine) {
    const TemporaryDirectory directory;
    const std::filesystem::path file = directory.path() / "texts.jsonl";
    {
        ContinuedTexts texts(file, kSettings, 5);
        EXPECT_TRUE(texts.found().empty());
        texts.add(3, {7, 8});
        texts.add(0, {}); // a text that failed
    }
    const std::string whole = read(file);
    directory.write("texts.jsonl", whole + R"({"text":1,"token_ids":[4,)");
    {
        ContinuedTexts texts(file, kSettings, 5);
        EXPECT_EQ(texts.found(), (std::map<std::size_t, std::vector<spec::TokenId>>{{0, {}}, {3, {7, 8}}}));
        EXPECT_EQ(read(file), whole);
        texts.add(1, {4, 5});
    }
    EXPECT_EQ(ContinuedTexts(file, kSettings, 5).found().at(1), (std::vector<spec::TokenId>{4, 5}));
}

TEST(ContinuedTexts, ATornFirstLineIsABeginning) {
    const TemporaryDirectory directory;
    const std::filesystem::path file = directory.write("texts.jsonl", R"({"target":"T",)");
    ContinuedTexts(file, kSettings, 5).add(2, {1});
    EXPECT_EQ(ContinuedTexts(file, kSettings, 5).found().size(), 1U);
}

void expect_refused(const std::filesystem::path& file, const std::string& words) {
    try {
        ContinuedTexts(file, kSettings, 5);
        ADD_FAILURE() << "nothing was thrown for " << words;
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
}

TEST(ContinuedTexts, OfOtherOptionsOrOfNoSuchPromptAreRefused) {
    const TemporaryDirectory directory;
    const std::string head = compact(kSettings) + "\n";
    expect_refused(directory.write("a", R"({"target":"T","seed":2})"
                                        "\n"),
                   "other options");
    expect_refused(directory.write("b", head + "not JSON\n"), "b line 2: ");
    expect_refused(directory.write("c", head + R"({"text":5,"token_ids":[1]})"
                                               "\n"),
                   "c line 2: field text must be a whole number from 0 to 4");
    expect_refused(directory.write("d", head + R"({"text":1,"token_ids":[-1]})"
                                               "\n"),
                   "d line 2: field token_ids must be");
}

} // namespace continued_texts_test
