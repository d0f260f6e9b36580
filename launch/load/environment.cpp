// Environment of a run: see environment.h.
#include "launch/load/environment.h"

#include "launch/cli/command_pages.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"

#include <fmt/format.h>
#include <fstream>
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
    const std::vector<HeldDraft>& drafts = models.placed.drafts;
    const std::string target = describe_weights(models.opened.target.config, models.placed.target_type);
    const std::string draft = drafts.empty() ? target : describe_weights(drafts.front().config, drafts.front().type);
    Json environment = {{"cpu", cpu_model()},
                        {"cores", std::thread::hardware_concurrency()},
                        {"ranks", session.world_size()},
                        {"host_ranks", session.node_local_size()}, // on the first rank's host
                        {"threads_per_rank", models.placed.team->size()},
                        {"version", version_text()},
                        {"compiler", compiler()},
                        {"dtype", target},
                        {"draft_dtype", draft},
                        {"communicator", models.placed.replica->name()},
                        {"device", models.placed.device.name},
                        {"draft_placement", dist::to_string(models.placed.layout.placement)}};
    if (models.placed.device.is_native_cpu())
        environment["activation_dtype"] = model::to_string(models.placed.activations);
    if (models.placed.kv_type) environment["kv_dtype"] = model::to_string(*models.placed.kv_type);
    if (!drafts.empty() && drafts.front().config.picks_outputs)
        environment["draft_vocab"] = drafts.front().config.n_outputs();
    if (models.placed.tp && models.placed.tp->name() == "nccl") environment["nccl"] = loaded_nccl();
    if (models.opened.random_weights) environment["random_weights"] = *models.opened.random_weights;
    return environment;
}

std::string environment_line(const Json& environment) {
    const auto text = [&](const char* name) { return environment[name].get<std::string>(); };
    const auto count = [&](const char* name, const char* thing) {
        return counted(environment[name].get<int>(), thing);
    };
    const bool on_cpu = environment.value("device", "cpu") == "cpu";
    const bool has_nccl = environment.contains("nccl");
    return fmt::format("{}{}, {}; {} of {} over {}, draft {}; {}{}target {}, draft {}; {}, {}",
                       on_cpu ? "" : text("device") + "; ", text("cpu"), count("cores", "core"), count("ranks", "rank"),
                       count("threads_per_rank", "thread"), text("communicator"), text("draft_placement"),
                       has_nccl ? text("nccl") : "", has_nccl ? "; " : "", text("dtype"), text("draft_dtype"),
                       text("version"), text("compiler"));
}

void require_costs_of(const Json& environment, const std::string& costs_file) {
    const Json costs = Json::parse(std::ifstream(costs_file), nullptr, false);
    if (!costs.is_object() || !costs.contains("environment")) return; // a file written by hand has no environment
    for (const std::string field : {"ranks", "threads_per_rank", "draft_placement", "dtype", "draft_dtype",
                                    "activation_dtype", "kv_dtype", "draft_vocab", "device"}) {
        const Json measured = costs["environment"].value(field, Json()), here = environment.value(field, Json());
        const bool was_not_said = // by earlier versions
            field == "device" || field == "activation_dtype" || field == "kv_dtype";
        if ((measured.is_null() && was_not_said) || measured == here) continue;
        throw BadOption(fmt::format("--costs {} was measured with {} {}, and this run has {}; measure again with bench "
                                    "latency",
                                    costs_file, field, compact(measured), compact(here)));
    }
}

} // namespace entrodraft::launch
