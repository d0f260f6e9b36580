// Reads the launcher's environment before MPI has started. Pure, except that it looks at the network interfaces of this
// host.
//
// Session calls it. At that time the ranks may not yet be able to talk to each other.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::dist {

// Returns the value of a variable, or nothing where it is not set: std::getenv, or a test's own.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// Returns whether mpirun, mpiexec or srun started this process, so that MPI has to be started too.
bool started_by_launcher(const Environment& environment);

// Returns the rank that the launcher gave this process, or 0 where it gives none.
int launcher_rank(const Environment& environment);

// "rank 2, host n1, start": names this process before it has a session.
std::string starting_place(const Environment& environment);

// Returns why a process that is alone in its world should not go on: the launcher started several, which cannot find
// each other. Empty: the process may go on.
std::string why_not_alone(const Environment& environment);

struct NetworkInterface {
    std::string name;
    bool is_loopback = false;
};
// Returns the interfaces of this host that are up and have an address.
std::vector<NetworkInterface> network_interfaces();

// Returns why ranks on several hosts cannot be reached from here: MPI may not use any of the interfaces that are up.
// Empty: one can be used, or the job stays on this host.
std::string why_unreachable(const Environment& environment, const std::vector<NetworkInterface>& interfaces);

} // namespace entrodraft::dist
