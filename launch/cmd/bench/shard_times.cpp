// Timing shards by themselves: see shard_times.h.
#include "launch/cmd/bench/shard_times.h"

#include "dist/shard.h"
#include "launch/cmd/bench/pass_timer.h"
#include "launch/environment.h"
#include "launch/failure.h"
#include "launch/model_directory.h"
#include "model/cpu/decoder.h"
#include "model/cpu/roofline.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::launch {

namespace {

// The first of `size` ranks, whose others are not there: sums are its own part, which changes what comes out of a pass
// and not what it costs.
class AbsentRanks final : public dist::Communicator {
  public:
    explicit AbsentRanks(int size) : size_(size) {}
    int rank() const override { return 0; }
    int size() const override { return size_; }
    std::string name() const override { return "absent"; }
    void start_all_reduce_sum(void*, std::size_t, dist::ElementType) override {}
    void start_broadcast(void*, std::size_t, int) override {}
    void start_gather(const void*, void*, std::size_t, int) override {}
    void wait(dist::Deadline) override {}

  private:
    int size_;
};

double median_pass(PassTimer& target, PassTimer* draft, int repetitions) {
    constexpr int kShardWarmUps = 20;
    std::vector<double> samples;
    for (int i = 0; i < kShardWarmUps + repetitions; ++i) {
        const double seconds = target.time(1);
        if (i >= kShardWarmUps) samples.push_back(seconds);
        for (int step = 0; draft != nullptr && step < PassTimer::kDraftRun; ++step)
            draft->time(1);
    }
    return quantiles_of(std::move(samples)).median;
}

ShardTime time_shard(ModelPair& models, const model::Checkpoint& checkpoint, const ShardPlan& plan, int of) {
    AbsentRanks others(of);
    model::DecoderOptions options;
    options.weight_type = models.target_type;
    options.capacity = models.target_config.max_positions;
    const std::unique_ptr<model::Decoder> shard =
        model::load_cpu_decoder(checkpoint, models.target_config, options, others, *models.team);
    const auto bytes = static_cast<double>(shard->weight_bytes());
    ShardTime time;
    time.of = of;
    time.limit = std::max(bytes / model::read_rate(*models.team, shard->weight_bytes()),
                          shard->operations_per_row() / model::arithmetic_peak(*models.team));
    PassTimer target(*shard, models.clock, plan.context);
    time.alone = time.beside_draft = median_pass(target, nullptr, plan.repetitions);
    if (models.drafts.empty()) return time;
    PassTimer draft(*models.drafts.front(), models.clock, plan.context);
    time.beside_draft = median_pass(target, &draft, plan.repetitions);
    models.drafts.front()->cache().truncate(PassTimer::kSlot, 0);
    return time;
}

} // namespace

void require_one_rank_for(const std::vector<int>& shards, int n_ranks) {
    if (!shards.empty() && n_ranks > 1)
        throw BadOption("--shards times shards by themselves: start one rank, not " + std::to_string(n_ranks));
}

void require_heads_for(const std::vector<int>& shards, const model::ModelConfig& config) {
    for (const int of : shards) {
        try {
            dist::head_shard(config.n_heads, config.n_kv_heads, 0, of);
        } catch (const std::invalid_argument& error) {
            throw BadOption("--shards " + std::to_string(of) + ": " + error.what());
        }
    }
}

std::vector<ShardTime> time_shards(ModelPair& models, const ShardPlan& plan) {
    std::vector<ShardTime> times;
    if (plan.of.empty()) return times;
    const auto checkpoint = model::Checkpoint::open(resolve_model_directory(plan.target, "--target"));
    for (const int of : plan.of)
        times.push_back(time_shard(models, checkpoint, plan, of));
    return times;
}

std::string to_text(const std::vector<ShardTime>& shards) {
    if (shards.empty()) return "";
    std::vector<std::vector<std::string>> table = {{"a shard by itself", "median ms", "without a draft", "limit"}};
    for (const ShardTime& shard : shards)
        table.push_back({"of " + std::to_string(shard.of), format_number(shard.beside_draft * 1e3, 4),
                         format_number(shard.alone * 1e3, 4), format_number(shard.limit * 1e3, 4)});
    std::string text = "\n";
    return text += format_table(table);
}

} // namespace entrodraft::launch
