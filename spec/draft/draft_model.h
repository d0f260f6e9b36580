// A decoder that drafts, as drafters see it: passes over rows of several texts, with logits of the whole vocabulary,
// whether it is on this rank alone or is sharded across ranks that follow this one.
//
// Knows nothing of what is drafted. Called by model_texts.
#pragma once

#include "model/decoder.h"

namespace entrodraft::spec {

class DeviceVerifier;

class DraftModel {
  public:
    virtual ~DraftModel() = default;
    virtual const model::ModelConfig& config() const = 0;
    virtual std::size_t weight_bytes() const = 0; // that a pass of one row reads, of one rank
    virtual int max_rows() const = 0;
    virtual DeviceVerifier* device() const { return nullptr; } // as LogitSource's
    // As Decoder::forward, with logits of all tokens and summaries of the first pass.summary_vocab.
    virtual model::PassResult forward(const model::Pass& pass) = 0;
    // As KvCache::truncate.
    virtual void truncate(int slot, int length) = 0;
    // As KvCache::share and fork.
    virtual void share(int from, int to, int length) = 0;
    virtual void fork(int from, int to) = 0;
};

// On this rank alone; `decoder` and `device` are the caller's and outlive it.
class LocalDraftModel final : public DraftModel {
  public:
    explicit LocalDraftModel(model::Decoder& decoder, DeviceVerifier* device = nullptr)
        : decoder_(decoder), device_(device) {}
    const model::ModelConfig& config() const override { return decoder_.config(); }
    std::size_t weight_bytes() const override { return decoder_.weight_bytes(); }
    int max_rows() const override { return decoder_.max_rows(); }
    DeviceVerifier* device() const override { return device_; }
    model::PassResult forward(const model::Pass& pass) override { return decoder_.forward(pass); }
    void truncate(int slot, int length) override { decoder_.cache().truncate(slot, length); }
    void share(int from, int to, int length) override { decoder_.cache().share(from, to, length); }
    void fork(int from, int to) override { decoder_.cache().fork(from, to); }

  private:
    model::Decoder& decoder_;
    DeviceVerifier* device_;
};

} // namespace entrodraft::spec
