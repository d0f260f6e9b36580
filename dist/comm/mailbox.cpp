// Letters through MPI: one message each, its kind as the tag. See mailbox.h.
//
// Receiving matches messages as they are announced (MPI_Improbe) and lets each end in a buffer of its own, so that a
// long letter never holds up the rank, and letters are handed out in the order in which they were matched.
#include "dist/comm/mailbox.h"

#include "dist/comm/check.h"
#include "dist/comm/left_with_mpi.h"
#include "dist/error.h"

#include <mpi.h>

#include <string>
#include <time.h>
#include <utility>

namespace entrodraft::dist {
namespace {

void rest_half_a_millisecond() {
    const timespec half_a_millisecond{0, 500'000};
    nanosleep(&half_a_millisecond, nullptr);
}

// A letter on its way. Its buffer lies on the heap: MPI keeps its address.
struct InTransit {
    Letter letter;
    MPI_Request request = MPI_REQUEST_NULL;
};

bool has_ended(InTransit& transit, const char* call) {
    int done = 0;
    check_mpi(MPI_Test(&transit.request, &done, MPI_STATUS_IGNORE), call);
    return done != 0;
}

class MpiMailbox final : public Mailbox {
  public:
    MpiMailbox(MPI_Comm comm, int rank, int size) : comm_(comm), rank_(rank), size_(size) {}
    MpiMailbox(const MpiMailbox&) = delete;
    MpiMailbox& operator=(const MpiMailbox&) = delete;

    ~MpiMailbox() override {
        for (auto* transits : {&outgoing_, &incoming_})
            for (std::unique_ptr<InTransit>& transit : *transits)
                if (transit->request != MPI_REQUEST_NULL) leave_with_mpi(std::move(transit));
    }

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    void send(int to, int kind, std::span<const std::byte> bytes) override;
    std::optional<Letter> poll() override;
    bool all_sent() override;

  private:
    using Transits = std::deque<std::unique_ptr<InTransit>>;

    void receive_what_came();

    MPI_Comm comm_;
    int rank_;
    int size_;
    Transits outgoing_;
    Transits incoming_;
};

void MpiMailbox::send(int to, int kind, std::span<const std::byte> bytes) {
    require_sendable(to, kind, bytes.size(), size_);
    auto transit = std::make_unique<InTransit>();
    transit->letter.bytes.assign(bytes.begin(), bytes.end());
    check_mpi(MPI_Isend(transit->letter.bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, kind, comm_,
                        &transit->request),
              "MPI_Isend");
    outgoing_.push_back(std::move(transit));
}

bool MpiMailbox::all_sent() {
    std::erase_if(outgoing_, [](auto& transit) { return has_ended(*transit, "MPI_Test of a letter sent"); });
    return outgoing_.empty();
}

void MpiMailbox::receive_what_came() {
    for (;;) {
        int there = 0;
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        check_mpi(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &there, &message, &status), "MPI_Improbe");
        if (there == 0) return;
        int bytes = 0;
        check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
        auto transit = std::make_unique<InTransit>();
        transit->letter = {status.MPI_SOURCE, status.MPI_TAG, std::vector<std::byte>(static_cast<std::size_t>(bytes))};
        check_mpi(MPI_Imrecv(transit->letter.bytes.data(), bytes, MPI_BYTE, &message, &transit->request), "MPI_Imrecv");
        incoming_.push_back(std::move(transit));
    }
}

// A letter that is still coming holds up the later ones of its sender only.
std::optional<Letter> MpiMailbox::poll() {
    all_sent();
    receive_what_came();
    std::vector<bool> held_up(static_cast<std::size_t>(size_), false);
    for (auto transit = incoming_.begin(); transit != incoming_.end(); ++transit) {
        const auto from = static_cast<std::size_t>((*transit)->letter.from);
        if (held_up[from]) continue;
        if (has_ended(**transit, "MPI_Test of a letter received")) {
            Letter letter = std::move((*transit)->letter);
            incoming_.erase(transit);
            return letter;
        }
        held_up[from] = true;
    }
    return std::nullopt;
}

} // namespace

void require_sendable(int to, int kind, std::size_t bytes, int size) {
    if (to < 0 || to >= size)
        throw Error("a letter to rank " + std::to_string(to) + " in a group of " + std::to_string(size));
    if (kind < 0 || kind >= Mailbox::kMostKinds) throw Error("a letter of kind " + std::to_string(kind));
    if (bytes > Mailbox::kLongestLetter)
        throw Error("a letter of " + std::to_string(bytes) + " bytes; at most " +
                    std::to_string(Mailbox::kLongestLetter) + " can be sent");
}

std::optional<Letter> Mailbox::await(Deadline deadline) {
    for (;;) {
        if (auto letter = poll()) return letter;
        if (deadline.passed()) return std::nullopt;
        rest_half_a_millisecond();
    }
}

void Mailbox::flush(Deadline deadline) {
    while (!all_sent()) {
        if (deadline.passed()) throw Timeout("a letter to another rank was not taken in time");
        rest_half_a_millisecond();
    }
}

void SelfMailbox::send(int to, int kind, std::span<const std::byte> bytes) {
    require_sendable(to, kind, bytes.size(), 1);
    letters_.push_back({0, kind, {bytes.begin(), bytes.end()}});
}

std::optional<Letter> SelfMailbox::poll() {
    if (letters_.empty()) return std::nullopt;
    Letter letter = std::move(letters_.front());
    letters_.pop_front();
    return letter;
}

std::unique_ptr<Mailbox> make_mpi_mailbox(const void* mpi_comm) {
    const MPI_Comm comm = *static_cast<const MPI_Comm*>(mpi_comm);
    int rank = 0, size = 0;
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    return std::make_unique<MpiMailbox>(comm, rank, size);
}

} // namespace entrodraft::dist
