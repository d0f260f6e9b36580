// What entropy and stop decision cost: see draft_overhead.h.
#include "launch/cmd/bench/draft_overhead.h"

#include "launch/environment.h"
#include "model/buffer.h"
#include "model/cpu/kernels.h"

#include <algorithm>
#include <vector>

namespace entrodraft::launch {

namespace {

constexpr int kTimedTokens = 4;
constexpr int kPairs = 2000;
constexpr int kOverheadWarmUps = 50;

// Drafts kTimedTokens, whatever it thinks of them.
spec::StopRule rule_of(const std::string& name, spec::GainModel& gain) {
    spec::StopRuleOptions options(name);
    options.max_tokens = kTimedTokens;
    if (options.takes("num-draft-tokens")) options.set("num-draft-tokens", kTimedTokens);
    if (options.takes("entropy-threshold")) options.set("entropy-threshold", 1e9);
    return spec::StopRule(options, &gain);
}

// Reads as many bytes as a target pass does, so that a draft finds the caches as a round leaves them.
class TargetTraffic {
  public:
    explicit TargetTraffic(ModelPair& models)
        : team_(*models.team), floats_(models.target->weight_bytes() / sizeof(float) / n_threads()),
          memory_(floats_ * sizeof(float) * n_threads(), model::Pages::huge), sums_(16 * n_threads()) {
        std::fill_n(memory_.as<float>(), memory_.bytes() / sizeof(float), 1.0f);
    }

    void read() {
        team_.run([&](int thread) {
            const auto index = static_cast<std::size_t>(thread);
            sums_[16 * index] +=
                model::kernels::best_kernels().read_sum(memory_.as<float>() + index * floats_, floats_, true);
        });
    }

  private:
    std::size_t n_threads() const { return static_cast<std::size_t>(team_.size()); }

    model::ThreadTeam& team_;
    std::size_t floats_; // of a thread
    model::Buffer memory_;
    std::vector<float> sums_; // a cache line a thread: what is summed must be kept
};

} // namespace

DraftOverhead measure_draft_overhead(ModelPair& models, const spec::Request& prompt, const std::string& rule) {
    spec::Request request = prompt;
    request.sampling = {};
    request.ignore_eos = true;
    const spec::DraftLimits limits = models.draft_limits();
    const std::unique_ptr<spec::Drafter> drafter = spec::make_chain_drafter(
        spec::make_model_source(*models.drafts.front(), limits.vocab_size), {limits, models.clock});
    drafter->begin_sequence(0, request);
    drafter->prefill(0, request.prompt);
    spec::GainModel everything_pays({kTimedTokens, 0, spec::Costs{0, {1}}});
    spec::StopRule without = rule_of("constant", everything_pays);
    spec::StopRule with = rule_of(rule, everything_pays);
    spec::Draft draft;
    TargetTraffic traffic(models);
    const auto time = [&](spec::StopRule& timed) {
        traffic.read();
        const double begin = models.clock.now_seconds();
        drafter->propose({0, request.prompt, kTimedTokens, &request, {}, &timed, &draft});
        return (models.clock.now_seconds() - begin) / kTimedTokens;
    };
    std::vector<double> ratios, steps;
    for (int pair = 0; pair < kOverheadWarmUps + kPairs; ++pair) {
        const bool with_first = pair % 2 == 0;
        const double first = time(with_first ? with : without);
        const double second = time(with_first ? without : with);
        if (pair < kOverheadWarmUps) continue;
        ratios.push_back(with_first ? first / second : second / first);
        steps.push_back(with_first ? second : first);
    }
    return {rule, 100 * (quantiles_of(ratios).median - 1), quantiles_of(steps).median, kPairs};
}

} // namespace entrodraft::launch
