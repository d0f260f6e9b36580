// Mailboxes of one process, joined: for tests of those who write letters. Threads may use different ones at once.
#pragma once

#include "dist/comm/mailbox.h"

#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace test {

class PostOffice {
  public:
    explicit PostOffice(int size) : boxes_(static_cast<std::size_t>(size)) {}

    class Box final : public entrodraft::dist::Mailbox {
      public:
        Box(PostOffice& office, int rank) : office_(office), rank_(rank) {}
        int rank() const override { return rank_; }
        int size() const override { return static_cast<int>(office_.boxes_.size()); }
        void send(int to, int kind, std::span<const std::byte> bytes) override {
            entrodraft::dist::require_sendable(to, kind, bytes.size(), size());
            const std::lock_guard lock(office_.mutex_);
            office_.boxes_[static_cast<std::size_t>(to)].push_back({rank_, kind, {bytes.begin(), bytes.end()}});
        }
        std::optional<entrodraft::dist::Letter> poll() override {
            const std::lock_guard lock(office_.mutex_);
            auto& mine = office_.boxes_[static_cast<std::size_t>(rank_)];
            if (mine.empty()) return std::nullopt;
            entrodraft::dist::Letter letter = std::move(mine.front());
            mine.pop_front();
            return letter;
        }
        bool all_sent() override { return true; }

      private:
        PostOffice& office_;
        int rank_;
    };

    Box box(int rank) { return {*this, rank}; }

  private:
    std::mutex mutex_;
    std::vector<std::deque<entrodraft::dist::Letter>> boxes_;
};

} // namespace test
