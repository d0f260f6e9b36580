// Unigram and bigram tables: see token_table.h.
#include "spec/draft/token_table.h"

#include "model/files/bad_file.h"
#include "model/files/mapped_file.h"
#include "spec/verify/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

namespace entrodraft::spec {

namespace {

using model::BadFile;

static_assert(std::endian::native == std::endian::little, "tables are written and read as they lie in memory");

constexpr std::array<char, 8> kTableMagic = {'E', 'D', 'T', 'A', 'B', 'L', 'E', '\n'};
constexpr std::uint32_t kTableVersion = 1;

[[noreturn]] void refuse(const std::string& name, const std::string& why, const std::string& again = "") {
    throw BadFile(fmt::format("{}: {}; make it again: entrodraft build-table --model DIR --input TEXT --output {}",
                              name, why, again.empty() ? name : again));
}

struct Header {
    std::array<char, 8> magic = kTableMagic;
    std::uint32_t version = kTableVersion;
    std::uint32_t vocab_size = 0;
    std::uint64_t fingerprint = 0;
    std::uint64_t total = 0;
    std::uint64_t pairs = 0;
    std::uint64_t checksum = 0;
};
static_assert(sizeof(Header) == 48 && sizeof(Follower) == 8);

std::uint64_t checksum_of(const Header& header, std::span<const std::byte> unigrams, std::span<const std::byte> sizes,
                          std::span<const std::byte> followers) {
    std::uint64_t hash = hash_bytes(&header, offsetof(Header, checksum));
    for (const auto part : {unigrams, sizes, followers})
        hash = hash_bytes(part.data(), part.size(), hash);
    return hash;
}

template <typename T> std::vector<T> copy_of(std::span<const std::byte> bytes) {
    std::vector<T> items(bytes.size() / sizeof(T));
    if (!items.empty()) std::memcpy(items.data(), bytes.data(), bytes.size());
    return items;
}

// The header, once it agrees with the length of the file.
Header header_of(std::span<const std::byte> bytes, const std::string& name) {
    Header header;
    if (bytes.size() < sizeof(Header) || std::memcmp(bytes.data(), kTableMagic.data(), kTableMagic.size()) != 0)
        refuse(name, "is not a token table", "FILE");
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.version != kTableVersion)
        refuse(name, fmt::format("a token table of version {}, and this program reads version {}", header.version,
                                 kTableVersion));
    const std::uint64_t n_vocab = header.vocab_size, body = bytes.size() - sizeof(Header);
    const bool fits = header.pairs <= body / sizeof(Follower) && n_vocab * 8 + header.pairs * sizeof(Follower) == body;
    if (!fits)
        refuse(name, fmt::format("{} bytes do not hold a token table of {} tokens and {} pairs; it was cut short or "
                                 "damaged",
                                 bytes.size(), n_vocab, header.pairs));
    return header;
}

// The error in counts whose sizes are right; empty if there is none.
std::string why_invalid(const TokenCounts& counts) {
    std::uint64_t total = 0, pairs = 0;
    for (std::size_t y = 0; y < counts.unigrams.size(); ++y) {
        total += counts.unigrams[y];
        std::uint64_t row = 0;
        for (std::uint64_t i = counts.row_starts[y]; i < counts.row_starts[y + 1]; ++i) {
            const Follower& follower = counts.followers[i];
            if (follower.token < 0 || follower.token >= counts.vocab_size)
                return fmt::format("pair {} names a token outside the vocabulary", i);
            if (i > counts.row_starts[y] && follower.token <= counts.followers[i - 1].token)
                return fmt::format("pair {} is out of order", i);
            if (follower.count == 0) return fmt::format("pair {} counts nothing", i);
            row += follower.count;
        }
        if (row > counts.unigrams[y]) return fmt::format("token {} is followed more often than it occurs", y);
        pairs += row;
    }
    if (total != counts.total || total == 0) return "the tokens' counts do not add up to the text's";
    return pairs + 1 == total ? "" : "the pairs' counts do not add up to the text's";
}

} // namespace

TokenCounter::TokenCounter(int vocab_size, std::uint64_t fingerprint, std::size_t max_pairs) : max_pairs_(max_pairs) {
    if (vocab_size < 1) throw std::invalid_argument("a vocabulary has at least one token");
    counts_.vocab_size = vocab_size;
    counts_.fingerprint = fingerprint;
    counts_.unigrams.resize(static_cast<std::size_t>(vocab_size));
}

void TokenCounter::add(std::span<const TokenId> tokens) {
    constexpr std::size_t kMinPending = std::size_t{1} << 20;
    if (tokens.size() > kMaxTokens - counts_.total)
        throw std::length_error(
            fmt::format("a token table counts at most {} tokens; build it from less text", kMaxTokens));
    for (const TokenId token : tokens) {
        if (token < 0 || token >= counts_.vocab_size)
            throw std::out_of_range(fmt::format("token {} is outside the vocabulary of {}", token, counts_.vocab_size));
        ++counts_.unigrams[token];
        ++counts_.total;
        if (previous_ >= 0)
            pending_.push_back(static_cast<std::uint64_t>(previous_) << 32 | static_cast<std::uint32_t>(token));
        previous_ = token;
        if (pending_.size() >= std::max(kMinPending, pairs_.size())) merge();
    }
}

void TokenCounter::merge() {
    std::sort(pending_.begin(), pending_.end());
    std::vector<std::uint64_t> pairs;
    std::vector<std::uint32_t> count;
    std::size_t old = 0;
    const auto take = [&](std::uint64_t pair, std::uint32_t times) {
        if (pairs.empty() || pairs.back() != pair) {
            if (pairs.size() >= max_pairs_)
                throw std::length_error(fmt::format(
                    "a token table holds at most {} distinct pairs of tokens; build it from less text", max_pairs_));
            pairs.push_back(pair);
            count.push_back(0);
        }
        count.back() += times;
    };
    for (const std::uint64_t pair : pending_) {
        for (; old < pairs_.size() && pairs_[old] <= pair; ++old)
            take(pairs_[old], pair_count_[old]);
        take(pair, 1);
    }
    for (; old < pairs_.size(); ++old)
        take(pairs_[old], pair_count_[old]);
    pairs_ = std::move(pairs);
    pair_count_ = std::move(count);
    pending_.clear();
}

TokenCounts TokenCounter::take() {
    merge();
    const auto n_vocab = static_cast<std::size_t>(counts_.vocab_size);
    counts_.row_starts.assign(n_vocab + 1, 0);
    counts_.followers.reserve(pairs_.size());
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
        counts_.followers.push_back({static_cast<TokenId>(pairs_[i] & 0xffffffff), pair_count_[i]});
        ++counts_.row_starts[(pairs_[i] >> 32) + 1];
    }
    for (std::size_t y = 0; y < n_vocab; ++y)
        counts_.row_starts[y + 1] += counts_.row_starts[y];
    pairs_ = {};
    pair_count_ = {};
    return std::move(counts_);
}

void write_token_counts(const TokenCounts& counts, const std::function<void(std::span<const std::byte>)>& write) {
    std::vector<std::uint32_t> sizes;
    for (std::size_t y = 0; y < counts.unigrams.size(); ++y)
        sizes.push_back(static_cast<std::uint32_t>(counts.row_starts[y + 1] - counts.row_starts[y]));
    Header header;
    header.vocab_size = static_cast<std::uint32_t>(counts.vocab_size);
    header.fingerprint = counts.fingerprint;
    header.total = counts.total;
    header.pairs = counts.followers.size();
    const auto unigrams = std::as_bytes(std::span(counts.unigrams)), rows = std::as_bytes(std::span(sizes)),
               followers = std::as_bytes(std::span(counts.followers));
    header.checksum = checksum_of(header, unigrams, rows, followers);
    for (const auto part : {std::as_bytes(std::span(&header, 1)), unigrams, rows, followers})
        write(part);
}

std::uint64_t token_counts_bytes(const TokenCounts& counts) {
    return sizeof(Header) + counts.unigrams.size() * 8 + counts.followers.size() * sizeof(Follower);
}

TokenCounts parse_token_counts(std::span<const std::byte> bytes, const std::string& name) {
    const Header header = header_of(bytes, name);
    const std::size_t n_vocab = header.vocab_size;
    const auto unigrams = bytes.subspan(sizeof header, n_vocab * 4);
    const auto sizes = bytes.subspan(sizeof header + n_vocab * 4, n_vocab * 4);
    const auto followers = bytes.subspan(sizeof header + n_vocab * 8);
    const std::string damaged = "a damaged token table: ";
    if (checksum_of(header, unigrams, sizes, followers) != header.checksum)
        refuse(name, damaged + "its checksum disagrees");
    if (n_vocab < 1 || n_vocab > static_cast<std::size_t>(std::numeric_limits<TokenId>::max()))
        refuse(name, fmt::format("{}a vocabulary of {} tokens", damaged, n_vocab));
    TokenCounts counts;
    counts.vocab_size = static_cast<int>(header.vocab_size);
    counts.fingerprint = header.fingerprint;
    counts.total = header.total;
    counts.unigrams = copy_of<std::uint32_t>(unigrams);
    counts.row_starts.push_back(0);
    for (const std::uint32_t size : copy_of<std::uint32_t>(sizes))
        counts.row_starts.push_back(counts.row_starts.back() + size);
    if (counts.row_starts.back() != header.pairs) refuse(name, damaged + "its rows do not add up to its pairs");
    counts.followers = copy_of<Follower>(followers);
    if (const std::string why = why_invalid(counts); !why.empty()) refuse(name, damaged + why);
    return counts;
}

TokenTable::TokenTable(const TokenCounts& counts) : row_starts_(counts.row_starts) {
    const std::size_t n_vocab = counts.unigrams.size();
    std::vector<double> q1(n_vocab);
    unigrams_.reserve(n_vocab);
    shifts_.reserve(n_vocab);
    followers_.reserve(counts.followers.size());
    for (std::size_t x = 0; x < n_vocab; ++x) {
        q1[x] = (counts.unigrams[x] + 1.0) / static_cast<double>(counts.total + n_vocab);
        unigrams_.push_back(static_cast<float>(std::log(q1[x])));
    }
    for (std::size_t y = 0; y < n_vocab; ++y) {
        const auto row = std::span(counts.followers).subspan(row_starts_[y], row_starts_[y + 1] - row_starts_[y]);
        double sum = kPrior;
        for (const Follower& follower : row)
            sum += follower.count;
        shifts_.push_back(static_cast<float>(std::log(kPrior / sum)));
        for (const Follower& follower : row) {
            const double q2 = (follower.count + kPrior * q1[follower.token]) / sum;
            followers_.push_back({follower.token, static_cast<float>(std::log(q2))});
        }
    }
}

TokenTable TokenTable::open(const std::filesystem::path& file, int vocab_size, std::uint64_t fingerprint) {
    const model::MappedFile mapped(file, 1, "token table");
    const TokenCounts counts = parse_token_counts(mapped.bytes(), mapped.name());
    if (counts.vocab_size != vocab_size)
        refuse(mapped.name(), fmt::format("made for a vocabulary of {} tokens, and the model's tokenizer has {}",
                                          counts.vocab_size, vocab_size));
    if (counts.fingerprint != fingerprint) refuse(mapped.name(), "made with another tokenizer than the model's");
    return TokenTable(counts);
}

void TokenTable::row(int order, TokenId previous, std::span<float> logits) const {
    if (order != 1 && order != 2)
        throw std::invalid_argument(fmt::format("a token table has orders 1 and 2, not {}", order));
    const auto after = static_cast<std::size_t>(previous);
    if (order == 2 && (previous < 0 || after >= unigrams_.size()))
        throw std::out_of_range(fmt::format("token {} is outside the table's vocabulary", previous));
    const std::size_t n = std::min(logits.size(), unigrams_.size());
    std::fill(logits.begin() + static_cast<std::ptrdiff_t>(n), logits.end(), -std::numeric_limits<float>::infinity());
    if (order == 1 || row_starts_[after] == row_starts_[after + 1]) {
        std::copy_n(unigrams_.begin(), n, logits.begin());
        return;
    }
    const float shift = shifts_[after];
    for (std::size_t x = 0; x < n; ++x)
        logits[x] = unigrams_[x] + shift;
    for (std::uint64_t i = row_starts_[after]; i < row_starts_[after + 1]; ++i) {
        const auto token = static_cast<std::size_t>(followers_[i].token);
        if (token >= n) break; // by rising token
        logits[token] = followers_[i].log_probability;
    }
}

} // namespace entrodraft::spec
