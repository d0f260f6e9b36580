// Lookahead decoding (Fu et al. 2024): the target drafts for itself. A round's tree contains a window of guesses, and
// n-grams from a pool that begin with the text's last token. The target's tokens after the window's rows are the next
// guesses. They also complete each column of the window to an n-gram for the pool. N-grams of prompt and text are in
// the pool as well.
//
// Guesses are drafted tokens like others: a guess that equals the target's own token is accepted. If n-grams and
// columns begin with the same tokens, the tree has these tokens once. With a stop rule that weighs costs, a round
// drafts the whole tree or nothing: the gain of recent rounds decides.
#include "spec/draft/drafter.h"
#include "spec/draft/lookahead.h"
#include "spec/draft/one_hot.h"
#include "spec/plan/drafting_trials.h"
#include "spec/plan/worth.h"

#include <algorithm>
#include <fmt/format.h>

namespace entrodraft::spec {

namespace {

constexpr int kMaxTokens = Packet::kMaxDraftTokens; // of a tree
constexpr int kText = -1, kNone = -2; // places of a tree next to its tokens: before the first one, and nowhere

class LookaheadDrafter final : public Drafter {
  public:
    LookaheadDrafter(const LookaheadOptions& options, const DraftSetting& setting)
        : Drafter({.name = "lookahead"}), options_(options), setting_(setting) {
        for (int slot = 0; slot < setting.n_slots; ++slot)
            slots_.emplace_back(options);
    }

    void begin_sequence(int slot, const Request& request) override;
    void prefill(int slot, std::span<const TokenId> prompt) override { of(slot).pool_text(prompt); }
    void propose(std::span<const DraftTask> tasks) override;
    void observe(int slot, const TargetOutcome& outcome) override;

  private:
    struct Slot {
        explicit Slot(const LookaheadOptions& options)
            : pool(options.ngram, options.candidates), window(options), ngram(static_cast<std::size_t>(options.ngram)) {
        }

        NgramPool pool;
        LookaheadWindow window;
        std::size_t ngram;
        std::size_t n_pooled = 0;    // the n-grams of these tokens of the text are in the pool
        bool begun = false;          // true if the window has begun
        std::vector<TokenId> source; // of a target with an encoder
        std::optional<LogitProcessor> constraint;
        bool ignores_ends = false;
        TokenId last = 0; // last token of the text in the last round that was asked
        int n_drafted = 0;
        int accepted = 0;
        std::vector<int> ends; // [column] the token of the last draft after which its next guess comes, or kNone
        OneHotRows q;

        void pool_text(std::span<const TokenId> text);
    };

    Slot& of(int slot) { return slots_.at(slot); }
    bool is_end(TokenId token, const Slot& slot) const;
    void learn(const DraftTask& task, const Slot& slot, int rows_beside, int n_texts);
    bool begins(const DraftTask& task, int rows_beside);
    void draft(const DraftTask& task, Slot& slot) const;
    int place(const DraftTask& task, Slot& slot, int most, int parent, TokenId token) const;

    LookaheadOptions options_;
    DraftSetting setting_;
    std::vector<Slot> slots_;
    DraftingTrials trials_;
};

void LookaheadDrafter::Slot::pool_text(std::span<const TokenId> text) {
    for (; n_pooled < text.size(); ++n_pooled)
        if (n_pooled + 1 >= ngram) pool.add(text.subspan(n_pooled + 1 - ngram, ngram));
}

void LookaheadDrafter::begin_sequence(int slot, const Request& request) {
    Slot& own = of(slot);
    own.pool.clear();
    own.source = request.source;
    own.pool_text(own.source);
    own.n_pooled = 0;
    own.begun = false;
    own.ends.clear();
    own.n_drafted = 0;
    own.ignores_ends = request.ignore_eos;
    own.constraint.reset();
    if (request.processing.constraint.is_on())
        own.constraint.emplace(request.processing, request.prompt, setting_.limits.eos_tokens, request.source);
}

bool LookaheadDrafter::is_end(TokenId token, const Slot& slot) const {
    const std::vector<TokenId>& ends = setting_.limits.eos_tokens;
    return !slot.ignores_ends && std::ranges::find(ends, token) != ends.end();
}

// ---- whether a round drafts ----

bool weighs_costs(const DraftTask& task) {
    return task.gain && task.rule->options().type().weighs_costs;
}

void LookaheadDrafter::propose(std::span<const DraftTask> tasks) {
    int rows = 0; // of the target's last pass
    for (const DraftTask& task : tasks)
        rows += of(task.slot).n_drafted + 1;
    for (const DraftTask& task : tasks) {
        const double began = setting_.clock.now_seconds();
        Slot& slot = of(task.slot);
        const int beside = rows - slot.n_drafted - 1;
        learn(task, slot, beside, static_cast<int>(tasks.size()));
        slot.pool_text(task.tokens);
        slot.last = task.tokens.back();
        slot.ends.clear();
        if (begin_draft(task, kNoContext) > 0) {
            if (begins(task, beside)) draft(task, slot);
            task.draft->end = task.draft->tokens.empty() ? DraftEnd::no_match : DraftEnd::rule;
        }
        slot.n_drafted = static_cast<int>(task.draft->tokens.size());
        const bool draws = !task.request->sampling.greedy() && task.choice.acceptance != Acceptance::gumbel;
        if (draws) task.draft->q = slot.q.of(task.draft->tokens, setting_.limits.vocab_size);
        task.draft->seconds = setting_.clock.now_seconds() - began;
    }
}

// Until the run's tokens a second are known, those of passes in which no text drafts take their place. Then few of the
// first rounds are far too wide.
void LookaheadDrafter::learn(const DraftTask& task, const Slot& slot, int rows_beside, int n_texts) {
    if (slot.n_drafted == 0 || !weighs_costs(task)) return;
    const CostModel& costs = task.gain->costs;
    const int plain_rows = 1 + rows_beside;
    const Worth worth(*task.gain, {.load = {n_texts - 1, n_texts}});
    trials_.learn(slot.accepted -
                  worth.of(costs.target_seconds(plain_rows + slot.n_drafted) - costs.target_seconds(plain_rows)));
}

bool LookaheadDrafter::begins(const DraftTask& task, int rows_beside) {
    if (!weighs_costs(task)) return true;
    constexpr double kFirstGain = 0.5; // an almost empty pool in the first rounds should not decide
    const CostModel& costs = task.gain->costs;
    const int plain_rows = 1 + rows_beside, rows = plain_rows + options_.max_tokens();
    const bool affords_one = task.gain->policy.affords(costs.target_seconds(rows) - costs.target_seconds(plain_rows));
    return trials_.begins([] { return kFirstGain; }, affords_one);
}

// ---- what it drafts ----

// The pool's n-grams come first. If the cap leaves out some tokens, these are guesses.
void LookaheadDrafter::draft(const DraftTask& task, Slot& slot) const {
    const int most = std::min(task.max_nodes, task.rule->options().max_tokens);
    const std::span<const TokenId> tails = slot.pool.tails_of(slot.last);
    for (std::size_t first = 0; first < tails.size(); first += slot.pool.tail_size()) {
        int node = kText;
        for (const TokenId token : tails.subspan(first, slot.pool.tail_size()))
            node = place(task, slot, most, node, token);
    }
    LookaheadWindow& window = slot.window;
    if (!slot.begun) {
        std::vector<TokenId> tokens = slot.source;
        tokens.insert(tokens.end(), task.tokens.begin(), task.tokens.end());
        window.begin(tokens);
        slot.begun = true;
    }
    for (int column = 0, top = kText; column < window.columns(); ++column) {
        if (column > 0) top = place(task, slot, most, top, window.guess(0, column));
        int node = top;
        for (int level = 1; level < window.levels(); ++level)
            node = place(task, slot, most, node, window.guess(level, column));
        slot.ends.push_back(node);
    }
}

// Adds the token after `parent` to the draft, or finds it there. Returns kNone if there is no room, or if the text
// cannot come to it.
int LookaheadDrafter::place(const DraftTask& task, Slot& slot, int most, int parent, TokenId token) const {
    Draft& draft = *task.draft;
    if (parent == kNone) return kNone;
    for (const int child : children_of(draft.parents, parent))
        if (draft.tokens[child] == token) return child;
    const int n = static_cast<int>(draft.tokens.size());
    if (n >= most || token >= setting_.limits.vocab_size) return kNone;
    if (depth_of(draft.parents, parent) >= task.left_tokens) return kNone;
    if (parent >= 0 && is_end(draft.tokens[parent], slot)) return kNone;
    if (slot.constraint) {
        std::vector<TokenId> text(task.tokens.begin(), task.tokens.end());
        for (const int node : path_to(draft.parents, parent))
            text.push_back(draft.tokens[node]);
        slot.constraint->follow(text);
        if (!slot.constraint->allows(token)) return kNone;
    }
    draft.add(token, {}, parent);
    return n;
}

// ---- what comes of it ----

void LookaheadDrafter::observe(int slot, const TargetOutcome& outcome) {
    if (!outcome.token_after) return;
    Slot& own = of(slot);
    own.accepted = outcome.accepted;
    LookaheadWindow& window = own.window;
    if (std::ranges::all_of(own.ends, [](int end) { return end == kNone; })) return;
    std::vector<TokenId> guesses;
    for (int column = 0; column < window.columns(); ++column) {
        const int end = own.ends[column];
        const std::optional<TokenId> token = end == kNone ? std::nullopt : outcome.token_after(end);
        // The column was not read, or would continue after the end of the text.
        const bool is_missing = !token || is_end(*token, own);
        guesses.push_back(is_missing ? window.random_token() : *token);
        if (is_missing || !window.is_filled()) continue;
        std::vector<TokenId> ngram = {column > 0 ? window.guess(0, column) : own.last};
        for (int level = 1; level < window.levels(); ++level)
            ngram.push_back(window.guess(level, column));
        ngram.push_back(*token);
        own.pool.add(ngram);
    }
    window.slide(guesses);
    own.ends.clear();
}

LookaheadOptions options_of(const DrafterValues& values) {
    return {values.at("window"), values.at("ngram"), values.at("candidates")};
}

} // namespace

DrafterType lookahead_drafter() {
    return {.name = "lookahead",
            .position = 35,
            .help = "n-grams that the target makes by lookahead decoding",
            .parameters = {{.name = "window",
                            .help = "positions ahead, W, for which the target guesses tokens in its passes",
                            .default_value = 2,
                            .min = 1,
                            .max = kMaxTokens},
                           {.name = "ngram",
                            .help = "tokens of an n-gram, N; the window has W(N - 1) - 1 rows",
                            .default_value = 3,
                            .min = 2,
                            .max = 32},
                           {.name = "candidates",
                            .help = "n-grams of N - 1 rows each that a round verifies at most",
                            .default_value = 1,
                            .min = 1,
                            .max = kMaxTokens}},
            .make_of = [](const DrafterParts& parts, const DrafterValues& values) -> std::unique_ptr<Drafter> {
                return std::make_unique<LookaheadDrafter>(options_of(values), parts);
            },
            .why_not = [](const DrafterValues& values) -> std::string {
                const LookaheadOptions options = options_of(values);
                if (options.max_tokens() <= kMaxTokens) return "";
                return fmt::format("window={}, ngram={} and candidates={} of lookahead make more than {} drafted "
                                   "tokens, (window + candidates)(ngram - 1) - 1",
                                   options.window, options.ngram, options.candidates, kMaxTokens);
            },
            .most_tokens = [](const DrafterValues& values) { return options_of(values).max_tokens(); }};
}

} // namespace entrodraft::spec
