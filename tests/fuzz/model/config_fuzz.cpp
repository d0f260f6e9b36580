// config.json, and behind a line "----" generation_config.json.
#include "tests/fuzz/fuzz_input.h"

#include "model/families/generation_config.h"
#include "model/families/read_config.h"
#include "model/files/bad_file.h"
#include "model/weights/layer_plan.h"
#include "model/weights/rank_shard.h"

#include <algorithm>

using namespace entrodraft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest = fuzz::text_of(data, size);
    fuzz::directory().write("config.json", fuzz::next_part(rest));
    if (rest.empty())
        std::filesystem::remove(fuzz::directory().path() / "generation_config.json");
    else
        fuzz::directory().write("generation_config.json", rest);
    try {
        const model::ModelConfig config = model::read_config(fuzz::directory().path());
        fuzz::require(model::parameter_count(config) >= 0);
        fuzz::use(model::read_generation_config(fuzz::directory().path(), config).not_served.size());
        for (int layer = 0; layer < std::min(config.n_layers, 4); ++layer)
            fuzz::use(config.window(layer));
    } catch (const model::BadFile&) {
    }
    return 0;
}
