// entrodraft bench latency: t_draft, t_target(r), every collective, and how near a pass is to the machine's limit.
#include "launch/cmd/bench/bench_latency.h"

#include "launch/cli/command_options.h"
#include "launch/cmd/bench/pass_timer.h"
#include "launch/cmd/bench/shard_times.h"
#include "launch/commands.h"
#include "launch/counted.h"
#include "launch/failure.h"
#include "launch/io/report.h"
#include "launch/machine_load.h"
#include "launch/phase.h"
#include "launch/replaced_file.h"
#include "model/cpu/roofline.h"
#include "model/inspection.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace entrodraft::launch {

namespace {

constexpr int kWarmUps = 20;

void time_passes(dist::Session& session, ModelPair& models, const LatencyPlan& plan, Latency& latency) {
    std::vector<std::vector<double>> target_samples(static_cast<std::size_t>(plan.rows));
    std::vector<double> draft_samples, first_draft_samples;
    std::optional<PassTimer> target, draft;
    if (models.target) target.emplace(*models.target, models.clock, plan.context);
    if (!models.drafts.empty()) draft.emplace(*models.drafts.front(), models.clock, plan.context);
    for (int i = 0; i < kWarmUps && target; ++i)
        target->time(1 + i % plan.rows);
    for (int i = 0; i < plan.repetitions; ++i) {
        for (int rows = 1; rows <= plan.rows; ++rows) {
            // The ranks start together: nobody's wait for a drafting rank counts as target time.
            models.replica->barrier(dist::Deadline::after_seconds(plan.timeout_seconds));
            target_samples[static_cast<std::size_t>(rows - 1)].push_back(target ? target->time(rows) : 0);
            for (int step = 0; draft && step < PassTimer::kDraftRun; ++step)
                (step == 0 ? first_draft_samples : draft_samples).push_back(draft->time(1));
        }
    }
    for (auto& samples : target_samples)
        latency.target.push_back(of_slowest_rank(session, quantiles_of(std::move(samples)), plan.timeout_seconds));
    latency.draft = of_slowest_rank(session, quantiles_of(std::move(draft_samples)), plan.timeout_seconds);
    latency.first_draft = of_slowest_rank(session, quantiles_of(std::move(first_draft_samples)), plan.timeout_seconds);
    if (models.target) models.target->cache().truncate(PassTimer::kSlot, 0);
    if (!models.drafts.empty()) models.drafts.front()->cache().truncate(PassTimer::kSlot, 0);
}

void time_messages(dist::Session& session, ModelPair& models, const LatencyPlan& plan, Latency& latency) {
    const auto hidden = static_cast<std::size_t>(models.target_config.hidden_size);
    const auto rows = static_cast<std::size_t>(plan.rows);
    // Every rank gathers as much as the first slice of the vocabulary, which is a widest one, needs.
    const dist::Slice slice = model::vocab_slice(models.target_config, 0, models.layout.tp_size);
    const std::size_t row_bytes = static_cast<std::size_t>(slice.size()) * sizeof(float);
    std::vector<float> buffer(std::max(hidden * rows, row_bytes * rows / sizeof(float)) + 64);
    std::vector<std::byte> gathered(buffer.size() * sizeof(float) * static_cast<std::size_t>(session.world_size()));
    const auto deadline = [&] { return dist::Deadline::after_seconds(plan.timeout_seconds); };
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
             models.tp ? sum_for_passes(models.device, *models.tp, hidden * each, plan.timeout_seconds) : [] {},
             hidden * each * sizeof(float)});
        if (each == rows) break;
    }
    latency.collectives = time_collectives(session, collectives, 5 * plan.repetitions, plan.timeout_seconds);
}

void measure_limits(dist::Session& session, ModelPair& models, const LatencyPlan& plan, Latency& latency) {
    constexpr double kNoLimit = std::numeric_limits<double>::infinity();
    // A rank without a shard reads its draft beside the others, and sets no limit.
    const bool counts = models.target != nullptr;
    const std::size_t bytes = counts ? models.target->weight_bytes() : std::size_t{1} << 20;
    const double operations = counts ? models.target->operations_per_row() : 0;
    session.world().barrier(dist::Deadline::after_seconds(plan.timeout_seconds));
    const double rate = read_rate(models.device, *models.team, bytes);
    session.world().barrier(dist::Deadline::after_seconds(plan.timeout_seconds));
    // No pass of a round comes near a GPU's.
    const double peak = models.device.is_gpu ? kNoLimit : model::arithmetic_peak(*models.team);
    std::vector<double> limits;
    for (int rows = 1; rows <= plan.rows; ++rows)
        limits.push_back(counts ? std::max(static_cast<double>(bytes) / rate, rows * operations / peak) : 0);
    latency.limit = largest_over_ranks(session, limits, plan.timeout_seconds);
    const auto slowest = largest_over_ranks(
        session, {counts ? static_cast<double>(bytes) : 0, counts ? -rate : -kNoLimit, counts ? -peak : -kNoLimit},
        plan.timeout_seconds);
    latency.weight_bytes = slowest[0];
    latency.read_rate = -slowest[1];
    latency.peak = -slowest[2];
}

Json to_json(const Quantiles& quantiles) {
    return {{"median_ms", quantiles.median * 1e3},
            {"p90_ms", quantiles.p90 * 1e3},
            {"p99_ms", quantiles.p99 * 1e3},
            {"mean_ms", quantiles.mean * 1e3},
            {"deviation_ms", quantiles.deviation * 1e3}};
}

// What the scaling model has to know of the target, over so many ranks.
Json shape_json(const ModelPair& models) {
    const model::ModelConfig& config = models.target_config;
    const model::AllReduces all_reduces = model::all_reduces_of(config, models.layout.tp_size);
    return {{"layers", config.n_layers},
            {"hidden_size", config.hidden_size},
            {"vocab_size", config.vocab_size},
            {"all_reduces_per_pass", all_reduces.count},
            {"all_reduce_bytes_per_pass", all_reduces.bytes}}; // of one row
}

Json to_json(const std::vector<ShardTime>& shards) {
    Json rows = Json::array();
    for (const ShardTime& shard : shards)
        rows.push_back({{"of", shard.of},
                        {"t_target_ms", shard.beside_draft * 1e3},
                        {"t_target_without_draft_ms", shard.alone * 1e3},
                        {"limit_ms", shard.limit * 1e3}});
    return rows;
}

Json to_json(const Latency& latency, const Json& environment, const ModelPair& models, int context) {
    Json json = Json::parse(spec::to_json(latency.costs()));
    json["environment"] = environment;
    json["tensor_parallel"] = models.layout.tp_size;
    json["target_shape"] = shape_json(models);
    json["context"] = context;
    json["draft"] = to_json(latency.draft);
    json["first_draft"] = to_json(latency.first_draft);
    for (std::size_t i = 0; i < latency.target.size(); ++i) {
        Json row = to_json(latency.target[i]);
        row["rows"] = i + 1;
        row["limit_ms"] = latency.limit[i] * 1e3;
        row["ratio"] = latency.target[i].median / latency.limit[i];
        json["target"].push_back(row);
    }
    json["weight_bytes_per_rank"] = latency.weight_bytes;
    json["read_rate_bytes_per_second"] = latency.read_rate;
    if (std::isfinite(latency.peak)) json["arithmetic_peak_per_second"] = latency.peak;
    for (const CollectiveTime& collective : latency.collectives) {
        Json row = to_json(collective.seconds);
        row["name"] = collective.name;
        row["bytes"] = collective.bytes;
        json["collectives"].push_back(row);
    }
    return json;
}

std::string to_text(const Latency& latency, const Json& environment, int context) {
    const auto ms = [](double seconds) { return format_number(seconds * 1e3, 4); };
    std::string text =
        environment_line(environment) + "\n\n" + "a rank's weights " + format_number(latency.weight_bytes / 1e6, 2) +
        " MB, read rate " + format_number(latency.read_rate / 1e9, 1) + " GB/s" +
        (std::isfinite(latency.peak) ? ", arithmetic peak " + format_number(latency.peak / 1e9, 1) + " GFLOP/s" : "") +
        "; context " + std::to_string(context) + "\n\n";
    std::vector<std::vector<std::string>> table = {
        {"pass", "median ms", "p90", "p99", "mean", "deviation", "limit", "ratio", "t(r)/t(1)"}};
    for (std::size_t i = 0; i < latency.target.size(); ++i) {
        const Quantiles& pass = latency.target[i];
        table.push_back({"target, " + counted(static_cast<std::int64_t>(i + 1), "row"), ms(pass.median), ms(pass.p90),
                         ms(pass.p99), ms(pass.mean), ms(pass.deviation), ms(latency.limit[i]),
                         format_number(pass.median / latency.limit[i], 2),
                         format_number(pass.median / latency.target[0].median, 2)});
    }
    const std::pair<const char*, const Quantiles&> drafts[] = {{"draft, first of a round", latency.first_draft},
                                                               {"draft, after another", latency.draft}};
    for (const auto& [name, pass] : drafts)
        if (pass.median > 0)
            table.push_back({name, ms(pass.median), ms(pass.p90), ms(pass.p99), ms(pass.mean), ms(pass.deviation), "",
                             "", format_number(pass.median / latency.target[0].median, 2)});
    text += format_table(table) + '\n';
    table = {{"collective", "median us", "p90", "p99"}};
    for (const CollectiveTime& collective : latency.collectives)
        table.push_back({collective.name, format_number(collective.seconds.median * 1e6, 2),
                         format_number(collective.seconds.p90 * 1e6, 2),
                         format_number(collective.seconds.p99 * 1e6, 2)});
    return text + format_table(table);
}

} // namespace

spec::Costs Latency::costs() const {
    spec::Costs costs;
    costs.t_draft = draft.median;
    if (draft.median > 0) costs.t_first_draft = first_draft.median;
    for (const Quantiles& pass : target)
        costs.t_target.push_back(pass.median);
    return costs;
}

namespace {

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
    in_agreement(session, plan.timeout_seconds, [&] {
        if (plan.rows > model::Decoder::kMaxRows)
            throw BadOption("--rows " + std::to_string(plan.rows) + ": a pass has at most " +
                            std::to_string(model::Decoder::kMaxRows) + " rows");
        const int positions = common_positions(models);
        if (plan.context > positions - plan.rows)
            throw BadOption("--context " + std::to_string(plan.context) + ": the models have " +
                            std::to_string(positions) + " positions, so at most " +
                            std::to_string(positions - plan.rows) + " beside the rows");
    });
    Latency latency;
    measure_limits(session, models, plan, latency);
    time_passes(session, models, plan, latency);
    time_messages(session, models, plan, latency);
    return latency;
}

std::vector<spec::Costs> level_costs(const Latency& latency, ModelPair& models, const LatencyPlan& plan) {
    std::vector<spec::Costs> levels;
    if (!models.layout.is_coordinator()) return levels;
    levels.push_back(latency.costs());
    for (std::size_t level = 1; level < models.drafts.size(); ++level) {
        PassTimer verifying(*models.drafts[level - 1], models.clock, plan.context);
        PassTimer drafting(*models.drafts[level], models.clock, plan.context);
        std::vector<std::vector<double>> rows_samples(static_cast<std::size_t>(plan.rows));
        std::vector<double> first_samples, next_samples;
        for (int i = 0; i < plan.repetitions; ++i)
            for (int rows = 1; rows <= plan.rows; ++rows) {
                rows_samples[static_cast<std::size_t>(rows - 1)].push_back(verifying.time(rows));
                first_samples.push_back(drafting.time(1));
                next_samples.push_back(drafting.time(1));
            }
        spec::Costs& costs = levels.emplace_back();
        costs.t_first_draft = quantiles_of(first_samples).median;
        costs.t_draft = quantiles_of(next_samples).median;
        for (std::vector<double>& samples : rows_samples)
            costs.t_target.push_back(quantiles_of(std::move(samples)).median);
    }
    for (const auto& draft : models.drafts)
        draft->cache().truncate(PassTimer::kSlot, 0);
    return levels;
}

int run_bench_latency(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<LatencyOptions>(session, arguments, page_of("bench latency"));
    if (!options) return kAllServed;
    in_agreement(session, options->models.collective_timeout_seconds, [&] {
        require_one_rank_for(options->shards, session.world_size());
        if (session.world_rank() == 0 && !options->output.empty()) require_replaceable(options->output);
    });
    const auto models = open_models(session, options->models, {.draft = options->placement});
    in_agreement(session, options->models.collective_timeout_seconds, [&] {
        if (!options->shards.empty() && models->device.is_gpu)
            throw BadOption("--shards times shards on the CPU alone: add --device cpu");
        require_heads_for(options->shards, models->target_config);
    });
    const LatencyPlan& plan = options->plan;
    const MachineWatch watch(session, plan.timeout_seconds);
    const Latency latency = measure_latency(session, *models, plan);
    std::vector<ShardTime> shards;
    in_agreement(session, plan.timeout_seconds, [&] {
        shards = time_shards(*models, {options->models.target, options->shards, plan.context, plan.repetitions});
    });
    const MachineLoad load = watch.stop(spread_of(latency.target.front()));
    const Json environment = environment_of(session, *models);
    in_agreement(session, plan.timeout_seconds, [&] {
        if (!models->layout.is_writer()) return;
        Json json = to_json(latency, environment, *models, plan.context);
        json["machine"] = to_json(load);
        if (!shards.empty()) json["shards"] = to_json(shards);
        print(session, options->json
                           ? indented(json)
                           : to_text(latency, environment, plan.context) + to_text(shards) + load.warning_line());
        if (options->json) warn_of(load);
        if (!options->output.empty()) replace_file(options->output, indented(json));
    });
    return kAllServed;
}

} // namespace entrodraft::launch
