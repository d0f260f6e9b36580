// Records texts of a test pair. For tests only.
#pragma once

#include "tests/spec/engine_support.h"
#include "tests/spec/loaded_head.h"

#include "spec/replay/recorder.h"

#include <algorithm>
#include <vector>

namespace entrodraft {

struct RecordedTexts {
    spec::RecordingHead head;
    std::vector<spec::TextRecord> texts; // on the coordinator

    std::vector<const spec::TextRecord*> pointers() const {
        std::vector<const spec::TextRecord*> all;
        for (const spec::TextRecord& text : texts)
            all.push_back(&text);
        return all;
    }
};

inline spec::RecordingHead head_of(TestPair& pair, bool noisy, int max_draft_tokens) {
    spec::RecordingHead head;
    head.target = {"target", "float32", pair.target.config.max_positions};
    head.drafts = {{"draft", "float32", pair.draft.config.max_positions}};
    head.noisy = noisy;
    head.max_draft_tokens = max_draft_tokens;
    head.vocab_size = pair.vocab_size();
    head.max_positions = pair.target.config.max_positions;
    head.eos_tokens = pair.limits().eos_tokens;
    head.costs = {spec::Costs{0.1, {1, 1.1}, std::nullopt}};
    return head;
}

// Decodes the texts of `requests` plainly and records them, with the pair's draft or with a head in its place. After a
// stop string the target goes on, as far as a draft may run. Collective over the pair's replica.
inline RecordedTexts record_texts(TestPair& pair, const std::vector<spec::Request>& requests, bool noisy,
                                  int max_draft_tokens, int draft_slots = 5, const std::vector<std::string>& trees = {},
                                  const LoadedHead* head = nullptr) {
    RecordedTexts recorded{head_of(pair, noisy, max_draft_tokens), {}};
    if (head) recorded.head.drafts = {{"head", "float32", pair.target.config.max_positions, head->head.max_tokens}};
    for (const std::string& tree : trees)
        recorded.head.add_tree(spec::parse_tree(tree));
    RunOptions options;
    options.acceptance = noisy ? spec::Acceptance::gumbel : spec::Acceptance::rejection;
    model::Decoder* const drafts[] = {&pair.draft.decoder};
    spec::RecorderOptions recorder_options;
    recorder_options.limits = pair.limits();
    recorder_options.max_draft_tokens = max_draft_tokens;
    recorder_options.draft_slots = draft_slots;
    for (const std::string& tree : trees)
        recorder_options.trees.push_back(spec::parse_tree(tree));
    const bool coordinates = pair.layout.is_coordinator();
    spec::EngineParts parts = {&pair.layout,
                               pair.replica,
                               pair.layout.holds_target() ? &pair.target.decoder : nullptr,
                               nullptr,
                               coordinates ? &pair.tokenizer : nullptr,
                               &pair.clock,
                               &pair.target.config};
    if (head) parts.hidden_layers = head->head.target_layers;
    const bool has_draft = coordinates && !head;
    spec::Recorder recorder(recorder_options, parts, has_draft ? std::span(drafts) : std::span<model::Decoder* const>{},
                            coordinates && head ? &head->modules : nullptr);
    const volatile int no_signal = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        spec::Request longer = requests[i];
        longer.stop_strings.clear();
        const auto texts = pair.serve(*pair.engine(options, nullptr), {requests[i], longer}, no_signal);
        if (!coordinates) {
            recorder.record(nullptr, nullptr);
            continue;
        }
        spec::Request request = requests[i];
        request.id = std::to_string(i);
        spec::TextRecord& text = recorded.texts.emplace_back();
        text.id = request.id;
        text.prompt = request.prompt;
        text.new_tokens = static_cast<int>(texts[0].tokens.size());
        text.finish_reason = texts[0].finish_reason;
        text.max_new_tokens = request.max_new_tokens;
        text.ignore_eos = request.ignore_eos;
        text.seed = request.sampling.seed;
        text.temperature = request.sampling.temperature;
        text.pieces.assign(static_cast<std::size_t>(text.new_tokens), "a");
        text.token = texts[1].tokens;
        const auto most = static_cast<std::size_t>(text.new_tokens + max_draft_tokens);
        text.token.resize(std::min(text.token.size(), most));
        recorder.record(&text, &request);
    }
    return recorded;
}

} // namespace entrodraft
