// inspect on the shapes of public checkpoints, made up as sparse files, and its arithmetic against what decoders hold.
#include "launch/load/opened_model.h"
#include "model/cpu/weights.h"
#include "model/families/names.h"
#include "model/families/read_config.h"
#include "model/files/checkpoint.h"
#include "model/footprint/inspection.h"
#include "model/pass/kv_cache.h"
#include "model/weights/layer_plan.h"
#include "model/weights/tensor_shapes.h"
#include "tests/launch/scratch_file.h"
#include "tests/model/temporary_directory.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <vector>

namespace inspect_test {

using namespace entrodraft;
using Json = nlohmann::json;
using test::ScratchFile;
namespace fs = std::filesystem;

const std::string kShapes = ENTRODRAFT_SOURCE_DIR "/tests/launch/public_shapes";
const std::string kGolden = ENTRODRAFT_SOURCE_DIR "/tests/model/golden";

// Parameters as published, tied heads counted once.
const std::map<std::string, std::int64_t> kPublished = {
    {"opt-125m", 125239296},      {"opt-350m", 331196416},        {"opt-1.3b", 1315758080},
    {"opt-2.7b", 2651596800},     {"opt-6.7b", 6658473984},       {"opt-13b", 12853473280},
    {"opt-30b", 29974540288},     {"opt-66b", 65719701504},       {"pythia-70m", 70426624},
    {"pythia-160m", 162322944},   {"pythia-410m", 405334016},     {"pythia-1b", 1011781632},
    {"pythia-1.4b", 1414647808},  {"pythia-2.8b", 2775208960},    {"pythia-6.9b", 6857302016},
    {"pythia-12b", 11846072320},  {"llama-2-7b", 6738415616},     {"llama-2-13b", 13015864320},
    {"llama-2-70b", 68976648192}, {"llama-3-8b", 8030261248},     {"llama-3-70b", 70553706496},
    {"llama-3.1-8b", 8030261248}, {"llama-3.1-70b", 70553706496}, {"llama-3.2-1b", 1235814400},
    {"falcon-7b", 6921720704},    {"falcon-40b", 41303293952},    {"qwen2.5-0.5b", 494032768},
    {"qwen2.5-1.5b", 1543714304}, {"qwen2.5-3b", 3085938688},     {"qwen2.5-7b", 7615616512},
    {"qwen2.5-14b", 14770033664}, {"qwen2.5-32b", 32763876352},   {"qwen2.5-72b", 72706203648},
    {"gpt2", 124439808},          {"gpt2-medium", 354823168},     {"gpt2-large", 774030080},
    {"gpt2-xl", 1557611200},      {"mistral-7b", 7241732096},     {"qwen3-8b", 8190735360},
    {"gemma-2b", 2506172416},     {"gemma-2-9b", 9241705984},     {"phi-2", 2779683840},
    {"phi-4-mini", 3836021760},   {"gpt-oss-20b", 20914757184},   {"gpt-oss-120b", 116829156672},
};

Json read_json(const fs::path& file) {
    return Json::parse(std::ifstream(file));
}

std::size_t bytes_of_type(const std::string& dtype) {
    return dtype == "F32" ? 4 : dtype == "U8" ? 1 : 2;
}

// A safetensors file of these tensors whose data nobody has written: it takes no room.
void write_sparse(const fs::path& file, const std::vector<Json>& tensors) {
    Json header = Json::object();
    std::uint64_t end = 0;
    for (const Json& tensor : tensors) { // [name, dtype, shape]
        std::uint64_t bytes = bytes_of_type(tensor[1]);
        for (const Json& dim : tensor[2])
            bytes *= dim.get<std::uint64_t>();
        header[tensor[0].get<std::string>()] = {
            {"dtype", tensor[1]}, {"shape", tensor[2]}, {"data_offsets", {end, end + bytes}}};
        end += bytes;
    }
    const std::string text = header.dump();
    const std::uint64_t length = text.size();
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << text;
    out.close();
    fs::resize_file(file, sizeof length + length + end);
}

// The checkpoint directory of a public shape, in so many files as the hub might have.
void expand(const std::string& name, const fs::path& directory) {
    const Json shapes = read_json(kShapes + "/" + name + ".json");
    std::ofstream(directory / "config.json") << shapes["config"];
    std::vector<Json> tensors;
    const auto add = [&](const std::string& tensor, const Json& dtype, const Json& shape) {
        const std::size_t at = tensor.find("{i}");
        const int count = at == std::string::npos ? 1 : shapes["layers"].get<int>();
        for (int i = 0; i < count; ++i) {
            std::string numbered = tensor;
            if (at != std::string::npos) numbered.replace(at, 3, std::to_string(i));
            tensors.push_back({numbered, dtype, shape});
        }
    };
    for (const Json& tensor : shapes["tensors"])
        add(tensor[0], shapes["dtype"], tensor[1]);
    for (const Json& extra : shapes["extras"])
        add(extra[0], extra[1], extra[2]);
    constexpr std::int64_t kParametersOfFile = 2500000000;
    const auto n_files = static_cast<std::size_t>(kPublished.at(name) / kParametersOfFile + 1);
    if (n_files == 1) return write_sparse(directory / "model.safetensors", tensors);
    Json index = {{"weight_map", Json::object()}};
    for (std::size_t i = 0; i < n_files; ++i) {
        const std::vector<Json> part(tensors.begin() + static_cast<std::ptrdiff_t>(i * tensors.size() / n_files),
                                     tensors.begin() + static_cast<std::ptrdiff_t>((i + 1) * tensors.size() / n_files));
        const std::string file = "model-" + std::to_string(i) + ".safetensors";
        write_sparse(directory / file, part);
        for (const Json& tensor : part)
            index["weight_map"][tensor[0].get<std::string>()] = file;
    }
    std::ofstream(directory / "model.safetensors.index.json") << index;
}

struct Ended {
    int code = -1;
    std::string out, err;
};

Ended inspect(const std::string& arguments) {
    const ScratchFile out(""), err("");
    const int status = std::system(
        ("timeout 120 " ENTRODRAFT_BINARY " inspect " + arguments + " > " + out.path() + " 2> " + err.path()).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, out.text(), err.text()};
}

TEST(Inspect, SizesOfPublicShapesMatchThePublishedCounts) {
    for (const auto& [name, published] : kPublished) {
        SCOPED_TRACE(name);
        const TemporaryDirectory directory;
        expand(name, directory.path());
        const model::ModelConfig config = model::read_config(directory.path());
        EXPECT_EQ(model::parameter_count(config), published);
        const model::Checkpoint checkpoint = model::Checkpoint::open(directory.path());
        EXPECT_NO_THROW(model::check_shapes(config, checkpoint));
        EXPECT_EQ(read_json(kShapes + "/" + name + ".json")["parameters"], published);
        model::RunShape run;
        run.length = 1;
        const auto bytes = static_cast<double>(needs_of(config, run, 0).weight_bytes); // packed: in whole units
        EXPECT_NEAR(bytes / (4 * static_cast<double>(published)), 1, 0.01);
    }
}

TEST(Inspect, EveryPublicShapeIsInTheTable) {
    std::size_t n_files = 0;
    for (const auto& entry : fs::directory_iterator(kShapes)) {
        EXPECT_TRUE(kPublished.contains(entry.path().stem().string())) << entry.path();
        ++n_files;
    }
    EXPECT_EQ(n_files, kPublished.size());
}

TEST(Inspect, HeadersOfSeventyBillionParametersTakeLessThanASecond) {
    const TemporaryDirectory directory;
    expand("llama-3-70b", directory.path());
    const Ended ended = inspect("--model " + directory.path().string() + " --tensor-parallel 8 --memory 24GiB --json");
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json json = Json::parse(ended.out);
    EXPECT_EQ(json["schema_version"], 1);
    EXPECT_LT(json["model"]["weights"]["header_seconds"].get<double>(), 1.0);
    EXPECT_EQ(json["model"]["weights"]["files"], 29);
    EXPECT_EQ(json["ranks"].size(), 8u);
    EXPECT_EQ(json["ranks"][7]["kv_heads"], Json({7, 8}));
    EXPECT_EQ(json["all_reduces_a_row"]["count"], 161);
    EXPECT_EQ(json["all_reduces_a_row"]["bytes"], 161 * 8192 * 4);
    EXPECT_EQ(json["fits"], true);
    EXPECT_EQ(json["longest_length"], 8192);
    EXPECT_TRUE(json["model"]["tokenizer"].contains("error"));
}

TEST(Inspect, AConfigAloneIsEnoughToReckonWith) {
    const TemporaryDirectory directory;
    std::ofstream(directory.path() / "config.json") << read_json(kShapes + "/falcon-7b.json")["config"];
    const Ended ended = inspect("--model " + directory.path().string() + " --tensor-parallel 4");
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_NE(ended.out.find("6,921,720,704"), std::string::npos);
    EXPECT_NE(ended.out.find("(copies)"), std::string::npos); // its one KV head
    EXPECT_NE(ended.out.find("neither model.safetensors nor"), std::string::npos);
}

TEST(Inspect, BrokenWeightsAreNamedAfterEverythingElse) {
    const TemporaryDirectory directory;
    std::ofstream(directory.path() / "config.json") << read_json(kShapes + "/gpt2.json")["config"];
    directory.write("model.safetensors", "short");
    const Ended ended = inspect("--model " + directory.path().string());
    EXPECT_EQ(ended.code, 1);
    EXPECT_NE(ended.out.find("124,439,808"), std::string::npos);
    EXPECT_NE(ended.err.find("model.safetensors"), std::string::npos);
}

TEST(Inspect, SaysWhetherADraftFits) {
    const std::string target = "--model " + kGolden + "/llama-target --json --draft ";
    const Json pair = Json::parse(inspect(target + kGolden + "/llama-draft").out);
    EXPECT_EQ(pair["pair"]["possible"], true);
    EXPECT_GT(pair["ranks"][0]["draft_bytes"].get<int>(), 0);
    const Json none = Json::parse(inspect(target + ENTRODRAFT_SOURCE_DIR "/model/demo/draft").out);
    EXPECT_EQ(none["pair"]["possible"], true);
    EXPECT_EQ(none["pair"]["target_tokens"], 512);
    EXPECT_EQ(none["pair"]["draft_tokens"], 4096);
    EXPECT_GT(none["pair"]["shared_tokens"], 256);
    EXPECT_LE(none["pair"]["shared_tokens"], 512);
    const Json source = Json::parse(
        inspect("--model " ENTRODRAFT_SOURCE_DIR "/model/demo/t5/target --json --draft " + kGolden + "/llama-draft")
            .out);
    EXPECT_EQ(source["pair"]["possible"], false);
    EXPECT_NE(source["pair"]["why_not"].get<std::string>().find("different vocabularies"), std::string::npos);
}

TEST(Inspect, SaysWhatAHeadReadsAndHolds) {
    const std::string demo = ENTRODRAFT_SOURCE_DIR "/model/demo/";
    const std::string target = "--model " + demo + "target --json ";
    const Json alone = Json::parse(inspect(target).out);
    const Json both = Json::parse(inspect(target + "--head " + demo + "eagle3").out);
    EXPECT_EQ(both["pair"]["possible"], true);
    EXPECT_FALSE(both["pair"].contains("doubt"));
    EXPECT_EQ(both["head"]["format"], "eagle3");
    EXPECT_EQ(both["head"]["target_layers"].size(), 3U);
    EXPECT_GT(both["ranks"][0]["draft_bytes"].get<int>(), 0);
    const auto cache_of = [](const Json& of, std::int64_t positions) {
        return of["ranks"][0]["kv_cache_bytes"].get<std::int64_t>() / positions;
    };
    const std::int64_t length = alone["run"]["length"], with_tree = length + 127; // of a round's tree, in whole blocks
    EXPECT_EQ(cache_of(both, (with_tree + 15) / 16 * 16), cache_of(alone, length));
    const Json medusa = Json::parse(inspect(target + "--head " + demo + "medusa").out);
    EXPECT_EQ(medusa["head"]["modules"], medusa["head"]["max_tokens"]);
    const std::string heads = ENTRODRAFT_SOURCE_DIR "/tests/model/heads/";
    const auto of_small = [&](const std::string& name) {
        return inspect("--model " + heads + "target --head " + heads + name).out;
    };
    EXPECT_NE(of_small("falcon").find("any number of tokens, 2 a pass"), std::string::npos) << of_small("falcon");
    EXPECT_NE(of_small("blockwise").find("at most 4 tokens"), std::string::npos) << of_small("blockwise");
    const Json none = Json::parse(inspect(target + "--head " + kGolden + "/../heads/eagle3").out);
    EXPECT_EQ(none["pair"]["possible"], false);
    EXPECT_EQ(inspect(target + "--head " + demo + "eagle3 --draft " + demo + "draft").code, 2);
}

TEST(Inspect, OptionsThatCannotBeHonouredExitTwo) {
    const std::string model = "--model " + kGolden + "/llama-target ";
    for (const std::string bad : {"--memory 5xB", "--memory GiB", "--tensor-parallel 1000", "--length 100000000",
                                  "--draft-dtype float32", "--dtype int3"})
        EXPECT_EQ(inspect(model + bad).code, 2) << bad;
    EXPECT_EQ(inspect("").code, 2);
    EXPECT_EQ(inspect("--model /dev/null/nonexistent").code, 2);
}

std::uint64_t bytes_held(const model::ModelWeights& weights) {
    std::uint64_t bytes = 0;
    const auto add = [&](const model::ShardedLinear& linear) { bytes += linear.matrix().bytes(); };
    weights.outer.each_matrix(add);
    for (const model::HeldWeights& layer : weights.layers)
        layer.each_matrix(add);
    return bytes;
}

TEST(Needs, WeightsAndCacheAreThoseThatADecoderHolds) {
    const model::ModelConfig config = model::read_config(kGolden + "/llama-target");
    const model::Checkpoint checkpoint = model::Checkpoint::open(kGolden + "/llama-target");
    model::ThreadTeam team(1);
    for (const model::WeightType type :
         {model::WeightType::float32, model::WeightType::bfloat16, model::WeightType::int8})
        for (const int rank : {0, 1}) {
            model::RunShape run;
            run.ranks = 2;
            run.batch = 3;
            run.length = 33;
            run.type = type == model::WeightType::int8 ? model::WeightType::float32 : type;
            run.kv_type = type;
            const model::RankNeeds needs = needs_of(config, run, rank);
            const model::ModelWeights weights(checkpoint, config, needs.shard, {.weight_type = run.type}, team);
            std::uint64_t bytes =
                bytes_held(weights) + static_cast<std::uint64_t>(float_count(config, needs.shard)) * sizeof(float);
            EXPECT_EQ(needs.weight_bytes, bytes);
            const int heads = config.n_layers * needs.shard.n_kv_heads();
            EXPECT_EQ(needs.cache_bytes, model::KvCache::bytes_of_position(type, config.head_dim, config.head_dim) *
                                             static_cast<std::size_t>(heads) * 48 * 3);
        }
}

TEST(Inspect, CountsKeysAndValuesInTheirType) {
    const std::string of = "--model " + kGolden + "/llama-target --length 64 --json ";
    const auto bytes_of = [&](const std::string& type) {
        const Json found = Json::parse(inspect(of + "--kv-dtype " + type).out);
        return std::pair(found["run"]["kv_cache_dtype"].get<std::string>(), found["ranks"][0]["kv_cache_bytes"]);
    };
    const auto [name, whole] = bytes_of("float32");
    EXPECT_EQ(name, "float32");
    EXPECT_EQ(bytes_of("auto"), std::pair(name, whole));
    EXPECT_EQ(bytes_of("bfloat16").second, whole.get<int>() / 2);
    EXPECT_LT(bytes_of("int8").second, whole.get<int>() / 2);
    EXPECT_EQ(Json::parse(inspect(of + "--dtype bfloat16").out)["run"]["kv_cache_dtype"], "float16");
    for (const std::string family : {"deepseek-v2", "qwen3-next"}) {
        const std::string model = "--model " ENTRODRAFT_SOURCE_DIR "/tests/model/families/" + family + "/target ";
        const Ended refused = inspect(model + "--kv-dtype int8");
        EXPECT_EQ(refused.code, 2);
        EXPECT_NE(refused.err.find("in float32"), std::string::npos) << refused.err;
        EXPECT_EQ(inspect(model + "--kv-dtype float32").code, 0);
    }
}

TEST(Inspect, SaysHowExpertsAreSharded) {
    const std::string of = "--model " ENTRODRAFT_SOURCE_DIR "/tests/model/families/gpt-oss/target --tensor-parallel 2 ";
    EXPECT_NE(inspect(of).out.find("5 x 16"), std::string::npos);
    const Json ranks = Json::parse(inspect(of + "--json").out)["ranks"];
    EXPECT_EQ(ranks[1]["expert_width"], Json({16, 24}));
}

TEST(Needs, LinearAttentionsWeightsAndStatesAreThoseThatADecoderHolds) {
    const std::string directory = ENTRODRAFT_SOURCE_DIR "/tests/model/families/qwen3-next/target";
    const model::ModelConfig config = model::read_config(directory);
    const model::Checkpoint checkpoint = model::Checkpoint::open(directory);
    model::ThreadTeam team(1);
    for (const int rank : {0, 2}) {
        model::RunShape run;
        run.ranks = 3;
        run.batch = 2;
        run.length = 48;
        const model::RankNeeds needs = needs_of(config, run, rank);
        model::ModelWeights weights(checkpoint, config, needs.shard, {.weight_type = run.type}, team);
        std::uint64_t bytes = bytes_held(weights);
        bytes += static_cast<std::uint64_t>(float_count(config, needs.shard)) * sizeof(float);
        EXPECT_EQ(needs.weight_bytes, bytes);
        const int keys = rank == 0 ? 2 : 1, values = 2 * keys; // three layers, one of attention
        const int states = 2 * values * 12 * 16, inputs = 48 * (keys * 2 * 12 + values * (16 + 2));
        EXPECT_EQ(needs.cache_bytes, 2U * sizeof(float) *
                                         (3U * static_cast<unsigned>(states + inputs) +
                                          48U * static_cast<unsigned>(needs.shard.n_kv_heads()) * 32U));
    }
}

TEST(Needs, TheLongestThatFitsIsTheLast) {
    const model::ModelConfig config = model::read_config(kGolden + "/llama-target");
    const auto bytes_of = [](int length) { return std::uint64_t{1000} * static_cast<std::uint64_t>(length); };
    EXPECT_EQ(model::longest_that_fits(config, bytes_of, 15999), 0);
    EXPECT_EQ(model::longest_that_fits(config, bytes_of, 16000), 16);
    EXPECT_EQ(model::longest_that_fits(config, bytes_of, 47000), 32);
    EXPECT_EQ(model::longest_that_fits(config, bytes_of, 1000000000), config.max_positions);
}

TEST(Pairing, LogitsMayBeWiderThanTheTokenizerButNotNarrowerThanTheTarget) {
    const launch::Vocabulary target = {"--target t", 7, 50277, 50688};
    EXPECT_FALSE(launch::why_no_pair(target, {"--draft d", 7, 50277, 50304}));
    EXPECT_FALSE(launch::why_no_pair(target, {"--draft d", 7, 50277, 50277}));
    EXPECT_TRUE(launch::why_no_pair(target, {"--draft d", 7, 50277, 50276}));
    EXPECT_TRUE(launch::why_no_pair(target, {"--draft d", 8, 50277, 50688}));
}

} // namespace inspect_test
