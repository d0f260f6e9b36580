// The look-up drafter: it finds an earlier occurrence of the text's last few tokens, and drafts the tokens that
// followed. It has no model and no distribution of its own, so q of each drafted token is 1.
#include "spec/draft/drafter.h"
#include "spec/draft/lookup_index.h"
#include "spec/draft/one_hot.h"
#include "spec/draft/run_texts.h"

namespace entrodraft::spec {

namespace {

class LookupDrafter final : public Drafter {
  public:
    LookupDrafter(std::string name, MakeLookupIndex make_index, const DraftSetting& setting)
        : Drafter({.name = std::move(name)}), make_index_(std::move(make_index)), setting_(setting),
          slots_(static_cast<std::size_t>(setting.n_slots)) {}

    void begin_sequence(int slot, const Request& request) override {
        of(slot).index = make_index_();
        of(slot).constraint.reset();
        if (request.processing.constraint.is_on())
            of(slot).constraint.emplace(request.processing, request.prompt, setting_.limits.eos_tokens, request.source);
        of(slot).source = request.source;
    }
    void prefill(int slot, std::span<const TokenId> prompt) override { of(slot).follow(prompt); }
    void propose(std::span<const DraftTask> tasks) override {
        for (const DraftTask& task : tasks)
            draft(task, of(task.slot));
    }

  private:
    struct Slot {
        std::unique_ptr<LookupIndex> index;
        std::optional<LogitProcessor> constraint;
        std::vector<TokenId> source, behind_source; // of a target with an encoder: searched as if it began the text
        OneHotRows q;

        void follow(std::span<const TokenId> text) {
            if (source.empty()) return index->follow(text);
            behind_source = source;
            behind_source.insert(behind_source.end(), text.begin(), text.end());
            index->follow(behind_source);
        }
    };

    Slot& of(int slot) { return slots_.at(slot); }
    void draft(const DraftTask& task, Slot& slot) const;
    void copy(const std::optional<LookupMatch>& match, const DraftTask& task, int most, Slot& slot) const;

    MakeLookupIndex make_index_;
    DraftSetting setting_;
    std::vector<Slot> slots_;
};

void LookupDrafter::draft(const DraftTask& task, Slot& slot) const {
    const double began = setting_.clock.now_seconds();
    Draft& draft = *task.draft;
    slot.follow(task.tokens);
    if (const int most = begin_draft(task, kNoContext); most > 0) {
        draft.end = DraftEnd::no_match;
        if (slot.constraint) slot.constraint->follow(task.tokens);
        copy(slot.index->find(), task, most, slot);
    }
    const bool draws = !task.request->sampling.greedy() && task.choice.acceptance != Acceptance::gumbel;
    if (draws) draft.q = slot.q.of(draft.tokens, setting_.limits.vocab_size);
    draft.seconds = setting_.clock.now_seconds() - began;
}

// If a constraint leaves one token, that is drafted, even without a match. A token that it forbids never is.
void LookupDrafter::copy(const std::optional<LookupMatch>& match, const DraftTask& task, int most, Slot& slot) const {
    constexpr PassCost kFree = {0, 0};
    Draft& draft = *task.draft;
    bool copies = match.has_value();
    for (;;) {
        const std::optional<TokenId> only = slot.constraint ? slot.constraint->only_token() : std::nullopt;
        if (!only && !copies) break;
        if (!task.rule->wants_another(kFree)) {
            draft.end = task.rule->end();
            return;
        }
        const std::optional<TokenId> copied = copies ? match->token(draft.tokens.size()) : std::nullopt;
        const std::optional<TokenId> token = only ? only : copied;
        if (!token || *token < 0 || *token >= setting_.limits.vocab_size) break; // the corpus has ended, or has changed
        if (slot.constraint && !slot.constraint->allows(*token)) break;
        copies = copies && token == copied;
        DraftedToken seen;
        if (only)
            seen = {0, 1, 0};
        else
            seen.match_length = match->length + static_cast<int>(draft.tokens.size());
        setting_.limits.take(task, most, *token, seen);
        if (slot.constraint) slot.constraint->push(*token);
        if (draft.end != DraftEnd::none) return;
    }
    draft.end = DraftEnd::no_match;
}

} // namespace

std::unique_ptr<Drafter> make_lookup_drafter(std::string name, MakeLookupIndex make_index, LookupTexts texts,
                                             const NgramOptions& of_others, const DraftSetting& setting) {
    if (texts == LookupTexts::own)
        return std::make_unique<LookupDrafter>(std::move(name), std::move(make_index), setting);
    const auto of_run = std::make_shared<RunTexts>(of_others);
    return std::make_unique<LookupDrafter>(
        std::move(name), [make_index = std::move(make_index), of_run] { return make_run_index(make_index(), of_run); },
        setting);
}

DrafterParameter lookup_texts_parameter() {
    return {.name = "texts",
            .help = "where it looks: in the text itself, or in all texts of the run, under way and ended, that the "
                    "replica decodes",
            .max = 1,
            .words = {"own", "run"}};
}

DrafterParameter shortest_match_parameter() {
    return {.name = "min",
            .help = "least tokens that match",
            .default_value = 1,
            .min = 1,
            .max = NgramOptions::kMaxLength,
            .in_list = 3}; // a shorter match leaves the round to the next drafter
}

} // namespace entrodraft::spec
