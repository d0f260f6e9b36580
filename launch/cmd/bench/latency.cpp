// Timing passes and collectives: see latency.h.
#include "launch/cmd/bench/latency.h"

#include "launch/counted.h"
#include "launch/failure.h"
#include "launch/load/drafters.h"
#include "launch/phase.h"
#include "model/cpu/roofline.h"
#include "model/inspection.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace entrodraft::launch {

namespace {

// Element by element the largest of all ranks, on the writer. Collective over the world.
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

PassTimer::PassTimer(model::Decoder& decoder, const dist::Clock& clock, int context)
    : decoder_(decoder), clock_(clock), context_(context) {
    decoder_.cache().truncate(kSlot, 0);
    for (int done = 0; done < context;) {
        const int rows = std::min(context - done, decoder_.max_rows());
        make_rows(done, rows);
        decoder_.forward({.rows = rows_, .logit_rows = {}, .hidden_layers = {}, .mask = model::Mask::causal});
        done += rows;
    }
}

double PassTimer::time(int rows) {
    make_rows(context_, rows);
    const double begin = clock_.now_seconds();
    decoder_.forward({.rows = rows_,
                      .logit_rows = logit_rows_,
                      .hidden_layers = {},
                      .mask = model::Mask::causal,
                      .window = 0,
                      .needs = {model::LogitSummary::max, false}});
    decoder_.cache().truncate(kSlot, context_);
    return clock_.now_seconds() - begin;
}

void PassTimer::make_rows(int first_position, int rows) {
    rows_.clear();
    logit_rows_.clear();
    for (int i = 0; i < rows; ++i) {
        const int position = first_position + i;
        const int token = (position * 37 + 11) % decoder_.config().vocab_size;
        rows_.push_back({token, kSlot, position, i - 1});
        logit_rows_.push_back(i);
    }
}

std::vector<CollectiveTime> time_collectives(dist::Session& session, std::span<const NamedCollective> collectives,
                                             int repetitions) {
    constexpr int kWarmUps = 50;
    const dist::SteadyClock clock;
    std::vector<CollectiveTime> times;
    for (const auto& [name, run, bytes] : collectives) {
        std::vector<double> samples;
        for (int i = 0; i < kWarmUps + repetitions; ++i) {
            const double begin = clock.now_seconds();
            run();
            if (i >= kWarmUps) samples.push_back(clock.now_seconds() - begin);
        }
        times.push_back({name, of_slowest_rank(session, quantiles_of(std::move(samples))), bytes});
    }
    return times;
}

std::string slower_sum(std::span<const CollectiveTime> over_shared_memory, std::span<const CollectiveTime> over_mpi) {
    constexpr double kMuch = 1.5, kMinSeconds = 5e-6; // less is noise of the two runs
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

PassTimes time_in_turns(PassTimer* target, PassTimer* draft, const LatencyPlan& plan,
                        const std::function<void()>& align) {
    constexpr int kWarmUps = 20;
    constexpr int kDraftRun = 3; // draft passes after every target pass, which has driven their weights out of caches
    std::vector<std::vector<double>> target_samples(static_cast<std::size_t>(plan.rows));
    std::vector<double> draft_samples, first_draft_samples;
    for (int i = 0; i < kWarmUps && target; ++i)
        target->time(1 + i % plan.rows);
    for (int i = 0; i < plan.repetitions; ++i) {
        for (int rows = 1; rows <= plan.rows; ++rows) {
            align();
            target_samples[static_cast<std::size_t>(rows - 1)].push_back(target ? target->time(rows) : 0);
            for (int step = 0; draft && step < kDraftRun; ++step)
                (step == 0 ? first_draft_samples : draft_samples).push_back(draft->time(1));
        }
    }
    PassTimes times;
    for (auto& samples : target_samples)
        times.target.push_back(quantiles_of(std::move(samples)));
    times.first_draft = quantiles_of(std::move(first_draft_samples));
    times.draft = quantiles_of(std::move(draft_samples));
    return times;
}

spec::Costs PassTimes::costs() const {
    spec::Costs costs;
    costs.t_draft = draft.median;
    if (draft.median > 0) costs.t_first_draft = first_draft.median;
    for (const Quantiles& pass : target)
        costs.t_target.push_back(pass.median);
    return costs;
}

namespace {

PassTimes time_passes(dist::Session& session, ModelPair& models, const LatencyPlan& plan) {
    std::optional<PassTimer> target, draft;
    if (models.target) target.emplace(*models.target, models.clock, plan.context);
    if (!models.drafts.empty()) draft.emplace(*models.drafts.front(), models.clock, plan.context);
    // The ranks start together: nobody's wait for a drafting rank counts as target time.
    PassTimes times = time_in_turns(target ? &*target : nullptr, draft ? &*draft : nullptr, plan,
                                    [&] { models.replica->barrier(session.deadline()); });
    for (Quantiles& pass : times.target)
        pass = of_slowest_rank(session, pass);
    times.draft = of_slowest_rank(session, times.draft);
    times.first_draft = of_slowest_rank(session, times.first_draft);
    return times;
}

std::vector<CollectiveTime> time_messages(dist::Session& session, ModelPair& models, const LatencyPlan& plan) {
    const auto hidden = static_cast<std::size_t>(models.target_config.hidden_size);
    const auto rows = static_cast<std::size_t>(plan.rows);
    // Every rank gathers as much as the first slice of the vocabulary, which is a widest one, needs.
    const dist::Slice slice = model::vocab_slice(models.target_config, 0, models.layout.tp_size);
    const std::size_t row_bytes = static_cast<std::size_t>(slice.size()) * sizeof(float);
    std::vector<float> buffer(std::max(hidden * rows, row_bytes * rows / sizeof(float)) + 64);
    std::vector<std::byte> gathered(buffer.size() * sizeof(float) * static_cast<std::size_t>(session.world_size()));
    const auto deadline = [&] { return session.deadline(); };
    const auto gather = [&](std::size_t bytes) {
        models.replica->gather(buffer.data(), gathered.data(), bytes, 0, deadline());
    };
    const std::string all_rows = counted(plan.rows, "row");
    constexpr std::size_t kPacket = 256;
    std::vector<NamedCollective> collectives = {
        {"barrier", [&] { models.replica->barrier(deadline()); }},
        {"round packet: broadcast of 256 bytes",
         [&] { models.replica->broadcast(buffer.data(), kPacket, 0, deadline()); }, kPacket},
        {"gather of candidates, " + all_rows, [&] { gather(rows * 8 + 8); }, rows * 8 + 8},
        {"gather of distributions, " + all_rows, [&] { gather(row_bytes * rows); }, row_bytes * rows},
    };
    // Several sizes, so that what a message costs and what its bytes cost can be told apart.
    for (std::size_t each = 1;; each = std::min(2 * each, rows)) {
        collectives.push_back(
            {"all-reduce of hidden, " + counted(static_cast<std::int64_t>(each), "row"),
             models.tp ? sum_for_passes(models.device, *models.tp, hidden * each, session.timeout_seconds()) : [] {},
             hidden * each * sizeof(float)});
        if (each == rows) break;
    }
    return time_collectives(session, collectives, 5 * plan.repetitions);
}

void measure_limits(dist::Session& session, ModelPair& models, const LatencyPlan& plan, Latency& latency) {
    constexpr double kNoLimit = std::numeric_limits<double>::infinity();
    // A rank without a shard reads its draft beside the others, and sets no limit.
    const bool counts = models.target != nullptr;
    const std::size_t bytes = counts ? models.target->weight_bytes() : std::size_t{1} << 20;
    const double operations = counts ? models.target->operations_per_row() : 0;
    session.world().barrier(session.deadline());
    const double rate = read_rate(models.device, *models.team, bytes);
    session.world().barrier(session.deadline());
    // No pass of a round comes near a GPU's.
    const double peak = !models.device.is_cpu() ? kNoLimit : model::arithmetic_peak(*models.team);
    std::vector<double> limits;
    for (int rows = 1; rows <= plan.rows; ++rows)
        limits.push_back(counts ? std::max(static_cast<double>(bytes) / rate, rows * operations / peak) : 0);
    latency.limit = largest_over_ranks(session, limits);
    const auto slowest = largest_over_ranks(
        session, {counts ? static_cast<double>(bytes) : 0, counts ? -rate : -kNoLimit, counts ? -peak : -kNoLimit});
    latency.weight_bytes = slowest[0];
    latency.read_rate = -slowest[1];
    latency.peak = -slowest[2];
}

int common_positions(const ModelPair& models) {
    int positions = models.target_config.max_positions;
    for (const auto& draft : models.drafts)
        positions = std::min(positions, draft->config().max_positions);
    return positions;
}

} // namespace

int fitting_context(const ModelPair& models, int rows) {
    return std::clamp(common_positions(models) - rows, 1, LatencyPlan{}.context);
}

Latency measure_latency(dist::Session& session, ModelPair& models, const LatencyPlan& plan) {
    in_agreement(session, [&] {
        if (plan.rows > model::Decoder::kMaxRows)
            throw BadOption(fmt::format("--rows {}: a pass has at most {} rows", plan.rows, model::Decoder::kMaxRows));
        const int positions = common_positions(models);
        if (plan.context > positions - plan.rows)
            throw BadOption(fmt::format("--context {}: the models have {} positions, so at most {} beside the rows",
                                        plan.context, positions, positions - plan.rows));
    });
    Latency latency;
    measure_limits(session, models, plan, latency);
    static_cast<PassTimes&>(latency) = time_passes(session, models, plan);
    latency.collectives = time_messages(session, models, plan);
    return latency;
}

std::vector<spec::Costs> level_costs(const Latency& latency, ModelPair& models, const LatencyPlan& plan) {
    std::vector<spec::Costs> levels;
    if (!models.layout.is_coordinator()) return levels;
    levels.push_back(latency.costs());
    for (std::size_t level = 1; level < models.drafts.size(); ++level) {
        PassTimer verifying(*models.drafts[level - 1], models.clock, plan.context);
        PassTimer drafting(*models.drafts[level], models.clock, plan.context);
        levels.push_back(time_in_turns(&verifying, &drafting, plan).costs());
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
