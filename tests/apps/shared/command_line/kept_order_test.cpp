#include "lockstep/apps/shared/command_line/kept_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "lockstep/apps/shared/command_line/configuration_file.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string configured(const std::string& memory, int64_t lanes) {
  return configuration_json(
      {.program = "cook", .values = {{"parquet-memory", memory, {}}}, .resolved = {{kLanes, lanes, {}}}});
}

TEST(KeptOrder, RefusesAMemoryThatChangesTheRowGroupsOfABatch) {
  EXPECT_THAT([] { require_kept_order(configured("1GiB", 16), configured("64MiB", 3)); },
              ThrowsMessage<CheckpointError>(
                  HasSubstr("--parquet-memory 64MiB: expected 1GiB, with which the checkpoint was made, or "
                            "another value with which a batch has examples of 16 row groups, but got one "
                            "with which it has examples of 3; their order depends on it")));
}

TEST(KeptOrder, TakesAMemoryThatChangesNothing) {
  EXPECT_NO_THROW(require_kept_order(configured("1GiB", 16), configured("2GiB", 16)));
}

// Such as the rows of the next day.
TEST(KeptOrder, TakesOtherData) {
  EXPECT_NO_THROW(require_kept_order(configured("1GiB", 16), configured("1GiB", 4)));
}

TEST(KeptOrder, TakesRunsThatDoNotSayIt) {
  const std::string none = configuration_json({.program = "cook", .values = {}});
  const std::string other_files =
      configuration_json({.program = "cook",
                          .values = {{"parquet-memory", std::string("64MiB"), {}}},
                          .resolved = {{kLanes, SettingValue(), {}}}});
  for (const std::string& earlier :
       {std::string(), std::string("[]"), std::string("{\"values\": 1}"), none, other_files})
    EXPECT_NO_THROW(require_kept_order(earlier, configured("1GiB", 16))) << earlier;
  EXPECT_NO_THROW(require_kept_order(configured("1GiB", 16), other_files));
}

}  // namespace
}  // namespace lockstep::apps
