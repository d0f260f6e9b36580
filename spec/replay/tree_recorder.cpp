// Records rows of trees: see tree_recorder.h.
//
// The trees of a place grow together, level by level. The rows that eagle2 reads with fewer siblings cannot be derived
// from its rows with more siblings. So each number of siblings grows its own trees. expected-gain grows all nodes that
// it might ever read (TreeShape::Reads::all). A row is recorded once, even if several trees read it.
#include "spec/replay/tree_recorder.h"

#include <algorithm>
#include <deque>
#include <set>

namespace entrodraft::spec {

namespace {

constexpr int kSlotOfText = 0;
constexpr std::size_t kMostNodes = Packet::kMaxDraftTokens; // most nodes that the source holds after a text
constexpr Acceptance kAsGumbel = Acceptance::gumbel;        // for greedy text too, which has no noise
const model::LogitNeeds kRecordedNeeds = model::LogitSummary::entropy;

StopRuleOptions never_ending_rule() {
    StopRuleOptions rule("constant");
    rule.max_tokens = Packet::kMaxDraftTokens;
    rule.set("tokens", Packet::kMaxDraftTokens);
    return rule;
}

} // namespace

// A tree that begins at the present place.
struct TreeRecorder::Growing {
    explicit Growing(TreeShape& shape) : rule(never_ending_rule()), growth(shape) {}

    StopRule rule;
    Draft draft;
    DraftTask task;
    TreeGrowth growth;
    std::vector<RecordedTrees::Row> rows; // [nodes], kNone for nodes that were not read
};

struct TreeRecorder::Wanted {
    RecordedTrees::Row parent = RecordedTrees::kNone;
    TokenId token = 0;
    auto operator<=>(const Wanted&) const = default;
};

TreeRecorder::TreeRecorder(std::span<const TreeOptions> trees, const DraftLimits& limits, TreeSource& source,
                           bool is_head)
    : limits_(limits), source_(source), is_head_(is_head) {
    for (const TreeOptions& tree : trees) {
        const bool is_eagle2 = tree.shape == TreeOptions::Shape::eagle2;
        for (int top_k = is_eagle2 ? 1 : tree.top_k; top_k <= tree.top_k; ++top_k) {
            TreeOptions narrower = tree;
            narrower.top_k = top_k;
            shapes_.emplace_back(narrower, limits, TreeShape::Reads::all);
        }
        most_children_ = std::max(most_children_, tree.most_children());
    }
}

void TreeRecorder::begin_text(const Request& request, const TextRecord& text, DraftRecord& draft) {
    request_ = &request;
    text_ = &text;
    draft_ = &draft;
    rows_.emplace(text, draft, is_head_);
    siblings_.begin_sequence(request, limits_.eos_tokens);
}

void TreeRecorder::add_place(const std::optional<RowOfText>& row) {
    const auto children = row ? siblings_.best(*row, most_children_, kAsGumbel) : std::vector<TreeChild>();
    rows_->append(*draft_, RecordedTrees::kNone, -1, children);
}

void TreeRecorder::follow(std::size_t place, std::span<const TokenId> tokens, int positions,
                          const std::function<void()>& before_pass) {
    const std::size_t prompt = text_->prompt.size();
    const auto emitted = static_cast<int>(place);
    place_ = static_cast<RecordedTrees::Row>(place);
    before_ = tokens.first(prompt + place);
    node_of_.clear();
    std::deque<Growing> trees; // tasks point into it
    std::vector<Growing*> growing;
    for (TreeShape& shape : shapes_) {
        Growing& tree = trees.emplace_back(shape);
        tree.task.tokens = before_;
        tree.task.request = request_;
        tree.task.rule = &tree.rule;
        tree.task.draft = &tree.draft;
        tree.task.left_tokens =
            std::min(text_->max_new_tokens - emitted, positions - static_cast<int>(prompt) - emitted) - 1;
        tree.task.max_tokens = std::min(Packet::kMaxDraftTokens, tree.task.left_tokens);
        tree.task.max_nodes = Packet::kMaxDraftTokens;
        tree.growth.begin(tree.task, {source_.context_of(kSlotOfText), source_.facts().context});
        growing.push_back(&tree);
    }
    const auto is_complete = [](const Growing* tree) { return tree->growth.frontier().empty(); };
    for (std::erase_if(growing, is_complete); !growing.empty(); std::erase_if(growing, is_complete)) {
        read_frontiers(growing, before_pass);
        for (Growing* tree : growing)
            tree->growth.end_level();
    }
}

// Reads a level of all trees.
void TreeRecorder::read_frontiers(std::span<Growing* const> growing, const std::function<void()>& before_pass) {
    std::set<Wanted> missing;
    for (const Growing* tree : growing)
        for (const int node : tree->growth.frontier())
            if (row_of(*tree, node) == RecordedTrees::kNone)
                missing.insert({row_of(*tree, tree->growth.node(node).parent), tree->growth.node(node).token});
    const std::vector<Wanted> wanted(missing.begin(), missing.end());
    const auto level =
        static_cast<std::size_t>(growing.front()->growth.depth_of(growing.front()->growth.frontier()[0]));
    const std::size_t context = source_.facts().context;
    const std::size_t room = std::min(kMostNodes, context - std::min(context, before_.size()));
    const std::size_t together = std::max<std::size_t>(room / std::max<std::size_t>(level, 1), 1);
    for (std::size_t first = 0; first < wanted.size(); first += together) {
        const auto some = std::span(wanted).subspan(first, std::min(together, wanted.size() - first));
        before_pass();
        if (node_of_.empty() || node_of_.size() - 1 + some.size() * level > room) {
            const TextEnd text = {kSlotOfText, before_, 1};
            source_.rows_after(std::span(&text, 1), kRecordedNeeds);
            node_of_ = {{place_, -1}};
        }
        read(some);
    }
    for (Growing* tree : growing)
        for (const int node : tree->growth.frontier()) {
            const RecordedTrees::Row row = row_of(*tree, node);
            tree->growth.add_children(node, rows_->children(row, tree->growth.n_children(node)));
            if (node < 0) continue;
            tree->rows.resize(std::max(tree->rows.size(), static_cast<std::size_t>(node) + 1), RecordedTrees::kNone);
            tree->rows[node] = row;
        }
}

// The row after a node whose parent was read.
RecordedTrees::Row TreeRecorder::row_of(const Growing& tree, int node) const {
    if (node < 0) return place_;
    if (static_cast<std::size_t>(node) < tree.rows.size() && tree.rows[node] != RecordedTrees::kNone)
        return tree.rows[node];
    return rows_->after(row_of(tree, tree.growth.node(node).parent), tree.growth.node(node).token);
}

// The rows from the first one after the place to this one.
std::vector<RecordedTrees::Row> TreeRecorder::path_to(RecordedTrees::Row row) const {
    std::vector<RecordedTrees::Row> path;
    for (; row != place_; row = rows_->parent(row))
        path.push_back(row);
    std::ranges::reverse(path);
    return path;
}

// Reads the wanted rows, all at the same depth, and before them the rows of their branches that the source lacks.
void TreeRecorder::read(std::span<const Wanted> wanted) {
    std::vector<std::vector<RecordedTrees::Row>> branches;
    for (const Wanted& each : wanted)
        branches.push_back(path_to(each.parent));
    std::vector<TreeNode> nodes;
    for (std::size_t depth = 0; depth < branches.front().size(); ++depth) {
        nodes.clear();
        const int n_read = static_cast<int>(node_of_.size()) - 1;
        for (const std::vector<RecordedTrees::Row>& branch : branches) {
            const RecordedTrees::Row row = branch[depth];
            if (node_of_.contains(row)) continue;
            nodes.push_back({rows_->behind(row), node_of_.at(rows_->parent(row))});
            node_of_[row] = n_read + static_cast<int>(nodes.size()) - 1;
        }
        const NewNodes missing = {kSlotOfText, nodes};
        if (!nodes.empty()) source_.rows_after_nodes(std::span(&missing, 1), kRecordedNeeds);
    }
    nodes.clear();
    const int n_read = static_cast<int>(node_of_.size()) - 1;
    for (const Wanted& each : wanted)
        nodes.push_back({each.token, node_of_.at(each.parent)});
    const NewNodes missing = {kSlotOfText, nodes};
    const SourceLogits logits = source_.rows_after_nodes(std::span(&missing, 1), kRecordedNeeds);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        std::vector<TokenId> text(before_.begin(), before_.end());
        for (const RecordedTrees::Row row : branches[i])
            text.push_back(rows_->behind(row));
        text.push_back(wanted[i].token);
        const RowOfText row = {logits.row(i), logits.summary(i), text};
        const auto children = siblings_.best(row, most_children_, kAsGumbel);
        node_of_[rows_->append(*draft_, wanted[i].parent, wanted[i].token, children)] = n_read + static_cast<int>(i);
    }
}

} // namespace entrodraft::spec
