// Measured passes beside the scaling model: see scaling_report.h. gpu_scaling_report.cpp has the extrapolation.
#include "launch/cmd/bench/scaling_report.h"

#include "launch/counted.h"
#include "launch/environment.h"

#include <algorithm>

namespace entrodraft::launch {

namespace {

using Table = std::vector<std::vector<std::string>>;

std::string ms(double seconds) {
    return format_number(seconds * 1e3, 4);
}

void choose_best(MeasuredScaling& scaling) {
    std::vector<std::size_t> candidates;
    for (std::size_t i = 0; i < scaling.rows.size(); ++i)
        if (!scaling.rows[i].run->over_cores()) candidates.push_back(i);
    scaling.by_drafting = !candidates.empty();
    for (const std::size_t i : candidates) {
        scaling.throughput_cores = std::max(scaling.throughput_cores, scaling.rows[i].run->setting.used_cores());
        scaling.by_drafting = scaling.by_drafting && scaling.rows[i].drafting_rate() > 0;
    }
    double most = 0;
    for (const std::size_t i : candidates) {
        if (!scaling.best_latency || scaling.rate(i) > scaling.rate(*scaling.best_latency)) scaling.best_latency = i;
        const double rate = throughput_of_replicas(scaling.throughput_cores, scaling.rows[i].run->setting.used_cores(),
                                                   1 / scaling.rate(i));
        if (rate <= most) continue;
        most = rate;
        scaling.best_throughput = i;
    }
}

std::string name_of(const MeasuredScaling& scaling, std::size_t i) {
    const LatencyRun& run = *scaling.rows[i].run;
    return run.setting.name() + (i == scaling.base ? " (base)" : "") + (run.over_cores() ? " (over cores)" : "");
}

const char* compute_by(const PredictedPass& predicted) {
    return predicted.compute_by_shard ? "by shard" : "by reading";
}

Table table_of(const MeasuredScaling& scaling) {
    Table table = {{"setting", "t_target ms", "predicted", "meas./pred.", "compute", "by reading", "meas./pred.",
                    "by division", "meas./pred.", "all-reduces", "speed-up", "efficiency", "t_draft ms", "plain t/s",
                    "drafting t/s"}};
    for (std::size_t i = 0; i < scaling.rows.size(); ++i) {
        const ScalingRow& row = scaling.rows[i];
        const bool is_base = i == scaling.base;
        table.push_back({name_of(scaling, i), ms(row.run->pass.seconds), is_base ? "-" : ms(row.predicted.seconds()),
                         is_base ? "-" : format_number(row.over_predicted(), 2),
                         is_base ? "-" : compute_by(row.predicted), ms(row.predicted.by_reading()),
                         is_base ? "-" : format_number(row.over_reading(), 2), ms(row.predicted.by_division()),
                         is_base ? "-" : format_number(row.over_division(), 2), ms(row.predicted.communication),
                         format_number(row.speedup, 2), format_number(row.efficiency, 2), ms(row.run->t_draft),
                         row.compare ? format_number(row.compare->plain_tokens_per_second, 1) : "-",
                         row.compare && row.compare->drafting_tokens_per_second > 0
                             ? format_number(row.compare->drafting_tokens_per_second, 1)
                             : "-"});
    }
    return table;
}

std::string links_text(const MeasuredScaling& scaling) {
    Table table = {{"all-reduces", "alpha us", "beta ns/byte", "of a pass", "bytes each", "announce us", "gather us"}};
    for (const ScalingRow& row : scaling.rows) {
        const MeasuredPass& pass = row.run->pass;
        if (pass.tensor_parallel == 1) continue;
        table.push_back({row.run->setting.name(), format_number(pass.link.alpha * 1e6, 3),
                         format_number(pass.link.beta * 1e9, 4), format_number(pass.all_reduces, 0),
                         format_number(pass.all_reduce_bytes, 0), format_number(row.run->announce * 1e6, 2),
                         format_number(row.run->gather * 1e6, 2)});
    }
    std::string text;
    if (table.size() > 1) text.append("\n").append(format_table(table));
    return text;
}

std::string range_text(const MeasuredScaling& scaling) {
    double least = 0, most = 0;
    int count = 0;
    for (std::size_t i = 0; i < scaling.rows.size(); ++i) {
        const ScalingRow& row = scaling.rows[i];
        if (i == scaling.base || row.run->over_cores()) continue;
        least = count == 0 ? row.over_predicted() : std::min(least, row.over_predicted());
        most = std::max(most, row.over_predicted());
        ++count;
    }
    if (count == 0) return "nothing but the base was measured within the cores: the model has met no test\n";
    return "measured over predicted of the " + counted(count, "other setting") +
           " within the cores: " + format_number(least, 2) + (count == 1 ? "" : " to " + format_number(most, 2)) + "\n";
}

std::string best_text(const MeasuredScaling& scaling) {
    if (!scaling.best_latency) return "no setting was measured within the cores: none is best\n";
    const char* rate_of = scaling.by_drafting ? " tokens/s with the draft" : " tokens/s of plain decoding";
    std::string text = "best for latency: " + scaling.rows[*scaling.best_latency].run->setting.name() + ", " +
                       format_number(scaling.rate(*scaling.best_latency), 1) + rate_of + "\n";
    if (!scaling.best_throughput) return text;
    const RunSetting& group = scaling.rows[*scaling.best_throughput].run->setting;
    const int cores = scaling.throughput_cores, replicas = cores / group.used_cores();
    return text + "best for throughput on " + counted(cores, "core") + ": " + counted(replicas, "replica") + " of " +
           group.name() + ", " + format_number(replicas * scaling.rate(*scaling.best_throughput), 1) + rate_of +
           ", if replicas do not slow each other down\n";
}

} // namespace

std::size_t base_of(const ScalingFiles& files) {
    for (std::size_t i = 0; i < files.latencies.size(); ++i)
        if (!files.latencies[i].over_cores()) return i;
    return 0;
}

MeasuredScaling measured_scaling(const ScalingFiles& files) {
    MeasuredScaling scaling;
    scaling.base = base_of(files);
    const LatencyRun& base = files.latencies.at(scaling.base);
    for (const LatencyRun& run : files.latencies) {
        ScalingRow& row = scaling.rows.emplace_back();
        row.run = &run;
        row.compare = files.compare_of(run.setting);
        const bool drafts_too = run.setting.placement == "colocated";
        row.predicted = predict(base.pass, drafts_too ? base.shards_beside_draft : base.shards_alone, run.pass);
        row.speedup = base.pass.seconds / run.pass.seconds;
        row.efficiency = row.speedup * base.setting.used_cores() / run.setting.used_cores();
    }
    choose_best(scaling);
    return scaling;
}

std::string to_text(const MeasuredScaling& scaling) {
    const LatencyRun& base = *scaling.rows[scaling.base].run;
    return "target: " + base.target + "; base: " + base.setting.name() + "\n" +
           "t_target: a pass of one row. Predicted = compute + all-reduces (alpha and beta fitted to those measured "
           "alone). Compute by shard: what a shard\ntook on one rank by itself (bench latency --shards), by reading: "
           "what "
           "the base took, each times the ratio of what the ranks could read at\nbest; by division: what the base "
           "took, "
           "divided by the ranks\n\n" +
           format_table(table_of(scaling)) + links_text(scaling) + "\n" + range_text(scaling) + best_text(scaling);
}

Json measured_json(const MeasuredScaling& scaling) {
    Json rows = Json::array();
    for (const ScalingRow& row : scaling.rows) {
        Json json = {{"ranks", row.run->setting.ranks},
                     {"placement", row.run->setting.placement},
                     {"threads_per_rank", row.run->setting.threads},
                     {"tensor_parallel", row.run->pass.tensor_parallel},
                     {"is_base", &row == &scaling.rows[scaling.base]},
                     {"over_cores", row.run->over_cores()},
                     {"t_target_ms", row.run->pass.seconds * 1e3},
                     {"predicted_ms", row.predicted.seconds() * 1e3},
                     {"compute_by", compute_by(row.predicted)},
                     {"predicted_by_reading_ms", row.predicted.by_reading() * 1e3},
                     {"predicted_by_division_ms", row.predicted.by_division() * 1e3},
                     {"measured_over_predicted", row.over_predicted()},
                     {"all_reduces_ms", row.predicted.communication * 1e3},
                     {"announce_and_gather_ms", row.run->around() * 1e3},
                     {"alpha_us", row.run->pass.link.alpha * 1e6},
                     {"beta_ns_per_byte", row.run->pass.link.beta * 1e9},
                     {"speedup", row.speedup},
                     {"efficiency", row.efficiency},
                     {"t_draft_ms", row.run->t_draft * 1e3},
                     {"file", row.run->file}};
        if (row.compare) {
            json["plain_tokens_per_second"] = row.compare->plain_tokens_per_second;
            json["drafting_tokens_per_second"] = row.compare->drafting_tokens_per_second;
            json["drafting"] = row.compare->drafting;
        }
        rows.push_back(json);
    }
    return rows;
}

// Of the most ranks within the cores that sum anything up; null where there are none.
Json model_json(const MeasuredScaling& scaling) {
    const LatencyRun* most = nullptr;
    for (const ScalingRow& row : scaling.rows)
        if (!row.run->over_cores() && row.run->pass.tensor_parallel > 1) most = row.run;
    const auto best = [&](std::optional<std::size_t> row) {
        return row ? Json(scaling.rows[*row].run->setting.name()) : Json();
    };
    const auto part = [&](double value) { return most ? Json(value) : Json(); };
    return {{"compute_ms", scaling.rows[scaling.base].run->pass.compute() * 1e3},
            {"base", scaling.rows[scaling.base].run->setting.name()},
            {"alpha_us", part(most ? most->pass.link.alpha * 1e6 : 0)},
            {"beta_ns_per_byte", part(most ? most->pass.link.beta * 1e9 : 0)},
            {"link_of", most ? Json(most->setting.name()) : Json()},
            {"best_for_latency", best(scaling.best_latency)},
            {"best_for_throughput", best(scaling.best_throughput)},
            {"best_by", scaling.by_drafting ? "drafting" : "plain"}};
}

} // namespace entrodraft::launch
