// Text files to tokens in blocks: the same tokens as at once, and what is said of files that cannot be read so.
#include "launch/load/text_tokens.h"

#include "tests/launch/scratch_file.h"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace text_tokens_test {

using namespace entrodraft;
using namespace entrodraft::launch;
using test::ScratchFile;
using Ids = std::vector<model::TokenId>;

model::Tokenizer tokenizer_of(const std::string& family) {
    return model::Tokenizer::open(ENTRODRAFT_SOURCE_DIR "/tests/model/tokenizers/" + family);
}

std::string text_of(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(ENTRODRAFT_SOURCE_DIR "/" + file, std::ios::binary).rdbuf();
    return text.str();
}

struct Blocks {
    Ids tokens;
    int n_blocks = 0;
};

Blocks in_blocks(const std::string& file, const model::Tokenizer& tokenizer, const BlockBytes& bytes) {
    Blocks blocks;
    LineReader lines(file, bytes.most);
    tokenize_blocks(
        lines, tokenizer,
        [&](std::span<const model::TokenId> part) {
            blocks.tokens.insert(blocks.tokens.end(), part.begin(), part.end());
            ++blocks.n_blocks;
        },
        bytes);
    return blocks;
}

void expect_refused(const std::function<void()>& call, const std::string& begin, const std::string& part) {
    try {
        call();
        ADD_FAILURE() << "accepted, not: " << part;
    } catch (const std::runtime_error& error) {
        const std::string message = error.what();
        EXPECT_EQ(message.find(begin), 0u) << message;
        EXPECT_NE(message.find(part), std::string::npos) << message;
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    }
}

TEST(TextTokens, AreTheSameInBlocksAsAtOnce) {
    const std::string code = text_of("spec/verify/sampling.cpp"), prose = text_of("docs/concepts.md");
    const std::string odd = "a\n\n\n  b\r\n\r\nc \n \n\td\n" + std::string(300, '\n') + "e, no newline: \xc3\xa9";
    for (const std::string family : {"gpt2", "llama3", "qwen2"}) {
        const model::Tokenizer tokenizer = tokenizer_of(family);
        for (const std::string& text : {code, prose, odd}) {
            const ScratchFile file(text);
            const Blocks blocks = in_blocks(file.path(), tokenizer, {16, 4096});
            EXPECT_EQ(blocks.tokens, tokenizer.encode(text, false)) << family;
            EXPECT_GT(blocks.n_blocks, 1);
            EXPECT_EQ(tokenize_file(file.path(), tokenizer), blocks.tokens);
        }
    }
}

TEST(TextTokens, NeverComeFromABlockLongerThanItsBound) {
    const model::Tokenizer tokenizer = tokenizer_of("gpt2");
    std::string text;
    for (int i = 0; i < 500; ++i)
        text += "\t indented\n"; // no line that begins with text
    const ScratchFile file(text);
    const Blocks blocks = in_blocks(file.path(), tokenizer, {16, 100});
    EXPECT_EQ(tokenizer.decode(blocks.tokens, false), text);
    EXPECT_EQ(blocks.n_blocks, 56) << "nine lines of 11 bytes each";
}

TEST(TextTokens, SayWhatIsWrongWithAFile) {
    const model::Tokenizer tokenizer = tokenizer_of("gpt2");
    const ScratchFile latin("good\n\xe9t\xe9\n"), late(std::string(40, 'x') + "\nab\xff\n"), empty(""),
        four("a b c d\n"), wide("one\n" + std::string(200, 'w') + "\n");
    const auto whole = [&](const ScratchFile& file) { return [&] { tokenize_file(file.path(), tokenizer); }; };
    expect_refused(whole(latin), latin.path(), "byte 5 is not UTF-8");
    expect_refused([&] { in_blocks(late.path(), tokenizer, {16, 4096}); }, late.path(), "byte 43 is not UTF-8");
    expect_refused(whole(empty), empty.path(), "is empty");
    expect_refused([&] { tokenize_file(four.path(), tokenizer, 3); }, four.path(), "more than 3 tokens");
    EXPECT_EQ(tokenize_file(four.path(), tokenizer, 64).size(), tokenizer.encode("a b c d\n", false).size());
    expect_refused([&] { in_blocks(wide.path(), tokenizer, {16, 100}); }, wide.path(), "line 2 is too long");
    expect_refused([&] { tokenize_file("/nowhere/x", tokenizer); }, "/nowhere/x", "cannot be opened");
    expect_refused([&] { tokenize_file("/", tokenizer); }, "/", "is a directory");
}

} // namespace text_tokens_test
