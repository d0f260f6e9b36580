// Variables of launchers: see launch_environment.h.
#include "dist/rank/launch_environment.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <sstream>

namespace entrodraft::dist {
namespace {

int number_of(const Environment& environment, const std::string& name) {
    const auto text = environment(name);
    return text ? std::atoi(text->c_str()) : 0;
}

// A launcher that tells the number of processes it started, and the remedy when they do not find each other.
struct Launcher {
    const char* size;    // variable with the number of processes
    const char* proof;   // variable that has to be there too; null: none
    const char* started; // "srun started"
    const char* remedy;
};

constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_SIZE", nullptr, "mpirun started",
     "mpirun and the MPI library of this binary do not belong together; use the mpirun of the Open MPI it was built "
     "with"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "srun started", "start them with srun --mpi=pmix"},
    {"PMI_SIZE", nullptr, "mpiexec started",
     "it is that of another MPI (MPICH, Intel MPI); use the mpirun of the Open MPI that this binary was built with"},
};

std::vector<std::string> listed(const std::string& text) {
    std::vector<std::string> parts;
    std::istringstream list(text);
    for (std::string part; std::getline(list, part, ',');)
        parts.push_back(part);
    return parts;
}

// Returns whether the launcher says that there are ranks on other hosts.
bool spans_hosts(const Environment& environment) {
    const int size = number_of(environment, "OMPI_COMM_WORLD_SIZE");
    const int local = number_of(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
    if (size > 0 && local > 0) return local < size;
    return number_of(environment, "SLURM_STEP_NUM_NODES") > 1;
}

} // namespace

Environment process_environment() {
    return [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        if (value == nullptr) return std::nullopt;
        return value;
    };
}

bool started_by_launcher(const Environment& environment) {
    return environment("OMPI_COMM_WORLD_SIZE") || environment("PMIX_RANK") || environment("PMI_RANK");
}

int launcher_rank(const Environment& environment) {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
        if (environment(name)) return number_of(environment, name);
    return 0;
}

std::string starting_place(const Environment& environment) {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    return fmt::format("rank {}, host {}, start", launcher_rank(environment), host);
}

std::string why_not_alone(const Environment& environment) {
    // mpirun within a Slurm step tells the real number of processes.
    if (number_of(environment, "OMPI_COMM_WORLD_SIZE") == 1) return "";
    for (const Launcher& launcher : kLaunchers) {
        const int size = number_of(environment, launcher.size);
        if (size < 2 || (launcher.proof && !environment(launcher.proof))) continue;
        return fmt::format("{} {} processes that cannot find each other: {}", launcher.started, size, launcher.remedy);
    }
    return "";
}

std::vector<NetworkInterface> network_interfaces() {
    std::vector<NetworkInterface> found;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return found;
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
        const bool has_address =
            one->ifa_addr != nullptr && (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6);
        if (!has_address || (one->ifa_flags & IFF_UP) == 0) continue;
        const auto same = [&](const NetworkInterface& other) { return other.name == one->ifa_name; };
        if (std::none_of(found.begin(), found.end(), same))
            found.push_back({one->ifa_name, (one->ifa_flags & IFF_LOOPBACK) != 0});
    }
    freeifaddrs(all);
    return found;
}

std::string why_unreachable(const Environment& environment, const std::vector<NetworkInterface>& interfaces) {
    if (!spans_hosts(environment)) return "";
    const auto asked = environment("OMPI_MCA_btl_tcp_if_include");
    if (!asked) {
        const bool any = std::any_of(interfaces.begin(), interfaces.end(),
                                     [](const NetworkInterface& one) { return !one.is_loopback; });
        return any ? ""
                   : "the ranks are on several hosts, and this one has no network interface but loopback: "
                     "bring one up, or start all ranks on one host";
    }
    // An address such as 10.0.0.0/8 is left to MPI to verify.
    for (const std::string& name : listed(*asked)) {
        if (name.find('/') != std::string::npos) return "";
        for (const NetworkInterface& one : interfaces)
            if (one.name == name) return "";
    }
    return "the ranks are on several hosts, and this one has no interface " + *asked +
           " that is up: mend OMPI_MCA_btl_tcp_if_include (ip -brief address lists the names)";
}

} // namespace entrodraft::dist
