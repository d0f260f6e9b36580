// What is said of a GPU that nobody uses. No GPU is needed.
#include "launch/load/launch_check.h"
#include "launch/load/rank_device.h"
#include "tests/model/temporary_directory.h"

#include <gtest/gtest.h>

namespace rank_device_test {

using namespace entrodraft;
using namespace entrodraft::launch;

TEST(RankDevice, ADriversFileOfAGpuIsKnownFromItsOthers) {
    const TemporaryDirectory devices;
    EXPECT_FALSE(has_gpu_file(devices.path()));
    EXPECT_FALSE(has_gpu_file(devices.path() / "missing"));
    for (const char* other : {"nvidiactl", "nvidia-uvm", "nvidia", "nvidia-caps"})
        devices.write(other, "");
    EXPECT_FALSE(has_gpu_file(devices.path()));
    devices.write("nvidia3", "");
    EXPECT_TRUE(has_gpu_file(devices.path()));
}

TEST(RankDevice, AnIdleGpuIsNotedWithTheReason) {
    const RankDevice cpu, gpu = {.is_gpu = true};
    constexpr auto kAuto = DeviceChoice::automatic;
    EXPECT_NE(idle_gpu_note(kAuto, cpu, 2, true).find("not every rank"), std::string::npos);
    EXPECT_NE(idle_gpu_note(kAuto, cpu, -1, true).find("-DENTRODRAFT_CUDA=ON"), std::string::npos);
    EXPECT_EQ(idle_gpu_note(kAuto, gpu, 2, true), "") << "in use";
    EXPECT_EQ(idle_gpu_note(kAuto, cpu, 0, true), "") << "hidden from this process";
    EXPECT_EQ(idle_gpu_note(kAuto, cpu, -1, false), "");
    EXPECT_EQ(idle_gpu_note(DeviceChoice::cpu, cpu, 2, true), "") << "asked for";
}

TEST(RankDevice, AProcessKeepsThoseOfItsCoresThatAreNearItsGpu) {
    const auto cores = [](std::initializer_list<int> numbers) {
        cpu_set_t set{};
        for (const int number : numbers)
            CPU_SET(number, &set);
        return set;
    };
    const TemporaryDirectory devices;
    const auto near = [&](const char* list, const cpu_set_t& own) {
        std::filesystem::create_directories(devices.path() / "0000:4a:00.0");
        devices.write("0000:4a:00.0/local_cpulist", list);
        return describe(cores_near(own, "0000:4A:00.0", devices.path()));
    };
    const cpu_set_t own = cores({0, 1, 2, 3, 8, 9});
    EXPECT_EQ(near("0-1,8-9\n", own), describe(cores({0, 1, 8, 9})));
    EXPECT_EQ(near("3\n", own), describe(cores({3})));
    EXPECT_EQ(near("2,4-7,9", own), describe(cores({2, 9})));
    EXPECT_EQ(near("4-7\n", own), describe(own)) << "bound to another socket";
    EXPECT_EQ(near("\n", own), describe(own));
    EXPECT_EQ(near("0-99999999\n", own), describe(own)) << "one socket";
    EXPECT_EQ(describe(cores_near(own, "0000:00:00.0", devices.path())), describe(own)) << "Linux does not say";
}

TEST(RankDevice, ASharedGpuIsNotedWhereItCostsTime) {
    const dist::SelfComm alone; // of the target, sharded or not, with sums in device memory
    EXPECT_EQ(shared_gpu_note({.is_gpu = true, .number = 3, .sharers = 1}, nullptr), "");
    EXPECT_EQ(shared_gpu_note({.is_gpu = true, .number = 3, .sharers = 2}, &alone), "");
    EXPECT_EQ(shared_gpu_note({.is_gpu = false, .sharers = 2}, nullptr), "") << "the CPU";
    EXPECT_NE(shared_gpu_note({.is_gpu = true, .number = 3, .sharers = 2}, nullptr).find("GPU 3"), std::string::npos);
}

} // namespace rank_device_test
