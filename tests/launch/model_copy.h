// A copy of a golden checkpoint directory that a test may spoil, removed at its end.
#pragma once

#include "tests/launch/scratch_file.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace test {

class ModelCopy {
  public:
    explicit ModelCopy(const std::string& original) : path_(ScratchFile("").path() + "-model") {
        std::filesystem::copy(original, path_, std::filesystem::copy_options::recursive);
    }
    ~ModelCopy() { std::filesystem::remove_all(path_); }
    ModelCopy(const ModelCopy&) = delete;
    ModelCopy& operator=(const ModelCopy&) = delete;

    std::string path() const { return path_.string(); }
    std::string file(const std::string& name) const { return (path_ / name).string(); }
    void set_in_config(const std::string& field, const nlohmann::ordered_json& value) const {
        nlohmann::ordered_json config = nlohmann::ordered_json::parse(std::ifstream(file("config.json")));
        config[field] = value;
        std::ofstream(file("config.json")) << config;
    }
    // Flips a bit of a byte that many from the end of the weights.
    void flip_bit_before_end(std::streamoff distance) const {
        std::fstream weights(file("model.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
        weights.seekg(-distance, std::ios::end);
        const int byte = weights.get();
        weights.seekp(-distance, std::ios::end);
        weights.put(static_cast<char>(byte ^ 1));
    }

    // The first number of a row of a matrix of float32 becomes NaN.
    void spoil_row(const std::string& tensor, std::int64_t row) const {
        std::fstream weights(file("model.safetensors"), std::ios::in | std::ios::out | std::ios::binary);
        std::uint64_t size = 0;
        weights.read(reinterpret_cast<char*>(&size), sizeof size); // NOLINT: as bytes
        std::string header(size, ' ');
        weights.read(header.data(), static_cast<std::streamsize>(size));
        const auto described = nlohmann::json::parse(header).at(tensor);
        const auto at = static_cast<std::int64_t>(sizeof size + size) +
                        described["data_offsets"][0].get<std::int64_t>() +
                        row * described["shape"][1].get<std::int64_t>() * 4;
        const float nan = std::numeric_limits<float>::quiet_NaN();
        weights.seekp(at);
        weights.write(reinterpret_cast<const char*>(&nan), sizeof nan); // NOLINT
    }

  private:
    std::filesystem::path path_;
};

} // namespace test
