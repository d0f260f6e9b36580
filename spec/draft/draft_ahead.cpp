// This draft model runs on a rank of its own and does not wait for the verification. While the target scores a draft,
// this model drafts on after the round's most likely outcomes. All outcomes share passes. Each outcome has a slot of
// the cache, which shares the positions of the text's own slot. If one of the outcomes comes true, its draft is ready,
// and drafting has cost no time.
//
// Without a backup drafter, the broadcast draft is the one that would have been drafted after the verification. It has
// the same tokens from the same random numbers, if the stop rule depends on the text alone. (`expected-gain` also knows
// which passes are free, and then drafts longer.)
#include "spec/draft/chain.h"
#include "spec/draft/model_drafter.h"
#include "spec/draft/outcome_model.h"
#include "spec/verify/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace entrodraft::spec {

namespace {

constexpr int kTextSlot = 0;
constexpr int kMaxCandidates = AheadOptions::kMaxOutcomes + 1; // of a place; learnt separately

// A draft in progress, of the current round or of an outcome that may come.
struct Branch {
    std::vector<TokenId> tokens; // the text that it follows
    DraftTask task;              // the task after these tokens
    TokenChooser chooser;
    std::optional<StopRule> rule;
    Draft draft;
    ChainPhase phase;
    std::vector<float> rows; // [tokens that the model drafted][vocab]: its logits

    // Tokens and rule must be set.
    void begin(const DraftTask& like, int slot, std::size_t context, const DraftLimits& limits) {
        task = like;
        task.slot = slot;
        task.tokens = tokens;
        task.rule = &*rule;
        task.draft = &draft;
        rows.clear();
        phase.begin(task, context, limits, chooser, {.are_looked_at = true, .are_all_made = true});
    }
};

int max_outcomes_ever(const AheadOptions& options) {
    return options.outcomes > 0 ? options.outcomes : AheadOptions::kMaxOutcomes;
}

class AheadDrafter final : public Drafter {
  public:
    AheadDrafter(model::Decoder& model, const AheadOptions& options, const DraftSetting& setting,
                 std::unique_ptr<Drafter> backup)
        : Drafter({.name = (backup ? backup->facts().name + "," : "") + "model", .weight_bytes = model.weight_bytes()}),
          options_(options), backup_(std::move(backup)),
          texts_(model, 1 + max_outcomes_ever(options), setting.limits.vocab_size), setting_(setting),
          outcomes_(kMaxCandidates), branches_(1 + static_cast<std::size_t>(max_outcomes_ever(options))) {
        if (options.outcomes < 0 || options.outcomes > AheadOptions::kMaxOutcomes)
            throw std::invalid_argument(
                fmt::format("drafts ahead for 1 to {} outcomes, not {}", AheadOptions::kMaxOutcomes, options.outcomes));
    }

    void begin_sequence(int slot, const Request& request) override;
    void prefill(int slot, std::span<const TokenId> prompt) override;
    void propose(std::span<const DraftTask> tasks) override;
    void draft_ahead(const std::function<bool()>& enough) override;

  private:
    Branch& current() { return branches_[current_]; }
    // `i` is 1 to n_prepared_.
    Branch& prepared(std::size_t i) { return branches_[(current_ + i) % branches_.size()]; }
    void forget();
    void learn(std::span<const TokenId> tokens);
    bool take_prepared(const DraftTask& task);
    void begin_branch(Branch& branch, const DraftTask& task);
    bool drafts_for_nothing(Branch& branch);
    void release(const Branch* but);
    void pass(std::span<Branch* const> going);
    Place place_of(const Branch& verifying, std::size_t i, std::span<const float> row) const;
    void find_places(const Branch& verifying);
    std::size_t vocab() const { return static_cast<std::size_t>(setting_.limits.vocab_size); }
    int max_outcomes() const { return options_.outcomes > 0 ? options_.outcomes : fitting_; }
    void prepare(const Branch& verifying, const Outcome& outcome);
    void adapt(bool all_done);

    AheadOptions options_;
    std::unique_ptr<Drafter> backup_; // or null
    ModelTexts texts_;
    DraftSetting setting_;
    OutcomeModel outcomes_;
    std::vector<Branch> branches_;
    std::size_t current_ = 0;    // of branches_: the current round
    std::size_t n_prepared_ = 0; // branches after it
    std::vector<Place> places_;  // of the current round, if it was drafted ahead of
    DraftedAhead ahead_;         // for the next round
    int fitting_ = 8;            // outcomes that fit into target passes
    std::vector<Branch*> going_;
    std::vector<TextEnd> ends_;
};

void AheadDrafter::begin_sequence(int slot, const Request& request) {
    if (slot != kTextSlot) throw std::invalid_argument("drafting ahead is for one sequence at a time");
    forget();
    texts_.begin_sequence(kTextSlot, request);
    for (Branch& branch : branches_)
        branch.chooser.begin_sequence(request, setting_.limits.eos_tokens);
    if (backup_) backup_->begin_sequence(kTextSlot, request);
}

void AheadDrafter::prefill(int slot, std::span<const TokenId> prompt) {
    texts_.prefill(slot, prompt);
    if (backup_) backup_->prefill(slot, prompt);
}

void AheadDrafter::forget() {
    release(nullptr);
    n_prepared_ = 0;
    places_.clear();
    ahead_ = {};
}

// ---- the round at hand ----

void AheadDrafter::propose(std::span<const DraftTask> tasks) {
    const DraftTask& task = tasks.front();
    const double began = setting_.clock.now_seconds();
    if (!places_.empty()) learn(task.tokens);
    const bool is_ready = take_prepared(task);
    Branch& branch = current();
    if (!is_ready) begin_branch(branch, task);
    n_prepared_ = 0;
    const int hidden = branch.draft.passes;
    const double hidden_entropy = branch.draft.entropy_seconds;
    ahead_.used = is_ready ? static_cast<std::int64_t>(branch.draft.tokens.size()) : 0;
    if (is_ready || !drafts_for_nothing(branch)) {
        Branch* only = &branch;
        while (branch.phase.wants_row())
            pass(std::span(&only, 1));
        branch.phase.finish();
    }
    *task.rule = *branch.rule;
    *task.draft = branch.draft;
    task.draft->passes -= hidden;
    task.draft->entropy_seconds -= hidden_entropy;
    task.draft->ahead = std::exchange(ahead_, {});
    task.draft->seconds = setting_.clock.now_seconds() - began - task.draft->entropy_seconds;
}

void AheadDrafter::begin_branch(Branch& branch, const DraftTask& task) {
    release(nullptr);
    branch.tokens.assign(task.tokens.begin(), task.tokens.end());
    branch.rule = *task.rule;
    branch.begin(task, kTextSlot, texts_.facts().context, setting_.limits);
}

// Returns whether the backup drafted this phase. If it has nothing, the phase begins anew.
bool AheadDrafter::drafts_for_nothing(Branch& branch) {
    if (!backup_) return false;
    backup_->propose(branch.task);
    if (branch.draft.tokens.empty()) {
        branch.begin(branch.task, kTextSlot, texts_.facts().context, setting_.limits);
        return false;
    }
    branch.phase.adopt();
    return true;
}

// Continues the branch with this text in the text's own slot. Returns false if none was prepared for it.
bool AheadDrafter::take_prepared(const DraftTask& task) {
    const std::span<const TokenId> text = task.tokens;
    for (std::size_t i = 1; i <= n_prepared_; ++i) {
        Branch& branch = prepared(i);
        if (!std::equal(text.begin(), text.end(), branch.tokens.begin(), branch.tokens.end())) continue;
        if (branch.task.max_tokens != task.max_tokens) return false; // another budget: it is drafted again
        const bool is_empty = branch.draft.tokens.empty() && branch.draft.end == DraftEnd::none;
        if (backup_ && is_empty) return false; // not begun in time: the backup costs less
        release(&branch);
        texts_.move(branch.task.slot, kTextSlot);
        branch.task.slot = kTextSlot;
        current_ = (current_ + i) % branches_.size();
        ++ahead_.hits;
        return true;
    }
    return false;
}

// Branches except one give up their shared positions, so that the text's own slot may be cut.
void AheadDrafter::release(const Branch* but) {
    for (std::size_t i = 1; i <= n_prepared_; ++i) {
        Branch& branch = prepared(i);
        if (&branch != but && branch.task.slot != kTextSlot) texts_.clear(branch.task.slot);
    }
}

// Takes at least one row for each branch. The logits are kept: they show what the target may emit instead.
void AheadDrafter::pass(std::span<Branch* const> going) {
    ends_.clear();
    for (Branch* branch : going)
        ends_.push_back({branch->task.slot, branch->phase.text(), 1});
    const SourceLogits rows = texts_.rows_after(ends_, model::LogitSummary::entropy);
    for (std::size_t i = 0; i < going.size(); ++i) {
        Branch& branch = *going[i];
        const std::size_t before = branch.draft.tokens.size();
        branch.phase.take(rows.row(i), rows.summary(i), setting_.clock);
        if (branch.draft.tokens.size() == before) continue;
        branch.rows.insert(branch.rows.end(), rows.row(i).begin(), rows.row(i).end());
    }
}

// ---- the rounds to come ----

void AheadDrafter::draft_ahead(const std::function<bool()>& enough) {
    const double began = setting_.clock.now_seconds();
    const Branch& verifying = current();
    if (verifying.phase.text().size() > texts_.facts().context) return; // more than the draft can read
    ahead_.rounds = 1;
    find_places(verifying);
    ahead_.passes = 1;
    const auto is_over = [&] { return options_.passes > 0 ? ahead_.passes >= options_.passes : enough(); };
    for (const Outcome& outcome : outcomes_.most_likely(places_, max_outcomes())) {
        if (is_over()) break;
        prepare(verifying, outcome);
    }
    bool all_done = false;
    while (!is_over()) {
        going_.clear();
        for (std::size_t i = 1; i <= n_prepared_; ++i) {
            Branch& branch = prepared(i);
            if (branch.phase.wants_row({0, 0})) going_.push_back(&branch);
        }
        all_done = going_.empty();
        if (all_done) break;
        pass(going_);
        ++ahead_.passes;
    }
    for (std::size_t i = 1; i <= n_prepared_; ++i)
        ahead_.tokens += static_cast<std::int64_t>(prepared(i).draft.tokens.size());
    ahead_.seconds = setting_.clock.now_seconds() - began;
    adapt(all_done);
}

// Finds the tokens that may replace each drafted token, and those that may follow the last one. For that it reads the
// last token, and before it any tokens that the model did not draft.
void AheadDrafter::find_places(const Branch& verifying) {
    const std::vector<TokenId>& drafted = verifying.draft.tokens;
    const std::size_t known = verifying.rows.size() / vocab();
    const TextEnd end = {kTextSlot, verifying.phase.text(), drafted.size() - known + 1};
    const SourceLogits read = texts_.rows_after(std::span(&end, 1), model::LogitSummary::entropy);
    places_.clear();
    for (std::size_t i = 0; i < known; ++i) {
        places_.push_back(place_of(verifying, i, std::span(verifying.rows).subspan(i * vocab(), vocab())));
        places_.back().first = {verifying.draft.entropies_nats[i], verifying.draft.probabilities[i]};
    }
    for (std::size_t i = known; i <= drafted.size(); ++i) {
        const std::span<const float> row = read.row(i - known);
        Place& place = places_.emplace_back(place_of(verifying, i, row));
        if (i == drafted.size() && place.candidates.empty()) return;
        const TokenId first = i < drafted.size() ? drafted[i] : place.candidates.front();
        place.first = drafted_token(read.summary(i - known), row[first]);
    }
}

// The draft's candidates at the i-th place, in its order: by logit, or with the noise that the target will add. The
// drafted token is not among them.
Place AheadDrafter::place_of(const Branch& verifying, std::size_t i, std::span<const float> row) const {
    struct Candidate {
        double value;
        TokenId token;
        bool operator<(const Candidate& other) const { return value > other.value; }
    };
    const Request& request = *verifying.task.request;
    const bool is_noisy = verifying.task.choice.acceptance == Acceptance::gumbel && !request.sampling.greedy();
    const auto wanted = static_cast<std::size_t>(max_outcomes()) + 1, most = is_noisy ? 4 * wanted : wanted;
    const std::vector<TokenId>& drafted = verifying.draft.tokens;
    std::vector<Candidate> best; // a heap, its least first
    for (std::size_t token = 0; token < row.size(); ++token) {
        const auto value = static_cast<double>(row[token]);
        if (best.size() == most && value <= best.front().value) continue;
        if (i < drafted.size() && static_cast<TokenId>(token) == drafted[i]) continue;
        if (best.size() == most) {
            std::pop_heap(best.begin(), best.end());
            best.pop_back();
        }
        best.push_back({value, static_cast<TokenId>(token)});
        std::push_heap(best.begin(), best.end());
    }
    if (is_noisy) {
        const GumbelNoise noise(request.sampling.seed, request.sequence_key);
        for (Candidate& each : best)
            each.value = each.value / request.sampling.temperature + noise.at(verifying.tokens.size() + i, each.token);
    }
    std::sort(best.begin(), best.end());
    Place place;
    for (std::size_t k = 0; k < std::min(best.size(), wanted); ++k)
        place.candidates.push_back(best[k].token);
    return place;
}

// Prepares a branch that follows the broadcast draft with this outcome.
void AheadDrafter::prepare(const Branch& verifying, const Outcome& outcome) {
    const std::vector<TokenId>& eos = setting_.limits.eos_tokens;
    const bool ends = std::find(eos.begin(), eos.end(), outcome.next) != eos.end();
    const int left = verifying.task.left_tokens - outcome.accepted - 1;
    const int drafted = static_cast<int>(verifying.draft.tokens.size());
    const bool has_ended = verifying.draft.end == DraftEnd::end_of_text && outcome.accepted == drafted;
    if (left < 0 || has_ended || (ends && !verifying.task.request->ignore_eos)) return; // nothing comes after it
    const std::size_t kept = verifying.tokens.size() + static_cast<std::size_t>(outcome.accepted);
    const std::span<const TokenId> text = verifying.phase.text().first(kept);
    Branch& branch = prepared(++n_prepared_);
    const int slot = static_cast<int>(n_prepared_);
    branch.tokens.assign(text.begin(), text.end());
    branch.tokens.push_back(outcome.next);
    branch.rule = verifying.rule;
    branch.rule->end_round({.drafted = drafted,
                            .accepted = outcome.accepted,
                            .cut_short = is_cut_short(verifying.draft.end),
                            .is_foreseen = true});
    texts_.share(kTextSlot, slot, kept);
    DraftTask next = verifying.task;
    next.left_tokens = left;
    next.max_tokens = std::min(verifying.rule->options().max_tokens, left);
    branch.begin(next, slot, texts_.facts().context, setting_.limits);
    ++ahead_.outcomes;
}

// Learns how the round ended for which outcomes were prepared.
void AheadDrafter::learn(std::span<const TokenId> tokens) {
    const Branch& verifying = current();
    Outcome outcome;
    outcome.accepted = static_cast<int>(tokens.size() - verifying.tokens.size()) - 1;
    outcome.next = tokens.back();
    if (outcome.accepted >= 0 && outcome.accepted < static_cast<int>(places_.size())) outcomes_.learn(places_, outcome);
    places_.clear();
}

// Adds one outcome if all drafts were ready in time, else takes one away.
void AheadDrafter::adapt(bool all_done) {
    fitting_ = std::clamp(fitting_ + (all_done ? 1 : -1), 2, AheadOptions::kMaxOutcomes);
}

} // namespace

std::unique_ptr<Drafter> make_ahead_drafter(model::Decoder& model, const AheadOptions& options,
                                            const DraftSetting& setting, std::unique_ptr<Drafter> backup) {
    return std::make_unique<AheadDrafter>(model, options, setting, std::move(backup));
}

} // namespace entrodraft::spec
