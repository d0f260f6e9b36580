// How many threads the environment asks for.
#include "launch/load/launch_check.h"
#include "launch/start/failure.h"
#include "tests/launch/command_line.h"

#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <string>

namespace cores_test {

using namespace entrodraft::launch;
using namespace test;

std::optional<int> threads_of(const std::map<std::string, std::string>& variables) {
    return threads_of_environment([&](const std::string& name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
}

TEST(Cores, TheEnvironmentSaysHowManyThreadsARankHas) {
    EXPECT_EQ(threads_of({}), std::nullopt);
    EXPECT_EQ(threads_of({{"SLURM_CPUS_PER_TASK", "6"}}), 6);
    EXPECT_EQ(threads_of({{"SLURM_CPUS_PER_TASK", "6"}, {"OMP_NUM_THREADS", "3"}}), 3);
    EXPECT_EQ(threads_of({{"OMP_NUM_THREADS", "4,2"}}), 4) << "of the outer level";
    EXPECT_EQ(threads_of({{"OMP_NUM_THREADS", ""}}), std::nullopt) << "as if it were not set";
    EXPECT_EQ(threads_of({{"SLURM_CPUS_PER_TASK", "6"}, {"OMP_NUM_THREADS", ""}}), 6);
}

TEST(Cores, AVariableThatIsNoNumberOfThreadsIsRefused) {
    for (const char* text : {"0", "-1", "abc", "4x", "99999", ",2", " 4"}) {
        try {
            threads_of({{"OMP_NUM_THREADS", text}});
            ADD_FAILURE() << text;
        } catch (const BadOption& error) {
            EXPECT_EQ(error.what(), "OMP_NUM_THREADS=" + std::string(text) +
                                        " in the environment: must be a whole number from 1 to 1024; unset it, or give "
                                        "--threads N");
        }
    }
}

TEST(Cores, ThreadsOfTheEnvironmentYieldToTheOption) {
    const Strings doctor = {"doctor", "--repetitions", "1"};
    const auto one = run(doctor, "env OMP_NUM_THREADS=1"),
               three = run(doctor, "env -u OMP_NUM_THREADS SLURM_CPUS_PER_TASK=3");
    EXPECT_NE(one.out.find(", threads 1"), std::string::npos) << one.out << one.err;
    EXPECT_NE(three.out.find(", threads 3"), std::string::npos) << three.out << three.err;
    const auto bad = run(doctor, "env OMP_NUM_THREADS=many");
    EXPECT_EQ(bad.code, 2) << bad.err;
    EXPECT_EQ(bad.err.find("entrodraft: OMP_NUM_THREADS=many in the environment"), 0u) << bad.err;
    const auto option = run(doctor + Strings{"--threads", "1"}, "env OMP_NUM_THREADS=many");
    EXPECT_NE(option.out.find(", threads 1"), std::string::npos) << option.out << option.err;
}

} // namespace cores_test
