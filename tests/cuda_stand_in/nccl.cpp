#include "tests/cuda_stand_in/nccl.h"

#include "tests/cuda_stand_in/nccl_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

// The n-th window of each rank of a group. It holds their memory: others may write to that of a rank that has gone.
struct CudaStandInNcclWindow {
    std::vector<std::shared_ptr<void>> memory; // [rank]
    int registered = 0;                        // ranks
};

namespace cuda_stand_in {

using Bytes = std::vector<unsigned char>;

// One collective: what each rank has brought, by value, so that nobody waits for others to read it.
struct Collective {
    std::map<int, Bytes> brought; // by rank
    int left = 0;                 // ranks that have taken what they wanted
};

// The ranks of a communicator.
struct Group {
    std::mutex mutex;
    int connected = 0;
    std::map<std::uint64_t, Collective> collectives;           // by number
    std::map<std::pair<int, int>, std::deque<Bytes>> messages; // by sender and receiver
    std::deque<CudaStandInNcclWindow> windows;
};

// What works on streams keep of a communicator that may be gone.
struct CommState {
    std::shared_ptr<Group> group;
    int rank = 0, size = 1;
    int version = 0;
    std::uint64_t next = 0;  // number of this rank's next collective
    std::size_t windows = 0; // that this rank has registered
    std::atomic<bool> aborted{false};
    std::shared_ptr<int> graphs = std::make_shared<int>(); // held by each graph that has captured a collective
};

} // namespace cuda_stand_in

struct CudaStandInNcclComm {
    std::shared_ptr<cuda_stand_in::CommState> state;
};

namespace {

using cuda_stand_in::Bytes;
using cuda_stand_in::Collective;
using cuda_stand_in::CommState;
using cuda_stand_in::Group;

std::atomic<int> version_loaded{NCCL_VERSION_CODE};
std::mutex groups_mutex;
std::map<std::uint64_t, std::shared_ptr<Group>> groups; // by unique id
std::mutex memory_mutex;
std::map<void*, std::shared_ptr<void>> memory_of_ranks; // by address

// Where a rank of three or more begins to add depends on where an element is, as with rings.
void add_up(const std::map<int, Bytes>& brought, float* out, std::size_t count) {
    const std::size_t ranks = brought.size(), chunk = (count + ranks - 1) / ranks;
    for (std::size_t i = 0; i < count; ++i) {
        const auto part = [&](std::size_t step) {
            const Bytes& bytes = brought.at(static_cast<int>((i / chunk + 1 + step) % ranks));
            return reinterpret_cast<const float*>(bytes.data())[i];
        };
        float sum = part(0);
        for (std::size_t step = 1; step < ranks; ++step)
            sum += part(step);
        out[i] = sum;
    }
}

// Brings `bytes` of `in`; when all have come, `take` is given what they brought.
ncclResult_t enqueue(ncclComm_t comm, cudaStream_t stream, const void* in, std::size_t bytes,
                     std::function<void(const std::map<int, Bytes>&)> take) {
    constexpr std::uint64_t kNotBrought = ~std::uint64_t{0};
    constexpr int kLostWait = NCCL_VERSION(2, 28, 0), kHasItBack = NCCL_VERSION(2, 30, 7);
    cuda_stand_in::enqueue_collective(
        stream,
        [state = comm->state, in, bytes, take = std::move(take), number = kNotBrought]() mutable {
            if (state->aborted) return true;
            if (state->version >= kLostWait && state->version < kHasItBack && cuda_stand_in::begins_beside_a_kernel()) {
                std::fprintf(stderr, "NCCL stand-in: rank %d reads beside a kernel that has not ended\n", state->rank);
                std::abort();
            }
            const std::lock_guard lock(state->group->mutex);
            if (number == kNotBrought) number = state->next++;
            Collective& collective = state->group->collectives[number];
            const auto* first = static_cast<const unsigned char*>(in);
            collective.brought.try_emplace(state->rank, first, first + bytes);
            if (static_cast<int>(collective.brought.size()) < state->size) return false;
            take(collective.brought);
            if (++collective.left == state->size) state->group->collectives.erase(number);
            return true;
        },
        comm->state->graphs);
    return ncclSuccess;
}

void end(ncclComm_t comm) {
    while (comm->state->graphs.use_count() > 1)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    delete comm;
}

} // namespace

void cuda_stand_in::load_nccl(int version) {
    version_loaded = version;
}

const char* ncclGetErrorString(ncclResult_t) {
    return "error";
}
ncclResult_t ncclGetVersion(int* version) {
    *version = version_loaded;
    return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static std::atomic<std::uint64_t> next{1};
    const std::uint64_t number = next++;
    std::memcpy(id->internal, &number, sizeof number);
    return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
    if (config->blocking != 0) return ncclInvalidArgument;
    std::uint64_t number = 0;
    std::memcpy(&number, id.internal, sizeof number);
    const auto state = std::make_shared<CommState>();
    state->rank = rank;
    state->size = size;
    state->version = version_loaded;
    {
        const std::lock_guard lock(groups_mutex);
        std::shared_ptr<Group>& group = groups[number];
        if (!group) group = std::make_shared<Group>();
        state->group = group;
        if (++group->connected == size) groups.erase(number);
    }
    *comm = new CudaStandInNcclComm{state};
    return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
    const std::lock_guard lock(groups_mutex);
    const CommState& mine = *comm->state;
    Group& group = *mine.group;
    const std::lock_guard group_lock(group.mutex);
    const bool has_all =
        group.connected == mine.size && (mine.windows == 0 || group.windows[mine.windows - 1].registered == mine.size);
    *state = has_all ? ncclSuccess : ncclInProgress;
    return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
    return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    end(comm);
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->state->aborted = true;
    end(comm);
    return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
    if (type != ncclFloat32) return ncclInvalidArgument;
    return enqueue(comm, stream, in, count * sizeof(float),
                   [out, count](const auto& brought) { add_up(brought, static_cast<float*>(out), count); });
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    if (type != ncclInt8) return ncclInvalidArgument;
    return enqueue(comm, stream, in, count, [out](const auto& brought) {
        auto* to = static_cast<unsigned char*>(out);
        for (const auto& [rank, bytes] : brought)
            to = std::copy(bytes.begin(), bytes.end(), to);
    });
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    if (type != ncclInt8) return ncclInvalidArgument;
    return enqueue(comm, stream, in, count, [out, root](const auto& brought) {
        std::ranges::copy(brought.at(root), static_cast<unsigned char*>(out));
    });
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    cuda_stand_in::enqueue(stream, [state = comm->state, in, count, peer] {
        const auto* first = static_cast<const unsigned char*>(in);
        const std::lock_guard lock(state->group->mutex);
        state->group->messages[{state->rank, peer}].emplace_back(first, first + count);
    });
    return ncclSuccess;
}
ncclResult_t ncclRecv(void* out, std::size_t, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
    cuda_stand_in::enqueue_collective(
        stream,
        [state = comm->state, out, peer] {
            if (state->aborted) return true;
            const std::lock_guard lock(state->group->mutex);
            std::deque<Bytes>& arrived = state->group->messages[{peer, state->rank}];
            if (arrived.empty()) return false;
            std::ranges::copy(arrived.front(), static_cast<unsigned char*>(out));
            arrived.pop_front();
            return true;
        },
        comm->state->graphs);
    return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
    if (cudaMalloc(memory, bytes) != cudaSuccess) return ncclInvalidArgument;
    const std::lock_guard lock(memory_mutex);
    memory_of_ranks[*memory] = {*memory, &cudaFree};
    return ncclSuccess;
}
ncclResult_t ncclMemFree(void* memory) {
    const std::lock_guard lock(memory_mutex);
    memory_of_ranks.erase(memory);
    return ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* memory, std::size_t, ncclWindow_t* window, int) {
    const std::scoped_lock lock(memory_mutex, comm->state->group->mutex);
    std::deque<CudaStandInNcclWindow>& windows = comm->state->group->windows;
    const std::size_t number = comm->state->windows++;
    if (number == windows.size()) windows.emplace_back().memory.resize(static_cast<std::size_t>(comm->state->size));
    windows[number].memory[static_cast<std::size_t>(comm->state->rank)] = memory_of_ranks.at(memory);
    ++windows[number].registered;
    *window = &windows[number];
    return ncclInProgress;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) {
    return ncclSuccess;
}
ncclTeam_t ncclTeamLsa(ncclComm_t comm) {
    return {comm->state->size, comm->state->rank, 1};
}
void* ncclGetLsaPointer(ncclWindow_t window, std::size_t offset, int peer) {
    return static_cast<unsigned char*>(window->memory[static_cast<std::size_t>(peer)].get()) + offset;
}
