// Ranks and their GPUs: see rank_device.h.
#include "launch/load/rank_device.h"

#include "launch/counted.h"
#include "launch/failure.h"
#include "launch/phase.h"
#include "model/cpu/decoder.h"
#include "model/cpu/roofline.h"
#include "spec/verify/random.h"

#ifdef ENTRODRAFT_CUDA
#include "dist/comm/nccl_comm.h"
#include "dist/comm/staged_comm.h"
#include "dist/device.h"
#include "model/gpu/bandwidth.h"
#include "model/gpu/decoder.h"
#include "model/gpu/memory.h"
#include "model/gpu/summed_array.h"
#include "spec/verify/device_verifier.h"
#endif

#include <algorithm>
#include <fmt/format.h>
#include <string_view>
#include <system_error>
#include <vector>

namespace entrodraft::launch {

namespace {

std::function<void()> sum_on_host(dist::Communicator& tp, std::size_t floats, double timeout_seconds) {
    const auto numbers = std::make_shared<std::vector<float>>(floats);
    return [numbers, &tp, timeout_seconds] {
        tp.all_reduce_sum(numbers->data(), numbers->size(), dist::Deadline::after_seconds(timeout_seconds));
    };
}

} // namespace

bool has_gpu_file(const std::filesystem::path& devices) {
    constexpr std::string_view kName = "nvidia"; // beside nvidiactl, nvidia-uvm, ...
    std::error_code ignored;                     // a folder that cannot be read shows none
    for (const auto& entry : std::filesystem::directory_iterator(devices, ignored)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with(kName) && name.size() > kName.size() &&
            name.find_first_not_of("0123456789", kName.size()) == std::string::npos)
            return true;
    }
    return false;
}

std::string idle_gpu_note(DeviceChoice device, bool has_gpu_file, int gpus) {
    if (device != DeviceChoice::automatic || !has_gpu_file || gpus == 0) return "";
    if (gpus < 0)
        return "note: there is a GPU, but this program was built without CUDA and computes on the CPU: build it with "
               "-DENTRODRAFT_CUDA=ON";
    return "note: there is a GPU, but --device auto computes on the CPU: --device cuda uses the GPU";
}

#ifdef ENTRODRAFT_CUDA

int n_gpus() {
    return dist::device_count();
}

std::uint64_t free_bytes(const RankDevice&) {
    return model::gpu::device_memory().free_bytes;
}

RankDevice choose_device(dist::Session& session, DeviceChoice wanted) {
    if (wanted != DeviceChoice::cuda) return {};
    RankDevice device;
    in_agreement(session, [&] {
        const int count = n_gpus();
        if (count == 0)
            throw BadOption(fmt::format("--device cuda: host {} shows this process no GPU (no device, no driver, or "
                                        "CUDA_VISIBLE_DEVICES is empty)",
                                        session.host_name()));
        device.is_gpu = true;
        device.number = session.node_local_rank() % count;
        const dist::DeviceFacts facts = dist::device_facts(device.number);
        device.name = facts.name;
        device.identity = spec::hash_bytes(facts.uuid.data(), facts.uuid.size());
        dist::use_device(device.number);
    });
    const std::vector<std::uint64_t> all = from_all(session, device.identity);
    for (const std::uint64_t each : all)
        device.sharers = std::max(device.sharers, static_cast<int>(std::count(all.begin(), all.end(), each)));
    return device;
}

std::unique_ptr<dist::Communicator> split_for_passes(dist::Session& session, const RankDevice& device, int color) {
    std::unique_ptr<dist::Communicator> host = session.split(color);
    if (!device.is_gpu) return host;
    std::unique_ptr<dist::Communicator> group;
    in_agreement(session, [&] {
        if (!host || host->size() == 1) {
            group = std::move(host);
        } else if (device.sharers == 1) {
            group = dist::make_nccl_comm(*host, {.device = device.number}, session.deadline());
        } else if (host->name() == "node") {
            group = dist::make_staged_comm(std::move(host), session.timeout_seconds());
        } else {
            throw BadOption(
                fmt::format("{} share a GPU, and the model is sharded across several hosts: NCCL wants a GPU "
                            "for each rank; start no more ranks than GPUs",
                            counted(device.sharers, "rank")));
        }
    });
    return group;
}

std::function<void()> sum_for_passes(const RankDevice& device, dist::Communicator& tp, std::size_t floats,
                                     double timeout_seconds) {
    if (!device.is_gpu) return sum_on_host(tp, floats, timeout_seconds);
    if (tp.size() == 1) return [] {};
    const auto stream = std::make_shared<model::gpu::Stream>();
    const auto numbers =
        std::make_shared<model::gpu::SummedArray>(tp, floats, dist::Deadline::after_seconds(timeout_seconds));
    return [stream, numbers, &tp, timeout_seconds] {
        tp.enqueue_all_reduce_sum(numbers->data(), numbers->size(), dist::ElementType::float32, stream->handle());
        tp.await_stream(stream->handle(), dist::Deadline::after_seconds(timeout_seconds));
    };
}

double read_rate(const RankDevice& device, model::ThreadTeam& team, std::size_t bytes) {
    return device.is_gpu ? model::gpu::read_rate(bytes) : model::read_rate(team, bytes);
}

std::unique_ptr<spec::DeviceVerifier> make_device_verifier(const RankDevice& device) {
    return device.is_gpu ? spec::gpu::make_device_verifier() : nullptr;
}

std::unique_ptr<model::Decoder> load_decoder(const RankDevice& device, const model::Checkpoint& checkpoint,
                                             const model::ModelConfig& config, const model::DecoderOptions& options,
                                             dist::Communicator& tp, model::ThreadTeam& team) {
    if (device.is_gpu) return model::gpu::load_decoder(checkpoint, config, options, tp);
    return model::load_cpu_decoder(checkpoint, config, options, tp, team);
}

#else

int n_gpus() {
    return -1;
}

std::uint64_t free_bytes(const RankDevice&) {
    return 0;
}

RankDevice choose_device(dist::Session& session, DeviceChoice wanted) {
    in_agreement(session, [&] {
        if (wanted == DeviceChoice::cuda)
            throw BadOption("--device cuda: this program was built without CUDA; build it with -DENTRODRAFT_CUDA=ON");
    });
    return {};
}

std::unique_ptr<dist::Communicator> split_for_passes(dist::Session& session, const RankDevice&, int color) {
    return session.split(color);
}

std::function<void()> sum_for_passes(const RankDevice&, dist::Communicator& tp, std::size_t floats,
                                     double timeout_seconds) {
    return sum_on_host(tp, floats, timeout_seconds);
}

double read_rate(const RankDevice&, model::ThreadTeam& team, std::size_t bytes) {
    return model::read_rate(team, bytes);
}

std::unique_ptr<spec::DeviceVerifier> make_device_verifier(const RankDevice&) {
    return nullptr;
}

std::unique_ptr<model::Decoder> load_decoder(const RankDevice&, const model::Checkpoint& checkpoint,
                                             const model::ModelConfig& config, const model::DecoderOptions& options,
                                             dist::Communicator& tp, model::ThreadTeam& team) {
    return model::load_cpu_decoder(checkpoint, config, options, tp, team);
}

#endif

} // namespace entrodraft::launch
