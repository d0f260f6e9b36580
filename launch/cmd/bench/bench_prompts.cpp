// Prompts of a bench: see bench_prompts.h.
#include "launch/cmd/bench/bench_prompts.h"

#include "launch/io/requests.h"
#include "launch/phase.h"

#include <stdexcept>
#include <utility>
#include <variant>

namespace entrodraft::launch {

std::vector<spec::Request> read_all_prompts(const BenchPrompts& wanted, const PromptLimits& limits) {
    std::vector<spec::Request> prompts;
    RequestReader reader(wanted.input, wanted.defaults, limits);
    while (auto item = reader.next()) {
        if (const auto* bad = std::get_if<BadLine>(&*item))
            throw std::runtime_error(wanted.input + " line " + std::to_string(reader.last_number()) + ": " +
                                     bad->error);
        prompts.push_back(std::get<spec::Request>(std::move(*item)));
        if (wanted.max_prompts > 0 && static_cast<int>(prompts.size()) == wanted.max_prompts) break;
    }
    if (prompts.empty()) throw std::runtime_error(wanted.input + ": holds no prompts");
    return prompts;
}

std::vector<spec::Request> read_bench_prompts(dist::Session& session, const ModelPair& models,
                                              const BenchPrompts& wanted, double timeout_seconds) {
    std::vector<spec::Request> prompts;
    in_agreement(session, timeout_seconds, [&] {
        if (models.layout.is_coordinator()) prompts = read_all_prompts(wanted, models.prompt_limits());
    });
    return prompts;
}

} // namespace entrodraft::launch
