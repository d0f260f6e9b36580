// Declares the coordinator's broadcasts. In each step, one packet tells every rank of a replica what to do next. A
// packet is trivially copyable bytes. Batch size and max draft tokens fix its size at the start, so one broadcast is
// enough. If a packet gives the length of an admission, the admission follows it: a new sequence's prompt, and the
// options that ranks act on.
//
// Layout of a packet: PacketHeader, then for each slot a SlotHeader, max_draft_tokens tokens (i32) and max_draft_tokens
// parents (i8; see verify/token_tree.h). In a beam search the beams' last tokens come first; their parents are rows of
// the last round (-1: the prompt). Then come the drafted tokens; their parents are places among all of these tokens.
// The coordinator fills the packet, and every rank reads it. Every later branch depends on packets and admissions
// alone.
#pragma once

#include "spec/protocol/request.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace entrodraft::spec {

// idle: there is nothing to do yet; it is sent now and then, so that a wait for input does not look like a dead rank.
// share: a sequence shares the cached prompt of another with the same prompt.
enum class Command : std::uint8_t { round = 1, admit, prefill, retire, stop, interrupt, idle, share };
enum class SlotState : std::uint8_t { empty = 0, prefilling = 1, decoding = 2 };
enum class DraftEnd : std::uint8_t { none, rule, cap, budget, context, end_of_text, no_match };

std::string to_string(DraftEnd end); // "rule", "cap", "budget", ...
// Returns whether the draft ended for a reason that says nothing about the agreement of draft and target.
constexpr bool is_cut_short(DraftEnd end) {
    return end == DraftEnd::budget || end == DraftEnd::context || end == DraftEnd::end_of_text;
}

struct PacketHeader {
    static constexpr std::uint32_t kMagic = 0x44524445; // "EDRD"
    static constexpr std::uint16_t kVersion = 3;
    std::uint32_t magic = kMagic;
    std::uint16_t version = kVersion;
    Command command = Command::stop;
    std::uint8_t slot = 0;             // for admit, prefill, retire, share
    std::uint32_t admission_bytes = 0; // for admit: length of the broadcast that follows
    std::uint32_t prefill_rows = 0;    // for prefill; for share: the slot that has read the prompt
    std::uint64_t round = 0;           // number of this packet, from 0
    std::uint64_t checksum = 0;        // of the sequences that a rank must hold before this packet
    std::uint64_t digest = 0;          // of all other bytes of the packet
};

struct SlotHeader {
    SlotState state = SlotState::empty;
    DraftEnd draft_end = DraftEnd::none;
    std::uint8_t n_drafted = 0;
    std::int8_t last_accepted = -1; // the last accepted drafted token of the previous round; -1: none is accepted
    TokenId next_token = -1;        // the token emitted after it: the first row of this round
    std::uint32_t n_beams = 0;      // rows of a beam search's beams, before the n_drafted rows; 0: no beam search
};

class Packet {
  public:
    static constexpr int kMaxDraftTokens = 127;

    // Throws std::invalid_argument unless there are 1 to 256 slots of 0 to kMaxDraftTokens tokens.
    Packet(int n_slots, int max_draft_tokens);

    PacketHeader& header() { return *reinterpret_cast<PacketHeader*>(bytes_.data()); }
    const PacketHeader& header() const { return *reinterpret_cast<const PacketHeader*>(bytes_.data()); }
    SlotHeader& slot(int index);
    const SlotHeader& slot(int index) const;
    // The slot's drafted tokens, and the index of each one's parent among them (-1: the next token). For a beam search
    // see above. The spans have the slot's whole capacity.
    std::span<TokenId> tokens(int index);
    std::span<const TokenId> tokens(int index) const;
    std::span<std::int8_t> parents(int index);
    std::span<const std::int8_t> parents(int index) const;

    std::span<std::byte> bytes() { return bytes_; }
    std::span<const std::byte> bytes() const { return bytes_; }
    int n_slots() const { return n_slots_; }
    int max_draft_tokens() const { return max_draft_tokens_; }
    void clear();

    // Must be called when every field is set.
    void seal();
    // Returns whether the bytes are as they were sealed.
    bool is_intact() const;
    // Returns why this is not a valid packet number `round` over sequences of `checksum`; empty if it is. Of token ids
    // it only checks that they are not negative.
    std::string why_unexpected(std::uint64_t round, std::uint64_t checksum) const;

  private:
    std::size_t slot_offset(int index) const;
    std::uint64_t digest() const;
    std::string why_unexpected_slot(int index) const;

    int n_slots_;
    int max_draft_tokens_;
    std::size_t slot_bytes_;
    std::vector<std::byte> bytes_;
};

// ---- messages of lists whose lengths are known beforehand ----

template <typename T> void append_values(std::vector<std::byte>& message, std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto bytes = std::as_bytes(values);
    message.insert(message.end(), bytes.begin(), bytes.end());
}

// Takes the first `count` values off `message`. Throws std::runtime_error if it is shorter.
template <typename T> std::vector<T> take_values(std::span<const std::byte>& message, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > message.size() / sizeof(T)) throw std::runtime_error("a message is shorter than it says");
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), message.data(), count * sizeof(T));
    message = message.subspan(count * sizeof(T));
    return values;
}

// The data that ranks need about a text before its first pass.
struct Admission {
    Request request;
    bool verified_on_device = false; // the GPU of the rank that drafts verifies its rows
};

std::vector<std::byte> pack_admission(const Request& request, bool verified_on_device);

// Returns the request with sequence key, prompt, source, sampling, processing, num_beams and logprobs as they were
// packed, and nothing else. A constraint comes back with its language only, as only the coordinator applies it. Throws
// std::runtime_error if the bytes are not those of an admission.
Admission unpack_admission(std::span<const std::byte> bytes);

} // namespace entrodraft::spec
