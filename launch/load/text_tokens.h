// Reads the tokens of a text file of any size. The file is read in blocks that are cut at line ends, and each block is
// tokenized as a separate text.
//
// This is for files whose tokens are counted or searched, not for prompts: a tokenizer that puts a space before a text
// puts one before each block. build-table, build-corpus and --lookup-corpus use this.
#pragma once

#include "launch/io/line_reader.h"
#include "model/text/tokenizer/tokenizer.h"

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::launch {

// A block that has `least` bytes ends before the next line that begins with no white space; tokenizers seldom join such
// a line to the one before. A block ends before any line that would make it longer than `most`.
struct BlockBytes {
    std::size_t least = std::size_t{1} << 20;
    std::size_t most = std::size_t{16} << 20;
};

// Hands all tokens of the file to `take`, in order, without special tokens. Refuses lines that are longer than `lines`
// allows. Throws std::runtime_error that names the file and, if it is not UTF-8, the byte.
void tokenize_blocks(LineReader& lines, const model::Tokenizer& tokenizer,
                     const std::function<void(std::span<const model::TokenId>)>& take, const BlockBytes& bytes = {});

// A corpus of that many tokens takes 1 GiB once it is indexed, and 2.5 GiB while it is being indexed.
inline constexpr std::size_t kMaxCorpusTokens = std::size_t{1} << 27;

// Returns all tokens at once; "-" is stdin. Throws std::runtime_error that names the file, also if it is empty or has
// more than `max_tokens`.
std::vector<model::TokenId> tokenize_file(const std::string& file, const model::Tokenizer& tokenizer,
                                          std::size_t max_tokens = kMaxCorpusTokens);

} // namespace entrodraft::launch
