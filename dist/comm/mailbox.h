// Letters between ranks of a group, one to one: what does not fit the step of collectives, such as prompts that are
// handed out as replicas become free.
//
// Nothing here waits for the other side but await(); letters from one rank arrive in the order of sending. Not for the
// inside of a round. Made by Session; called by the coordinators of replicas.
#pragma once

#include "dist/clock.h"

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace entrodraft::dist {

struct Letter {
    int from = 0; // rank in the group
    int kind = 0; // what the sender called it
    std::vector<std::byte> bytes;
};

class Mailbox {
  public:
    static constexpr int kMostKinds = 1000;                             // kinds are 0 to this, less one
    static constexpr std::size_t kLongestLetter = std::size_t{1} << 30; // bytes

    virtual ~Mailbox() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    // Takes a copy and returns at once. Throws Error on a rank, kind or length out of range. Local.
    virtual void send(int to, int kind, std::span<const std::byte> bytes) = 0;
    // The next letter that has come whole, none if there is none. Also moves on what is being sent. Local.
    virtual std::optional<Letter> poll() = 0;
    // Whether every letter sent has left: its receiver has it, or will have it without this rank's help. Local.
    virtual bool all_sent() = 0;

    // The next letter; none once the deadline has passed. Looks about a thousand times a second. Local.
    std::optional<Letter> await(Deadline deadline);
    // Returns once all_sent(). Throws Timeout. Local.
    void flush(Deadline deadline);
};

// A group of one: letters to itself.
class SelfMailbox final : public Mailbox {
  public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    void send(int to, int kind, std::span<const std::byte> bytes) override;
    std::optional<Letter> poll() override;
    bool all_sent() override { return true; }

  private:
    std::deque<Letter> letters_;
};

// `mpi_comm` points to an MPI_Comm (no mpi.h here) that returns errors, is used by nothing else and outlives the
// result. Local.
std::unique_ptr<Mailbox> make_mpi_mailbox(const void* mpi_comm);

// Throws Error where a letter cannot be sent to `to` in a group of `size`. Local.
void require_sendable(int to, int kind, std::size_t bytes, int size);

} // namespace entrodraft::dist
