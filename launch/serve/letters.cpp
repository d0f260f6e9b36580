// Letters as bytes: see letters.h.
#include "launch/serve/letters.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <type_traits>

namespace entrodraft::launch {

namespace {

template <typename T>
concept Plain = std::is_arithmetic_v<T>;

template <typename T, typename U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

// Every member of a struct, by name: where one is added, its line no longer compiles until that one travels too.
template <Is<spec::Acceptances> T> void with_members(T& value, auto use) {
    auto& [judged, accepted] = value;
    use(judged, accepted);
}
template <Is<spec::StepSeconds> T> void with_members(T& value, auto use) {
    auto& [draft, entropy, announce, score, gather, decide, prefill, first_token, total] = value;
    use(draft, entropy, announce, score, gather, decide, prefill, first_token, total);
}
template <Is<spec::DraftedAhead> T> void with_members(T& value, auto use) {
    auto& [rounds, hits, outcomes, passes, tokens, used, seconds] = value;
    use(rounds, hits, outcomes, passes, tokens, used, seconds);
}
template <Is<spec::Stats> T> void with_members(T& value, auto use) {
    auto& [sequences, prompt_tokens, new_tokens, rounds, drafted, accepted, target_passes, draft_passes,
           drafting_rounds, passes_of_rows, rounds_of_accepted, by_position, by_entropy, overlap, overlaps, ahead,
           seconds, levels] = value;
    use(sequences, prompt_tokens, new_tokens, rounds, drafted, accepted, target_passes, draft_passes, drafting_rounds,
        passes_of_rows, rounds_of_accepted, by_position, by_entropy, overlap, overlaps, ahead, seconds, levels);
}
template <Is<LatencySamples> T> void with_members(T& value, auto use) {
    auto& [ttft_ms, tpot_ms, latency_ms] = value;
    use(ttft_ms, tpot_ms, latency_ms);
}
template <Is<Tally> T> void with_members(T& value, auto use) {
    auto& [stats, served, with_error, checked, check_differs, busy_seconds, latencies] = value;
    use(stats, served, with_error, checked, check_differs, busy_seconds, latencies);
}
template <Is<AskLetter> T> void with_members(T& value, auto use) {
    auto& [asked, received, urgent, idle] = value;
    use(asked, received, urgent, idle);
}
template <Is<WorkLetter> T> void with_members(T& value, auto use) {
    auto& [order, number, line] = value;
    use(order, number, line);
}
template <Is<Result> T> void with_members(T& value, auto use) {
    auto& [order, new_tokens, line] = value;
    use(order, new_tokens, line);
}
template <Is<FarewellLetter> T> void with_members(T& value, auto use) {
    auto& [tally, interrupted] = value;
    use(tally, interrupted);
}
template <typename T>
concept Struct = requires(T& value) {
    with_members(value, [](auto&...) {});
};

class Packer {
  public:
    template <Plain T> Packer& operator<<(T value) {
        const auto* begin = reinterpret_cast<const std::byte*>(&value);
        bytes_.insert(bytes_.end(), begin, begin + sizeof value);
        return *this;
    }
    Packer& operator<<(const std::string& text) {
        *this << text.size();
        const auto* begin = reinterpret_cast<const std::byte*>(text.data());
        bytes_.insert(bytes_.end(), begin, begin + text.size());
        return *this;
    }
    template <typename T> Packer& operator<<(const std::vector<T>& values) {
        *this << values.size();
        for (const T& value : values)
            *this << value;
        return *this;
    }
    template <Struct T> Packer& operator<<(const T& value) {
        with_members(value, [&](const auto&... members) { (*this << ... << members); });
        return *this;
    }
    std::vector<std::byte> take() { return std::move(bytes_); }

  private:
    std::vector<std::byte> bytes_;
};

class Unpacker {
  public:
    explicit Unpacker(std::span<const std::byte> bytes) : rest_(bytes) {}

    template <Plain T> Unpacker& operator>>(T& value) {
        std::memcpy(&value, cut(sizeof value).data(), sizeof value);
        return *this;
    }
    Unpacker& operator>>(std::string& text) {
        std::size_t size = 0;
        *this >> size;
        text = unpack_text(cut(size));
        return *this;
    }
    template <typename T> Unpacker& operator>>(std::vector<T>& values) {
        std::size_t size = 0;
        *this >> size;
        if (size > rest_.size()) throw std::runtime_error(kCutShort); // each takes a byte at least
        values.resize(size);
        for (T& value : values)
            *this >> value;
        return *this;
    }
    template <Struct T> Unpacker& operator>>(T& value) {
        with_members(value, [&](auto&... members) { (*this >> ... >> members); });
        return *this;
    }
    void require_end() const {
        if (!rest_.empty()) throw std::runtime_error("a letter from another replica is longer than it says");
    }

  private:
    static constexpr const char* kCutShort = "a letter from another replica is shorter than it says";

    std::span<const std::byte> cut(std::size_t size) {
        if (size > rest_.size()) throw std::runtime_error(kCutShort);
        const auto part = rest_.first(size);
        rest_ = rest_.subspan(size);
        return part;
    }

    std::span<const std::byte> rest_;
};

template <Struct T> std::vector<std::byte> packed(const T& letter) {
    Packer packer;
    packer << letter;
    return packer.take();
}

template <Struct T> T unpacked(std::span<const std::byte> bytes) {
    T letter;
    Unpacker unpacker(bytes);
    unpacker >> letter;
    unpacker.require_end();
    return letter;
}

} // namespace

std::vector<std::byte> pack(const AskLetter& letter) {
    return packed(letter);
}
std::vector<std::byte> pack(const WorkLetter& letter) {
    return packed(letter);
}
std::vector<std::byte> pack(const Result& letter) {
    return packed(letter);
}
std::vector<std::byte> pack(const FarewellLetter& letter) {
    return packed(letter);
}
AskLetter unpack_ask(std::span<const std::byte> bytes) {
    return unpacked<AskLetter>(bytes);
}
WorkLetter unpack_work(std::span<const std::byte> bytes) {
    return unpacked<WorkLetter>(bytes);
}
Result unpack_result(std::span<const std::byte> bytes) {
    return unpacked<Result>(bytes);
}
FarewellLetter unpack_farewell(std::span<const std::byte> bytes) {
    return unpacked<FarewellLetter>(bytes);
}
std::string unpack_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

} // namespace entrodraft::launch
