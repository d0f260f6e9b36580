// See translated_texts.h.
#include "spec/draft/translated_texts.h"

#include "model/cpu/kernels.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

class TranslatedTexts final : public TreeSource {
  public:
    TranslatedTexts(std::unique_ptr<TreeSource> source, const OtherVocabulary& vocabulary, int vocab, int n_slots)
        : TreeSource({.name = source->facts().name,
                      .weight_bytes = source->facts().weight_bytes,
                      .max_rows = source->facts().max_rows,
                      .shares_passes = source->facts().shares_passes}),
          source_(std::move(source)), map_(*vocabulary.map),
          context_(std::min(source_->facts().context, static_cast<std::size_t>(vocabulary.context))),
          vocab_(static_cast<std::size_t>(vocab)), slots_(static_cast<std::size_t>(n_slots), Slot(map_)) {}

    std::size_t context_of(int slot) const override;
    void begin_sequence(int slot, const Request& request) override;
    bool prefill(int slot, std::span<const TokenId> tokens, std::size_t most) override;
    SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) override;
    SourceLogits rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) override;

  private:
    struct Slot {
        explicit Slot(const model::VocabularyMap& map) : text(map) {}
        model::TranslatedText text;
        std::vector<std::size_t> depths; // of the nodes after it, from 1
    };

    Slot& of(int slot) { return slots_.at(slot); }
    void begin_rows();
    void add_row(std::span<const float> of_draft, model::LogitSummary summary);
    SourceLogits rows() const { return {logits_, vocab_, vocab_, summaries_}; }

    std::unique_ptr<TreeSource> source_;
    const model::VocabularyMap& map_;
    std::size_t context_; // in the draft's tokens
    std::size_t vocab_;
    std::vector<Slot> slots_;
    std::vector<TextEnd> ends_;                // of texts that the draft can read
    std::vector<std::vector<TreeNode>> nodes_; // in the draft's tokens
    std::vector<NewNodes> trees_;
    std::vector<float> logits_; // [rows][vocab]
    std::vector<model::LogitStats> summaries_;
};

// The target's tokens that the draft has read by now, and the rest of the draft's context.
std::size_t TranslatedTexts::context_of(int slot) const {
    const model::TranslatedText& text = slots_.at(slot).text;
    const std::size_t n_read = text.tokens().size();
    return n_read >= context_ ? 0 : text.n_target() + (context_ - n_read);
}

void TranslatedTexts::begin_sequence(int slot, const Request& request) {
    if (!request.source.empty()) throw std::invalid_argument("an encoder's source is not translated for a draft");
    source_->begin_sequence(slot, {}); // its prompt is another
    of(slot).text.clear();
    of(slot).depths.clear();
}

// The last word is left out: it may be read differently when the text continues.
bool TranslatedTexts::prefill(int slot, std::span<const TokenId> tokens, std::size_t most) {
    model::TranslatedText& text = of(slot).text;
    text.follow(tokens);
    return source_->prefill(slot, text.settled().first(std::min(text.settled().size(), context_)), most);
}

SourceLogits TranslatedTexts::rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) {
    ends_.clear();
    std::vector<bool> is_read;
    for (const TextEnd& end : texts) {
        if (end.n != 1) throw std::invalid_argument("a translated text is asked about at its last token alone");
        Slot& slot = of(end.slot);
        slot.text.follow(end.tokens);
        slot.depths.clear();
        const std::span<const TokenId> tokens = slot.text.tokens();
        is_read.push_back(!tokens.empty() && tokens.size() <= context_);
        if (is_read.back()) ends_.push_back({end.slot, tokens, 1});
    }
    SourceLogits of_draft;
    if (!ends_.empty()) of_draft = source_->rows_after(ends_, {model::LogitSummary::none, true});
    begin_rows();
    std::size_t row = 0;
    for (const bool has_row : is_read)
        add_row(has_row ? of_draft.row(row++) : std::span<const float>(), needs.summary);
    return rows();
}

// A drafted token is one that both know, so nodes map to nodes. Levels beyond the draft's context are not read.
SourceLogits TranslatedTexts::rows_after_nodes(std::span<const NewNodes> trees, model::LogitNeeds needs) {
    nodes_.assign(trees.size(), {});
    trees_.clear();
    std::vector<bool> is_read;
    for (std::size_t i = 0; i < trees.size(); ++i) {
        Slot& slot = of(trees[i].slot);
        bool fits = true;
        for (const TreeNode& node : trees[i].nodes) {
            slot.depths.push_back(node.parent < 0 ? 1 : slot.depths.at(node.parent) + 1);
            fits = fits && slot.text.tokens().size() + slot.depths.back() <= context_;
            nodes_[i].push_back({map_.draft_token(node.token), node.parent});
        }
        is_read.push_back(fits);
        if (fits) trees_.push_back({trees[i].slot, nodes_[i]});
    }
    SourceLogits of_draft;
    if (!trees_.empty()) of_draft = source_->rows_after_nodes(trees_, {model::LogitSummary::none, true});
    begin_rows();
    std::size_t row = 0;
    for (std::size_t i = 0; i < trees.size(); ++i)
        for (std::size_t n = trees[i].nodes.size(); n > 0; --n)
            add_row(is_read[i] ? of_draft.row(row++) : std::span<const float>(), needs.summary);
    return rows();
}

void TranslatedTexts::begin_rows() {
    logits_.clear();
    summaries_.clear();
}

void TranslatedTexts::add_row(std::span<const float> of_draft, model::LogitSummary summary) {
    const std::size_t first = logits_.size();
    logits_.resize(first + vocab_, kNever);
    const std::span<float> row = std::span(logits_).subspan(first);
    bool is_dead = true;
    if (!of_draft.empty())
        for (const model::VocabularyMap::SharedToken& token : map_.shared())
            if (const auto id = static_cast<std::size_t>(token.target); id < vocab_) {
                row[id] = of_draft[token.draft];
                is_dead = is_dead && row[id] == kNever;
            }
    const model::kernels::Kernels& kernels = model::kernels::best_kernels();
    const auto size = static_cast<int>(vocab_);
    if (is_dead)
        summaries_.push_back({.max = kNever});
    else if (summary == model::LogitSummary::none)
        summaries_.emplace_back();
    else
        summaries_.push_back(summary == model::LogitSummary::max ? kernels.logit_max(row.data(), size, 0)
                                                                 : kernels.logit_stats(row.data(), size, 0));
}

} // namespace

std::unique_ptr<TreeSource> make_translated_source(std::unique_ptr<TreeSource> source,
                                                   const OtherVocabulary& vocabulary, int vocab, int n_slots) {
    return std::make_unique<TranslatedTexts>(std::move(source), vocabulary, vocab, n_slots);
}

} // namespace entrodraft::spec
