// This drafter is a middle model of a cascade. It drafts for the level above by verifying, in one pass, the proposals
// of a smaller drafter. It emits the tokens that it would emit alone, so the level above may verify them like any
// draft.
//
// It is exact with every acceptance method: each token that it hands up was drawn from its own distribution q given the
// tokens before, and whether a token is handed up never depends on its own value. Random numbers of the inner round are
// keyed by the level in the cascade and by the position where the round above began. The inner rule learns even from
// tokens that were rejected above, so a number that influenced one round must not be used again in the next.
#include "spec/draft/chain.h"
#include "spec/verify/random.h"
#include "spec/verify/verify.h"

#include <algorithm>
#include <deque>

namespace entrodraft::spec {

namespace {

constexpr TokenId kNothing = -1; // emitted after a draft after which every token is banned

// Recent passes of the middle model for each token that they bring.
class RunningCost {
  public:
    void add(double cost, int tokens) {
        constexpr double kDecay = 0.99; // per pass
        cost_ = kDecay * cost_ + cost;
        tokens_ = kDecay * tokens_ + tokens;
        passes_ = kDecay * passes_ + 1;
    }
    PassCost of_next() const { return {cost_ / passes_, cost_ / tokens_}; }

  private:
    double cost_ = 4, passes_ = 4, tokens_ = 8; // before anything is known: two tokens a pass
};

class CascadeDrafter final : public Drafter {
  public:
    CascadeDrafter(CascadeLevel level, const DraftSetting& setting)
        : Drafter({.name = level.source->facts().name + "<" + level.inner->facts().name,
                   .weight_bytes = level.source->facts().weight_bytes}),
          level_(std::move(level)), setting_(setting) {
        for (int slot = 0; slot < setting.n_slots; ++slot)
            slots_.emplace_back(level_);
    }

    void begin_sequence(int slot, const Request& request) override {
        level_.source->begin_sequence(slot, request);
        level_.inner->begin_sequence(slot, request);
        of(slot).chooser.begin_sequence(request, setting_.limits.eos_tokens);
        of(slot).inner_rule = StopRule(level_.inner_rule, &of(slot).inner_gain);
    }
    void prefill(int slot, std::span<const TokenId> prompt) override {
        level_.source->prefill(slot, prompt);
        level_.inner->prefill(slot, prompt);
    }
    void propose(std::span<const DraftTask> tasks) override {
        for (const DraftTask& task : tasks)
            draft(task, of(task.slot));
    }

  private:
    struct Slot {
        explicit Slot(const CascadeLevel& level)
            : inner_gain(gain_options(level)), inner_rule(level.inner_rule, &inner_gain) {}
        TokenChooser chooser;
        GainModel inner_gain;
        StopRule inner_rule;
        RunningCost cost;
        std::vector<float> q; // [drafted][vocab]: the rows of p_ that went up
    };
    // A token that the middle model has emitted and the level above has not yet taken.
    struct Ready {
        TokenId token = -1;
        DraftedToken seen;
        std::size_t row = 0; // of p_
    };

    static CostOptions gain_options(const CascadeLevel& level) {
        const auto of_middle = static_cast<double>(level.source->facts().weight_bytes);
        const auto of_inner = static_cast<double>(level.inner->facts().weight_bytes);
        return {level.inner_rule.max_tokens + 1, of_middle > 0 ? of_inner / of_middle : 1, level.inner_costs};
    }
    Slot& of(int slot) { return slots_.at(slot); }
    void draft(const DraftTask& task, Slot& slot);
    void inner_round(const DraftTask& task, Slot& slot, int most);
    bool read_rows(const SourceLogits& rows, std::size_t n_inner, const StopRule& rule, const ChoiceSetting& choice,
                   TokenChooser& chooser);
    void end_at_dead_row(std::size_t row, std::size_t vocab);
    Verification verify(const ChoiceSetting& choice, std::size_t round_start) const;
    void count(const Verification& verification, double pass_seconds, Slot& slot, Draft& draft);

    CascadeLevel level_;
    DraftSetting setting_;
    std::deque<Slot> slots_; // rules point to gain models, which stay where they are

    // For the current phase.
    Draft inner_draft_;
    std::vector<TokenId> text_; // the text, the tokens drafted so far, then the inner drafter's proposals
    std::deque<Ready> ready_;
    std::vector<model::LogitStats> stats_; // [rows] of the inner round
    std::vector<BestToken> best_;          // [rows], if arg max or Gumbel-max sample decide
    std::vector<float> p_;                 // [rows][vocab], if tokens are drawn
    std::vector<float> adjusted_;          // [rows][vocab], if the rule above looks at them
};

void CascadeDrafter::draft(const DraftTask& task, Slot& slot) {
    const double began = setting_.clock.now_seconds();
    StopRule& rule = *task.rule;
    Draft& draft = *task.draft;
    const int most = begin_draft(task, level_.source->facts().context);
    draft.levels.resize(1);
    ready_.clear();
    slot.q.clear();
    text_.assign(task.tokens.begin(), task.tokens.end());
    while (most > 0 && draft.end == DraftEnd::none) {
        if (ready_.empty()) {
            if (!rule.wants_another(slot.cost.of_next())) {
                draft.end = rule.end();
                break;
            }
            inner_round(task, slot, most);
            if (ready_.empty()) {
                draft.end = DraftEnd::no_match; // every token is banned
                break;
            }
        }
        const Ready next = ready_.front();
        ready_.pop_front();
        if (!setting_.limits.take(task, most, next.token, next.seen)) break;
        text_.push_back(next.token);
        if (!p_.empty()) {
            const auto row = p_.begin() + static_cast<std::ptrdiff_t>(next.row) * setting_.limits.vocab_size;
            slot.q.insert(slot.q.end(), row, row + setting_.limits.vocab_size);
        }
    }
    draft.q = slot.q;
    draft.seconds = setting_.clock.now_seconds() - began;
}

// One round of the middle model over the inner drafter. At least one token becomes ready, unless all are banned.
void CascadeDrafter::inner_round(const DraftTask& task, Slot& slot, int most) {
    const StopRule& rule = *task.rule;
    const bool whole = rule.options().looks_at_distribution() && !rule.options().looks_at_adjusted();
    const std::size_t round_start = text_.size();
    ChoiceSetting choice = task.choice;
    ++choice.level;
    const std::uint64_t above = task.tokens.size();
    choice.random_key = hash_bytes(&above, sizeof above, choice.random_key);
    // The middle model emits one token more than it verifies, and reads no further than its context.
    const std::size_t left = static_cast<std::size_t>(most) - task.draft->tokens.size() - 1;
    const std::size_t room =
        std::min({left, level_.source->facts().context - round_start, level_.source->facts().max_rows - 1});
    level_.inner->propose(
        {task.slot, text_, static_cast<int>(room), task.request, choice, &slot.inner_rule, &inner_draft_});

    const double began = setting_.clock.now_seconds();
    text_.insert(text_.end(), inner_draft_.tokens.begin(), inner_draft_.tokens.end());
    const std::size_t n_inner = inner_draft_.tokens.size();
    const TextEnd end = {task.slot, text_, n_inner + 1};
    const SourceLogits rows =
        level_.source->rows_after(std::span(&end, 1), slot.chooser.needs(whole, choice.acceptance).with_rows());
    const bool can_emit = read_rows(rows, n_inner, rule, choice, slot.chooser);
    text_.resize(round_start);
    if (!can_emit) return;
    const Verification verification = verify(choice, round_start);
    for (std::size_t i = 0; i <= static_cast<std::size_t>(verification.accepted); ++i) {
        const bool accepted = i < static_cast<std::size_t>(verification.accepted);
        if (!accepted && verification.next_token == kNothing) break;
        const TokenId token = accepted ? inner_draft_.tokens[i] : verification.next_token;
        DraftedToken seen;
        if (whole) seen = drafted_token(stats_[i], rows.row(i)[token]);
        if (rule.options().looks_at_adjusted())
            seen = drafted_token(std::span<const float>(adjusted_).subspan(i * rows.vocab, rows.vocab), token);
        if (rule.options().looks_at_distribution() && !best_.empty())
            seen.margin = static_cast<float>(best_[i].margin());
        ready_.push_back({token, seen, i});
    }
    count(verification, setting_.clock.now_seconds() - began, slot, *task.draft);
}

// Takes from each row what the middle model needs: its distribution, or the token that it would emit. The inner draft
// ends with the token that leads to a row in which every token is banned; nothing is emitted after it. Returns false if
// that is the first row.
bool CascadeDrafter::read_rows(const SourceLogits& rows, std::size_t n_inner, const StopRule& rule,
                               const ChoiceSetting& choice, TokenChooser& chooser) {
    const bool adjusted = rule.options().looks_at_adjusted(),
               whole = rule.options().looks_at_distribution() && !adjusted;
    const std::size_t round_start = text_.size() - n_inner;
    const bool draws = chooser.draws(choice.acceptance);
    stats_.clear();
    best_.clear();
    p_.resize(draws ? (n_inner + 1) * rows.vocab : 0);
    adjusted_.resize(adjusted ? (n_inner + 1) * rows.vocab : 0);
    for (std::size_t i = 0; i <= n_inner; ++i) {
        const std::size_t position = round_start + i;
        const SeenLogits row =
            chooser.see(rows.row(i), rows.summary(i), std::span<const TokenId>(text_).first(position), whole);
        if (row.is_dead) {
            if (i == 0) return false;
            end_at_dead_row(i, rows.vocab);
            return true;
        }
        stats_.push_back(row.stats);
        if (adjusted) chooser.distribution(row, std::span<float>(adjusted_).subspan(i * rows.vocab, rows.vocab));
        if (draws)
            chooser.distribution(row, std::span<float>(p_).subspan(i * rows.vocab, rows.vocab));
        else
            best_.push_back(chooser.best(row, position, choice.acceptance));
    }
    return true;
}

// A row of zeros, or kNothing, stands for the dead row: nothing can be sampled from it.
void CascadeDrafter::end_at_dead_row(std::size_t row, std::size_t vocab) {
    inner_draft_.tokens.resize(row);
    stats_.emplace_back();
    if (p_.empty()) {
        best_.push_back({.token = kNothing});
    } else {
        p_.resize(row * vocab);
        p_.resize((row + 1) * vocab, 0.0F);
        inner_draft_.q = inner_draft_.q.first(row * vocab);
    }
}

Verification CascadeDrafter::verify(const ChoiceSetting& choice, std::size_t round_start) const {
    if (p_.empty()) {
        std::vector<TokenId> tokens(best_.size());
        std::ranges::transform(best_, tokens.begin(), &BestToken::token);
        return verify_greedy(inner_draft_.tokens, tokens);
    }
    const RandomStream acceptance(choice.seed, choice.random_key, Purpose::acceptance, choice.level);
    const RandomStream resample(choice.seed, choice.random_key, Purpose::resample, choice.level);
    const RejectionInput input = {inner_draft_.tokens, p_, inner_draft_.q, round_start};
    try {
        return choice.acceptance == Acceptance::block ? verify_block(input, acceptance, resample)
                                                      : verify_rejection(input, acceptance, resample);
    } catch (const NothingToSay&) { // all are accepted, and lead to a dead row
        return {static_cast<int>(inner_draft_.tokens.size()), kNothing};
    }
}

void CascadeDrafter::count(const Verification& verification, double pass_seconds, Slot& slot, Draft& draft) {
    const int drafted = static_cast<int>(inner_draft_.tokens.size());
    ++draft.passes;
    draft.levels[0].count_round(drafted, verification.accepted, inner_draft_.passes);
    draft.levels[0].new_tokens += verification.accepted + 1;
    draft.levels[0].seconds.draft += inner_draft_.seconds + inner_draft_.entropy_seconds;
    draft.levels[0].seconds.score += pass_seconds;
    add_levels(draft.levels, inner_draft_.levels, 1);
    slot.inner_rule.end_round({drafted, verification.accepted, is_cut_short(inner_draft_.end),
                               inner_draft_.seconds + inner_draft_.entropy_seconds, pass_seconds});
    double cost = 1;
    if (const auto& costs = level_.inner_costs)
        cost =
            (costs->draft_seconds(inner_draft_.passes) + costs->target_seconds(drafted + 1)) / costs->target_seconds(1);
    slot.cost.add(cost, verification.accepted + 1);
}

} // namespace

std::unique_ptr<Drafter> make_cascade_drafter(CascadeLevel level, const DraftSetting& setting) {
    return std::make_unique<CascadeDrafter>(std::move(level), setting);
}

} // namespace entrodraft::spec
