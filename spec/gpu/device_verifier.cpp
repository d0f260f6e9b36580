// Drafting and verification on a GPU: see spec/verify/device_verifier.h.
#include "spec/gpu/device_verifier.h"

#include "spec/gpu/draft_loop.h"
#include "spec/gpu/verify_rows.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::spec::gpu {

namespace {

class GpuVerifier final : public DeviceVerifier {
  public:
    model::DeviceExtension* draft(const DeviceStopRule& rule, int first_kept) override {
        if (first_kept >= kMaxKept) throw std::invalid_argument("more rows are to be kept than there is room for");
        loop_.set(rule, first_kept);
        return &loop_;
    }
    model::DeviceExtension* verify(std::span<const DraftedRow> rows) override {
        verification_.set(rows, loop_);
        return &verification_;
    }
    std::span<const VerifiedRow> verified() const override { return verification_.verified(); }

  private:
    DraftLoop loop_;
    VerifyExtension verification_;
};

} // namespace

std::unique_ptr<DeviceVerifier> make_device_verifier() {
    return std::make_unique<GpuVerifier>();
}

} // namespace entrodraft::spec::gpu
