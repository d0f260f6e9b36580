// Drafts a tree. One pass of the model reads a level's nodes of all sequences, and its rows give the nodes their
// children (siblings.h). The tree's shape decides about width and depth (tree_growth.h). If there is only one sequence,
// a GPU reads the levels that the growth foresees by itself. The drafter then takes the rows from there.
#include "spec/draft/tree.h"

#include "spec/draft/siblings.h"
#include "spec/draft/tree_growth.h"

#include <algorithm>
#include <utility>

namespace entrodraft::spec {

namespace {

const model::LogitNeeds kTreeNeeds = model::LogitSummary::entropy; // and the rows

class TreeDrafter final : public Drafter {
  public:
    TreeDrafter(std::unique_ptr<TreeSource> source, const TreeOptions& options, const DraftSetting& setting);

    void begin_sequence(int slot, const Request& request) override;
    void prefill(int slot, std::span<const TokenId> prompt) override { source_->prefill(slot, prompt); }
    void observe(int slot, const TargetOutcome& outcome) override {
        if (!outcome.states.empty()) source_->take_hidden(slot, outcome.first_position, outcome.states);
    }
    void propose(std::span<const DraftTask> tasks) override;

  private:
    struct Slot {
        explicit Slot(TreeShape& shape) : growth(shape) {}
        TreeGrowth growth;
        Siblings siblings;
        std::vector<TokenId> text; // of the round, then a path of the tree
    };

    Slot& of(const DraftTask& task) { return slots_[task.slot]; }
    std::span<Slot* const> fitting(std::span<Slot* const> growing) const;
    SourceLogits pass(std::span<Slot* const> growing);
    model::LogitNeeds needs_of(const Slot& slot) const;
    bool draws(const Slot& slot) const {
        return shape_.is(TreeOptions::Shape::fixed) && slot.siblings.draws(slot.growth.task().choice.acceptance);
    }
    std::vector<TreeChild> children(Slot& slot, int node, const SourceLogits& logits, std::size_t row);
    void finish(std::span<const DraftTask> tasks);
    void add_q(const Slot& slot, std::span<const int> nodes);

    std::unique_ptr<TreeSource> source_;
    DraftSetting setting_;
    TreeShape shape_;
    std::vector<Slot> slots_;
    std::vector<float> q_; // [proposed][vocab], of all tasks
};

TreeDrafter::TreeDrafter(std::unique_ptr<TreeSource> source, const TreeOptions& options, const DraftSetting& setting)
    : Drafter(facts_of(source->facts())), source_(std::move(source)), setting_(setting),
      shape_(options, setting.limits) {
    facts_.reads_late = false; // a tree's rows do not show the cost of reading
    for (int slot = 0; slot < setting.n_slots; ++slot)
        slots_.emplace_back(shape_);
}

void TreeDrafter::begin_sequence(int slot, const Request& request) {
    source_->begin_sequence(slot, request);
    Slot& own = slots_.at(slot);
    own.growth.begin_sequence();
    own.siblings.begin_sequence(request, setting_.limits.eos_tokens);
}

void TreeDrafter::propose(std::span<const DraftTask> tasks) {
    const double began = setting_.clock.now_seconds();
    double deciding = 0;
    int rows = 0;   // of the target's last pass
    int passes = 0; // of the draft
    for (const DraftTask& task : tasks)
        rows += of(task).growth.n_proposed() + 1;
    std::vector<Slot*> growing;
    for (const DraftTask& task : tasks) {
        Slot& slot = of(task);
        slot.text.assign(task.tokens.begin(), task.tokens.end());
        const std::size_t text = task.tokens.size();
        source_->begin_round(task.slot, text);
        slot.growth.begin(task, {source_->context_of(task.slot), text + source_->nodes_behind(text)},
                          {rows - slot.growth.n_proposed() - 1, static_cast<int>(tasks.size())});
        if (!slot.growth.frontier().empty()) growing.push_back(&slot);
    }
    while (!growing.empty()) {
        for (std::size_t begin = 0; begin < growing.size(); ++passes) {
            const std::span<Slot* const> together = fitting(std::span(growing).subspan(begin));
            begin += together.size();
            const SourceLogits logits = pass(together);
            std::size_t row = 0;
            for (Slot* slot : together)
                for (const int node : slot->growth.frontier()) {
                    slot->growth.add_children(node, children(*slot, node, logits, row));
                    ++row;
                }
            const double before = setting_.clock.now_seconds();
            for (Slot* slot : together)
                slot->growth.end_level(static_cast<int>(together.size()));
            deciding += setting_.clock.now_seconds() - before;
        }
        std::erase_if(growing, [](const Slot* slot) { return slot->growth.frontier().empty(); });
    }
    finish(tasks);
    const auto n = static_cast<double>(tasks.size());
    const double seconds = setting_.clock.now_seconds() - began - deciding;
    for (const DraftTask& task : tasks) { // each bears its share of the passes
        task.draft->entropy_seconds = deciding / n;
        task.draft->seconds = seconds * (passes > 0 ? of(task).growth.passes() / passes : 1 / n);
    }
}

// The first of these slots, up to the number whose frontiers fit into one pass.
std::span<TreeDrafter::Slot* const> TreeDrafter::fitting(std::span<Slot* const> growing) const {
    std::size_t n = 0;
    for (std::size_t rows = 0; n < growing.size(); ++n) {
        rows += growing[n]->growth.frontier().size();
        if (n > 0 && rows > source_->facts().max_rows) break;
    }
    return growing.first(n);
}

// Runs a pass over the frontiers of all slots, which begin together: at first each frontier is the text itself.
SourceLogits TreeDrafter::pass(std::span<Slot* const> growing) {
    if (growing.front()->growth.frontier().front() < 0) {
        std::vector<TextEnd> ends;
        for (const Slot* slot : growing)
            ends.push_back({slot->growth.task().slot, slot->growth.task().tokens, 1});
        return source_->rows_after(ends, growing.size() == 1 ? needs_of(*growing.front()) : kTreeNeeds);
    }
    std::vector<std::vector<TreeNode>> nodes(growing.size());
    std::vector<NewNodes> trees;
    for (std::size_t i = 0; i < growing.size(); ++i) {
        const TreeGrowth& growth = growing[i]->growth;
        for (const int each : growth.frontier()) {
            const GrownNode& node = growth.node(each);
            nodes[i].push_back({node.token, node.parent < 0 ? -1 : growth.node(node.parent).read_as});
        }
        trees.push_back({growth.task().slot, nodes[i]});
    }
    return source_->rows_after_nodes(trees, kTreeNeeds);
}

// The needs of the first pass over a sequence alone, after which a GPU may go on by itself.
model::LogitNeeds TreeDrafter::needs_of(const Slot& slot) const {
    DeviceRound* const device = source_->facts().device;
    if (!device || draws(slot) || shape_.options().most_children() > DeviceTreePlan::kMaxChildren ||
        setting_.limits.vocab_size > DeviceTreePlan::kMaxVocab)
        return kTreeNeeds;
    const DraftTask& task = slot.growth.task();
    DeviceTreePlan plan = slot.growth.forecast();
    if (plan.max_levels == 0 || !slot.siblings.ranks_on_device(task.tokens.size(), task.choice.acceptance, plan))
        return kTreeNeeds;
    model::LogitNeeds needs(kTreeNeeds.summary, false);
    needs.extension = device->grow(plan);
    return needs;
}

std::vector<TreeChild> TreeDrafter::children(Slot& slot, int node, const SourceLogits& logits, std::size_t row) {
    const DraftTask& task = slot.growth.task();
    const int n = slot.growth.n_children(node);
    if (!logits.ranked.empty()) return slot.siblings.best(logits.ranked[row], n);
    slot.text.resize(task.tokens.size());
    const std::vector<TokenId> path = slot.growth.path_to(node);
    slot.text.insert(slot.text.end(), path.begin(), path.end());
    const RowOfText of_text = {logits.row(row), logits.summary(row), slot.text};
    if (draws(slot)) return slot.siblings.drawn(of_text, n, task.choice, task.tokens.size());
    return slot.siblings.best(of_text, n, task.choice.acceptance);
}

void TreeDrafter::finish(std::span<const DraftTask> tasks) {
    q_.clear();
    for (const DraftTask& task : tasks) {
        const std::vector<int> nodes = of(task).growth.finish();
        if (of(task).siblings.draws(task.choice.acceptance)) add_q(of(task), nodes);
    }
    std::size_t n_q = 0;
    for (const DraftTask& task : tasks) { // q_ does not move any more
        if (!of(task).siblings.draws(task.choice.acceptance)) continue;
        const std::size_t n = task.draft->tokens.size() * static_cast<std::size_t>(setting_.limits.vocab_size);
        task.draft->q = std::span<const float>(q_).subspan(n_q, n);
        n_q += n;
    }
}

// Nodes that were not drawn have all of their distribution at their token.
void TreeDrafter::add_q(const Slot& slot, std::span<const int> nodes) {
    for (const int i : nodes) {
        const GrownNode& node = slot.growth.node(i);
        const std::size_t first = q_.size();
        q_.insert(q_.end(), node.q.begin(), node.q.end());
        q_.resize(first + static_cast<std::size_t>(setting_.limits.vocab_size), 0.0F);
        if (node.q.empty()) q_[first + static_cast<std::size_t>(node.token)] = 1;
    }
}

} // namespace

std::unique_ptr<Drafter> make_tree_drafter(std::unique_ptr<TreeSource> source, const TreeOptions& options,
                                           const DraftSetting& setting) {
    return std::make_unique<TreeDrafter>(std::move(source), options, setting);
}

} // namespace entrodraft::spec
