// Keeps the books of a cache; the forward pass itself writes keys and values.
#include "model/pass/kv_cache.h"

#include "model/files/tensor_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <new>
#include <stdexcept>

namespace entrodraft::model {

namespace {

bool has_scales(WeightType type) {
    return type == WeightType::int8;
}

// A number format without a scale per row.
template <typename Format> struct Plain : Format {
    Plain() = default;
    explicit Plain(std::span<const float>) {}
    float scale = 1;
};

// A number beyond the largest one becomes the largest: reading a key of 100,000 as 65,504 is better than as infinity.
struct SaturatingFloat16 : Float16Format {
    static std::uint16_t from_float(float value) {
        constexpr float kLargest = 65504;
        return Float16Format::from_float(std::isinf(value) ? value : std::clamp(value, -kLargest, kLargest));
    }
};

struct Int8Format {
    using Bits = std::int8_t;
    static constexpr float kLargest = 127;
    Int8Format() = default;
    // The scale of a row of zeros is 0. The scale of a row with infinities or NaN is NaN.
    explicit Int8Format(std::span<const float> row) {
        float largest = 0;
        bool has_nan = false;
        for (const float x : row) {
            largest = std::max(largest, std::abs(x));
            has_nan = has_nan || std::isnan(x);
        }
        if (has_nan || !std::isfinite(largest)) {
            scale = std::numeric_limits<float>::quiet_NaN();
        } else if (largest >= kLargest * std::numeric_limits<float>::min()) { // smaller values count as 0
            scale = largest / kLargest;
            to_codes = 1 / scale;
        }
    }
    static float to_float(std::int8_t code) { return code; }
    std::int8_t from_float(float value) const {
        constexpr float kRounding = 0x1.8p23f; // only whole numbers can be added to it
        const float code = to_codes > 0 ? value * to_codes + kRounding - kRounding : 0;
        return static_cast<std::int8_t>(static_cast<int>(code));
    }
    float scale = 0, to_codes = 0;
};

// Calls visit(format) for the number format of a cache's type.
template <typename Visit> void with_format(WeightType type, Visit visit) {
    switch (type) {
    case WeightType::float32:
        return visit(Plain<Float32Format>());
    case WeightType::bfloat16:
        return visit(Plain<BFloat16Format>());
    case WeightType::float16:
        return visit(Plain<SaturatingFloat16>());
    case WeightType::int8:
        return visit(Int8Format());
    default:
        throw std::logic_error("keys and values are not kept in " + to_string(type));
    }
}

// Returns the offset of a key; its numbers are kBlock apart.
std::size_t key_offset(std::size_t dim, int position) {
    return index(position / KvCache::kBlock) * dim * KvCache::kBlock + index(position % KvCache::kBlock);
}

} // namespace

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
    const auto buffer_of = [&](std::size_t bytes) {
        for (const int factor : {shape_.n_layers, shape_.n_slots, shape_.n_kv_heads, shape_.capacity})
            if (__builtin_mul_overflow(bytes, index(factor), &bytes)) throw std::bad_alloc();
        return Buffer(bytes);
    };
    keys_ = buffer_of(index(shape_.head_dim) * bytes_of(shape_.type));
    values_ = buffer_of(index(shape_.value_dim) * bytes_of(shape_.type));
    if (has_scales(shape_.type)) scales_ = buffer_of(2 * sizeof(float));
}

KvHead KvCache::head(int layer, int slot, int kv_head) {
    const std::size_t heads = index(shape_.n_slots) * index(shape_.n_kv_heads), size = bytes_of(shape_.type);
    const std::size_t at = index(layer) * heads + index(slot) * index(shape_.n_kv_heads) + index(kv_head);
    const std::size_t positions = at * index(shape_.capacity);
    KvHead found = {keys_.as<std::byte>() + positions * index(shape_.head_dim) * size,
                    values_.as<std::byte>() + positions * index(shape_.value_dim) * size};
    if (!has_scales(shape_.type)) return found;
    found.key_scales = scales_.as<float>() + positions;
    found.value_scales = found.key_scales + index(shape_.n_layers) * heads * index(shape_.capacity);
    return found;
}

void KvCache::put(const HeadPlace& to, const float* key, const float* value) {
    const KvHead head = this->head(to.layer, to.slot, to.kv_head);
    const std::size_t dim = index(shape_.head_dim), value_dim = index(shape_.value_dim), at = index(to.position);
    with_format(shape_.type, [&]<typename Format>(Format) {
        using Bits = typename Format::Bits;
        const auto put_numbers = [](std::span<const float> from, Bits* first, std::size_t step, float* scale) {
            const Format format(from);
            for (std::size_t d = 0; d < from.size(); ++d)
                first[d * step] = format.from_float(from[d]);
            if (scale) *scale = format.scale;
        };
        put_numbers({key, dim}, reinterpret_cast<Bits*>(head.keys) + key_offset(dim, to.position), kBlock,
                    head.key_scales ? head.key_scales + at : nullptr);
        put_numbers({value, value_dim}, reinterpret_cast<Bits*>(head.values) + at * value_dim, 1,
                    head.value_scales ? head.value_scales + at : nullptr);
    });
}

void KvCache::read(const HeadPlace& from, float* key, float* value) {
    const KvHead head = this->head(from.layer, from.slot, from.kv_head);
    const std::size_t dim = index(shape_.head_dim), value_dim = index(shape_.value_dim), at = index(from.position);
    with_format(shape_.type, [&]<typename Format>(Format) {
        using Bits = typename Format::Bits;
        const auto read_numbers = [](const Bits* first, std::size_t step, const float* scale, std::span<float> to) {
            for (std::size_t d = 0; d < to.size(); ++d)
                to[d] = Format::to_float(first[d * step]) * (scale ? *scale : 1);
        };
        if (key)
            read_numbers(reinterpret_cast<const Bits*>(head.keys) + key_offset(dim, from.position), kBlock,
                         head.key_scales ? head.key_scales + at : nullptr, {key, dim});
        if (value)
            read_numbers(reinterpret_cast<const Bits*>(head.values) + at * value_dim, 1,
                         head.value_scales ? head.value_scales + at : nullptr, {value, value_dim});
    });
}

void KvCache::copy_in(HeadPlace to, KvCache& other, HeadPlace from, int count) {
    const std::size_t dim = index(shape_.head_dim), value_bytes = index(shape_.value_dim) * bytes_of(shape_.type);
    const KvHead there = other.head(from.layer, from.slot, from.kv_head), here = head(to.layer, to.slot, to.kv_head);
    std::copy_n(there.values + index(from.position) * value_bytes, index(count) * value_bytes,
                here.values + index(to.position) * value_bytes);
    if (here.key_scales) {
        std::copy_n(there.key_scales + from.position, count, here.key_scales + to.position);
        std::copy_n(there.value_scales + from.position, count, here.value_scales + to.position);
    }
    while (count > 0) { // positions within one block of both
        const int n = std::min({count, kBlock - from.position % kBlock, kBlock - to.position % kBlock});
        with_format(shape_.type, [&]<typename Format>(Format) {
            using Bits = typename Format::Bits;
            const Bits* source = reinterpret_cast<const Bits*>(there.keys) + key_offset(dim, from.position);
            Bits* target = reinterpret_cast<Bits*>(here.keys) + key_offset(dim, to.position);
            for (std::size_t d = 0; d < dim; ++d)
                std::copy_n(source + d * kBlock, n, target + d * kBlock);
        });
        from.position += n;
        to.position += n;
        count -= n;
    }
}

std::size_t KvCache::bytes_of_position(WeightType type, int head_dim, int value_dim) {
    return index(head_dim + value_dim) * bytes_of(type) + (has_scales(type) ? 2 * sizeof(float) : 0);
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

// Throws std::logic_error where another slot reads positions of `slot` from `position` on.
void KvCache::check_unread(int slot, int position) const {
    for (int reader = 0; reader < shape_.n_slots; ++reader)
        if (reader != slot && prefix(reader).slot == slot && prefix(reader).length > position)
            throw std::logic_error(fmt::format(
                "slot {} of the cache reads {} positions of slot {}, which was to change from position {} on", reader,
                prefix(reader).length, slot, position));
}

// `to` reads the prefix `in_place` (which may be its own) where it lies, and gets copies of the other positions.
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

// Copies the prefix's positions, from the block of `position` up to `end`, into the slot itself.
void KvCache::own_from(int slot, int position, int end) {
    Prefix& shared = prefixes_[index(slot)];
    if (position >= shared.length) return;
    const int begin = position / kBlock * kBlock;
    copy_range(shared.slot, slot, begin, end);
    shared = begin > 0 ? Prefix{shared.slot, begin} : Prefix{slot, 0};
}

// Copies a slot's own positions [begin, end) into another slot. `begin` is a multiple of kBlock. The last block of keys
// is copied whole.
void KvCache::copy_range(int from, int to, int begin, int end) {
    if (begin >= end) return;
    if (elsewhere_) return elsewhere_->copy(from, begin, to, begin, end - begin);
    const std::size_t size = bytes_of(shape_.type), key = index(shape_.head_dim) * size,
                      value = index(shape_.value_dim) * size, first = index(begin);
    const auto copy = [&](const auto* source, auto* target, std::size_t unit, int positions) {
        std::copy_n(source + first * unit, (index(positions) - first) * unit, target + first * unit);
    };
    for (int layer = 0; layer < shape_.n_layers; ++layer) {
        for (int head = 0; head < shape_.n_kv_heads; ++head) {
            const KvHead source = this->head(layer, from, head), target = this->head(layer, to, head);
            copy(source.keys, target.keys, key, whole_blocks(end));
            copy(source.values, target.values, value, end);
            if (!source.key_scales) continue;
            copy(source.key_scales, target.key_scales, 1, end);
            copy(source.value_scales, target.value_scales, 1, end);
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
    const std::size_t dim = index(shape_.head_dim), value_bytes = index(shape_.value_dim) * bytes_of(shape_.type);
    for (int layer = 0; layer < shape_.n_layers; ++layer) {
        for (int head = 0; head < shape_.n_kv_heads; ++head) {
            const KvHead place = this->head(layer, slot, head);
            with_format(shape_.type, [&]<typename Format>(Format) {
                auto* keys = reinterpret_cast<typename Format::Bits*>(place.keys);
                for (std::size_t d = 0; d < dim; ++d)
                    keys[key_offset(dim, to) + d * kBlock] = keys[key_offset(dim, from) + d * kBlock];
            });
            std::memmove(place.values + index(to) * value_bytes, place.values + index(from) * value_bytes, value_bytes);
            if (!place.key_scales) continue;
            place.key_scales[to] = place.key_scales[from];
            place.value_scales[to] = place.value_scales[from];
        }
    }
}

void KvCache::keep(int slot, int length, std::span<const int> path) {
    if (length < 0 || length > lengths_[index(slot)])
        throw std::out_of_range(
            fmt::format("cannot keep {} positions of a cache of {}", length, lengths_[index(slot)]));
    int previous = -1, stays = length; // all positions before it are kept
    std::vector<int> moved;            // kept positions after it
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
