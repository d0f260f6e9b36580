// Verification of rows that stay on a GPU: the host's part, from the device's figures. Sums over whole rows stand for
// the device here; gpu_verify_rows_test.cpp compares its kernels with such sums.
#include "spec/verify/random.h"
#include "spec/verify/verify.h"

#include "tests/spec/verify_support.h"

#include <gtest/gtest.h>

namespace entrodraft::spec {
namespace verify_on_device_test {

constexpr std::size_t kVocab = 3;

// The best of log(weight) + noise.
TokenId drawn(const std::vector<double>& weights, const GumbelNoise& noise, std::uint64_t position) {
    double most = -std::numeric_limits<double>::infinity();
    TokenId best = -1;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const auto token = static_cast<TokenId>(i);
        const double value = std::log(weights[i]) + noise.at(position, token);
        if (weights[i] > 0 && value > most) {
            most = value;
            best = token;
        }
    }
    return best;
}

// A device's figures of a round's rows. `q` ends before the last row of p.
std::vector<VerifiedRow> verified_rows(const Tokens& drafted, const Rows& rows, bool is_block, const GumbelNoise& noise,
                                       std::uint64_t first_position) {
    const std::uint64_t round_start = is_block ? first_position : 0;
    std::vector<VerifiedRow> verified(drafted.size() + 1);
    for (std::size_t i = 0; i <= drafted.size(); ++i) {
        VerifiedRow& row = verified[i];
        if (is_block && i > 0)
            row.scale = std::min(1.0, verified[i - 1].scale * (verified[i - 1].p / verified[i - 1].q));
        std::vector<double> excess;
        for (std::size_t token = 0; token < kVocab; ++token) {
            const double p = static_cast<double>(rows.p[i * kVocab + token]);
            const double q = i < drafted.size() ? static_cast<double>(rows.q[i * kVocab + token]) : 0;
            excess.push_back(std::max(0.0, row.scale * p - q));
            row.excess += excess.back();
            row.overlap += std::min(p, q);
            if (i == drafted.size() || static_cast<TokenId>(token) != drafted[i]) continue;
            row.p = p;
            row.q = q;
        }
        row.next = drawn(excess, noise, noise_position(first_position + i, round_start));
    }
    return verified;
}

Verification verify(const std::vector<VerifiedRow>& rows, bool is_block, std::uint64_t position, std::uint64_t key) {
    const RandomStream acceptance(7, key, Purpose::acceptance);
    const DeviceInput input = {rows, position};
    return is_block ? verify_block(input, acceptance) : verify_rejection(input, acceptance);
}

TEST(VerifyOnDevice, AcceptsWhatWholeRowsDo) {
    int accepted[2] = {0, 0};
    for (std::uint64_t seed = 0; seed < 300; ++seed)
        for (const bool is_block : {false, true}) {
            const ToyModel target(kVocab, seed, options_of(1)), draft(kVocab, seed + 1000, options_of(1));
            const GumbelNoise noise(RandomStream(7, seed, Purpose::resample));
            const Tokens drafted = {static_cast<TokenId>(seed % 3), static_cast<TokenId>(seed / 3 % 3), 1};
            const Rows rows = rows_of(target, draft, {}, drafted);
            const RejectionInput input = {drafted, rows.p, rows.q, 11};
            const RandomStream acceptance(7, seed, Purpose::acceptance), resample(7, seed, Purpose::resample);
            const Verification want =
                is_block ? verify_block(input, acceptance, resample) : verify_rejection(input, acceptance, resample);
            const Verification got = verify(verified_rows(drafted, rows, is_block, noise, 11), is_block, 11, seed);
            EXPECT_EQ(got.accepted, want.accepted) << "seed " << seed;
            accepted[is_block ? 1 : 0] += got.accepted;
        }
    EXPECT_GT(accepted[0], 100);
    EXPECT_GT(accepted[1], accepted[0]);
}

// Rounds of one to three drafted tokens. Drafts and residuals are sampled by noise, as on a GPU.
TEST(VerifyOnDevice, SaysWhatTheTargetWould) {
    constexpr std::size_t kLength = 4;
    const ToyModel target(kVocab, 5, options_of(1)), draft(kVocab, 105, options_of(1));
    for (const bool is_block : {false, true}) {
        const auto text_of = [&](std::uint64_t key) {
            const GumbelNoise of_draft(RandomStream(7, key, Purpose::draft_sample)),
                of_residual(RandomStream(7, key, Purpose::resample));
            Tokens text;
            while (text.size() < kLength) {
                const std::uint64_t start = text.size();
                const std::size_t k = std::min<std::size_t>(1 + (start + key) % 3, kLength - start);
                Tokens drafted, prefix = text;
                for (std::size_t i = 0; i < k; ++i) {
                    const std::vector<float>& q = draft.after(prefix);
                    drafted.push_back(drawn({q.begin(), q.end()}, of_draft, noise_position(start + i, start)));
                    prefix.push_back(drafted.back());
                }
                const Rows rows = rows_of(target, draft, text, drafted);
                const Verification verification =
                    verify(verified_rows(drafted, rows, is_block, of_residual, start), is_block, start, key);
                text.insert(text.end(), drafted.begin(), drafted.begin() + verification.accepted);
                text.push_back(verification.next_token);
            }
            return first_of(text, kLength);
        };
        EXPECT_LT(chi_square_z(target, kLength, 200'000, text_of), kUnlikely) << (is_block ? "block" : "rejection");
    }
}

TEST(VerifyOnDevice, RefusesWhatIsNoNumber) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const double bad = static_cast<double>(nan);
    for (const bool is_block : {false, true}) {
        EXPECT_THROW(verify({}, is_block, 0, 1), std::invalid_argument);
        EXPECT_THROW(verify({{.p = bad, .q = 0.5, .next = 1}, {.next = 1}}, is_block, 0, 1), std::runtime_error);
        EXPECT_THROW(verify({{.p = 0.5, .q = 0, .next = 1}, {.next = 1}}, is_block, 0, 1), std::runtime_error);
        EXPECT_THROW(verify({{}}, is_block, 0, 1), std::runtime_error) << "nothing to say";
        EXPECT_THROW(verify({{.excess = bad, .next = 1}}, is_block, 0, 1), std::runtime_error);
    }
    const std::vector<VerifiedRow> rows = {{.next = 1}};
    EXPECT_THROW(verify_block(DeviceInput{rows, 0, 0.5}, RandomStream(1, 1, Purpose::acceptance)),
                 std::invalid_argument);
    EXPECT_THROW(verify_rejection(DeviceInput{rows, 0, 2}, RandomStream(1, 1, Purpose::acceptance)),
                 std::invalid_argument);
}

TEST(VerifyOnDevice, IsForRowsThatNothingFilters) {
    for (const Acceptance kind : {Acceptance::rejection, Acceptance::block}) {
        EXPECT_TRUE(can_verify_on_device(kind, options_of(0.7)));
        EXPECT_FALSE(can_verify_on_device(kind, options_of(0)));
        EXPECT_FALSE(can_verify_on_device(kind, options_of(1, 5)));
        EXPECT_FALSE(can_verify_on_device(kind, options_of(1, 0, 0.9)));
        EXPECT_FALSE(can_verify_on_device(kind, options_of(1, 0, 1, 0.1)));
    }
    for (const Acceptance kind : {Acceptance::gumbel, Acceptance::typical, Acceptance::bild})
        EXPECT_FALSE(can_verify_on_device(kind, options_of(1)));
}

} // namespace verify_on_device_test
} // namespace entrodraft::spec
