// An admission carries its fields over, and no part of one passes for a whole.
#include "spec/protocol/packet.h"

#include <gtest/gtest.h>

#include <limits>

namespace entrodraft::spec {
namespace admission_test {

Request full_request() {
    Request request;
    request.sequence_key = 0xFEDCBA9876543210;
    request.prompt = {5, 0, 511, 7};
    request.sampling = {.temperature = 0.7, .top_k = 40, .top_p = 0.9, .min_p = 0.05, .seed = 0x123456789ABCDEF0};
    request.processing.repetition_penalty = 1.25;
    request.processing.presence_penalty = -0.5;
    request.processing.frequency_penalty = 0.75;
    request.processing.no_repeat_ngram_size = 3;
    request.processing.min_new_tokens = 12;
    request.processing.logit_bias = {{3, 1.5F}, {0, -2.25F}};
    request.processing.banned_tokens = {9, 8, 7};
    request.processing.encoder_repetition_penalty = 1.5;
    request.processing.encoder_no_repeat_ngram_size = 4;
    request.processing.sequence_bias = {{{1, 2}, 0.5F}, {{3}, -std::numeric_limits<float>::infinity()}};
    request.processing.suppress_tokens = {11};
    request.processing.begin_suppress_tokens = {12, 13};
    request.processing.forced_bos_token = 14;
    request.processing.forced_eos_tokens = {15, 16, 17};
    request.processing.forced_eos_at = 18;
    request.processing.decay = {1.75, -2};
    return request;
}

void expect_equal(const Request& found, const Request& wanted) {
    EXPECT_EQ(found.sequence_key, wanted.sequence_key);
    EXPECT_EQ(found.prompt, wanted.prompt);
    EXPECT_EQ(found.sampling.temperature, wanted.sampling.temperature);
    EXPECT_EQ(found.sampling.top_k, wanted.sampling.top_k);
    EXPECT_EQ(found.sampling.top_p, wanted.sampling.top_p);
    EXPECT_EQ(found.sampling.min_p, wanted.sampling.min_p);
    EXPECT_EQ(found.sampling.seed, wanted.sampling.seed);
    EXPECT_EQ(found.processing.repetition_penalty, wanted.processing.repetition_penalty);
    EXPECT_EQ(found.processing.presence_penalty, wanted.processing.presence_penalty);
    EXPECT_EQ(found.processing.frequency_penalty, wanted.processing.frequency_penalty);
    EXPECT_EQ(found.processing.no_repeat_ngram_size, wanted.processing.no_repeat_ngram_size);
    EXPECT_EQ(found.processing.min_new_tokens, wanted.processing.min_new_tokens);
    EXPECT_EQ(found.processing.logit_bias, wanted.processing.logit_bias);
    EXPECT_EQ(found.processing.banned_tokens, wanted.processing.banned_tokens);
    EXPECT_EQ(found.processing.encoder_repetition_penalty, wanted.processing.encoder_repetition_penalty);
    EXPECT_EQ(found.processing.encoder_no_repeat_ngram_size, wanted.processing.encoder_no_repeat_ngram_size);
    EXPECT_EQ(found.processing.sequence_bias, wanted.processing.sequence_bias);
    EXPECT_EQ(found.processing.suppress_tokens, wanted.processing.suppress_tokens);
    EXPECT_EQ(found.processing.begin_suppress_tokens, wanted.processing.begin_suppress_tokens);
    EXPECT_EQ(found.processing.forced_bos_token, wanted.processing.forced_bos_token);
    EXPECT_EQ(found.processing.forced_eos_tokens, wanted.processing.forced_eos_tokens);
    EXPECT_EQ(found.processing.forced_eos_at, wanted.processing.forced_eos_at);
    EXPECT_EQ(found.processing.decay, wanted.processing.decay);
}

TEST(Admission, CarriesAllThatRanksActOn) {
    expect_equal(unpack_admission(pack_admission(full_request(), false)).request, full_request());
    expect_equal(unpack_admission(pack_admission(Request{}, false)).request, Request{});
    EXPECT_TRUE(unpack_admission(pack_admission(Request{}, true)).verified_on_device);
    EXPECT_FALSE(unpack_admission(pack_admission(Request{}, false)).verified_on_device);
    Request prompt_alone;
    prompt_alone.prompt.assign(5000, 3);
    expect_equal(unpack_admission(pack_admission(prompt_alone, true)).request, prompt_alone);
}

TEST(Admission, IsRefusedWhereAnythingIsMissingOrTooMuch) {
    std::vector<std::byte> bytes = pack_admission(full_request(), false);
    for (std::size_t n = 0; n < bytes.size(); ++n)
        EXPECT_THROW(unpack_admission(std::span(bytes).first(n)), std::runtime_error) << n << " of " << bytes.size();
    bytes.push_back(std::byte{});
    EXPECT_THROW(unpack_admission(bytes), std::runtime_error);
}

} // namespace admission_test
} // namespace entrodraft::spec
