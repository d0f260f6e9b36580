// Records of texts: see recorder.h.
#include "spec/replay/recorder.h"

#include "model/cpu/kernels.h"
#include "spec/replay/tree_recorder.h"
#include "spec/round/round.h"
#include "spec/verify/random.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace entrodraft::spec {

using model::LogitStats;

namespace {

constexpr std::size_t kChunk = 32; // places whose rows are held at once
constexpr int kSlot = 0;
constexpr Acceptance kAcceptance = Acceptance::gumbel; // for greedy text too, which has no noise
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kExcluded = -std::numeric_limits<double>::infinity();
constexpr float kExcludedLog = -std::numeric_limits<float>::infinity();

// Log-probabilities of the raw distribution. `seen` holds the processed `logits`, -inf for a banned token.
void log_softmax(std::span<const float> logits, const SeenLogits& seen, std::vector<float>& to) {
    const double log_sum = seen.stats.log_sum_exp();
    to.resize(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i)
        to[i] = seen.logits[i] == kExcludedLog ? kExcludedLog
                                               : static_cast<float>(static_cast<double>(logits[i]) - log_sum);
}

// -sum p log q, nats.
double cross_entropy(std::span<const float> log_p, std::span<const float> log_q) {
    double sum = 0;
    for (std::size_t i = 0; i < log_p.size(); ++i)
        if (log_p[i] != kExcludedLog) sum -= std::exp(static_cast<double>(log_p[i])) * static_cast<double>(log_q[i]);
    return sum;
}

} // namespace

// A draft and its state.
struct Recorder::Reader {
    Reader(model::Decoder& draft, const RecorderOptions& options)
        : model(std::make_unique<ModelTexts>(draft, options.draft_slots, options.limits.vocab_size)),
          trees(options.trees, options.limits, *model, false) {}
    Reader(const HeadModules& modules, const RecorderOptions& options)
        : head(make_head_source(modules, options.limits.vocab_size, 1)),
          trees(options.trees, options.limits, *head, true) {}

    TreeSource& source() const { return model ? *model : *head; }

    std::unique_ptr<ModelTexts> model;
    std::unique_ptr<TreeSource> head; // in place of `model`
    std::size_t n_handed = 0;         // positions of the text whose hidden states the head has
    TreeRecorder trees;
    TokenChooser chooser;
    std::vector<float> log_q;
    std::vector<float> adjusted;
};

// The tokens that a draft drafts after its token of a place.
struct Recorder::Chain {
    std::size_t place = 0;
    int slot = kSlot;
    std::size_t most = 0; // most tokens of the chain
    std::vector<TokenId> text;
    std::vector<TokenId> tokens;
    std::vector<DraftedToken> seen;
    bool has_ended = false;
};

Recorder::Recorder(const RecorderOptions& options, const EngineParts& parts, std::span<model::Decoder* const> drafts,
                   const HeadModules* head)
    : options_(options), parts_(parts),
      gather_(gather_setting({.acceptance = {}, .vocab_size = options.limits.vocab_size, .whole_rows = true}, parts),
              *parts.replica, 1),
      p_(kChunk), adjusted_(kChunk) {
    if (options.draft_slots < 2) throw std::invalid_argument("a draft that is recorded needs two slots of its cache");
    for (model::Decoder* draft : drafts)
        readers_.push_back(std::make_unique<Reader>(*draft, options));
    if (head) readers_.push_back(std::make_unique<Reader>(*head, options));
}
Recorder::~Recorder() = default;

void Recorder::record(TextRecord* record, const Request* request) {
    request_ = request;
    noisy_ = request && !request->sampling.greedy();
    std::size_t prompt_tokens = 0;
    tokens_ = broadcast(record, request, prompt_tokens);
    const std::size_t places = tokens_.size() - prompt_tokens;
    gather_.begin_sequence(kSlot, Request{});
    hidden_.clear();
    if (record) {
        chooser_.begin_sequence(*request, options_.limits.eos_tokens);
        record->drafts.assign(readers_.size(), {});
        for (std::size_t d = 0; d < readers_.size(); ++d) {
            Reader* const reader = readers_[d].get();
            reader->trees.begin_text(*request, *record, record->drafts[d]);
            reader->source().begin_sequence(kSlot, *request);
            reader->n_handed = 0;
            reader->source().prefill(kSlot, std::span(tokens_).first(prompt_tokens));
            reader->chooser.begin_sequence(*request, options_.limits.eos_tokens);
        }
    }
    read_prompt(tokens_, prompt_tokens);
    for (std::size_t first = 0; first < places; first += kChunk) {
        const std::size_t n = std::min(kChunk, places - first);
        enter(first);
        const std::vector<TargetRows> rows = score(tokens_, prompt_tokens + first, n);
        if (!record) continue;
        note_target(*record, *request, rows.front(), first, n);
        for (std::size_t d = 0; d < readers_.size(); ++d)
            note_draft(*readers_[d], record->drafts[d], *record, first, n);
    }
    for (std::size_t d = 0; record && d < readers_.size(); ++d) {
        if (readers_[d]->model) follow_astray(*readers_[d], record->drafts[d], *record);
        if (readers_[d]->head || !options_.trees.empty()) follow_rounds(*readers_[d], record->drafts[d], *record);
    }
    if (record)
        goes_on(false);
    else
        while (goes_on(false))
            enter(places);
}

// Reports progress, so that the watchdog does not take a long text for a stuck one.
void Recorder::enter(std::size_t place) {
    if (parts_.watch) parts_.watch->enter(place, "record");
}

// Broadcasts whether the coordinator has one more piece of work, which the other ranks wait for. Collective.
bool Recorder::goes_on(bool has_more) {
    std::uint8_t more = has_more ? 1 : 0;
    parts_.replica->broadcast(&more, 1, dist::RankLayout::kCoordinatorReplicaRank,
                              dist::Deadline::after_seconds(options_.timeout_seconds));
    return more == 1;
}

// Broadcasts prompt, text and source. Returns prompt and text. Collective.
std::vector<TokenId> Recorder::broadcast(const TextRecord* record, const Request* request, std::size_t& prompt_tokens) {
    std::uint64_t sizes[3] = {0, 0, 0};
    std::vector<TokenId> tokens;
    if (record) {
        tokens = request->prompt;
        tokens.insert(tokens.end(), record->token.begin(), record->token.end());
        sizes[0] = request->prompt.size();
        sizes[1] = tokens.size();
        source_ = request->source;
        sizes[2] = source_.size();
    }
    constexpr int kRoot = dist::RankLayout::kCoordinatorReplicaRank;
    const auto deadline = [&] { return dist::Deadline::after_seconds(options_.timeout_seconds); };
    parts_.replica->broadcast(sizes, sizeof sizes, kRoot, deadline());
    tokens.resize(sizes[1]);
    parts_.replica->broadcast(tokens.data(), tokens.size() * sizeof(TokenId), kRoot, deadline());
    source_.resize(sizes[2]);
    if (!source_.empty())
        parts_.replica->broadcast(source_.data(), source_.size() * sizeof(TokenId), kRoot, deadline());
    prompt_tokens = sizes[0];
    return tokens;
}

// Reads all of the prompt but its last token, whose row decides place 0.
void Recorder::read_prompt(std::span<const TokenId> tokens, std::size_t prompt_tokens) {
    if (!parts_.target) return;
    parts_.target->cache().truncate(kSlot, 0);
    if (!source_.empty()) parts_.target->encode(kSlot, source_);
    const std::size_t end = prompt_tokens - 1;
    std::vector<model::Row> rows;
    for (std::size_t done = 0; done < end;) {
        rows.clear();
        const std::size_t n = std::min(end - done, static_cast<std::size_t>(parts_.target->max_prompt_rows()));
        for (std::size_t i = 0; i < n; ++i)
            rows.push_back({tokens[done + i], kSlot, static_cast<int>(done + i), static_cast<int>(i) - 1});
        keep_hidden(
            parts_.target->forward(
                {.rows = rows, .hidden_layers = parts_.hidden_layers, .mask = model::Mask::causal, .is_prompt = true}),
            n);
        done += n;
    }
}

// The target's rows that decide the tokens at positions [first, first + n), on the coordinator. Collective.
std::vector<TargetRows> Recorder::score(std::span<const TokenId> tokens, std::size_t first, std::size_t n) {
    if (parts_.target) {
        std::vector<model::Row> rows;
        std::vector<int> logit_rows(n);
        std::iota(logit_rows.begin(), logit_rows.end(), 0);
        for (std::size_t i = 0; i < n; ++i)
            rows.push_back({tokens[first + i - 1], kSlot, static_cast<int>(first + i) - 1, static_cast<int>(i) - 1});
        scores_ = parts_.target->forward({.rows = rows,
                                          .logit_rows = logit_rows,
                                          .hidden_layers = parts_.hidden_layers,
                                          .mask = model::Mask::causal});
        keep_hidden(scores_, n);
    }
    const ScoredSequence sequence = {kSlot, 0, tokens.first(first), tokens.subspan(first, n - 1), chain_parents(n - 1)};
    gather_.start(0, std::span(&sequence, 1), scores_);
    return gather_.finish(dist::Deadline::after_seconds(options_.timeout_seconds));
}

void Recorder::note_target(TextRecord& record, const Request& request, const TargetRows& rows, std::size_t first,
                           std::size_t n) {
    const std::span<const TokenId> tokens(tokens_);
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t place = first + i, position = request.prompt.size() + place;
        const std::span<const float> row = rows.logits(i);
        const LogitStats head = model::kernels::best_kernels().logit_stats(row.data(), static_cast<int>(row.size()), 0);
        const SeenLogits seen = chooser_.see(row, head, tokens.first(position), true);
        const TokenId token = record.token[place];
        const BestToken best = chooser_.best(seen, position, kAcceptance);
        if (best.token != token)
            throw std::runtime_error(fmt::format(
                "place {} of the text of id {}: the target emits another token than it did when the text was decoded",
                place, request.id));
        log_softmax(row, seen, p_[i]);
        record.target_entropy.push_back(static_cast<float>(seen.stats.entropy_nats()));
        record.target_log_probability.push_back(p_[i][token]);
        record.target_margin.push_back(static_cast<float>(best.margin()));
        if (!noisy_) continue;
        adjusted_[i].resize(row.size());
        chooser_.distribution(seen, adjusted_[i]);
    }
}

// ---- hidden states for a head ----

void Recorder::keep_hidden(const model::PassResult& result, std::size_t n_rows) {
    if (parts_.hidden_layers.empty() || readers_.empty()) return;
    std::vector<int> all(n_rows);
    std::iota(all.begin(), all.end(), 0);
    const auto states = hidden_of_rows(result, all, parts_.hidden_layers.size(), *parts_.target_config);
    hidden_.insert(hidden_.end(), states.begin(), states.end());
}

// Hands the head the states that a round at the place would have: of all tokens before the place but the last.
void Recorder::hand_hidden(Reader& reader, std::size_t place) {
    const std::size_t width = parts_.hidden_layers.size() * static_cast<std::size_t>(parts_.target_config->hidden_size);
    const std::size_t end = request_->prompt.size() + place - 1;
    const auto states = std::span(hidden_).subspan(reader.n_handed * width, (end - reader.n_handed) * width);
    if (!states.empty()) reader.head->take_hidden(kSlot, static_cast<int>(reader.n_handed), states);
    reader.n_handed = end;
}

// ---- rows of places ----

// Notes the draft's rows of places [first, first + n), as far as its context goes.
void Recorder::note_draft(Reader& reader, DraftRecord& draft, const TextRecord& record, std::size_t first,
                          std::size_t n) {
    const std::size_t prompt_tokens = tokens_.size() - record.places(), context = reader.source().facts().context;
    const std::size_t end = std::min(first + n, context + 1 - std::min(context + 1, prompt_tokens));
    if (end <= first) return;
    if (reader.head) return note_places_of_head(reader, draft, record, first, end - first);
    const TextEnd text = {kSlot, std::span(tokens_).first(prompt_tokens + end - 1), end - first};
    const SourceLogits rows =
        reader.model->rows_after(std::span(&text, 1), reader.chooser.needs(true, kAcceptance).with_rows());
    for (std::size_t i = 0; i < end - first; ++i)
        note_place(reader, draft, record, first + i, rows.row(i), rows.summary(i));
}

// Reads places one by one: each row is the first of a round. A text of one token has no hidden states yet, so no row.
void Recorder::note_places_of_head(Reader& reader, DraftRecord& draft, const TextRecord& record, std::size_t first,
                                   std::size_t n) {
    for (std::size_t place = first; place < first + n; ++place) {
        hand_hidden(reader, place);
        if (reader.n_handed == 0) {
            note_no_row(reader, draft);
            continue;
        }
        const TextEnd text = {kSlot, std::span(tokens_).first(request_->prompt.size() + place), 1};
        const SourceLogits row =
            reader.head->rows_after(std::span(&text, 1), reader.chooser.needs(true, kAcceptance).with_rows());
        note_place(reader, draft, record, place, row.row(0), row.summary(0));
    }
}

// The token that the draft chooses from a row, and its figures for rules; -1 if every token is banned.
std::pair<TokenId, DraftedToken> Recorder::chosen_of(const Reader& reader, const SeenLogits& seen,
                                                     std::span<const float> row, std::size_t position) {
    if (seen.is_dead) return {-1, {}};
    const BestToken best = reader.chooser.best(seen, position, kAcceptance);
    DraftedToken known = drafted_token(seen.stats, row[best.token]);
    known.margin = static_cast<float>(best.margin());
    return {best.token, known};
}

void Recorder::note_place(Reader& reader, DraftRecord& draft, const TextRecord& record, std::size_t place,
                          std::span<const float> row, const LogitStats& summary) {
    const std::size_t position = tokens_.size() - record.places() + place, in_chunk = place % kChunk;
    const auto emitted = static_cast<std::size_t>(record.token[place]);
    const SeenLogits seen = reader.chooser.see(row, summary, std::span(tokens_).first(position), true);
    const auto [token, known] = chosen_of(reader, seen, row, position);
    const Ranking ranking(seen.logits, *request_, position, noisy_);
    draft.token.push_back(token);
    draft.entropy.push_back(known.entropy_nats);
    draft.probability.push_back(known.probability);
    log_softmax(row, seen, reader.log_q);
    draft.log_probability.push_back(reader.log_q[emitted]);
    draft.cross_entropy.push_back(static_cast<float>(cross_entropy(p_[in_chunk], reader.log_q)));
    double overlap = token == record.token[place] ? 1 : 0;
    if (noisy_ && token >= 0) {
        reader.adjusted.resize(row.size());
        reader.chooser.distribution(seen, reader.adjusted);
        overlap = acceptance_chance(adjusted_[in_chunk], reader.adjusted, 1);
    }
    draft.overlap.push_back(static_cast<float>(overlap));
    draft.margin.push_back(known.margin);
    draft.rank.push_back(ranking.rank(record.token[place]));
    std::vector<TokenId> top = ranking.first(DraftRecord::kTop);
    top.resize(DraftRecord::kTop, -1);
    for (const TokenId each : top) {
        draft.top_token.push_back(each);
        draft.top_log_probability.push_back(each < 0 ? kExcludedLog : reader.log_q[each]);
    }
    if (!options_.trees.empty()) reader.trees.add_place(RowOfText{row, summary, std::span(tokens_).first(position)});
}

void Recorder::note_no_row(Reader& reader, DraftRecord& draft) const {
    draft.token.push_back(-1);
    draft.entropy.push_back(0);
    draft.probability.push_back(0);
    draft.log_probability.push_back(kExcludedLog);
    draft.cross_entropy.push_back(std::numeric_limits<float>::infinity());
    draft.overlap.push_back(0);
    draft.margin.push_back(kNan);
    draft.rank.push_back(-1);
    draft.top_token.insert(draft.top_token.end(), DraftRecord::kTop, -1);
    draft.top_log_probability.insert(draft.top_log_probability.end(), DraftRecord::kTop, kExcludedLog);
    if (!options_.trees.empty()) reader.trees.add_place(std::nullopt);
}

// ---- chains of drafts ----

// Begins one more piece of the coordinator's work: the other ranks wait for one piece at a time.
void Recorder::enter_next(std::size_t place) {
    goes_on(true);
    enter(place);
}

Recorder::Chain Recorder::chain_of(const Reader& reader, const DraftRecord& draft, const TextRecord& record,
                                   std::size_t place) const {
    const std::size_t prompt_tokens = record.prompt.size();
    const auto cap = static_cast<std::size_t>(options_.max_draft_tokens);
    // The last token within budget and context is never drafted (coordinator.cpp), and the draft reads at most its own
    // context.
    const auto positions = static_cast<std::size_t>(parts_.target_config->max_positions);
    const std::size_t budget = std::min(static_cast<std::size_t>(record.max_new_tokens), positions - prompt_tokens);
    const std::size_t room = reader.source().context_of(kSlot) + 1;
    const std::size_t end = std::min(budget - 1, room - std::min(room, prompt_tokens)); // after the last place
    const TokenId token = draft.token[place];
    const std::vector<TokenId>& eos = options_.limits.eos_tokens;
    const bool is_end = !record.ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end();
    Chain chain;
    chain.place = place;
    chain.most = std::min(cap - 1, end - std::min(end, place + 1));
    chain.has_ended = token < 0 || is_end || chain.most == 0;
    const auto begin = tokens_.begin();
    chain.text.assign(begin, begin + static_cast<std::ptrdiff_t>(prompt_tokens + place));
    chain.text.push_back(token);
    return chain;
}

void Recorder::add(const Chain& chain, DraftRecord& draft) {
    draft.astray_length.push_back(static_cast<std::int32_t>(chain.tokens.size()));
    draft.astray_token.insert(draft.astray_token.end(), chain.tokens.begin(), chain.tokens.end());
    for (const DraftedToken& seen : chain.seen) {
        draft.astray_entropy.push_back(seen.entropy_nats);
        draft.astray_probability.push_back(seen.probability);
        draft.astray_margin.push_back(seen.margin);
    }
}

// Follows a model's rejected tokens, several chains in a pass.
void Recorder::follow_astray(Reader& reader, DraftRecord& draft, const TextRecord& record) {
    std::vector<Chain> chains;
    for (std::size_t place = 0; place < draft.places(); ++place)
        if (draft.token[place] != record.token[place]) chains.push_back(chain_of(reader, draft, record, place));
    const auto together = static_cast<std::size_t>(options_.draft_slots) - 1;
    for (std::size_t first = 0; first < chains.size(); first += together) {
        const std::span<Chain> some = std::span(chains).subspan(first, std::min(together, chains.size() - first));
        enter_next(some.front().place);
        for (std::size_t i = 0; i < some.size(); ++i) {
            some[i].slot = static_cast<int>(i) + 1;
            if (!some[i].has_ended) reader.model->share(kSlot, some[i].slot, some[i].text.size() - 1);
        }
        follow_together(reader, some);
        for (const Chain& chain : some)
            reader.model->clear(chain.slot);
    }
    for (const Chain& chain : chains)
        add(chain, draft);
}

// Drafts at each place as a round there would: a head's chain, and trees.
void Recorder::follow_rounds(Reader& reader, DraftRecord& draft, const TextRecord& record) {
    reader.source().begin_sequence(kSlot, *request_);
    reader.n_handed = 0;
    for (std::size_t place = 0; place < draft.places(); ++place) {
        if (reader.head) {
            hand_hidden(reader, place);
            enter_next(place);
            Chain chain = chain_of(reader, draft, record, place);
            const TextEnd text = {kSlot, std::span(tokens_).first(record.prompt.size() + place), 1};
            if (!chain.has_ended) reader.head->rows_after(std::span(&text, 1), model::LogitSummary::entropy);
            follow_together(reader, std::span(&chain, 1));
            add(chain, draft);
        }
        if (!options_.trees.empty() && place < static_cast<std::size_t>(record.new_tokens))
            reader.trees.follow(place, tokens_, parts_.target_config->max_positions, [&] { enter_next(place); });
    }
}

// Drafts all chains together, each in its slot, until all have ended.
void Recorder::follow_together(Reader& reader, std::span<Chain> chains) {
    const std::vector<TokenId>& eos = options_.limits.eos_tokens;
    std::vector<TextEnd> ends;
    std::vector<Chain*> going;
    for (;;) {
        ends.clear();
        going.clear();
        for (Chain& chain : chains) {
            if (chain.has_ended) continue;
            ends.push_back({chain.slot, chain.text, 1});
            going.push_back(&chain);
        }
        if (going.empty()) return;
        const SourceLogits rows = reader.source().rows_after(ends, reader.chooser.needs(true, kAcceptance).with_rows());
        for (std::size_t i = 0; i < going.size(); ++i) {
            Chain& chain = *going[i];
            const SeenLogits seen = reader.chooser.see(rows.row(i), rows.summary(i), chain.text, true);
            const auto [token, known] = chosen_of(reader, seen, rows.row(i), chain.text.size());
            chain.tokens.push_back(token);
            chain.seen.push_back(known);
            const bool is_end = std::find(eos.begin(), eos.end(), token) != eos.end() && !request_->ignore_eos;
            chain.has_ended = token < 0 || is_end || chain.tokens.size() == chain.most;
            chain.text.push_back(token);
        }
    }
}

// ---- ranks of a row's tokens ----

Ranking::Ranking(std::span<const float> logits, const Request& request, std::uint64_t position, bool noisy)
    : values_(logits.begin(), logits.end()) {
    if (!noisy) return;
    const SamplingOptions& sampling = request.sampling;
    std::vector<float> left(logits.begin(), logits.end());
    if (gumbel_gather(sampling) != GumbelGather::best) adjust(logits, sampling, left);
    const bool filters = gumbel_gather(sampling) != GumbelGather::best;
    const GumbelNoise noise(sampling.seed, request.sequence_key);
    for (std::size_t token = 0; token < values_.size(); ++token) {
        const bool is_left = filters ? left[token] > 0 : std::isfinite(logits[token]);
        values_[token] = is_left
                             ? values_[token] / sampling.temperature + noise.at(position, static_cast<TokenId>(token))
                             : kExcluded;
    }
}

std::vector<TokenId> Ranking::first(std::size_t n) const {
    std::vector<TokenId> tokens(values_.size());
    std::iota(tokens.begin(), tokens.end(), 0);
    const auto goes_before = [&](TokenId a, TokenId b) {
        const double of_a = values_[a], of_b = values_[b];
        return of_a > of_b || (of_a == of_b && a < b);
    };
    const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(std::min(n, tokens.size()));
    std::partial_sort(tokens.begin(), end, tokens.end(), goes_before);
    tokens.erase(end, tokens.end());
    while (!tokens.empty() && values_[tokens.back()] == kExcluded)
        tokens.pop_back();
    return tokens;
}

std::int32_t Ranking::rank(TokenId token) const {
    const double own = values_[token];
    if (own == kExcluded) return -1;
    std::int32_t before = 0;
    for (std::size_t i = 0; i < values_.size(); ++i)
        before += values_[i] > own || (values_[i] == own && static_cast<TokenId>(i) < token) ? 1 : 0;
    return before;
}

} // namespace entrodraft::spec
