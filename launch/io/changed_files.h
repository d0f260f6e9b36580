// Watches files that somebody changes while the program has them mapped. If a file was cut short, the run ends; any
// other change is a warning.
//
// Called by program, at the beginning and the end of a command, and by loaded_pair, once models are loaded. The model
// module maps the files (mapped_file.h).
#pragma once

#include "dist/session/session.h"

namespace entrodraft::launch {

// Installs the handler of SIGBUS, once. If the program then reads a part of a mapped file that no longer exists, the
// process names the file and ends with kFailure; other ranks end as after any death. Any other SIGBUS goes to the
// handler that was there before. The session outlives all reading.
void end_on_lost_pages(dist::Session& session);

// Logs a line for each file whose size or modification time has changed; each file is named once. Only the first rank
// of a host speaks, because all ranks there map the same files.
void warn_of_changed_files(const dist::Session& session);

} // namespace entrodraft::launch
