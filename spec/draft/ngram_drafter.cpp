// What followed when the last few tokens of the text last occurred in it: n-grams of several lengths, looked up and
// added in constant time a token.
#include "spec/draft/drafter.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

namespace entrodraft::spec {

namespace {

class NgramIndex final : public LookupIndex {
  public:
    explicit NgramIndex(const NgramOptions& options);

    void clear() override;
    void follow(std::span<const TokenId> text) override;
    std::optional<LookupMatch> find() const override;

  private:
    static std::uint64_t extend(std::uint64_t hash, TokenId token);
    void add(std::size_t end);
    bool agrees(std::size_t next, int length) const;

    NgramOptions options_;
    std::vector<TokenId> text_;
    // [length - shortest]: hash of an n-gram to the position behind it, the first or the latest
    std::vector<std::unordered_map<std::uint64_t, std::uint32_t>> tables_;
};

NgramIndex::NgramIndex(const NgramOptions& options) : options_(options) {
    const std::string reason = why_invalid(options);
    if (!reason.empty()) throw std::invalid_argument(reason);
    tables_.resize(static_cast<std::size_t>(options.longest - options.shortest + 1));
}

void NgramIndex::clear() {
    text_.clear();
    for (auto& table : tables_)
        table.clear();
}

void NgramIndex::follow(std::span<const TokenId> text) {
    const bool grows = text.size() >= text_.size() && std::equal(text_.begin(), text_.end(), text.begin());
    if (!grows) clear();
    text_.reserve(text.size());
    const auto follows = static_cast<std::size_t>(std::max(1, options_.full));
    while (text_.size() < text.size()) {
        text_.push_back(text[text_.size()]);
        // What ends so many tokens before the end is followed by enough from now on.
        if (text_.size() > follows) add(text_.size() - follows);
    }
}

std::uint64_t NgramIndex::extend(std::uint64_t hash, TokenId token) {
    hash ^= static_cast<std::uint32_t>(token) + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
    return hash * 0xff51afd7ed558ccdu;
}

// All n-grams whose last token is text_[end - 1], hashed backwards from it.
void NgramIndex::add(std::size_t end) {
    std::uint64_t hash = 0;
    for (int length = 1; length <= options_.longest && static_cast<std::size_t>(length) <= end; ++length) {
        hash = extend(hash, text_[end - static_cast<std::size_t>(length)]);
        if (length < options_.shortest) continue;
        auto& table = tables_[static_cast<std::size_t>(length - options_.shortest)];
        if (options_.match == NgramMatch::latest)
            table[hash] = static_cast<std::uint32_t>(end);
        else
            table.try_emplace(hash, static_cast<std::uint32_t>(end));
    }
}

std::optional<LookupMatch> NgramIndex::find() const {
    std::optional<LookupMatch> best;
    std::uint64_t hash = 0;
    for (int length = 1; length <= options_.longest && static_cast<std::size_t>(length) <= text_.size(); ++length) {
        hash = extend(hash, text_[text_.size() - static_cast<std::size_t>(length)]);
        if (length < options_.shortest) continue;
        const auto& table = tables_[static_cast<std::size_t>(length - options_.shortest)];
        const auto at = table.find(hash);
        if (at == table.end()) break; // a longer one ends with this one
        if (agrees(at->second, length)) best = LookupMatch{at->second, length, text_, false};
    }
    if (best && options_.full > 0) best->most = static_cast<std::size_t>(options_.full);
    return best;
}

// Hashes of different n-grams may be equal.
bool NgramIndex::agrees(std::size_t next, int length) const {
    const auto n = static_cast<std::size_t>(length);
    return next >= n && std::equal(text_.end() - static_cast<std::ptrdiff_t>(n), text_.end(),
                                   text_.begin() + static_cast<std::ptrdiff_t>(next - n));
}

} // namespace

std::string why_invalid(const NgramOptions& options) {
    constexpr int kMax = 64;
    const auto& [shortest, longest, match, full] = options;
    if (shortest < 1) return fmt::format("--ngram-min must be at least 1, not {}", shortest);
    if (longest < shortest || longest > kMax)
        return fmt::format("--ngram-max must be from --ngram-min ({}) to {}, not {}", shortest, kMax, longest);
    if (full < 0 || full > Packet::kMaxDraftTokens)
        return fmt::format("--ngram-full must be 1 to {}, not {}", Packet::kMaxDraftTokens, full);
    return {};
}

std::unique_ptr<LookupIndex> make_ngram_index(const NgramOptions& options) {
    return std::make_unique<NgramIndex>(options);
}

DrafterType ngram_drafter() {
    return {.name = "ngram",
            .position = 20,
            .help = "what followed the text's end before",
            .options = {"ngram-max", "ngram-match", "ngram-full", "ngram-min"},
            .make = [](const DrafterParts& parts) {
                return make_lookup_drafter(
                    "ngram", [&] { return make_ngram_index(parts.ngram); }, parts);
            }};
}

} // namespace entrodraft::spec
