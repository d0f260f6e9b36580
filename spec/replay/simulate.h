// Replays stop rules over recordings: the very rounds of a run with that rule, without its models.
//
// Exact in counts for batch 1, one replica, nothing drafted ahead and, for expected-gain, fixed costs
// (docs/reference.md, Simulation); times are counts times costs. For comparison, also the approximation that Kluser
// 2024 simulates by (ReplaySetting::imputed_from). Called by the commands simulate and tune.
#pragma once

#include "spec/draft/drafter.h"
#include "spec/draft/outcome_model.h"
#include "spec/replay/recorded_trees.h"
#include "spec/replay/recording.h"
#include "spec/stop/stop_rule.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::spec {

enum class ReplayKind {
    rule,
    oracle, // drafts what costs least, knowing the text (chain_bound.h): the bound on all chains under its cap
    plain,  // drafts nothing
};

struct ReplaySetting {
    ReplayKind kind = ReplayKind::rule;
    StopRuleOptions rule;
    std::size_t draft = 0; // of the recording
    Costs costs;           // what expected-gain goes by, and how much is drafted while the target scores
    // Outcomes of a round that a draft model on a rank of its own drafts for meanwhile (draft_ahead.cpp), as if rows of
    // a draft pass cost nothing; 0: none. An estimate: a run takes its own times.
    int ahead = 0;
    std::optional<TreeOptions> tree = {}; // in place of chains: `rule` sees its best path
    // Kluser 2024, 5.5.2, in place of the exact replay: the tokens and entropies of one run that drafts so many tokens
    // each round stand for those of any rule's rounds; a token that this run did not draft is accepted, with the
    // target's entropy and probability. 0: exact.
    int imputed_from = 0;
};

// A round as it would have been.
struct ReplayedRound {
    int place = 0; // of the first drafted token
    const Draft* draft = nullptr;
    int accepted = 0;
};

// One setting over texts in the order of the recording, across which expected-gain learns.
class Replay {
  public:
    // Throws std::invalid_argument where the recording has no such draft or is too short for the rule's cap, a head is
    // to draft ahead, or trees or rounds drafted ahead are to be imputed.
    // `head` outlives it.
    Replay(const RecordingHead& head, const ReplaySetting& setting);

    using OnRound = std::function<void(const ReplayedRound&)>;
    // What decoding this text would have counted. Throws std::runtime_error where the recording lacks what a round
    // needs.
    Stats replay(const TextRecord& text, const OnRound& on_round = {});

  private:
    struct Proposed {
        TokenId token = 0;
        DraftedToken seen;
    };

    bool is_head() const { return head_.drafts[setting_.draft].is_head(); }
    std::size_t context(std::size_t tokens) const;
    Proposed recorded(const TextRecord& text, std::optional<std::size_t>& last, std::size_t at) const;
    Proposed proposed(const TextRecord& text, std::optional<std::size_t>& last, std::size_t at) const;
    void impute(const TextRecord& text);
    void draft_by_rule(const TextRecord& text, const DraftTask& task, std::size_t place);
    void draft_tree(const TextRecord& text, const DraftTask& task, std::size_t place);
    void plan_oracle(const TextRecord& text, DraftTask task);
    void draft_tokens(const TextRecord& text, const DraftTask& task, std::size_t place, int wanted);
    bool take(const DraftTask& task, int most, TokenId token, const DraftedToken& seen);
    void index_chains(const DraftRecord& draft, const TextRecord& text);
    void prepare_next(const TextRecord& text, std::size_t place, int accepted);
    Place place_of(const DraftedToken& first, std::int32_t rank, TokenId emitted) const;

    const RecordingHead& head_;
    ReplaySetting setting_;
    DraftLimits limits_;
    GainModel gain_;
    std::optional<StopRule> rule_;
    std::optional<TreeShape> shape_;
    std::optional<TreeGrowth> growth_;       // of `shape_`
    std::optional<RecordedTrees> tree_rows_; // of the text at hand
    OutcomeModel outcomes_;
    int free_passes_ = 0;                    // of the next round: made while the target scored the last
    DraftedAhead ahead_;                     // for the next round
    Draft draft_;                            // of the round at hand
    std::vector<TokenId> tokens_;            // prompt and places of the text at hand
    std::vector<std::size_t> chain_begin_;   // [place]: of the first token of its chain
    std::vector<std::int32_t> chain_length_; // [place]
    std::vector<Proposed> imputed_;          // [places of the text], with imputed_from
    std::vector<int> oracle_drafts_;         // [places of the text]: tokens that the oracle drafts
};

// Of one text, what intervals over texts are made of: Stats of every text and setting would not fit.
struct SimulatedText {
    std::int64_t new_tokens = 0;
    double seconds = 0; // by the setting's costs
};

// A setting's counts over texts, and what they cost.
struct Simulated {
    ReplaySetting setting;
    std::vector<SimulatedText> texts;
    Stats stats; // of all
};

// Every setting over every text, `threads` at once. Throws what Replay and Costs::target_seconds throw.
std::vector<Simulated> simulate(const RecordingHead& head, std::span<const TextRecord* const> texts,
                                std::span<const ReplaySetting> settings, int threads);

} // namespace entrodraft::spec
