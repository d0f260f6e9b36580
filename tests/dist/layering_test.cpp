// Reads the sources as text and holds them to the house rules: the room order of includes, where MPI, NCCL
// and CUDA headers may stand, and which folder names there are not. Knows nothing of what the code does.
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

// Rooms in rank order: a room may include itself and those before it.
const std::vector<std::string> kRooms = {"dist", "model", "spec", "launch"};
const std::set<std::string> kForbiddenFolders = {"common", "utils", "core"};

std::optional<std::size_t> rank_of(const std::string& room) {
    for (std::size_t i = 0; i < kRooms.size(); ++i)
        if (kRooms[i] == room) return i;
    return std::nullopt;
}

// mpi.h, nccl.h and the headers of the CUDA toolkit.
bool is_device_or_mpi_header(const std::string& header) {
    static const std::regex pattern(
        R"((mpi(_\w+)?|nccl\w*|cu(da|blas|dnn|sparse|solver|fft|rand)\w*|device_launch_\w+|nvml)\.h(pp)?)"
        R"(|cuda/.*|cub/.*|cooperative_groups.*|driver_types\.h|vector_types\.h)");
    return std::regex_match(header, pattern);
}

// dist's implementation files, kernel files, and the library that makes calls of MPI fail.
bool may_include_device_headers(const fs::path& file) {
    return file == "tests/faults/nth_failure.cpp" || file.extension() == ".cu" || file.extension() == ".cuh" ||
           (*file.begin() == "dist" && file.extension() == ".cpp") ||
           (file.parent_path().filename() == "kernels" && file.extension() == ".cpp");
}

// What is wrong with the includes of one file; `file` is relative to the source root.
std::vector<std::string> include_faults(const fs::path& file, const std::string& text) {
    static const std::regex include(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
    static const std::regex house(R"(entrodraft/([^/]+)/.+)");
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
        std::smatch room;
        if (std::regex_match(header, room, house)) {
            const auto rank = rank_of(room[1]);
            const auto own = rank_of(file.begin()->string());
            if (!rank)
                fault("there is no room of this name");
            else if (own && *rank > *own)
                fault(file.begin()->string() + " does not know " + kRooms[*rank]);
        } else if (found[1] == "\"" && rank_of(file.begin()->string()) && fs::path(header).extension() != ".inl") {
            fault("write entrodraft/room/file.h");
        }
        if (is_device_or_mpi_header(header) && !may_include_device_headers(file))
            fault("belongs into dist/*.cpp or a kernel file");
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

// Every C++ and CUDA file of the rooms, the tests and the benches, relative to the source root.
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

TEST(Layering, FindsIncludesAgainstTheRoomOrder) {
    EXPECT_EQ(include_faults("dist/a.h", "#include \"entrodraft/model/config.h\"\n").size(), 1U);
    EXPECT_EQ(include_faults("model/a.cpp", "\n #  include \"entrodraft/spec/round.h\"\n").size(), 1U);
    EXPECT_EQ(include_faults("spec/a.cpp", "#include <entrodraft/launch/options/options.h>\n").size(), 1U);
    EXPECT_EQ(include_faults("spec/a.cpp", "#include \"entrodraft/utils/strings.h\"\n").size(), 1U);
    EXPECT_EQ(include_faults("spec/a.cpp", "#include \"../launch/options.h\"\n").size(), 1U);
    EXPECT_TRUE(include_faults("launch/a.cpp", "#include \"entrodraft/dist/session.h\"\n#include <vector>\n").empty());
    EXPECT_TRUE(include_faults("model/kernels/a.cpp", "#include \"kernels.inl\"\n// #include \"x.h\"\n").empty());
}

TEST(Layering, FindsMpiAndDeviceHeadersOutsideTheirFiles) {
    for (const char* header : {"mpi.h", "nccl.h", "cuda_runtime.h", "cuda.h", "cublas_v2.h", "cub/cub.cuh"}) {
        const std::string line = std::string("#include <") + header + ">\n";
        EXPECT_EQ(include_faults("dist/session.h", line).size(), 1U) << header;
        EXPECT_EQ(include_faults("spec/round.cpp", line).size(), 1U) << header;
        EXPECT_EQ(include_faults("tests/spec/round_mpi.cpp", line).size(), 1U) << header;
        EXPECT_TRUE(include_faults("dist/session.cpp", line).empty()) << header;
        EXPECT_TRUE(include_faults("model/kernels/gemm.cu", line).empty()) << header;
    }
    EXPECT_TRUE(include_faults("spec/round.cpp", "#include <current.h>\n").empty());
}

TEST(Layering, FindsFoldersWithoutAMeaning) {
    EXPECT_TRUE(folder_fault("model/utils/strings.h"));
    EXPECT_TRUE(folder_fault("tests/common/a.cpp"));
    EXPECT_FALSE(folder_fault("model/kernels/a.cpp"));
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
    std::map<std::string, int> files_of_room;
    for (const auto& [file, text] : sources) {
        if (file.string().find("cuda_stand_in") != std::string::npos) continue; // a CUDA of its own
        ++files_of_room[file.begin()->string()];
        for (const std::string& fault : include_faults(file, text))
            ADD_FAILURE() << fault;
        if (const auto fault = folder_fault(file)) ADD_FAILURE() << *fault;
    }
    for (const std::string& room : kRooms) // a scan that finds nothing proves nothing
        EXPECT_GE(files_of_room[room], 2) << room;
}

} // namespace layering_test
