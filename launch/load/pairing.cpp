// See pairing.h.
#include "launch/load/pairing.h"

#include <algorithm>

namespace entrodraft::launch {

std::optional<std::string> why_no_pair(const Vocabulary& target, const Vocabulary& draft) {
    if (target.fingerprint && draft.fingerprint && target.fingerprint != draft.fingerprint)
        return draft.name + " and " + target.name +
               " have different vocabularies; a draft must tokenize as its target does";
    // A token that the draft has no row for could never be emitted beside it, though the target alone emits it.
    const int known = target.fingerprint ? std::min(target.n_rows, target.n_tokens) : target.n_rows;
    if (draft.n_rows < known)
        return draft.name + " has a vocab_size of " + std::to_string(draft.n_rows) + " and knows not all " +
               std::to_string(known) + " tokens of " + target.name + "; choose a draft that does";
    return std::nullopt;
}

std::string not_compared(const Vocabulary& target, const Vocabulary& draft) {
    if (target.fingerprint && draft.fingerprint) return "";
    return (draft.fingerprint ? target.name : draft.name) + " has no tokenizer: of " + target.name + " and " +
           draft.name +
           " only the vocabulary sizes were compared; where an id is another token to the draft, drafts are "
           "rejected and cost time";
}

} // namespace entrodraft::launch
