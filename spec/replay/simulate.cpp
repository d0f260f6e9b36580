// Makes rounds from recordings: see simulate.h. Budgets, ends and feedback are as in a real round (coordinator.cpp).
#include "spec/replay/simulate.h"

#include "model/pass/decoder.h"
#include "spec/draft/drafter.h"
#include "spec/draft/head_texts.h"
#include "spec/replay/chain_bound.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <fmt/format.h>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

namespace entrodraft::spec {

namespace {

constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

int max_rows(const ReplaySetting& setting) {
    return std::min(setting.rule.max_tokens + 1, model::Decoder::kMaxRows);
}

// The path of drafted tokens that are the text's own. Children come after their parents.
std::vector<int> accepted_path(const Draft& draft, std::span<const TokenId> text) {
    std::vector<int> path;
    int last = -1;
    for (int i = 0; i < static_cast<int>(draft.tokens.size()) && path.size() < text.size(); ++i)
        if (parent_of(draft.parents, i) == last && draft.tokens[i] == text[path.size()]) path.push_back(last = i);
    return path;
}

} // namespace

Replay::Replay(const RecordingHead& head, const ReplaySetting& setting)
    : head_(head), setting_(setting), limits_{head.vocab_size, head.eos_tokens},
      gain_({max_rows(setting), 0, setting.costs}), outcomes_(AheadOptions::kMaxOutcomes + 1) {
    if (setting.draft >= head.drafts.size())
        throw std::invalid_argument(
            fmt::format("the recording has {} drafts, none of number {}", head.drafts.size(), setting.draft + 1));
    if (setting.ahead > 0 && is_head())
        throw std::invalid_argument("a head drafts nothing while the target scores: it reads the target's states");
    if (setting.imputed_from > 0 && (setting.tree || setting.ahead > 0))
        throw std::invalid_argument("only chains that wait for the verification can be imputed");
    const int longest =
        setting.tree ? setting.tree->most_levels() : std::max(setting.rule.max_tokens, setting.imputed_from);
    if (longest > head.max_draft_tokens)
        throw std::invalid_argument(fmt::format("drafts of up to {} tokens cannot be replayed: the recording holds {}",
                                                longest, head.max_draft_tokens));
    if (setting.tree && setting.tree->most_children() > head.tree_children)
        throw std::invalid_argument(
            fmt::format("--tree {} has up to {} children of a token, and the recording holds {}: "
                        "record --tree with this shape, or a wider one of its kind",
                        setting.tree->name, setting.tree->most_children(), head.tree_children));
    if (setting.tree) {
        shape_.emplace(*setting.tree, limits_);
        growth_.emplace(*shape_);
    }
}

Stats Replay::replay(const TextRecord& text, const OnRound& on_round) {
    const std::size_t prompt = text.prompt.size();
    tokens_ = text.prompt;
    tokens_.insert(tokens_.end(), text.token.begin(), text.token.end());
    const DraftRecord& record = text.drafts.at(setting_.draft);
    if (setting_.tree) {
        tree_rows_.emplace(text, record, is_head());
        growth_->begin_sequence();
    }
    index_chains(record, text);
    if (setting_.imputed_from > 0) impute(text);
    Request limits;
    limits.ignore_eos = text.ignore_eos;
    rule_.emplace(setting_.rule, &gain_);
    free_passes_ = 0;
    ahead_ = {};
    Stats stats;
    stats.sequences = 1;
    stats.prompt_tokens = static_cast<std::int64_t>(prompt);
    stats.new_tokens = text.new_tokens;
    for (int emitted = 0; emitted < text.new_tokens;) {
        const auto place = static_cast<std::size_t>(emitted);
        DraftTask task;
        task.tokens = std::span(tokens_).first(prompt + place);
        task.request = &limits;
        task.rule = &*rule_;
        task.draft = &draft_;
        task.left_tokens =
            std::min(text.max_new_tokens - emitted, head_.max_positions - static_cast<int>(prompt) - emitted) - 1;
        task.max_tokens = std::min(setting_.rule.max_tokens, task.left_tokens);
        task.max_nodes = setting_.rule.max_tokens;
        task.gain = &gain_;
        draft_.clear();
        if (setting_.kind == ReplayKind::oracle) {
            if (place == 0) plan_oracle(text, task);
            draft_tokens(text, task, place, oracle_drafts_.at(place));
        }
        if (setting_.kind == ReplayKind::rule && setting_.tree) draft_tree(text, task, place);
        if (setting_.kind == ReplayKind::rule && !setting_.tree) draft_by_rule(text, task, place);
        const std::vector<int> path = accepted_path(draft_, std::span(text.token).subspan(place));
        const int accepted = static_cast<int>(path.size());
        stats.count_tree(draft_.parents, path.empty() ? -1 : path.back(), draft_.passes, draft_.further_rows);
        stats.ahead += std::exchange(ahead_, {});
        if (setting_.ahead > 0) prepare_next(text, place, accepted);
        stats.count_entropies(draft_.entropies_on(path), accepted);
        if (setting_.kind == ReplayKind::rule) rule_->end_round(feedback_of(draft_, path));
        if (on_round) on_round({emitted, &draft_, accepted});
        emitted += accepted + 1;
    }
    return stats;
}

// Number of tokens, drafted ones included, that the draft can read in a round that begins after `tokens` tokens.
std::size_t Replay::context(std::size_t tokens) const {
    const RecordedModel& model = head_.drafts[setting_.draft];
    const auto context = static_cast<std::size_t>(model.context);
    return is_head() ? head_context(tokens - 1, *model.head_tokens, context) : context;
}

void Replay::index_chains(const DraftRecord& draft, const TextRecord& text) {
    chain_begin_.assign(draft.places(), 0);
    chain_length_.assign(draft.places(), 0);
    std::size_t number = 0, at = 0;
    for (std::size_t place = 0; place < draft.places(); ++place) {
        if (!is_head() && draft.token[place] == text.token[place]) continue;
        chain_begin_[place] = at;
        chain_length_[place] = draft.astray_length[number++];
        at += static_cast<std::size_t>(chain_length_[place]);
    }
}

// The draft's token at place `at`, after its token of place `last`. It comes from the text's places while the draft
// agrees with the text, then from the recorded chain; a head's chain begins with the round. `last` becomes `at`, or
// stays where the chain begins.
Replay::Proposed Replay::recorded(const TextRecord& text, std::optional<std::size_t>& last, std::size_t at) const {
    const DraftRecord& record = text.drafts[setting_.draft];
    if (!last || (!is_head() && record.token[*last] == text.token[*last])) {
        if (at >= record.places())
            throw std::runtime_error(fmt::format("id {}: place {} is not recorded", text.id, at));
        last = at;
        const float margin = record.has_margins() ? record.margin[at] : kUnknown;
        return {record.token[at], {record.entropy[at], record.probability[at], 0, margin}};
    }
    const std::size_t step = at - *last - 1;
    if (step >= static_cast<std::size_t>(chain_length_[*last]))
        throw std::runtime_error(fmt::format("id {}: the chain of place {} is too short", text.id, *last));
    const std::size_t i = chain_begin_[*last] + step;
    const float margin = record.has_margins() ? record.astray_margin[i] : kUnknown;
    return {record.astray_token[i], {record.astray_entropy[i], record.astray_probability[i], 0, margin}};
}

// Makes the one sequence from which every rule of an imputed replay drafts.
void Replay::impute(const TextRecord& text) {
    imputed_.clear();
    const std::size_t drafted_places = text.drafts[setting_.draft].places();
    while (imputed_.size() < text.places()) {
        const std::size_t read = text.prompt.size() + imputed_.size();
        const std::size_t room = std::max(context(read) + 1, read) - read;
        std::optional<std::size_t> last;
        bool agrees = true;
        for (int left = static_cast<int>(std::min(room, static_cast<std::size_t>(setting_.imputed_from)));
             left > 0 && agrees && imputed_.size() < drafted_places; --left) {
            const Proposed next = recorded(text, last, imputed_.size());
            if (next.token < 0) break;
            agrees = next.token == text.token[imputed_.size()];
            imputed_.push_back(next);
        }
        const std::size_t at = imputed_.size();
        if (!agrees || at >= text.places()) continue;
        // The target's own token after a draft that it accepted.
        const float margin = text.drafts[setting_.draft].has_margins() ? text.target_margin[at] : kUnknown;
        imputed_.push_back(
            {text.token[at], {text.target_entropy[at], std::exp(text.target_log_probability[at]), 0, margin}});
    }
}

Replay::Proposed Replay::proposed(const TextRecord& text, std::optional<std::size_t>& last, std::size_t at) const {
    if (setting_.imputed_from == 0) return recorded(text, last, at);
    return at < imputed_.size() ? imputed_[at] : Proposed{-1, {}};
}

// Drafts as ChainPhase does.
void Replay::draft_by_rule(const TextRecord& text, const DraftTask& task, std::size_t place) {
    const int most = begin_draft(task, context(task.tokens.size()));
    std::optional<std::size_t> last;
    for (std::size_t at = place; draft_.end == DraftEnd::none; ++at) {
        const bool is_free = free_passes_ > 0;
        if (!rule_->wants_another(is_free ? PassCost{0, 0} : PassCost{})) {
            draft_.end = rule_->end();
            return;
        }
        is_free ? --free_passes_ : ++draft_.passes;
        const Proposed next = proposed(text, last, at);
        if (!take(task, most, next.token, next.seen)) return;
    }
}

// Drafts as TreeDrafter does.
void Replay::draft_tree(const TextRecord& text, const DraftTask& task, std::size_t place) {
    const int in_all = head_.drafts[setting_.draft].context + Packet::kMaxDraftTokens; // as in the cache of a run
    growth_->begin(task, {context(task.tokens.size()), static_cast<std::size_t>(in_all)});
    std::vector<RecordedTrees::Row> rows; // [nodes], kNone for nodes that were not read
    const auto row_of = [&](int node) { return node < 0 ? static_cast<RecordedTrees::Row>(place) : rows[node]; };
    while (!growth_->frontier().empty()) {
        for (const int node : growth_->frontier()) {
            if (node >= 0) {
                const GrownNode& read = growth_->node(node);
                rows.resize(static_cast<std::size_t>(node) + 1, RecordedTrees::kNone);
                rows.back() = tree_rows_->after(row_of(read.parent), read.token);
            }
            if (row_of(node) == RecordedTrees::kNone)
                throw std::runtime_error(fmt::format("id {}: at place {} the tree reads a row that is not recorded; "
                                                     "record --tree with this shape, or a wider one of its kind",
                                                     text.id, place));
            growth_->add_children(node, tree_rows_->children(row_of(node), growth_->n_children(node)));
        }
        growth_->end_level();
    }
    growth_->finish();
}

// Returns whether the token became part of the draft.
bool Replay::take(const DraftTask& task, int most, TokenId token, const DraftedToken& seen) {
    if (token < 0) {
        draft_.end = DraftEnd::no_match;
        return false;
    }
    const bool looks = setting_.rule.looks_at_distribution() || setting_.ahead > 0;
    return limits_.take(task, most, token, looks ? seen : DraftedToken{});
}

// Ranks the outcomes to draft for while the target scores, and notes whether the round's outcome is among them.
void Replay::prepare_next(const TextRecord& text, std::size_t place, int accepted) {
    const DraftRecord& record = text.drafts[setting_.draft];
    const auto n_accepted = static_cast<std::size_t>(accepted), drafted = draft_.tokens.size();
    free_passes_ = 0;
    if (place + n_accepted >= record.places() || setting_.kind != ReplayKind::rule) return;
    std::vector<Place> places;
    const TokenId emitted = text.token[place + n_accepted];
    for (std::size_t i = 0; i < drafted; ++i) {
        const DraftedToken first = {draft_.entropies_nats[i], draft_.probabilities[i], 0};
        places.push_back(place_of(first, i == n_accepted ? record.rank[place + i] - 1 : -1, emitted));
    }
    // After the last token: the draft's own row there if all tokens were accepted, else the row before it.
    const bool is_last = n_accepted == drafted;
    const std::size_t at = place + n_accepted;
    DraftedToken behind = {record.entropy[at], record.probability[at], 0};
    if (!is_last) behind = {draft_.entropies_nats.back(), draft_.probabilities.back(), 0};
    places.push_back(place_of(behind, is_last ? record.rank[at] : -1, emitted));
    const Outcome outcome = {accepted, emitted, 0};
    const std::vector<Outcome> prepared = outcomes_.most_likely(places, setting_.ahead);
    const bool is_hit = std::any_of(prepared.begin(), prepared.end(), [&](const Outcome& each) {
        return each.accepted == accepted && each.next == emitted;
    });
    outcomes_.learn(places, outcome);
    const double pass = std::max(setting_.costs.t_draft, 1e-9);
    const double target = setting_.costs.target_seconds(static_cast<int>(drafted) + 1);
    const int passes = static_cast<int>(std::min(target / pass, 1e6)); // the first finds the outcomes
    ahead_.rounds = 1;
    ahead_.hits = is_hit ? 1 : 0;
    ahead_.outcomes = static_cast<std::int64_t>(prepared.size());
    ahead_.passes = std::min(passes, setting_.rule.max_tokens + 1);
    if (is_hit) free_passes_ = std::max(passes - 1, 0);
}

// Only the emitted candidate needs to be known. `index` is its rank among the candidates; -1: it is not among them.
Place Replay::place_of(const DraftedToken& first, std::int32_t index, TokenId emitted) const {
    Place place = {first, {}};
    for (int i = 0; i <= setting_.ahead; ++i)
        place.candidates.push_back(i == index ? emitted : -2 - i);
    return place;
}

// `task` is the task of the text's first round.
void Replay::plan_oracle(const TextRecord& text, DraftTask task) {
    const int left = task.left_tokens;
    std::vector<PlaceChain> places;
    for (int place = 0; place < text.new_tokens; ++place) {
        const auto at = static_cast<std::size_t>(place);
        task.tokens = std::span(tokens_).first(text.prompt.size() + at);
        task.left_tokens = left - place;
        task.max_tokens = std::min(setting_.rule.max_tokens, task.left_tokens);
        draft_tokens(text, task, at, setting_.rule.max_tokens);
        const std::vector<int> path = accepted_path(draft_, std::span(text.token).subspan(at));
        places.push_back({static_cast<int>(draft_.tokens.size()), static_cast<int>(path.size())});
    }
    oracle_drafts_ = cheapest_drafts(places, setting_.costs);
}

// Drafts as with a rule that ends the draft after `wanted` tokens.
void Replay::draft_tokens(const TextRecord& text, const DraftTask& task, std::size_t place, int wanted) {
    const int most = begin_draft(task, context(task.tokens.size()));
    std::optional<std::size_t> last;
    for (std::size_t at = place; draft_.end == DraftEnd::none && static_cast<int>(draft_.tokens.size()) < wanted;
         ++at) {
        if (at >= text.drafts[setting_.draft].places()) return;
        const Proposed next = proposed(text, last, at);
        ++draft_.passes;
        if (next.token < 0) {
            draft_.end = DraftEnd::no_match;
            return;
        }
        draft_.add(next.token, next.seen);
        draft_.end = limits_.why_end(task, most, DraftEnd::none);
    }
}

std::vector<Simulated> simulate(const RecordingHead& head, std::span<const TextRecord* const> texts,
                                std::span<const ReplaySetting> settings, int threads) {
    std::vector<Simulated> results(settings.size());
    const auto run = [&](const ReplaySetting& setting, Simulated& simulated) {
        simulated.setting = setting;
        Replay replay(head, setting);
        for (const TextRecord* text : texts) {
            const Stats stats = replay.replay(*text);
            simulated.texts.push_back({stats.new_tokens, predicted_seconds(stats, setting.costs)});
            simulated.stats += stats;
        }
    };
    std::atomic<std::size_t> next = 0;
    std::exception_ptr failure;
    std::mutex failing;
    const auto work = [&] {
        for (std::size_t i = next++; i < settings.size(); i = next++) {
            try {
                run(settings[i], results[i]);
            } catch (...) {
                const std::lock_guard lock(failing);
                if (!failure) failure = std::current_exception();
                next = settings.size();
            }
        }
    };
    std::vector<std::jthread> others;
    for (int i = 1; i < std::min(threads, static_cast<int>(settings.size())); ++i)
        others.emplace_back(work);
    work();
    others.clear();
    if (failure) std::rethrow_exception(failure);
    return results;
}

} // namespace entrodraft::spec
