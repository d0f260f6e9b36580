// Rows of trees: see tree_recorder.h.
//
// Trees of all places grow together, level by level. Which rows eagle2 reads with fewer siblings does not follow from
// what it reads with more, so each number of siblings grows its own trees; expected-gain grows all that it might ever
// read (TreeShape::Reads::all). A row is read once, whatever wants it.
#include "spec/replay/tree_recorder.h"

#include <algorithm>
#include <deque>
#include <set>

namespace entrodraft::spec {

namespace {

constexpr int kSlotOfText = 0;                       // of the text
constexpr std::size_t kPlacesTogether = 64;          // whose trees grow together
constexpr Acceptance kAsGumbel = Acceptance::gumbel; // of greedy text too, where there is no noise
const model::LogitNeeds kRecordedNeeds = model::LogitSummary::entropy;

StopRuleOptions never_ending_rule() {
    StopRuleOptions rule("constant");
    rule.max_tokens = Packet::kMaxDraftTokens;
    rule.set("num-draft-tokens", Packet::kMaxDraftTokens);
    return rule;
}

} // namespace

// A tree that begins at a place.
struct TreeRecorder::Growing {
    Growing(TreeShape& shape, std::size_t first) : place(first), rule(never_ending_rule()), growth(shape) {}

    std::size_t place;
    StopRule rule;
    Draft draft;
    DraftTask task;
    TreeGrowth growth;
    std::vector<RecordedTrees::Row> rows; // [nodes], of those that were read
};

struct TreeRecorder::Wanted {
    RecordedTrees::Row parent = RecordedTrees::kNone;
    TokenId token = 0;
    auto operator<=>(const Wanted&) const = default;
};

TreeRecorder::TreeRecorder(std::span<const TreeOptions> trees, const DraftLimits& limits, ModelTexts& texts,
                           int n_slots)
    : limits_(limits), texts_(texts), n_slots_(n_slots) {
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
    rows_.emplace(text, draft);
    siblings_.begin_sequence(request, limits_.eos_tokens);
}

void TreeRecorder::add_place(const RowOfText& row) {
    rows_->append(*draft_, RecordedTrees::kNone, -1, siblings_.best(row, most_children_, kAsGumbel));
}

void TreeRecorder::finish(std::span<const TokenId> tokens, int positions,
                          const std::function<void(std::size_t)>& before_pass) {
    tokens_ = tokens;
    const std::size_t prompt = text_->prompt.size();
    const std::size_t end = std::min(static_cast<std::size_t>(text_->new_tokens), draft_->places());
    for (std::size_t first = 0; first < end; first += kPlacesTogether) {
        std::deque<Growing> growing; // tasks point into it
        for (std::size_t place = first; place < std::min(end, first + kPlacesTogether); ++place)
            for (TreeShape& shape : shapes_) {
                Growing& tree = growing.emplace_back(shape, place);
                const auto emitted = static_cast<int>(place);
                tree.task.tokens = tokens_.first(prompt + place);
                tree.task.request = request_;
                tree.task.rule = &tree.rule;
                tree.task.draft = &tree.draft;
                tree.task.left_tokens =
                    std::min(text_->max_new_tokens - emitted, positions - static_cast<int>(prompt) - emitted) - 1;
                tree.task.max_tokens = std::min(Packet::kMaxDraftTokens, tree.task.left_tokens);
                tree.growth.begin(tree.task, {texts_.context(), texts_.context()}, 0);
            }
        std::vector<Growing*> going;
        for (Growing& tree : growing)
            going.push_back(&tree);
        grow(std::move(going), before_pass);
    }
}

// A level of all of them at a time.
void TreeRecorder::grow(std::vector<Growing*> growing, const std::function<void(std::size_t)>& before_pass) {
    const auto is_complete = [](const Growing* tree) { return tree->growth.frontier().empty(); };
    for (std::erase_if(growing, is_complete); !growing.empty(); std::erase_if(growing, is_complete)) {
        std::set<Wanted> missing;
        for (const Growing* tree : growing)
            for (const int node : tree->growth.frontier())
                if (row_of(*tree, node) == RecordedTrees::kNone)
                    missing.insert({row_of(*tree, tree->growth.node(node).parent), tree->growth.node(node).token});
        const std::vector<Wanted> wanted(missing.begin(), missing.end());
        const auto together = static_cast<std::size_t>(n_slots_) - 1;
        for (std::size_t first = 0; first < wanted.size(); first += together) {
            before_pass(growing.front()->place);
            read(std::span(wanted).subspan(first, std::min(together, wanted.size() - first)));
        }
        for (Growing* tree : growing) {
            for (const int node : tree->growth.frontier()) {
                const RecordedTrees::Row row = row_of(*tree, node);
                tree->growth.add_children(node, rows_->children(row, tree->growth.n_children(node)));
                if (node < 0) continue;
                tree->rows.resize(std::max(tree->rows.size(), static_cast<std::size_t>(node) + 1),
                                  RecordedTrees::kNone);
                tree->rows[static_cast<std::size_t>(node)] = row;
            }
            tree->growth.end_level();
        }
    }
}

// Behind a node whose parent was read.
RecordedTrees::Row TreeRecorder::row_of(const Growing& tree, int node) const {
    if (node < 0) return static_cast<RecordedTrees::Row>(tree.place);
    if (static_cast<std::size_t>(node) < tree.rows.size() &&
        tree.rows[static_cast<std::size_t>(node)] != RecordedTrees::kNone)
        return tree.rows[static_cast<std::size_t>(node)];
    return rows_->after(row_of(tree, tree.growth.node(node).parent), tree.growth.node(node).token);
}

// Each in a slot of its own, behind what it shares with the text.
void TreeRecorder::read(std::span<const Wanted> wanted) {
    std::vector<std::vector<TokenId>> texts;
    std::vector<TextEnd> ends;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        std::size_t place = 0;
        texts.push_back(text_before(wanted[i].parent, place));
        texts.back().push_back(wanted[i].token);
        texts_.share(kSlotOfText, static_cast<int>(i) + 1,
                     std::min(text_->prompt.size() + place, texts.back().size() - 1));
    }
    for (std::size_t i = 0; i < wanted.size(); ++i)
        ends.push_back({static_cast<int>(i) + 1, texts[i], 1});
    const SourceLogits rows = texts_.rows_after(ends, kRecordedNeeds);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const RowOfText row = {rows.row(i), rows.summary(i), texts[i]};
        rows_->append(*draft_, wanted[i].parent, wanted[i].token, siblings_.best(row, most_children_, kAsGumbel));
    }
    for (std::size_t i = 0; i < wanted.size(); ++i)
        texts_.begin_sequence(static_cast<int>(i) + 1);
}

// What the row follows; up to `place` it is the text.
std::vector<TokenId> TreeRecorder::text_before(RecordedTrees::Row row, std::size_t& place) const {
    std::vector<TokenId> branch;
    while (static_cast<std::size_t>(row) >= draft_->places()) {
        branch.push_back(draft_->tree_behind[static_cast<std::size_t>(row)]);
        row = draft_->tree_parent[static_cast<std::size_t>(row)];
    }
    place = static_cast<std::size_t>(row);
    const std::span<const TokenId> before = tokens_.first(text_->prompt.size() + place);
    std::vector<TokenId> text(before.begin(), before.end());
    text.insert(text.end(), branch.rbegin(), branch.rend());
    return text;
}

} // namespace entrodraft::spec
