// The tokens of a text file of any size: read in blocks cut at line ends, each tokenized as a text of its own.
//
// For files that are counted or searched, not for prompts: a tokenizer that puts a space before a text puts one before
// each block. Called by build-table, build-corpus and for --lookup-corpus.
#pragma once

#include "launch/io/line_reader.h"
#include "model/text/tokenizer/tokenizer.h"

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::launch {

// A block ends, once it has `least` bytes, before a line that begins with no white space, which tokenizers seldom join
// to the line before; it ends before any line rather than be longer than `most`.
struct BlockBytes {
    std::size_t least = std::size_t{1} << 20;
    std::size_t most = std::size_t{16} << 20;
};

// The whole file's tokens, in order, without special tokens. Lines longer than `lines` allows are refused.
// Throws std::runtime_error naming the file and, where it is not UTF-8, the byte.
void tokenize_blocks(LineReader& lines, const model::Tokenizer& tokenizer,
                     const std::function<void(std::span<const model::TokenId>)>& take, const BlockBytes& bytes = {});

// A corpus of that many tokens takes 1 GiB once it is indexed, and 2.5 GiB meanwhile.
inline constexpr std::size_t kMaxCorpusTokens = std::size_t{1} << 27;

// All of it at once; "-" is stdin. Throws std::runtime_error naming the file, also where it is empty or has more than
// `max_tokens`.
std::vector<model::TokenId> tokenize_file(const std::string& file, const model::Tokenizer& tokenizer,
                                          std::size_t max_tokens = kMaxCorpusTokens);

} // namespace entrodraft::launch
