// Loads the heads of tests/model/heads and of the demo target. For tests only.
#pragma once

#include "model/families/read_config.h"
#include "spec/draft/head_texts.h"
#include "tests/model/golden_models.h"
#include "tests/spec/engine_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace entrodraft {

inline std::filesystem::path head_directory(const std::string& name) {
    return source_directory() / "tests/model/heads" / name;
}

// The heads with expected logits.
inline std::vector<std::string> golden_heads() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(head_directory("")))
        if (std::filesystem::exists(entry.path() / "expected.json")) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
}

inline std::string head_target(const std::string& name) {
    return nlohmann::json::parse(std::ifstream(head_directory(name) / "expected.json")).at("target");
}

// The heads whose targets lack nothing: what_needs_cpu() for our kernels on GPUs, what_torch_lacks() for torch.
inline std::vector<std::string> heads_without(decltype(&model::what_needs_cpu) lacking) {
    std::vector<std::string> names = golden_heads();
    std::erase_if(names, [&](const std::string& name) {
        return !lacking(model::read_config(head_directory(head_target(name)))).empty();
    });
    return names;
}

// The heads that the tests' backend can run.
inline std::vector<std::string> golden_heads_here() {
    return on_torch() ? heads_without(model::what_torch_lacks) : golden_heads();
}

// The name of a test with the head of that name.
inline std::string name_of_head(const testing::TestParamInfo<std::string>& head) {
    std::string name = head.param;
    std::ranges::replace(name, '-', '_');
    return name;
}

// A head with its modules, on this rank alone, for a target that was loaded with the same options.
struct LoadedHead {
    LoadedHead(const std::filesystem::path& directory, const std::filesystem::path& target_directory,
               model::ThreadTeam& team, const TestModelOptions& options = {})
        : head(model::read_head(directory, model::read_config(target_directory),
                                model::Checkpoint::open(target_directory))) {
        modules.head = &head;
        for (const model::HeadModule& module : head.modules) {
            decoders.push_back(options.load(module.weights, module.config, options.decoder, alone, team));
            modules.modules.push_back(decoders.back().get());
        }
    }
    LoadedHead(const LoadedHead&) = delete;

    dist::SelfComm alone;
    model::DraftHead head;
    std::vector<std::unique_ptr<model::Decoder>> decoders;
    spec::HeadModules modules;
};

// Requests with prompts of these lengths. An end-of-text token does not end their texts.
inline std::vector<spec::Request> requests_of(std::span<const int> lengths, int vocab_size, double temperature,
                                              int new_tokens) {
    std::vector<spec::Request> requests;
    for (const int length : lengths) {
        spec::Request& request = requests.emplace_back(request_of(varied_tokens(length, vocab_size), new_tokens));
        request.sequence_key = requests.size() - 1;
        request.sampling.temperature = temperature;
        request.sampling.seed = 5;
        request.ignore_eos = true;
    }
    return requests;
}

} // namespace entrodraft
