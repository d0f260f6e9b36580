// Reading what bench scaling is given: see scaling_files.h.
#include "launch/cmd/bench/scaling_files.h"

#include "launch/counted.h"
#include "launch/io/json_fields.h"
#include "model/checkpoint/bad_file.h"

#include <algorithm>
#include <stdexcept>
#include <tuple>

namespace entrodraft::launch {

namespace {

constexpr double kMs = 1e-3;

RunSetting setting_of(const JsonFields& environment) {
    return {environment.count("ranks"), environment.count("threads_per_rank"), environment.text("draft_placement")};
}

std::string target_of(const JsonFields& file, const JsonFields& environment) {
    const JsonFields shape = file.object("target_shape");
    return environment.text("dtype") + ", " + std::to_string(shape.count("layers")) + " layers of " +
           std::to_string(shape.count("hidden_size")) + ", vocabulary of " + std::to_string(shape.count("vocab_size"));
}

void read_collectives(const JsonFields& file, LatencyRun& run) {
    for (const JsonFields& collective : file.objects("collectives")) {
        const std::string name = collective.text("name");
        const double seconds = collective.number("median_ms") * kMs;
        if (name.starts_with("announce")) run.announce = seconds;
        if (name.starts_with("gather of candidates")) run.gather = seconds;
        if (!name.starts_with("all-reduce") || run.pass.tensor_parallel == 1) continue;
        run.all_reduces.push_back({collective.positive("bytes"), collective.positive("median_ms") * kMs});
    }
    if (run.pass.tensor_parallel == 1) return; // a rank by itself has nothing to sum up
    try {
        run.pass.link = fit_link(run.all_reduces);
    } catch (const std::invalid_argument& error) {
        file.bad("collectives", std::string("gives no cost of all-reduces: ") + error.what());
    }
}

LatencyRun read_latency(const JsonFields& file) {
    LatencyRun run;
    run.file = file.file();
    const JsonFields environment = file.object("environment");
    run.setting = setting_of(environment);
    run.cores = environment.count("cores");
    run.host_ranks = environment.count("host_ranks");
    run.target = target_of(file, environment);
    run.pass.tensor_parallel = file.count("tensor_parallel");
    run.pass.seconds = file.first_positive("t_target_ms") * kMs;
    const std::vector<JsonFields> rows = file.objects("target");
    if (rows.empty()) file.bad("target", "is empty");
    run.pass.limit = rows.front().positive("limit_ms") * kMs;
    const JsonFields shape = file.object("target_shape");
    run.pass.all_reduces = shape.number("all_reduces_per_pass");
    if (run.pass.all_reduces > 0)
        run.pass.all_reduce_bytes = shape.positive("all_reduce_bytes_per_pass") / run.pass.all_reduces;
    run.t_draft = file.number("t_draft_ms") * kMs;
    read_collectives(file, run);
    if (!file.has("shards")) return run;
    for (const JsonFields& shard : file.objects("shards")) {
        const int of = shard.count("of");
        const double limit = shard.positive("limit_ms") * kMs;
        run.shards_beside_draft.push_back({of, shard.positive("t_target_ms") * kMs, limit});
        run.shards_alone.push_back({of, shard.positive("t_target_without_draft_ms") * kMs, limit});
    }
    return run;
}

CompareRun read_compare(const JsonFields& file) {
    CompareRun run;
    run.file = file.file();
    run.setting = setting_of(file.object("environment"));
    const std::vector<JsonFields> temperatures = file.objects("temperatures");
    if (temperatures.empty()) file.bad("temperatures", "is empty");
    run.temperature = temperatures.front().number("temperature");
    for (const JsonFields& outcome : temperatures.front().objects("settings")) {
        if (!outcome.is("kind", "")) continue; // runs that drafted to the cap, for the oracle
        const std::string name = outcome.text("setting");
        const double rate = outcome.positive("tokens_per_second");
        if (name == "plain") {
            run.plain_tokens_per_second = rate;
        } else if (rate > run.drafting_tokens_per_second && !name.starts_with("plain")) {
            run.drafting_tokens_per_second = rate;
            run.drafting = name;
        }
    }
    if (run.plain_tokens_per_second == 0) temperatures.front().bad("settings", "has no plain decoding");
    return run;
}

template <typename Run> void refuse_twice(const std::vector<Run>& runs) {
    for (std::size_t i = 1; i < runs.size(); ++i)
        if (runs[i].setting == runs[i - 1].setting)
            throw model::BadFile(runs[i].file + ": was measured with " + runs[i].setting.name() + ", as " +
                                 runs[i - 1].file + " was; give one of them");
}

void check(const ScalingFiles& files) {
    refuse_twice(files.latencies);
    refuse_twice(files.compares);
    for (const LatencyRun& run : files.latencies)
        if (run.target != files.latencies.front().target)
            throw model::BadFile(run.file + ": is of another target (" + run.target + ") than " +
                                 files.latencies.front().file + " (" + files.latencies.front().target + ")");
    for (const CompareRun& run : files.compares)
        if (std::none_of(files.latencies.begin(), files.latencies.end(),
                         [&](const LatencyRun& latency) { return latency.setting == run.setting; }))
            throw model::BadFile(run.file + ": compares " + run.setting.name() +
                                 ", of which there is no file of bench latency");
}

} // namespace

std::string RunSetting::name() const {
    return counted(ranks, "rank") + " of " + counted(threads, "thread") + ", " + placement;
}

const CompareRun* ScalingFiles::compare_of(const RunSetting& setting) const {
    for (const CompareRun& run : compares)
        if (run.setting == setting) return &run;
    return nullptr;
}

ScalingFiles read_scaling_files(const std::vector<std::string>& files) {
    ScalingFiles read;
    for (const std::string& name : files) {
        const JsonFields file = JsonFields::read(name);
        if (file.has("t_target_ms"))
            read.latencies.push_back(read_latency(file));
        else if (file.has("temperatures"))
            read.compares.push_back(read_compare(file));
        else
            throw model::BadFile(name + ": is neither of bench latency --output (field t_target_ms) nor of bench "
                                        "compare --output (field temperatures)");
    }
    const auto by_setting = [](const auto& a, const auto& b) {
        return std::tie(a.setting.ranks, a.setting.threads, a.setting.placement) <
               std::tie(b.setting.ranks, b.setting.threads, b.setting.placement);
    };
    std::sort(read.latencies.begin(), read.latencies.end(), by_setting);
    std::sort(read.compares.begin(), read.compares.end(), by_setting);
    check(read);
    return read;
}

} // namespace entrodraft::launch
