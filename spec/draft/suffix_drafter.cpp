// Finds the longest earlier occurrence of the text's end, and drafts the tokens that followed. It searches the text
// itself, by a suffix automaton that grows with the text. It also searches a corpus that all sequences share, by its
// suffix array.
#include "spec/draft/drafter.h"
#include "spec/draft/lookup_corpus.h"
#include "spec/draft/suffix_automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

class SuffixIndex final : public LookupIndex {
  public:
    SuffixIndex(int shortest, std::shared_ptr<const LookupCorpus> corpus)
        : shortest_(shortest), corpus_(std::move(corpus)) {
        if (shortest < 1)
            throw std::invalid_argument(fmt::format("the shortest match must be at least 1 token, not {}", shortest));
    }

    void follow(std::span<const TokenId> text) override {
        const std::span<const TokenId> had = own_.text();
        const bool grows = text.size() >= had.size() && std::equal(had.begin(), had.end(), text.begin());
        if (!grows) own_.clear();
        for (const TokenId token : text.subspan(own_.text().size()))
            own_.append(token);
    }

    std::optional<LookupMatch> find() const override {
        std::optional<LookupMatch> best = own_.match();
        if (corpus_)
            if (const auto other = corpus_->match(own_.text(), shortest_);
                other && (!best || other->length > best->length))
                best = other;
        if (best && best->length < shortest_) best.reset();
        return best;
    }

  private:
    int shortest_; // shorter matches do not count
    std::shared_ptr<const LookupCorpus> corpus_;
    SuffixAutomaton own_;
};

} // namespace

std::unique_ptr<LookupIndex> make_suffix_index(int shortest, std::shared_ptr<const LookupCorpus> corpus) {
    return std::make_unique<SuffixIndex>(shortest, std::move(corpus));
}

DrafterType suffix_drafter() {
    return {.name = "suffix",
            .position = 30,
            .help = "what followed the text's end before",
            .parameters = {shortest_match_parameter(), lookup_texts_parameter()},
            .file = "lookup-corpus",
            .make_of = [](const DrafterParts& parts, const DrafterValues& values) {
                constexpr int kLengths = 6; // lengths of n-grams by which other texts are found
                const int shortest = values.at("min");
                const NgramOptions of_others = {shortest, shortest + kLengths - 1};
                const auto texts = static_cast<LookupTexts>(values.at("texts"));
                return make_lookup_drafter(
                    "suffix", [shortest, corpus = parts.corpus] { return make_suffix_index(shortest, corpus); }, texts,
                    of_others, parts);
            }};
}

} // namespace entrodraft::spec
