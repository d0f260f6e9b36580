// What the environment of a launcher tells, from made-up environments.
#include "dist/rank/launch_environment.h"

#include <gtest/gtest.h>

#include <map>

namespace launch_environment_test {

using namespace entrodraft::dist;
using Variables = std::map<std::string, std::string>;

Environment with(const Variables& variables) {
    return [variables](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
    };
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(LaunchEnvironment, KnowsItsLaunchersAndTheirRanks) {
    EXPECT_FALSE(started_by_launcher(with({})));
    EXPECT_FALSE(started_by_launcher(with({{"SLURM_PROCID", "0"}}))) << "a batch script is no rank";
    EXPECT_TRUE(started_by_launcher(with({{"OMPI_COMM_WORLD_SIZE", "2"}})));
    EXPECT_TRUE(started_by_launcher(with({{"PMIX_RANK", "1"}})));
    EXPECT_EQ(launcher_rank(with({{"PMIX_RANK", "3"}})), 3);
    EXPECT_EQ(launcher_rank(with({})), 0);
}

TEST(LaunchEnvironment, AProcessThatIsAloneAmongSeveralSaysWhatToDo) {
    EXPECT_EQ(why_not_alone(with({})), "");
    EXPECT_EQ(why_not_alone(with({{"OMPI_COMM_WORLD_SIZE", "1"}})), "");
    const std::string slurm = why_not_alone(with({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}));
    EXPECT_TRUE(contains(slurm, "srun started 4 processes")) << slurm;
    EXPECT_TRUE(contains(slurm, "srun --mpi=pmix")) << slurm;
    const std::string hydra = why_not_alone(with({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}));
    EXPECT_TRUE(contains(hydra, "mpiexec started 2 processes")) << hydra;
    const std::string other = why_not_alone(with({{"OMPI_COMM_WORLD_SIZE", "2"}}));
    EXPECT_TRUE(contains(other, "do not belong together")) << other;
    EXPECT_EQ(
        why_not_alone(with({{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}})), "")
        << "mpirun -n 1 within a step of four tasks";
}

TEST(LaunchEnvironment, HostsWithoutACommonInterfaceAreNamedBeforeMpiWaitsForThem) {
    const std::vector<NetworkInterface> only_loopback = {{"lo", true}}, two = {{"lo", true}, {"eth0", false}};
    const Variables one_host = {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
    Variables hosts = {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
    EXPECT_EQ(why_unreachable(with(one_host), only_loopback), "");
    EXPECT_EQ(why_unreachable(with(hosts), two), "");
    EXPECT_TRUE(contains(why_unreachable(with(hosts), only_loopback), "no network interface but loopback"));
    EXPECT_TRUE(contains(why_unreachable(with({{"SLURM_STEP_NUM_NODES", "2"}}), only_loopback), "loopback"));
    hosts["OMPI_MCA_btl_tcp_if_include"] = "ib0,eth0";
    EXPECT_EQ(why_unreachable(with(hosts), two), "");
    hosts["OMPI_MCA_btl_tcp_if_include"] = "ib0";
    EXPECT_TRUE(contains(why_unreachable(with(hosts), two), "no interface ib0"));
    hosts["OMPI_MCA_btl_tcp_if_include"] = "10.1.0.0/16";
    EXPECT_EQ(why_unreachable(with(hosts), two), "") << "MPI's to verify";
    hosts["OMPI_MCA_btl_tcp_if_include"] = "lo";
    EXPECT_EQ(why_unreachable(with(hosts), only_loopback), "") << "hosts of one machine";
}

TEST(LaunchEnvironment, FindsLoopbackOnThisHost) {
    const auto interfaces = network_interfaces();
    for (const NetworkInterface& one : interfaces)
        EXPECT_EQ(one.is_loopback, one.name == "lo") << one.name;
}

} // namespace launch_environment_test
