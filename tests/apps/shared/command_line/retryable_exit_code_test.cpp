#include "lockstep/apps/shared/command_line/retryable_exit_code.h"

#include <gtest/gtest.h>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

int retryable_code_of(const std::vector<std::string>& arguments) {
  const FlagTable table{.program = "train", .summary = "Trains.", .flags = {retryable_exit_code_flag()}};
  return read_retryable_exit_code(parse_arguments(table, arguments));
}

TEST(RetryableExitCode, IsNoneUnlessGiven) {
  EXPECT_EQ(retryable_code_of({}), 0);
  EXPECT_EQ(retryable_code_of({"--retryable-exit-code", "128"}), 128);
  EXPECT_EQ(retryable_code_of({"--retryable-exit-code=255"}), 255);
}

TEST(RetryableExitCode, RefusesCodesThatSchedulersTakeForPermanentAndThoseThatDoNotExist) {
  for (const std::string code : {"127", "0", "256", "x"}) {
    try {
      retryable_code_of({"--retryable-exit-code", code});
      ADD_FAILURE() << code;
    } catch (const UsageError& error) {
      EXPECT_EQ(error.what(),
                "--retryable-exit-code: expected a whole number from 128 to 255, but got '" + code + "'");
    }
  }
}

TEST(RetryableExitCode, ReplacesTheCodesOfFailuresThatMayNotOccurAgain) {
  const auto code_of = [](int code, int retryable) {
    return with_retryable_exit_code({.exit_code = code, .message = "it failed"}, retryable).exit_code;
  };
  for (const int code : {5, 7}) {
    EXPECT_EQ(code_of(code, 200), 200);
    EXPECT_EQ(code_of(code, 0), code);
  }
  for (const int code : {1, 2, 3, 4, 6}) EXPECT_EQ(code_of(code, 200), code);
  EXPECT_EQ(with_retryable_exit_code({.exit_code = 5, .message = "it failed"}, 200).message, "it failed");
}

}  // namespace
}  // namespace lockstep::apps
