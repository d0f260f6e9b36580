// Drafts the tokens that followed the latest occurrence of the text's last few tokens in it. It adds and looks up
// n-grams of several lengths in constant time a token.
#include "spec/draft/drafter.h"
#include "spec/draft/ngram_hash.h"
#include "spec/draft/run_texts.h"

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
    void add(std::size_t end);
    bool agrees(std::size_t next, int length) const;

    NgramOptions options_;
    std::vector<TokenId> text_;
    // [length - shortest]: hash of an n-gram to the position after it, the first or the latest
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
        // From now on enough tokens follow the n-grams that end `follows` tokens before the end.
        if (text_.size() > follows) add(text_.size() - follows);
    }
}

// Adds all n-grams whose last token is text_[end - 1].
void NgramIndex::add(std::size_t end) {
    for_each_ngram(std::span(text_).first(end), options_, [&](std::size_t table, std::uint64_t hash) {
        if (options_.match == NgramMatch::latest)
            tables_[table][hash] = static_cast<std::uint32_t>(end);
        else
            tables_[table].try_emplace(hash, static_cast<std::uint32_t>(end));
        return true;
    });
}

std::optional<LookupMatch> NgramIndex::find() const {
    std::optional<LookupMatch> best;
    for_each_ngram(text_, options_, [&](std::size_t table, std::uint64_t hash) {
        const auto at = tables_[table].find(hash);
        if (at == tables_[table].end()) return false; // a longer n-gram ends with this one
        const int length = options_.shortest + static_cast<int>(table);
        if (agrees(at->second, length)) best = LookupMatch{at->second, length, text_, false};
        return true;
    });
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
            .options = {"ngram-max", "ngram-match", "ngram-full", "ngram-min", "lookup-texts"},
            .make = [](const DrafterParts& parts) {
                return make_lookup_drafter(
                    "ngram", [&] { return make_ngram_index(parts.ngram); }, parts.ngram, parts);
            }};
}

} // namespace entrodraft::spec
