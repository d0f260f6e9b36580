// Lines, tables and JSON of doctor: see doctor_report.h.
#include "launch/cmd/doctor_report.h"

#include "launch/commands.h"
#include "launch/counted.h"
#include "launch/environment.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace entrodraft::launch {

namespace {

constexpr int kDoctorVersion = 1;
using CheckStatus = DoctorReport::Check::Status;

const char* word_of(CheckStatus status) {
    return status == CheckStatus::ok ? "ok" : status == CheckStatus::warning ? "warning" : "failed";
}

std::string rank_line(std::size_t rank, const RankFacts& facts) {
    return "  rank " + std::to_string(rank) + "   host " + facts.host + ", cores " + describe(facts.cores) + " of " +
           std::to_string(facts.host_cores) + ", threads " + std::to_string(facts.threads) +
           (facts.gpus >= 0 ? ", GPUs " + std::to_string(facts.gpus) : "") + "\n";
}

std::string timing_table(const DoctorReport::Transport& transport) {
    std::vector<std::vector<std::string>> table = {{"  over " + transport.name, "median us", "p99"}};
    for (const CollectiveTime& time : transport.times)
        table.push_back(
            {"  " + time.name, format_number(time.seconds.median * 1e6, 2), format_number(time.seconds.p99 * 1e6, 2)});
    return "\n" + format_table(table);
}

// Of the program's file; null where there is one rank, whose file nobody compares.
Json build_json(std::uint64_t build) {
    char text[17];
    std::snprintf(text, sizeof text, "%016" PRIx64, build);
    return build == 0 ? Json() : Json(text);
}

Json rank_json(std::size_t rank, const RankFacts& facts) {
    return {{"rank", rank},
            {"host", facts.host},
            {"cores", describe(facts.cores)},
            {"host_cores", facts.host_cores},
            {"threads", facts.threads},
            {"gpus", facts.gpus < 0 ? Json() : Json(facts.gpus)},
            {"build", build_json(facts.build)}};
}

Json hosts_json(const std::vector<RankFacts>& ranks) {
    Json hosts = Json::array();
    for (const RankFacts& facts : ranks)
        if (std::find(hosts.begin(), hosts.end(), Json(facts.host)) == hosts.end()) hosts.push_back(facts.host);
    return hosts;
}

Json collectives_json(const std::vector<DoctorReport::Transport>& transports) {
    Json list = Json::array();
    for (const DoctorReport::Transport& transport : transports)
        for (const CollectiveTime& time : transport.times)
            list.push_back({{"transport", transport.name},
                            {"name", time.name},
                            {"median_us", time.seconds.median * 1e6},
                            {"p90_us", time.seconds.p90 * 1e6},
                            {"p99_us", time.seconds.p99 * 1e6}});
    return list;
}

} // namespace

void DoctorReport::add(const Finding& finding) {
    checks.push_back({finding.is_error ? CheckStatus::failed : CheckStatus::warning, finding.text});
}

void DoctorReport::add(const MachineLoad& load) {
    machine = load;
    if (!load.is_trusted()) return checks.push_back({CheckStatus::warning, load.warning()});
    if (load.others_busy_cores) good("no other work on the cores while collectives were timed");
}

bool DoctorReport::has_errors() const {
    return std::any_of(checks.begin(), checks.end(),
                       [](const Check& check) { return check.status == CheckStatus::failed; });
}

std::string DoctorReport::text() const {
    std::string text = version_text() + ", " + counted(static_cast<std::int64_t>(ranks.size()), "rank") + "\n";
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        text += rank_line(rank, ranks[rank]);
    for (const Check& check : checks) {
        std::string word = word_of(check.status);
        word.resize(9, ' ');
        text += "  " + word + check.text + "\n";
    }
    for (const Transport& transport : transports)
        text += timing_table(transport);
    return text;
}

Json DoctorReport::json() const {
    Json json = {{"schema_version", kDoctorVersion},
                 {"command", "doctor"},
                 {"version", version_text()},
                 {"ok", !has_errors()},
                 {"hosts", hosts_json(ranks)},
                 {"ranks", Json::array()},
                 {"files", {{"target", target.empty() ? Json() : Json(target)}, {"drafts", drafts}}},
                 {"checks", Json::array()},
                 {"collectives", collectives_json(transports)},
                 {"machine", to_json(machine)}};
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        json["ranks"].push_back(rank_json(rank, ranks[rank]));
    for (const Check& check : checks)
        json["checks"].push_back({{"status", word_of(check.status)}, {"text", check.text}});
    return json;
}

} // namespace entrodraft::launch
