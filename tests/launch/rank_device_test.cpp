// What is said of a GPU that nobody uses. No GPU is needed.
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

TEST(RankDevice, ASharedGpuIsNotedWhereItCostsTime) {
    const dist::SelfComm alone; // of the target, sharded or not, with sums in device memory
    EXPECT_EQ(shared_gpu_note({.is_gpu = true, .number = 3, .sharers = 1}, nullptr), "");
    EXPECT_EQ(shared_gpu_note({.is_gpu = true, .number = 3, .sharers = 2}, &alone), "");
    EXPECT_EQ(shared_gpu_note({.is_gpu = false, .sharers = 2}, nullptr), "") << "the CPU";
    EXPECT_NE(shared_gpu_note({.is_gpu = true, .number = 3, .sharers = 2}, nullptr).find("GPU 3"), std::string::npos);
}

} // namespace rank_device_test
