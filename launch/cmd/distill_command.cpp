// entrodraft distill: trains a draft on the target's distributions. The engine continues the prompts, and the target
// reads the texts again (spec/distill/target_scorer.h). A trainer on libtorch learns from these texts
// (spec/distill/training.h).
#include "launch/cli/command_options.h"
#include "launch/cli/command_pages.h"
#include "launch/cli/options.h"
#include "launch/cmd/distill_texts.h"
#include "launch/cmd/distillation.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "launch/start/signals.h"

namespace entrodraft::launch {

int run_distill(dist::Session& session, const Arguments& arguments) {
    const auto options = read_options<DistillOptions>(session, arguments, page_of("distill"));
    if (!options) return kAllServed;
    install_signal_handlers(session.world_rank() == 0);
    session.set_timeout(options->models.collective_timeout_seconds);
    in_agreement(session, [&] {
        if (session.world_rank() == 0) require_source_of_texts(*options);
    });
    Distillation distillation(session, *options);
    DistillTexts texts(session, *options, distillation.files(), distillation.config().vocab_size);
    texts.find();
    if (!distillation.train(texts)) return kStopped;
    cancel_abort_timer();
    const spec::Costs costs = distillation.measure_costs(texts);
    in_agreement(session, [&] {
        if (session.world_rank() == 0) distillation.write_report(texts, costs);
    });
    return kAllServed;
}

} // namespace entrodraft::launch
