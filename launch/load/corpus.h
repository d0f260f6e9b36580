// What the drafter suffix looks in beside a text: a file of build-corpus, or text that is indexed as it is read.
//
// Called by the loader of drafters.
#pragma once

#include "model/text/tokenizer/tokenizer.h"
#include "spec/draft/lookup_corpus.h"

#include <memory>
#include <string>

namespace entrodraft::launch {

// "-" is stdin. Throws model::BadFile, std::runtime_error naming the file.
std::shared_ptr<const spec::LookupCorpus> open_corpus(const std::string& file, const model::Tokenizer& tokenizer);

} // namespace entrodraft::launch
