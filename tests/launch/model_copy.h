// A copy of a golden checkpoint directory that a test may spoil, removed at its end.
#pragma once

#include "tests/launch/scratch_file.h"

#include <filesystem>
#include <fstream>
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

  private:
    std::filesystem::path path_;
};

} // namespace test
