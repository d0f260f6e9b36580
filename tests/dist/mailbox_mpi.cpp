// Letters between ranks, at whatever number of ranks mpirun gave.
#include "tests/dist/session_of_tests.h"

#include "dist/comm/mailbox.h"
#include "dist/error.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <vector>

namespace mailbox_mpi {

using namespace entrodraft::dist;

Deadline far_off() {
    return Deadline::after_seconds(60);
}

// Empty ones, short ones, and some that MPI does not take at once.
std::size_t length_of(int from, int number) {
    constexpr std::size_t kLengths[] = {0, 1, 100, 5000, 70'000, 3'000'000};
    return kLengths[static_cast<std::size_t>(from + number * 5) % std::size(kLengths)];
}

std::vector<std::byte> text_of(int from, int to, int number) {
    std::vector<std::byte> bytes(length_of(from, number));
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>(i * 7 + static_cast<std::size_t>(from * 100 + to * 10 + number));
    return bytes;
}

TEST(Mailbox, KeepsTheOrderOfEachSender) {
    const auto mailbox = session_of_tests().mailbox(0);
    constexpr int kLetters = 12;
    for (int number = 0; number < kLetters; ++number)
        for (int to = 0; to < mailbox->size(); ++to)
            mailbox->send(to, number, text_of(mailbox->rank(), to, number));
    std::map<int, int> next; // by sender
    for (int i = 0; i < kLetters * mailbox->size(); ++i) {
        const auto letter = mailbox->await(far_off());
        if (!letter) {
            ADD_FAILURE() << "a letter did not come";
            break;
        }
        EXPECT_EQ(letter->kind, next[letter->from]++) << "from rank " << letter->from;
        EXPECT_TRUE(letter->bytes == text_of(letter->from, mailbox->rank(), letter->kind))
            << "letter " << letter->kind << " from rank " << letter->from;
    }
    mailbox->flush(far_off());
    EXPECT_TRUE(mailbox->all_sent());
    EXPECT_FALSE(mailbox->poll());
    session_of_tests().world().barrier(far_off());
}

TEST(Mailbox, WaitsNoLongerThanItIsTold) {
    const auto mailbox = session_of_tests().mailbox(0);
    const auto began = std::chrono::steady_clock::now();
    EXPECT_FALSE(mailbox->await(Deadline::after_seconds(0.05)));
    EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(50));
    session_of_tests().world().barrier(far_off());
}

TEST(Mailbox, IsOfThoseThatAskedForItOnly) {
    Session& session = session_of_tests();
    const bool is_in = session.world_rank() % 2 == 0;
    const auto mailbox = session.mailbox(is_in ? 0 : -1);
    EXPECT_EQ(mailbox != nullptr, is_in);
    if (mailbox) {
        EXPECT_EQ(mailbox->size(), (session.world_size() + 1) / 2);
        EXPECT_EQ(mailbox->rank(), session.world_rank() / 2);
    }
    session.world().barrier(far_off());
}

TEST(Mailbox, RefusesWhatCannotBeSent) {
    const auto mailbox = session_of_tests().mailbox(0);
    EXPECT_THROW(mailbox->send(mailbox->size(), 0, {}), Error);
    EXPECT_THROW(mailbox->send(-1, 0, {}), Error);
    EXPECT_THROW(mailbox->send(0, Mailbox::kMostKinds, {}), Error);
    session_of_tests().world().barrier(far_off());
}

// A rank that leaves takes no letter with it that was not read: ending a program does not hang on it.
TEST(Mailbox, MayBeLeftWithLettersInIt) {
    const auto mailbox = session_of_tests().mailbox(0);
    mailbox->send((mailbox->rank() + 1) % mailbox->size(), 0, std::vector<std::byte>(10));
    session_of_tests().world().barrier(far_off());
}

} // namespace mailbox_mpi
