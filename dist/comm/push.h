// The all-gather of small messages among GPUs that can access each other's memory: each rank writes its part to all
// others.
//
// It takes one kernel and one crossing of the link. Each word of 8 bytes travels in a line of 16 bytes: next to each
// half of the word is the number of the all-gather. The receiver reads a line until both numbers are right; then the
// line is complete. So neither a barrier nor a fence is needed. A rank is at most one all-gather ahead of another, so
// two sets of lines, used in turn, are enough. Only nccl_comm.cpp calls it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace entrodraft::dist {

inline constexpr std::size_t kMaxPushedBytes = 64 * 1024; // per rank; above it, twice the bytes cost too much
inline constexpr std::size_t kPushedWord = 8;             // bytes; messages are multiples of it
inline constexpr unsigned kWordsOfPushBlock = 64;
inline constexpr std::size_t kMaxPushBlocks = kMaxPushedBytes / (kWordsOfPushBlock * kPushedWord);

// Size of a rank's inbox, which the others write to: [2][ranks][words of the longest message] lines.
constexpr std::size_t inbox_bytes(int ranks) {
    return 2 * static_cast<std::size_t>(ranks) * kMaxPushedBytes * 2;
}

// Device memory, zeroed.
struct PushState {
    unsigned epochs[kMaxPushBlocks]; // number of all-gathers that a block has taken part in
    unsigned has_given_up;           // 1 once a block has given up
};

struct PushCall {
    const void* mine = nullptr; // [bytes], aligned to 8 bytes
    void* all = nullptr;        // [ranks][bytes], aligned to 8 bytes
    std::size_t bytes = 0;      // at most kMaxPushedBytes, a multiple of kPushedWord; the same on every rank
    int rank = 0, ranks = 1;
    void* inbox = nullptr; // ncclWindow_t of inbox_bytes() on every rank, zeroed; the ranks are one LSA team
    PushState* state = nullptr;
    // Host memory that the device reads and writes. It is not 0 once a rank has given up waiting, or once the host has
    // set it. Then waiting kernels end within kLookSeconds, later ones do not touch an inbox, and the gathered data is
    // not valid.
    volatile unsigned* has_ended = nullptr;
    std::uint64_t limit_ns = 0; // how long to wait for other ranks
};

inline constexpr double kLookSeconds = 0.01; // far more than the polls between two looks take

// Puts the all-gather on the stream, a cudaStream_t that may be under capture into a graph. Throws Error. Collective
// over the ranks, which all enqueue the same all-gathers in the same order.
void push_and_collect(void* stream, const PushCall& call);

} // namespace entrodraft::dist
