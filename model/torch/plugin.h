// A second implementation of a decoder's passes with ATen, the tensor library of PyTorch. It is for comparison, and for
// devices that our kernels do not support. It is in its own shared library, which is opened on demand: the program
// neither links nor needs torch.
//
// Unlike other decoders, it does not promise that a row's bits are independent of the rows next to it. Called by
// rank_device and tests; implemented in torch/decoder.
#pragma once

#include "model/pass/decoder.h"
#include "model/torch/place.h"
#include "model/torch/trainer.h"

#include <memory>
#include <string>

namespace entrodraft::model::torch {

// Returns why decoders of this kind cannot be loaded, with the remedy, in one line; empty if they can.
std::string why_missing();
// Returns the devices of a type ("cuda", "xpu") that ATen sees. Throws std::runtime_error if why_missing() says why.
Devices devices_of(const std::string& type);
// As load_cpu_decoder. Weights can be float32, bfloat16 or float16. Keys, values and activations have the weights'
// type; the residual stream is float32. `tp` sums over ranks in host memory. Throws std::runtime_error if why_missing()
// says why, std::invalid_argument (types, devices).
std::unique_ptr<Decoder> load_decoder(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const DecoderOptions& options, dist::Communicator& tp, const Place& place);

// The shared library exports this under the name "entrodraft_torch".
struct Plugin {
    const char* version;           // of the program that it was built with
    std::string (*why_unusable)(); // tells what is wrong with the libtorch found at run time; empty: nothing
    decltype(&torch::devices_of) devices_of;
    decltype(&torch::load_decoder) load_decoder;
    decltype(&torch::load_trainer) load_trainer;
};

} // namespace entrodraft::model::torch
