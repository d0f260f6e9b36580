// Groups of options that several commands read alike. Private to the files that make options into structs.
#pragma once

#include "launch/cli/options.h"

#include <string>
#include <vector>

namespace entrodraft::launch {

// All throw BadOption. Local.
void refuse_later_work(const ParsedOptions& given);
ModelOptions model_options(const ParsedOptions& given);
dist::DraftPlacement draft_placement(const ParsedOptions& given);
// Sampling, penalties, banned tokens, ends: what a request asks for where its line says nothing.
RequestDefaults request_defaults(const ParsedOptions& given);
// Lines with messages are conversations without --chat too, so that a template may be named without it.
void read_chat(const ParsedOptions& given, bool has_prompt, ModelOptions& models, RequestDefaults& requests);
// A draft that is sharded across the ranks goes with no other drafter.
void require_one_model(const DrafterChoice& drafter, dist::DraftPlacement placement);
// --draft-ahead and --draft-ahead-passes: where drafting ahead can be done it is done, unless --draft-ahead is 0.
void read_ahead(const ParsedOptions& given, GenerateOptions& options);
// Each that can draft ahead with every number of outcomes that --draft-ahead lists.
std::vector<DrafterChoice> with_ahead(const std::vector<DrafterChoice>& drafters, const ParsedOptions& given,
                                      dist::DraftPlacement placement);
// "ngram,model". `option` is named in errors.
DrafterChoice parse_drafter(const std::string& text, char separator, std::size_t n_drafts, const std::string& option);
spec::Acceptance acceptance_of(const std::string& name, const char* option);
// --trace or --timeline, files beside the text on stdout; "" where there is none.
std::string beside_stdout(const ParsedOptions& given, const std::string& option);
// --output of commands that print to stdout with --json; "" where there is none.
std::string json_output(const ParsedOptions& given);
// "1,2.5,4": numbers that are not negative.
std::vector<double> number_list(const ParsedOptions& given, const std::string& name,
                                const std::vector<double>& default_value);

} // namespace entrodraft::launch
