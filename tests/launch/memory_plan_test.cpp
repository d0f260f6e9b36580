// What fits a host, in words where it does not, and what a system says of its memory.
#include "launch/load/memory_plan.h"
#include "launch/load/placed_pair.h"
#include "model/families/read_config.h"
#include "model/footprint/inspection.h"
#include "tests/model/temporary_directory.h"

#include <fstream>
#include <gtest/gtest.h>

namespace memory_plan_test {

using namespace entrodraft;
using namespace entrodraft::launch;
namespace fs = std::filesystem;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

RankMemory rank_on(std::uint64_t host, std::uint64_t available) {
    return {host, 4 * kGiB, 8 * kGiB, kGiB, kGiB, available};
}

TEST(MemoryPlan, RanksOfAGpuShareItsMemory) {
    RankMemory rank = rank_on(1, 25 * kGiB);
    rank.is_gpu = true;
    const std::string why = why_too_little_memory(std::vector{rank, rank}, {1, 4096});
    EXPECT_NE(why.find("the 2 ranks of a GPU need 26.00 GiB"), std::string::npos) << why;
    EXPECT_NE(why.find("more GPUs"), std::string::npos) << why;
}

TEST(MemoryPlan, RanksOfAHostShareItsMemory) {
    const CacheShape cache = {1, 4096};
    EXPECT_EQ(why_too_little_memory(std::vector{rank_on(1, 13 * kGiB)}, cache), "");
    EXPECT_NE(why_too_little_memory(std::vector{rank_on(1, 13 * kGiB - 1)}, cache), "");
    EXPECT_NE(why_too_little_memory(std::vector{rank_on(1, 20 * kGiB), rank_on(1, 20 * kGiB)}, cache), "");
    EXPECT_EQ(why_too_little_memory(std::vector{rank_on(1, 26 * kGiB), rank_on(1, 26 * kGiB)}, cache), "");
    EXPECT_EQ(why_too_little_memory(std::vector{rank_on(1, 13 * kGiB), rank_on(2, 13 * kGiB)}, cache), "");
    EXPECT_NE(why_too_little_memory(std::vector{rank_on(1, 40 * kGiB), rank_on(2, 12 * kGiB)}, cache), "");
}

TEST(MemoryPlan, SaysTheNumbersAndWhatWouldFit) {
    EXPECT_EQ(why_too_little_memory(std::vector{rank_on(1, 20 * kGiB), rank_on(1, 20 * kGiB)}, {4, 4096}),
              "not enough memory: the 2 ranks of a host need 26.00 GiB (weights 8.00 GiB, KV cache of 4 sequences of "
              "4,096 positions 16.00 GiB, buffers 2.00 GiB), and it has 20.00 GiB left: give --max-context 2560 or "
              "less, lower --batch-size, or take a smaller --dtype, fewer --replicas or more hosts");
    RankMemory mostly_buffers = rank_on(1, 6 * kGiB); // which grow with the positions: 8 + 7 GiB of them
    mostly_buffers.buffer_bytes = 7 * kGiB;
    mostly_buffers.min_buffer_bytes = 0;
    EXPECT_NE(why_too_little_memory(std::vector{mostly_buffers}, {1, 1500}).find("give --max-context 192 or less"),
              std::string::npos);
    RankMemory ahead = rank_on(1, 3 * kGiB), other = rank_on(2, 3 * kGiB);
    ahead.drafts_ahead = true;
    const auto names_ahead = [](const std::vector<RankMemory>& ranks) {
        return why_too_little_memory(ranks, {1, 4096}).find("left: lower --draft-ahead, take") != std::string::npos;
    };
    EXPECT_TRUE(names_ahead({ahead, rank_on(1, 3 * kGiB)}));
    EXPECT_FALSE(names_ahead({other, ahead})) << "the other host has too little";
    const std::string no_room = why_too_little_memory(std::vector{rank_on(1, 3 * kGiB)}, {1, 4096});
    EXPECT_NE(no_room.find("the rank of a host needs 13.00 GiB"), std::string::npos) << no_room;
    EXPECT_NE(no_room.find("3.00 GiB left: take a smaller --dtype"), std::string::npos) << no_room;
}

TEST(MemoryPlan, WhatIsNotKnownRefusesNothing) {
    EXPECT_EQ(why_too_little_memory(std::vector{rank_on(1, kNotKnown)}, {1, 4096}), "");
}

TEST(MemoryPlan, ARankTakesWhatInspectSaysOfEachModelItHolds) {
    model::ModelConfig config = model::read_config(ENTRODRAFT_SOURCE_DIR "/tests/model/golden/llama-target");
    const auto needs = [&](int ranks, int rank, int positions) {
        return needs_of(config, {ranks, 3, 2, positions, model::WeightType::bfloat16}, rank);
    };
    const HeldModel whole = {&config, model::WeightType::bfloat16, 1, 0};
    const HeldModel half = {&config, model::WeightType::bfloat16, 2, 1};
    const RankMemory memory = memory_of(std::vector{whole, half}, 3, {2, 64});
    EXPECT_EQ(memory.total_bytes(), needs(1, 0, 64).total_bytes() + needs(2, 1, 64).total_bytes());
    EXPECT_EQ(memory.cache_bytes, needs(1, 0, 64).cache_bytes + needs(2, 1, 64).cache_bytes);
    EXPECT_EQ(memory_of(std::vector{whole}, 3, {2, 1 << 30}).cache_bytes,
              needs(1, 0, config.max_positions).cache_bytes); // no more than the model has
    EXPECT_EQ(memory.min_buffer_bytes, needs(1, 0, 1).activation_bytes + needs(2, 1, 1).activation_bytes);
    EXPECT_EQ(memory_of({}, 3, {2, 64}).total_bytes(), 0u);

    EXPECT_FALSE(memory.drafts_ahead);
    HeldModel beside = whole;
    beside.beside = 4;
    EXPECT_TRUE(memory_of(std::vector{half, beside}, 3, {1, 64}).drafts_ahead);
    EXPECT_EQ(memory_of(std::vector{beside}, 3, {1, 64}).cache_bytes,
              needs_of(config, {1, 3, 5, 64, model::WeightType::bfloat16}, 0).cache_bytes);

    HeldModel self = whole;
    self.kept_positions = 32;
    self.shares_weights = true;
    const RankMemory both = memory_of(std::vector{whole, self}, 3, {2, 64});
    EXPECT_EQ(both.weight_bytes, needs(1, 0, 64).weight_bytes);
    EXPECT_EQ(both.cache_bytes, needs(1, 0, 64).cache_bytes + needs(1, 0, 32).cache_bytes);
    const RankMemory with_trees = memory_of(std::vector{whole, self}, 3, {2, 64, 0, 48});
    EXPECT_EQ(with_trees.cache_bytes, needs(1, 0, 64 + 48).cache_bytes + needs(1, 0, 32 + 48).cache_bytes);

    self.has_chunks = true; // a mean key of float32 for eight positions: as much as a position of float16
    const RankMemory chunks = memory_of(std::vector{whole, self}, 3, {2, 256});
    EXPECT_EQ(chunks.cache_bytes, needs(1, 0, 256).cache_bytes + needs(1, 0, 32 + 32).cache_bytes);
    self.shares_weights = false;
    EXPECT_EQ(memory_of(std::vector{self}, 3, {2, 256}).cache_bytes, needs(1, 0, 32 + 256 + 32).cache_bytes);
    self.type = model::WeightType::float32; // as half a position of float32
    EXPECT_EQ(memory_of(std::vector{self}, 3, {2, 256}).cache_bytes,
              needs_of(config, {1, 3, 2, 32 + 256 + 16}, 0).cache_bytes);
}

// ---- what a system says ----

class System {
  public:
    void put(const std::string& file, const std::string& text) const {
        fs::create_directories((directory_.path() / file).parent_path());
        std::ofstream(directory_.path() / file) << text;
    }
    std::uint64_t available() const { return available_memory_bytes(directory_.path()); }

  private:
    TemporaryDirectory directory_;
};

TEST(AvailableMemory, IsWhatTheHostHasWhereNothingLimitsIt) {
    System system;
    EXPECT_EQ(system.available(), kNotKnown);
    system.put("proc/meminfo", "MemTotal: 900 kB\nMemFree: 100 kB\nMemAvailable:      700 kB\n");
    EXPECT_EQ(system.available(), 700u * 1024);
    system.put("proc/self/cgroup", "0::/\n");
    EXPECT_EQ(system.available(), 700u * 1024);
    system.put("sys/fs/cgroup/memory.max", "max\n");
    system.put("sys/fs/cgroup/memory.current", "1000\n");
    EXPECT_EQ(system.available(), 700u * 1024);
}

TEST(AvailableMemory, IsLimitedByTheControlGroupAndThoseAboveIt) {
    System system;
    system.put("proc/meminfo", "MemAvailable: 700 kB\n");
    system.put("proc/self/cgroup", "0::/job/step\n");
    system.put("sys/fs/cgroup/job/step/memory.max", "max\n");
    system.put("sys/fs/cgroup/job/memory.max", "500000\n");
    system.put("sys/fs/cgroup/job/memory.current", "200000\n");
    EXPECT_EQ(system.available(), 300000u);
    system.put("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 50000\n"); // pages of files go when need be
    EXPECT_EQ(system.available(), 350000u);
    system.put("sys/fs/cgroup/job/step/memory.max", "100000\n");
    system.put("sys/fs/cgroup/job/step/memory.current", "120000\n");
    EXPECT_EQ(system.available(), 0u);
}

TEST(AvailableMemory, ControlGroupsOfVersionOneCountToo) {
    System system;
    system.put("proc/meminfo", "MemAvailable: 700 kB\n");
    system.put("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/slurm/job_7\n0::/\n");
    system.put("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "400000\n");
    system.put("sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", "100000\n");
    system.put("sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "9223372036854771712\n");
    system.put("sys/fs/cgroup/memory/slurm/memory.usage_in_bytes", "100000\n");
    EXPECT_EQ(system.available(), 300000u);
}

// A draft's file of many bits is rounded to four on CPUs, and others where that is asked for.
TEST(HeldDraft, IsRoundedAgainOnCpusAlone) {
    model::ModelConfig config;
    config.quantization = model::Quantization{.form = model::QuantizedForm::blocks, .memory_bits = 6.3};
    const HeldDraft many = held_draft(config, {}, true);
    EXPECT_EQ(many.type, model::WeightType::int4);
    EXPECT_FALSE(many.config.quantization);
    EXPECT_TRUE(held_draft(config, {}, false).config.quantization);
    EXPECT_TRUE(held_draft(config, model::WeightType::float32, true).config.quantization);
    config.quantization->form = model::QuantizedForm::mxfp4; // which are loaded in no other way
    EXPECT_TRUE(held_draft(config, model::WeightType::int4, true).config.quantization);
    config.quantization->form = model::QuantizedForm::blocks;
    config.quantization->memory_bits = 4.6;
    const HeldDraft few = held_draft(config, {}, true);
    EXPECT_EQ(few.type, config.stored_type);
    EXPECT_TRUE(few.config.quantization);
    EXPECT_FALSE(held_draft(config, model::WeightType::int8, true).config.quantization);
}

} // namespace memory_plan_test
