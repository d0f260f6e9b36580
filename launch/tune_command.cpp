#include "entrodraft/launch/commands.h"
#include <stdexcept>
namespace entrodraft::launch {
int run_tune(dist::Session&, const Arguments&) {
    throw std::runtime_error("being built");
}
} // namespace entrodraft::launch
