// The draft continues the target's beams by a beam search of its own, which is wider than the target's. Each pass
// drafts one level of its tree. (In "AtSpeed", Zhang et al. 2025, the widths are fixed.) The target accepts a level
// that contains all of the target's beams.
//
// The draft's own entropy decides how wide a level is, and how many levels there are. The chance that a level of w
// tokens is accepted is learnt from two values. One value is the mean entropy of the rows before the level. The other
// value is the distance of the level's last score below the num_beams-th score, which would be enough if draft and
// target agreed. The chosen width maximises (expected levels) - (the run's levels a second) * (seconds of the target's
// rows). Drafting ends if this maximum is not above 0.
#include "spec/draft/beams.h"

#include "spec/beams/beam_rows.h"
#include "spec/beams/beam_tree.h"
#include "spec/draft/model_drafter.h"
#include "spec/plan/drafting_trials.h"
#include "spec/plan/worth.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace entrodraft::spec {

namespace {

constexpr int kMaxLevels = 8;
constexpr std::size_t kMaxWidth = 4; // of a level, in beams of the target
constexpr double kFirstChance = 0.5; // of a first level

// For a level, DraftedToken::probability is exp(-(distance of its last score below the num_beams-th)).
constexpr TokenChance::Weights kFirstWeights = {0, -0.5, -0.8, 0, 0};

struct LevelToken {
    TokenId token = 0;
    int parent = 0; // row of the round: an end, or a drafted token after the ends
    float score = 0;
    int node = BeamTree::kText; // once the model has read it
};

class BeamDrafter final : public Drafter {
  public:
    BeamDrafter(model::Decoder& model, const DraftSetting& setting, DeviceRound* device)
        : Drafter({.name = "model", .weight_bytes = model.weight_bytes()}), model_(model), setting_(setting),
          device_(device), texts_(model, setting.n_slots, setting.limits.vocab_size),
          slots_(static_cast<std::size_t>(setting.n_slots)) {}

    void begin_sequence(int slot, const Request& request) override {
        texts_.begin_sequence(slot, request);
        slots_[slot] = {};
    }
    void prefill(int slot, std::span<const TokenId> prompt) override { texts_.prefill(slot, prompt); }
    void propose(std::span<const DraftTask> tasks) override {
        for (const DraftTask& task : tasks) {
            task.draft->clear();
            const double began = setting_.clock.now_seconds();
            draft(task, slots_[task.slot]);
            task.draft->seconds = setting_.clock.now_seconds() - began;
        }
    }

  private:
    struct Slot {
        std::optional<BeamTree> tree;
        std::vector<int> ends; // of the tree: last tokens of the target's beams
        // The last round: the length of the beams, the draft, and its passes. Passes that only read tokens of rounds
        // without a draft do not count: a round after one that drafts does not need them.
        int length = 0;
        std::vector<DraftedToken> levels;
        std::size_t n_drafted = 0;
        int passes = 0, further_rows = 0;
    };

    struct Level {
        std::vector<LevelToken> tokens; // its candidates, the best first
        float entropy = 0;              // mean of the rows that they follow
    };

    void draft(const DraftTask& task, Slot& slot);
    void learn(const DraftTask& task, Slot& slot);
    bool begins(const DraftTask& task);
    void draft_levels(const DraftTask& task, Slot& slot, Level level, int most);
    Level first_level(const DraftTask& task, Slot& slot);
    Level next_level(const DraftTask& task, Slot& slot, std::vector<LevelToken>& above);
    Level level_behind(const DraftTask& task, std::span<const LevelToken> above, std::span<const int> first_rows,
                       BeamTree& tree);
    model::PassResult pass(BeamTree& tree, std::span<const int> logit_rows, std::size_t n);
    std::vector<BeamCandidate> first_tokens(const model::PassResult& result, std::size_t row, std::size_t n) const;
    // Returns whether the GPU selects them. It has no room for more of a row.
    bool selects_on_device() const { return device_ && setting_.limits.vocab_size <= DeviceTreePlan::kMaxVocab; }
    static void count_pass(const DraftTask& task, const BeamTree& tree) {
        ++task.draft->passes;
        task.draft->further_rows += tree.n_rows() - 1;
    }
    DraftedToken seen(const Level& level, std::size_t width, std::size_t n_beams) const;
    std::size_t choose_width(const DraftTask& task, const Level& level, double reach, double expected) const;
    static Worth worth_of(const DraftTask& task, double expected);
    static double of_rows(const Worth& worth, std::size_t rows, std::size_t more) {
        return worth.of_rows(static_cast<int>(rows), static_cast<int>(rows + more));
    }

    model::Decoder& model_;
    DraftSetting setting_;
    DeviceRound* device_;
    ModelTexts texts_;
    std::vector<Slot> slots_;
    TokenChance chance_{kFirstWeights};
    DraftingTrials trials_; // see learn()
    BeamPass pass_;
};

// ---- what pays ----

// Learns from the last round: from its verified levels, and from its gain. The gain is the number of accepted levels,
// less the levels that its seconds would have brought without a draft. First passes that led to no draft count too.
void BeamDrafter::learn(const DraftTask& task, Slot& slot) {
    const int accepted = task.beams->length() - slot.length - 1;
    for (int i = 0; i < std::min(accepted + 1, static_cast<int>(slot.levels.size())); ++i)
        chance_.learn(slot.levels[i], 0, i < accepted);
    if (slot.passes > 0) {
        const Worth worth = worth_of(task, 0);
        trials_.learn(accepted - worth.of_passes(slot.passes, slot.further_rows) -
                      of_rows(worth, task.beams->n_beams(), slot.n_drafted));
    }
    slot.levels.clear();
    slot.n_drafted = 0;
    slot.passes = slot.further_rows = 0;
    slot.length = task.beams->length();
}

// Counts levels instead of tokens: `expected` drafted levels of this round are accepted.
Worth BeamDrafter::worth_of(const DraftTask& task, double expected) {
    const Draft& draft = *task.draft;
    const int rows = static_cast<int>(task.beams->running().size() + draft.tokens.size());
    return {*task.gain,
            {static_cast<double>(draft.passes), static_cast<double>(draft.further_rows), rows, 1 + expected}};
}

// Returns whether this round drafts, by DraftingTrials. Before any round has drafted, a first level is assumed to be
// twice as wide as the target's beams.
bool BeamDrafter::begins(const DraftTask& task) {
    const std::size_t n = task.beams->n_beams();
    return trials_.begins([&] {
        const Worth worth = worth_of(task, 0);
        return kFirstChance - worth.of_passes(1, static_cast<double>(n) - 1) - of_rows(worth, n, 2 * n);
    });
}

DraftedToken BeamDrafter::seen(const Level& level, std::size_t width, std::size_t n_beams) const {
    const float needed = level.tokens[std::min(n_beams, level.tokens.size()) - 1].score;
    return {level.entropy, std::exp(level.tokens[width - 1].score - needed)};
}

// The width of this level, after a path that is accepted with the chance `reach`. 0: no width is worth its rows.
std::size_t BeamDrafter::choose_width(const DraftTask& task, const Level& level, double reach, double expected) const {
    const std::size_t n_beams = task.beams->n_beams(), rows = task.beams->running().size() + task.draft->tokens.size();
    const std::size_t room = static_cast<std::size_t>(std::max(task.max_tokens, 0)) - task.draft->tokens.size();
    const Worth worth = worth_of(task, expected);
    std::size_t best = 0;
    double best_gain = 0;
    for (std::size_t half = 2; half <= 2 * kMaxWidth; ++half) {
        const std::size_t width = std::min(half * n_beams / 2, level.tokens.size());
        if (width == 0 || width > room) break;
        const double gain = reach * chance_.of(seen(level, width, n_beams), 0) - of_rows(worth, rows, width);
        if (gain > best_gain) {
            best_gain = gain;
            best = width;
        }
    }
    return best;
}

// ---- passes ----

// Runs a pass with the first `n` tokens of each of these rows.
model::PassResult BeamDrafter::pass(BeamTree& tree, std::span<const int> logit_rows, std::size_t n) {
    BeamTree* const trees[] = {&tree};
    pass_.set(trees);
    model::Pass pass = pass_.pass(model::LogitSummary::entropy);
    pass.logit_rows = logit_rows;
    pass.summary_vocab = setting_.limits.vocab_size;
    if (selects_on_device() && !logit_rows.empty()) {
        pass.needs.rows = false;
        pass.needs.extension =
            device_->select(static_cast<int>(logit_rows.size()),
                            std::min(static_cast<int>(n), DeviceTreePlan::kMaxChildren), setting_.limits.vocab_size);
    }
    return model_.forward(pass);
}

std::vector<BeamCandidate> BeamDrafter::first_tokens(const model::PassResult& result, std::size_t row,
                                                     std::size_t n) const {
    if (selects_on_device()) return beam_row_part(device_->grown()[row].row, 0).best;
    return best_candidates(
        result.logits.subspan(row * result.logits_stride, static_cast<std::size_t>(setting_.limits.vocab_size)), n);
}

// Reads the tokens of the target's beams that the model has not read, the last tokens in the last pass.
BeamDrafter::Level BeamDrafter::first_level(const DraftTask& task, Slot& slot) {
    BeamTree& tree = *slot.tree;
    std::vector<LevelToken> ends;
    std::vector<std::vector<TokenId>> paths;
    for (const BeamSearch::Beam& beam : task.beams->running()) {
        std::vector<TokenId>& path = paths.emplace_back(1, task.tokens.back()); // the prompt's last token
        path.insert(path.end(), beam.tokens.begin(), beam.tokens.end());
        ends.push_back({path.back(), 0, beam.score});
    }
    const int max_rows = model_.max_rows() - static_cast<int>(paths.size());
    for (bool is_read = false; !is_read;) {
        std::vector<int> nodes;
        std::vector<std::size_t> n_read;
        for (const std::vector<TokenId>& path : paths) { // the last token is read again: its row is wanted
            const BeamTree::Walk way = tree.walk(std::span(path).first(path.size() - 1));
            nodes.push_back(way.node);
            n_read.push_back(way.n);
        }
        nodes = tree.begin_pass(std::move(nodes), model_.max_rows(), &model_);
        is_read = true;
        for (std::size_t i = 0; i < paths.size(); ++i)
            for (std::size_t k = n_read[i]; k + 1 < paths[i].size() && is_read; ++k) {
                const int child = tree.child(nodes[i], paths[i][k]);
                nodes[i] = child >= 0 ? child : tree.add(paths[i][k], nodes[i]);
                is_read = tree.n_rows() < max_rows || (i + 1 == paths.size() && k + 2 == paths[i].size());
            }
        for (std::size_t i = 0; i < paths.size() && is_read; ++i)
            ends[i].node = tree.add(paths[i].back(), nodes[i]);
        count_pass(task, tree);
        if (!is_read) pass(tree, {}, 0);
    }
    std::vector<int> rows;
    slot.ends.clear();
    for (std::size_t i = 0; i < ends.size(); ++i) {
        rows.push_back(static_cast<int>(i));
        slot.ends.push_back(ends[i].node);
    }
    return level_behind(task, ends, rows, tree);
}

// `above`: the last tokens of the draft.
BeamDrafter::Level BeamDrafter::next_level(const DraftTask& task, Slot& slot, std::vector<LevelToken>& above) {
    BeamTree& tree = *slot.tree;
    // The nodes of the target's beams stay too, whatever the level follows: their common tokens are text, but drafted
    // tokens may be rejected.
    std::vector<int> parents = slot.ends;
    for (const LevelToken& token : above)
        parents.push_back(token.node);
    parents = tree.begin_pass(std::move(parents), static_cast<int>(above.size()), &model_);
    const auto first_parent = parents.begin() + static_cast<std::ptrdiff_t>(slot.ends.size());
    slot.ends.assign(parents.begin(), first_parent);
    parents.erase(parents.begin(), first_parent);
    std::vector<int> rows;
    const std::size_t first = task.beams->running().size() + task.draft->tokens.size() - above.size();
    for (std::size_t i = 0; i < above.size(); ++i) {
        above[i].node = tree.add(above[i].token, parents[i]);
        rows.push_back(static_cast<int>(first + i));
    }
    count_pass(task, tree);
    return level_behind(task, above, rows, tree);
}

// The level after the last rows of the pass, which are the rows of `above`. `first_rows`: these rows in the round.
BeamDrafter::Level BeamDrafter::level_behind(const DraftTask& task, std::span<const LevelToken> above,
                                             std::span<const int> first_rows, BeamTree& tree) {
    std::vector<int> rows;
    for (const LevelToken& token : above)
        rows.push_back(token.node - tree.first_of_pass());
    const std::size_t n = kMaxWidth * task.beams->n_beams(), n_of_row = n + setting_.limits.eos_tokens.size();
    const model::PassResult result = pass(tree, rows, n_of_row);
    Level level;
    for (std::size_t i = 0; i < above.size(); ++i) {
        const model::LogitStats& stats = result.summaries[i];
        for (const BeamCandidate& each : first_tokens(result, i, n_of_row)) {
            if (task.beams->ends_text(each.token)) continue; // a beam ends there, and none continues
            const auto log_prob = static_cast<float>(static_cast<double>(each.log_prob) - stats.log_sum_exp());
            level.tokens.push_back({each.token, first_rows[i], above[i].score + log_prob, above[i].node});
        }
        level.entropy += static_cast<float>(stats.entropy_nats()) / static_cast<float>(above.size());
    }
    std::ranges::stable_sort(level.tokens, std::greater<>(), &LevelToken::score);
    level.tokens.resize(std::min(level.tokens.size(), n));
    return level;
}

void BeamDrafter::draft(const DraftTask& task, Slot& slot) {
    const BeamSearch& search = *task.beams;
    learn(task, slot);
    // The target's own token ends each round, and the last one is never drafted.
    const int context = model_.config().max_positions - static_cast<int>(task.tokens.size()) - search.length() + 1;
    const int most = std::min({kMaxLevels, search.max_new_tokens() - search.length() - 1, context});
    if (most <= 0 || task.max_tokens <= 0) {
        task.draft->end = DraftEnd::budget;
        return;
    }
    if (!begins(task)) {
        task.draft->end = DraftEnd::rule;
        return;
    }
    if (!slot.tree) {
        texts_.prefill(task.slot, task.tokens); // unread tokens: the source, if the prompt is a single token
        slot.tree.emplace(task.slot, static_cast<int>(task.tokens.size()) - 1, model_.cache().shape().capacity);
    }
    Level level = first_level(task, slot);
    slot.passes = 1 - task.draft->passes; // the passes added below count too
    slot.further_rows = static_cast<int>(search.running().size()) - 1 - task.draft->further_rows;
    draft_levels(task, slot, std::move(level), most);
    slot.passes += task.draft->passes;
    slot.further_rows += task.draft->further_rows;
    slot.n_drafted = task.draft->tokens.size();
}

void BeamDrafter::draft_levels(const DraftTask& task, Slot& slot, Level level, int most) {
    const BeamSearch& search = *task.beams;
    double reach = 1, expected = 0;
    task.draft->end = DraftEnd::cap;
    for (int depth = 1; depth <= most; ++depth) {
        const std::size_t width = choose_width(task, level, reach, expected);
        task.draft->end = DraftEnd::rule;
        if (width == 0) return;
        const DraftedToken token = seen(level, width, search.n_beams());
        slot.levels.push_back(token);
        const double chance = chance_.of(token, 0);
        reach *= chance;
        expected += reach;
        level.tokens.resize(width);
        for (const LevelToken& each : level.tokens)
            task.draft->add(each.token, {level.entropy, token.probability}, each.parent);
        // Another level costs a pass of the draft, and rows of at least the target's beams.
        const std::size_t rows = search.running().size() + task.draft->tokens.size();
        const Worth worth = worth_of(task, expected);
        const double price =
            worth.of_passes(1, static_cast<double>(width) - 1) + of_rows(worth, rows, search.n_beams());
        task.draft->end = depth == most ? DraftEnd::budget : DraftEnd::rule;
        const bool has_room = task.draft->tokens.size() + search.n_beams() <= static_cast<std::size_t>(task.max_tokens);
        if (depth == most || !has_room || reach * chance <= price) return;
        level = next_level(task, slot, level.tokens);
    }
}

} // namespace

std::unique_ptr<Drafter> make_beam_drafter(model::Decoder& model, const DraftSetting& setting, DeviceRound* device) {
    return std::make_unique<BeamDrafter>(model, setting, device);
}

} // namespace entrodraft::spec
