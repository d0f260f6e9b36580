#include "spec/draft/suffix_index.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace entrodraft::spec {

SuffixIndex::SuffixIndex(const SuffixOptions& options, std::shared_ptr<const SuffixAutomaton> corpus)
    : options_(options), corpus_(std::move(corpus)), own_(SuffixAutomaton::Occurrence::latest) {
    if (options_.shortest < 1)
        throw std::invalid_argument("the shortest match must be at least 1 token, not " +
                                    std::to_string(options_.shortest));
}

void SuffixIndex::clear() {
    own_.clear();
    cursor_ = {};
}

void SuffixIndex::follow(std::span<const TokenId> text) {
    const std::span<const TokenId> had = own_.text();
    const bool grows = text.size() >= had.size() && std::equal(had.begin(), had.end(), text.begin());
    if (!grows) clear();
    for (const TokenId token : text.subspan(own_.text().size())) {
        own_.append(token);
        if (corpus_) corpus_->advance(cursor_, token);
    }
}

std::optional<LookupMatch> SuffixIndex::find() const {
    std::optional<LookupMatch> best = own_.match();
    if (corpus_)
        if (const auto other = corpus_->match(cursor_); other && (!best || other->length > best->length)) best = other;
    if (best && best->length < options_.shortest) best.reset();
    return best;
}

} // namespace entrodraft::spec
