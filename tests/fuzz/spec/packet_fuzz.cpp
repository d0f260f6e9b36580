// The bytes of an round packet. What passes for a packet can be followed: no field leads out of it.
#include "tests/fuzz/fuzz_input.h"

#include "spec/protocol/packet.h"

#include <algorithm>
#include <cstring>

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr int kSlots = 3, kTokens = 5;
    spec::Packet packet(kSlots, kTokens);
    std::memcpy(packet.bytes().data(), data, std::min(size, packet.bytes().size()));
    fuzz::use(packet.is_intact());
    for (const bool sealed : {false, true}) {
        if (sealed) packet.seal();
        const std::string why = packet.why_unexpected(packet.header().round, packet.header().checksum);
        fuzz::use(why);
        if (!why.empty() || !packet.is_intact()) continue;
        fuzz::require(packet.header().slot < kSlots);
        for (int slot = 0; slot < kSlots; ++slot) {
            const auto beams = static_cast<int>(std::min(packet.slot(slot).n_beams, std::uint32_t{kTokens + 1}));
            const int drafted = beams + packet.slot(slot).n_drafted;
            fuzz::require(drafted <= kTokens && packet.slot(slot).last_accepted < kTokens);
            const bool is_followed =
                packet.header().command == spec::Command::round && packet.slot(slot).state == spec::SlotState::decoding;
            if (!is_followed) continue; // nobody looks at its tokens
            for (int i = 0; i < drafted; ++i) {
                const int parent = packet.parents(slot)[static_cast<std::size_t>(i)];
                fuzz::require(parent >= -1 && (i < beams || parent < i) &&
                              packet.tokens(slot)[static_cast<std::size_t>(i)] >= 0);
            }
        }
    }
    return 0;
}
