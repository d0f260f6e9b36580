// Training of a model on the distributions of another, by autograd over the operations that decode it (torch/ops.h).
//
// Plain data on this side, tensors behind it: like decoders on ATen, trainers come out of the plug-in. The loop, its
// texts and its files are spec/distill's. Called by the command distill and by tests.
#pragma once

#include "model/files/safetensors.h"
#include "model/pass/decoder.h"
#include "model/torch/distill_loss.h"
#include "model/torch/place.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace entrodraft::model::torch {

// A text, and what the target has at each place behind its prompt: [places()] unless said otherwise. Of p its most
// likely tokens are known, and of the others their mass, which the losses take for one token's.
struct ScoredText {
    std::vector<TokenId> tokens;
    std::vector<TokenId> source;      // that an encoder has read; none: the models have no encoder
    int n_prompt = 1;                 // tokens, at least one; the others are learned
    float temperature = 0;            // that the others were sampled at
    int n_top = 0;                    // most likely tokens of each place
    std::vector<TokenId> top_tokens;  // [places()][n_top], the most likely first
    std::vector<float> top_log_probs; // [places()][n_top]
    std::vector<float> rest_mass;     // of all other tokens
    std::vector<TokenId> rest_token;  // drawn from p among those; -1: there is none
    std::vector<float> rest_log_prob; // of that token, under p

    int places() const { return static_cast<int>(tokens.size()) - n_prompt; }
};

// Over the places of some texts.
struct TrainingSums {
    std::int64_t places = 0;
    double loss = 0;
    double overlap = 0;   // of sum min(p, q), without bias: what is not known of it is estimated by rest_token
    double agreement = 0; // of places where p and q have the same most likely token
};

struct TrainerOptions {
    WeightType weight_type = WeightType::float32; // that passes compute with; parameters are float32
    DistillLoss loss = DistillLoss::forward_kl;
    int max_texts = 1;  // of a pass
    int max_tokens = 0; // of a text
    int max_source = 0; // tokens, of a model with an encoder
    int vocab_size = 0; // tokens whose logits count, from the first of the vocabulary; 0: all
    double weight_decay = 0;
    double max_gradient_norm = 1;
    double timeout_seconds = dist::kDefaultTimeoutSeconds; // of sums over ranks
};

// A model in training. Its parameters are the tensors of its checkpoint that a decoder reads, under their names. Errors
// of torch are std::runtime_error.
class Trainer {
  public:
    virtual ~Trainer() = default;

    virtual TrainingSums measure(std::span<const ScoredText* const> texts) = 0; // in passes of max_texts.
    // The same of one pass, and adds `weight` times the gradient of the loss to the gradients.
    virtual TrainingSums add_gradients(std::span<const ScoredText* const> texts, double weight) = 0;
    // A step of AdamW along the gradients of all ranks, summed and cut to max_gradient_norm, which are 0 afterwards.
    // Returns their norm before the cut. Collective over the ranks that train.
    virtual double step(double learning_rate) = 0;

    virtual std::vector<TensorBytes> parameters(WeightType type) const = 0; // float32, bfloat16 or float16
    virtual std::vector<TensorBytes> gradients() const = 0;                 // added so far, float32
    // What step() goes on from, and the way back, bit for bit: restore() takes a file of these tensors.
    virtual std::vector<TensorBytes> state() const = 0;
    virtual void restore(const Checkpoint& state) = 0;
};

// All that is handed over outlives it; `ranks` are those that train, each on texts of its own. Throws as load_decoder
// does.
std::unique_ptr<Trainer> load_trainer(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const TrainerOptions& options, dist::Communicator& ranks, const Place& place);
// The same inside of the plug-in.
std::unique_ptr<Trainer> make_trainer(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const TrainerOptions& options, dist::Communicator& ranks, const Place& place);

} // namespace entrodraft::model::torch
