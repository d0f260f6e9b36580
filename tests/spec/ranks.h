// Ranks that serve together, and their requests: for the tests of engines over ranks only.
#pragma once

#include "tests/dist/session_of_tests.h"
#include "tests/spec/engine_support.h"

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace entrodraft {

// 4 ranks divide the draft's 4 heads, not the target's 6: then the two exchange roles.
struct Ranks {
    dist::DraftPlacement placement = dist::DraftPlacement::colocated;
    std::unique_ptr<dist::Communicator> replica = session_of_tests().split(0);
    std::unique_ptr<dist::Communicator> tp = session_of_tests().split(holds_target() ? 0 : -1); // or null
    std::filesystem::path target = golden_directory(replica->size() == 4 ? "llama-draft" : "llama-target");
    std::filesystem::path draft = golden_directory(replica->size() == 4 ? "llama-target" : "llama-draft");

    bool holds_target() const { return placement != dist::DraftPlacement::dedicated || replica->rank() > 0; }
    bool coordinates() const { return replica->rank() == 0; }
    TestModelOptions options(double timeout_seconds = 60) {
        TestModelOptions options;
        options.tp = tp.get();
        options.decoder.timeout_seconds = timeout_seconds;
        return options;
    }
};

inline std::vector<TokenId> golden_prompt(std::size_t i) {
    return golden_expectations("llama-target").at(i).at("prompt").get<std::vector<TokenId>>();
}

// Prompts of the demo pair by id.
inline std::map<nlohmann::json, std::vector<TokenId>> demo_prompts() {
    std::map<nlohmann::json, std::vector<TokenId>> prompts;
    std::ifstream lines(source_directory() / "model/demo/prompts.jsonl");
    for (std::string line; std::getline(lines, line);) {
        const auto prompt = nlohmann::json::parse(line);
        prompts[prompt.at("id")] = prompt.at("prompt_token_ids").get<std::vector<TokenId>>();
    }
    return prompts;
}

} // namespace entrodraft
