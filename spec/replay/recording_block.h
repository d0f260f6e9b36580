// Packs and unpacks the blocks of recordings: JSON and columns of numbers, compressed and checked. Private to
// recording.cpp.
//
// It does not know the meaning of the columns.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace entrodraft::spec {

// Makes a block.
class BlockWriter {
  public:
    nlohmann::ordered_json json;

    void add(const std::string& name, const std::vector<std::int32_t>& values) { add(name, "i32", values); }
    void add(const std::string& name, const std::vector<float>& values) { add(name, "f32", values); }
    // The block's bytes for the file. Throws std::runtime_error if the block is too large.
    std::string finish();

  private:
    template <typename T> void add(const std::string& name, const char* type, const std::vector<T>& values);

    std::string columns_;
};

// Reads a block of a file.
class BlockReader {
  public:
    // Reads the block at the beginning of `bytes`. `length` becomes its length there, or 0 if it is torn, which means
    // cut off before its end. Throws std::runtime_error if it is not a block.
    BlockReader(std::string_view bytes, std::size_t& length);

    nlohmann::json json;

    bool has(const std::string& name) const;
    // Throw std::runtime_error if there is no such column of that type.
    void read(const std::string& name, std::vector<std::int32_t>& values) const { read(name, "i32", values); }
    void read(const std::string& name, std::vector<float>& values) const { read(name, "f32", values); }

  private:
    template <typename T> void read(const std::string& name, const char* type, std::vector<T>& values) const;
    void check_columns(std::size_t bytes);

    std::string unpacked_;
    std::size_t columns_at_ = 0;
};

// Returns whether a whole block begins anywhere in these bytes: then the end of the file cut off nothing before it.
bool holds_block(std::string_view bytes);

} // namespace entrodraft::spec
