// entrodraft bench theory: the textbook's model as tables, before anything runs. Needs no models and no ranks.
#include "launch/cli/command_options.h"
#include "launch/cli/options.h"
#include "launch/cmd/bench/theory_table.h"
#include "launch/commands.h"
#include "launch/failure.h"
#include "launch/replaced_file.h"

namespace entrodraft::launch {

int run_bench_theory(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options(session, arguments, page_of("bench theory"), theory_options);
    if (!options) return kAllServed;
    in_agreement(session, session.start_seconds(), [&] {
        if (session.world_rank() != 0) return;
        const TheoryPlan plan = {options->alphas, options->cs, options->c_operations, options->most_tokens};
        const std::string json = indented(theory_json(plan));
        if (!options->output.empty()) replace_file(options->output, json);
        print(session, options->json ? json : theory_text(plan));
    });
    return kAllServed;
}

} // namespace entrodraft::launch
