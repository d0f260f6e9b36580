// Slots of a replica: see replica_state.h.
#include "spec/round/replica_state.h"

#include "spec/verify/random.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace entrodraft::spec {

std::uint64_t ReplicaState::checksum() const {
    std::uint64_t sum = 0;
    for (const Slot& slot : slots_)
        sum = hash_bytes(&slot.checksum, sizeof slot.checksum, sum);
    return sum;
}

int ReplicaState::prefill_left(int slot) const {
    if (at(slot).state != SlotState::prefilling) return 0;
    return static_cast<int>(at(slot).tokens.size()) - 1 - at(slot).cached;
}

// A rank whose state differs from the coordinator's must not go on: its text would differ.
void ReplicaState::check(const Packet& packet, std::uint64_t round) const {
    const std::string reason = packet.why_unexpected(round, checksum());
    if (!reason.empty()) throw std::runtime_error(reason + "; this rank is out of step with the coordinator");
    if (!packet.is_intact()) throw std::runtime_error("the packet is not as the coordinator sent it");
    const PacketHeader& header = packet.header();
    if (header.command == Command::prefill && static_cast<int>(header.prefill_rows) > prefill_left(header.slot))
        throw std::runtime_error("more is to be read than the prompt has left");
    if (header.command == Command::share) {
        const Slot &to = at(header.slot), &from = at(static_cast<int>(header.prefill_rows));
        const std::size_t n = to.tokens.size();
        if (to.state != SlotState::prefilling || from.cached + 1 < static_cast<int>(n) ||
            !std::equal(to.tokens.begin(), to.tokens.end(), from.tokens.begin()))
            throw std::runtime_error("a prompt is to be shared that was not read");
    }
    for (int i = 0; i < n_slots() && header.command == Command::round; ++i) {
        if (packet.slot(i).state != SlotState::decoding) continue;
        if (!is_read(i)) throw std::runtime_error("a sequence is to be decoded that is not yet read");
        if (packet.slot(i).last_accepted >= static_cast<int>(at(i).drafted.size()))
            throw std::runtime_error("a drafted token was accepted that the round before had not");
        if ((packet.slot(i).n_beams > 0) != at(i).beams.has_value())
            throw std::runtime_error("a sequence is to be decoded otherwise than it was admitted");
        for (std::size_t k = 0; k < packet.slot(i).n_beams; ++k)
            if (packet.parents(i)[k] >= at(i).beams->n_rows())
                throw std::runtime_error("a beam goes on from a row that the round before had not");
    }
}

void ReplicaState::apply_previous_result(const Packet& packet) {
    for (int i = 0; i < n_slots(); ++i) {
        const SlotHeader& header = packet.slot(i);
        if (header.state != SlotState::decoding) continue;
        Slot& slot = at(i);
        const bool is_first_round = slot.state == SlotState::prefilling;
        slot.state = SlotState::decoding;
        if (is_first_round || slot.beams) continue; // in the first round the next token is the prompt's last
        std::vector<int> kept = {0};                // rows of the pass
        std::vector<TokenId> emitted;
        for (const int node : path_to(slot.parents, header.last_accepted)) {
            kept.push_back(node + 1);
            emitted.push_back(slot.drafted[node]);
        }
        emitted.push_back(header.next_token);
        if (target_) target_->cache().keep(i, static_cast<int>(slot.tokens.size()) - 1, kept);
        slot.tokens.insert(slot.tokens.end(), emitted.begin(), emitted.end());
        for (const TokenId token : emitted)
            slot.checksum = hash_bytes(&token, sizeof token, slot.checksum);
        slot.cached = static_cast<int>(slot.tokens.size()) - 1;
    }
}

void ReplicaState::admit(int slot, const Request& request, std::span<const std::byte> admission) {
    at(slot) = {SlotState::prefilling,
                request.prompt,
                {},
                {},
                hash_bytes(admission.data(), admission.size()), // covers everything that ranks act on
                0,
                -1,
                {}};
    if (request.beams.is_on()) at(slot).beams.emplace(slot, static_cast<int>(request.prompt.size()) - 1, capacity_);
    if (target_) target_->cache().truncate(slot, 0);
}

void ReplicaState::retire(int slot) {
    if (target_ && at(slot).shares >= 0) target_->cache().truncate(slot, 0);
    at(slot) = {};
}

void ReplicaState::share(int slot, int from) {
    const int n = static_cast<int>(at(slot).tokens.size()) - 1;
    if (target_) target_->cache().share(from, slot, n);
    at(slot).cached = n;
    at(slot).shares = at(from).shares >= 0 ? at(from).shares : from;
}

bool ReplicaState::is_shared(int slot) const {
    return std::ranges::any_of(slots_, [&](const Slot& each) { return each.shares == slot; });
}

std::vector<model::Row> ReplicaState::prefill(int slot, int n_rows) {
    std::vector<model::Row> rows;
    for (int i = 0; i < n_rows; ++i, ++at(slot).cached) {
        const int position = at(slot).cached;
        rows.push_back({at(slot).tokens[position], slot, position, i - 1});
    }
    return rows;
}

// Adds the beams' last tokens after rows of the round before, then the tokens drafted after them.
void ReplicaState::begin_beams(Slot& slot, const Packet& packet, int index) {
    BeamTree& tree = *slot.beams;
    const std::size_t n_beams = packet.slot(index).n_beams, n = n_beams + packet.slot(index).n_drafted;
    slot.drafted.assign(packet.tokens(index).begin(), packet.tokens(index).begin() + static_cast<std::ptrdiff_t>(n));
    slot.parents.assign(packet.parents(index).begin(), packet.parents(index).begin() + static_cast<std::ptrdiff_t>(n));
    slot.checksum = hash_bytes(slot.drafted.data(), n_beams * sizeof(TokenId), slot.checksum);
    slot.checksum = hash_bytes(slot.parents.data(), n_beams, slot.checksum);
    std::vector<int> ends;
    for (std::size_t i = 0; i < n_beams; ++i)
        ends.push_back(slot.parents[i] < 0 ? BeamTree::kText : tree.first_of_pass() + slot.parents[i]);
    ends = tree.begin_pass(std::move(ends), static_cast<int>(n), target_);
    for (std::size_t i = 0; i < n; ++i)
        tree.add(slot.drafted[i], i < n_beams ? ends[i] : tree.first_of_pass() + slot.parents[i]);
}

TargetBatch ReplicaState::begin_round(const Packet& packet) {
    TargetBatch batch;
    const auto takes_part = [&](int i) { return packet.slot(i).state == SlotState::decoding; };
    std::vector<int> first_cached(slots_.size());
    for (int i = 0; i < n_slots(); ++i) {
        if (!takes_part(i) || !at(i).beams) continue;
        begin_beams(at(i), packet, i);
        first_cached[i] = static_cast<int>(batch.cached_nodes.size());
        at(i).beams->append_cached_nodes(batch.cached_nodes);
        batch.mask = model::Mask::by_parent;
    }
    const int n_cached = static_cast<int>(batch.cached_nodes.size()); // parents are numbered from the first of these
    for (int i = 0; i < n_slots(); ++i) {
        if (!takes_part(i)) continue;
        Slot& slot = at(i);
        if (slot.beams) {
            batch.sequences.push_back({i, batch.rows.size(), slot.tokens, slot.drafted, slot.parents, &*slot.beams});
            slot.beams->append_rows(batch.rows, first_cached[i], n_cached);
            continue;
        }
        const auto drafted = packet.tokens(i).first(packet.slot(i).n_drafted);
        const Parents parents = packet.parents(i).first(packet.slot(i).n_drafted);
        slot.drafted.assign(drafted.begin(), drafted.end());
        slot.parents.assign(parents.begin(), parents.end());
        if (!is_chain(parents)) batch.mask = model::Mask::by_parent;
        const int position = static_cast<int>(slot.tokens.size()) - 1, first = static_cast<int>(batch.rows.size());
        batch.sequences.push_back({i, batch.rows.size(), slot.tokens, slot.drafted, slot.parents});
        batch.rows.push_back({slot.tokens.back(), i, position, -1});
        for (std::size_t k = 0; k < drafted.size(); ++k)
            batch.rows.push_back(
                {drafted[k], i, position + depth_of(parents, static_cast<int>(k)), n_cached + first + 1 + parents[k]});
    }
    batch.logit_rows.resize(batch.rows.size());
    std::iota(batch.logit_rows.begin(), batch.logit_rows.end(), 0);
    return batch;
}

} // namespace entrodraft::spec
