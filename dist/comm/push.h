// The all-gather of small messages among GPUs that reach each other's memory: each writes its part to all others.
//
// One kernel and one crossing of the link. Words of 8 bytes travel in lines of 16, in which each half of a word lies
// beside the number of the all-gather; who waits for a line reads it until both numbers are right. So there is neither
// a barrier nor a fence, and a line is complete when it is recognised. A rank is at most one all-gather ahead of
// another, so two sets of lines, used in turns, suffice. Called by nccl_comm.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace entrodraft::dist {

inline constexpr std::size_t kMaxPushedBytes = 64 * 1024; // a rank; beyond, twice the bytes cost more than they save
inline constexpr std::size_t kPushedWord = 8;             // bytes; messages are multiples of it
inline constexpr unsigned kWordsOfPushBlock = 64;
inline constexpr std::size_t kMaxPushBlocks = kMaxPushedBytes / (kWordsOfPushBlock * kPushedWord);

// Of a rank's inbox, which the others write to: [2][ranks][words of the longest message] lines.
constexpr std::size_t inbox_bytes(int ranks) {
    return 2 * static_cast<std::size_t>(ranks) * kMaxPushedBytes * 2;
}

// Device memory, zeroed.
struct PushState {
    unsigned epochs[kMaxPushBlocks]; // all-gathers that a block has taken part in
    unsigned has_given_up;           // one of them has
};

struct PushCall {
    const void* mine = nullptr; // [bytes], aligned to 8 bytes
    void* all = nullptr;        // [ranks][bytes], the same
    std::size_t bytes = 0;      // at most kMaxPushedBytes, a multiple of kPushedWord; the same on every rank
    int rank = 0, ranks = 1;
    void* inbox = nullptr; // ncclWindow_t of inbox_bytes() on every rank, zeroed, of ranks that are one LSA team
    PushState* state = nullptr;
    // Host memory that the device reads and writes: not 0 as soon as some rank was waited for in vain, or the host has
    // set it. Then kernels that wait end within kLookSeconds, later ones do not touch an inbox, and what is gathered is
    // worth nothing.
    volatile unsigned* has_ended = nullptr;
    std::uint64_t limit_ns = 0; // how long to wait for other ranks
};

inline constexpr double kLookSeconds = 0.01; // far more than the polls between two looks take

// Puts it on the stream, a cudaStream_t, which may be under capture into a graph. Throws Error. Collective over the
// ranks, which all enqueue the same all-gathers in the same order.
void push_and_collect(void* stream, const PushCall& call);

} // namespace entrodraft::dist
