// One-shot all-gather: see push.h.
#include "dist/comm/push.h"

#include "dist/rank/kernel_launch.cuh"

#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>

#include <algorithm>
#ifdef ENTRODRAFT_CUDA_STAND_IN
#include <atomic>
#endif

namespace entrodraft::dist {

namespace {

constexpr unsigned kPollsPerLook = 256; // polls between two looks at the clock and, over PCIe, at the host's word

// A word on its way, in halves: data below, epoch above. Each half is written and read as one.
struct alignas(16) Line {
    std::uint64_t halves[2];
};
static_assert(sizeof(Line) == 2 * kPushedWord);

#ifndef ENTRODRAFT_CUDA_STAND_IN
__device__ void store(Line* to, const Line& line) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(line.halves[0]), "l"(line.halves[1])
                 : "memory");
}
__device__ Line load(const Line* from) {
    Line line;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(line.halves[0]), "=l"(line.halves[1])
                 : "l"(from)
                 : "memory");
    return line;
}
__device__ std::uint64_t clock_ns() {
    std::uint64_t now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
__device__ void let_others_run() {}
#else
void store(Line* to, const Line& line) {
    for (int i = 0; i < 2; ++i)
        std::atomic_ref(to->halves[i]).store(line.halves[i], std::memory_order_release);
}
Line load(Line* from) {
    Line line;
    for (int i = 0; i < 2; ++i)
        line.halves[i] = std::atomic_ref(from->halves[i]).load(std::memory_order_acquire);
    return line;
}
std::uint64_t clock_ns() {
    return cuda_stand_in::clock_ns();
}
void let_others_run() {
    cuda_stand_in::let_others_run();
}
#endif

__device__ std::uint64_t half_of(unsigned data, unsigned epoch) {
    return static_cast<std::uint64_t>(epoch) << 32 | data;
}

// Returns the place of `rank`'s word in the inbox of `reader`.
__device__ Line* line_at(const PushCall& call, unsigned epoch, int rank, unsigned word, int reader) {
    constexpr std::size_t kWords = kMaxPushedBytes / kPushedWord;
    const std::size_t row = epoch % 2 * static_cast<std::size_t>(call.ranks) + static_cast<std::size_t>(rank);
    return static_cast<Line*>(
        ncclGetLsaPointer(static_cast<ncclWindow_t>(call.inbox), (row * kWords + word) * sizeof(Line), reader));
}

// Waits until the line has this epoch, then stores its word. Returns false when it gives up.
__device__ bool await_line(const PushCall& call, Line* from, unsigned epoch, uint2* word) {
    std::uint64_t deadline = 0;
    for (unsigned polls = 1;; ++polls) {
        const Line line = load(from);
        if (line.halves[0] >> 32 == epoch && line.halves[1] >> 32 == epoch) {
            *word = {static_cast<unsigned>(line.halves[0]), static_cast<unsigned>(line.halves[1])};
            return true;
        }
        let_others_run();
        if (polls % kPollsPerLook != 0) continue;
        const std::uint64_t now = clock_ns();
        if (deadline == 0) deadline = now + call.limit_ns;
        if (*call.has_ended == 0 && now < deadline) continue;
        *call.has_ended = 1;
        call.state->has_given_up = 1;
        return false;
    }
}

// Thread (x, y) handles word x of the block, to and from every blockDim.y-th of the other ranks. Blocks are independent
// of each other: a block waits only for the same block of other ranks.
__global__ void push_words(PushCall call) {
    start_next_kernel();
    // The word is in host memory, so one thread of a block reads it, while other kernels still run. After our kernels
    // it may be old, but has_given_up in device memory tells of their failures. After an aborted NCCL kernel it is new.
    const bool is_first = threadIdx.x == 0 && threadIdx.y == 0;
    __shared__ bool has_ended;
    if (is_first) has_ended = *call.has_ended != 0;
    wait_for_inputs();
    unsigned epoch = call.state->epochs[blockIdx.x] + 1;
    if (epoch == 0) epoch = 2; // an empty inbox has epoch 0; 2 has the same parity
    __syncthreads();           // all have read the epoch, and may read has_ended
    const bool goes_on = !has_ended && call.state->has_given_up == 0;
    const auto n_words = static_cast<unsigned>(call.bytes / kPushedWord);
    const unsigned word = blockIdx.x * kWordsOfPushBlock + threadIdx.x;
    if (goes_on && word < n_words) {
        const uint2 mine = static_cast<const uint2*>(call.mine)[word];
        const Line line = {{half_of(mine.x, epoch), half_of(mine.y, epoch)}};
        const auto place = [&](int rank) {
            return static_cast<uint2*>(call.all) + static_cast<std::size_t>(rank) * n_words + word;
        };
        const int first = 1 + static_cast<int>(threadIdx.y), step = static_cast<int>(blockDim.y);
        if (first == 1) *place(call.rank) = mine;
        for (int i = first; i < call.ranks; i += step)
            store(line_at(call, epoch, call.rank, word, (call.rank + i) % call.ranks), line);
        for (int i = first; i < call.ranks; i += step) {
            const int rank = (call.rank + i) % call.ranks;
            if (!await_line(call, line_at(call, epoch, rank, word, call.rank), epoch, place(rank))) break;
        }
    }
    if (is_first) call.state->epochs[blockIdx.x] = epoch;
}

} // namespace

void push_and_collect(void* stream, const PushCall& call) {
    constexpr int kMaxAtOnce = 8; // other ranks
    const std::size_t words = call.bytes / kPushedWord;
    const auto blocks = static_cast<unsigned>((words + kWordsOfPushBlock - 1) / kWordsOfPushBlock);
    const auto others = static_cast<unsigned>(std::min(call.ranks - 1, kMaxAtOnce));
    launch(stream, {blocks, {kWordsOfPushBlock, others}}, push_words, call);
}

} // namespace entrodraft::dist
