// entrodraft bench latency: measures t_draft, t_target(r) and every collective, and compares passes with the machine's
// limit. With --shards, it times a pass over the shard of one rank, without other ranks to sum with.
//
// For --shards, a single rank loads the first of N shards and runs it as if the other ranks were there. The time
// includes the parts that do not shrink with more ranks: norms, copies of KV heads, and the fixed cost of a pass. A
// shard that fits a cache gains from that. The time excludes all-reduces, and the load of the other ranks on the
// memory's bandwidth.
#include "dist/layout/shard.h"
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cmd/bench/latency.h"
#include "launch/io/machine_load.h"
#include "launch/io/report.h"
#include "launch/io/results.h"
#include "launch/load/environment.h"
#include "launch/load/opened_model.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "launch/start/replaced_file.h"
#include "model/cpu/decoder.h"
#include "model/cpu/roofline.h"
#include "model/footprint/inspection.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

// The first of `size` ranks; the other ranks are absent. A sum is only this rank's part. That changes the results of a
// pass, not its cost.
class AbsentRanks final : public dist::Communicator {
  public:
    explicit AbsentRanks(int size) : size_(size) {}
    int rank() const override { return 0; }
    int size() const override { return size_; }
    std::string name() const override { return "absent"; }
    void start_all_reduce_sum(void*, std::size_t, dist::ElementType) override {}
    void start_broadcast(void*, std::size_t, int) override {}
    void start_gather(const void*, void*, std::size_t, int) override {}
    void wait(dist::Deadline) override {}

  private:
    int size_;
};

// The row of the first of `of` shards: a one-row pass next to draft passes, as on colocated ranks, a one-row pass
// without them, as on ranks that never draft, and the pass's limit on this rank alone.
Columns shard_row(ModelPair& models, const OpenedModel& target_files, const ModelOptions& run, const LatencyPlan& plan,
                  int context, int of) {
    LatencyPlan of_one_row = plan;
    of_one_row.rows = {1};
    AbsentRanks others(of);
    model::DecoderOptions options;
    options.weight_type = models.placed.target_type;
    options.activations = run.activations;
    options.kv_type = run.kv_type;
    options.capacity = models.opened.target.config.max_positions;
    const std::unique_ptr<model::Decoder> shard =
        model::load_cpu_decoder(*target_files.checkpoint, target_files.config, options, others, *models.placed.team);
    const auto bytes = static_cast<double>(shard->weight_bytes());
    const double limit = std::max(bytes / model::read_rate(*models.placed.team, shard->weight_bytes()),
                                  shard->operations_per_row() / model::arithmetic_peak(*models.placed.team));
    PassTimer target(*shard, models.placed.clock, context);
    const auto median_of = [&](const TimedPair& pair) {
        return time_in_turns(std::span(&pair, 1), of_one_row, time_of_this_rank(plan.max_seconds))
            .front()
            .target.front()
            .median;
    };
    const double alone = median_of({&target});
    double beside_draft = alone;
    if (!models.loaded.drafts.empty()) {
        PassTimer draft(*models.loaded.drafts.front(), models.placed.clock, context);
        beside_draft = median_of({&target, &draft});
    }
    return {{"of", "a shard by itself", of, fmt::format("of {}", of)},
            {"t_target_ms", "median ms", beside_draft * 1e3, 4},
            {"t_target_without_draft_ms", "without a draft", alone * 1e3, 4},
            {"limit_ms", "limit", limit * 1e3, 4}};
}

void require_heads_for(const std::vector<int>& shards, const model::ModelConfig& config) {
    for (const int of : shards) {
        try {
            dist::head_shard(config.n_heads, config.n_kv_heads, 0, of);
        } catch (const std::invalid_argument& error) {
            throw BadOption(fmt::format("--shards {}: {}", of, error.what()));
        }
    }
}

// The row of a pass, compared with the target's one-row pass. `limit` is in seconds; 0: there is none.
Columns pass_row(const std::string& name, const Quantiles& pass, double one_row, double limit = 0) {
    const auto known = [&](double figure) { return limit > 0 ? Json(figure) : Column::unknown(); };
    return {{"", "pass", name},
            {"median_ms", "median ms", pass.median * 1e3, 4},
            {"p90_ms", "p90", pass.p90 * 1e3, 4},
            {"p99_ms", "p99", pass.p99 * 1e3, 4},
            {"mean_ms", "mean", pass.mean * 1e3, 4},
            {"deviation_ms", "deviation", pass.deviation * 1e3, 4},
            {"limit_ms", "limit", known(limit * 1e3), limit > 0 ? format_number(limit * 1e3, 4) : ""},
            {"ratio", "ratio", known(pass.median / limit), limit > 0 ? format_number(pass.median / limit, 2) : ""},
            {"", "t(r)/t(1)", pass.median / one_row, 2}};
}

// Adds the pass of our kernels to the row of torch's pass.
void add_native(Columns& row, const Quantiles& pass, const Quantiles& native) {
    const double ratio = pass.median / native.median;
    const bool is_known = native.median > 0;
    row.emplace_back("native_ms", "native ms", native.median * 1e3, 4);
    row.emplace_back("over_native", "over native", is_known ? Json(ratio) : Column::unknown(),
                     is_known ? format_number(ratio, 2) : "");
}

Columns collective_row(const CollectiveTime& collective) {
    const Quantiles& seconds = collective.seconds;
    return {{"name", "collective", collective.name},
            {"bytes", "", collective.bytes},
            {"median_ms", "median us", seconds.median * 1e3, 2, 1e3},
            {"p90_ms", "p90", seconds.p90 * 1e3, 2, 1e3},
            {"p99_ms", "p99", seconds.p99 * 1e3, 2, 1e3},
            {"mean_ms", "", seconds.mean * 1e3},
            {"deviation_ms", "", seconds.deviation * 1e3}};
}

std::vector<Columns> target_rows(const PassTimes& passes, const std::vector<double>& limit) {
    std::vector<Columns> rows;
    for (std::size_t i = 0; i < passes.target.size(); ++i) {
        if (passes.target[i].median == 0) continue;
        const std::string name = "target, " + counted(static_cast<std::int64_t>(i + 1), "row");
        rows.push_back(pass_row(name, passes.target[i], passes.target[0].median, limit[i]));
        rows.back().emplace_back("rows", "", i + 1);
        for (const PassTimes& native : passes.native)
            add_native(rows.back(), passes.target[i], native.target[i]);
    }
    return rows;
}

// Rows for a tree's first rows, compared with chains of the same length.
std::vector<Columns> tree_rows(const PassTimes& passes) {
    std::vector<Columns> rows;
    for (std::size_t i = 0; i < passes.tree.size(); ++i) {
        const Quantiles &tree = passes.tree[i], &chain = passes.target[i];
        if (tree.median == 0) continue;
        rows.push_back({{"rows", "", i + 1},
                        {"", "tree", counted(static_cast<std::int64_t>(i + 1), "row")},
                        {"median_ms", "median ms", tree.median * 1e3, 4},
                        {"p90_ms", "p90", tree.p90 * 1e3, 4},
                        {"p99_ms", "p99", tree.p99 * 1e3, 4},
                        {"over_chain", "over a chain's", tree.median / chain.median, 3}});
    }
    return rows;
}

// The first draft pass of a round, and a pass after another draft pass.
std::array<Columns, 2> draft_rows(const PassTimes& passes) {
    const double one_row = passes.target[0].median;
    std::array<Columns, 2> rows = {pass_row("draft, first of a round", passes.first_draft, one_row),
                                   pass_row("draft, after another", passes.draft, one_row)};
    for (const PassTimes& native : passes.native) {
        add_native(rows[0], passes.first_draft, native.first_draft);
        add_native(rows[1], passes.draft, native.draft);
    }
    return rows;
}

// The passes of one context.
Json passes_json(const PassTimes& passes, const std::vector<double>& limit) {
    const auto [first, further] = draft_rows(passes);
    Json json = {{"context", passes.context},
                 {"draft", json_of(further)},
                 {"first_draft", json_of(first)},
                 {"target", json_of(target_rows(passes, limit))}};
    if (const std::vector<Columns> trees = tree_rows(passes); !trees.empty()) json["tree"] = json_of(trees);
    return json;
}

Json to_json(const Latency& latency, const Json& environment, const ModelPair& models) {
    const model::ModelConfig& config = models.opened.target.config;
    const model::AllReduces all_reduces = model::all_reduces_of(config, {.ranks = models.placed.layout.tp_size,
                                                                         .type = models.placed.target_type,
                                                                         .on_gpu = models.placed.device.is_gpu});
    Json json = Json::parse(spec::to_json(latency.first().costs()));
    json["environment"] = environment;
    json["tensor_parallel"] = models.placed.layout.tp_size;
    json["target_shape"] = {{"layers", config.n_layers}, // the scaling model needs these facts of the target
                            {"hidden_size", config.hidden_size},
                            {"vocab_size", config.vocab_size},
                            {"all_reduces_per_pass", all_reduces.count},
                            {"all_reduce_bytes_per_pass", all_reduces.bytes}}; // for one row
    json.update(passes_json(latency.first(), latency.limit));
    json["contexts"] = Json::array();
    for (const PassTimes& passes : latency.passes)
        json["contexts"].push_back(passes_json(passes, latency.limit));
    json["weight_bytes_per_rank"] = latency.weight_bytes;
    if (std::isfinite(latency.read_rate)) json["read_rate_bytes_per_second"] = latency.read_rate;
    if (std::isfinite(latency.peak)) json["arithmetic_peak_per_second"] = latency.peak;
    json["collectives"] = json_of(rows_of(latency.collectives, collective_row));
    return json;
}

std::string passes_text(const PassTimes& passes, const std::vector<double>& limit) {
    std::vector<Columns> rows = target_rows(passes, limit);
    if (passes.draft.median > 0) std::ranges::copy(draft_rows(passes), std::back_inserter(rows));
    const std::vector<Columns> trees = tree_rows(passes);
    return fmt::format("context {}\n{}\n{}", passes.context, table_of(rows),
                       trees.empty() ? "" : table_of(trees) + "\n");
}

std::string to_text(const Latency& latency, const Json& environment) {
    const std::string rate =
        std::isfinite(latency.read_rate) ? fmt::format(", read rate {:.1f} GB/s", latency.read_rate / 1e9) : "";
    const std::string peak =
        std::isfinite(latency.peak) ? fmt::format(", arithmetic peak {:.1f} GFLOP/s", latency.peak / 1e9) : "";
    std::string text = fmt::format("{}\n\na rank's weights {:.2f} MB{}{}\n\n", environment_line(environment),
                                   latency.weight_bytes / 1e6, rate, peak);
    for (const PassTimes& passes : latency.passes)
        text += passes_text(passes, latency.limit);
    return text + table_of(rows_of(latency.collectives, collective_row));
}

// Opens the same models on our kernels, to time them next to torch's passes; null if the device has no such kernels.
std::unique_ptr<ModelPair> open_native(dist::Session& session, const LatencyOptions& options) {
    const bool is_built_without_gpus = n_gpus() < 0; // like all ranks
    const bool has_kernels = options.models.device == DeviceChoice::cuda ? !is_built_without_gpus
                                                                         : options.models.device != DeviceChoice::xpu;
    if (options.models.backend != Backend::torch || !has_kernels) return nullptr;
    ModelOptions native = options.models;
    native.backend = Backend::native;
    native.quiet = true;
    return open_models(session, native, {.draft = options.placement});
}

} // namespace

int run_bench_latency(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<LatencyOptions>(session, arguments, page_of("bench latency"));
    if (!options) return kAllServed;
    session.set_timeout(options->models.collective_timeout_seconds);
    in_agreement(session, [&] {
        if (!options->shards.empty() && session.world_size() > 1)
            throw BadOption(
                fmt::format("--shards times shards by themselves: start one rank, not {}", session.world_size()));
        if (session.world_rank() == 0 && !options->output.empty()) require_replaceable(options->output);
    });
    const auto models = open_models(session, options->models, {.draft = options->placement});
    in_agreement(session, [&] {
        if (!options->shards.empty() && !models->placed.device.is_native_cpu())
            throw BadOption("--shards times shards of native passes on the CPU alone: add --device cpu, and leave "
                            "--backend torch out");
        require_heads_for(options->shards, models->opened.target.config);
    });
    const auto native = open_native(session, *options);
    const LatencyPlan& plan = options->plan;
    const MachineWatch watch(session, models->placed.team->size());
    const Latency latency = measure_latency(session, *models, plan, options->models.quiet, native.get());
    std::vector<Columns> shards;
    in_agreement(session, [&] {
        if (options->shards.empty()) return;
        const OpenedModel opened = open_model("--target", options->models.target, options->models.random_weights);
        for (const int of : options->shards)
            shards.push_back(shard_row(*models, opened, options->models, plan, latency.first().context, of));
    });
    const MachineLoad load = watch.stop(spread_of(latency.first().target.front()));
    const Json environment = environment_of(session, *models);
    in_agreement(session, [&] {
        if (!models->placed.layout.is_writer()) return;
        Json json = to_json(latency, environment, *models);
        json["machine"] = to_json(load);
        if (!shards.empty()) json["shards"] = json_of(shards);
        print(session, options->json ? indented(json)
                                     : to_text(latency, environment) + (shards.empty() ? "" : "\n") + table_of(shards) +
                                           load.warning_line());
        if (options->json) warn_of(load);
        if (!options->output.empty()) replace_file(options->output, indented(json));
    });
    return kAllServed;
}

} // namespace entrodraft::launch
