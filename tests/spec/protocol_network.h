// A network of simulated ranks: communicators whose messages take random times, come in any order, get lost, or arrive
// damaged or from an earlier round, and whose ranks die or stall. The result of a collective is there only after its
// end: until then its buffers hold meaningless bytes. For the simulation of the protocol only.
#pragma once

#include "tests/spec/protocol_tasks.h"

#include "dist/comm/host_comm.h"
#include "dist/rank/error.h"

#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>

namespace entrodraft {

// Unwinds the task of a dead rank. It is not a std::exception, so that the product does not take it for an error.
struct RankDied {};

enum class FaultKind {
    none,
    dies_before,   // before the call
    dies_within,   // when its part is under way
    stalls,        // for `seconds`, then goes on
    loses_sent,    // its messages of that call reach no rank
    loses_awaited, // messages to it in that call never arrive
    twisted,       // the broadcast that it receives has one bit changed
    stale,         // it receives the previous broadcast of that size
    dies_at_step,  // this and the next ones are the rank's own, in its `call`-th step of any round
    throws,
    callback_throws, // in a callback of the coordinator, or in its drafter
};

// A fault and its place: the `call`-th collective that `rank` calls on a group, from 0 (`twisted`, `stale`: the
// `call`-th broadcast that it receives).
struct Fault {
    FaultKind kind = FaultKind::none;
    int group = 0;
    int rank = 0; // in the group
    int call = 0;
    double seconds = 0;    // for stalls
    std::uint64_t bit = 0; // for twisted, modulo their number
};

// The greatest times in simulated seconds; times are uniform from 0 to these.
struct Delays {
    double message = 0;
    double compute = 0;        // of a rank, before each collective
    double rare_message = 0;   // of one message in sixteen
    int slow_task = -1;        // this task takes ten times as long for all that
    bool senders_wait = false; // until the ranks that need their part have come, as without buffers
};

// The state that all groups share.
struct Network {
    Tasks& tasks;
    Dice dice;
    Delays delays;
    Fault fault;
    double fault_at = kNever;            // when it struck
    std::vector<std::string> violations; // of a caller's duties to a communicator
};

// One group of ranks and its collectives, which are matched by the order in which each rank calls them, as in MPI.
class SimGroup {
  public:
    // `members`: the tasks of its ranks.
    SimGroup(Network& shared, int group_number, std::vector<int> tasks_of_ranks)
        : network(shared), number(group_number), members(std::move(tasks_of_ranks)), ranks(members.size()) {}

    // For an observer: a rank's data as it enters a collective, and after it. Both may be unset.
    using Seen = std::function<void(int rank, dist::Collective kind, std::span<const std::byte> data)>;
    Seen on_start, on_end;

  private:
    friend class SimComm;

    struct Part { // of one rank in one collective
        bool posted = false;
        bool over = false; // its rank has the result, or has given up
        bool deaf = false;
        dist::Collective kind = dist::Collective::none;
        int root = 0;
        double at = 0;
        std::vector<std::byte> bytes;
        std::vector<double> arrives; // at each rank
    };
    struct Meeting {
        std::vector<Part> parts;
        bool mismatched = false; // then it fails, or waits for ever
        bool fails = false;
    };
    struct RankState {
        std::size_t calls = 0;
        int received = 0;                                     // broadcasts
        std::map<std::size_t, std::vector<std::byte>> before; // the last broadcast received, by size
    };

    int size() const { return static_cast<int>(members.size()); }
    Meeting& meeting(std::size_t call);
    void forget_what_is_over();
    double message_seconds(int from, int to);
    double ready(const Meeting& meeting, int rank) const;

    Network& network;
    int number;
    std::vector<int> members;
    std::vector<RankState> ranks;
    std::deque<Meeting> meetings;
    std::size_t first = 0; // number of meetings[0]
};

// A rank's endpoint of a group.
class SimComm final : public dist::HostComm {
  public:
    SimComm(SimGroup& group, int rank)
        : HostComm(rank, group.members, nullptr), group_(group), network_(group.network) {}
    std::string name() const override { return "simulated"; }
    bool is_ready() override {
        pause(kLookSeconds); // others may go on meanwhile
        return group_.ready(group_.meeting(call_), rank()) <= network_.tasks.now();
    }

  private:
    using Part = SimGroup::Part;
    using Meeting = SimGroup::Meeting;

    static constexpr double kLookSeconds = 0.001;

    std::size_t me() const { return static_cast<std::size_t>(rank()); }
    bool strikes(FaultKind kind, std::size_t count);
    void pause(double seconds) { network_.tasks.pause_until(network_.tasks.now() + seconds); }
    void begin() override;
    void finish(dist::Deadline deadline) override;
    void post(Meeting& meeting);
    void check_match(Meeting& meeting);
    void check_untouched(const Part& part);
    std::span<std::byte> result() const;
    void deliver(const Meeting& meeting);
    void deliver_broadcast(const Part& sent, std::span<std::byte> to);
    double simulated(dist::Deadline deadline);

    SimGroup& group_;
    Network& network_;
    std::size_t call_ = 0;                                                           // the one in flight
    std::deque<std::pair<std::chrono::steady_clock::time_point, double>> deadlines_; // recent ones, in simulated time
};

// ---- the group ----

inline SimGroup::Meeting& SimGroup::meeting(std::size_t call) {
    while (first + meetings.size() <= call)
        meetings.push_back({std::vector<Part>(members.size()), false, false});
    return meetings[call - first];
}

inline void SimGroup::forget_what_is_over() {
    const auto is_over = [](const Part& part) { return part.over; };
    while (!meetings.empty() && std::ranges::all_of(meetings.front().parts, is_over)) {
        meetings.pop_front();
        ++first;
    }
}

inline double SimGroup::message_seconds(int from, int to) {
    if (from == to) return 0;
    const Delays& delays = network.delays;
    double seconds = delays.message * network.dice.uniform();
    if (delays.rare_message > 0 && network.dice.below(16) == 0) seconds += delays.rare_message * network.dice.uniform();
    const int slow = delays.slow_task;
    const bool is_slow =
        members[static_cast<std::size_t>(from)] == slow || members[static_cast<std::size_t>(to)] == slow;
    return is_slow ? 10 * seconds : seconds;
}

// The time when the rank's part in it is over, as far as is known.
inline double SimGroup::ready(const Meeting& meeting, int rank) const {
    const Part& mine = meeting.parts[static_cast<std::size_t>(rank)];
    if (meeting.mismatched) return meeting.fails ? mine.at : kNever;
    const auto from = [&](int other) {
        const Part& part = meeting.parts[static_cast<std::size_t>(other)];
        if (!part.posted || (mine.deaf && other != rank)) return kNever;
        return part.arrives[static_cast<std::size_t>(rank)];
    };
    const bool is_root = mine.root == rank, waits = network.delays.senders_wait;
    if (mine.kind == dist::Collective::broadcast && is_root && !waits) return mine.at;
    if (mine.kind == dist::Collective::gather && !is_root && !waits) return mine.at;
    if (mine.kind != dist::Collective::all_reduce && !is_root) return std::max(mine.at, from(mine.root));
    double all = mine.at;
    for (int other = 0; other < size(); ++other)
        all = std::max(all, from(other));
    return all;
}

// ---- a rank's endpoint: starting ----

inline bool SimComm::strikes(FaultKind kind, std::size_t count) {
    const Fault& fault = network_.fault;
    if (fault.kind != kind || fault.group != group_.number || fault.rank != rank() ||
        static_cast<std::size_t>(fault.call) != count)
        return false;
    network_.fault_at = network_.tasks.now();
    return true;
}

inline void SimComm::begin() {
    call_ = group_.ranks[me()].calls++;
    const Delays& delays = network_.delays;
    if (delays.compute > 0)
        pause((group_.members[me()] == delays.slow_task ? 10 : 1) * delays.compute * network_.dice.uniform());
    if (strikes(FaultKind::stalls, call_)) pause(network_.fault.seconds);
    if (strikes(FaultKind::dies_before, call_)) throw RankDied();
    if (group_.on_start) group_.on_start(rank(), in_flight_.kind, {in_flight_.in, in_flight_.bytes});
    post(group_.meeting(call_));
    if (strikes(FaultKind::dies_within, call_)) throw RankDied();
}

inline void SimComm::post(Meeting& meeting) {
    Part& part = meeting.parts[me()];
    part.posted = true;
    part.kind = in_flight_.kind;
    part.root = in_flight_.root;
    part.at = network_.tasks.now();
    part.deaf = strikes(FaultKind::loses_awaited, call_);
    part.bytes.assign(in_flight_.in, in_flight_.in + in_flight_.bytes);
    const bool is_lost = strikes(FaultKind::loses_sent, call_);
    for (int to = 0; to < size(); ++to)
        part.arrives.push_back(is_lost && to != rank() ? kNever : part.at + group_.message_seconds(rank(), to));
    std::ranges::fill(result(), std::byte{0xff}); // no result yet: NaN, or -1
    check_match(meeting);
    for (int other = 0; other < size(); ++other) {
        const Part& waiting = meeting.parts[static_cast<std::size_t>(other)];
        if (other == rank() || !waiting.posted || waiting.over) continue;
        network_.tasks.wake(group_.members[static_cast<std::size_t>(other)], group_.ready(meeting, other));
    }
}

inline void SimComm::check_match(Meeting& meeting) {
    for (const Part& other : meeting.parts) {
        if (!other.posted || meeting.mismatched) continue;
        if (other.kind == in_flight_.kind && other.root == in_flight_.root && other.bytes.size() == in_flight_.bytes)
            continue;
        meeting.mismatched = true;
        meeting.fails = network_.dice.chance(0.5);
        network_.violations.push_back("collective " + std::to_string(call_) + " of group " +
                                      std::to_string(group_.number) + " is a " + dist::name_of(in_flight_.kind) +
                                      " of " + std::to_string(in_flight_.bytes) + " bytes on rank " +
                                      std::to_string(rank()) + " and a " + dist::name_of(other.kind) + " of " +
                                      std::to_string(other.bytes.size()) + " on another");
    }
}

// The place of the collective's result on this rank; empty if it gets none.
inline std::span<std::byte> SimComm::result() const {
    switch (in_flight_.kind) {
    case dist::Collective::all_reduce:
        return {in_flight_.out, in_flight_.bytes};
    case dist::Collective::broadcast:
        return {in_flight_.out, is_root() ? 0 : in_flight_.bytes};
    case dist::Collective::gather:
        return {in_flight_.out, is_root() ? in_flight_.bytes * n_ranks() : 0};
    case dist::Collective::none:
        break;
    }
    return {};
}

// ---- a rank's endpoint: waiting and receiving ----

inline void SimComm::finish(dist::Deadline deadline) {
    const double limit = simulated(deadline);
    Meeting& meeting = group_.meeting(call_);
    Part& mine = meeting.parts[me()];
    for (double ready = group_.ready(meeting, rank());; ready = group_.ready(meeting, rank())) {
        if (std::min(ready, limit) <= network_.tasks.now()) break;
        network_.tasks.pause_until(std::min(ready, limit));
    }
    const bool has_come = group_.ready(meeting, rank()) <= network_.tasks.now();
    mine.over = true;
    if (has_come && meeting.mismatched) throw dist::Error("a message of another kind or size");
    if (!has_come) throw dist::Timeout(std::string(dist::name_of(in_flight_.kind)) + ": a rank has not come in time");
    check_untouched(mine);
    deliver(meeting);
    group_.forget_what_is_over();
}

// A rank's data must not change until the collective has ended: a transport may read it at any time.
inline void SimComm::check_untouched(const Part& part) {
    if (in_flight_.kind == dist::Collective::all_reduce) return;
    if (in_flight_.kind == dist::Collective::broadcast && !is_root()) return;
    if (!std::equal(part.bytes.begin(), part.bytes.end(), in_flight_.in))
        network_.violations.push_back("rank " + std::to_string(rank()) + " changed what it sends in a " +
                                      dist::name_of(in_flight_.kind) + " under way");
}

inline void SimComm::deliver(const Meeting& meeting) {
    const std::span<std::byte> to = result();
    if (in_flight_.kind == dist::Collective::broadcast && !is_root()) {
        deliver_broadcast(meeting.parts[static_cast<std::size_t>(in_flight_.root)], to);
    } else if (in_flight_.kind == dist::Collective::gather && is_root()) {
        for (std::size_t other = 0; other < n_ranks(); ++other)
            std::ranges::copy(meeting.parts[other].bytes,
                              to.begin() + static_cast<std::ptrdiff_t>(other * in_flight_.bytes));
    } else if (in_flight_.kind == dist::Collective::all_reduce) {
        auto* sums = reinterpret_cast<float*>(to.data());
        for (std::size_t i = 0; i < to.size() / sizeof(float); ++i) {
            float sum = 0;
            for (std::size_t other = 0; other < n_ranks(); ++other) {
                float value;
                std::memcpy(&value, meeting.parts[other].bytes.data() + i * sizeof value, sizeof value);
                sum = other == 0 ? value : sum + value; // in rank order, as the product's transports do
            }
            sums[i] = sum;
        }
    }
    const bool is_given = !to.empty();
    if (group_.on_end)
        group_.on_end(rank(), in_flight_.kind,
                      is_given ? to : std::span<const std::byte>(in_flight_.in, in_flight_.bytes));
}

inline void SimComm::deliver_broadcast(const Part& sent, std::span<std::byte> to) {
    SimGroup::RankState& state = group_.ranks[me()];
    const auto count = static_cast<std::size_t>(state.received++);
    std::ranges::copy(sent.bytes, to.begin());
    if (to.empty()) return;
    if (state.before.contains(to.size()) && strikes(FaultKind::stale, count))
        std::ranges::copy(state.before[to.size()], to.begin());
    if (strikes(FaultKind::twisted, count)) {
        const std::uint64_t bit = network_.fault.bit % (8 * to.size());
        to[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
    state.before[to.size()] = sent.bytes;
}

// Deadlines are points of real time. This rank makes each right before it first waits with it. Simulated time stands
// still meanwhile, and rounding hides the real time that has passed.
inline double SimComm::simulated(dist::Deadline deadline) {
    constexpr double kGrain = 100, kForever = 1e8;
    for (const auto& [at, time] : deadlines_)
        if (at == deadline.at) return time;
    const double left = std::chrono::duration<double>(deadline.at - std::chrono::steady_clock::now()).count();
    const double time = left > kForever ? kNever : network_.tasks.now() + std::round(left / kGrain) * kGrain;
    deadlines_.emplace_back(deadline.at, time);
    if (deadlines_.size() > 8) deadlines_.pop_front();
    return time;
}

} // namespace entrodraft
