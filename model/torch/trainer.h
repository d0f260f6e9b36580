// Trains a model on the distributions of another, by autograd over the operations that decode it (torch/ops.h).
//
// Its interface is plain data; the plug-in has the tensors. Like decoders on ATen, trainers come from the plug-in.
// spec/distill has the loop, its texts and its files. Called by the command distill and by tests.
#pragma once

#include "model/files/safetensors.h"
#include "model/pass/decoder.h"
#include "model/torch/distill_loss.h"
#include "model/torch/place.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace entrodraft::model::torch {

// A text, and the target's distribution p at each place after its prompt: [places()] unless said otherwise. Its most
// likely tokens are known. The losses treat the mass of all others as one token's.
struct ScoredText {
    std::vector<TokenId> tokens;
    std::vector<TokenId> source;      // read by an encoder; empty: the models have no encoder
    int n_prompt = 1;                 // tokens of the prompt, at least one; the others are learned
    float temperature = 0;            // at which the others were sampled
    int n_top = 0;                    // number of most likely tokens at each place
    std::vector<TokenId> top_tokens;  // [places()][n_top], the most likely first
    std::vector<float> top_log_probs; // [places()][n_top]
    std::vector<float> rest_mass;     // mass of all other tokens
    std::vector<TokenId> rest_token;  // drawn from p among those tokens; -1: there is none
    std::vector<float> rest_log_prob; // of that token under p

    int places() const { return static_cast<int>(tokens.size()) - n_prompt; }
};

// Sums over the places of some texts.
struct TrainingSums {
    std::int64_t places = 0;
    double loss = 0;
    double overlap = 0;   // unbiased sum of sum min(p, q): rest_token estimates its unknown part
    double agreement = 0; // number of places where p and q have the same most likely token
};

struct TrainerOptions {
    WeightType weight_type = WeightType::float32; // type in passes; parameters are float32
    DistillLoss loss = DistillLoss::forward_kl;
    int max_texts = 1;  // per pass
    int max_tokens = 0; // per text
    int max_source = 0; // tokens, for a model with an encoder
    int vocab_size = 0; // tokens whose logits count, starting at the vocabulary's first; 0: all
    double weight_decay = 0;
    double max_gradient_norm = 1;
    double timeout_seconds = dist::kDefaultTimeoutSeconds; // for sums over ranks
};

// A model in training. Its parameters are the checkpoint's tensors that a decoder reads, under their names. Errors of
// torch are std::runtime_error.
class Trainer {
  public:
    virtual ~Trainer() = default;

    virtual TrainingSums measure(std::span<const ScoredText* const> texts) = 0; // in passes of max_texts
    // The same for one pass. Also adds `weight` times the gradient of the loss to the gradients.
    virtual TrainingSums add_gradients(std::span<const ScoredText* const> texts, double weight) = 0;
    // Makes a step of AdamW along the gradients, summed over all ranks and clipped to max_gradient_norm. Then sets them
    // to 0. Returns their norm before clipping. Collective over the ranks that train.
    virtual double step(double learning_rate) = 0;

    virtual std::vector<TensorBytes> parameters(WeightType type) const = 0; // float32, bfloat16 or float16
    virtual std::vector<TensorBytes> gradients() const = 0;                 // accumulated so far, float32
    // state() returns the tensors from which step() continues. restore() reads a file of these, bit for bit.
    virtual std::vector<TensorBytes> state() const = 0;
    virtual void restore(const Checkpoint& state) = 0;
};

// The arguments outlive the trainer. `ranks` are the ranks that train, each on its own texts. Throws as load_decoder
// does.
std::unique_ptr<Trainer> load_trainer(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const TrainerOptions& options, dist::Communicator& ranks, const Place& place);
// The same, inside the plug-in.
std::unique_ptr<Trainer> make_trainer(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const TrainerOptions& options, dist::Communicator& ranks, const Place& place);

} // namespace entrodraft::model::torch
