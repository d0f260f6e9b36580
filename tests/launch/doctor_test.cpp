// doctor: what it says to people and to programs.
#include "launch/cmd/doctor_report.h"
#include "tests/launch/command_line.h"

#include <cstring>
#include <gtest/gtest.h>

namespace doctor_test {

using namespace test;
using entrodraft::launch::DoctorReport;
using entrodraft::launch::RankFacts;

TEST(Doctor, ChecksHaveAStatusAndOneThatFailedIsAnError) {
    DoctorReport report;
    RankFacts facts;
    std::strcpy(facts.host, "n1");
    report.ranks = {facts, facts};
    report.good("heads");
    report.add({false, "slow"});
    EXPECT_FALSE(report.has_errors());
    EXPECT_EQ(report.json()["ok"], true);
    report.add({true, "builds differ"});
    EXPECT_TRUE(report.has_errors());
    const Json json = report.json();
    EXPECT_EQ(json["ok"], false);
    EXPECT_EQ(json["hosts"], Json{"n1"});
    EXPECT_TRUE(json["ranks"][0]["gpus"].is_null());
    EXPECT_EQ(json["checks"][0], (Json{{"status", "ok"}, {"text", "heads"}}));
    EXPECT_EQ(json["checks"][1]["status"], "warning");
    EXPECT_EQ(json["checks"][2]["status"], "failed");
    const std::string text = report.text();
    EXPECT_NE(text.find("  ok       heads\n  warning  slow\n  failed   builds differ\n"), std::string::npos) << text;
}

TEST(Doctor, OtherWorkOnTheCoresIsAWarningAndItsAbsenceIsSaid) {
    entrodraft::launch::MachineLoad load;
    load.others_busy_cores = 0;
    load.host.seconds = 1.04;
    DoctorReport idle, busy, unknown;
    idle.add(load);
    EXPECT_NE(idle.text().find("  ok       no other work on the cores, which were watched for 1.0 s"),
              std::string::npos)
        << idle.text();
    load.disturbance = "1.1 of 2 cores are busy with other work";
    busy.add(load);
    EXPECT_NE(busy.text().find("  warning  1.1 of 2 cores are busy with other work: times are not to be trusted\n"),
              std::string::npos);
    EXPECT_FALSE(busy.has_errors());
    EXPECT_EQ(busy.json()["machine"]["disturbance"], load.disturbance);
    unknown.add(entrodraft::launch::MachineLoad{});
    EXPECT_TRUE(unknown.checks.empty());
}

TEST(Doctor, OneRankWatchesTheCoresForASecond) {
    const Ended ended = run({"doctor", "--repetitions", "1", "--threads", "1", "--json"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_GE(Json::parse(ended.out)["machine"]["seconds"].get<double>(), 1);
}

TEST(Doctor, JsonIsOneObjectWithTheExitCodeOfTheText) {
    const Strings doctor = {"doctor", "--target", kTarget, "--repetitions", "2", "--threads", "1"};
    const Ended good = run_ranks(2, doctor + Strings{"--json"});
    EXPECT_EQ(good.code, 0) << good.err;
    const Json found = Json::parse(good.out);
    EXPECT_EQ(found["ok"], true);
    EXPECT_EQ(found["ranks"].size(), 2U);
    EXPECT_EQ(found["ranks"][0]["build"], found["ranks"][1]["build"]);
    EXPECT_EQ(found["files"]["target"], kTarget);
    EXPECT_GE(found["machine"]["others_busy_cores"].get<double>(), 0);
    ASSERT_FALSE(found["collectives"].empty());
    EXPECT_GT(found["collectives"][0]["median_us"], 0);
    const Strings missing = {"doctor", "--target", kGolden, "--repetitions", "2", "--json"};
    const Ended bad = run(missing);
    EXPECT_EQ(bad.code, 1);
    EXPECT_EQ(Json::parse(bad.out)["ok"], false);
}

} // namespace doctor_test
