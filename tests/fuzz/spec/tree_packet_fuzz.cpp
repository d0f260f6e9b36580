// A drafted tree in an otherwise sound round packet: how many tokens, the last accepted of the round before, then a
// parent (one byte) and a token (four) each. What passes is a tree that can be followed; what does not has a reason.
#include "tests/fuzz/fuzz_input.h"

#include "spec/protocol/packet.h"
#include "spec/verify/token_tree.h"

#include <algorithm>
#include <cstring>

using namespace entrodraft;

namespace {

// Said otherwise than packet.cpp says it.
bool is_tree(const spec::Packet& packet) {
    const spec::SlotHeader& slot = packet.slot(0);
    if (slot.n_drafted > packet.max_draft_tokens()) return false;
    if (slot.last_accepted < -1 || slot.last_accepted >= packet.max_draft_tokens()) return false;
    for (std::size_t i = 0; i < slot.n_drafted; ++i) {
        const int parent = packet.parents(0)[i];
        if (packet.tokens(0)[i] < 0 || parent < -1 || parent > static_cast<int>(i) - 1) return false;
    }
    return true;
}

// Every path leads to the root in as many steps as its depth says, and is found again from there.
void follow(spec::Parents parents) {
    std::size_t children = 0;
    for (int node = -1; node < static_cast<int>(parents.size()); ++node) {
        const std::vector<int> path = spec::path_to(parents, node);
        fuzz::require(static_cast<int>(path.size()) == spec::depth_of(parents, node));
        fuzz::require(std::ranges::is_sorted(path) && (node < 0 ? path.empty() : path.back() == node));
        for (const int child : spec::children_of(parents, node))
            fuzz::require(child > node && spec::parent_of(parents, child) == node);
        children += spec::children_of(parents, node).size();
    }
    fuzz::require(children == parents.size());
    fuzz::require(spec::is_chain(parents) == (spec::first_path(parents).size() == parents.size()));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr int kTokens = 63;
    spec::Packet packet(1, kTokens);
    packet.header().command = spec::Command::round;
    spec::SlotHeader& slot = packet.slot(0);
    slot.state = spec::SlotState::decoding;
    slot.next_token = 1;
    if (size > 0) slot.n_drafted = data[0];
    if (size > 1) slot.last_accepted = static_cast<std::int8_t>(data[1]);
    constexpr std::size_t kHead = 2, kNode = 5;
    for (std::size_t i = 0; i < kTokens && kHead + (i + 1) * kNode <= size; ++i) {
        const std::uint8_t* const node = data + kHead + i * kNode;
        packet.parents(0)[i] = static_cast<std::int8_t>(node[0]);
        std::memcpy(&packet.tokens(0)[i], node + 1, sizeof(spec::TokenId));
    }
    packet.seal();
    const std::string why = packet.why_unexpected(packet.header().round, packet.header().checksum);
    fuzz::require(why.empty() == is_tree(packet));
    if (why.empty()) follow(std::span<const std::int8_t>(packet.parents(0)).first(slot.n_drafted));
    return 0;
}
