// Tokens of a text file: see text_tokens.h.
#include "launch/load/text_tokens.h"

#include "model/files/utf8.h"

#include <cstdint>
#include <fmt/format.h>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

bool begins_with_text(const std::string& line) {
    return !line.empty() && std::string_view(" \t\r\v\f").find(line.front()) == std::string_view::npos;
}

// `offset` is where the block begins in the file.
std::vector<model::TokenId> tokens_of(const std::string& block, const std::string& file, std::uint64_t offset,
                                      const model::Tokenizer& tokenizer) {
    if (const std::size_t invalid = model::first_invalid_utf8(block); invalid != std::string::npos)
        throw std::runtime_error(
            fmt::format("{}: byte {} is not UTF-8; convert the file, as iconv does", file, offset + invalid));
    try {
        return tokenizer.encode(block, false);
    } catch (const std::exception& error) {
        throw std::runtime_error(fmt::format("{}: the text from byte {} on: {}", file, offset, error.what()));
    }
}

} // namespace

void tokenize_blocks(LineReader& lines, const model::Tokenizer& tokenizer,
                     const std::function<void(std::span<const model::TokenId>)>& take, const BlockBytes& bytes) {
    std::string block;
    std::uint64_t offset = 0;
    const auto end_block = [&] {
        if (!block.empty()) take(tokens_of(block, lines.file(), offset, tokenizer));
        offset += block.size();
        block.clear();
    };
    for (std::uint64_t number = 1;; ++number) {
        const auto line = lines.next();
        if (!line) break;
        if (line->too_long)
            throw std::runtime_error(fmt::format("{} line {} is too long; break it into lines", lines.file(), number));
        const bool is_full = block.size() >= bytes.least && begins_with_text(line->text);
        if (is_full || block.size() + line->text.size() + 1 > bytes.most) end_block();
        block += line->text;
        if (line->terminated) block += '\n';
    }
    if (lines.interrupted()) throw std::runtime_error(lines.file() + ": reading was interrupted");
    end_block();
}

std::vector<model::TokenId> tokenize_file(const std::string& file, const model::Tokenizer& tokenizer,
                                          std::size_t max_tokens) {
    const BlockBytes bytes;
    LineReader lines(file, bytes.most);
    std::vector<model::TokenId> tokens;
    tokenize_blocks(
        lines, tokenizer,
        [&](std::span<const model::TokenId> part) {
            if (part.size() > max_tokens - tokens.size())
                throw std::runtime_error(fmt::format("{}: more than {} tokens are too many to search; shorten the file",
                                                     lines.file(), max_tokens));
            tokens.insert(tokens.end(), part.begin(), part.end());
        },
        bytes);
    if (tokens.empty()) throw std::runtime_error(lines.file() + ": is empty; give a file with some text");
    return tokens;
}

} // namespace entrodraft::launch
