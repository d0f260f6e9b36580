// Letters between the desk and the coordinators of other replicas, with signs of life: whoever waits for a replica
// learns in time that it is dead.
//
// Knows nothing of what letters say. Called by desk and remote_desk.
#pragma once

#include "dist/clock.h"
#include "dist/comm/mailbox.h"
#include "dist/layout.h"
#include "launch/serve/letters.h"

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace entrodraft::launch {

class Correspondence {
  public:
    // `mailbox` is that of the coordinators, ranked by replica. A step of a replica takes `timeout_seconds` at most; a
    // peer (of the desk: every other replica; of these: the desk) that is silent for longer is taken for dead. All
    // outlive this.
    Correspondence(dist::Mailbox& mailbox, const dist::RankLayout& layout, const dist::Clock& clock,
                   double timeout_seconds);

    void send(int replica, LetterKind kind, std::span<const std::byte> bytes = {});
    void send(int replica, LetterKind kind, std::string_view text);
    // The next letter but beats. Local.
    std::optional<dist::Letter> poll();
    // The same, waiting for one for `seconds`. Local.
    std::optional<dist::Letter> await(double seconds);
    // Lets the peers know that this replica lives, where that is due; to be called at least once a step, after poll()
    // has nothing left. Throws dist::Timeout that names a peer that has been silent for too long. Local.
    void keep_alive();
    // Nothing more will be heard of it; it still hears of this replica. Local.
    void dismiss(int replica) { peers_[static_cast<std::size_t>(replica)].awaited = false; }
    // Returns once all letters have left. Throws dist::Timeout. Local.
    void flush();

  private:
    struct Peer {
        bool writes = false;       // with this replica
        bool awaited = false;      // a sign of its life
        double silent_seconds = 0; // while this rank listened
    };

    void note(const dist::Letter& letter);

    dist::Mailbox& mailbox_;
    const dist::RankLayout& layout_;
    const dist::Clock& clock_;
    double timeout_seconds_;
    double beat_seconds_; // between signs of life
    double beat_at_;      // the last of ours
    double listened_at_;
    std::vector<Peer> peers_; // by replica
};

} // namespace entrodraft::launch
