// The control packet: its size and its places. A wrong packet is told from a right one.
#include "spec/protocol/packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace entrodraft::spec {
namespace packet_test {

Packet example() {
    Packet packet(2, 15);
    packet.header().command = Command::round;
    packet.header().round = 9;
    packet.header().checksum = 77;
    SlotHeader& slot = packet.slot(1);
    slot = {SlotState::decoding, DraftEnd::rule, 3, 2, 42};
    for (int i = 0; i < 3; ++i) {
        packet.tokens(1)[static_cast<std::size_t>(i)] = 100 + i;
        packet.parents(1)[static_cast<std::size_t>(i)] = static_cast<std::int8_t>(i - 1);
    }
    return packet;
}

TEST(Packet, OfOneSlotStaysUnder256Bytes) {
    EXPECT_LT(Packet(1, 15).bytes().size(), 256u);
}

TEST(Packet, HasASizeFixedByItsTwoNumbers) {
    EXPECT_EQ(Packet(1, 15).bytes().size(), 40u + 88u);
    EXPECT_EQ(Packet(4, 15).bytes().size(), 40u + 4 * 88u);
    EXPECT_EQ(Packet(1, 127).bytes().size(), 40u + 648u);
    EXPECT_EQ(Packet(1, 0).bytes().size(), 40u + 12u);
}

TEST(Packet, RefusesSizesThatItsFieldsCannotHold) {
    EXPECT_THROW(Packet(0, 15), std::invalid_argument);
    EXPECT_THROW(Packet(257, 15), std::invalid_argument);
    EXPECT_THROW(Packet(1, 128), std::invalid_argument);
    EXPECT_THROW(Packet(1, -1), std::invalid_argument);
    EXPECT_NO_THROW(Packet(256, 127));
    EXPECT_THROW(Packet(2, 15).slot(2), std::out_of_range);
    EXPECT_THROW(Packet(2, 15).slot(-1), std::out_of_range);
}

TEST(Packet, CarriesEverythingThroughItsBytes) {
    const Packet sent = example();
    Packet received(2, 15);
    ASSERT_EQ(sent.bytes().size(), received.bytes().size());
    std::ranges::copy(sent.bytes(), received.bytes().begin());
    EXPECT_EQ(received.why_unexpected(9, 77), "");
    EXPECT_EQ(received.header().command, Command::round);
    EXPECT_EQ(received.slot(0).state, SlotState::empty);
    const SlotHeader& slot = received.slot(1);
    EXPECT_EQ(slot.state, SlotState::decoding);
    EXPECT_EQ(slot.draft_end, DraftEnd::rule);
    EXPECT_EQ(slot.n_drafted, 3);
    EXPECT_EQ(slot.last_accepted, 2);
    EXPECT_EQ(slot.next_token, 42);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(received.tokens(1)[i], 100 + static_cast<TokenId>(i));
        EXPECT_EQ(received.parents(1)[i], static_cast<int>(i) - 1);
    }
}

TEST(Packet, GivesEveryFieldItsOwnPlace) {
    Packet packet(3, 127);
    packet.header().round = 1;
    for (int i = 0; i < 3; ++i) {
        packet.slot(i).next_token = 1000 + i;
        std::ranges::fill(packet.tokens(i), 10 + i);
        std::ranges::fill(packet.parents(i), static_cast<std::int8_t>(20 + i));
    }
    EXPECT_EQ(packet.header().magic, PacketHeader::kMagic);
    EXPECT_EQ(packet.header().round, 1u);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(packet.slot(i).next_token, 1000 + i);
        EXPECT_EQ(packet.tokens(i).size(), 127u);
        EXPECT_EQ(packet.parents(i).size(), 127u);
        EXPECT_EQ(std::ranges::count(packet.tokens(i), 10 + i), 127);
        EXPECT_EQ(std::ranges::count(packet.parents(i), static_cast<std::int8_t>(20 + i)), 127);
    }
}

TEST(Packet, IsAsNewAfterClear) {
    Packet packet = example(), fresh(2, 15);
    packet.clear();
    EXPECT_TRUE(std::ranges::equal(packet.bytes(), fresh.bytes()));
    EXPECT_EQ(fresh.header().command, Command::stop);
    EXPECT_EQ(fresh.slot(1).next_token, -1);
    EXPECT_EQ(fresh.why_unexpected(0, 0), "");
}

TEST(Packet, SaysWhichFieldIsUnexpected) {
    const auto says = [](const std::string& words, const std::function<void(Packet&)>& change) {
        Packet packet = example();
        change(packet);
        const std::string reason = packet.why_unexpected(9, 77);
        EXPECT_NE(reason.find(words), std::string::npos) << "'" << reason << "' lacks '" << words << "'";
    };
    EXPECT_EQ(example().why_unexpected(9, 77), "");
    EXPECT_EQ(example().why_unexpected(10, 77), "packet number is 9, expected 10");
    EXPECT_EQ(example().why_unexpected(9, 78), "packet checksum is 77, expected 78");
    says("magic", [](Packet& p) { p.header().magic ^= 1; });
    says("version", [](Packet& p) { p.header().version += 1; });
    says("command 0", [](Packet& p) { p.header().command = static_cast<Command>(0); });
    says("command 9", [](Packet& p) { p.header().command = static_cast<Command>(9); });
    says("prompt of slot 0", [](Packet& p) { p.header().command = Command::share; });
    says("slot 2 ", [](Packet& p) { p.header().slot = 2; });
    says("0 bytes", [](Packet& p) { p.header().command = Command::admit; });
    says("0 rows", [](Packet& p) { p.header().command = Command::prefill; });
    says("slot 0: state 3", [](Packet& p) { p.slot(0).state = static_cast<SlotState>(3); });
    says("slot 1: draft end 7", [](Packet& p) { p.slot(1).draft_end = static_cast<DraftEnd>(7); });
    says("16 drafted", [](Packet& p) { p.slot(1).n_drafted = 16; });
    says("token 15 is the last accepted", [](Packet& p) { p.slot(1).last_accepted = 15; });
    says("token -2 is the last accepted", [](Packet& p) { p.slot(1).last_accepted = -2; });
    says("next token", [](Packet& p) { p.slot(1).next_token = -1; });
    says("drafted token 2", [](Packet& p) { p.tokens(1)[2] = -5; });
    says("parent 1", [](Packet& p) { p.parents(1)[1] = 1; });
    says("parent -2", [](Packet& p) { p.parents(1)[0] = -2; });
}

TEST(Packet, OfABeamSearchHasBeamsBehindRowsOfTheRoundBefore) {
    Packet packet = example();
    packet.slot(1).n_beams = 2;
    packet.slot(1).n_drafted = 1;
    const std::vector<std::int8_t> parents = {5, 1, 0};
    std::ranges::copy(parents, packet.parents(1).begin());
    EXPECT_EQ(packet.why_unexpected(9, 77), "");
    packet.parents(1)[2] = -1; // a drafted token must follow a beam, or another drafted token
    EXPECT_EQ(packet.why_unexpected(9, 77), "packet slot 1: drafted token 2 has parent -1");
    packet.parents(1)[2] = 2;
    EXPECT_EQ(packet.why_unexpected(9, 77), "packet slot 1: drafted token 2 has parent 2");
    packet.slot(1).n_beams = 15;
    EXPECT_EQ(packet.why_unexpected(9, 77), "packet slot 1: 16 drafted tokens exceed 15");
}

TEST(Packet, IsNotIntactWhereAnyBitIsAnother) {
    Packet packet = example();
    EXPECT_FALSE(packet.is_intact()) << "not yet sealed";
    packet.seal();
    for (std::size_t bit = 0; bit < 8 * packet.bytes().size(); ++bit) {
        const auto flip = static_cast<std::byte>(1U << (bit % 8));
        packet.bytes()[bit / 8] ^= flip;
        EXPECT_FALSE(packet.is_intact()) << "bit " << bit;
        packet.bytes()[bit / 8] ^= flip;
    }
    EXPECT_TRUE(packet.is_intact());
}

TEST(Packet, ChecksTheTokensOfSequencesThatAreDecodedOnly) {
    Packet packet = example();
    EXPECT_EQ(packet.why_unexpected(9, 77), "");
    packet.tokens(1)[2] = -5;
    EXPECT_NE(packet.why_unexpected(9, 77), "");
    for (const SlotState state : {SlotState::empty, SlotState::prefilling}) {
        packet.slot(1).state = state;
        EXPECT_EQ(packet.why_unexpected(9, 77), "");
    }
}

TEST(Packet, AcceptsWhatItDoesNotUse) {
    Packet packet = example();
    packet.tokens(1)[3] = -1; // after the n_drafted tokens
    packet.parents(1)[3] = 99;
    packet.parents(1)[2] = 0; // a branch
    EXPECT_EQ(packet.why_unexpected(9, 77), "");
}

} // namespace packet_test
} // namespace entrodraft::spec
