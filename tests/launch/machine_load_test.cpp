// Whether a machine was busy with other work, from made-up counters.
#include "launch/cmd/bench/latency.h"
#include "launch/io/machine_load.h"

#include <cstring>
#include <gtest/gtest.h>

namespace machine_load_test {

using namespace entrodraft::launch;

cpu_set_t these_cores(std::initializer_list<int> cores) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores)
        CPU_SET(static_cast<std::size_t>(core), &set);
    return set;
}

HostLoad host_with(double busy, double own, double stolen = 0, int n_cores = 2, double seconds = 10) {
    HostLoad host;
    std::strcpy(host.host, "n1");
    host.n_cores = n_cores;
    host.seconds = seconds;
    host.load_average = 0.4;
    host.busy_seconds = busy;
    host.own_seconds = own;
    host.stolen_seconds = stolen;
    return host;
}

constexpr const char* kStat = "cpu  1000 10 100 5000 50 5 5 30 0 0\n"
                              "cpu0 600 5 60 2000 20 3 2 10 0 0\n"
                              "cpu1 400 5 40 3000 30 2 3 20 100 0\n"
                              "intr 1 2 3\n"
                              "ctxt 77\n";

TEST(MachineLoad, CoresAreBusyWithAllButIdlingAndWaitingForDisks) {
    const auto both = core_ticks(kStat, these_cores({0, 1}));
    ASSERT_TRUE(both);
    EXPECT_EQ(both->busy, 600u + 5 + 60 + 3 + 2 + 400 + 5 + 40 + 2 + 3);
    EXPECT_EQ(both->stolen, 30u);
    const auto one = core_ticks(kStat, these_cores({1}));
    ASSERT_TRUE(one);
    EXPECT_EQ(one->busy, 450u) << "what guests take is in user already";
}

TEST(MachineLoad, CountersThatCannotBeReadAreUnknown) {
    const cpu_set_t core = these_cores({0});
    for (const char* text : {"", "\n\n", "cpu 1 2 3 4 5 6 7 8\n", "cpu1 1 2 3 4 5 6 7 8\n", "cpu0\n", "cpu0 1 2 3\n",
                             "cpu0 1 2 3 4 5 6 7 x\n", "cpu0 1 2 3 4 5 6 7 -8\n", "cpux 1 2 3 4 5 6 7 8\n",
                             "cpu0x 1 2 3 4 5 6 7 8\n", "cpu0 1 2 3 4 5 6 7 99999999999999999999999\n",
                             "cpu0 18446744073709551615 1 0 0 0 0 0 0\n", "cpu99999999999999999999 1 2 3 4 5 6 7 8\n"})
        EXPECT_FALSE(core_ticks(text, core)) << text;
    EXPECT_FALSE(core_ticks(std::string_view("cpu0 1 2\0 3 4 5 6 7 8", 21), core));
    EXPECT_FALSE(core_ticks("cpu4096 1 2 3 4 5 6 7 8\n", core)) << "beyond what a set of cores holds";
    EXPECT_TRUE(core_ticks("cpu0 1 2 3 4 5 6 7 8", core)) << "without a newline at the end";
    EXPECT_DOUBLE_EQ(load_average("1.25 0.8 0.4 1/200 77\n").value_or(-1), 1.25);
    for (const char* text : {"", "x", "-1 0 0", "nan 0 0", "inf", "1e300 0 0"})
        EXPECT_FALSE(load_average(text)) << text;
}

TEST(MachineLoad, OwnRanksAreNotOtherWork) {
    EXPECT_TRUE(assess({host_with(20, 19.9)}, 1.1).is_trusted());
    EXPECT_TRUE(assess({host_with(20, 20.2)}, 0).is_trusted()) << "ticks are coarser than a process's own clock";
    EXPECT_DOUBLE_EQ(assess({host_with(20, 20.2)}, 0).others_busy_cores.value_or(-1), 0);
}

TEST(MachineLoad, RanksOfAHostAreAddedUp) {
    HostLoad elsewhere = host_with(10, 9.9);
    std::strcpy(elsewhere.host, "n2");
    const std::vector<HostLoad> hosts = by_host({host_with(20, 9.9), elsewhere, host_with(20, 10)});
    ASSERT_EQ(hosts.size(), 2u);
    EXPECT_DOUBLE_EQ(hosts[0].own_seconds, 19.9);
    EXPECT_DOUBLE_EQ(hosts[0].busy_seconds, 20);
    EXPECT_DOUBLE_EQ(hosts[1].own_seconds, 9.9);
    EXPECT_TRUE(assess(hosts, 0).is_trusted());
}

TEST(MachineLoad, SaysHowManyCoresAreBusyWithOtherWork) {
    const MachineLoad load = assess({host_with(20, 9)}, 0);
    EXPECT_EQ(load.warning_line(), "warning: 1.1 of 2 cores are busy with other work: times are not to be trusted\n");
    EXPECT_EQ(assess({host_with(1, 0.5)}, 0).warning_line(), "") << "0.05 cores: a daemon";
}

TEST(MachineLoad, AdvisesOneThreadWhereSeveralWaitForEachOther) {
    HostLoad one = host_with(20, 9), several = one;
    one.threads = 1;
    several.threads = 2;
    EXPECT_EQ(assess({one}, 0).warning().find("--threads"), std::string::npos);
    EXPECT_EQ(assess(by_host({one, several}), 0).warning(),
              "0.2 of 2 cores are busy with other work: times are not to be trusted; --threads 1 may be faster beside "
              "other work");
    HostLoad quiet = host_with(20, 19.9);
    quiet.threads = 2;
    EXPECT_EQ(assess({quiet}, 0).warning(), "");
}

TEST(MachineLoad, SaysWhatTheHypervisorTakesAndHowFarTimesVary) {
    EXPECT_EQ(assess({host_with(10, 10, 5)}, 0).warning(),
              "0.5 of 2 cores are taken by other virtual machines: times are not to be trusted");
    EXPECT_EQ(assess({host_with(10, 10)}, 2.31).warning(),
              "one pass in ten takes 2.3 times the median or more: times are not to be trusted");
    EXPECT_EQ(
        assess({host_with(20, 9, 3)}, 1.7).disturbance,
        "1.1 of 2 cores are busy with other work; 0.3 of 2 cores are taken by other virtual machines; one pass in "
        "ten takes 1.7 times the median or more");
    EXPECT_TRUE(assess({host_with(10, 10)}, 1.2).is_trusted());
}

TEST(MachineLoad, SpeaksOfTheMostDisturbedHost) {
    HostLoad quiet = host_with(10, 10), busy = host_with(16, 10, 0, 8);
    std::strcpy(busy.host, "n2");
    const MachineLoad load = assess({quiet, busy}, 0);
    EXPECT_EQ(load.disturbance, "host n2: 0.6 of 8 cores are busy with other work");
    EXPECT_TRUE(assess({quiet, quiet}, 0).is_trusted());
}

TEST(MachineLoad, LargeHostsMayDoMoreBesideButNeverAWholeCore) {
    EXPECT_TRUE(assess({host_with(16, 10, 0, 16)}, 0).is_trusted());
    EXPECT_FALSE(assess({host_with(20, 9, 0, 128)}, 0).is_trusted());
}

TEST(MachineLoad, ClaimsNothingOfStretchesTooShortToCount) {
    EXPECT_TRUE(assess({host_with(0.1, 0.04, 0, 2, 0.04)}, 0).is_trusted());
    EXPECT_FALSE(assess({host_with(0.5, 0.25, 0, 2, 0.25)}, 0).is_trusted());
}

TEST(MachineLoad, ClaimsNothingWhereNothingIsKnown) {
    for (const HostLoad& host : {host_with(-1, 5), host_with(0, 5), host_with(5, 1, 0, 2, 0)}) {
        const MachineLoad load = assess({host}, 0);
        EXPECT_TRUE(load.is_trusted());
        EXPECT_FALSE(load.others_busy_cores);
        EXPECT_FALSE(to_json(load).contains("trusted"));
        EXPECT_FALSE(to_json(load).contains("others_busy_cores"));
    }
    EXPECT_TRUE(assess({}, 0).is_trusted());
}

TEST(MachineLoad, FieldsOfJsonAreThoseOfTheVerdict) {
    const Json json = to_json(assess({host_with(20, 9, 0.1)}, 1.25));
    EXPECT_EQ(json["host"], "n1");
    EXPECT_EQ(json["cores"], 2);
    EXPECT_DOUBLE_EQ(json["seconds"], 10);
    EXPECT_DOUBLE_EQ(json["load_average"], 0.4);
    EXPECT_DOUBLE_EQ(json["others_busy_cores"], 1.1);
    EXPECT_DOUBLE_EQ(json["stolen_cores"], 0.01);
    EXPECT_DOUBLE_EQ(json["spread"], 1.25);
    EXPECT_EQ(json["trusted"], false);
    EXPECT_EQ(json["disturbance"], "1.1 of 2 cores are busy with other work");
    EXPECT_EQ(to_json(assess({host_with(10, 10)}, 0))["trusted"], true);
}

TEST(CollectiveTimes, SumsThatAreSlowerOverSharedMemoryThanOverMpiAreNamed) {
    const auto times = [](double barrier, double small, double large) {
        const auto us = [](double median) { return Quantiles{median * 1e-6, 0, 0}; };
        return std::vector<CollectiveTime>{{"barrier", us(barrier)},
                                           {"all-reduce, 1 row of 320", us(small)},
                                           {"all-reduce, 16 rows of 320", us(large)}};
    };
    EXPECT_EQ(
        slower_sum(times(120, 118, 130), times(1, 0.8, 30)),
        "all-reduce, 1 row of 320: 118.00 us over shared memory, 0.80 us over MPI: ranks wait for cores that other "
        "work has, or share one");
    EXPECT_EQ(slower_sum(times(0.6, 1.5, 14), times(1.1, 2.3, 32)), "");
    EXPECT_EQ(slower_sum(times(0.6, 3, 33), times(1.1, 0.9, 32)), "") << "within noise";
    EXPECT_EQ(slower_sum({}, {}), "");
}

} // namespace machine_load_test
