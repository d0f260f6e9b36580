// Measures the smallest things of a pass on this GPU. Prints "micro: NAME VALUE" for tests/gpu_first.py, whose part
// `micro` runs this suite by itself. On the stand-in the values mean nothing.
#include "model/gpu/bandwidth.h"
#include "model/gpu/memory.h"
#include "tests/model/gpu_arrays.h"
#include "tests/model/gpu_models.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <string>

namespace gpu_micro_test {

using namespace entrodraft;
using namespace entrodraft::model::gpu;

void tell(const std::string& name, double value) {
    EXPECT_GT(value, 0) << name;
    fmt::print("micro: {} {:.3f}\n", name, value);
}

// Microseconds of one of `times` runs of what `enqueue` puts on the stream.
template <typename Enqueue> double microseconds(const Stream& stream, int times, const Enqueue& enqueue) {
    enqueue();
    stream.wait(kPatience);
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i)
        enqueue();
    stream.wait(kPatience);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count() / times;
}

TEST(GpuMicro, RateOfReading) {
    constexpr std::size_t kMegabyte = 1000 * 1000;
    for (const std::size_t megabytes : {250, 1000, 8000, 15000})
        tell(fmt::format("gb_per_s_of_{}_mb", megabytes),
             read_rate(kOnStandIn ? megabytes * 1000 : megabytes * kMegabyte) / 1e9);
}

// Each reads a few bytes, and begins while the one before ends, where kernels may.
TEST(GpuMicro, KernelsOfAGraph) {
    constexpr int kKernels = 400;
    const Stream stream;
    const DeviceArray<int> from(16), to(16);
    const Graph graph(stream, [&] {
        for (int i = 0; i < kKernels; ++i)
            copy_by_kernel(stream, to.data(), from.data(), 16 * sizeof(int));
    });
    tell("us_a_kernel", microseconds(stream, 20, [&] { graph.launch(stream); }) / kKernels);
}

TEST(GpuMicro, RoundTripToPinnedMemory) {
    const Stream stream;
    const PinnedArray<int> host(16), back(16);
    const DeviceArray<int> device(16);
    const Graph graph(stream, [&] {
        copy_by_kernel(stream, device.data(), host.data(), 16 * sizeof(int));
        copy_by_kernel(stream, back.data(), device.data(), 16 * sizeof(int));
    });
    const auto there_and_back = [&] {
        graph.launch(stream);
        stream.wait(kPatience);
    };
    tell("us_a_round_trip", microseconds(stream, 100, there_and_back));
}

} // namespace gpu_micro_test
