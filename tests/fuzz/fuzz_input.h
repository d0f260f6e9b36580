// What the fuzz targets share: their input cut into parts, and files made of them.
//
// A target is one function over bytes: with clang and ENTRODRAFT_FUZZ libFuzzer calls it, elsewhere replay_main.cpp
// calls it for every file of its corpus. What a contract names as thrown is caught; anything else is a finding.
#pragma once

#include "tests/model/temporary_directory.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace entrodraft::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

// Cuts the part before the first line that is only "----" off `rest`; without such a line, all of it.
inline std::string_view next_part(std::string_view& rest) {
    constexpr std::string_view kBorder = "\n----\n";
    const std::size_t at = rest.find(kBorder);
    const std::string_view part = rest.substr(0, at);
    rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + kBorder.size());
    return part;
}

// One directory for all inputs of a process: each overwrites the files of the one before.
inline const TemporaryDirectory& directory() {
    static const TemporaryDirectory made;
    return made;
}

// Uses a value, so that reading it is not optimised away.
template <typename T> inline void use(const T& value) {
    __asm__ volatile("" : : "g"(&value) : "memory");
}

// What no input may bring about.
inline void require(bool holds) {
    if (!holds) __builtin_trap();
}

} // namespace entrodraft::fuzz
