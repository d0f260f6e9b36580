// A --config file of generate, down to checked options.
#include "tests/fuzz/fuzz_input.h"

#include "launch/cli/options.h"
#include "launch/start/failure.h"

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto path = fuzz::directory().write("options.conf", fuzz::text_of(data, size));
    try {
        const launch::ParsedOptions given =
            launch::parse_config(launch::groups_of<launch::GenerateOptions>(), path.string());
        fuzz::use(given.canonical_text());
        const launch::GenerateOptions options = launch::options_of<launch::GenerateOptions>(given);
        fuzz::require(options.batch_size >= 1 && options.replicas >= 1 && !options.models.target.empty());
    } catch (const launch::BadOption&) {
    }
    return 0;
}
