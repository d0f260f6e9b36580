// The check by which a device is trusted: it must find what differs, and nothing else.
#include "model/families/names.h"
#include "model/pass/self_check.h"
#include "model/weights/tensor_shapes.h"
#include "tests/model/golden_models.h"

namespace self_check_test {

using namespace entrodraft;
using namespace entrodraft::model;

// A decoder with a fault.
struct Faulty final : Decoder {
    enum class Fault { none, logit, not_a_number, layer, repetition };

    Faulty(Decoder& of, Fault kind) : Decoder(of), inner(of), fault(kind) {}
    std::size_t weight_bytes() const override { return inner.weight_bytes(); }
    double operations_per_row() const override { return inner.operations_per_row(); }
    void encode(int slot, std::span<const TokenId> source) override { inner.encode(slot, source); }
    PassResult forward(const Pass& pass) override {
        PassResult result = inner.forward(pass);
        logits.assign(result.logits.begin(), result.logits.end());
        hidden.assign(result.hidden.begin(), result.hidden.end());
        ++passes;
        if (fault == Fault::logit) logits[result.logits_stride + 3] += 100;
        if (fault == Fault::not_a_number) logits[2 * result.logits_stride + 3] = std::nanf("");
        if (fault == Fault::layer && !hidden.empty()) // of the second layer
            hidden[static_cast<std::size_t>(2 * kCheckedRows * config().hidden_size)] += 100;
        if (fault == Fault::repetition && passes == 3) logits[5] = std::nextafter(logits[5], 1e9f);
        result.logits = logits;
        result.hidden = hidden;
        return result;
    }

    Decoder& inner;
    Fault fault;
    int passes = 0;
    std::vector<float> logits, hidden;
};

std::string found(Faulty::Fault fault, int context = 0) {
    TestModel tested(golden_directory("llama-target")), other(golden_directory("llama-target"));
    Faulty faulty(tested.decoder, fault);
    const std::string difference = difference_of(faulty, other.decoder, 1e-3, context);
    EXPECT_EQ(tested.decoder.cache().length(0), 0);
    EXPECT_EQ(other.decoder.cache().length(0), 0);
    return difference;
}

TEST(SelfCheck, FindsNothingWhereNothingDiffers) {
    EXPECT_EQ(found(Faulty::Fault::none), "");
    EXPECT_EQ(found(Faulty::Fault::none, 150), "");
}

TEST(SelfCheck, NamesRowAndLayer) {
    EXPECT_NE(found(Faulty::Fault::logit).find("logits of row 1 differ by"), std::string::npos);
    EXPECT_NE(found(Faulty::Fault::not_a_number).find("logits of row 2 differ by nan"), std::string::npos);
    EXPECT_NE(found(Faulty::Fault::layer).find("layer 1 first"), std::string::npos);
    EXPECT_NE(found(Faulty::Fault::repetition).find("other bits"), std::string::npos);
}

TEST(SelfCheck, AnotherModelIsAnotherModel) {
    TestModel tested(golden_directory("llama-target")), other(golden_directory("llama-target-sharded"));
    EXPECT_EQ(difference_of(tested.decoder, other.decoder, self_check_bound(WeightType::float32, tested.config)), "")
        << "the same in other files";
    const ModelConfig config = tested.config;
    dist::SelfComm alone;
    const auto random = load_cpu_decoder(random_checkpoint(config, 1), config, {}, alone, tested.team);
    const std::string difference = difference_of(tested.decoder, *random, self_check_bound(WeightType::float8, config));
    EXPECT_NE(difference.find("the embedding first"), std::string::npos) << difference;
}

TEST(SelfCheck, ReadsASourceWhereThereIsAnEncoder) {
    const auto directory = source_directory() / "tests/model/encoder_decoders/marian/target";
    TestModel tested(directory), other(directory);
    for (const auto& [fault, message] :
         {std::pair{Faulty::Fault::none, ""}, {Faulty::Fault::logit, "logits of row 1"}}) {
        Faulty faulty(tested.decoder, fault);
        const std::string difference = difference_of(faulty, other.decoder, 1e-3);
        EXPECT_EQ(difference.substr(0, 15), message) << difference;
    }
}

} // namespace self_check_test
