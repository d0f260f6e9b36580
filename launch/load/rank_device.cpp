// Ranks and their GPUs: see rank_device.h.
#include "launch/load/rank_device.h"

#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "model/cpu/decoder.h"
#include "model/cpu/roofline.h"
#include "model/torch/plugin.h"
#include "spec/verify/random.h"

#ifdef ENTRODRAFT_CUDA
#include "dist/comm/nccl_comm.h"
#include "dist/comm/staged_comm.h"
#include "dist/rank/device.h"
#include "model/gpu/bandwidth.h"
#include "model/gpu/decoder.h"
#include "model/gpu/memory.h"
#include "model/gpu/summed_array.h"
#include "spec/gpu/device_round.h"
#endif

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

namespace entrodraft::launch {

bool has_gpu_file(const std::filesystem::path& devices) {
    constexpr std::string_view kName = "nvidia"; // other names are nvidiactl, nvidia-uvm, ...
    std::error_code ignored;                     // a folder that cannot be read shows no files
    for (const auto& entry : std::filesystem::directory_iterator(devices, ignored)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with(kName) && name.size() > kName.size() &&
            name.find_first_not_of("0123456789", kName.size()) == std::string::npos)
            return true;
    }
    return false;
}

std::string idle_gpu_note(DeviceChoice wanted, const RankDevice& chosen, int gpus, bool has_gpu_file) {
    if (wanted != DeviceChoice::automatic || chosen.is_gpu || !has_gpu_file || gpus == 0) return "";
    if (gpus < 0)
        return "note: there is a GPU, but this program was built without CUDA and computes on the CPU: build it with "
               "-DENTRODRAFT_CUDA=ON";
    return "note: there is a GPU, but not every rank sees one, and --device auto computes on the CPU";
}

int n_gpus() {
#ifdef ENTRODRAFT_CUDA
    return dist::device_count();
#else
    return -1;
#endif
}

std::uint64_t free_gpu_bytes() {
#ifdef ENTRODRAFT_CUDA
    return model::gpu::device_memory().free_bytes;
#else
    return 0;
#endif
}

GpuLinks gpu_links([[maybe_unused]] const RankDevice& device) {
    GpuLinks links;
#ifdef ENTRODRAFT_CUDA
    links.count = std::min(dist::device_count(), GpuLinks::kMaxGpus);
    for (int other = 0; device.is_gpu && other < links.count; ++other) {
        if (other == device.number) continue;
        const dist::PeerLink link = dist::peer_link(device.number, other);
        links.access |= static_cast<std::uint32_t>(link.has_access) << other;
        links.atomics |= static_cast<std::uint32_t>(link.has_atomics) << other;
    }
#endif
    return links;
}

namespace {

// Chooses a device of the kind that torch sees, by the rank's number among the ranks of its host.
RankDevice choose_torch_device(dist::Session& session, DeviceChoice wanted) {
    RankDevice device;
    in_agreement(session, [&] {
        if (const std::string why = model::torch::why_missing(); !why.empty())
            throw BadOption("--backend torch: " + why + ", or leave --backend torch out");
        device.torch = wanted == DeviceChoice::cuda ? "cuda" : wanted == DeviceChoice::xpu ? "xpu" : "cpu";
        if (!device.is_cpu()) {
            const auto [count, why_none] = model::torch::devices_of(device.torch);
            if (count == 0)
                throw BadOption(fmt::format("--device {} with --backend torch, on host {}: {}", device.torch,
                                            session.host_name(), why_none));
            device.torch += fmt::format(":{}", session.node_local_rank() % count);
        }
        device.name = "torch " + device.torch;
    });
    return device;
}

#ifdef ENTRODRAFT_CUDA
// Binds this thread and those that it starts. Else their transfers to the GPU and their polling may cross sockets.
void stay_near(const std::string& pci_address) {
    cpu_set_t own{};
    if (sched_getaffinity(0, sizeof own, &own) != 0) return; // fails for more than 1,024 cores
    const cpu_set_t near = cores_near(own, pci_address);
    sched_setaffinity(0, sizeof near, &near); // a subset of its own cores cannot be refused
}
#endif

} // namespace

cpu_set_t cores_near(const cpu_set_t& own, std::string pci_address, const std::filesystem::path& devices) {
    std::ranges::transform(pci_address, pci_address.begin(), [](unsigned char c) { return std::tolower(c); });
    std::ifstream list(devices / pci_address / "local_cpulist"); // "0-15,32-47"
    cpu_set_t near{};
    for (std::string range; std::getline(list, range, ',');) {
        std::istringstream text(range);
        std::size_t first = 0, last = 0;
        char dash = 0;
        if (!(text >> first)) break;
        if (!(text >> dash >> last)) last = first;
        for (std::size_t core = first; core <= last && core < CPU_SETSIZE; ++core)
            if (CPU_ISSET(core, &own)) CPU_SET(core, &near);
    }
    return CPU_COUNT(&near) > 0 ? near : own;
}

RankDevice choose_device(dist::Session& session, DeviceChoice wanted, Backend backend) {
    if (backend == Backend::torch) return choose_torch_device(session, wanted);
    RankDevice device;
    if (wanted == DeviceChoice::automatic) {
        const std::vector<int> seen = from_all(session, n_gpus());
        if (std::ranges::min(seen) > 0) wanted = DeviceChoice::cuda;
    }
    if (wanted != DeviceChoice::cuda) return device;
    in_agreement(session, [&] {
        const int count = n_gpus();
        if (count < 0)
            throw BadOption("--device cuda: this program was built without CUDA; build it with -DENTRODRAFT_CUDA=ON");
        if (count == 0)
            throw BadOption(fmt::format("--device cuda: host {} shows this process no GPU (no device, no driver, or "
                                        "CUDA_VISIBLE_DEVICES is empty)",
                                        session.host_name()));
#ifdef ENTRODRAFT_CUDA
        device.is_gpu = true;
        device.number = session.node_local_rank() % count;
        const dist::DeviceFacts facts = dist::device_facts(device.number);
        device.name = facts.name;
        device.identity = spec::hash_bytes(facts.uuid.data(), facts.uuid.size());
        dist::use_device(device.number);
        stay_near(facts.pci_address);
#endif
    });
    const std::vector<std::uint64_t> all = from_all(session, device.identity);
    device.sharers = static_cast<int>(std::ranges::count(all, device.identity));
    return device;
}

std::string shared_gpu_note(const RankDevice& device, const dist::Communicator* tp) {
    if (!device.is_gpu || device.sharers == 1) return "";
    if (tp != nullptr && tp->name() == "staged")
        return "note: ranks of the target share a GPU, so that their sums go through host memory: start a rank a GPU";
    if (tp == nullptr)
        return fmt::format("note: the drafting rank takes turns with another on GPU {}: --draft-placement colocated "
                           "needs no rank of its own",
                           device.number);
    return "";
}

#ifdef ENTRODRAFT_CUDA
namespace {

// Returns how many ranks of `group` use the GPU that most of them use. NCCL refuses a communicator with more than one,
// except in tests (dist::nccl_shares_gpus()). Ranks of other groups may share the GPU. Collective over `group`.
int most_sharers(dist::Communicator& group, std::uint64_t identity, dist::Deadline deadline) {
    constexpr int kRoot = 0;
    std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
    group.gather(&identity, all.data(), sizeof identity, kRoot, deadline);
    group.broadcast(all.data(), all.size() * sizeof identity, kRoot, deadline);
    std::ptrdiff_t most = 0;
    for (const std::uint64_t each : all)
        most = std::max(most, std::ranges::count(all, each));
    return static_cast<int>(most);
}

// Returns whether NCCL accepts ranks that share a GPU, on all ranks. Collective over `group`.
bool nccl_shares_gpus(dist::Communicator& group, dist::Deadline deadline) {
    float ranks = dist::nccl_shares_gpus() ? 1 : 0;
    group.all_reduce_sum(&ranks, 1, deadline);
    return ranks == static_cast<float>(group.size());
}

} // namespace
#endif

std::unique_ptr<dist::Communicator> split_for_passes(dist::Session& session, const RankDevice& device, int color) {
    std::unique_ptr<dist::Communicator> host = session.split(color);
    if (!device.is_gpu) return host;
    std::unique_ptr<dist::Communicator> group;
#ifdef ENTRODRAFT_CUDA
    in_agreement(session, [&] {
        if (!host || host->size() == 1) {
            group = std::move(host);
            return;
        }
        const int sharers = most_sharers(*host, device.identity, session.deadline());
        if (sharers == 1 || nccl_shares_gpus(*host, session.deadline())) {
            group = dist::make_nccl_comm(*host, {.device = device.number, .gather_seconds = session.timeout_seconds()},
                                         session.deadline());
        } else if (host->name() == "node") {
            group = dist::make_staged_comm(std::move(host), session.timeout_seconds());
        } else {
            throw BadOption(
                fmt::format("{} share a GPU, and the model is sharded across several hosts: NCCL wants a GPU "
                            "for each rank; start no more ranks than GPUs",
                            counted(sharers, "rank")));
        }
    });
#endif
    return group;
}

std::string loaded_nccl() {
#ifdef ENTRODRAFT_CUDA
    return dist::describe_nccl();
#else
    return "";
#endif
}

std::function<void()> sum_for_passes([[maybe_unused]] const RankDevice& device, dist::Communicator& tp,
                                     std::size_t floats, double timeout_seconds) {
#ifdef ENTRODRAFT_CUDA
    if (device.is_gpu) {
        if (tp.size() == 1) return [] {};
        const auto stream = std::make_shared<model::gpu::Stream>();
        const auto numbers =
            std::make_shared<model::gpu::SummedArray>(tp, floats, dist::Deadline::after_seconds(timeout_seconds));
        return [stream, numbers, &tp, timeout_seconds] {
            tp.enqueue_all_reduce_sum(numbers->data(), numbers->size(), dist::ElementType::float32, stream->handle());
            try {
                tp.await_stream(stream->handle(), dist::Deadline::after_seconds(timeout_seconds));
            } catch (...) { // the sum must end before its memory goes
                tp.abort();
                throw;
            }
        };
    }
#endif
    const auto numbers = std::make_shared<std::vector<float>>(floats);
    return [numbers, &tp, timeout_seconds] {
        tp.all_reduce_sum(numbers->data(), numbers->size(), dist::Deadline::after_seconds(timeout_seconds));
    };
}

double read_rate(const RankDevice& device, model::ThreadTeam& team, std::size_t bytes) {
#ifdef ENTRODRAFT_CUDA
    if (device.is_gpu) return model::gpu::read_rate(bytes);
#endif
    if (!device.is_cpu()) return std::numeric_limits<double>::infinity();
    return model::read_rate(team, bytes);
}

std::unique_ptr<spec::DeviceRound> make_device_round([[maybe_unused]] const RankDevice& device) {
#ifdef ENTRODRAFT_CUDA
    if (device.is_gpu) return spec::gpu::make_device_round();
#endif
    return nullptr;
}

std::unique_ptr<model::Decoder> load_decoder(const RankDevice& device, const model::Checkpoint& checkpoint,
                                             const model::ModelConfig& config, const model::DecoderOptions& options,
                                             dist::Communicator& tp, model::ThreadTeam& team) {
    if (!device.torch.empty())
        return model::torch::load_decoder(checkpoint, config, options, tp, {device.torch, team.size()});
#ifdef ENTRODRAFT_CUDA
    if (device.is_gpu) return model::gpu::load_decoder(checkpoint, config, options, tp);
#endif
    return model::load_cpu_decoder(checkpoint, config, options, tp, team);
}

} // namespace entrodraft::launch
