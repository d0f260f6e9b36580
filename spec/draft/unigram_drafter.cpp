// Drafts from a table of counts, which build-table makes from a text: how often each token occurs, whatever tokens come
// before.
#include "spec/draft/chain.h"

namespace entrodraft::spec {

DrafterType unigram_drafter() {
    return {.name = "unigram",
            .position = 50,
            .help = "a table of counts",
            .file = "draft-table",
            .make_of = [](const DrafterParts& parts, const DrafterValues&) {
                return make_chain_drafter(make_table_source(*parts.table, 1, parts.limits.vocab_size), parts);
            }};
}

} // namespace entrodraft::spec
