// Finds an earlier occurrence of the text's last few tokens (by default the latest), and drafts the tokens that
// followed. It adds and looks up n-grams of several lengths in constant time a token.
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
    if (options.shortest < 1 || options.longest < options.shortest)
        throw std::invalid_argument("the lengths of n-grams are no range");
    tables_.resize(static_cast<std::size_t>(options.longest - options.shortest + 1));
}

void NgramIndex::follow(std::span<const TokenId> text) {
    const bool grows = text.size() >= text_.size() && std::equal(text_.begin(), text_.end(), text.begin());
    if (!grows) {
        text_.clear();
        for (auto& table : tables_)
            table.clear();
    }
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

std::unique_ptr<LookupIndex> make_ngram_index(const NgramOptions& options) {
    return std::make_unique<NgramIndex>(options);
}

DrafterType ngram_drafter() {
    constexpr int kMaxLength = NgramOptions::kMaxLength;
    return {.name = "ngram",
            .position = 20,
            .help = "what followed the text's end before",
            .parameters =
                {{.name = "max", .help = "most tokens that match", .default_value = 4, .min = 1, .max = kMaxLength},
                 shortest_match_parameter(),
                 {.name = "match", .help = "which of several matches counts", .max = 1, .words = {"latest", "first"}},
                 {.name = "full",
                  .help = "only matches that so many tokens follow, and at most these are drafted; 0: any",
                  .max = Packet::kMaxDraftTokens},
                 lookup_texts_parameter()},
            .make_of =
                [](const DrafterParts& parts, const DrafterValues& values) {
                    const NgramOptions ngram = {values.at("min"), values.at("max"),
                                                static_cast<NgramMatch>(values.at("match")), values.at("full")};
                    const auto texts = static_cast<LookupTexts>(values.at("texts"));
                    return make_lookup_drafter(
                        "ngram", [ngram] { return make_ngram_index(ngram); }, texts, ngram, parts);
                },
            .why_not = [](const DrafterValues& values) -> std::string {
                if (values.at("min") <= values.at("max")) return "";
                return fmt::format("min={} of ngram is above max={}", values.at("min"), values.at("max"));
            }};
}

} // namespace entrodraft::spec
