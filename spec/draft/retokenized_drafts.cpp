// See retokenized_drafts.h. During drafting, the stop rule decides on the draft model's tokens. It learns how many of
// the target's tokens were accepted. So it is also shown the draft in the target's tokens, once these are known.
#include "spec/draft/retokenized_drafts.h"

#include "spec/verify/random.h"

#include <algorithm>
#include <limits>

namespace entrodraft::spec {

namespace {

// A token of the draft.
struct Written {
    DraftedToken seen;
    std::size_t end = 0; // end of its bytes in the written text
};

class RetokenizingDrafter final : public Drafter {
  public:
    RetokenizingDrafter(std::unique_ptr<LogitSource> source, const OtherVocabulary& vocabulary,
                        const DraftSetting& setting)
        : Drafter({.name = source->facts().name, .weight_bytes = source->facts().weight_bytes}),
          source_(std::move(source)), map_(*vocabulary.map),
          context_(std::min(source_->facts().context, static_cast<std::size_t>(vocabulary.context))), setting_(setting),
          slots_(static_cast<std::size_t>(setting.n_slots), Slot(map_)) {}

    void begin_sequence(int slot, const Request& /*request*/) override {
        source_->begin_sequence(slot, {}); // its prompt is another
        of(slot).text.clear();
    }
    void prefill(int slot, std::span<const TokenId> prompt) override {
        model::TranslatedText& text = of(slot).text;
        text.follow(prompt);
        source_->prefill(slot, text.settled().first(std::min(text.settled().size(), context_)));
    }
    void propose(std::span<const DraftTask> tasks) override {
        for (const DraftTask& task : tasks)
            draft(task, of(task.slot));
    }

  private:
    struct Slot {
        explicit Slot(const model::VocabularyMap& map) : text(map) {}
        model::TranslatedText text;
        std::vector<float> q; // [drafted][vocab], if verification needs it: 1 at the token
    };

    Slot& of(int slot) { return slots_.at(slot); }
    void draft(const DraftTask& task, Slot& slot);
    void write(const DraftTask& task, const Slot& slot, int most);
    bool write_token(const DraftTask& task, const Slot& slot);
    TokenId choose(const SourceLogits& row, const DraftTask& task, const Slot& slot);
    std::span<const float> adjusted(std::span<const float> logits, const SamplingOptions& sampling);
    void propose_written(const DraftTask& task, const Slot& slot, int most);
    void fill_q(const DraftTask& task, Slot& slot) const;

    std::unique_ptr<LogitSource> source_;
    const model::VocabularyMap& map_;
    std::size_t context_; // in the draft's tokens
    DraftSetting setting_;
    std::vector<Slot> slots_;

    // For the current phase.
    std::vector<TokenId> tokens_; // the text and the written tokens, in the draft's tokens
    std::vector<Written> written_;
    std::string bytes_;           // of the written tokens
    TokenId mark_ = -1;           // the target's special token that ends them; -1: none
    std::vector<float> adjusted_; // [draft's tokens]: the distribution that the rule looks at
    std::vector<float> noise_;    // of the target's tokens, then of all the draft's tokens
};

void RetokenizingDrafter::draft(const DraftTask& task, Slot& slot) {
    const double began = setting_.clock.now_seconds();
    Draft& draft = *task.draft;
    const int most = begin_draft(task, kNoContext);
    slot.text.follow(task.tokens);
    tokens_.assign(slot.text.tokens().begin(), slot.text.tokens().end());
    written_.clear();
    bytes_.clear();
    mark_ = -1;
    write(task, slot, most);
    if (!written_.empty()) propose_written(task, slot, most);
    if (!task.request->sampling.greedy() && task.choice.acceptance != Acceptance::gumbel) fill_q(task, slot);
    draft.seconds = setting_.clock.now_seconds() - began;
}

void RetokenizingDrafter::write(const DraftTask& task, const Slot& slot, int most) {
    Draft& draft = *task.draft;
    while (draft.end == DraftEnd::none && mark_ < 0) {
        if (tokens_.empty() || tokens_.size() > context_)
            draft.end = tokens_.empty() ? DraftEnd::no_match : DraftEnd::context;
        else if (static_cast<int>(written_.size()) >= most)
            return;
        else if (!task.rule->wants_another())
            draft.end = task.rule->end();
        else if (!write_token(task, slot))
            draft.end = DraftEnd::no_match;
    }
}

// Runs one pass. Returns false if the token would be no text of the target's.
bool RetokenizingDrafter::write_token(const DraftTask& task, const Slot& slot) {
    Draft& draft = *task.draft;
    const TextEnd end = {task.slot, tokens_, 1};
    const auto summary =
        task.rule->options().looks_at_distribution() ? model::LogitSummary::entropy : model::LogitSummary::max;
    const SourceLogits row = source_->rows_after(std::span(&end, 1), {summary, true});
    ++draft.passes;
    const TokenId token = choose(row, task, slot);
    if (!map_.draft().has_token(token)) return false;
    const bool is_mark = map_.draft().is_special(token);
    if (is_mark && map_.target_token(token) < 0) return false;
    DraftedToken seen;
    if (task.rule->options().looks_at_adjusted())
        seen = drafted_token(adjusted(row.row(0), task.request->sampling), token);
    else if (task.rule->options().looks_at_distribution())
        seen = drafted_token(row.summary(0), row.row(0)[token]);
    const StopDecision decision = task.rule->decide(seen);
    if (decision != StopDecision::go_on) draft.end = task.rule->end();
    if (decision == StopDecision::drop) return true;
    if (is_mark)
        mark_ = map_.target_token(token);
    else
        bytes_ += map_.draft().token_bytes(token);
    written_.push_back({seen, bytes_.size()});
    tokens_.push_back(token);
    return true;
}

std::span<const float> RetokenizingDrafter::adjusted(std::span<const float> logits, const SamplingOptions& sampling) {
    constexpr SamplingOptions kPlain = {.temperature = 1};
    adjusted_.resize(logits.size());
    adjust(logits, sampling.greedy() ? kPlain : sampling, adjusted_);
    return adjusted_;
}

TokenId RetokenizingDrafter::choose(const SourceLogits& row, const DraftTask& task, const Slot& slot) {
    const SamplingOptions& sampling = task.request->sampling;
    if (sampling.greedy() || task.choice.acceptance != Acceptance::gumbel) return row.summary(0).arg_max;
    const std::span<const float> logits = row.row(0);
    const auto n_target = static_cast<std::size_t>(setting_.limits.vocab_size);
    noise_.resize(n_target + logits.size());
    GumbelNoise(sampling.seed, task.request->sequence_key)
        .fill(task.tokens.size() + slot.text.target_tokens_behind(bytes_).size(), noise_);
    const auto scale = static_cast<float>(1 / sampling.temperature);
    TokenId best = -1;
    float best_value = -std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const TokenId same = map_.target_token(static_cast<TokenId>(i));
        const bool is_shared = same >= 0 && same < setting_.limits.vocab_size;
        const float value = logits[i] * scale + noise_[is_shared ? static_cast<std::size_t>(same) : n_target + i];
        if (value <= best_value) continue;
        best_value = value;
        best = static_cast<TokenId>(i);
    }
    return best;
}

// Each of the target's tokens counts as the draft's token in which it ends.
void RetokenizingDrafter::propose_written(const DraftTask& task, const Slot& slot, int most) {
    Draft& draft = *task.draft;
    const DraftEnd why = draft.end;
    std::vector<TokenId> proposed = slot.text.target_tokens_behind(bytes_);
    if (mark_ >= 0) proposed.push_back(mark_);
    proposed.resize(std::min(proposed.size(), static_cast<std::size_t>(most)));
    task.rule->begin_round(task.round);
    task.rule->wants_another();
    task.rule->charge(draft.passes - 1);
    std::size_t end = 0;
    auto in = written_.begin();
    for (const TokenId token : proposed) {
        if (token >= setting_.limits.vocab_size) break;
        end += token == mark_ ? 1 : map_.target().token_bytes(token).size();
        while (in + 1 != written_.end() && in->end < end)
            ++in;
        task.rule->decide(in->seen);
        draft.add(token, in->seen);
    }
    draft.end = draft.tokens.empty() ? DraftEnd::no_match : setting_.limits.why_end(task, most, why);
    if (draft.end != DraftEnd::none) return;
    // The limit of tokens was written, but these are fewer tokens of the target's; or a mark ended it that ends no
    // text.
    draft.end = mark_ >= 0 ? DraftEnd::no_match : task.max_tokens < task.left_tokens ? DraftEnd::cap : DraftEnd::budget;
}

void RetokenizingDrafter::fill_q(const DraftTask& task, Slot& slot) const {
    Draft& draft = *task.draft;
    const auto vocab = static_cast<std::size_t>(setting_.limits.vocab_size);
    slot.q.assign(draft.tokens.size() * vocab, 0);
    for (std::size_t i = 0; i < draft.tokens.size(); ++i)
        slot.q[i * vocab + static_cast<std::size_t>(draft.tokens[i])] = 1;
    draft.q = slot.q;
}

} // namespace

std::unique_ptr<Drafter> make_retokenizing_drafter(std::unique_ptr<LogitSource> source,
                                                   const OtherVocabulary& vocabulary, const DraftSetting& setting) {
    return std::make_unique<RetokenizingDrafter>(std::move(source), vocabulary, setting);
}

} // namespace entrodraft::spec
