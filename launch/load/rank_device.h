// What a rank computes on: the threads of its CPU, or a GPU.
//
// The one place of this module that knows whether the program was built with CUDA. Called by model_pair and doctor.
#pragma once

#include "dist/layout/layout.h"
#include "dist/session/session.h"
#include "launch/cli/options.h"
#include "model/host/thread_team.h"
#include "model/pass/decoder.h"
#include "spec/verify/device_verifier.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <sched.h>
#include <string>

namespace entrodraft::launch {

struct RankDevice {
    bool is_gpu = false;        // with our kernels
    int number = 0;             // of the GPU, as CUDA counts those that this process sees
    std::uint64_t identity = 0; // of the GPU, whoever sees it under whatever number
    int sharers = 1;            // ranks of the run that this GPU serves
    std::string name = "cpu";   // or as its maker calls it: "NVIDIA H200"; of torch "torch cpu"
    std::string torch = "";     // the device as ATen names it, where torch computes; else empty

    bool is_cpu() const { return !is_gpu && (torch.empty() || torch == "cpu"); }
    bool is_native_cpu() const { return !is_gpu && torch.empty(); } // else the cache is of the weights' type
};

// GPUs that this process sees; -1 in builds that know none.
int n_gpus();
std::uint64_t free_gpu_bytes(); // of this rank's GPU, what nobody has taken
// How a rank's GPU reaches those that it sees; goes through a collective as it is.
struct GpuLinks {
    static constexpr int kMaxGpus = 32;
    int count = 0;                         // GPUs that the rank sees, as far as there is room
    std::uint32_t access = 0, atomics = 0; // bits by their number: peer access; native atomics, which NVLink has
};
GpuLinks gpu_links(const RankDevice& device); // throws dist::Error. Local
// Whether NVIDIA's driver has made a file for a GPU (nvidia0, nvidia1, ...), in builds with and without CUDA.
bool has_gpu_file(const std::filesystem::path& devices = "/dev");

// The cores of a process that are near a device of the PCI bus ("0000:41:00.0"), by Linux's list of them under
// `devices`; all of them where it names none.
cpu_set_t cores_near(const cpu_set_t& own, std::string pci_address,
                     const std::filesystem::path& devices = "/sys/bus/pci/devices");

// The GPU of each rank of a host, by its number among the ranks there, where all ranks see one and none else is asked
// for; ranks share where there are fewer. Threads of the process that start later stay near it. Else the CPU. Of torch
// what `wanted` says, automatic: the CPU. Throws OrderlyFailure where what was asked for is not there. Collective over
// the world.
RankDevice choose_device(dist::Session& session, DeviceChoice wanted, Backend backend);

// For people, where the device was left to the program, which has `chosen` the CPU though there is a GPU
// (has_gpu_file): one line with the reason; else "". `gpus`: n_gpus(). Pure.
std::string idle_gpu_note(DeviceChoice wanted, const RankDevice& chosen, int gpus, bool has_gpu_file);

// For people: one line where a GPU that serves several ranks costs time, with the remedy; else "". `tp` sums passes,
// null on a rank without the target. Pure.
std::string shared_gpu_note(const RankDevice& device, const dist::Communicator* tp);

// What sums passes over the ranks that share `color` (negative: this one takes no part, and gets null): of GPUs over
// NCCL, or over host memory where ranks of one host share them; else as Session::split(). Throws OrderlyFailure.
// Collective over the world.
std::unique_ptr<dist::Communicator> split_for_passes(dist::Session& session, const RankDevice& device, int color);

// The NCCL that is loaded, in words: version, file, what keeps its sums right; "" in a build without CUDA. Throws
// dist::Error.
std::string loaded_nccl();

// Each call of what is returned sums so many numbers over the ranks of `tp` in the memory that passes use, and waits
// for it: for benches. `tp` outlives it.
std::function<void()> sum_for_passes(const RankDevice& device, dist::Communicator& tp, std::size_t floats,
                                     double timeout_seconds);

// Bytes that the device reads in a second from an array of so many; infinity where that is not known.
double read_rate(const RankDevice& device, model::ThreadTeam& team, std::size_t bytes);

// Drafting and verification on the GPU; null on a CPU. It outlives the rank's decoders.
std::unique_ptr<spec::DeviceVerifier> make_device_verifier(const RankDevice& device);

// As model::load_cpu_decoder, onto the device; torch has as many threads as `team`.
std::unique_ptr<model::Decoder> load_decoder(const RankDevice& device, const model::Checkpoint& checkpoint,
                                             const model::ModelConfig& config, const model::DecoderOptions& options,
                                             dist::Communicator& tp, model::ThreadTeam& team);

} // namespace entrodraft::launch
