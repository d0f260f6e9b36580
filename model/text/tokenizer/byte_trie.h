// A set of byte strings, each with a number. It is walked byte by byte, to find the strings that begin at a place. It
// is one hash table of (node, byte) -> node; 256,000 pieces take some 20 MB. Called by added_tokens and unigram.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace entrodraft::model {

class ByteTrie {
  public:
    static constexpr std::int32_t kRoot = 0;
    static constexpr std::int32_t kNone = -1;

    ByteTrie() : edges_(16), values_{kNone} {}

    // Returns the number stored for `key`, for the caller to set; kNone if it is new. Valid until the next call.
    std::int32_t& at(std::string_view key) {
        std::int32_t node = kRoot;
        for (const char byte : key) {
            if (2 * values_.size() >= edges_.size()) grow();
            Edge& edge = edges_[slot_of(key_of(node, byte))];
            if (edge.to == kNone) {
                edge = {key_of(node, byte), static_cast<std::int32_t>(values_.size())};
                values_.push_back(kNone);
            }
            node = edge.to;
        }
        return values_[node];
    }

    // Returns the node after one more byte, or kNone where no key continues with it.
    std::int32_t next(std::int32_t node, char byte) const { return edges_[slot_of(key_of(node, byte))].to; }
    // Returns the number of the key that ends at `node`, or kNone.
    std::int32_t value(std::int32_t node) const { return values_[node]; }

    // Returns the number of exactly this key, or kNone.
    std::int32_t find(std::string_view key) const {
        std::int32_t node = kRoot;
        for (std::size_t i = 0; i < key.size() && node != kNone; ++i)
            node = next(node, key[i]);
        return node == kNone ? kNone : value(node);
    }

  private:
    struct Edge {
        std::uint64_t key = 0;
        std::int32_t to = kNone;
    };

    static std::uint64_t key_of(std::int32_t node, char byte) {
        return (static_cast<std::uint64_t>(node) << 8) | static_cast<unsigned char>(byte);
    }
    // Returns the slot of the edge, or the free slot where it would be; at most half of the slots are used.
    std::size_t slot_of(std::uint64_t key) const {
        const std::uint64_t hash = key * 0x9E3779B97F4A7C15U;
        const std::size_t mask = edges_.size() - 1;
        std::size_t slot = static_cast<std::size_t>(hash >> 32) & mask;
        while (edges_[slot].to != kNone && edges_[slot].key != key)
            slot = (slot + 1) & mask;
        return slot;
    }
    void grow() {
        std::vector<Edge> old(2 * edges_.size());
        old.swap(edges_);
        for (const Edge& edge : old) {
            if (edge.to != kNone) edges_[slot_of(edge.key)] = edge;
        }
    }

    std::vector<Edge> edges_; // open addressing
    std::vector<std::int32_t> values_;
};

} // namespace entrodraft::model
