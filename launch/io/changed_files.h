// Files that somebody changes while the program has them mapped: one that was cut short ends the run, any other is a
// warning.
//
// Called by program, once a session is there, and behind the loading of models. What is mapped is the model module's
// affair (mapped_file.h).
#pragma once

#include "dist/session/session.h"

namespace entrodraft::launch {

// From now on, where a part of a mapped file is read that is no longer there, the process says so with the file's name
// and ends with kFailure; the other ranks are ended as by any death. Any other SIGBUS goes to the handler that was
// there before. Once; the session outlives all reading.
void end_on_lost_pages(dist::Session& session);

// A line on stderr for each file whose size or time of change is no longer what it was; each is told once. The first
// rank of a host speaks for it: it maps what the others map.
void warn_of_changed_files(const dist::Session& session);

} // namespace entrodraft::launch
