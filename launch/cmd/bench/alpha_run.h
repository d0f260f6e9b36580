// How well drafters foresee a target: accepted share and mean sum min(p, q), at every other place of the target's own
// texts (every_other_place.h), so that neither depends on what was accepted before.
//
// Called by bench alpha, on all ranks.
#pragma once

#include "launch/intervals.h"
#include "launch/io/json_line.h"
#include "launch/load/drafters.h"
#include "launch/load/model_pair.h"
#include "spec/draft/every_other_place.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

struct AlphaPlan {
    std::vector<DrafterChoice> drafters;
    std::vector<double> temperatures;
    int max_new_tokens = 128;
    double timeout_seconds = 300;
    bool quiet = false;
};

// Of one drafter at one temperature. On the coordinator.
struct AlphaFigure {
    DrafterChoice drafter;
    double temperature = 0;
    std::vector<spec::Stats> texts; // of each prompt
    spec::Stats stats;              // of all
    spec::PlaceCounts places;

    // Shares are 0 where nothing was asked or proposed.
    double proposed_share() const; // of places, those with a proposal
    double accepted_share() const; // of proposals
    double alpha() const;          // mean of sum min(p, q) over proposals
    double alpha_of_all() const;   // over all places; 0 where nothing is proposed
    Interval interval() const;     // of alpha(), over prompts
};

// `prompts` count on the coordinator. Collective over the world.
std::vector<AlphaFigure> measure_alpha(dist::Session& session, ModelPair& models, const Drafters& drafters,
                                       const std::vector<spec::Request>& prompts, const AlphaPlan& plan);

// Local.
std::string alpha_table(const std::vector<AlphaFigure>& figures);
Json to_json(const AlphaFigure& figure);

} // namespace entrodraft::launch
