// Replays stop rules over recordings: makes the same rounds as a run with that rule, without the models.
//
// Counts are exact if the run has batch 1, one replica, nothing drafted ahead and, for expected-gain, fixed costs
// (docs/reference.md, Simulation). Times are counts multiplied by costs. For comparison there is also the approximation
// of Kluser 2024 (ReplaySetting::imputed_from). Called by the commands simulate and tune.
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
    oracle, // knows the text and drafts the cheapest chains (chain_bound.h): the bound on all chains under its cap
    plain,  // drafts nothing
};

struct ReplaySetting {
    ReplayKind kind = ReplayKind::rule;
    StopRuleOptions rule;
    std::size_t draft = 0; // of the recording
    Costs costs;           // for expected-gain, and for the number of passes while the target scores
    // Number of outcomes of a round for which a draft model on a rank of its own drafts ahead (draft_ahead.cpp); 0:
    // none. An estimate: rows of a draft pass cost nothing here, and a run measures its own times.
    int ahead = 0;
    std::optional<TreeOptions> tree = {}; // in place of chains: `rule` sees its best path
    // The method of Kluser 2024, 5.5.2, in place of the exact replay. One run drafts this many tokens each round; its
    // tokens and entropies take the place of those in any rule's rounds. A token that this run did not draft is
    // accepted, with the target's entropy and probability. 0: exact.
    int imputed_from = 0;
};

// A round of a replay.
struct ReplayedRound {
    int place = 0; // of the first drafted token
    const Draft* draft = nullptr;
    int accepted = 0;
};

// One setting over texts in the order of the recording; expected-gain learns from text to text.
class Replay {
  public:
    // Throws std::invalid_argument if the recording has no such draft, or chains too short for the rule's cap, or too
    // few tree children. Also throws it for a head that drafts ahead, and for imputed trees or imputed drafting ahead.
    // `head` outlives it.
    Replay(const RecordingHead& head, const ReplaySetting& setting);

    using OnRound = std::function<void(const ReplayedRound&)>;
    // The counts that decoding this text would give. Throws std::runtime_error if the recording lacks a row that a
    // round needs.
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
    std::optional<RecordedTrees> tree_rows_; // of the present text
    OutcomeModel outcomes_;
    int free_passes_ = 0;                    // passes of the next round, made while the target scored the last one
    DraftedAhead ahead_;                     // for the next round
    Draft draft_;                            // of the present round
    std::vector<TokenId> tokens_;            // prompt and places of the present text
    std::vector<std::size_t> chain_begin_;   // [place]: index of the first token of its chain
    std::vector<std::int32_t> chain_length_; // [place]
    std::vector<Proposed> imputed_;          // [places of the text], with imputed_from
    std::vector<int> oracle_drafts_;         // [places of the text]: tokens that the oracle drafts
};

// The figures of one text from which intervals over texts are computed; Stats of every text and setting would not fit.
struct SimulatedText {
    std::int64_t new_tokens = 0;
    double seconds = 0; // by the setting's costs
};

// A setting's counts over texts, and their seconds.
struct Simulated {
    ReplaySetting setting;
    std::vector<SimulatedText> texts;
    Stats stats; // of all
};

// Replays every setting over every text, in `threads` threads. Throws as Replay and Costs::target_seconds do.
std::vector<Simulated> simulate(const RecordingHead& head, std::span<const TextRecord* const> texts,
                                std::span<const ReplaySetting> settings, int threads);

} // namespace entrodraft::spec
