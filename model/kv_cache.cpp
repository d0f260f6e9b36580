// Cache bookkeeping; the forward pass itself writes keys and values.
#include "entrodraft/model/kv_cache.h"

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace entrodraft::model {

namespace {

std::size_t index(int value) {
    return static_cast<std::size_t>(value);
}

int padded_capacity(int capacity) {
    return (capacity + KvCache::kBlock - 1) / KvCache::kBlock * KvCache::kBlock;
}

} // namespace

KvCache::KvCache(const Shape& shape) : shape_(shape), lengths_(index(shape.n_slots), 0) {
    shape_.capacity = padded_capacity(shape.capacity);
    std::size_t bytes = sizeof(float);
    for (const int factor : {shape_.n_layers, shape_.n_slots, shape_.n_kv_heads, shape_.capacity, shape_.head_dim})
        if (__builtin_mul_overflow(bytes, index(factor), &bytes)) throw std::bad_alloc();
    keys_ = Buffer(bytes);
    values_ = Buffer(bytes);
}

std::size_t KvCache::head_floats() const {
    return index(shape_.capacity) * index(shape_.head_dim);
}

std::size_t KvCache::head_index(int layer, int slot, int kv_head) const {
    return (index(layer) * index(shape_.n_slots) + index(slot)) * index(shape_.n_kv_heads) + index(kv_head);
}

float* KvCache::keys(int layer, int slot, int kv_head) {
    return keys_.as<float>() + head_index(layer, slot, kv_head) * head_floats();
}

float* KvCache::values(int layer, int slot, int kv_head) {
    return values_.as<float>() + head_index(layer, slot, kv_head) * head_floats();
}

std::size_t KvCache::bytes_per_position() const {
    return index(shape_.n_layers) * index(shape_.n_kv_heads) * index(shape_.head_dim) * sizeof(float) * 2;
}

void KvCache::append(int slot, int rows) {
    int& length = lengths_[index(slot)];
    if (rows > shape_.capacity - length)
        throw std::out_of_range("the cache holds " + std::to_string(shape_.capacity) + " positions; " +
                                std::to_string(length + rows) + " were asked for");
    length += rows;
}

void KvCache::truncate(int slot, int length) {
    if (length < 0 || length > lengths_[index(slot)])
        throw std::out_of_range("cannot cut a cache of " + std::to_string(lengths_[index(slot)]) + " positions to " +
                                std::to_string(length));
    lengths_[index(slot)] = length;
}

void KvCache::fork(int from, int to) {
    if (from == to) return;
    // Whole key blocks: the last one may be partly filled.
    const std::size_t floats = index(padded_capacity(lengths_[index(from)])) * index(shape_.head_dim);
    for (int layer = 0; layer < shape_.n_layers; ++layer) {
        for (int head = 0; head < shape_.n_kv_heads; ++head) {
            std::memcpy(keys(layer, to, head), keys(layer, from, head), floats * sizeof(float));
            std::memcpy(values(layer, to, head), values(layer, from, head), floats * sizeof(float));
        }
    }
    lengths_[index(to)] = lengths_[index(from)];
}

void KvCache::copy_position(int slot, int from, int to) {
    const std::size_t dim = index(shape_.head_dim);
    auto key_offset = [&](int position) { return index(position / kBlock) * dim * kBlock + index(position % kBlock); };
    for (int layer = 0; layer < shape_.n_layers; ++layer) {
        for (int head = 0; head < shape_.n_kv_heads; ++head) {
            float* key = keys(layer, slot, head);
            for (std::size_t d = 0; d < dim; ++d)
                key[key_offset(to) + d * kBlock] = key[key_offset(from) + d * kBlock];
            float* value = values(layer, slot, head);
            std::memmove(value + index(to) * dim, value + index(from) * dim, dim * sizeof(float));
        }
    }
}

void KvCache::keep(int slot, int length, std::span<const int> path) {
    if (length < 0 || length > lengths_[index(slot)])
        throw std::out_of_range("cannot keep " + std::to_string(length) + " positions of a cache of " +
                                std::to_string(lengths_[index(slot)]));
    int previous = -1;
    for (const int step : path) {
        if (step <= previous || step >= lengths_[index(slot)] - length)
            throw std::out_of_range("a path to keep must increase and lie within the cached rows");
        previous = step;
    }
    for (std::size_t i = 0; i < path.size(); ++i)
        if (path[i] != static_cast<int>(i)) copy_position(slot, length + path[i], length + static_cast<int>(i));
    truncate(slot, length + static_cast<int>(path.size()));
}

} // namespace entrodraft::model
