// Letters with signs of life: see correspondence.h.
#include "launch/serve/correspondence.h"

#include "dist/error.h"

#include <algorithm>
#include <string>

namespace entrodraft::launch {

namespace {

constexpr double kLongestBeatSeconds = 1;

} // namespace

Correspondence::Correspondence(dist::Mailbox& mailbox, const dist::RankLayout& layout, const dist::Clock& clock,
                               double timeout_seconds)
    : mailbox_(mailbox), layout_(layout), clock_(clock), timeout_seconds_(timeout_seconds),
      beat_seconds_(std::min(timeout_seconds / 4, kLongestBeatSeconds)), beat_at_(clock.now_seconds()),
      listened_at_(beat_at_), peers_(static_cast<std::size_t>(mailbox.size())) {
    for (int replica = 0; replica < mailbox.size(); ++replica)
        if (replica != mailbox.rank() && (mailbox.rank() == kDeskReplica || replica == kDeskReplica))
            peers_[static_cast<std::size_t>(replica)] = {true, true, 0};
}

void Correspondence::send(int replica, LetterKind kind, std::span<const std::byte> bytes) {
    mailbox_.send(replica, static_cast<int>(kind), bytes);
}

void Correspondence::send(int replica, LetterKind kind, std::string_view text) {
    send(replica, kind, std::as_bytes(std::span(text)));
}

void Correspondence::note(const dist::Letter& letter) {
    peers_[static_cast<std::size_t>(letter.from)].silent_seconds = 0;
}

std::optional<dist::Letter> Correspondence::poll() {
    while (auto letter = mailbox_.poll()) {
        note(*letter);
        if (static_cast<LetterKind>(letter->kind) != LetterKind::beat) return letter;
    }
    return std::nullopt;
}

std::optional<dist::Letter> Correspondence::await(double seconds) {
    const auto deadline = dist::Deadline::after_seconds(seconds);
    while (auto letter = mailbox_.await(deadline)) {
        note(*letter);
        if (static_cast<LetterKind>(letter->kind) != LetterKind::beat) return letter;
    }
    return std::nullopt;
}

// A replica's own message, of a step that took too long, comes before the one made here.
void Correspondence::keep_alive() {
    const double now = clock_.now_seconds();
    const double longest_silence = timeout_seconds_ + 2 * beat_seconds_;
    // A pause of this very rank (a step, a stopped process) is not all held against the others.
    const double listened = std::min(now - listened_at_, longest_silence / 2);
    const bool is_due = now - beat_at_ >= beat_seconds_;
    listened_at_ = now;
    if (is_due) beat_at_ = now;
    for (int replica = 0; replica < mailbox_.size(); ++replica) {
        Peer& peer = peers_[static_cast<std::size_t>(replica)];
        if (peer.writes && is_due) send(replica, LetterKind::beat);
        if (!peer.awaited) continue;
        peer.silent_seconds += listened;
        if (peer.silent_seconds > longest_silence)
            throw dist::Timeout("replica " + std::to_string(replica) + " (rank " +
                                std::to_string(replica * layout_.replica_size) +
                                " coordinates it) has given no sign of life for more than " +
                                std::to_string(static_cast<int>(timeout_seconds_)) +
                                " s (--collective-timeout): it is dead, stopped or cut off");
    }
}

void Correspondence::flush() {
    mailbox_.flush(dist::Deadline::after_seconds(timeout_seconds_));
}

} // namespace entrodraft::launch
