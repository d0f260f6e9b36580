// Each rank of a host shows its state in memory that all ranks of the host map: its round and step, the rank that it
// waits for, and a heartbeat. Each rank writes its own place; a rank that has waited too long reads the places of the
// others.
//
// The board depends on neither MPI nor threads. Session makes the memory, the watchdog renews the heartbeat, and the
// host transports record their waits. Its contents are for messages. They also decide which rank prints the failure
// that ends the job, and tell the others its exit code.
#pragma once

#include "dist/rank/step_watch.h"

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

namespace entrodraft::dist {

class RankBoard final : public StepWatch {
  public:
    static constexpr std::size_t kPlaceBytes = 128; // per rank; aligned to the same number, zeroed before first use
    static constexpr double kSilentSeconds = 1;     // without a heartbeat: stopped or dead
    static constexpr int kEverybody = -1;           // for a rank that waits and cannot know which rank is missing

    struct Member {
        std::string host;
        std::byte* place = nullptr; // null: on another host
    };

    // `members`: every rank of the world, this one with a place. The places outlive the board.
    RankBoard(int world_rank, std::vector<Member> members);

    void enter(std::uint64_t round, const char* step) override;
    // Renews this rank's heartbeat. One thread calls it, a few times a second.
    void beat();
    // This rank begins, or ends, a wait for another rank of the world.
    void begin_wait(int world_rank);
    void end_wait();

    // Number of times this rank has moved on, for comparisons; whether it waits for others; whether it is in `step`.
    std::uint64_t moves() const;
    bool is_waiting() const;
    bool is_in(const char* step) const;

    // Returns this rank's position, as "rank 2, host n1, round 17, score".
    std::string position() const;
    // Describes a rank's state for a message: "rank 2 (host n1) has not moved since round 17, score, and given no sign
    // of life for 31 s: stopped or dead". For a rank that waits itself, it also names the rank that this one waits for.
    std::string what_is_known_of(int world_rank) const;
    // Returns whether a rank of this host is known to wait for others, so that it is not the missing one.
    bool waits(int world_rank) const;

    // Returns true for the first rank of this host that calls it: that rank reports the failure that ends the job.
    bool claim_failure(int exit_code);
    // The exit code of that failure, 0 while there is none. For signal handlers; lives as long as the places.
    const std::atomic<int>& failure() const;

  private:
    struct Place;
    const Place* place_of(int world_rank) const;
    std::string name_of(int world_rank) const;

    int world_rank_;
    std::vector<Member> members_;
    Place* mine_;
    Place* first_; // of this host's first rank
    std::uint64_t beaten_moves_ = 0;
};

} // namespace entrodraft::dist
