// Messages with heartbeats over MPI: see channel.h.
#include "dist/comm/channel.h"

#include "dist/comm/deferred_buffers.h"
#include "dist/comm/futex.h"
#include "dist/rank/check.h"
#include "dist/rank/error.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <deque>
#include <fmt/format.h>
#include <utility>

namespace entrodraft::dist {
namespace {

constexpr double kMaxHeartbeatSeconds = 1;

// Between two looks: while messages are sent and come, and after kQuietSeconds without one.
constexpr std::chrono::nanoseconds kShortNap{500'000}, kLongNap{10'000'000};
constexpr double kQuietSeconds = 0.2;

// A message on its way. It is on the heap, because MPI keeps its address.
struct Transfer {
    Message message;
    MPI_Request request = MPI_REQUEST_NULL;

    bool has_ended(const char* call) {
        int done = 0;
        check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
        return done != 0;
    }
};

// Receives without waiting: a message is matched when it is announced, so a long one does not hold up this rank.
class MpiChannel final : public Channel {
  public:
    MpiChannel(MPI_Comm comm, const RankLayout& layout, const Clock& clock, double timeout_seconds)
        : Channel(layout, clock, timeout_seconds), comm_(comm) {}
    ~MpiChannel() override {
        for (auto* transfers : {&outgoing_, &incoming_})
            for (std::unique_ptr<Transfer>& transfer : *transfers)
                if (transfer->request != MPI_REQUEST_NULL) leave_with_mpi(std::move(transfer));
    }
    MpiChannel(const MpiChannel&) = delete;
    MpiChannel& operator=(const MpiChannel&) = delete;

    void begin_send(int to, std::span<const std::byte> bytes) override {
        if (bytes.size() > INT_MAX)
            throw Error(fmt::format("a message of {} bytes is longer than MPI sends", bytes.size()));
        auto transfer = std::make_unique<Transfer>();
        transfer->message.bytes.assign(bytes.begin(), bytes.end());
        check_mpi(MPI_Isend(transfer->message.bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, 0, comm_,
                            &transfer->request),
                  "MPI_Isend");
        outgoing_.push_back(std::move(transfer));
    }

    void flush(Deadline deadline) override {
        for (; !all_sent(); nap(kShortNap))
            if (deadline.passed()) throw Timeout("a message to another replica was not taken in time");
    }

  protected:
    std::optional<Message> poll() override {
        all_sent();
        while (start_receive()) {
        }
        if (incoming_.empty() || !incoming_.front()->has_ended("MPI_Test of a message received")) return std::nullopt;
        Message message = std::move(incoming_.front()->message);
        incoming_.pop_front();
        return message;
    }

  private:
    bool all_sent() {
        std::erase_if(outgoing_, [](auto& transfer) { return transfer->has_ended("MPI_Test of a message sent"); });
        return outgoing_.empty();
    }

    bool start_receive() {
        int there = 0, bytes = 0;
        MPI_Message broadcast = MPI_MESSAGE_NULL;
        MPI_Status status;
        check_mpi(MPI_Improbe(MPI_ANY_SOURCE, 0, comm_, &there, &broadcast, &status), "MPI_Improbe");
        if (there == 0) return false;
        check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
        heard_from(status.MPI_SOURCE);
        auto transfer = std::make_unique<Transfer>();
        transfer->message = {status.MPI_SOURCE, std::vector<std::byte>(static_cast<std::size_t>(bytes))};
        check_mpi(MPI_Imrecv(transfer->message.bytes.data(), bytes, MPI_BYTE, &broadcast, &transfer->request),
                  "MPI_Imrecv");
        incoming_.push_back(std::move(transfer));
        return true;
    }

    MPI_Comm comm_;
    std::deque<std::unique_ptr<Transfer>> outgoing_, incoming_;
};

} // namespace

Channel::Channel(const RankLayout& layout, const Clock& clock, double timeout_seconds)
    : layout_(layout), clock_(clock), timeout_seconds_(timeout_seconds),
      heartbeat_seconds_(std::min(timeout_seconds / 4, kMaxHeartbeatSeconds)), heartbeat_at_(clock.now_seconds()),
      checked_at_(heartbeat_at_), used_at_(heartbeat_at_), silent_seconds_(static_cast<std::size_t>(layout.replicas)) {}

void Channel::send(int to, std::span<const std::byte> bytes) {
    if (!bytes.empty()) used_at_ = clock_.now_seconds();
    begin_send(to, bytes);
}

// Heartbeats go on, however short the timeout is.
std::chrono::nanoseconds Channel::longest_nap() const {
    if (checked_at_ - used_at_ <= kQuietSeconds) return kShortNap;
    const std::chrono::duration<double> part_of_heartbeat(heartbeat_seconds_ / 4);
    return std::min(kLongNap, std::chrono::duration_cast<std::chrono::nanoseconds>(part_of_heartbeat));
}

std::optional<Message> Channel::receive(double wait_seconds) {
    const auto deadline = Deadline::after_seconds(wait_seconds);
    for (;;) {
        while (std::optional<Message> message = poll()) {
            if (message->bytes.empty()) continue; // a heartbeat
            used_at_ = clock_.now_seconds();
            return message;
        }
        check_heartbeats(); // sets checked_at_ to the present
        if (deadline.passed()) return std::nullopt;
        const std::chrono::nanoseconds left = deadline.at - std::chrono::steady_clock::now();
        nap(std::clamp<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(0), longest_nap()));
    }
}

// The replica's own watchdog reports a step that takes too long first, with a better message than this one.
void Channel::check_heartbeats() {
    const double now = clock_.now_seconds();
    const double longest_silence = timeout_seconds_ + 2 * heartbeat_seconds_;
    // A pause of this rank itself (a step, a stopped process) does not count in full as silence of the others.
    const double listened = std::min(now - std::exchange(checked_at_, now), longest_silence / 2);
    const bool is_due = now - heartbeat_at_ >= heartbeat_seconds_;
    if (is_due) heartbeat_at_ = now;
    for (int replica = 0; replica < layout_.replicas; ++replica) {
        if (replica == layout_.replica || (replica != 0 && layout_.replica != 0)) continue; // they do not talk
        if (is_due) send(replica, {});
        double& silent_seconds = silent_seconds_[replica];
        silent_seconds += listened;
        if (silent_seconds > longest_silence)
            throw Timeout(
                fmt::format("replica {} (rank {} coordinates it) has given no sign of life for more than {} s "
                            "(--collective-timeout): it is dead, stopped or cut off",
                            replica, replica * layout_.replica_size, static_cast<int>(timeout_seconds_)));
    }
}

std::unique_ptr<Channel> make_mpi_channel(const void* mpi_comm, const RankLayout& layout, const Clock& clock,
                                          double timeout_seconds) {
    return std::make_unique<MpiChannel>(*static_cast<const MPI_Comm*>(mpi_comm), layout, clock, timeout_seconds);
}

} // namespace entrodraft::dist
