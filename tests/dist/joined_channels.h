// Channels of replicas in one process, joined: for tests of what talks over them. Threads may use different ones at
// once.
#pragma once

#include "dist/comm/channel.h"

#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace test {

class JoinedChannels {
  public:
    explicit JoinedChannels(int replicas) : arrived_(static_cast<std::size_t>(replicas)) {}

    class End final : public entrodraft::dist::Channel {
      public:
        End(JoinedChannels& joined, const entrodraft::dist::RankLayout& layout, const entrodraft::dist::Clock& clock,
            double timeout_seconds)
            : Channel(layout, clock, timeout_seconds), joined_(joined), replica_(layout.replica) {}
        void flush(entrodraft::dist::Deadline) override {}

      protected:
        void begin_send(int to, std::span<const std::byte> bytes) override {
            const std::lock_guard lock(joined_.mutex_);
            joined_.arrived_.at(static_cast<std::size_t>(to)).push_back({replica_, {bytes.begin(), bytes.end()}});
        }
        std::optional<entrodraft::dist::Message> poll() override {
            const std::lock_guard lock(joined_.mutex_);
            auto& mine = joined_.arrived_[static_cast<std::size_t>(replica_)];
            if (mine.empty()) return std::nullopt;
            entrodraft::dist::Message message = std::move(mine.front());
            mine.pop_front();
            heard_from(message.from);
            return message;
        }

      private:
        JoinedChannels& joined_;
        int replica_;
    };

  private:
    std::mutex mutex_;
    std::vector<std::deque<entrodraft::dist::Message>> arrived_; // by receiver
};

} // namespace test
