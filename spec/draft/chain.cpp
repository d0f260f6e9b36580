// Runs the draft loop: each token takes one pass over a source of logits, until the stop rule has enough. If sequences
// share the source's passes, each pass has one row of every sequence that goes on, so the weights are read once for
// all. Each sequence has its own rule, and drops out when its rule fires.
#include "spec/draft/chain.h"

#include "spec/draft/token_guesses.h"
#include "spec/draft/token_table.h"
#include "spec/gpu/device_round.h"
#include "spec/verify/random.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace entrodraft::spec {

void SourceLogits::take_tokens(std::span<const TokenId> tokens, std::vector<float>& memory) {
    const std::size_t n_rows = logits.size() / stride;
    memory.assign(n_rows * vocab, -std::numeric_limits<float>::infinity());
    for (std::size_t row = 0; row < n_rows; ++row)
        for (std::size_t i = 0; i < tokens.size(); ++i)
            if (const auto token = static_cast<std::size_t>(tokens[i]); token < vocab)
                memory[row * vocab + token] = logits[row * stride + i];
    logits = memory;
    stride = vocab;
}

// ---- sources that keep nothing of a text ----

namespace {

class FunctionSource final : public LogitSource {
  public:
    FunctionSource(std::string name, int vocab, FillLogits fill, std::size_t weight_bytes)
        : LogitSource({.name = std::move(name), .weight_bytes = weight_bytes}), vocab_(static_cast<std::size_t>(vocab)),
          fill_(std::move(fill)) {}

    SourceLogits rows_after(std::span<const TextEnd> texts, model::LogitNeeds needs) override {
        summaries_.clear();
        std::size_t n_rows = 0;
        for (const TextEnd& text : texts)
            for (std::size_t i = text.n; i > 0; --i) {
                logits_.resize(std::max(logits_.size(), ++n_rows * vocab_));
                const auto row = std::span(logits_).subspan((n_rows - 1) * vocab_, vocab_);
                fill_(text.tokens.first(text.tokens.size() - i + 1), row);
                if (needs.summary != model::LogitSummary::none)
                    summaries_.push_back(
                        model::kernels::best_kernels().logit_stats(row.data(), static_cast<int>(vocab_), 0));
            }
        return {logits_, vocab_, vocab_, summaries_};
    }

  private:
    std::size_t vocab_;
    FillLogits fill_;
    std::vector<float> logits_; // [most rows so far][vocab]
    std::vector<model::LogitStats> summaries_;
};

} // namespace

std::unique_ptr<LogitSource> make_function_source(std::string name, int vocab, FillLogits fill,
                                                  std::size_t weight_bytes) {
    return std::make_unique<FunctionSource>(std::move(name), vocab, std::move(fill), weight_bytes);
}

std::unique_ptr<LogitSource> make_table_source(const TokenTable& table, int order, int vocab) {
    if (order != 1 && order != 2) throw std::invalid_argument("a table knows unigrams and bigrams alone");
    const auto fill = [&table, order](std::span<const TokenId> text, std::span<float> logits) {
        table.row(order, text.back(), logits);
    };
    // The cost of a row: the vocabulary is read once.
    return make_function_source(order == 1 ? "unigram" : "bigram", vocab, fill,
                                static_cast<std::size_t>(vocab) * sizeof(float));
}

// ---- one model's choices ----

using model::LogitStats;

DraftedToken drafted_token(const LogitStats& stats, float logit) {
    return {static_cast<float>(stats.entropy_nats()), static_cast<float>(stats.probability(logit)), 0};
}

DraftedToken drafted_token(std::span<const float> adjusted, TokenId token) {
    return {static_cast<float>(entropy_nats(adjusted)), adjusted[token], 0};
}

void TokenChooser::begin_sequence(const Request& request, std::span<const TokenId> eos_tokens) {
    request_ = &request;
    processor_.reset();
    if (!request.processing.is_off())
        processor_.emplace(request.processing, request.prompt, eos_tokens, request.source);
}

model::LogitNeeds TokenChooser::needs(bool whole_distribution, Acceptance acceptance) const {
    if (processor_) return {};
    const bool rows = !request_->sampling.greedy();
    if (whole_distribution) return {model::LogitSummary::entropy, rows};
    return {draws(acceptance) ? model::LogitSummary::none : model::LogitSummary::max, rows};
}

std::optional<TokenId> TokenChooser::only_token(std::span<const TokenId> prefix) {
    if (!processor_ || !request_->processing.constraint.is_on()) return std::nullopt;
    processor_->follow(prefix);
    return processor_->only_token();
}

SeenLogits TokenChooser::see(std::span<const float> logits, const LogitStats& head, std::span<const TokenId> prefix,
                             bool whole_distribution) {
    if (!processor_) return {logits, head, head.max == -std::numeric_limits<float>::infinity()};
    processor_->follow(prefix);
    processed_.assign(logits.begin(), logits.end());
    processor_->ban(processed_);
    const model::kernels::Kernels& kernels = model::kernels::best_kernels();
    const auto summarise = whole_distribution ? kernels.logit_stats : kernels.logit_max;
    const LogitStats stats = summarise(processed_.data(), static_cast<int>(processed_.size()), 0);
    processor_->weigh(processed_);
    return {processed_, stats, stats.max == -std::numeric_limits<float>::infinity()};
}

model::RowNoise TokenChooser::noise(std::uint64_t position, Acceptance acceptance) const {
    const SamplingOptions& sampling = request_->sampling;
    if (processor_ || acceptance != Acceptance::gumbel || sampling.greedy()) return {};
    if (gumbel_gather(sampling) != GumbelGather::best) return {};
    return {GumbelNoise(sampling.seed, request_->sequence_key).key(), position, sampling.temperature};
}

model::RowNoise TokenChooser::device_noise(std::uint64_t position, std::uint64_t round_start,
                                           const ChoiceSetting& setting) const {
    const RandomStream random(setting.seed, setting.random_key, Purpose::draft_sample, setting.level);
    return {random.key(), noise_position(position, round_start), request_->sampling.temperature};
}

BestToken TokenChooser::best(const SeenLogits& row, std::uint64_t position, Acceptance acceptance,
                             const model::NoisyToken* noisy) const {
    const SamplingOptions& sampling = request_->sampling;
    if (noisy) return {noisy->value, noisy->token, noisy->runner_up};
    if (acceptance == Acceptance::gumbel && !sampling.greedy())
        return gumbel_max_adjusted({row.logits, 0, position}, sampling,
                                   GumbelNoise(sampling.seed, request_->sequence_key));
    if (!processor_) return arg_max_of(row.stats);
    const auto n = static_cast<int>(row.logits.size());
    return arg_max_of(model::kernels::best_kernels().logit_max(row.logits.data(), n, 0));
}

void TokenChooser::distribution(const SeenLogits& row, std::span<float> q) const {
    constexpr SamplingOptions kPlain = {.temperature = 1};
    adjust(row.logits, request_->sampling.greedy() ? kPlain : request_->sampling, q);
}

TokenId TokenChooser::sample_of(std::span<const float> q, std::uint64_t position, std::uint64_t round_start,
                                const ChoiceSetting& setting) const {
    const RandomStream random(setting.seed, setting.random_key, Purpose::draft_sample, setting.level);
    return sample(q, random.uniform(position, 0, static_cast<std::uint32_t>(round_start)));
}

// ---- a phase of one text ----

void ChainPhase::begin(const DraftTask& task, std::size_t context, const DraftLimits& limits, TokenChooser& chooser,
                       const ChainRows& rows) {
    task_ = task;
    limits_ = &limits;
    chooser_ = &chooser;
    max_ = begin_draft(task, context);
    adjusted_ = task.rule->options().looks_at_adjusted();
    whole_ = rows.are_looked_at || task.rule->options().looks_at_distribution();
    draws_ = chooser.draws(task.choice.acceptance) && !task.verified_on_device;
    skips_rows_ = !rows.are_all_made;
    text_.assign(task.tokens.begin(), task.tokens.end());
}

// A row would give such a token all of the probability, and so does the target's row: it costs no pass.
void ChainPhase::take_only_tokens() {
    constexpr PassCost kFree = {0, 0};
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    Draft& draft = *task_.draft;
    while (draft.end == DraftEnd::none) {
        const std::optional<TokenId> token = chooser_->only_token(text_);
        if (!token) return;
        if (!task_.rule->wants_another(kFree)) {
            draft.end = task_.rule->end();
            return;
        }
        const auto vocab = static_cast<std::size_t>(limits_->vocab_size);
        if (draws_) {
            q_.resize(draft.tokens.size() * vocab);
            q_.resize(q_.size() + vocab, 0.0F);
            q_[q_.size() - vocab + static_cast<std::size_t>(*token)] = 1;
        }
        if (limits_->take(task_, max_, *token, {0, 1, 0, kInfinity})) text_.push_back(*token);
    }
}

bool ChainPhase::wants_row(const PassCost& cost) {
    if (skips_rows_) take_only_tokens();
    if (task_.draft->end != DraftEnd::none) return false;
    if (task_.rule->wants_another(cost)) return true;
    task_.draft->end = task_.rule->end();
    return false;
}

model::LogitNeeds ChainPhase::needs(DeviceRound* device) {
    const ChoiceSetting& choice = task_.choice;
    model::LogitNeeds all = chooser_->needs(whole_ && !adjusted_, choice.acceptance);
    if (adjusted_) return all.with_rows(); // a device that goes on by itself knows raw distributions alone
    if (task_.verified_on_device) {
        noise_ = chooser_->device_noise(text_.size(), task_.tokens.size(), choice);
        all.summary = std::max(all.summary, model::LogitSummary::max); // the device uses it
    } else {
        noise_ = noise(0);
    }
    if (noise_.temperature > 0) {
        all.noises = std::span(&noise_, 1);
        all.rows = false;
    }
    if (all.rows || !device) return all;
    const int drafted = static_cast<int>(task_.draft->tokens.size());
    DeviceStopRule rule = task_.rule->forecast(max_ - drafted);
    if (!knows_margins()) rule.weights[DeviceStopRule::kOfMargin] = 0;
    all.extension = device->draft(rule, task_.verified_on_device ? drafted : -1);
    return all;
}

void ChainPhase::take(std::span<const float> logits, const model::LogitStats& summary, const dist::Clock& clock,
                      const model::NoisyToken* noisy, bool is_further) {
    Draft& draft = *task_.draft;
    draft.passes += is_further ? 0 : 1;
    const SeenLogits row = chooser_->see(logits, summary, text_, whole_);
    if (row.is_dead) {
        draft.end = DraftEnd::no_match;
        return;
    }
    const BestToken chosen = choose(row, noisy);
    const TokenId token = chosen.token;
    const double before = clock.now_seconds();
    DraftedToken seen;
    if (adjusted_)
        seen = seen_adjusted(row, token);
    else if (whole_)
        seen = drafted_token(row.stats, noisy ? noisy->logit : logits.empty() ? row.stats.max : logits[token]);
    if (whole_ && knows_margins()) seen.margin = static_cast<float>(chosen.margin());
    if (limits_->take(task_, max_, token, seen)) text_.push_back(token);
    draft.entropy_seconds += clock.now_seconds() - before;
}

BestToken ChainPhase::choose(const SeenLogits& row, const model::NoisyToken* noisy) {
    const std::size_t step = task_.draft->tokens.size();
    const std::uint64_t position = task_.tokens.size() + step;
    if (!draws_) return chooser_->best(row, position, task_.choice.acceptance, noisy);
    q_.resize((step + 1) * row.logits.size());
    const std::span<float> q(q_.data() + step * row.logits.size(), row.logits.size());
    chooser_->distribution(row, q);
    return {.token = chooser_->sample_of(q, position, task_.tokens.size(), task_.choice)};
}

DraftedToken ChainPhase::seen_adjusted(const SeenLogits& row, TokenId token) {
    if (draws_) return drafted_token(std::span<const float>(q_).last(row.logits.size()), token);
    row_.resize(row.logits.size());
    chooser_->distribution(row, row_);
    return drafted_token(row_, token);
}

void ChainPhase::adopt() {
    text_.assign(task_.tokens.begin(), task_.tokens.end());
    text_.insert(text_.end(), task_.draft->tokens.begin(), task_.draft->tokens.end());
}

void ChainPhase::finish() {
    const std::size_t drafted = task_.draft->tokens.size();
    if (draws_)
        task_.draft->q = std::span<const float>(q_).first(drafted * static_cast<std::size_t>(limits_->vocab_size));
}

// ---- phases of the sequences of a round ----

namespace {

class ChainDrafter final : public Drafter {
  public:
    ChainDrafter(std::unique_ptr<LogitSource> source, const DraftSetting& setting, bool guesses)
        : Drafter(facts_of(source->facts())), source_(std::move(source)), setting_(setting),
          slots_(static_cast<std::size_t>(setting.n_slots)) {
        if (guesses) guesses_.emplace();
        // A head is left out: its rows may have fewer tokens.
        facts_.keeps_logits_on_device =
            slots_.size() == 1 && source_->facts().device != nullptr && source_->facts().hidden_layers.empty();
    }

    void begin_sequence(int slot, const Request& request) override {
        source_->begin_sequence(slot, request);
        of(slot).chooser.begin_sequence(request, setting_.limits.eos_tokens);
        of(slot).learnt.clear();
    }
    void prefill(int slot, std::span<const TokenId> prompt) override { source_->prefill(slot, prompt); }
    void observe(int slot, const TargetOutcome& outcome) override {
        if (!outcome.states.empty()) source_->take_hidden(slot, outcome.first_position, outcome.states);
    }
    void propose(std::span<const DraftTask> tasks) override {
        if (shares_passes()) return propose_together(tasks);
        for (const DraftTask& task : tasks)
            propose_together(std::span(&task, 1));
    }

  private:
    struct Slot {
        TokenChooser chooser;
        ChainPhase phase;
        double share = 0;            // of the passes of this round
        std::vector<TokenId> read;   // the text of the pass, with guessed tokens
        std::vector<TokenId> learnt; // the text as the guesses know it
    };

    Slot& of(int slot) { return slots_.at(slot); }
    bool shares_passes() const { return source_->facts().shares_passes && !setting_.takes_turns; }
    void propose_together(std::span<const DraftTask> tasks);
    void begin_phase(const DraftTask& task);
    void ask_rules(std::span<const DraftTask> tasks);
    bool wants_row(const DraftTask& task);
    double catch_up();
    void pass();
    void take_rows(const DraftTask& task, const TextEnd& end, const SourceLogits& rows, std::size_t first);
    TextEnd text_to_read(const DraftTask& task);
    void learn(Slot& slot, std::span<const TokenId> text);

    std::unique_ptr<LogitSource> source_;
    DraftSetting setting_;
    std::optional<TokenGuesses> guesses_;
    std::vector<Slot> slots_;
    std::vector<const DraftTask*> going_; // tasks that want another row
    std::vector<TextEnd> ends_;           // of these tasks
    std::vector<model::RowNoise> noises_; // of these tasks' rows
    int rows_ = 0, n_texts_ = 0;          // of the target's pass, with the rows that are about to be drafted
    double share_ = 1;                    // of a task that goes on, in the next pass
};

void ChainDrafter::propose_together(std::span<const DraftTask> tasks) {
    const double began = setting_.clock.now_seconds();
    going_.clear();
    for (const DraftTask& task : tasks) {
        source_->begin_round(task.slot, task.tokens.size());
        begin_phase(task);
        going_.push_back(&task);
    }
    ask_rules(tasks);
    const double caught_up = catch_up();
    int passes = 0;
    for (; !going_.empty(); ask_rules(tasks), ++passes)
        pass();
    const double seconds = setting_.clock.now_seconds() - began - caught_up;
    for (const DraftTask& task : tasks) { // each bears its share of the passes
        of(task.slot).phase.finish();
        const double part = passes > 0 ? of(task.slot).share / passes : 1 / static_cast<double>(tasks.size());
        task.draft->seconds = seconds * part - task.draft->entropy_seconds;
    }
}

// Tells the rule how much of the text the source has not read. For a new text, asks the rule how much to read.
void ChainDrafter::begin_phase(const DraftTask& task) {
    const bool is_new = source_->begin_within(task.slot, task.tokens, task.tokens.size());
    DraftTask own = task;
    own.round.unread = static_cast<int>(source_->unread(task.slot, task.tokens));
    own.round.may_begin_within = is_new;
    Slot& slot = of(task.slot);
    slot.share = 0;
    slot.phase.begin(own, source_->context_of(task.slot), setting_.limits, slot.chooser,
                     {.are_all_made = source_->facts().needs_each_row});
    if (is_new) source_->begin_within(task.slot, task.tokens, static_cast<std::size_t>(task.rule->round().unread) + 1);
    if (guesses_) learn(slot, task.tokens);
}

// Reads the unread tokens of the texts that draft, if these are more than the first pass may bear. A text that takes
// several rounds to read drafts later. Returns the seconds of all.
double ChainDrafter::catch_up() {
    constexpr std::size_t kFew = 16;      // rows for which a pass reads its weights once
    constexpr std::size_t kAtOnce = 4096; // tokens for which the other texts can wait
    double seconds = 0;
    const double borne = 1 / static_cast<double>(std::max<std::size_t>(going_.size(), 1));
    std::erase_if(going_, [&](const DraftTask* task) {
        const std::size_t unread = source_->unread(task->slot, task->tokens);
        if (unread < kFew) return false;
        const double began = setting_.clock.now_seconds();
        const bool is_ready = source_->prefill(task->slot, task->tokens, kAtOnce);
        task->draft->caught_up = static_cast<int>(unread - source_->unread(task->slot, task->tokens));
        seconds += task->draft->catch_up_seconds = setting_.clock.now_seconds() - began;
        if (is_ready) return false;
        task->draft->end = DraftEnd::rule;
        task->rule->charge(-borne); // the pass that is not made
        of(task->slot).share = 0;
        return true;
    });
    return seconds;
}

// Keeps those in going_ whose rules want another row, given the rows that the others have or are about to draft.
void ChainDrafter::ask_rules(std::span<const DraftTask> tasks) {
    n_texts_ = static_cast<int>(tasks.size());
    rows_ = 0;
    for (const DraftTask& task : tasks)
        rows_ += static_cast<int>(task.draft->tokens.size()) + 1;
    share_ = 1 / static_cast<double>(std::max<std::size_t>(going_.size(), 1));
    std::erase_if(going_, [&](const DraftTask* task) { return !wants_row(*task); });
    const double borne = 1 / static_cast<double>(std::max<std::size_t>(going_.size(), 1));
    for (const DraftTask* task : going_) {
        task->rule->charge(borne - share_);
        of(task->slot).share += borne;
    }
    share_ = borne;
}

bool ChainDrafter::wants_row(const DraftTask& task) {
    const int own = static_cast<int>(task.draft->tokens.size()) + 1;
    PassCost cost = {share_, share_};
    // A text that drafts in turn uses the load that the round knows.
    if (shares_passes()) cost.load = {rows_ - own, n_texts_};
    if (!of(task.slot).phase.wants_row(cost)) return false;
    ++rows_; // a row that is cheap is cheap only once
    return true;
}

// Takes a row for each phase that goes on. A phase alone may get more rows, which are kept for later.
void ChainDrafter::pass() {
    const bool is_alone = going_.size() == 1;
    ends_.clear();
    noises_.clear();
    model::LogitNeeds needs(model::LogitSummary::none, false);
    for (const DraftTask* task : going_) {
        Slot& slot = of(task->slot);
        const model::LogitNeeds own = slot.phase.needs(is_alone ? source_->facts().device : nullptr);
        noises_.push_back(own.noises.empty() ? model::RowNoise{} : own.noises.front());
        needs = is_alone ? own : needs.and_those_of(own);
        ends_.push_back(text_to_read(*task));
        for (std::size_t i = 1; i < ends_.back().n; ++i)
            noises_.push_back(own.noises.empty() ? model::RowNoise{} : slot.phase.noise(i));
    }
    const auto has_noise = [](const model::RowNoise& noise) { return noise.temperature > 0; };
    if (std::any_of(noises_.begin(), noises_.end(), has_noise)) needs.noises = noises_;
    const SourceLogits rows = source_->rows_after(ends_, needs);
    for (std::size_t i = 0, row = 0; i < going_.size(); row += ends_[i++].n)
        take_rows(*going_[i], ends_[i], rows, row);
}

// Takes the rows of a text, while it goes on with the tokens that the pass has read.
void ChainDrafter::take_rows(const DraftTask& task, const TextEnd& end, const SourceLogits& rows, std::size_t first) {
    Slot& slot = of(task.slot);
    const std::size_t length = slot.phase.text().size();
    for (std::size_t i = 0; i < end.n; ++i) {
        const std::span<const TokenId> text = slot.phase.text();
        if (i > 0 && (text.size() != length + i || text.back() != end.tokens[text.size() - 1] || !wants_row(task)))
            return;
        const std::size_t row = first + i;
        slot.phase.take(rows.row(row), rows.summary(row), setting_.clock,
                        noises_[row].temperature > 0 ? rows.noisy_token(row) : nullptr, i > 0);
        if (guesses_) learn(slot, slot.phase.text());
    }
}

// The text that the pass reads, with guessed tokens at its end.
TextEnd ChainDrafter::text_to_read(const DraftTask& task) {
    constexpr std::size_t kMost = 3, kFewRows = 6; // rows that take little longer than one
    Slot& slot = of(task.slot);
    const std::span<const TokenId> text = slot.phase.text();
    if (!guesses_ || going_.size() >= kFewRows || slot.phase.is_constrained()) return {task.slot, text, 1};
    const std::size_t most = std::min(kMost, (kFewRows - going_.size()) / going_.size());
    slot.read.assign(text.begin(), text.end());
    guesses_->extend(slot.read, std::min(static_cast<int>(most), slot.phase.left() - 1));
    const std::size_t guessed = slot.read.size() - text.size();
    task.draft->further_rows += static_cast<int>(guessed);
    return {task.slot, slot.read, 1 + guessed};
}

// Adds to the guesses what they do not know of this text.
void ChainDrafter::learn(Slot& slot, std::span<const TokenId> text) {
    std::vector<TokenId>& learnt = slot.learnt;
    learnt.resize(std::min(learnt.size(), text.size()));
    learnt.erase(std::mismatch(learnt.begin(), learnt.end(), text.begin()).first, learnt.end());
    while (learnt.size() < text.size()) {
        learnt.push_back(text[learnt.size()]);
        guesses_->learn(learnt);
    }
}

} // namespace

std::unique_ptr<Drafter> make_chain_drafter(std::unique_ptr<LogitSource> source, const DraftSetting& setting,
                                            bool guesses) {
    return std::make_unique<ChainDrafter>(std::move(source), setting, guesses);
}

} // namespace entrodraft::spec
