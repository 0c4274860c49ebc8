#include "lockstep/apps/shared/monitoring/input_profile.h"

#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <thread>

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;

/// The stages of a training of 10 s in which `waited` seconds were waited.
InputProfile profile_of(std::optional<double> waited) {
  return {.examples = "rows",
          .count = 4'000'000,
          .seconds = 10,
          .waited = waited,
          .stages = {{.name = "order", .seconds = 0.5, .count = 4'000'000},
                     {.name = "gather", .seconds = 2, .count = 4'000'000}},
          .ahead = {{.name = "store", .seconds = 4, .count = 5'000'000, .bytes = 800'000'000},
                    {.name = "decode", .seconds = 2.5, .count = 5'000'000, .bytes = 1'000'000'000}},
          .waited_for_ahead = 3};
}

TEST(InputProfile, NamesTheTrainingIfItHardlyWaits) {
  EXPECT_EQ(limiting_stage(profile_of(0.0)), "training");
  EXPECT_EQ(limiting_stage(profile_of(0.29)), "training");
  EXPECT_NE(limiting_stage(profile_of(0.31)), "training");
}

TEST(InputProfile, NamesTheLongestStageAheadIfThreadsThatMakeBatchesWaitForItLongest) {
  InputProfile profile = profile_of(6);
  EXPECT_EQ(limiting_stage(profile), "store");
  profile.ahead[1].seconds = 4.5;
  EXPECT_EQ(limiting_stage(profile), "decode");
  // Reading ahead is fast enough: gathering takes longer than waiting for it.
  profile.waited_for_ahead = 1.9;
  EXPECT_EQ(limiting_stage(profile), "gather");
}

TEST(InputProfile, NamesTheSlowestStageIfOthersWait) {
  EXPECT_EQ(limiting_stage(profile_of(std::nullopt)), "store");
  EXPECT_EQ(limiting_stage({.waited = 0.0}), "");
  EXPECT_THAT(input_profile_text({.waited = 0.0}), HasSubstr("nothing was measured"));
}

TEST(InputProfile, IsATable) {
  EXPECT_EQ(input_profile_text(profile_of(6)),
            "input                seconds          rows/s        MB/s\n"
            "  store                 4.00       1,250,000       200.0\n"
            "  decode                2.50       2,000,000       400.0\n"
            "  wait for these        3.00               -           -\n"
            "  order                 0.50       8,000,000           -\n"
            "  gather                2.00       2,000,000           -\n"
            "  training              4.00       1,000,000           -\n"
            "  store limits the speed: the training waited for batches for 60.0 % of 10.0 s\n");
}

void sleep_in(InputTimes& times, InputPart part) {
  InputTimes::timed(&times, part, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
}

TEST(InputProfile, NamesThePartThatSleeps) {
  const std::pair<InputPart, const char*> parts[] = {{InputPart::kOrder, "order"},
                                                     {InputPart::kDataset, "dataset"},
                                                     {InputPart::kMap, "map"},
                                                     {InputPart::kCopy, "copy"}};
  for (const auto& [part, name] : parts) {
    InputTimes times;
    times.add_examples(100);
    sleep_in(times, part);
    const InputProfile profile = input_profile(times, "rows", {.examples = 90, .seconds = 1, .waited = 0.5});
    EXPECT_EQ(limiting_stage(profile), name);
    EXPECT_EQ(profile.count, 90);
    for (const InputStage& stage : profile.stages) {
      EXPECT_EQ(stage.count, 100);
      if (stage.name == name)
        EXPECT_GE(stage.seconds, 0.02);
      else
        EXPECT_EQ(stage.seconds, 0);
    }
  }
}

}  // namespace
}  // namespace lockstep::apps
