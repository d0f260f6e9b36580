// Where the end of a text has appeared before, however long the part: in the text itself, by a suffix automaton that
// grows with it, and in a corpus that all sequences share.
//
// Knows nothing of drafting. Called by lookup drafters.
#pragma once

#include "spec/draft/suffix_automaton.h"

#include <memory>
#include <optional>
#include <span>

namespace entrodraft::spec {

struct SuffixOptions {
    int shortest = 1; // matches of fewer tokens do not count
};

class SuffixIndex final : public LookupIndex {
  public:
    // `corpus` as index_corpus made it, or null. Throws std::invalid_argument unless shortest >= 1.
    explicit SuffixIndex(const SuffixOptions& options = {}, std::shared_ptr<const SuffixAutomaton> corpus = nullptr);

    void clear() override;
    void follow(std::span<const TokenId> text) override;
    // The longest suffix of the text that also ends earlier in it or is in the corpus, followed by something; of
    // equal lengths that of the text. In the text its latest occurrence (but see SuffixAutomaton::Occurrence), in the
    // corpus its first.
    std::optional<LookupMatch> find() const override;
    std::span<const TokenId> text() const override { return own_.text(); }

  private:
    SuffixOptions options_;
    std::shared_ptr<const SuffixAutomaton> corpus_;
    SuffixAutomaton own_;
    SuffixAutomaton::Cursor cursor_; // in the corpus, behind all of the text
};

} // namespace entrodraft::spec
