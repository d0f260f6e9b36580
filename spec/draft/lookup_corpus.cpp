// Corpora to look in: see lookup_corpus.h.
#include "spec/draft/lookup_corpus.h"

#include "model/files/bad_file.h"
#include "model/files/mapped_file.h"
#include "spec/draft/suffix_array.h"
#include "spec/verify/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace entrodraft::spec {

namespace {

static_assert(std::endian::native == std::endian::little, "corpora are written and read as they lie in memory");

constexpr std::array<char, 8> kCorpusMagic = {'E', 'D', 'C', 'O', 'R', 'P', 'S', '\n'};
constexpr std::uint32_t kCorpusVersion = 1;

struct CorpusHeader {
    std::array<char, 8> magic = kCorpusMagic;
    std::uint32_t version = kCorpusVersion;
    std::uint32_t vocab_size = 0;
    std::uint64_t fingerprint = 0;
    std::uint64_t n_tokens = 0;
    std::uint64_t checksum = 0;
};
static_assert(sizeof(CorpusHeader) == 40);
constexpr std::size_t kBytesPerToken = sizeof(TokenId) + sizeof(std::uint32_t);

std::uint64_t checksum_of(const CorpusHeader& header, std::span<const TokenId> tokens,
                          std::span<const std::uint32_t> suffixes) {
    std::uint64_t hash = hash_bytes(&header, offsetof(CorpusHeader, checksum));
    hash = hash_bytes(tokens.data(), tokens.size_bytes(), hash);
    return hash_bytes(suffixes.data(), suffixes.size_bytes(), hash);
}

[[noreturn]] void refuse_corpus(const std::string& name, const std::string& why) {
    throw model::BadFile(fmt::format(
        "{}: {}; make it again: entrodraft build-corpus --model DIR --input TEXT --output FILE", name, why));
}

// The header, once it agrees with the length of the file.
CorpusHeader corpus_header_of(std::span<const std::byte> bytes, const std::string& name) {
    CorpusHeader header;
    if (bytes.size() < sizeof header || std::memcmp(bytes.data(), kCorpusMagic.data(), kCorpusMagic.size()) != 0)
        refuse_corpus(name, "is not a corpus of build-corpus");
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.version != kCorpusVersion)
        refuse_corpus(name, fmt::format("a corpus of version {}, and this program reads version {}", header.version,
                                        kCorpusVersion));
    const std::uint64_t body = bytes.size() - sizeof header;
    if (header.n_tokens > LookupCorpus::kMaxTokens || header.n_tokens * kBytesPerToken != body)
        refuse_corpus(name, fmt::format("{} bytes do not hold a corpus of {} tokens; it was cut short or damaged",
                                        bytes.size(), header.n_tokens));
    return header;
}

} // namespace

LookupCorpus::LookupCorpus(std::vector<TokenId> tokens, int vocab_size)
    : vocab_size_(vocab_size), own_tokens_(std::move(tokens)), tokens_(own_tokens_) {
    if (tokens_.size() > kMaxTokens)
        throw std::length_error(fmt::format("a corpus of more than {} tokens cannot be searched", kMaxTokens));
    own_suffixes_ = suffix_array(tokens_, vocab_size);
    suffixes_ = own_suffixes_;
}

LookupCorpus::LookupCorpus(std::span<const std::byte> bytes, const std::string& name, int vocab_size,
                           std::uint64_t fingerprint)
    : vocab_size_(vocab_size) {
    check(bytes, name, fingerprint);
}

LookupCorpus::LookupCorpus(std::unique_ptr<model::MappedFile> file, int vocab_size, std::uint64_t fingerprint)
    : vocab_size_(vocab_size), file_(std::move(file)) {
    check(file_->bytes(), file_->name(), fingerprint);
}

LookupCorpus::~LookupCorpus() = default;

std::shared_ptr<const LookupCorpus> LookupCorpus::open(const std::filesystem::path& file, int vocab_size,
                                                       std::uint64_t fingerprint) {
    auto mapped = std::make_unique<model::MappedFile>(file, 1, "corpus of build-corpus");
    return std::shared_ptr<const LookupCorpus>(new LookupCorpus(std::move(mapped), vocab_size, fingerprint));
}

bool LookupCorpus::is_corpus_file(const std::filesystem::path& file) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(file, ignored)) return false; // a pipe is read once
    std::array<char, kCorpusMagic.size()> first{};
    std::ifstream(file, std::ios::binary).read(first.data(), first.size());
    return first == kCorpusMagic;
}

void LookupCorpus::check(std::span<const std::byte> bytes, const std::string& name, std::uint64_t fingerprint) {
    const CorpusHeader header = corpus_header_of(bytes, name);
    const auto n = static_cast<std::size_t>(header.n_tokens);
    if (header.vocab_size != static_cast<std::uint32_t>(vocab_size_))
        refuse_corpus(name, fmt::format("made for a vocabulary of {} tokens, and the model's tokenizer has {}",
                                        header.vocab_size, vocab_size_));
    if (header.fingerprint != fingerprint) refuse_corpus(name, "made with another tokenizer than the model's");
    const std::byte* const body = bytes.data() + sizeof header;
    tokens_ = {reinterpret_cast<const TokenId*>(body), n};
    suffixes_ = {reinterpret_cast<const std::uint32_t*>(body + n * sizeof(TokenId)), n};
    if (header.checksum != checksum_of(header, tokens_, suffixes_))
        refuse_corpus(name, "its checksum is not that of its contents; it was damaged");
    const auto token = std::ranges::find_if(tokens_, [&](TokenId each) { return each < 0 || each > vocab_size_; });
    if (token != tokens_.end())
        refuse_corpus(name, fmt::format("token {} is outside the vocabulary", token - tokens_.begin()));
    const auto suffix = std::ranges::find_if(suffixes_, [&](std::uint32_t each) { return each >= n; });
    if (suffix != suffixes_.end())
        refuse_corpus(name, fmt::format("suffix {} begins behind the last token", suffix - suffixes_.begin()));
}

// Compares the text at `position` with `sought`. 0: it begins with `sought`; below 0: it comes before all texts that
// do; above 0: after them. In a file changed since its check, a position may be after the last token, where nothing
// begins.
int LookupCorpus::order(std::uint32_t position, std::span<const TokenId> sought) const {
    const auto there = tokens_.subspan(std::min<std::size_t>(position, tokens_.size()));
    for (std::size_t i = 0; i < sought.size(); ++i) {
        if (i >= there.size()) return -1;
        if (there[i] != sought[i]) return there[i] < sought[i] ? -1 : 1;
    }
    return 0;
}

// Token `i` of the text that begins at `suffix`; -1 after the last one.
TokenId LookupCorpus::token_of(std::uint32_t suffix, std::size_t i) const {
    return suffix + i < tokens_.size() ? tokens_[suffix + i] : -1;
}

// For suffixes with a common beginning of `length` tokens, returns one that continues as most of them do. It goes token
// by token, and takes the most frequent continuation among a sample of the suffixes left.
std::uint32_t LookupCorpus::most_frequent(std::span<const std::uint32_t> suffixes, std::size_t length) const {
    constexpr std::size_t kSamples = 32, kTokens = 8;
    for (const std::size_t end = length + kTokens; length < end && suffixes.size() > 1; ++length) {
        const std::size_t n = std::min(suffixes.size(), kSamples);
        TokenId most = -1;
        std::size_t most_often = 0, often = 0;
        for (std::size_t i = 0; i < n; ++i) { // samples are in order
            const auto token = [&](std::size_t sample) {
                return token_of(suffixes[sample * suffixes.size() / n], length);
            };
            often = i > 0 && token(i) == token(i - 1) ? often + 1 : 1;
            if (often > most_often) most_often = often, most = token(i);
        }
        const auto first = std::ranges::partition_point(
            suffixes, [&](std::uint32_t suffix) { return token_of(suffix, length) < most; });
        const auto last = std::partition_point(first, suffixes.end(),
                                               [&](std::uint32_t suffix) { return token_of(suffix, length) <= most; });
        if (first == last) break; // in a file with unordered suffixes
        suffixes = {first, last};
    }
    return suffixes[suffixes.size() / 2];
}

// The position after an occurrence of `sought`, if a token follows there. In a file with wrongly ordered suffixes the
// search leads to a wrong place or to none, so the place found is compared.
std::optional<std::size_t> LookupCorpus::behind(std::span<const TokenId> sought) const {
    const auto begins = [&](std::uint32_t suffix) { return order(suffix, sought) < 0; };
    const auto follows = [&](std::uint32_t suffix) { // or begins with `sought`, and continues with a token
        return order(suffix, sought) <= 0 && token_of(suffix, sought.size()) < vocab_size_;
    };
    auto first = std::ranges::partition_point(suffixes_, begins);
    const auto last = std::partition_point(first, suffixes_.end(), follows);
    if (first != last && token_of(*first, sought.size()) < 0) ++first; // the end of the corpus
    if (first == last) return std::nullopt;
    const std::uint32_t chosen = most_frequent({first, last}, sought.size());
    const TokenId next = token_of(chosen, sought.size());
    const bool is_there = order(chosen, sought) == 0 && next >= 0 && next < vocab_size_;
    return is_there ? std::optional(chosen + sought.size()) : std::nullopt;
}

// If a match is found, so is each shorter one. The longest match is therefore between a length that is found and one
// that is not.
std::optional<LookupMatch> LookupCorpus::match(std::span<const TokenId> text, int shortest) const {
    std::optional<LookupMatch> best;
    const auto is_there = [&](std::size_t length) {
        const std::optional<std::size_t> next = behind(text.last(length));
        if (next) best = LookupMatch{*next, static_cast<int>(length), tokens_, true};
        return next.has_value();
    };
    std::size_t length = static_cast<std::size_t>(shortest), too_long = text.size() + 1;
    if (length >= too_long) return best;
    while (length < too_long && is_there(length)) // doubles the length
        length = std::min(2 * length, std::max(length + 1, too_long - 1));
    if (!best) return best;
    too_long = std::min(too_long, length);
    while (static_cast<std::size_t>(best->length) + 1 < too_long) {
        const std::size_t middle = (static_cast<std::size_t>(best->length) + too_long) / 2;
        if (!is_there(middle)) too_long = middle;
    }
    return best;
}

void LookupCorpus::write(std::uint64_t fingerprint,
                         const std::function<void(std::span<const std::byte>)>& write) const {
    CorpusHeader header;
    header.vocab_size = static_cast<std::uint32_t>(vocab_size_);
    header.fingerprint = fingerprint;
    header.n_tokens = tokens_.size();
    header.checksum = checksum_of(header, tokens_, suffixes_);
    write(std::as_bytes(std::span(&header, 1)));
    write(std::as_bytes(tokens_));
    write(std::as_bytes(suffixes_));
}

std::uint64_t LookupCorpus::file_bytes() const {
    return sizeof(CorpusHeader) + tokens_.size() * kBytesPerToken;
}

} // namespace entrodraft::spec
