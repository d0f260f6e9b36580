// Where every rank of a host says where it is, in memory that all of them map: its round and step, whom it waits for,
// and a heartbeat. Written by each rank in its own place, read by whoever has waited too long.
//
// Knows nothing of MPI and of threads: Session makes the memory, the watchdog renews the heartbeat, the host transports
// show their waits. What it says is for messages; nothing that ranks do depends on it but who prints one.
#pragma once

#include "dist/rank/step_watch.h"

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

namespace entrodraft::dist {

class RankBoard final : public StepWatch {
  public:
    static constexpr std::size_t kPlaceBytes = 128; // of each rank, aligned to as much, zeroed before first use
    static constexpr double kSilentSeconds = 1;     // without a heartbeat: stopped or dead
    static constexpr int kEverybody = -1;           // whom a rank waits for that cannot know who is missing

    struct Member {
        std::string host;
        std::byte* place = nullptr; // null: on another host
    };

    // `members`: every rank of the world, this one with a place. The places outlive the board.
    RankBoard(int world_rank, std::vector<Member> members);

    void enter(std::uint64_t round, const char* step) override;
    // Renews this rank's heartbeat. From one thread, a few times a second.
    void beat();
    // This rank begins to wait for another one of the world, or has ended to.
    void begin_wait(int world_rank);
    void end_wait();

    // How often this rank has moved on, to compare with later; whether it waits for others; its step.
    std::uint64_t moves() const;
    bool is_waiting() const;
    bool is_in(const char* step) const;

    // "rank 2, host n1, round 17, score", of this rank.
    std::string position() const;
    // What is known of a rank, for a message: "rank 2 (host n1) has not moved since round 17, score, and given no sign
    // of life for 31 s: stopped or dead". Of a rank that waits itself, whom it waits for is told as well.
    std::string what_is_known_of(int world_rank) const;
    // Whether a rank of this host is known to wait for others: it is not the one that is missing.
    bool waits(int world_rank) const;

    // True for the first rank of this host that calls it: the one to report the failure that ends the job.
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
    Place* first_; // of this host
    std::uint64_t beaten_moves_ = 0;
};

} // namespace entrodraft::dist
