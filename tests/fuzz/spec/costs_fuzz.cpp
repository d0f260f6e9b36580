// A costs file.
#include "tests/fuzz/fuzz_input.h"

#include "spec/protocol/stats.h"

#include <cmath>
#include <stdexcept>

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto path = fuzz::directory().write("costs.json", fuzz::text_of(data, size));
    try {
        const spec::Costs costs = spec::read_costs(path.string());
        fuzz::require(std::isfinite(costs.target_seconds(1)) && costs.target_seconds(1000) >= 0);
        fuzz::require(std::isfinite(costs.draft_seconds(3)));
    } catch (const std::runtime_error&) { // its contract
    }
    return 0;
}
