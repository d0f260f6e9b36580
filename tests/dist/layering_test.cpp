// Reads the sources as text and holds them to the project's rules: which module and folder may include which, where
// MPI, NCCL and CUDA headers may be included, and which folder names are not used. Knows nothing of what the code does.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace layering_test {

namespace fs = std::filesystem;

// Modules in rank order: a module may include itself and those before it.
const std::vector<std::string> kModules = {"dist", "model", "spec", "launch"};
const std::set<std::string> kForbiddenFolders = {"common", "utils", "core"};

std::optional<std::size_t> rank_of(const std::string& module) {
    for (std::size_t i = 0; i < kModules.size(); ++i)
        if (kModules[i] == module) return i;
    return std::nullopt;
}

// mpi.h, nccl.h and the headers of the CUDA toolkit.
bool is_device_or_mpi_header(const std::string& header) {
    static const std::regex pattern(
        R"((mpi(_\w+)?|nccl\w*|cu(da|blas|dnn|sparse|solver|fft|rand)\w*|device_launch_\w+|nvml)\.h(pp)?)"
        R"(|cuda/.*|cub/.*|cooperative_groups.*|driver_types\.h|vector_types\.h)");
    return std::regex_match(header, pattern);
}

// dist's implementation files, kernel files, and a few that call such libraries themselves.
bool may_include_device_headers(const fs::path& file) {
    static const std::set<fs::path> others = {
        "model/gpu/prompt_products.cpp", // cuBLASLt's products
        "tests/dist/nccl_mpi.cpp",       // captures NCCL's collectives
        "tests/faults/nth_failure.cpp",  // makes calls of MPI fail
    };
    return others.contains(file) || file.extension() == ".cu" || file.extension() == ".cuh" ||
           (*file.begin() == "dist" && file.extension() == ".cpp") ||
           (file.parent_path().filename() == "cpu" && file.extension() == ".cpp");
}

// What is wrong with the includes of one file; `file` is relative to the source root.
std::vector<std::string> include_faults(const fs::path& file, const std::string& text) {
    static const std::regex include(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
    static const std::regex house(R"((dist|model|spec|launch)/.+)");
    std::vector<std::string> faults;
    std::istringstream lines(text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        std::smatch found;
        if (!std::regex_search(line, found, include)) continue;
        const std::string header = found[2];
        const auto fault = [&](const std::string& reason) {
            faults.push_back(file.string() + ":" + std::to_string(number) + ": " + header + ": " + reason);
        };
        std::smatch module;
        if (std::regex_match(header, module, house)) {
            const auto own = rank_of(file.begin()->string());
            if (own && *rank_of(module[1]) > *own)
                fault(file.begin()->string() + " may not include " + module[1].str());
        } else if (found[1] == "\"" && rank_of(file.begin()->string()) && fs::path(header).extension() != ".inl") {
            fault("write module/folder/file.h");
        }
        if (is_device_or_mpi_header(header) && !may_include_device_headers(file))
            fault("belongs into dist/**/*.cpp or a kernel file");
    }
    return faults;
}

std::optional<std::string> folder_fault(const fs::path& file) {
    for (const fs::path& part : file.parent_path())
        if (kForbiddenFolders.contains(part.string()))
            return file.string() + ": a folder named " + part.string() + " says nothing of what is in it";
    return std::nullopt;
}

// The types that a file defines for others to see: those of a named namespace, at its outermost level.
std::vector<std::string> types_of(const std::string& text) {
    static const std::regex opens(R"(^namespace\s*([\w:]*)\s*\{.*)"), closes(R"(^\} // namespace.*)"),
        type(R"(^(template <[^>]*> )?(struct|class|enum class|enum) (\w+)( final)?( : .*)? \{.*)");
    std::vector<std::string> spaces, types;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::smatch found;
        if (std::regex_match(line, found, opens)) {
            spaces.push_back(found[1]);
        } else if (std::regex_match(line, closes) && !spaces.empty()) {
            spaces.pop_back();
        } else if (std::regex_match(line, found, type) && std::count(spaces.begin(), spaces.end(), "") == 0) {
            std::string name;
            for (const std::string& space : spaces)
                name += space + "::";
            types.push_back(name + found[3].str());
        }
    }
    return types;
}

// Every C++ and CUDA file of the modules, the tests and the benches, relative to the source root.
std::map<fs::path, std::string> read_sources(const fs::path& root) {
    static const std::set<std::string> extensions = {".h", ".hpp", ".cpp", ".inl", ".cu", ".cuh", ".c", ".cc"};
    std::map<fs::path, std::string> sources;
    for (const char* top : {"dist", "model", "spec", "launch", "tests", "bench"}) {
        if (!fs::exists(root / top)) continue;
        for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
            if (!entry.is_regular_file() || !extensions.contains(entry.path().extension().string())) continue;
            std::ifstream stream(entry.path());
            std::ostringstream text;
            text << stream.rdbuf();
            sources[fs::relative(entry.path(), root)] = text.str();
        }
    }
    return sources;
}

TEST(Layering, FindsIncludesAgainstTheModuleOrder) {
    EXPECT_EQ(include_faults("dist/a.h", "#include \"model/families/config.h\"\n").size(), 1U);
    EXPECT_EQ(include_faults("model/a.cpp", "\n #  include \"spec/round/round.h\"\n").size(), 1U);
    EXPECT_EQ(include_faults("spec/a.cpp", "#include <launch/cli/options.h>\n").size(), 1U);
    EXPECT_EQ(include_faults("spec/a.cpp", "#include \"utils/strings.h\"\n").size(), 1U);
    EXPECT_EQ(include_faults("spec/a.cpp", "#include \"../launch/options.h\"\n").size(), 1U);
    EXPECT_TRUE(include_faults("launch/a.cpp", "#include \"dist/session/session.h\"\n#include <vector>\n").empty());
    EXPECT_TRUE(include_faults("model/cpu/a.cpp", "#include \"kernels.inl\"\n// #include \"x.h\"\n").empty());
}

// Which folders inside modules include which others.
std::map<std::string, std::set<std::string>> included_folders(const std::map<fs::path, std::string>& sources) {
    static const std::regex include(R"re(#\s*include "((dist|model|spec|launch)/[a-z_/]+)/[^/"]+")re");
    std::map<std::string, std::set<std::string>> included;
    for (const auto& [file, text] : sources) {
        const std::string folder = file.parent_path().string();
        if (!rank_of(file.begin()->string()) || folder.find('/') == std::string::npos) continue;
        for (std::sregex_iterator found(text.begin(), text.end(), include), end; found != end; ++found)
            if ((*found)[1] != folder) included[folder].insert((*found)[1]);
    }
    return included;
}

// Whether a folder includes itself by way of others.
bool is_in_a_circle(const std::string& folder, const std::map<std::string, std::set<std::string>>& included) {
    std::vector<std::string> open = {folder};
    std::set<std::string> seen;
    while (!open.empty()) {
        const auto next = included.find(open.back());
        open.pop_back();
        if (next == included.end()) continue;
        for (const std::string& other : next->second) {
            if (other == folder) return true;
            if (seen.insert(other).second) open.push_back(other);
        }
    }
    return false;
}

TEST(Layering, FindsFoldersThatIncludeEachOther) {
    const std::map<fs::path, std::string> sources = {{"spec/draft/a.h", "#include \"spec/stop/b.h\"\n"},
                                                     {"spec/stop/b.h", "#include \"spec/verify/c.h\"\n"},
                                                     {"spec/verify/c.h", "#include \"spec/draft/a.h\"\n"},
                                                     {"launch/io/d.h", "#include \"spec/draft/a.h\"\n"}};
    EXPECT_TRUE(is_in_a_circle("spec/stop", included_folders(sources)));
    EXPECT_FALSE(is_in_a_circle("launch/io", included_folders(sources)));
}

TEST(Layering, NoFolderIncludesItselfByWayOfOthers) {
    const auto included = included_folders(read_sources(ENTRODRAFT_SOURCE_DIR));
    EXPECT_GT(included.size(), 10U);
    for (const auto& [folder, others] : included)
        EXPECT_FALSE(is_in_a_circle(folder, included)) << folder;
}

// A module's root is no room: what lies there would include its folders and be included by them.
TEST(Layering, SourcesLieInFolders) {
    for (const auto& [file, text] : read_sources(ENTRODRAFT_SOURCE_DIR)) {
        const std::string module = file.begin()->string();
        EXPECT_FALSE(rank_of(module) && file.parent_path() == module) << file;
    }
}

TEST(Layering, FindsMpiAndDeviceHeadersOutsideTheirFiles) {
    for (const char* header : {"mpi.h", "nccl.h", "cuda_runtime.h", "cuda.h", "cublas_v2.h", "cub/cub.cuh"}) {
        const std::string line = std::string("#include <") + header + ">\n";
        EXPECT_EQ(include_faults("dist/session/session.h", line).size(), 1U) << header;
        EXPECT_EQ(include_faults("spec/round/round.cpp", line).size(), 1U) << header;
        EXPECT_EQ(include_faults("tests/spec/round_mpi.cpp", line).size(), 1U) << header;
        EXPECT_TRUE(include_faults("dist/session/session.cpp", line).empty()) << header;
        EXPECT_TRUE(include_faults("model/cpu/gemm.cu", line).empty()) << header;
    }
    EXPECT_TRUE(include_faults("spec/round/round.cpp", "#include <current.h>\n").empty());
}

TEST(Layering, FindsFoldersWithoutAMeaning) {
    EXPECT_TRUE(folder_fault("model/utils/strings.h"));
    EXPECT_TRUE(folder_fault("tests/common/a.cpp"));
    EXPECT_FALSE(folder_fault("model/cpu/a.cpp"));
}

TEST(Layering, FindsTypesThatOthersSee) {
    const std::string text =
        "namespace a::b {\nnamespace {\nstruct Own {\n};\n} // namespace\nclass Seen final : X {\n"
        "    struct Inner {\n    };\n};\nstruct Only;\n} // namespace a::b\nenum class Outer { x };\n";
    EXPECT_EQ(types_of(text), (std::vector<std::string>{"a::b::Seen", "Outer"}));
}

// Two types of one name are one to the linker, which then takes the functions of either for both.
TEST(Layering, NoTwoFilesDefineTheSameType) {
    std::map<std::string, std::string> seen;
    for (const auto& [file, text] : read_sources(ENTRODRAFT_SOURCE_DIR))
        for (const std::string& type : types_of(text)) {
            if (file.string().find("cuda_stand_in") != std::string::npos) continue; // others' names
            const auto [at, is_new] = seen.emplace(type, file.string());
            EXPECT_TRUE(is_new) << type << " is defined in " << at->second << " and in " << file;
        }
    EXPECT_GT(seen.size(), 200U);
}

TEST(Layering, HoldsInTheWholeTree) {
    const auto sources = read_sources(ENTRODRAFT_SOURCE_DIR);
    std::map<std::string, int> files_of_module;
    for (const auto& [file, text] : sources) {
        if (file.string().find("cuda_stand_in") != std::string::npos) continue; // a CUDA of its own
        ++files_of_module[file.begin()->string()];
        for (const std::string& fault : include_faults(file, text))
            ADD_FAILURE() << fault;
        if (const auto fault = folder_fault(file)) ADD_FAILURE() << *fault;
    }
    for (const std::string& module : kModules) // a scan that finds nothing proves nothing
        EXPECT_GE(files_of_module[module], 2) << module;
}

} // namespace layering_test
