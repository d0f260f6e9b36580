// The scaling model against times that were made up by it, files that are not as they should be, and the command.
#include "launch/cmd/bench/gpu_scaling.h"
#include "launch/cmd/bench/hardware_file.h"
#include "launch/cmd/bench/scaling_report.h"
#include "launch/model_shapes.h"
#include "model/checkpoint/bad_file.h"
#include "model/inspection.h"
#include "tests/launch/command_line.h"

#include <gtest/gtest.h>

namespace bench_scaling_test {

using namespace entrodraft::launch;
using entrodraft::model::BadFile;
using test::ScratchFile;
using test::Strings;
using test::operator+;

const std::string kHardware = ENTRODRAFT_SOURCE_DIR "/bench/hardware.json";

TEST(ScalingModel, FitFindsTheAlphaAndBetaThatTimesWereMadeOf) {
    const Link made = {3e-6, 0.25e-9};
    std::vector<LinkSample> samples;
    for (const double bytes : {1280.0, 2560.0, 20480.0, 4e6})
        samples.push_back({bytes, made.seconds(bytes)});
    const Link found = fit_link(samples);
    EXPECT_NEAR(found.alpha / made.alpha, 1, 1e-9);
    EXPECT_NEAR(found.beta / made.beta, 1, 1e-9);
}

TEST(ScalingModel, FitIsNeverNegative) {
    const Link shrinking = fit_link(std::vector<LinkSample>{{1000, 2e-6}, {2000, 1e-6}});
    EXPECT_GT(shrinking.alpha, 0);
    EXPECT_EQ(shrinking.beta, 0);
    const Link steep = fit_link(std::vector<LinkSample>{{1000, 1e-6}, {2000, 4e-6}});
    EXPECT_EQ(steep.alpha, 0);
    EXPECT_GT(steep.beta, 0);
}

TEST(ScalingModel, FitNeedsTwoSizesAndTimesAboveZero) {
    EXPECT_THROW(fit_link(std::vector<LinkSample>{{1000, 1e-6}, {1000, 2e-6}}), std::invalid_argument);
    EXPECT_THROW(fit_link(std::vector<LinkSample>{{1000, 0}, {2000, 2e-6}}), std::invalid_argument);
    EXPECT_THROW(fit_link({}), std::invalid_argument);
}

TEST(ScalingModel, PredictsByWhatRanksCanReadAndByDivision) {
    const MeasuredPass base = {1, 10e-3, 8e-3, 0, 0, {}};
    // Two ranks that together read no faster than one did, and 5 all-reduces of 1000 bytes of 3 us each.
    const MeasuredPass two = {2, 0, 8e-3, 5, 1000, {1e-6, 2e-9}};
    const PredictedPass predicted = predict(base, {}, two);
    EXPECT_NEAR(predicted.communication, 15e-6, 1e-15);
    EXPECT_NEAR(predicted.by_reading(), 10e-3 + 15e-6, 1e-12);
    EXPECT_NEAR(predicted.by_division(), 5e-3 + 15e-6, 1e-12);
    EXPECT_EQ(predicted.seconds(), predicted.by_reading());
    // A shard that takes 3 ms by itself, where it could be read in 2 ms: four times as long beside the other rank.
    const std::vector<ShardPass> shards = {{4, 1, 1}, {2, 3e-3, 2e-3}};
    EXPECT_NEAR(predict(base, shards, two).seconds(), 12e-3 + 15e-6, 1e-12);
    // From a base of two ranks its own all-reduces are taken off first.
    const MeasuredPass four = {4, 0, 4e-3, 5, 1000, {2e-6, 2e-9}};
    const MeasuredPass measured_two = {2, 10e-3, 8e-3, 5, 1000, {1e-6, 2e-9}};
    EXPECT_NEAR(predict(measured_two, {}, four).by_division(), (10e-3 - 15e-6) / 2 + 20e-6, 1e-12);
    const MeasuredPass all_talk = {2, 10e-6, 8e-3, 5, 1000, {1e-6, 2e-9}};
    EXPECT_THROW(all_talk.compute(), std::invalid_argument);
}

TEST(ScalingModel, ReplicasHaveToComeOutWhole) {
    EXPECT_DOUBLE_EQ(throughput_of_replicas(8, 2, 0.5), 8);
    EXPECT_EQ(throughput_of_replicas(8, 3, 0.5), 0);
}

TEST(GpuScaling, ShapesHaveTheParametersOfTheirModels) {
    EXPECT_EQ(entrodraft::model::parameter_count(model_shape("llama-3-8b").config), 8030261248);
    EXPECT_EQ(entrodraft::model::parameter_count(model_shape("llama-3-70b").config), 70553706496);
    EXPECT_EQ(entrodraft::model::parameter_count(model_shape("llama-3-405b").config), 405853388800);
    EXPECT_EQ(entrodraft::model::parameter_count(model_shape("falcon-40b").config), 41303293952);
    EXPECT_EQ(entrodraft::model::parameter_count(model_shape("opt-66b").config), 65719701504);
}

TEST(GpuScaling, APassOnOneRankReadsAllButTheEmbedding) {
    const auto& config = model_shape("llama-3-8b").config;
    const double norms = 65.0 * 4096, embedding = 128256.0 * 4096;
    EXPECT_EQ(pass_bytes(config, 1), 2 * (8030261248.0 - norms - embedding));
    // Units of the vocabulary do not come out whole: the first of eight ranks has half a unit more than its part.
    EXPECT_EQ(pass_bytes(config, 8) * 8 - pass_bytes(config, 1), 2 * 8 * 32 * 4096.0);
    // Eight KV heads on 16 ranks: each holds a copy of one.
    const double keys_and_values = 2 * 32 * 2 * 128 * 4096.0;
    EXPECT_GE(pass_bytes(config, 16) - pass_bytes(config, 8) / 2, keys_and_values / 2);
    EXPECT_THROW(pass_bytes(config, 64), std::invalid_argument);
}

Hardware round_numbers() {
    return {"made up", 1e12, 100e9, 1e18, 8, 10e-6, 100e9, 5e-6, 10e9};
}

TEST(GpuScaling, AllReducesAreHierarchical) {
    const Hardware hardware = round_numbers();
    EXPECT_EQ(all_reduce_seconds(hardware, 1, 16e3), 0);
    const double in_node = 10e-6 + 2 * 7.0 / 8 * 16e3 / 100e9;
    EXPECT_NEAR(all_reduce_seconds(hardware, 8, 16e3), in_node, 1e-15);
    EXPECT_NEAR(all_reduce_seconds(hardware, 32, 16e3), in_node + 2 * 2 * 5e-6 + 2 * 3.0 / 4 * 2e3 / 10e9, 1e-15);
}

TEST(GpuScaling, APassIsReadingAndTwoAllReducesALayer) {
    const auto& config = model_shape("llama-3-8b").config;
    const GpuPass pass = gpu_pass(round_numbers(), config, 8, 0.5);
    EXPECT_NEAR(pass.reading, pass_bytes(config, 8) / 0.5e12, 1e-12);
    EXPECT_NEAR(pass.communication, 65 * all_reduce_seconds(round_numbers(), 8, 8192), 1e-12);
    EXPECT_NEAR(pass.token() - pass.pass(), 20e-6, 1e-12);
    EXPECT_TRUE(pass.fits);
    EXPECT_FALSE(gpu_pass(round_numbers(), model_shape("llama-3-405b").config, 8, 0.5).fits);
    const GpuPass falcon = gpu_pass(round_numbers(), model_shape("falcon-40b").config, 8, 0.5);
    EXPECT_NEAR(falcon.communication, 61 * all_reduce_seconds(round_numbers(), 8, 16384), 1e-12) << "one a layer";
}

TEST(HardwareFile, TheProjectsOwnIsWhole) {
    const HardwareFile file = read_hardware(kHardware);
    ASSERT_EQ(file.hardware.size(), 3u);
    EXPECT_EQ(file.hardware[1].name, "H200 SXM");
    EXPECT_EQ(file.hardware[1].memory_bandwidth, 4.8e12);
    EXPECT_EQ(file.published.size(), 2u);
}

// What bench latency writes, as far as bench scaling reads it.
Json latency_file(int ranks, double t_target_ms, double limit_ms) {
    Json json = {{"t_draft_ms", 0.05}, {"t_target_ms", {t_target_ms, t_target_ms}}};
    json["environment"] = {{"ranks", ranks},      {"threads_per_rank", 1},          {"cores", 2},
                           {"host_ranks", ranks}, {"draft_placement", "colocated"}, {"dtype", "float16"}};
    json["tensor_parallel"] = ranks;
    json["target_shape"] = {{"layers", 6},
                            {"hidden_size", 320},
                            {"vocab_size", 4096},
                            {"all_reduces_per_pass", ranks > 1 ? 13 : 0},
                            {"all_reduce_bytes_per_pass", ranks > 1 ? 13 * 1280 : 0}};
    json["target"].push_back({{"rows", 1}, {"limit_ms", limit_ms}});
    json["collectives"].push_back({{"name", "announce: broadcast of 256 bytes"}, {"bytes", 256}, {"median_ms", 0.001}});
    json["collectives"].push_back({{"name", "gather of candidates, 16 rows"}, {"bytes", 136}, {"median_ms", 0.001}});
    for (const int rows : {1, 2, 16}) // alpha 1 us, beta 0.5 ns
        json["collectives"].push_back({{"name", "all-reduce of hidden, " + std::to_string(rows) + " rows"},
                                       {"bytes", rows * 1280},
                                       {"median_ms", 1e-3 + rows * 1280 * 0.5e-6}});
    return json;
}

Json compare_file(int ranks, double plain, double drafting) {
    Json json;
    json["environment"] = latency_file(ranks, 1, 1)["environment"];
    const auto setting = [](const char* name, const char* kind, double rate) {
        return Json{{"setting", name}, {"kind", kind}, {"tokens_per_second", rate}};
    };
    json["temperatures"].push_back(
        {{"temperature", 0},
         {"settings",
          {setting("plain", "", plain), setting("model, static", "", drafting / 2),
           setting("model, expected-gain", "", drafting), setting("model, x", "longest, for the oracle", 1e9)}}});
    return json;
}

TEST(ScalingFiles, AreReadAndOrderedByRanks) {
    const ScratchFile two(latency_file(2, 0.6, 0.4).dump()), one(latency_file(1, 1, 0.8).dump()),
        four(latency_file(4, 9, 0.2).dump()), compared(compare_file(2, 1500, 3000).dump());
    const ScalingFiles files = read_scaling_files({two.path(), compared.path(), one.path(), four.path()});
    ASSERT_EQ(files.latencies.size(), 3u);
    EXPECT_EQ(files.latencies[0].setting.name(), "1 rank of 1 thread, colocated");
    EXPECT_EQ(files.latencies[1].file, two.path());
    EXPECT_NEAR(files.latencies[1].pass.link.alpha, 1e-6, 1e-12);
    EXPECT_NEAR(files.latencies[1].pass.link.beta, 0.5e-9, 1e-15);
    EXPECT_FALSE(files.latencies[1].over_cores());
    EXPECT_TRUE(files.latencies[2].over_cores());
    ASSERT_NE(files.compare_of(files.latencies[1].setting), nullptr);
    EXPECT_EQ(files.compares[0].drafting_tokens_per_second, 3000);
    EXPECT_EQ(files.compares[0].drafting, "model, expected-gain");
    const MeasuredScaling scaling = measured_scaling(files);
    EXPECT_EQ(scaling.base, 0u);
    EXPECT_NEAR(scaling.rows[1].predicted.by_reading(), 0.5e-3 + 13 * 1.64e-6, 1e-12);
    EXPECT_NEAR(scaling.rows[1].speedup, 1 / 0.6, 1e-9);
    EXPECT_NEAR(scaling.rows[1].efficiency, 0.5 / 0.6, 1e-9);
    EXPECT_EQ(scaling.best_latency, 1u) << "four ranks take turns on two cores";
    EXPECT_EQ(scaling.best_throughput, 0u);
    EXPECT_EQ(scaling.throughput_cores, 2);
    EXPECT_FALSE(scaling.by_drafting) << "one rank was not compared";
}

TEST(ScalingFiles, ThreadsCountAsCoresDo) {
    const auto with_threads = [](Json json, int threads, int cores) {
        json["environment"]["threads_per_rank"] = threads;
        json["environment"]["cores"] = cores;
        return json.dump();
    };
    const ScratchFile one(with_threads(latency_file(1, 1, 0.8), 1, 4)),
        threads(with_threads(latency_file(1, 0.4, 0.4), 4, 4)), ranks(with_threads(latency_file(2, 0.5, 0.4), 2, 4));
    const MeasuredScaling scaling = measured_scaling(read_scaling_files({one.path(), threads.path(), ranks.path()}));
    EXPECT_NEAR(scaling.rows[1].efficiency, 1 / 0.4 / 4, 1e-9) << "four threads of one rank";
    EXPECT_NEAR(scaling.rows[2].efficiency, 1 / 0.5 / 4, 1e-9);
    EXPECT_EQ(scaling.throughput_cores, 4);
    EXPECT_EQ(scaling.best_throughput, 0U) << "4 replicas of one thread; 2 of four threads would need 8 cores";
}

TEST(Scaling, ABadBaseIsNamedByItsFile) {
    Json over = latency_file(1, 1, 0.8), base = latency_file(2, 1e-3, 1e-3);
    over["environment"]["threads_per_rank"] = 4;
    const ScratchFile over_cores(over.dump()), all_talk(base.dump());
    const auto ended = test::run({"bench", "scaling", over_cores.path(), all_talk.path()});
    EXPECT_EQ(ended.code, 1);
    EXPECT_NE(ended.err.find(all_talk.path() + ":"), std::string::npos) << ended.err;
}

// The message that files of such text are refused with.
std::string refusal(const std::vector<Json>& contents) {
    std::vector<std::unique_ptr<ScratchFile>> kept;
    std::vector<std::string> files;
    for (const Json& content : contents) {
        kept.push_back(std::make_unique<ScratchFile>(content.dump()));
        files.push_back(kept.back()->path());
    }
    try {
        read_scaling_files(files);
    } catch (const BadFile& error) {
        EXPECT_NE(std::string(error.what()).find(files.back()), std::string::npos) << error.what();
        return error.what();
    }
    return "none";
}

TEST(ScalingFiles, BadOnesAreRefusedWithTheField) {
    const auto is_in = [](const std::string& message, const std::string& part) {
        EXPECT_NE(message.find(part), std::string::npos) << message;
    };
    Json bad = latency_file(2, 0.6, 0.4);
    bad["environment"].erase("host_ranks");
    is_in(refusal({bad}), "field environment.host_ranks is missing");
    bad = latency_file(2, 0.6, 0.4);
    bad["target"][0]["limit_ms"] = "fast";
    is_in(refusal({bad}), "field target[0].limit_ms must be a number above 0");
    bad = latency_file(2, 0.6, 0.4);
    bad["collectives"].erase(3);
    bad["collectives"].erase(3);
    is_in(refusal({bad}), "at least two sizes");
    bad = latency_file(2, 0.6, 0.4);
    bad["t_target_ms"] = Json::array();
    is_in(refusal({bad}), "field t_target_ms must be a list of numbers");
    bad = latency_file(2, 0.6, 0.4);
    bad["target_shape"]["layers"] = 7;
    is_in(refusal({latency_file(1, 1, 0.8), bad}), "another target");
    is_in(refusal({{{"rows", 3}}}), "neither of bench latency");
    is_in(refusal({latency_file(1, 1, 0.8), compare_file(2, 1, 1)}), "no file of bench latency");
    bad = compare_file(1, 1, 1);
    bad["temperatures"][0]["settings"].erase(0);
    is_in(refusal({latency_file(1, 1, 0.8), bad}), "has no plain decoding");
    is_in(refusal({latency_file(1, 1, 0.8), latency_file(1, 2, 0.8)}), "give one of them");
}

TEST(Scaling, CommandSetsMeasuredBesidePredictedAndCarriesItToGpus) {
    const ScratchFile one(latency_file(1, 1, 0.8).dump()), two(latency_file(2, 0.6, 0.4).dump()), output("");
    const auto text = test::run(
        {"bench", "scaling", one.path(), two.path(), "--hardware", kHardware, "--shapes", "llama-3-8b,falcon-40b"});
    ASSERT_EQ(text.code, 0) << text.err;
    EXPECT_NE(text.out.find("within the cores: 1.15\n"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("EXTRAPOLATION"), std::string::npos);
    EXPECT_NE(text.out.find("no more than its 32 heads"), std::string::npos);
    const auto json =
        test::run({"bench", "scaling", one.path(), "--input", two.path(), "--json", "--output", output.path()});
    ASSERT_EQ(json.code, 0) << json.err;
    const Json result = Json::parse(json.out);
    EXPECT_EQ(result, Json::parse(output.text()));
    EXPECT_EQ(result["command"], "scaling");
    ASSERT_EQ(result["measured"].size(), 2u);
    EXPECT_EQ(result["measured"][1]["ranks"], 2);
    EXPECT_NEAR(result["measured"][1]["predicted_ms"].get<double>(), 0.52132, 1e-9);
    EXPECT_NEAR(result["model"]["alpha_us"].get<double>(), 1, 1e-9);
    EXPECT_TRUE(result["extrapolated"].empty());
}

TEST(Scaling, CommandNeedsNoMeasurementToExtrapolate) {
    const auto ended = test::run({"bench", "scaling", "--hardware", kHardware, "--json", "--bandwidth-share", "1"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json result = Json::parse(ended.out);
    EXPECT_TRUE(result["model"].is_null());
    for (const Json& row : result["extrapolated"])
        EXPECT_NEAR(row["tokens_per_second"].get<double>() * row["t_target_ms"].get<double>(), 1000, 60)
            << row.dump(); // announce and gather are the rest
    EXPECT_EQ(result["extrapolated"].size() + result["not_extrapolated"].size(), 3u * 6 * 7);
}

TEST(Scaling, BadOptionsAndFilesEndInOneLine) {
    const ScratchFile compared(compare_file(1, 1, 1).dump()), broken("{");
    const std::pair<Strings, int> cases[] = {{{}, 2},
                                             {{"--shapes", "llama-3-8b"}, 2},
                                             {{"--hardware", kHardware, "--shapes", "llama-9"}, 2},
                                             {{"--hardware", kHardware, "--bandwidth-share", "1.5"}, 2},
                                             {{"--json", compared.path()}, 1},
                                             {{broken.path()}, 1},
                                             {{compared.path()}, 1},
                                             {{"/no/such/file.json"}, 1},
                                             {{"--hardware", compared.path()}, 1}};
    for (const auto& [options, code] : cases) {
        const auto ended = test::run(Strings{"bench", "scaling"} + options);
        EXPECT_EQ(ended.code, code) << ended.err;
        EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    }
}

TEST(Scaling, ShardsAreTimedOnOneRankAndWithinTheHeads) {
    const Strings latency = {"bench", "latency", "--target", test::kTarget, "--threads", "1", "--repetitions", "3"};
    EXPECT_EQ(test::run(latency + Strings{"--shards", "1.5"}).code, 2);
    EXPECT_EQ(test::run(latency + Strings{"--shards", "1000"}).code, 2);
    EXPECT_EQ(test::run_ranks(2, latency + Strings{"--shards", "2"}).code, 2);
    const auto at_once = test::run_ranks(2, {"bench", "latency", "--target", "/no/such", "--shards", "2"});
    EXPECT_NE(at_once.err.find("start one rank, not 2"), std::string::npos)
        << "before a model is read: " << at_once.err;
}

TEST(Scaling, TheMachineIsWatchedWhileShardsAreTimed) {
    std::string shards = "2";
    for (int i = 1; i < 16; ++i)
        shards += ",2";
    constexpr int kRepetitions = 400;
    const auto ended = test::run({"bench", "latency", "--target", test::kTarget, "--threads", "1", "--rows", "1",
                                  "--repetitions", std::to_string(kRepetitions), "--shards", shards, "--json"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json json = Json::parse(ended.out);
    double least_ms = 0; // half of a shard's passes take its median or more
    for (const Json& shard : json["shards"])
        least_ms += kRepetitions / 2.0 * shard["t_target_without_draft_ms"].get<double>();
    EXPECT_GT(json["machine"]["seconds"].get<double>() * 1e3, least_ms);
}

TEST(Scaling, ReadsWhatBenchLatencyWrites) {
    const ScratchFile one(""), two("");
    const Strings latency = {"bench", "latency",       "--target", test::kTarget, "--draft", test::kDraft, "--threads",
                             "1",     "--repetitions", "3",        "--rows",      "3",       "--output"};
    ASSERT_EQ(test::run(latency + Strings{one.path(), "--shards", "1,2"}).code, 0);
    ASSERT_EQ(test::run_ranks(2, latency + Strings{two.path()}).code, 0);
    const ScalingFiles files = read_scaling_files({one.path(), two.path()});
    EXPECT_EQ(files.latencies[0].pass.all_reduces, 0);
    EXPECT_GT(files.latencies[1].pass.all_reduces, 0);
    EXPECT_EQ(files.latencies[1].all_reduces.size(), 3u) << "1, 2 and 3 rows";
    EXPECT_GT(files.latencies[1].announce, 0);
    ASSERT_EQ(files.latencies[0].shards_beside_draft.size(), 2u);
    EXPECT_EQ(files.latencies[0].shards_alone[1].of, 2);
    EXPECT_TRUE(measured_scaling(files).rows[1].predicted.compute_by_shard);
    EXPECT_EQ(test::run({"bench", "scaling", one.path(), two.path()}).code, 0);
}

} // namespace bench_scaling_test
