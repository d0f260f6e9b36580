// What a bench ran on and how its samples are summed up: see environment.h.
#include "launch/environment.h"

#include "launch/commands.h"
#include "launch/counted.h"
#include "launch/failure.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <thread>

namespace entrodraft::launch {

namespace {

std::string cpu_model() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        const std::size_t colon = line.find(": ");
        if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown CPU";
}

std::string compiler() {
#if defined(__clang__)
    return "clang " __clang_version__;
#elif defined(__GNUC__)
    return "GCC " __VERSION__;
#else
    return "unknown compiler";
#endif
}

} // namespace

Json environment_of(const dist::Session& session, const ModelPair& models) {
    return {{"cpu", cpu_model()},
            {"cores", std::thread::hardware_concurrency()},
            {"ranks", session.world_size()},
            {"host_ranks", session.node_local_size()}, // of the first rank's host
            {"threads_per_rank", models.team->size()},
            {"version", version_text()},
            {"compiler", compiler()},
            {"dtype", model::to_string(models.target_type)},
            {"draft_dtype", model::to_string(models.draft_type)},
            {"communicator", models.replica->name()},
            {"device", models.device.name},
            {"draft_placement", dist::to_string(models.layout.placement)}};
}

std::string environment_line(const Json& environment) {
    const auto text = [&](const char* name) { return environment[name].get<std::string>(); };
    const auto count = [&](const char* name, const char* thing) {
        return counted(environment[name].get<int>(), thing);
    };
    const std::string gpu = environment.value("device", "cpu") == "cpu" ? "" : text("device") + "; ";
    return gpu + text("cpu") + ", " + count("cores", "core") + "; " + count("ranks", "rank") + " of " +
           count("threads_per_rank", "thread") + " over " + text("communicator") + ", draft " +
           text("draft_placement") + "; target " + text("dtype") + ", draft " + text("draft_dtype") + "; " +
           text("version") + ", " + text("compiler");
}

void require_costs_of(const Json& environment, const std::string& costs_file) {
    const Json costs = Json::parse(std::ifstream(costs_file), nullptr, false);
    if (!costs.is_object() || !costs.contains("environment")) return; // written by hand: it says nothing of this
    for (const char* field : {"ranks", "threads_per_rank", "draft_placement", "dtype", "draft_dtype", "device"}) {
        const Json measured = costs["environment"].value(field, Json());
        if (measured.is_null() && std::string(field) == "device") continue; // of versions that knew CPUs alone
        if (measured != environment[field])
            throw BadOption("--costs " + costs_file + " was measured with " + field + " " + compact(measured) +
                            ", and this run has " + compact(environment[field]) + "; measure again with bench latency");
    }
}

Quantiles quantiles_of(std::vector<double> samples) {
    if (samples.empty()) return {};
    std::sort(samples.begin(), samples.end());
    const auto at = [&](double share) {
        return samples[static_cast<std::size_t>(std::lround(share * static_cast<double>(samples.size() - 1)))];
    };
    const auto n = static_cast<double>(samples.size());
    const double mean = total_of(samples) / n;
    double squares = 0;
    for (const double sample : samples)
        squares += (sample - mean) * (sample - mean);
    return {at(0.5), at(0.9), at(0.99), mean, samples.size() > 1 ? std::sqrt(squares / (n - 1)) : 0};
}

double total_of(std::span<const double> samples) {
    return std::accumulate(samples.begin(), samples.end(), 0.0);
}

std::vector<double> largest_over_ranks(dist::Session& session, std::vector<double> values, double timeout_seconds) {
    const std::size_t count = values.size();
    std::vector<double> all(count * static_cast<std::size_t>(session.world_size()));
    session.world().gather(values.data(), all.data(), count * sizeof(double), 0,
                           dist::Deadline::after_seconds(timeout_seconds));
    for (std::size_t i = 0; i < all.size(); ++i)
        values[i % count] = std::max(values[i % count], all[i]);
    return values;
}

Quantiles of_slowest_rank(dist::Session& session, const Quantiles& mine, double timeout_seconds) {
    const auto largest =
        largest_over_ranks(session, {mine.median, mine.p90, mine.p99, mine.mean, mine.deviation}, timeout_seconds);
    return {largest[0], largest[1], largest[2], largest[3], largest[4]};
}

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths;
    for (const auto& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i) {
            if (i == widths.size()) widths.push_back(0);
            widths[i] = std::max(widths[i], row[i].size());
        }
    std::string text;
    for (const auto& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string blanks(widths[i] - row[i].size(), ' ');
            text += i == 0 ? row[i] + blanks : "  " + blanks + row[i];
        }
        text += '\n';
    }
    return text;
}

std::string format_number(double value, int decimals) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
    return text;
}

} // namespace entrodraft::launch
