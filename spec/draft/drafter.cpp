// What drafters have in common: see drafter.h.
#include "spec/draft/drafter.h"

#include <algorithm>

namespace entrodraft::spec {

void Draft::clear() {
    tokens.clear();
    parents.clear();
    entropies_nats.clear();
    probabilities.clear();
    q = {};
    kept.clear();
    end = DraftEnd::none;
    passes = 0;
    seconds = 0;
    entropy_seconds = 0;
    ahead = {};
    levels.clear();
}

void Draft::add(TokenId token, const DraftedToken& seen) {
    parents.push_back(static_cast<int>(tokens.size()) - 1);
    tokens.push_back(token);
    entropies_nats.push_back(seen.entropy_nats);
    probabilities.push_back(seen.probability);
}

DraftLimits draft_limits_of(const model::ModelConfig& target, int vocab_size) {
    DraftLimits limits;
    limits.vocab_size = vocab_size;
    for (const std::int64_t token : target.eos_token_ids)
        limits.eos_tokens.push_back(static_cast<TokenId>(token));
    return limits;
}

DraftEnd DraftLimits::why_end(const DraftRequest& request, const Draft& draft, int most, DraftEnd rule_end) const {
    if (rule_end != DraftEnd::none) return rule_end;
    const bool ends = std::find(eos_tokens.begin(), eos_tokens.end(), draft.tokens.back()) != eos_tokens.end();
    if (ends && !request.request->ignore_eos) return DraftEnd::end_of_text;
    const int drafted = static_cast<int>(draft.tokens.size());
    if (drafted < most) return DraftEnd::none;
    if (drafted < request.max_tokens) return DraftEnd::context;
    return drafted < request.left_tokens ? DraftEnd::cap : DraftEnd::budget; // a cap that a batch's pass has room for
}

int max_drafted(const DraftRequest& request, const StopRule& rule, std::size_t context, DraftEnd& end) {
    const auto room = static_cast<std::ptrdiff_t>(context) - static_cast<std::ptrdiff_t>(request.tokens.size()) + 1;
    const int cap = std::min(request.max_tokens, rule.options().max_tokens);
    const int most = static_cast<int>(std::clamp<std::ptrdiff_t>(room, 0, std::max(cap, 0)));
    if (most == 0) end = request.max_tokens <= 0 ? DraftEnd::budget : DraftEnd::context;
    return most;
}

} // namespace entrodraft::spec
