// Drafts from a table of counts, which build-table makes from a text: how often each token followed the last token. It
// costs almost nothing.
#include "spec/draft/chain.h"

namespace entrodraft::spec {

DrafterType bigram_drafter() {
    return {.name = "bigram",
            .position = 40,
            .help = "a table of counts",
            .file = "draft-table",
            .make_of = [](const DrafterParts& parts, const DrafterValues&) {
                return make_chain_drafter(make_table_source(*parts.table, 2, parts.limits.vocab_size), parts);
            }};
}

} // namespace entrodraft::spec
