// All texts of a run: see run_texts.h.
#include "spec/draft/run_texts.h"

#include "spec/draft/ngram_hash.h"

#include <algorithm>
#include <utility>

namespace entrodraft::spec {

RunTexts::RunTexts(const NgramOptions& options, std::size_t max_tokens)
    : options_(options), max_tokens_(max_tokens),
      tables_(static_cast<std::size_t>(options.longest - options.shortest + 1)) {}

std::uint32_t RunTexts::begin() {
    texts_.try_emplace(n_begun_);
    return n_begun_++;
}

void RunTexts::follow(std::uint32_t number, std::span<const TokenId> text) {
    std::vector<TokenId>& tokens = texts_.at(number).tokens;
    const bool grows = text.size() >= tokens.size() && std::equal(tokens.begin(), tokens.end(), text.begin());
    if (!grows) { // old places in it are not found, or are compared
        n_tokens_ -= tokens.size();
        tokens.clear();
    }
    const auto follows = static_cast<std::size_t>(std::max(1, options_.full));
    while (tokens.size() < text.size()) {
        tokens.push_back(text[tokens.size()]);
        ++n_tokens_;
        if (tokens.size() > follows) add(number, tokens.size() - follows);
    }
    if (n_tokens_ > max_tokens_) forget();
}

void RunTexts::add(std::uint32_t number, std::size_t end) {
    for_each_ngram(std::span(texts_.at(number).tokens).first(end), options_,
                   [&](std::size_t table, std::uint64_t hash) {
                       tables_[table][hash] = {number, static_cast<std::uint32_t>(end)};
                       return true;
                   });
}

std::optional<LookupMatch> RunTexts::find(std::uint32_t number) const {
    constexpr std::size_t kMaxLength = 64;
    std::optional<LookupMatch> best;
    const std::vector<TokenId>& text = texts_.at(number).tokens;
    for_each_ngram(text, options_, [&](std::size_t table, std::uint64_t hash) {
        const auto at = tables_[table].find(hash);
        if (at == tables_[table].end()) return false; // a longer n-gram ends with this one
        const auto other = texts_.find(at->second.text);
        if (at->second.text == number || other == texts_.end()) return true; // a longer n-gram may be elsewhere
        const std::span<const TokenId> tokens = other->second.tokens;
        const std::size_t next = at->second.next, most = std::min({next, text.size(), kMaxLength});
        std::size_t length = 0;
        while (next < tokens.size() && length < most && tokens[next - 1 - length] == text[text.size() - 1 - length])
            ++length;
        if (length >= static_cast<std::size_t>(options_.shortest) + table)
            best = LookupMatch{next, static_cast<int>(length), tokens, true};
        return true;
    });
    if (best && options_.full > 0) best->most = static_cast<std::size_t>(options_.full);
    return best;
}

void RunTexts::forget() {
    const std::size_t n_texts = texts_.size();
    for (auto text = texts_.begin(); text != texts_.end() && n_tokens_ > max_tokens_ / 2;) {
        if (!text->second.has_ended) {
            ++text;
            continue;
        }
        n_tokens_ -= text->second.tokens.size();
        text = texts_.erase(text);
    }
    if (texts_.size() == n_texts) return; // all are under way
    for (auto& table : tables_)
        std::erase_if(table, [&](const auto& entry) { return !texts_.contains(entry.second.text); });
}

// ---- next to an index of one text ----

namespace {

class RunIndex final : public LookupIndex {
  public:
    RunIndex(std::unique_ptr<LookupIndex> own, std::shared_ptr<RunTexts> texts)
        : own_(std::move(own)), texts_(std::move(texts)), number_(texts_->begin()) {}
    RunIndex(const RunIndex&) = delete;
    RunIndex& operator=(const RunIndex&) = delete;
    ~RunIndex() override { texts_->end(number_); }

    void follow(std::span<const TokenId> text) override {
        own_->follow(text);
        texts_->follow(number_, text);
    }
    std::optional<LookupMatch> find() const override {
        const auto own = own_->find(), other = texts_->find(number_);
        return other && (!own || other->length > own->length) ? other : own;
    }

  private:
    std::unique_ptr<LookupIndex> own_;
    std::shared_ptr<RunTexts> texts_;
    std::uint32_t number_;
};

} // namespace

std::unique_ptr<LookupIndex> make_run_index(std::unique_ptr<LookupIndex> own, std::shared_ptr<RunTexts> texts) {
    return std::make_unique<RunIndex>(std::move(own), std::move(texts));
}

} // namespace entrodraft::spec
