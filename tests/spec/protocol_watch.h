// An observer of a replica's messages alone, which checks the protocol (docs/concepts.md, A round). It derives every
// rank's sequences anew from the messages that the rank has received, and compares them step by step. Shares no state
// with the product. For the simulation of the protocol only.
#pragma once

#include "dist/comm/host_comm.h"
#include "spec/protocol/packet.h"
#include "spec/verify/random.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace entrodraft {

class ProtocolWatch {
  public:
    struct Sizes {
        int ranks = 1;
        int slots = 1;
        int max_draft_tokens = 1;
        // The draft is sharded over the ranks. Its leader gives orders before each packet, and after one that prefills.
        bool is_draft_cut = false;
    };
    // `cached` returns the positions of a slot in a rank's target; -1 if the rank has no target.
    ProtocolWatch(const Sizes& sizes, std::function<int(int rank, int slot)> cached,
                  std::vector<std::string>& violations)
        : sizes_(sizes), cached_(std::move(cached)), violations_(violations),
          views_(static_cast<std::size_t>(sizes.ranks)) {
        for (View& view : views_) {
            view.slots.resize(static_cast<std::size_t>(sizes.slots));
            next_step(view);
        }
    }

    // Events of the replica's group, as SimGroup reports them.
    void started(int rank, dist::Collective kind, std::span<const std::byte> data);
    void ended(int rank, dist::Collective kind, std::span<const std::byte> data);
    // This rank is about to enter its part of a pass.
    void pass_goes_on(int rank);
    // The step that the rank itself reports.
    void entered(int rank, std::uint64_t round);
    // The coordinator has been told to end the run.
    void told_to_stop() { is_told_to_stop_ = true; }

    bool was_misled(int rank) const { return view(rank).was_misled; } // received a message that was not sent
    bool is_over(int rank) const { return view(rank).expects == Expects::nothing; }
    std::uint64_t packets(int rank) const { return view(rank).packets; }
    std::uint64_t rounds() const { return rounds_; }           // as broadcast to the coordinator's own rank
    std::uint64_t accepted() const { return accepted_; }       // accepted drafted tokens
    bool has_seen_a_signal() const { return signal_arrived_; } // a gather has brought a signal to the coordinator
    std::uint64_t trace() const { return trace_; }             // a hash of all events, in order
    // Prompt and committed text of the sequence that was retired last.
    const std::vector<spec::TokenId>& retired() const { return retired_; }

  private:
    enum class Expects { order, rows_of_order, logits_of_order, packet, admission, gather, nothing };
    struct Slot {
        spec::SlotState state = spec::SlotState::empty;
        std::vector<spec::TokenId> tokens;
        std::vector<spec::TokenId> broadcast;
        int cached = 0;
    };
    struct View { // the state that a rank must have after its messages
        Expects expects = Expects::packet;
        Expects after_orders = Expects::packet; // expected after the last order
        std::uint64_t packets = 0;
        int slot = 0; // of the present command
        bool was_misled = false;
        bool gives_logits = false; // the draft's present pass gives logits
        std::vector<Slot> slots;
    };
    struct Step { // a packet or an admission as it was sent, and the sequences after it
        std::uint64_t message = 0;
        std::optional<std::uint64_t> sequences; // as the first rank to get there has derived them
    };

    // Orders come first, if there are any.
    void expect(View& view, Expects next) const {
        view.expects = sizes_.is_draft_cut ? Expects::order : next;
        view.after_orders = next;
    }
    void next_step(View& view) const { expect(view, Expects::packet); }
    View& view(int rank) { return views_[static_cast<std::size_t>(rank)]; }
    const View& view(int rank) const { return views_[static_cast<std::size_t>(rank)]; }
    void violated(int rank, const std::string& what) {
        violations_.push_back("rank " + std::to_string(rank) + ", packet " + std::to_string(view(rank).packets) + ": " +
                              what);
    }
    void read_order(int rank, std::span<const std::byte> data);
    void read_packet(int rank, std::span<const std::byte> data);
    void follow(int rank, const spec::Packet& packet);
    void commit(int rank, const spec::Packet& packet, int index);
    void read_admission(int rank, std::span<const std::byte> data);
    bool is_as_sent(int rank, std::span<const std::byte> message);
    void compare(int rank);
    void check_order(int rank, spec::Command command);

    Sizes sizes_;
    std::function<int(int, int)> cached_;
    std::vector<std::string>& violations_;
    std::vector<View> views_;
    std::vector<Step> steps_;
    std::vector<std::size_t> step_of_rank_ = std::vector<std::size_t>(views_.size());
    std::vector<spec::TokenId> retired_;
    std::uint64_t rounds_ = 0;
    std::uint64_t accepted_ = 0;
    std::uint64_t trace_ = 0;
    bool signal_arrived_ = false;
    bool is_told_to_stop_ = false;
};

inline void ProtocolWatch::started(int rank, dist::Collective kind, std::span<const std::byte> data) {
    View& mine = view(rank);
    const bool is_gather = kind == dist::Collective::gather;
    if (rank == 0 && kind == dist::Collective::broadcast)
        steps_.push_back({spec::hash_bytes(data.data(), data.size()), std::nullopt});
    if (mine.expects == Expects::nothing) violated(rank, "goes on after the end");
    if (mine.was_misled && is_gather) violated(rank, "goes on after a message that no other rank has received");
    const bool may_gather = mine.expects == Expects::gather || mine.expects == Expects::logits_of_order;
    if (is_gather != may_gather && mine.expects != Expects::nothing)
        violated(rank, std::string("starts a ") + dist::name_of(kind) + " where another collective is under way");
    if (kind == dist::Collective::broadcast && mine.expects == Expects::packet) {
        const spec::Packet packet(sizes_.slots, sizes_.max_draft_tokens);
        if (data.size() != packet.bytes().size())
            violated(rank, "has a packet of " + std::to_string(data.size()) + " bytes, not " +
                               std::to_string(packet.bytes().size()));
    }
    if (mine.expects != Expects::gather) return;
    for (int slot = 0; slot < sizes_.slots; ++slot) {
        const int holds = cached_(rank, slot), due = mine.slots[static_cast<std::size_t>(slot)].cached;
        if (holds >= 0 && mine.slots[static_cast<std::size_t>(slot)].state != spec::SlotState::empty && holds != due)
            violated(rank, "its cache holds " + std::to_string(holds) + " positions, not " + std::to_string(due));
    }
}

inline void ProtocolWatch::pass_goes_on(int rank) {
    if (view(rank).was_misled) violated(rank, "takes part in a pass after a message that no other rank has received");
    if (view(rank).expects != Expects::gather) violated(rank, "runs a pass that no packet asked for");
}

inline void ProtocolWatch::ended(int rank, dist::Collective kind, std::span<const std::byte> data) {
    View& mine = view(rank);
    const bool has_padding = kind == dist::Collective::gather; // padding may have any value
    trace_ = spec::hash_bytes(data.data(), has_padding ? 0 : data.size(),
                              trace_ + data.size() + static_cast<std::uint64_t>(rank));
    if (mine.expects == Expects::order || mine.expects == Expects::rows_of_order) {
        read_order(rank, data);
    } else if (mine.expects == Expects::logits_of_order) {
        mine.expects = Expects::order;
    } else if (kind == dist::Collective::gather) {
        next_step(mine);
        const std::size_t part = data.size() / static_cast<std::size_t>(sizes_.ranks);
        for (int other = 0; rank == 0 && other < sizes_.ranks; ++other) {
            std::uint64_t status;
            std::memcpy(&status, data.data() + static_cast<std::size_t>(other) * part, sizeof status);
            signal_arrived_ = signal_arrived_ || status != 0;
        }
    } else if (mine.expects == Expects::admission) {
        read_admission(rank, data);
    } else {
        read_packet(rank, data);
    }
}

// Returns whether the message is as it was sent. Any other message misleads this rank, which must then report it.
inline bool ProtocolWatch::is_as_sent(int rank, std::span<const std::byte> message) {
    const Step& step = steps_[step_of_rank_[static_cast<std::size_t>(rank)]++];
    if (step.message != spec::hash_bytes(message.data(), message.size())) view(rank).was_misled = true;
    return !view(rank).was_misled;
}

// The first rank to follow a message determines the sequences after it.
inline void ProtocolWatch::compare(int rank) {
    std::uint64_t sequences = 0;
    for (const Slot& slot : view(rank).slots)
        sequences = spec::hash_bytes(slot.tokens.data(), slot.tokens.size() * sizeof(spec::TokenId),
                                     sequences + static_cast<std::uint64_t>(slot.state));
    Step& step = steps_[step_of_rank_[static_cast<std::size_t>(rank)] - 1];
    if (!step.sequences) step.sequences = sequences;
    if (*step.sequences != sequences) violated(rank, "holds other sequences than another rank");
}

inline void ProtocolWatch::read_packet(int rank, std::span<const std::byte> data) {
    spec::Packet packet(sizes_.slots, sizes_.max_draft_tokens);
    if (data.size() != packet.bytes().size()) return;
    std::memcpy(packet.bytes().data(), data.data(), data.size());
    const std::uint64_t number = view(rank).packets++;
    if (!is_as_sent(rank, data)) return;
    if (packet.header().round != number)
        violated(rank, "the packet says that it is number " + std::to_string(packet.header().round));
    if (packet.header().slot >= sizes_.slots) return violated(rank, "the packet speaks of a slot that there is not");
    follow(rank, packet);
    compare(rank);
}

// ShardedDraftModel::Order. This uses the numbers of rows of a draft pass (0: the draft is done) and of logits.
inline void ProtocolWatch::read_order(int rank, std::span<const std::byte> data) {
    View& mine = view(rank);
    if (!is_as_sent(rank, data)) return;
    if (mine.expects == Expects::rows_of_order) {
        mine.expects = mine.gives_logits ? Expects::logits_of_order : Expects::order;
        return;
    }
    std::uint32_t order[9];
    if (data.size() != sizeof order) return violated(rank, "an order of another size");
    std::memcpy(order, data.data(), sizeof order);
    mine.gives_logits = order[1] > 0;
    mine.expects = order[0] > 0 ? Expects::rows_of_order : mine.after_orders;
}

inline void ProtocolWatch::entered(int rank, std::uint64_t round) {
    const std::uint64_t packets = view(rank).packets; // includes the packet of the round once it has come
    if (round != packets && round + 1 != packets) violated(rank, "says that it is in round " + std::to_string(round));
}

inline void ProtocolWatch::check_order(int rank, spec::Command command) {
    using spec::Command;
    const auto& slots = view(rank).slots;
    const spec::SlotState state = slots[static_cast<std::size_t>(view(rank).slot)].state;
    const bool is_empty = state == spec::SlotState::empty;
    if (command == Command::admit && !is_empty) violated(rank, "a sequence is admitted where another is");
    if ((command == Command::prefill && state != spec::SlotState::prefilling) ||
        (command == Command::retire && is_empty))
        violated(rank, "a command for a sequence that has not been admitted");
    const auto is_used = [](const Slot& slot) { return slot.state != spec::SlotState::empty; };
    const bool any = std::any_of(slots.begin(), slots.end(), is_used);
    if (any && (command == Command::idle || command == Command::stop)) violated(rank, "a sequence is left behind");
    if (!any && command == Command::round) violated(rank, "a round of nothing");
    const bool ends = signal_arrived_ || is_told_to_stop_;
    if (rank == 0 && ends && command != Command::retire && command != Command::interrupt)
        violated(rank, "work goes on after a signal has been seen");
    if (rank == 0 && !ends && command == Command::interrupt) violated(rank, "an interrupt without a signal");
}

inline void ProtocolWatch::follow(int rank, const spec::Packet& packet) {
    using spec::Command;
    View& mine = view(rank);
    const spec::PacketHeader& header = packet.header();
    mine.slot = header.slot;
    check_order(rank, header.command);
    Slot& slot = mine.slots[header.slot];
    next_step(mine);
    switch (header.command) {
    case Command::admit:
        mine.expects = Expects::admission;
        break;
    case Command::prefill:
        slot.cached += static_cast<int>(header.prefill_rows);
        if (slot.cached >= static_cast<int>(slot.tokens.size()))
            violated(rank, "the prompt is shorter than its prefill");
        expect(mine, Expects::gather);
        break;
    case Command::round:
        for (int index = 0; index < sizes_.slots; ++index)
            commit(rank, packet, index);
        if (rank == 0) ++rounds_;
        mine.expects = Expects::gather;
        break;
    case Command::idle:
        mine.expects = Expects::gather;
        break;
    case Command::share:
        violated(rank, "a prompt is shared that is no sample's");
        break;
    case Command::retire:
        if (rank == 0) retired_ = slot.tokens;
        slot = {};
        break;
    case Command::stop:
    case Command::interrupt:
        mine.slots.assign(mine.slots.size(), {});
        mine.expects = Expects::nothing;
        break;
    }
}

inline void ProtocolWatch::commit(int rank, const spec::Packet& packet, int index) {
    Slot& slot = view(rank).slots[static_cast<std::size_t>(index)];
    const spec::SlotHeader& header = packet.slot(index);
    const bool is_read =
        slot.state != spec::SlotState::empty &&
        (slot.state == spec::SlotState::decoding || slot.cached + 1 == static_cast<int>(slot.tokens.size()));
    if (is_read != (header.state == spec::SlotState::decoding))
        violated(rank, "slot " + std::to_string(index) + " is decoded before it is read, or left out");
    if (!is_read) return;
    if (slot.state == spec::SlotState::prefilling) {
        slot.state = spec::SlotState::decoding;
        if (slot.tokens.back() != header.next_token)
            violated(rank, "the first round does not begin at the end of the prompt");
    } else if (header.last_accepted >= static_cast<int>(slot.broadcast.size())) {
        violated(rank, "more is accepted than was drafted");
    } else {
        const int n_accepted = header.last_accepted + 1; // of a chain
        slot.tokens.insert(slot.tokens.end(), slot.broadcast.begin(), slot.broadcast.begin() + n_accepted);
        slot.tokens.push_back(header.next_token);
        if (rank == 0) accepted_ += n_accepted;
    }
    const auto drafted = packet.tokens(index).first(header.n_drafted);
    slot.broadcast.assign(drafted.begin(), drafted.end());
    slot.cached = static_cast<int>(slot.tokens.size()) + header.n_drafted;
}

inline void ProtocolWatch::read_admission(int rank, std::span<const std::byte> data) {
    View& mine = view(rank);
    next_step(mine);
    if (!is_as_sent(rank, data)) return;
    mine.slots[static_cast<std::size_t>(mine.slot)] = {
        spec::SlotState::prefilling, spec::unpack_admission(data).request.prompt, {}, 0};
    compare(rank);
}

} // namespace entrodraft
