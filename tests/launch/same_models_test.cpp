// Two ranks that hold copies of a checkpoint of their own: equal ones work, and any difference is refused with the rank
// and what differs, by generate and by doctor.
#include "tests/launch/command_line.h"
#include "tests/launch/model_copy.h"
#include "tests/model/temporary_directory.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <unistd.h>

namespace same_models_test {

using namespace test;
namespace fs = std::filesystem;

// Two ranks, each with a directory of its own where "t" is the target and "d" the draft.
class SameModels : public testing::Test {
  protected:
    SameModels() {
        for (const fs::path& place : {one_.path(), two_.path()})
            fs::create_directory_symlink(kTarget, place / "t");
        for (const fs::path& place : {one_.path(), two_.path()})
            fs::create_directory_symlink(kDraft, place / "d");
    }
    void replace(const std::string& name, const std::string& by) const { replace_in(two_, name, by); }
    static void replace_in(const entrodraft::TemporaryDirectory& place, const std::string& name,
                           const std::string& by) {
        fs::remove(place.path() / name);
        fs::create_directory_symlink(by, place.path() / name);
    }
    Ended run_both(const std::string& command, int ranks_of_one = 1) const {
        const ScratchFile out(""), err("");
        const std::string rank = quoted(ENTRODRAFT_BINARY) + " " + command;
        const int status = std::system(("timeout 60 mpirun --oversubscribe --bind-to none" +
                                        std::string(geteuid() == 0 ? " --allow-run-as-root" : "") + " -n " +
                                        std::to_string(ranks_of_one) + " -wdir " + one_.path().string() + " " + rank +
                                        " : -n 1 -wdir " + two_.path().string() + " " + rank + " > " + out.path() +
                                        " 2> " + err.path())
                                           .c_str());
        return {WEXITSTATUS(status), out.text(), err.text()};
    }
    Ended generate(const std::string& more = "") const {
        return run_both("generate --target t --prompt 'The ferry' --max-new-tokens 4 --quiet" + more);
    }
    static void expect_refused(const Ended& ended, const std::string& what) {
        EXPECT_EQ(ended.code, 1) << ended.err;
        EXPECT_EQ(ended.out, "");
        EXPECT_NE(ended.err.find("entrodraft: " + what + " differs between rank 1 (host "), std::string::npos)
            << ended.err;
        EXPECT_EQ(ended.err.find("differs"), ended.err.rfind("differs")) << ended.err;
    }

    entrodraft::TemporaryDirectory one_, two_;
};

TEST_F(SameModels, AnotherGenerationConfigIsRefused) {
    const ModelCopy other(kTarget);
    std::ofstream(other.file("generation_config.json")) << R"({"repetition_penalty": 1.5})";
    replace("t", other.path());
    expect_refused(generate(), "generation_config.json of --target t");
}

TEST_F(SameModels, EqualCopiesMakeTheTextOfOne) {
    const Ended shared = generate();
    const ModelCopy copy(kTarget);
    replace("t", copy.path());
    const Ended copies = generate();
    EXPECT_EQ(copies.code, 0) << copies.err;
    EXPECT_EQ(copies.out, shared.out);
}

TEST_F(SameModels, AnotherWeightIsRefusedAndItsTensorNamed) {
    const ModelCopy copy(kTarget);
    copy.flip_bit_before_end(200);
    replace("t", copy.path());
    expect_refused(generate(), "tensor model.norm.weight of --target t");
    const Ended doctor = run_both("doctor --target t --repetitions 1");
    EXPECT_EQ(doctor.code, 1) << doctor.out;
    EXPECT_NE(doctor.out.find("tensor model.norm.weight of --target t differs"), std::string::npos) << doctor.out;
}

TEST_F(SameModels, AFieldOfTheConfigThatOnlyChangesArithmeticIsRefused) {
    const ModelCopy copy(kTarget);
    copy.set_in_config("hidden_act", "relu");
    replace("t", copy.path());
    expect_refused(generate(), "config.json of --target t");
}

TEST_F(SameModels, AnotherDraftIsRefused) {
    const ModelCopy copy(kDraft);
    copy.flip_bit_before_end(3);
    replace("d", copy.path());
    const Ended ended = generate(" --draft d --draft-placement sharded");
    EXPECT_EQ(ended.code, 1) << ended.err;
    EXPECT_NE(ended.err.find(" of --draft d differs between rank 1"), std::string::npos) << ended.err;
}

TEST_F(SameModels, DoctorSaysWhatItHasCompared) {
    const std::string doctor = "doctor --target t --draft d --repetitions 1";
    const Ended shared = run_both(doctor);
    EXPECT_NE(shared.out.find("all ranks have opened the same files of t and the drafts"), std::string::npos)
        << shared.out;
    const ModelCopy copy(kTarget);
    replace("t", copy.path());
    const Ended copies = run_both(doctor);
    EXPECT_EQ(copies.code, 0) << copies.out;
    EXPECT_NE(copies.out.find("2 copies of t and the drafts are the same byte for byte ("), std::string::npos)
        << copies.out;
}

// Adds a tensor to a copy that no model reads and that takes no room, since nobody has written it.
const std::string kUnread = "model.layers.0.self_attn.rotary_emb.inv_freq";
void add_unread_tensor(const ModelCopy& copy, std::uint64_t bytes) {
    const std::string file = copy.file("model.safetensors");
    std::ifstream in(file, std::ios::binary);
    std::uint64_t length = 0;
    in.read(reinterpret_cast<char*>(&length), sizeof length);
    std::string header(length, '\0');
    in.read(header.data(), static_cast<std::streamsize>(length));
    const std::string data{std::istreambuf_iterator<char>(in), {}};
    Json tensors = Json::parse(header);
    tensors[kUnread] = {{"dtype", "U8"},
                        {"shape", Json::array({bytes})},
                        {"data_offsets", Json::array({data.size(), data.size() + bytes})}};
    header = tensors.dump();
    length = header.size();
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header << data;
    out.close();
    fs::resize_file(file, fs::file_size(file) + bytes);
}

TEST_F(SameModels, LargeCopiesOfUnequallyManyRanksAreReadToTheirEnds) {
    const ModelCopy one(kTarget), two(kTarget);
    for (const ModelCopy* copy : {&one, &two})
        add_unread_tensor(*copy, std::uint64_t{300} << 20); // more than is read between two meetings
    replace_in(one_, "t", one.path());
    replace_in(two_, "t", two.path());
    const std::string doctor = "doctor --target t --repetitions 1 --threads 1";
    const Ended equal = run_both(doctor, 2);
    EXPECT_EQ(equal.code, 0) << equal.out << equal.err;
    EXPECT_NE(equal.out.find("2 copies of t are the same byte for byte ("), std::string::npos) << equal.out;
    two.flip_bit_before_end(1);
    const Ended other = run_both(doctor, 2);
    EXPECT_EQ(other.code, 1) << other.out;
    EXPECT_NE(other.out.find("tensor " + kUnread + " of --target t differs between rank 2"), std::string::npos)
        << other.out;
}

} // namespace same_models_test
