// Places in shared memory: see rank_board.h.
//
// Every field is a separate atomic. A reader may see a new round together with an old step. That is good enough for a
// message, and costs the writer nothing.
#include "dist/rank/rank_board.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <utility>

namespace entrodraft::dist {
namespace {

using Nanoseconds = std::int64_t;
using StepWords = std::array<std::uint64_t, 2>; // up to 15 letters of a step's name, zeros after them

// Reads the same clock in all processes of a host.
Nanoseconds now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

StepWords words_of(const char* step) {
    char name[sizeof(StepWords)] = {};
    std::memcpy(name, step, strnlen(step, sizeof name - 1));
    StepWords words;
    std::memcpy(words.data(), name, sizeof name);
    return words;
}

std::string text_of(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
    return text;
}

} // namespace

struct RankBoard::Place {
    std::atomic<std::uint64_t> round;
    std::array<std::atomic<std::uint64_t>, 2> step;
    std::atomic<std::uint64_t> moves;
    std::atomic<Nanoseconds> moved;  // time at which the heartbeat first saw the latest move; 0: never
    std::atomic<Nanoseconds> beaten; // time of the last heartbeat; 0: never
    std::atomic<int> waits_for;      // world rank + 1, kEverybody, or 0: does not wait
    std::atomic<int> failure;        // exit code of the host's first failure; only in its first rank's place

    std::string text() const {
        const StepWords words = {step[0].load(), step[1].load()};
        char name[sizeof words + 1] = {};
        std::memcpy(name, words.data(), sizeof words);
        const std::uint64_t number = round.load();
        if (name[0] == '\0') return "start";
        return number == kNoRound ? name : fmt::format("round {}, {}", number, name);
    }
};

RankBoard::RankBoard(int world_rank, std::vector<Member> members)
    : world_rank_(world_rank), members_(std::move(members)) {
    static_assert(sizeof(Place) <= kPlaceBytes && std::atomic<std::uint64_t>::is_always_lock_free);
    mine_ = reinterpret_cast<Place*>(members_[world_rank].place);
    for (std::size_t rank = members_.size(); rank-- > 0;)
        if (members_[rank].place) first_ = reinterpret_cast<Place*>(members_[rank].place);
    enter(kNoRound, "start");
}

void RankBoard::enter(std::uint64_t round, const char* step) {
    const StepWords words = words_of(step);
    mine_->round.store(round, std::memory_order_relaxed);
    mine_->step[0].store(words[0], std::memory_order_relaxed);
    mine_->step[1].store(words[1], std::memory_order_relaxed);
    mine_->moves.store(mine_->moves.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void RankBoard::beat() {
    const Nanoseconds at = now();
    if (const std::uint64_t seen = moves(); seen != beaten_moves_) {
        beaten_moves_ = seen;
        mine_->moved.store(at);
    }
    mine_->beaten.store(at);
}

void RankBoard::begin_wait(int world_rank) {
    mine_->waits_for.store(world_rank == kEverybody ? kEverybody : world_rank + 1);
}

void RankBoard::end_wait() {
    mine_->waits_for.store(0);
}

std::uint64_t RankBoard::moves() const {
    return mine_->moves.load(std::memory_order_acquire);
}

bool RankBoard::is_waiting() const {
    return mine_->waits_for.load() != 0;
}

bool RankBoard::is_in(const char* step) const {
    const StepWords words = words_of(step);
    return mine_->step[0].load() == words[0] && mine_->step[1].load() == words[1];
}

const RankBoard::Place* RankBoard::place_of(int world_rank) const {
    return reinterpret_cast<const Place*>(members_[world_rank].place);
}

std::string RankBoard::name_of(int world_rank) const {
    return fmt::format("rank {} (host {})", world_rank, members_[world_rank].host);
}

std::string RankBoard::position() const {
    return fmt::format("rank {}, host {}, {}", world_rank_, members_[world_rank_].host, mine_->text());
}

bool RankBoard::waits(int world_rank) const {
    const Place* place = place_of(world_rank);
    return place && place->waits_for.load() != 0 &&
           static_cast<double>(now() - place->beaten.load()) * 1e-9 < kSilentSeconds;
}

std::string RankBoard::what_is_known_of(int world_rank) const {
    std::string text;
    // A rank that waits is not to blame; the rank at the end of the chain is. A circle contains all members at most.
    for (std::size_t hops = 0; hops <= members_.size(); ++hops) {
        const Place* place = place_of(world_rank);
        text += name_of(world_rank) + (hops == 0 ? " " : ", which ");
        if (!place) return text + "is on another host, where this rank cannot see it";
        if (place->beaten.load() == 0) return text + "has not come so far as to be seen";
        const double silent = static_cast<double>(now() - place->beaten.load()) * 1e-9;
        const double still = static_cast<double>(now() - place->moved.load()) * 1e-9;
        if (silent > kSilentSeconds)
            return text + "has not moved since " + place->text() + ", and given no sign of life for " +
                   text_of(silent) + ": stopped or dead";
        const int awaited = place->waits_for.load();
        if (awaited == 0) return text + "is alive but still in " + place->text() + ", for " + text_of(still);
        if (awaited == kEverybody) return text + "waits for others too, in " + place->text();
        if (awaited - 1 == world_rank_) return text + "waits for this rank, in " + place->text();
        text += "waits in " + place->text() + " for ";
        world_rank = awaited - 1;
    }
    return text + ".., and all of them wait for each other";
}

bool RankBoard::claim_failure(int exit_code) {
    int none = 0;
    return first_->failure.compare_exchange_strong(none, exit_code);
}

const std::atomic<int>& RankBoard::failure() const {
    return first_->failure;
}

} // namespace entrodraft::dist
