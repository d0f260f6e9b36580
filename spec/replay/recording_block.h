// The blocks that recordings are made of: JSON and columns of numbers, compressed and checked. Private to
// recording.cpp.
//
// Knows nothing of what the columns mean.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::spec {

// A block being made.
class BlockWriter {
  public:
    nlohmann::ordered_json json;

    void add(const std::string& name, const std::vector<std::int32_t>& values) { add(name, "i32", values); }
    void add(const std::string& name, const std::vector<float>& values) { add(name, "f32", values); }
    // The block's bytes as they go into the file. Throws std::runtime_error where it is too large.
    std::string finish();

  private:
    template <typename T> void add(const std::string& name, const char* type, const std::vector<T>& values);

    std::string columns_;
};

// A block of a file.
class BlockReader {
  public:
    // The block at the beginning of `bytes`; its length in them goes to `length`, 0 where it is torn: cut off before
    // its end. Throws std::runtime_error where it is no block.
    BlockReader(std::string_view bytes, std::size_t& length);

    nlohmann::json json;

    bool has(const std::string& name) const;
    // Throw std::runtime_error where there is no such column of that type.
    void read(const std::string& name, std::vector<std::int32_t>& values) const { read(name, "i32", values); }
    void read(const std::string& name, std::vector<float>& values) const { read(name, "f32", values); }

  private:
    template <typename T> void read(const std::string& name, const char* type, std::vector<T>& values) const;
    void check_columns(std::size_t bytes);

    std::string unpacked_;
    std::size_t columns_at_ = 0;
};

// Whether a whole block begins anywhere in these bytes: then nothing before it was cut off by the end of a file.
bool holds_block(std::string_view bytes);

} // namespace entrodraft::spec
