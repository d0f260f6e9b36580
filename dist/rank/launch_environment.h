// What the launcher's environment says before MPI has started, and what it should not say afterwards. Pure, but for the
// interfaces of this host.
//
// Called by Session, whose ranks may not yet be able to talk to each other.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace entrodraft::dist {

// The value of a variable; nothing where it is not set. std::getenv, or a test's own.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// Whether mpirun, mpiexec or srun started this process, so that MPI has to be started too.
bool started_by_launcher(const Environment& environment);

// The rank that the launcher gave this process: 0 where it says nothing.
int launcher_rank(const Environment& environment);

// "rank 2, host n1, start": this process before it has a session.
std::string starting_place(const Environment& environment);

// Why a process that found itself alone in its world should not go on: the launcher started several, which cannot find
// each other. Empty: nothing speaks against it.
std::string why_not_alone(const Environment& environment);

struct NetworkInterface {
    std::string name;
    bool is_loopback = false;
};
// Those of this host that are up and have an address.
std::vector<NetworkInterface> network_interfaces();

// Why ranks on several hosts could not reach each other from here: no interface is left that MPI may use. Empty: one
// is, or the job stays on this host.
std::string why_unreachable(const Environment& environment, const std::vector<NetworkInterface>& interfaces);

} // namespace entrodraft::dist
