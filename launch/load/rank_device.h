// The device on which a rank computes: the threads of its CPU, or a GPU. In this module, only this file knows whether
// the program was built with CUDA. Called by model_pair and doctor.
#pragma once

#include "dist/session/session.h"
#include "launch/cli/options.h"
#include "model/host/thread_team.h"
#include "model/pass/decoder.h"
#include "spec/gpu/device_round.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <sched.h>
#include <string>

namespace entrodraft::launch {

struct RankDevice {
    bool is_gpu = false;        // true: our kernels run on a GPU
    int number = 0;             // CUDA's number of the GPU, among those that this process sees
    std::uint64_t identity = 0; // identifies the GPU, whatever number a process sees it under
    int sharers = 1;            // ranks of the run that this GPU serves
    std::string name = "cpu";   // or the maker's name: "NVIDIA H200"; for torch "torch cpu"
    std::string torch = "";     // the device as ATen names it, where torch computes; else empty

    bool is_cpu() const { return !is_gpu && (torch.empty() || torch == "cpu"); }
    bool is_native_cpu() const { return !is_gpu && torch.empty(); } // else the cache has the weights' type
};

// Returns the number of GPUs that this process sees; -1 in builds without CUDA.
int n_gpus();
std::uint64_t free_gpu_bytes(); // free bytes of this rank's GPU
// Says how a rank's GPU reaches the GPUs that the rank sees. Goes through a collective as it is.
struct GpuLinks {
    static constexpr int kMaxGpus = 32;
    int count = 0;                         // GPUs that the rank sees, up to kMaxGpus
    std::uint32_t access = 0, atomics = 0; // bits by their number: peer access; native atomics, which NVLink has
};
GpuLinks gpu_links(const RankDevice& device); // throws dist::Error. Local
// Returns whether NVIDIA's driver has made a file for a GPU (nvidia0, nvidia1, ...), in builds with and without CUDA.
bool has_gpu_file(const std::filesystem::path& devices = "/dev");

// Returns those cores of a process that are near a device of the PCI bus ("0000:41:00.0"), by Linux's list under
// `devices`. Returns all of `own` if the list names none of them.
cpu_set_t cores_near(const cpu_set_t& own, std::string pci_address,
                     const std::filesystem::path& devices = "/sys/bus/pci/devices");

// Takes a GPU if all ranks see one and no other device was asked for; else the CPU. Each rank of a host takes the GPU
// of its number among the ranks there; if there are fewer GPUs, ranks share them. Threads that the process starts later
// stay near the GPU. With torch, takes the device that `wanted` names; automatic means the CPU. Throws OrderlyFailure
// if the wanted device is missing. Collective over the world.
RankDevice choose_device(dist::Session& session, DeviceChoice wanted, Backend backend);

// Returns one line with the reason if the program chose the CPU though there is a GPU (has_gpu_file), and the device
// was left to the program; else "". `gpus`: n_gpus(). Pure.
std::string idle_gpu_note(DeviceChoice wanted, const RankDevice& chosen, int gpus, bool has_gpu_file);

// Returns one line with the remedy if a GPU that serves several ranks costs time; else "". `tp` sums passes; it is null
// on a rank without the target. Pure.
std::string shared_gpu_note(const RankDevice& device, const dist::Communicator* tp);

// Makes the communicator that sums passes over the ranks with the same `color`. A negative color: this rank takes no
// part and gets null. GPUs sum over NCCL, or over host memory if ranks of one host share them; CPUs use
// Session::split(). Throws OrderlyFailure. Collective over the world.
std::unique_ptr<dist::Communicator> split_for_passes(dist::Session& session, const RankDevice& device, int color);

// Describes the NCCL that is loaded: version, file, and what keeps its sums right; "" in a build without CUDA. Throws
// dist::Error.
std::string loaded_nccl();

// Returns a function for benches. Each call sums that many numbers over the ranks of `tp`, in the memory that passes
// use, and waits for the sum. `tp` outlives the function.
std::function<void()> sum_for_passes(const RankDevice& device, dist::Communicator& tp, std::size_t floats,
                                     double timeout_seconds);

// Bytes that the device reads in a second from an array of that size; infinity if that is not known.
double read_rate(const RankDevice& device, model::ThreadTeam& team, std::size_t bytes);

// Returns the object that drafts and verifies on the GPU; null on a CPU. It outlives the rank's decoders.
std::unique_ptr<spec::DeviceRound> make_device_round(const RankDevice& device);

// Like model::load_cpu_decoder, onto the device. torch gets as many threads as `team` has.
std::unique_ptr<model::Decoder> load_decoder(const RankDevice& device, const model::Checkpoint& checkpoint,
                                             const model::ModelConfig& config, const model::DecoderOptions& options,
                                             dist::Communicator& tp, model::ThreadTeam& team);

} // namespace entrodraft::launch
