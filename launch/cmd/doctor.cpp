// entrodraft doctor: checks whether a job like this one would work, before anything is loaded. It looks at the ranks'
// hosts and cores, at builds, files and shares of heads, and at the time of every collective. generate and bench make
// the same checks when they start (launch_check.h, model_pair.h); doctor shows all results.
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cmd/doctor_gpu.h"
#include "launch/cmd/doctor_report.h"
#include "launch/io/machine_load.h"
#include "launch/io/results.h"
#include "launch/load/launch_check.h"
#include "launch/load/opened_model.h"
#include "launch/load/rank_device.h"
#include "launch/load/same_models.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

namespace entrodraft::launch {

namespace {

std::vector<Columns> transport_rows(const DoctorReport::Transport& transport) {
    return rows_of(transport.times, [&](const CollectiveTime& time) -> Columns {
        return {{"transport", "", transport.name},
                {"name", "over " + transport.name, time.name},
                {"median_us", "median us", time.seconds.median * 1e6, 2},
                {"p90_us", "", time.seconds.p90 * 1e6},
                {"p99_us", "p99", time.seconds.p99 * 1e6, 2}};
    });
}

std::vector<Columns> gpu_rows(const std::vector<RankGpu>& gpus) {
    std::vector<Columns> rows;
    for (const RankGpu& gpu : gpus) {
        std::vector<int> peers;
        bool has_atomics = true;
        for (int other = 0; other < gpu.links.count; ++other) {
            if ((gpu.links.access >> other & 1) == 0) continue;
            peers.push_back(other);
            has_atomics = has_atomics && (gpu.links.atomics >> other & 1) != 0;
        }
        rows.push_back({{"rank", "rank", rows.size()},
                        {"number", "GPU", gpu.number},
                        {"name", "name", gpu.name},
                        {"identity", "", fmt::format("{:016x}", gpu.identity)},
                        {"ranks", "its ranks", gpu.sharers},
                        {"seen", "seen", gpu.links.count},
                        {"peer_access", "peer access to", peers,
                         peers.empty() ? "none" : fmt::format("{}", fmt::join(peers, " "))},
                        {"native_atomics", "native atomics", !peers.empty() && has_atomics,
                         peers.empty() ? ""
                         : has_atomics ? "yes"
                                       : "not all"},
                        {"free_bytes", "free", gpu.free_bytes, format_bytes(gpu.free_bytes)},
                        {"read_rate_bytes_per_second", "reads GB/s", gpu.read_rate, 1, 1e-9}});
    }
    return rows;
}

constexpr std::size_t kHiddenSize = 4096; // many 7B models have this size; it is used if no model is named
constexpr std::size_t kRows = 16;
constexpr double kWatchSeconds = 1; // at least; clock ticks of cores are 0.01 s

// Says what the comparison of the files has shown.
std::string describe_files(const DoctorOptions& options, const WeightComparison& compared, int ranks) {
    const std::string names = options.target + (options.drafts.empty() ? "" : " and the drafts");
    if (ranks == 1) return "the files of " + names + " can be opened";
    if (compared.n_copies == 1) return "all ranks have opened the same files of " + names;
    const double gigabytes = static_cast<double>(compared.copy_bytes) / 1e9;
    return fmt::format("{} copies of {} are the same byte for byte ({:.2f} GB each, compared at {:.2f} GB/s)",
                       compared.n_copies, names, gigabytes, gigabytes / compared.seconds);
}

// Returns the target's hidden size, or kHiddenSize. Collective over the world.
std::size_t look_at_files(dist::Session& session, const DoctorOptions& options, int threads, DoctorReport& report) {
    if (options.target.empty()) return kHiddenSize;
    OpenedPair opened;
    try {
        in_agreement(session,
                     [&] { opened = open_pair(options.target, options.drafts, {}, "", DraftVocabulary::automatic); });
        const WeightComparison compared =
            require_same_models(session, opened, {.threads = threads, .trusts_shared_files = false});
        report.good(describe_files(options, compared, session.world_size()));
        in_agreement(session, [&] { require_heads_for_all(opened, layout_of(session, {})); });
        for (const std::string& line : opened.doubts)
            report.add({false, line});
        report.good("its heads can be sharded across " + counted(session.world_size(), "rank"));
    } catch (const OrderlyFailure& failure) {
        report.add({true, failure.what()});
    }
    const auto hidden_size = from_writer(session, opened.target.config.hidden_size); // other ranks may have none
    return hidden_size > 0 ? static_cast<std::size_t>(hidden_size) : kHiddenSize;
}

void look_at_ranks(dist::Session& session, int threads, DoctorReport& report) {
    report.ranks = gather_facts(session, threads, n_gpus());
    const std::vector<Finding> findings = findings_of(report.ranks);
    for (const Finding& finding : findings)
        report.add(finding);
    if (findings.empty()) report.good("one build on all ranks, and cores for each of them");
}

// Times every collective at the sizes of a round, on the slowest rank. Collective over the world.
std::vector<CollectiveTime> ping(dist::Session& session, dist::Communicator& comm, const DoctorOptions& options,
                                 std::size_t hidden) {
    const auto deadline = [&] { return session.deadline(); };
    std::vector<float> data(hidden * kRows);
    std::vector<std::byte> all(kRows * 8 * static_cast<std::size_t>(comm.size()) +
                               64 * static_cast<std::size_t>(comm.size()));
    const std::vector<NamedCollective> collectives = {
        {"barrier", [&] { comm.barrier(deadline()); }},
        {"broadcast, 256 bytes (round packet)", [&] { comm.broadcast(data.data(), 256, 0, deadline()); }},
        {"gather, 136 bytes (16 rows)", [&] { comm.gather(data.data(), all.data(), kRows * 8 + 8, 0, deadline()); }},
        {fmt::format("all-reduce, 1 row of {}", hidden), [&] { comm.all_reduce_sum(data.data(), hidden, deadline()); }},
        {fmt::format("all-reduce, {} rows of {}", kRows, hidden),
         [&] { comm.all_reduce_sum(data.data(), hidden * kRows, deadline()); }},
    };
    return time_collectives(session, collectives, options.repetitions);
}

} // namespace

void DoctorReport::add(const MachineLoad& load) {
    machine = load;
    if (!load.is_trusted()) return add(Finding{false, load.warning()});
    if (load.others_busy_cores)
        good(fmt::format("no other work on the cores, which were watched for {:.1f} s", load.host.seconds));
}

bool DoctorReport::has_errors() const {
    return std::ranges::any_of(checks, [](const Check& check) { return check.status == "failed"; });
}

std::string DoctorReport::text() const {
    std::string text = fmt::format("{}, {}\n", version_text(), counted(std::ssize(ranks), "rank"));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const RankFacts& facts = ranks[rank];
        text +=
            fmt::format("  rank {}   host {}, cores {} of {}, threads {}{}\n", rank, facts.host, describe(facts.cores),
                        facts.host_cores, facts.threads, facts.gpus >= 0 ? fmt::format(", GPUs {}", facts.gpus) : "");
    }
    for (const Check& check : checks)
        text += fmt::format("  {:<9}{}\n", check.status, check.text);
    if (!gpus.empty()) text += "\n" + table_of(gpu_rows(gpus), "  ");
    for (const Transport& transport : transports)
        text += "\n" + table_of(transport_rows(transport), "  ");
    return text;
}

Json DoctorReport::json() const {
    Json hosts = Json::array(), of_ranks = Json::array(), of_checks = Json::array(), collectives = Json::array();
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        const RankFacts& facts = ranks[rank];
        of_ranks.push_back({{"rank", rank},
                            {"host", facts.host},
                            {"cores", describe(facts.cores)},
                            {"host_cores", facts.host_cores},
                            {"threads", facts.threads},
                            {"gpus", facts.gpus < 0 ? Json() : Json(facts.gpus)},
                            // Null for a single rank; its file is compared with no other.
                            {"build", facts.build == 0 ? Json() : Json(fmt::format("{:016x}", facts.build))}});
        if (std::ranges::find(hosts, Json(facts.host)) == hosts.end()) hosts.push_back(facts.host);
    }
    for (const Check& check : checks)
        of_checks.push_back({{"status", check.status}, {"text", check.text}});
    for (const Transport& transport : transports)
        for (const Columns& row : transport_rows(transport))
            collectives.push_back(json_of(row));
    return {{"schema_version", 1},
            {"command", "doctor"},
            {"version", version_text()},
            {"ok", !has_errors()},
            {"hosts", hosts},
            {"ranks", of_ranks},
            {"files", {{"target", target.empty() ? Json() : Json(target)}, {"drafts", drafts}}},
            {"checks", of_checks},
            {"gpus", json_of(gpu_rows(gpus))},
            {"collectives", collectives},
            {"machine", to_json(machine)}};
}

int run_doctor(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<DoctorOptions>(session, arguments, page_of("doctor"));
    if (!options) return kAllServed;
    session.set_timeout(options->collective_timeout_seconds);
    DoctorReport report;
    report.target = options->target;
    report.drafts = options->drafts;
    look_at_ranks(session, options->threads, report);
    const int threads = report.ranks[session.world_rank()].threads;
    const std::size_t hidden = look_at_files(session, *options, threads, report);
    const MachineWatch watch(session);
    const std::string transport = session.world().name();
    report.transports.push_back({transport, ping(session, session.world(), *options, hidden)});
    if (session.world_size() > 1 && transport != "mpi") {
        const auto over_mpi = session.split_over_mpi(0);
        report.transports.push_back({"mpi", ping(session, *over_mpi, *options, hidden)});
        const std::string slower = slower_sum(report.transports[0].times, report.transports[1].times);
        if (!slower.empty()) report.add({false, slower});
    }
    if (options->gpu) look_at_gpus(session, threads, hidden, options->repetitions, report);
    watch.watch_for(kWatchSeconds);
    report.add(watch.stop());
    in_agreement(session, [&] { print(session, options->json ? indented(report.json()) : report.text()); });
    return report.has_errors() ? kFailure : kAllServed;
}

} // namespace entrodraft::launch
