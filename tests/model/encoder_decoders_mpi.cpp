// Encoder-decoder models sharded across the ranks, however many there are: transformers' logits and greedy tokens.
#include "model/families/read_config.h"
#include "tests/dist/session_of_tests.h"
#include "tests/model/encoder_decoders.h"

#include <stdexcept>

namespace encoder_decoders_mpi {

using namespace entrodraft;

class EncoderDecodersOnRanks : public testing::Test {
  protected:
    EncoderDecodersOnRanks() : tp_(session_of_tests().split(0)) {}

    // Logits over the whole vocabulary, [tokens][vocab], the same on every rank.
    std::vector<float> read_whole(TestModel& model, std::span<const model::TokenId> tokens) {
        const std::vector<float> mine = model.read(tokens, 33);
        const dist::Slice own = model.decoder.local_vocab();
        const auto vocab = static_cast<std::size_t>(model.config.vocab_size);
        std::vector<float> whole(tokens.size() * vocab, 0.0F); // zeros but for one rank's part of each row
        for (std::size_t row = 0; row < tokens.size(); ++row)
            std::copy_n(mine.begin() + static_cast<std::ptrdiff_t>(row) * own.size(), own.size(),
                        whole.begin() + static_cast<std::ptrdiff_t>(row * vocab) + own.begin);
        tp_->all_reduce_sum(whole.data(), whole.size(), dist::Deadline::after_seconds(60));
        return whole;
    }

    std::unique_ptr<dist::Communicator> tp_;
};

TEST_F(EncoderDecodersOnRanks, LogitsAndGreedyTokensAreThoseOfTransformers) {
    for (const EncoderDecoderGolden& golden : read_encoder_decoders(models_of(encoder_decoder_pairs()))) {
        SCOPED_TRACE(golden.whole.name());
        const model::ModelConfig config = model::read_config(golden.whole.directory);
        TestModelOptions options{.tp = tp_.get()};
        options.decoder.timeout_seconds = 60;
        if (tp_->size() > std::min(config.n_heads, config.encoder.n_heads)) {
            EXPECT_THROW(TestModel(golden.whole.directory, options), std::invalid_argument);
            continue;
        }
        TestModel cut(golden.whole.directory, options);
        for (const auto& [source, text] : golden.texts) {
            cut.forget();
            cut.decoder.encode(0, source);
            std::vector<float> logits = read_whole(cut, whole_text(text));
            EXPECT_LE(worst_kept_row(logits, text), kRowBound);
            ban_tokens(golden.whole, logits);
            EXPECT_EQ(said_of(logits, text, golden.whole.known), text.greedy);
        }
    }
}

} // namespace encoder_decoders_mpi
