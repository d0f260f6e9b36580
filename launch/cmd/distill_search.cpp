// See distill_search.h.
#include "launch/cmd/distill_search.h"

#include "launch/cli/command_pages.h"
#include "launch/cmd/distill_texts.h"
#include "launch/cmd/distillation.h"
#include "launch/io/progress.h"
#include "launch/io/report.h"
#include "launch/io/results.h"
#include "launch/start/counted.h"
#include "launch/start/failure.h"
#include "launch/start/phase.h"
#include "launch/start/replaced_file.h"
#include "launch/start/signals.h"
#include "model/footprint/inspection.h"
#include "model/weights/layer_plan.h"
#include "spec/distill/worth.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>

namespace entrodraft::launch {

namespace {

using spec::Evaluation;

// One draft that is tried, and the directory of --output that it goes to.
struct Candidate {
    std::string directory;
    DistillOptions options;
};

std::vector<int> depths(const DistillOptions& options, const model::ModelConfig& target) {
    if (!options.search_layers.empty()) return options.search_layers;
    std::vector<int> some = {1};
    for (const int layers : {2, 4})
        if (layers < target.n_layers) some.push_back(layers);
    return some;
}

std::vector<int> widths(const DistillOptions& options, const model::ModelConfig& target) {
    if (!options.search_hidden.empty()) return options.search_hidden;
    constexpr int kMultiple = 16;
    std::vector<int> some;
    for (const int part : {4, 2})
        some.push_back(std::max(1, target.hidden_size / part / kMultiple) * kMultiple);
    some.push_back(target.hidden_size);
    return some;
}

// What a run of distill by itself would be given, on the texts of the search.
DistillOptions options_of(const DistillOptions& search, const std::string& directory, int layers, int hidden_size) {
    DistillOptions one = search;
    one.output = (std::filesystem::path(search.output) / directory).string();
    one.layers = layers;
    one.hidden_size = hidden_size;
    return one;
}

std::vector<Candidate> candidates_of(const DistillOptions& options, const model::ModelConfig& target) {
    std::vector<Candidate> all;
    if (!options.models.drafts.empty()) all.push_back({"draft", options_of(options, "draft", 0, 0)});
    for (const int hidden_size : widths(options, target))
        for (const int layers : depths(options, target)) {
            const std::string name = fmt::format("{}x{}", layers, hidden_size);
            if (std::ranges::find(all, name, &Candidate::directory) != all.end()) continue; // parts of a small target
            const bool is_whole = hidden_size == target.hidden_size; // begins with the target's own layers
            all.push_back({name, options_of(options, name, layers, is_whole ? 0 : hidden_size)});
        }
    return all;
}

// Acceptance and the speed-up that it gives.
struct Prospect {
    double measured = 0, predicted = 0; // after the search's steps, and after all
    spec::ExpectedSpeedup expected;     // at the predicted one
};

struct TriedShape {
    std::string name;
    DistillOptions options;
    model::ModelConfig config;
    std::vector<Evaluation> evaluations;
    spec::Costs costs = {};
    Prospect sampled = {}, greedy = {};
    double speedup = 1; // expected, over texts of all temperatures that are learned
};

class ShapeSearch {
  public:
    ShapeSearch(dist::Session& session, const DistillOptions& options)
        : session_(session), options_(options), files_(options.output) {
        in_agreement(session, [&] {
            target_ = open_model("target", options.models.target).config;
            candidates_ = candidates_of(options, target_);
            for (const Candidate& candidate : candidates_)
                refuse_if(candidate.options.hidden_size == 0 && candidate.options.layers > target_.n_layers,
                          fmt::format("--search-layers {}: the target has {}", candidate.options.layers,
                                      counted(target_.n_layers, "layer")));
        });
        for (const Candidate& candidate : candidates_) // so that none is refused when directories are made
            drafts_.emplace_back(session, candidate.options);
        in_agreement(session, [&] {
            if (writes()) files_.prepare(options.resume);
        });
        for (Distillation& draft : drafts_) // nor when others have been trained
            draft.begin();
    }

    // False where a signal came first: the run can be resumed.
    bool run() {
        int vocab_size = target_.vocab_size;
        for (const Distillation& draft : drafts_)
            vocab_size = std::min(vocab_size, draft.config().vocab_size);
        DistillTexts texts(session_, options_, files_, vocab_size);
        texts.find();
        for (std::size_t i = 0; i < drafts_.size(); ++i) {
            const std::string& name = candidates_[i].directory;
            if (writes() && !options_.quiet) log_line(fmt::format("{} ({} of {})", name, i + 1, drafts_.size()));
            if (!drafts_[i].train(texts, options_.search_steps)) return false;
            const spec::Costs costs = drafts_[i].measure_costs(texts);
            in_agreement(session_, [&] {
                if (writes()) drafts_[i].write_report(texts, costs);
            });
            tried_.push_back({name, candidates_[i].options, drafts_[i].config(), drafts_[i].evaluations(), costs});
        }
        in_agreement(session_, [&] {
            if (writes()) report(texts);
        });
        return true;
    }

  private:
    bool writes() const { return session_.world_rank() == 0; }

    Prospect prospect_of(const TriedShape& shape, double Evaluation::*figure) const {
        Prospect made;
        made.measured = shape.evaluations.back().*figure;
        made.predicted = spec::predicted_share(shape.evaluations, figure, options_.plan.steps);
        made.expected = spec::expected_speedup(made.predicted, shape.costs);
        return made;
    }

    void report(const DistillTexts& texts) {
        std::vector<spec::Costs> costs;
        for (const TriedShape& shape : tried_)
            costs.push_back(shape.costs);
        spec::share_target_costs(costs);
        std::int64_t n_greedy = 0;
        for (const spec::ScoredText& text : texts.held_out())
            n_greedy += text.temperature == 0;
        const double greedy_share = static_cast<double>(n_greedy) / static_cast<double>(texts.held_out().size());
        for (std::size_t i = 0; i < tried_.size(); ++i) {
            TriedShape& shape = tried_[i];
            shape.costs = costs[i];
            shape.sampled = prospect_of(shape, &Evaluation::overlap);
            shape.greedy = prospect_of(shape, &Evaluation::agreement);
            shape.speedup = 1 / (greedy_share / shape.greedy.expected.speedup +
                                 (1 - greedy_share) / shape.sampled.expected.speedup); // of their seconds
        }
        const TriedShape& best = *std::ranges::max_element(tried_, {}, &TriedShape::speedup);
        const std::vector<Columns> rows = rows_of(tried_, row_of);
        const bool is_worth_it = best.speedup > 1;
        Json json = {{"command", "distill"},
                     {"texts", texts.description()},
                     {"steps", options_.plan.steps},
                     {"search_steps", options_.search_steps},
                     {"t_target_ms", Json::parse(spec::to_json(costs.front())).at("t_target_ms")},
                     {"shapes", json_of(rows)},
                     {"best", is_worth_it ? Json(best.name) : Json()}};
        replace_file(files_.search_report(), indented(json));
        print(session_, table_of(rows) + "\n" + (is_worth_it ? advice(best) : kNoneIsWorthIt));
    }

    static Columns row_of(const TriedShape& shape) {
        const double c = shape.costs.t_draft / shape.costs.target_seconds(1);
        Columns row = {{"name", "shape", shape.name},
                       {"layers", "", shape.config.n_layers},
                       {"hidden_size", "", shape.config.hidden_size},
                       {"parameters", "parameters", model::parameter_count(shape.config)},
                       {"t_first_draft_ms", "", shape.costs.first_draft_seconds() * 1e3},
                       {"t_draft_ms", "draft ms", shape.costs.t_draft * 1e3, 3},
                       {"cost_ratio", "of target's", c, 3},
                       {"step", "", shape.evaluations.back().step}};
        const auto add = [&](const Prospect& prospect, const char* key, const char* heading, const char* kind) {
            row.emplace_back(key, heading, prospect.measured, 3);
            row.emplace_back(fmt::format("predicted_{}", key), "predicted", prospect.predicted, 3);
            row.emplace_back(fmt::format("draft_tokens_{}", kind), "drafts of", prospect.expected.drafted);
            row.emplace_back(fmt::format("expected_speedup_{}", kind), "speed-up", prospect.expected.speedup, 2);
        };
        add(shape.sampled, "overlap", "sum min(p, q)", "temperature_1");
        add(shape.greedy, "greedy_agreement", "greedy agreement", "greedy");
        row.emplace_back("expected_speedup", "in all", shape.speedup, 2);
        return row;
    }

    std::string advice(const TriedShape& best) const {
        const DistillOptions& one = best.options;
        std::string draft = fmt::format("--layers {}", one.layers);
        if (one.layers == 0) draft = "--draft " + one.models.drafts.front();
        if (one.hidden_size > 0) draft += fmt::format(" --hidden {}", one.hidden_size);
        const std::string texts = options_.texts.empty() ? files_.texts().string() : options_.texts;
        return fmt::format("worth training: {}, expected to be {:.2f} times as fast as plain decoding. Go on with the "
                           "same options of training by\n    entrodraft distill --target {} {} --texts {} --output {} "
                           "--resume\n",
                           best.name, best.speedup, one.models.target, draft, texts, one.output);
    }

    static constexpr const char* kNoneIsWorthIt =
        "none of them is worth training: plain decoding is expected to be faster\n";

    dist::Session& session_;
    const DistillOptions& options_;
    DistillFiles files_;
    model::ModelConfig target_;
    std::vector<Candidate> candidates_;
    std::deque<Distillation> drafts_;
    std::vector<TriedShape> tried_;
};

} // namespace

int search_shapes(dist::Session& session, const DistillOptions& options) {
    ShapeSearch search(session, options);
    if (!search.run()) return kStopped;
    cancel_abort_timer();
    return kAllServed;
}

} // namespace entrodraft::launch
