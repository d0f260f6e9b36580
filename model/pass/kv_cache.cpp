// Cache bookkeeping; the forward pass itself writes keys and values.
#include "model/pass/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <new>
#include <stdexcept>

namespace entrodraft::model {

KvCache::KvCache(const Shape& shape, std::unique_ptr<KvMemory> elsewhere, std::unique_ptr<RecurrentMemory> states)
    : shape_(shape), elsewhere_(std::move(elsewhere)), lengths_(index(shape.n_slots), 0),
      sources_(index(shape.n_slots), -1) {
    shape_.capacity = whole_blocks(shape.capacity);
    if (shape.recurrent.n_layers > 0)
        recurrent_ =
            std::make_unique<RecurrentStates>(shape.recurrent, shape.n_slots, shape_.capacity, std::move(states));
    if (shape_.value_dim == 0) shape_.value_dim = shape_.head_dim;
    for (int slot = 0; slot < shape_.n_slots; ++slot)
        prefixes_.push_back({slot, 0});
}

KvCache::KvCache(const Shape& shape) : KvCache(shape, nullptr) {
    const auto buffer_of = [&](int dim) {
        std::size_t bytes = sizeof(float);
        for (const int factor : {shape_.n_layers, shape_.n_slots, shape_.n_kv_heads, shape_.capacity, dim})
            if (__builtin_mul_overflow(bytes, index(factor), &bytes)) throw std::bad_alloc();
        return Buffer(bytes);
    };
    keys_ = buffer_of(shape_.head_dim);
    values_ = buffer_of(shape_.value_dim);
}

std::size_t KvCache::head_index(int layer, int slot, int kv_head) const {
    return (index(layer) * index(shape_.n_slots) + index(slot)) * index(shape_.n_kv_heads) + index(kv_head);
}

float* KvCache::keys(int layer, int slot, int kv_head) {
    return keys_.as<float>() + head_index(layer, slot, kv_head) * index(shape_.capacity) * index(shape_.head_dim);
}

float* KvCache::values(int layer, int slot, int kv_head) {
    return values_.as<float>() + head_index(layer, slot, kv_head) * index(shape_.capacity) * index(shape_.value_dim);
}

void KvCache::put(int layer, int slot, int kv_head, int position, const float* key, const float* value) {
    const std::size_t dim = index(shape_.head_dim), value_dim = index(shape_.value_dim);
    float* to = keys(layer, slot, kv_head) + index(position / kBlock) * dim * kBlock + index(position % kBlock);
    for (std::size_t d = 0; d < dim; ++d)
        to[d * kBlock] = key[d];
    std::copy_n(value, value_dim, values(layer, slot, kv_head) + index(position) * value_dim);
}

void KvCache::copy_in(HeadPlace to, KvCache& other, HeadPlace from, int count) {
    const std::size_t dim = index(shape_.head_dim), value_dim = index(shape_.value_dim);
    std::copy_n(other.values(from.layer, from.slot, from.kv_head) + index(from.position) * value_dim,
                index(count) * value_dim, values(to.layer, to.slot, to.kv_head) + index(to.position) * value_dim);
    const auto key_of = [dim](KvCache& cache, const HeadPlace& place) {
        return cache.keys(place.layer, place.slot, place.kv_head) + index(place.position / kBlock) * dim * kBlock +
               index(place.position % kBlock);
    };
    while (count > 0) { // what lies in one block of both
        const int n = std::min({count, kBlock - from.position % kBlock, kBlock - to.position % kBlock});
        const float* source = key_of(other, from);
        float* target = key_of(*this, to);
        for (std::size_t d = 0; d < dim; ++d)
            std::copy_n(source + d * kBlock, n, target + d * kBlock);
        from.position += n;
        to.position += n;
        count -= n;
    }
}

std::size_t KvCache::bytes_per_position() const {
    return index(shape_.n_layers) * index(shape_.n_kv_heads) * index(shape_.head_dim + shape_.value_dim) *
           sizeof(float);
}

void KvCache::append(int slot, int rows) {
    int& length = lengths_[index(slot)];
    if (rows > shape_.capacity - length)
        throw std::out_of_range(
            fmt::format("the cache holds {} positions; {} were asked for", shape_.capacity, length + rows));
    length += rows;
}

void KvCache::truncate(int slot, int length) {
    if (length < 0 || length > lengths_[index(slot)])
        throw std::out_of_range(fmt::format("cannot cut a cache of {} positions to {}", lengths_[index(slot)], length));
    check_unread(slot, length);
    if (recurrent_) recurrent_->cut(slot, length);
    own_from(slot, length, length);
    lengths_[index(slot)] = length;
}

int KvCache::new_source(int slot) {
    int& source = sources_[index(slot)];
    source = -1;
    int number = 0; // fewer than n_slots are taken
    while (std::ranges::find(sources_, number) != sources_.end())
        ++number;
    return source = number;
}

void KvCache::fork(int from, int to) {
    if (from == to) return;
    const Prefix source = prefix(from);
    become(from, to, source.slot == to ? source : Prefix{to, 0}, lengths_[index(from)]);
}

void KvCache::share(int from, int to, int length) {
    if (length < 0 || length > lengths_[index(from)])
        throw std::out_of_range(
            fmt::format("cannot share {} positions of a cache of {}", length, lengths_[index(from)]));
    if (from == to) return truncate(to, length);
    const Prefix source = prefix(from);
    const int whole = length / kBlock * kBlock;
    become(from, to, source.length > 0 ? Prefix{source.slot, std::min(source.length, whole)} : Prefix{from, whole},
           length);
}

// Throws where another slot reads positions of `slot` from `position` on.
void KvCache::check_unread(int slot, int position) const {
    for (int reader = 0; reader < shape_.n_slots; ++reader)
        if (reader != slot && prefix(reader).slot == slot && prefix(reader).length > position)
            throw std::logic_error(fmt::format(
                "slot {} of the cache reads {} positions of slot {}, which was to change from position {} on", reader,
                prefix(reader).length, slot, position));
}

// `to` reads `in_place` (which may be its own) where it lies, and holds copies of the other positions of `from`.
void KvCache::become(int from, int to, Prefix in_place, int length) {
    check_unread(to, in_place.slot == to ? in_place.length : 0);
    if (recurrent_) recurrent_->become(from, to, length);
    const Prefix source = prefix(from);
    copy_range(source.slot, to, in_place.length, std::min(source.length, length));
    copy_range(from, to, std::max(source.length, in_place.length), length);
    prefixes_[index(to)] = in_place.slot == to || in_place.length == 0 ? Prefix{to, 0} : in_place;
    lengths_[index(to)] = length;
    sources_[index(to)] = sources_[index(from)];
}

// Puts the prefix's positions from the block of `position` on, up to `end`, into the slot itself.
void KvCache::own_from(int slot, int position, int end) {
    Prefix& shared = prefixes_[index(slot)];
    if (position >= shared.length) return;
    const int begin = position / kBlock * kBlock;
    copy_range(shared.slot, slot, begin, end);
    shared = begin > 0 ? Prefix{shared.slot, begin} : Prefix{slot, 0};
}

// Copies own positions [begin, end) of a slot into another; `begin` is on a block's border. The last block of keys
// goes whole.
void KvCache::copy_range(int from, int to, int begin, int end) {
    if (begin >= end) return;
    if (elsewhere_) return elsewhere_->copy(from, begin, to, begin, end - begin);
    const std::size_t first_key = index(begin) * index(shape_.head_dim),
                      first_value = index(begin) * index(shape_.value_dim);
    const std::size_t key_bytes = (index(whole_blocks(end)) * index(shape_.head_dim) - first_key) * sizeof(float),
                      value_bytes = index(end - begin) * index(shape_.value_dim) * sizeof(float);
    for (int layer = 0; layer < shape_.n_layers; ++layer) {
        for (int head = 0; head < shape_.n_kv_heads; ++head) {
            std::memcpy(keys(layer, to, head) + first_key, keys(layer, from, head) + first_key, key_bytes);
            std::memcpy(values(layer, to, head) + first_value, values(layer, from, head) + first_value, value_bytes);
        }
    }
}

// See KvMemory.
void KvCache::move(int slot, std::span<const int> from, int to) {
    if (from.empty()) return;
    if (recurrent_) recurrent_->move(slot, from, to);
    if (elsewhere_) return elsewhere_->move(slot, from, to);
    for (const int position : from)
        move_position(slot, position, to++);
}

void KvCache::move_position(int slot, int from, int to) {
    const std::size_t dim = index(shape_.head_dim), value_dim = index(shape_.value_dim);
    auto key_offset = [&](int position) { return index(position / kBlock) * dim * kBlock + index(position % kBlock); };
    for (int layer = 0; layer < shape_.n_layers; ++layer) {
        for (int head = 0; head < shape_.n_kv_heads; ++head) {
            float* key = keys(layer, slot, head);
            for (std::size_t d = 0; d < dim; ++d)
                key[key_offset(to) + d * kBlock] = key[key_offset(from) + d * kBlock];
            float* value = values(layer, slot, head);
            std::memmove(value + index(to) * value_dim, value + index(from) * value_dim, value_dim * sizeof(float));
        }
    }
}

void KvCache::keep(int slot, int length, std::span<const int> path) {
    if (length < 0 || length > lengths_[index(slot)])
        throw std::out_of_range(
            fmt::format("cannot keep {} positions of a cache of {}", length, lengths_[index(slot)]));
    int previous = -1, stays = length; // up to where all is kept
    std::vector<int> moved;            // positions behind that
    for (const int step : path) {
        if (step <= previous || step >= lengths_[index(slot)] - length)
            throw std::out_of_range("a path to keep must increase and lie within the cached rows");
        previous = step;
        if (length + step == stays)
            ++stays;
        else
            moved.push_back(length + step);
    }
    check_unread(slot, stays);
    if (recurrent_) recurrent_->cut(slot, stays);
    if (!moved.empty()) own_from(slot, stays, prefix(slot).length);
    move(slot, moved, stays);
    truncate(slot, length + static_cast<int>(path.size()));
}

} // namespace entrodraft::model
