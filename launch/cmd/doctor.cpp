// entrodraft doctor: whether a job like this one would work, before anything is loaded: how the ranks lie on hosts and
// cores, whether they are of one build, see the same files and can be given heads, and how long every collective takes.
//
// The checks are those that generate and bench make on their way (launch_check.h, model_pair.h); here all are shown.
#include "launch/cli/command_options.h"
#include "launch/cmd/bench/collective_times.h"
#include "launch/cmd/doctor_report.h"
#include "launch/commands.h"
#include "launch/counted.h"
#include "launch/environment.h"
#include "launch/failure.h"
#include "launch/load/cores.h"
#include "launch/load/launch_check.h"
#include "launch/load/model_pair.h"
#include "launch/load/opened_model.h"
#include "launch/load/rank_device.h"
#include "launch/load/same_models.h"
#include "launch/machine_load.h"
#include "launch/phase.h"

#include <vector>

namespace entrodraft::launch {

namespace {

constexpr std::size_t kHiddenSize = 4096; // of the model that none was named for: that of many 7B ones
constexpr std::size_t kRows = 16;

// What is known of the files once they were compared.
std::string describe_files(const DoctorOptions& options, const WeightComparison& compared, int ranks) {
    const std::string names = options.target + (options.drafts.empty() ? "" : " and the drafts");
    if (ranks == 1) return "the files of " + names + " can be opened";
    if (compared.n_copies == 1) return "all ranks have opened the same files of " + names;
    const double gigabytes = static_cast<double>(compared.copy_bytes) / 1e9;
    return std::to_string(compared.n_copies) + " copies of " + names + " are the same byte for byte (" +
           format_number(gigabytes, 2) + " GB each, compared at " + format_number(gigabytes / compared.seconds, 2) +
           " GB/s)";
}

// The target's hidden size, or another one. Collective over the world.
std::size_t look_at_files(dist::Session& session, const DoctorOptions& options, int threads, DoctorReport& report) {
    const double timeout = options.collective_timeout_seconds;
    if (options.target.empty()) return kHiddenSize;
    OpenedPair opened;
    try {
        in_agreement(session, timeout, [&] { opened = open_pair(options.target, options.drafts); });
        const WeightComparison compared = require_same_models(
            session, opened, {.timeout_seconds = timeout, .threads = threads, .trusts_shared_files = false});
        report.good(describe_files(options, compared, session.world_size()));
        in_agreement(session, timeout, [&] { require_heads_for_all(opened, layout_of(session, {})); });
        for (const std::string& line : opened.not_compared)
            report.add({false, line});
        report.good("its heads can be sharded across " + counted(session.world_size(), "rank"));
    } catch (const OrderlyFailure& failure) {
        report.add({true, failure.what()});
    }
    const auto hidden_size = from_writer(session, timeout, opened.target.config.hidden_size); // others may have none
    return hidden_size > 0 ? static_cast<std::size_t>(hidden_size) : kHiddenSize;
}

void look_at_ranks(dist::Session& session, const DoctorOptions& options, int threads, DoctorReport& report) {
    const double timeout = options.collective_timeout_seconds;
    report.ranks = gather_facts(session, timeout, threads, n_gpus());
    const std::vector<Finding> findings = findings_of(report.ranks);
    for (const Finding& finding : findings)
        report.add(finding);
    if (findings.empty()) report.good("one build on all ranks, and cores for each of them");
}

// Every collective at the sizes of a round: of the slowest rank. Collective over the world.
std::vector<CollectiveTime> ping(dist::Session& session, dist::Communicator& comm, const DoctorOptions& options,
                                 std::size_t hidden) {
    const auto deadline = [&] { return dist::Deadline::after_seconds(options.collective_timeout_seconds); };
    std::vector<float> data(hidden * kRows);
    std::vector<std::byte> all(kRows * 8 * static_cast<std::size_t>(comm.size()) +
                               64 * static_cast<std::size_t>(comm.size()));
    const std::vector<NamedCollective> collectives = {
        {"barrier", [&] { comm.barrier(deadline()); }},
        {"broadcast, 256 bytes (round packet)", [&] { comm.broadcast(data.data(), 256, 0, deadline()); }},
        {"gather, 136 bytes (16 rows)", [&] { comm.gather(data.data(), all.data(), kRows * 8 + 8, 0, deadline()); }},
        {"all-reduce, 1 row of " + std::to_string(hidden),
         [&] { comm.all_reduce_sum(data.data(), hidden, deadline()); }},
        {"all-reduce, 16 rows of " + std::to_string(hidden),
         [&] { comm.all_reduce_sum(data.data(), hidden * kRows, deadline()); }},
    };
    return time_collectives(session, collectives, options.repetitions, options.collective_timeout_seconds);
}

} // namespace

int run_doctor(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<DoctorOptions>(session, arguments, page_of("doctor"));
    if (!options) return kAllServed;
    DoctorReport report;
    report.target = options->target;
    report.drafts = options->drafts;
    const int threads =
        options->threads > 0 ? options->threads : default_threads(session, options->collective_timeout_seconds);
    look_at_ranks(session, *options, threads, report);
    const std::size_t hidden = look_at_files(session, *options, threads, report);
    const MachineWatch watch(session, options->collective_timeout_seconds);
    const std::string transport = session.world().name();
    report.transports.push_back({transport, ping(session, session.world(), *options, hidden)});
    if (session.world_size() > 1 && transport != "mpi") {
        const auto over_mpi = session.split_over_mpi(0);
        report.transports.push_back({"mpi", ping(session, *over_mpi, *options, hidden)});
        const std::string slower = slower_sum(report.transports[0].times, report.transports[1].times);
        if (!slower.empty()) report.add({false, slower});
    }
    report.add(watch.stop());
    in_agreement(session, options->collective_timeout_seconds,
                 [&] { print(session, options->json ? indented(report.json()) : report.text()); });
    return report.has_errors() ? kFailure : kAllServed;
}

} // namespace entrodraft::launch
