// Encoder-decoder models from outside: generate's tokens are transformers', and what lines and models they refuse.
#include "launch/io/requests.h"
#include "model/torch/plugin.h"
#include "tests/launch/command_line.h"
#include "tests/launch/prompt_limits.h"

#include <fstream>
#include <gtest/gtest.h>
#include <string>

namespace encoder_decoders_launch_test {

using namespace test;
using namespace entrodraft;
using namespace entrodraft::launch;

const std::string kModels = ENTRODRAFT_SOURCE_DIR "/tests/model/encoder_decoders/";

// The last golden text of a kind: from the decoder's first token on.
Json golden_text(const std::string& kind) {
    std::ifstream file(kModels + kind + "/expected.json");
    return Json::parse(file).at("target").at("texts").back();
}

Strings generate(const std::string& kind, const std::string& input) {
    return {"generate", "--target", kModels + kind + "/target", "--input", input, "--quiet"};
}

TEST(CliEncoderDecoders, TokensAreThoseOfTransformersWithAndWithoutADraft) {
    for (const char* kind : {"t5", "bart", "marian"}) {
        SCOPED_TRACE(kind);
        const Json text = golden_text(kind);
        const ScratchFile input(Json{{"prompt_token_ids", text.at("source")}}.dump());
        const Strings plain =
            generate(kind, input.path()) + Strings{"--max-new-tokens", std::to_string(text.at("greedy").size())};
        const Strings drafted = plain + Strings{"--draft", kModels + kind + "/draft", "--stop-rule", "constant"};
        for (const Ended& ended : {run(plain), run(drafted), run_ranks(2, drafted),
                                   run_ranks(2, drafted + Strings{"--draft-placement", "dedicated"}),
                                   run(plain + Strings{"--drafter", "ngram"})}) {
            ASSERT_EQ(ended.code, 0) << ended.err;
            EXPECT_EQ(lines_of(ended.out).at(0).at("token_ids"), text.at("greedy"));
        }
    }
}

TEST(CliEncoderDecoders, TheDemoPairRestoresTheTextThatItsTargetRestoresAlone) {
    const std::string demo = ENTRODRAFT_SOURCE_DIR "/model/demo/t5/";
    std::ifstream prompts(demo + "prompts.jsonl");
    std::string first, second;
    std::getline(prompts, first);
    std::getline(prompts, second);
    const ScratchFile input(first + "\n" + second + "\n");
    const Strings plain = {"generate",   "--target", demo + "target", "--input",
                           input.path(), "--quiet",  "--threads",     "1"};
    for (const char* temperature : {"0", "1"}) {
        SCOPED_TRACE(temperature);
        const Strings sampled = plain + Strings{"--temperature", temperature, "--seed", "1"};
        const Ended alone = run(sampled);
        ASSERT_EQ(alone.code, 0) << alone.err;
        const Strings drafted = sampled + Strings{"--draft", demo + "draft"};
        for (const Ended& ended : {run(drafted), run_ranks(2, drafted), run(sampled + Strings{"--drafter", "ngram"})}) {
            ASSERT_EQ(ended.code, 0) << ended.err;
            const auto lines = lines_of(ended.out), wanted = lines_of(alone.out);
            ASSERT_EQ(lines.size(), 2u);
            for (std::size_t i = 0; i < 2; ++i)
                EXPECT_EQ(lines[i]["text"], wanted[i]["text"]);
        }
        EXPECT_GT(lines_of(run(drafted).out)[0]["stats"]["accepted"], 0);
    }
}

TEST(CliEncoderDecoders, TokensOnTorchAreThoseOfTransformers) {
    if (const std::string why = model::torch::why_missing(); !why.empty()) GTEST_SKIP() << why;
    for (const char* kind : {"t5-gated-tied", "marian-separate"}) {
        const Json text = golden_text(kind);
        const ScratchFile input(Json{{"prompt_token_ids", text.at("source")}}.dump());
        const Strings drafted =
            generate(kind, input.path()) +
            Strings{"--max-new-tokens", std::to_string(text.at("greedy").size()), "--backend", "torch", "--draft"} +
            Strings{kModels + kind + "/draft"};
        for (const Ended& ended : {run(drafted), run_ranks(2, drafted)}) {
            ASSERT_EQ(ended.code, 0) << ended.err;
            EXPECT_EQ(lines_of(ended.out).at(0).at("token_ids"), text.at("greedy"));
        }
    }
}

TEST(CliEncoderDecoders, TextIsTheSourceAndTheDecodersTextMayBeginWithMore) {
    const ScratchFile input(R"({"prompt": "a fox, and ten  bees."}
{"prompt": "a fox, and ten  bees.", "decoder_prompt": "ten"})");
    const Ended ended = run(generate("t5", input.path()) + Strings{"--max-new-tokens", "4"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto lines = lines_of(ended.out);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_GT(lines[1]["stats"]["prompt_tokens"], lines[0]["stats"]["prompt_tokens"]);
    const Ended prompt =
        run({"generate", "--target", kModels + "t5/target", "--prompt", "a fox", "--max-new-tokens", "4", "--quiet"});
    EXPECT_EQ(prompt.code, 0) << prompt.err;
}

TEST(CliEncoderDecoders, WhatCannotBeServedIsSaidInOneLine) {
    const std::string many = Json(std::vector<int>(161, 5)).dump();
    const ScratchFile input(R"({"prompt_token_ids": []}
{"prompt_token_ids": )" + many +
                            R"(}
{"prompt_token_ids": [5, 101]})");
    const auto lines = lines_of(run(generate("bart", input.path())).out);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[0]["error"], "prompt_token_ids is empty");
    EXPECT_EQ(lines[1]["error"], "the source has 161 tokens; the encoder reads 160 at most");
    EXPECT_EQ(lines[2]["error"], "prompt_token_ids[1] must be a whole number from 0 to 100");
    const ScratchFile decoder_only(R"({"prompt": "The ferry", "decoder_prompt": "left"})");
    const auto refused = lines_of(run({"generate", "--target", kTarget, "--input", decoder_only.path()}).out);
    EXPECT_EQ(refused.at(0)["error"], "decoder_prompt is for models with an encoder, and the target has none; join it "
                                      "to the prompt");
    const Ended no_source = run({"generate", "--target", kTarget, "--draft", kModels + "bart/target", "--prompt", "a"});
    EXPECT_EQ(no_source.code, 2);
}

TEST(CliEncoderDecoders, ACapOnTheContextBoundsSources) {
    const ScratchFile input(Json{{"prompt_token_ids", std::vector<int>(33, 5)}}.dump());
    const auto lines = lines_of(run(generate("t5", input.path()) + Strings{"--max-context", "32"}).out);
    EXPECT_EQ(lines.at(0)["error"], "the source has 33 tokens; the encoder reads 32 at most");
}

TEST(CliEncoderDecoders, InspectDescribesTheEncoder) {
    const Ended ended = run({"inspect", kModels + "bart/target", "--json"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const Json shape = Json::parse(ended.out)["model"]["shape"];
    EXPECT_EQ(shape["layers"], 3);
    EXPECT_EQ(shape["encoder"]["layers"], 2);
    EXPECT_EQ(shape["encoder"]["context"], 160);
}

TEST(CliEncoderDecoders, RequestsKeepSourceAndDecoderPromptApart) {
    PromptLimits limits = limits_of_bytes();
    limits.source = {.max_tokens = 8, .vocab_size = 128};
    limits.decoder_start = {2, 3};
    limits.encode_decoder_prompt = limits.encode;
    Line line;
    line.text = R"({"prompt": "ab", "decoder_prompt": "c"})";
    const InputItem item = parse_request(line, 1, RequestDefaults{}, limits);
    const auto& request = std::get<spec::Request>(item);
    EXPECT_EQ(request.source, (std::vector<spec::TokenId>{'a', 'b'}));
    EXPECT_EQ(request.prompt, (std::vector<spec::TokenId>{2, 3, 'c'}));
    EXPECT_EQ(request.beams.forced_tokens, 0);
    line.text = R"({"prompt": "ab"})";
    const InputItem forced = parse_request(line, 1, RequestDefaults{}, limits);
    EXPECT_EQ(std::get<spec::Request>(forced).beams.forced_tokens, 1) << "a forced BOS";
}

} // namespace encoder_decoders_launch_test
