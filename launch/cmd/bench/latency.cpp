// Times passes and collectives: see latency.h.
#include "launch/cmd/bench/latency.h"

#include "launch/io/machine_load.h"
#include "launch/load/drafters.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "model/cpu/roofline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <stdexcept>
#include <thread>

namespace entrodraft::launch {

namespace {

// Returns, for each element, the largest value of all ranks, on the writer. Collective over the world.
std::vector<double> largest_over_ranks(dist::Session& session, std::vector<double> values) {
    const std::size_t count = values.size();
    std::vector<double> all(count * static_cast<std::size_t>(session.world_size()));
    session.world().gather(values.data(), all.data(), count * sizeof(double), 0, session.deadline());
    for (std::size_t i = 0; i < all.size(); ++i)
        values[i % count] = std::max(values[i % count], all[i]);
    return values;
}

Quantiles of_slowest_rank(dist::Session& session, const Quantiles& mine) {
    const auto largest = largest_over_ranks(session, {mine.median, mine.p90, mine.p99, mine.mean, mine.deviation});
    return {largest[0], largest[1], largest[2], largest[3], largest[4]};
}

} // namespace

PassTimer::PassTimer(model::Decoder& decoder, const dist::Clock& clock, int context, spec::DeviceRound* loop)
    : decoder_(decoder), clock_(clock), context_(context), loop_(loop) {
    decoder_.cache().truncate(kSlot, 0);
    if (decoder_.max_source() > 0) // a source as long as the text
        decoder_.encode(kSlot, std::vector<model::TokenId>(
                                   static_cast<std::size_t>(std::clamp(context, 1, decoder_.max_source())), 1));
    for (int done = 0; done < context;) {
        const int rows = std::min(context - done, decoder_.max_prompt_rows());
        make_rows(done, rows);
        decoder_.forward({.rows = rows_, .mask = model::Mask::causal, .is_prompt = true});
        done += rows;
    }
}

double PassTimer::time(int rows) {
    make_rows(context_, rows);
    return time({model::LogitSummary::max, false}, static_cast<std::size_t>(rows));
}

double PassTimer::time_tree(spec::Parents parents) {
    rows_.clear();
    logit_rows_.clear();
    add_row(context_, -1);
    for (int i = 0; i < static_cast<int>(parents.size()); ++i)
        add_row(context_ + spec::depth_of(parents, i), spec::parent_of(parents, i) + 1);
    return time({model::LogitSummary::max, false}, rows_.size(), model::Mask::by_parent);
}

double PassTimer::level(int rows) {
    rows_.clear();
    logit_rows_.clear();
    for (int i = 0; i < rows; ++i)
        add_row(context_, -1);
    return time(model::LogitSummary::entropy, static_cast<std::size_t>(rows), model::Mask::by_parent);
}

double PassTimer::time_loop(int tokens) {
    make_rows(context_, 1);
    model::LogitNeeds needs(model::LogitSummary::entropy, false);
    spec::DeviceStopRule rule; // this rule never fires
    rule.max_rows = tokens;
    needs.extension = loop_->draft(rule, -1);
    return time(needs, static_cast<std::size_t>(tokens));
}

double PassTimer::time(const model::LogitNeeds& needs, std::size_t summaries, model::Mask mask) {
    const double begin = clock_.now_seconds();
    const model::PassResult result =
        decoder_.forward({.rows = rows_, .logit_rows = logit_rows_, .mask = mask, .needs = needs});
    decoder_.cache().truncate(kSlot, context_);
    const double seconds = clock_.now_seconds() - begin;
    if (result.summaries.size() != summaries)
        throw std::logic_error(
            fmt::format("a pass that is timed gave {} rows of {}", result.summaries.size(), summaries));
    return seconds;
}

void PassTimer::make_rows(int first_position, int rows) {
    rows_.clear();
    logit_rows_.clear();
    for (int i = 0; i < rows; ++i)
        add_row(first_position + i, i - 1);
}

void PassTimer::add_row(int position, int parent) {
    const auto row = static_cast<int>(rows_.size());
    const int token = ((position + row) * 37 + 11) % decoder_.config().vocab_size;
    rows_.push_back({token, kSlot, position, parent});
    logit_rows_.push_back(row);
}

std::vector<CollectiveTime> time_collectives(dist::Session& session, std::span<const NamedCollective> collectives,
                                             int repetitions, double max_seconds) {
    constexpr int kWarmUps = 50, kAtFirst = 3; // the first runs tell how long the rest will take
    const dist::SteadyClock clock;
    std::vector<CollectiveTime> times;
    for (const auto& [name, run, bytes] : collectives) {
        std::vector<double> samples;
        const double begin_all = clock.now_seconds();
        int warm_ups = kWarmUps, in_all = kWarmUps + repetitions;
        for (int i = 0; i < in_all; ++i) {
            const double begin = clock.now_seconds();
            run();
            if (i >= warm_ups) samples.push_back(clock.now_seconds() - begin);
            if (i + 1 != kAtFirst || max_seconds == 0) continue;
            const double each = std::max((clock.now_seconds() - begin_all) / kAtFirst, 1e-9);
            const double room = max_seconds / static_cast<double>(collectives.size()) / each;
            in_all = static_cast<int>(from_writer(
                session, static_cast<std::int64_t>(std::clamp(room, 2.0 * kAtFirst, static_cast<double>(in_all)))));
            warm_ups = std::clamp(in_all / 4, kAtFirst, kWarmUps);
        }
        times.push_back({name, of_slowest_rank(session, quantiles_of(std::move(samples))), bytes});
    }
    return times;
}

std::string slower_sum(std::span<const CollectiveTime> over_shared_memory, std::span<const CollectiveTime> over_mpi) {
    constexpr double kMuch = 1.5, kMinSeconds = 5e-6; // a smaller difference is noise
    double largest = kMuch;
    std::string text;
    for (std::size_t i = 0; i < std::min(over_shared_memory.size(), over_mpi.size()); ++i) {
        const double shared = over_shared_memory[i].seconds.median, mpi = over_mpi[i].seconds.median;
        if (over_mpi[i].name.rfind("all-reduce", 0) != 0 || shared - mpi < kMinSeconds) continue;
        if (shared < largest * mpi) continue;
        largest = shared / mpi;
        text = fmt::format("{}: {:.2f} us over shared memory, {:.2f} us over MPI: ranks wait for cores that other work "
                           "has, or share one",
                           over_mpi[i].name, shared * 1e6, mpi * 1e6);
    }
    return text;
}

namespace {

struct DraftSamples {
    static constexpr int kLevelRows = 8;
    std::vector<double> first, further; // seconds of a token
    std::vector<double> narrow, wide;   // for levels of one row and of kLevelRows rows

    void take(DraftTimer& draft, bool with_levels) {
        constexpr int kFurther = 2;
        first.push_back(draft.first());
        for (int i = 0; i < kFurther; ++i)
            further.push_back(draft.further());
        if (!with_levels) return;
        for (const bool is_wide : {false, true}) {
            draft.first();
            (is_wide ? wide : narrow).push_back(draft.level(is_wide ? kLevelRows : 1));
        }
    }
    double row_seconds() const { // 0: no levels were timed
        return std::max(quantiles_of(wide).median - quantiles_of(narrow).median, 0.0) / (kLevelRows - 1);
    }
};

// Samples of a pair's times.
class PairSamples {
  public:
    PairSamples(const TimedPair& pair, const LatencyPlan& plan)
        : pair_(pair), plan_(plan), target_(static_cast<std::size_t>(plan.max_rows())), tree_(target_.size()) {
        if (plan.tree) parents_ = spec::parents_of(*plan.tree);
    }

    void warm_up(int target_passes, int draft_runs, const HasTime& has_time) {
        constexpr double kShare = 0.2; // share of the time
        DraftSamples not_counted;
        for (int i = 0; i < target_passes && has_time(kShare); ++i)
            if (pair_.target) pair_.target->time(1 + i % plan_.max_rows());
        for (int i = 0; i < draft_runs && has_time(kShare); ++i)
            if (pair_.draft) not_counted.take(*pair_.draft, plan_.draft_levels);
        is_short_of_time_ = !has_time(kShare);
    }

    // Goes up and down in turns: a pass right after a wider one takes longer than in a run, where the number of rows
    // changes little. The first turn goes from coarse to fine if it may be the last. Returns whether there was time for
    // all rows.
    bool repeat(const HasTime& has_time) {
        const bool is_first = n_repetitions_ == 0, is_upwards = n_repetitions_ % 2 == 0;
        const bool is_coarse = is_first && is_short_of_time_;
        ++n_repetitions_;
        std::vector<int> rows; // numbers of rows to time
        for (int i = 1; i <= plan_.max_rows(); ++i)
            if (plan_.times(i)) rows.push_back(i);
        if (!is_upwards) std::ranges::reverse(rows);
        const std::vector<int> spread = coarse_to_fine(static_cast<int>(rows.size()));
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const int n_rows = is_coarse ? rows[spread[i]] : rows[i];
            if (!time(n_rows, is_first && i < 2, has_time)) return false;
        }
        return true;
    }

    PassTimes times() const {
        PassTimes times;
        for (const std::vector<double>& samples : target_)
            times.target.push_back(quantiles_of(samples));
        for (const std::vector<double>& samples : tree_)
            times.tree.push_back(quantiles_of(samples));
        times.first_draft = quantiles_of(drafts_.first);
        times.draft = quantiles_of(drafts_.further);
        times.draft_row = drafts_.row_seconds();
        return times;
    }

  private:
    bool time(int rows, bool in_any_case, const HasTime& has_time) {
        const double share = in_any_case ? kInAnyCase : 1;
        if (!has_time(share)) return false;
        target_[rows - 1].push_back(pair_.target ? pair_.target->time(rows) : 0);
        if (pair_.draft) drafts_.take(*pair_.draft, plan_.draft_levels);
        const std::size_t n_drafted = static_cast<std::size_t>(rows) - 1;
        if (n_drafted == 0 || n_drafted > parents_.size()) return true;
        if (!has_time(share)) return false;
        const spec::Parents parents = spec::Parents(parents_).first(n_drafted);
        tree_[n_drafted].push_back(pair_.target ? pair_.target->time_tree(parents) : 0);
        return true;
    }

    TimedPair pair_;
    const LatencyPlan& plan_;
    bool is_short_of_time_ = false;
    int n_repetitions_ = 0;
    std::vector<std::vector<double>> target_; // [r - 1]
    std::vector<std::vector<double>> tree_;   // [r - 1]
    std::vector<std::int8_t> parents_;        // the tree's
    DraftSamples drafts_;
};

} // namespace

std::vector<PassTimes> time_in_turns(std::span<const TimedPair> pairs, const LatencyPlan& plan,
                                     const HasTime& has_time) {
    constexpr int kWarmUps = 20, kDraftWarmUps = 3;
    // torch uses OpenMP, whose threads spin for up to 15 ms after a pass.
    constexpr auto kUntilOthersRest = std::chrono::milliseconds(20);
    std::vector<PairSamples> samples;
    for (const TimedPair& pair : pairs)
        samples.emplace_back(pair, plan).warm_up(kWarmUps, kDraftWarmUps, has_time);
    bool goes_on = true;
    for (int i = 0; i < plan.repetitions && goes_on; ++i)
        for (PairSamples& each : samples) {
            if (samples.size() > 1) {
                std::this_thread::sleep_for(kUntilOthersRest);
                each.warm_up(1, 1, has_time);
            }
            goes_on = each.repeat(has_time) && goes_on;
        }
    std::vector<PassTimes> times;
    for (const PairSamples& each : samples)
        times.push_back(each.times());
    return times;
}

spec::Costs PassTimes::costs() const {
    spec::Costs costs;
    costs.t_draft = draft.median;
    if (draft.median > 0) costs.t_first_draft = first_draft.median;
    costs.t_draft_row = draft_row;
    for (const Quantiles& pass : target)
        costs.t_target.push_back(pass.median > 0 ? pass.median : std::numeric_limits<double>::quiet_NaN());
    return costs;
}

namespace {

// A draft that is sharded across the ranks does not draft in a loop.
spec::DeviceRound* draft_loop(const ModelPair& models) {
    return models.loaded.sharded_draft ? nullptr : models.loaded.device_round.get();
}

// Times a head after a text with meaningless hidden states. One token joins the text before each draft.
class HeadTimer final : public DraftTimer {
  public:
    HeadTimer(const spec::HeadModules& head, const ModelPair& models, int context)
        : head_(head), source_(spec::make_head_source(head_, models.opened.vocab_size, 1, draft_loop(models))),
          clock_(models.placed.clock),
          states_(head.head->target_layers.size() * static_cast<std::size_t>(models.opened.target.config.hidden_size),
                  0.5F),
          vocab_(models.opened.vocab_size), context_(static_cast<std::size_t>(context)) {
        begin_text();
    }

    double first() override { return draft(1); }
    double further() override {
        if (source_->facts().device != nullptr)
            return (draft(1 + PassTimer::kLoopSteps) - draft(1)) / PassTimer::kLoopSteps;
        if (text_.size() >= source_->context_of(kSlot)) first();
        add_token();
        return time(1);
    }
    double level(int rows) override {
        nodes_.clear();
        for (int i = 0; i < rows; ++i)
            nodes_.push_back({static_cast<spec::TokenId>(i * 37 + 11) % vocab_, -1});
        const spec::NewNodes level = {kSlot, nodes_};
        const double begin = clock_.now_seconds();
        source_->rows_after_nodes(std::span(&level, 1), model::LogitSummary::entropy);
        return clock_.now_seconds() - begin;
    }

  private:
    static constexpr int kSlot = 0;
    static constexpr std::size_t kMaxRead =
        2 + std::max<std::size_t>(DraftSamples::kLevelRows, PassTimer::kLoopSteps); // after a text

    void begin_text() {
        source_->begin_sequence(kSlot, {});
        text_.clear();
        n_known_ = 0;
        add_token();
        while (n_known_ < context_)
            add_known();
        source_->prefill(kSlot, text_);
    }
    void add_known() {
        source_->take_hidden(kSlot, static_cast<int>(n_known_++), states_);
        add_token();
    }
    void add_token() { text_.push_back(static_cast<spec::TokenId>(text_.size() * 37 + 11) % vocab_); }
    // Times a draft of that many tokens. More than one needs a device that drafts in a loop, as in generate.
    double draft(int tokens) {
        if (text_.size() + kMaxRead >= source_->facts().context) begin_text();
        text_.resize(n_known_ + 1); // without the drafted tokens
        add_known();
        return time(tokens);
    }
    double time(int tokens) {
        model::LogitNeeds needs = model::LogitSummary::max;
        if (spec::DeviceRound* const device = source_->facts().device) {
            spec::DeviceStopRule rule; // this rule never fires
            rule.max_rows = tokens;
            needs = {model::LogitSummary::entropy, false};
            needs.extension = device->draft(rule, -1);
        }
        const spec::TextEnd end = {kSlot, text_, 1};
        const double begin = clock_.now_seconds();
        source_->rows_after(std::span(&end, 1), needs);
        return clock_.now_seconds() - begin;
    }

    spec::HeadModules head_;
    std::unique_ptr<spec::TreeSource> source_;
    const dist::Clock& clock_;
    std::vector<float> states_; // of a position
    int vocab_;
    std::size_t context_, n_known_ = 0;
    std::vector<spec::TokenId> text_; // one token more than known positions, and drafted tokens
    std::vector<spec::TreeNode> nodes_;
};

// Returns the number of tokens that a draft reads after `context` tokens.
int context_of_draft(const ModelPair& models, int context) {
    const spec::DraftWindow& window = models.opened.draft_window;
    return window.is_on() ? std::min(context, window.head() + window.positions) : context;
}

// Returns the times of the first pair; those of the second pair are its native ones.
PassTimes time_passes(dist::Session& session, std::span<ModelPair* const> pairs, const LatencyPlan& plan, int context,
                      bool quiet) {
    MeasuringTime time(session, "what passes take", plan.max_seconds, quiet);
    std::deque<PassTimer> timers;
    std::deque<HeadTimer> heads;
    std::vector<TimedPair> timed;
    for (ModelPair* models : pairs) {
        TimedPair& pair = timed.emplace_back();
        if (models->loaded.target)
            pair.target = &timers.emplace_back(*models->loaded.target, models->placed.clock, context);
        if (!models->loaded.drafts.empty())
            pair.draft = &timers.emplace_back(*models->loaded.drafts.front(), models->placed.clock,
                                              context_of_draft(*models, context), draft_loop(*models));
        if (!models->loaded.head_decoders.empty())
            pair.draft = &heads.emplace_back(*models->head_modules(), *models, context);
    }
    // The ranks start together, so that a wait for a drafting rank does not count as target time.
    std::vector<PassTimes> all = time_in_turns(timed, plan, [&](double share) {
        const bool goes_on = time.has_left(share);
        pairs.front()->placed.replica->barrier(session.deadline());
        return goes_on;
    });
    for (PassTimes& times : all) {
        times.context = context;
        for (std::vector<Quantiles>* passes : {&times.target, &times.tree})
            for (Quantiles& pass : *passes)
                pass = of_slowest_rank(session, pass);
        times.draft = of_slowest_rank(session, times.draft);
        times.first_draft = of_slowest_rank(session, times.first_draft);
        times.draft_row = largest_over_ranks(session, {times.draft_row}).front();
    }
    PassTimes first = std::move(all.front());
    first.native.assign(all.begin() + 1, all.end());
    return first;
}

} // namespace

std::vector<CollectiveTime> measure_collectives(dist::Session& session, ModelPair& models, const LatencyPlan& plan,
                                                double max_seconds) {
    const auto hidden = static_cast<std::size_t>(models.opened.target.config.hidden_size);
    const auto rows = static_cast<std::size_t>(plan.max_rows());
    // Every rank gathers as many bytes as the first slice of the vocabulary needs; no slice is wider.
    const dist::Slice slice = model::vocab_slice(models.opened.target.config, 0, models.placed.layout.tp_size);
    const std::size_t row_bytes = static_cast<std::size_t>(slice.size()) * sizeof(float);
    std::vector<float> buffer(std::max(hidden * rows, row_bytes * rows / sizeof(float)) + 64);
    std::vector<std::byte> gathered(buffer.size() * sizeof(float) * static_cast<std::size_t>(session.world_size()));
    const auto deadline = [&] { return session.deadline(); };
    const auto gather = [&](std::size_t bytes) {
        models.placed.replica->gather(buffer.data(), gathered.data(), bytes, 0, deadline());
    };
    const std::string all_rows = counted(plan.max_rows(), "row");
    constexpr std::size_t kPacket = 256;
    std::vector<NamedCollective> collectives = {
        {"barrier", [&] { models.placed.replica->barrier(deadline()); }},
        {"round packet: broadcast of 256 bytes",
         [&] { models.placed.replica->broadcast(buffer.data(), kPacket, 0, deadline()); }, kPacket},
        {"gather of candidates, " + all_rows, [&] { gather(rows * 8 + 8); }, rows * 8 + 8},
        {"gather of distributions, " + all_rows, [&] { gather(row_bytes * rows); }, row_bytes * rows},
    };
    // Several sizes separate the fixed cost of a message from the cost of its bytes.
    for (std::size_t each = 1;; each = std::min(2 * each, rows)) {
        collectives.push_back({"all-reduce of hidden, " + counted(static_cast<std::int64_t>(each), "row"),
                               models.placed.tp ? sum_for_passes(models.placed.device, *models.placed.tp, hidden * each,
                                                                 session.timeout_seconds())
                                                : [] {},
                               hidden * each * sizeof(float)});
        if (each == rows) break;
    }
    return time_collectives(session, collectives, 5 * plan.repetitions, max_seconds);
}

double measure_spread(dist::Session& session, ModelPair& models, double max_seconds) {
    constexpr std::size_t kWarmUps = 2, kEnough = 10; // passes
    MeasuringTime time(session, "how far times vary", max_seconds, true);
    std::optional<PassTimer> timer;
    if (models.loaded.target) timer.emplace(*models.loaded.target, models.placed.clock, 1);
    std::vector<double> seconds;
    while (time.has_left())
        seconds.push_back(timer ? timer->time(1) : 0);
    const bool is_enough = seconds.size() >= kWarmUps + kEnough; // the same on all ranks
    seconds.erase(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(std::min(kWarmUps, seconds.size())));
    const Quantiles slowest = of_slowest_rank(session, quantiles_of(std::move(seconds)));
    return is_enough ? spread_of(slowest) : 0;
}

namespace {

// `device`: the device whose memory's read rate is measured.
void measure_limits(dist::Session& session, ModelPair& models, const RankDevice& device, const LatencyPlan& plan,
                    Latency& latency) {
    constexpr double kNoLimit = std::numeric_limits<double>::infinity();
    // A rank without a shard reads its draft while the others read; it sets no limit.
    const bool counts = models.loaded.target != nullptr;
    const std::size_t bytes = counts ? models.loaded.target->weight_bytes() : std::size_t{1} << 20;
    const double operations = counts ? models.loaded.target->operations_per_row() : 0;
    session.world().barrier(session.deadline());
    const double rate = read_rate(device, *models.placed.team, bytes);
    session.world().barrier(session.deadline());
    // No pass of a round comes near a GPU's arithmetic peak.
    const double peak = !models.placed.device.is_cpu() ? kNoLimit : model::arithmetic_peak(*models.placed.team);
    std::vector<double> limits;
    for (int rows = 1; rows <= plan.max_rows(); ++rows)
        limits.push_back(counts ? std::max(static_cast<double>(bytes) / rate, rows * operations / peak) : 0);
    latency.limit = largest_over_ranks(session, limits);
    const auto slowest = largest_over_ranks(
        session, {counts ? static_cast<double>(bytes) : 0, counts ? -rate : -kNoLimit, counts ? -peak : -kNoLimit});
    latency.weight_bytes = slowest[0];
    latency.read_rate = -slowest[1];
    latency.peak = -slowest[2];
}

int common_positions(const ModelPair& models) {
    int positions = models.opened.target.config.max_positions;
    for (const auto& draft : models.loaded.drafts)
        positions = std::min(positions, draft->config().max_positions);
    return positions;
}

// Returns the positions for a context that passes of up to `rows` rows, or a loop on the device, leave.
int room_for_context(const ModelPair& models, int rows) {
    return common_positions(models) - (models.placed.device.is_gpu ? std::max(rows, 1 + PassTimer::kLoopSteps) : rows);
}

} // namespace

int default_context(dist::Session& session, const ModelPair& models, int rows) {
    const int wanted = models.placed.device.is_cpu() ? 64 : 1000;
    // Ranks without a draft do not know the draft's positions.
    return static_cast<int>(from_writer(session, std::clamp(room_for_context(models, rows), 1, wanted)));
}

std::vector<PassTimes> measure_passes(dist::Session& session, ModelPair& models, const LatencyPlan& plan, bool quiet,
                                      ModelPair* native) {
    const int rows = plan.max_rows();
    const int n_read = plan.draft_levels ? std::max(rows, 2 + DraftSamples::kLevelRows) : rows; // after a context
    std::vector<int> contexts = plan.contexts;
    if (contexts.empty()) contexts.push_back(default_context(session, models, n_read));
    in_agreement(session, [&] {
        if (rows > model::Decoder::kMaxRows)
            throw BadOption(fmt::format("--rows {}: a pass has at most {} rows", rows, model::Decoder::kMaxRows));
        const int room = room_for_context(models, n_read);
        if (room < 1)
            throw BadOption(fmt::format("passes of {} rows cannot be timed: the models have {} positions; give fewer "
                                        "rows, more positions, or the costs of passes by --costs",
                                        rows, common_positions(models)));
        for (const int context : contexts)
            if (context > room)
                throw BadOption(fmt::format("--context {}: the models have {} positions, so at most {} beside the rows",
                                            context, common_positions(models), room));
    });
    std::vector<ModelPair*> pairs = {&models};
    if (native != nullptr) pairs.push_back(native);
    std::vector<PassTimes> passes;
    for (const int context : contexts)
        passes.push_back(time_passes(session, pairs, plan, context, quiet));
    return passes;
}

Latency measure_latency(dist::Session& session, ModelPair& models, const LatencyPlan& plan, bool quiet,
                        ModelPair* native) {
    Latency latency;
    latency.passes = measure_passes(session, models, plan, quiet, native);
    measure_limits(session, models, native ? native->placed.device : models.placed.device, plan, latency);
    latency.collectives = measure_collectives(session, models, plan, plan.max_seconds / 3);
    return latency;
}

std::vector<spec::Costs> level_costs(const PassTimes& first, ModelPair& models, const LatencyPlan& plan) {
    std::vector<spec::Costs> levels;
    if (!models.placed.layout.is_coordinator()) return levels;
    levels.push_back(first.costs());
    for (std::size_t level = 1; level < models.loaded.drafts.size(); ++level) {
        PassTimer verifying(*models.loaded.drafts[level - 1], models.placed.clock, first.context);
        PassTimer drafting(*models.loaded.drafts[level], models.placed.clock, first.context, draft_loop(models));
        const std::array pair = {TimedPair{&verifying, &drafting}};
        levels.push_back(time_in_turns(pair, plan, time_of_this_rank(plan.max_seconds)).front().costs());
    }
    return levels;
}

std::vector<spec::Costs> read_costs(dist::Session& session, const std::vector<std::string>& files) {
    std::vector<spec::Costs> costs;
    in_agreement(session, [&] {
        for (const std::string& file : files)
            costs.push_back(spec::read_costs(file));
    });
    for (std::size_t level = 0; session.world_rank() == 0 && level < costs.size(); ++level)
        say_if_disturbed(costs[level], files[level]);
    return costs;
}

} // namespace entrodraft::launch
