// ATen, the tensor library of PyTorch, as a second implementation of a decoder's passes, for comparison and for devices
// that our kernels do not know. It lies in a shared library of its own, which is opened when it is asked for: the
// program neither links nor needs torch.
//
// Not promised, unlike for the other decoders: that a row's bits do not depend on the rows beside it. Called by
// rank_device and tests; implemented in torch/decoder.
#pragma once

#include "model/pass/decoder.h"
#include "model/torch/place.h"
#include "model/torch/trainer.h"

#include <memory>
#include <string>

namespace entrodraft::model::torch {

// Why decoders of this kind cannot be loaded, with the remedy, in one line; empty: they can.
std::string why_missing();
// Devices of a type ("cuda", "xpu") that ATen sees. Throws std::runtime_error where why_missing() says why.
Devices devices_of(const std::string& type);
// As load_cpu_decoder. Weights in float32, bfloat16 and float16; keys, values and activations are of the weights' type,
// the residual stream is float32. Sums over ranks go through host memory, over which `tp` sums. Throws
// std::runtime_error where why_missing() says why, std::invalid_argument (types, devices).
std::unique_ptr<Decoder> load_decoder(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const DecoderOptions& options, dist::Communicator& tp, const Place& place);

// What the shared library exports, under the name "entrodraft_torch".
struct Plugin {
    const char* version;           // of the program that it was built with
    std::string (*why_unusable)(); // what is wrong with the libtorch that was found at run time; empty: nothing
    decltype(&torch::devices_of) devices_of;
    decltype(&torch::load_decoder) load_decoder;
    decltype(&torch::load_trainer) load_trainer;
};

} // namespace entrodraft::model::torch
