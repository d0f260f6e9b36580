#include "model/families/families.h"

#include <algorithm>
#include <stdexcept>

namespace entrodraft::model {

const std::vector<FamilyDescription>& families() {
    static const std::vector<FamilyDescription> all = families_of_files();
    return all;
}

const FamilyDescription& describe(const std::string& model_type) {
    const auto found = std::ranges::find(families(), model_type, &FamilyDescription::model_type);
    if (found == families().end()) throw std::invalid_argument("there is no model family " + model_type);
    return *found;
}

} // namespace entrodraft::model
