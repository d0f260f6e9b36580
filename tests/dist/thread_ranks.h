// Ranks that are threads of one process, and a communicator of host memory over them. For tests only.
#pragma once

#include "dist/comm/communicator.h"
#include "dist/rank/error.h"

#include <algorithm>
#include <barrier>
#include <exception>
#include <functional>
#include <span>
#include <thread>
#include <vector>

namespace test {

class ThreadRanks {
  public:
    explicit ThreadRanks(int n)
        : barrier_(n), operations_(static_cast<std::size_t>(n)), failures_(static_cast<std::size_t>(n)) {}

    // Calls f(communicator) on a thread a rank. Throws what the first rank of those that failed has thrown.
    void run(const std::function<void(entrodraft::dist::Communicator&)>& f) {
        std::vector<std::thread> threads;
        for (int rank = 0; rank < static_cast<int>(operations_.size()); ++rank)
            threads.emplace_back([this, rank, &f] {
                try {
                    Member member(*this, rank);
                    f(member);
                } catch (...) {
                    failures_[static_cast<std::size_t>(rank)] = std::current_exception();
                }
                barrier_.arrive_and_drop();
            });
        for (std::thread& thread : threads)
            thread.join();
        for (const std::exception_ptr& failure : failures_)
            if (failure) std::rethrow_exception(failure);
    }

  private:
    struct Operation {
        enum class Kind { sum, broadcast, gather } kind;
        const std::byte* in;
        std::byte* out;
        std::size_t bytes;
        int root;
    };

    class Member final : public entrodraft::dist::Communicator {
      public:
        Member(ThreadRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}
        int rank() const override { return rank_; }
        int size() const override { return static_cast<int>(ranks_.operations_.size()); }
        std::string name() const override { return "threads"; }
        void start_all_reduce_sum(void* data, std::size_t count, entrodraft::dist::ElementType) override {
            start({Operation::Kind::sum, static_cast<std::byte*>(data), static_cast<std::byte*>(data),
                   count * sizeof(float), 0});
        }
        void start_broadcast(void* data, std::size_t bytes, int root) override {
            start({Operation::Kind::broadcast, static_cast<std::byte*>(data), static_cast<std::byte*>(data), bytes,
                   root});
        }
        void start_gather(const void* mine, void* all, std::size_t bytes, int root) override {
            start({Operation::Kind::gather, static_cast<const std::byte*>(mine), static_cast<std::byte*>(all), bytes,
                   root});
        }
        void wait(entrodraft::dist::Deadline) override {
            ranks_.barrier_.arrive_and_wait();
            const std::vector<std::byte> result = result_of(own());
            ranks_.barrier_.arrive_and_wait(); // all have read what the others write over now
            std::ranges::copy(result, own().out);
        }

      private:
        Operation& own() { return ranks_.operations_[static_cast<std::size_t>(rank_)]; }
        void start(const Operation& operation) { own() = operation; }
        std::vector<std::byte> result_of(const Operation& operation) const {
            const auto& all = ranks_.operations_;
            std::vector<std::byte> result;
            if (operation.kind == Operation::Kind::sum) {
                std::vector<float> sum(operation.bytes / sizeof(float));
                for (const Operation& each : all)
                    for (std::size_t i = 0; i < sum.size(); ++i)
                        sum[i] += reinterpret_cast<const float*>(each.in)[i];
                const auto bytes = std::as_bytes(std::span(sum));
                result.assign(bytes.begin(), bytes.end());
            } else if (operation.kind == Operation::Kind::broadcast) {
                const std::byte* from = all[static_cast<std::size_t>(operation.root)].in;
                result.assign(from, from + operation.bytes);
            } else if (rank_ == operation.root) {
                for (const Operation& each : all)
                    result.insert(result.end(), each.in, each.in + each.bytes);
            }
            return result;
        }

        ThreadRanks& ranks_;
        int rank_;
    };

    std::barrier<> barrier_;
    std::vector<Operation> operations_;        // [rank]: under way
    std::vector<std::exception_ptr> failures_; // [rank]
};

} // namespace test
