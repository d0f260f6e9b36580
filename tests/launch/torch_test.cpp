// --backend torch from outside: texts, benches, refusals. Run with the label torch; what needs the backend is skipped
// where it was not built.
#include "model/torch/plugin.h"
#include "tests/launch/command_line.h"

#include <gtest/gtest.h>

namespace torch_test {

using namespace entrodraft;
using test::Json;
using test::operator+;
using test::Strings;

const Strings kTorch = {"--backend", "torch", "--dtype", "float32", "--threads", "1"};
const Strings kPair = {"--target", test::kTarget, "--draft", test::kDraft};

class TorchBackend : public testing::Test {
  protected:
    void SetUp() override {
        if (const std::string why = model::torch::why_missing(); !why.empty()) GTEST_SKIP() << why;
    }
};

TEST(BackendChoice, AMissingBackendIsRefusedWithItsRemedy) {
    if (model::torch::why_missing().empty()) GTEST_SKIP() << "this build has the torch backend";
    const auto ended = test::run(Strings{"generate", "--prompt", "x"} + kPair + kTorch);
    EXPECT_EQ(ended.code, 2);
    EXPECT_NE(ended.err.find("-DENTRODRAFT_TORCH=ON"), std::string::npos) << ended.err;
    EXPECT_NE(ended.err.find("libentrodraft_torch.so"), std::string::npos) << ended.err;
}

std::string text_of(const Strings& options, int ranks = 1) {
    const auto ended = test::run_ranks(
        ranks,
        Strings{"generate", "--prompt", "The night", "--max-new-tokens", "40", "--ignore-eos", "--quiet"} + options);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
}

TEST_F(TorchBackend, TextsAreThoseOfTheNativeBackend) {
    for (const Strings& sampling :
         {Strings{}, Strings{"--temperature", "1", "--seed", "3", "--acceptance", "gumbel"}}) {
        const std::string native = text_of(Strings{"--target", test::kTarget, "--threads", "1"} + sampling);
        EXPECT_EQ(text_of(Strings{"--target", test::kTarget} + kTorch + sampling), native);
        EXPECT_EQ(text_of(kPair + kTorch + sampling), native);
        EXPECT_EQ(text_of(kPair + kTorch + sampling, 2), native);
        EXPECT_EQ(text_of(kPair + kTorch + sampling + Strings{"--draft-placement", "sharded"}, 2), native);
        EXPECT_EQ(text_of(kPair + kTorch + sampling + Strings{"--draft-placement", "dedicated"}, 3), native);
    }
}

TEST_F(TorchBackend, HeadsDraftThePlainText) {
    const std::string demo = std::string(ENTRODRAFT_SOURCE_DIR) + "/model/demo";
    const Strings target = Strings{"--target", demo + "/target"} + kTorch;
    const std::string plain = text_of(target);
    EXPECT_EQ(text_of(target + Strings{"--head", demo + "/eagle3"}), plain);
    EXPECT_EQ(text_of(target + Strings{"--head", demo + "/eagle3", "--tree", "expected-gain"}, 2), plain);
    EXPECT_EQ(text_of(target + Strings{"--head", demo + "/medusa", "--tree", "medusa-63"}), plain);
}

TEST_F(TorchBackend, LatencyIsThatOfTorchWithOurKernelsBesideIt) {
    const Strings latency = Strings{"bench", "latency", "--rows", "2", "--repetitions", "3", "--json"} + kPair;
    for (const int ranks : {1, 2}) {
        const auto ended = test::run_ranks(ranks, latency + kTorch);
        ASSERT_EQ(ended.code, 0) << ended.err;
        const Json shown = Json::parse(ended.out);
        EXPECT_EQ(shown["environment"]["device"], "torch cpu");
        std::vector<Json> passes = shown["target"];
        EXPECT_EQ(passes.size(), 2u);
        passes.insert(passes.end(), {shown["draft"], shown["first_draft"]});
        for (const Json& pass : passes) {
            const double own = pass["median_ms"], native = pass["native_ms"];
            EXPECT_GT(own, 0);
            EXPECT_GT(native, 0);
            EXPECT_DOUBLE_EQ(pass["over_native"], own / native);
        }
    }
    const auto native = test::run(latency + Strings{"--threads", "1"});
    EXPECT_EQ(native.out.find("native"), std::string::npos) << native.out;
}

TEST_F(TorchBackend, WhatItHasNotIsRefused) {
    const auto refused = [](const Strings& arguments, const std::string& word) {
        const auto ended = test::run(arguments + kTorch);
        EXPECT_EQ(ended.code, 2) << ended.err;
        EXPECT_NE(ended.err.find(word), std::string::npos) << ended.err;
    };
    refused(Strings{"generate", "--prompt", "x", "--device", "xpu"} + kPair, "--device xpu with --backend torch");
    refused(Strings{"generate", "--prompt", "x", "--draft-dtype", "int8"} + kPair, "others are for --backend native");
    refused(Strings{"bench", "latency", "--shards", "2", "--target", test::kTarget}, "leave --backend torch out");
}

} // namespace torch_test
