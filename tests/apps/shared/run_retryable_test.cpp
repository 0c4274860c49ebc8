#include "lockstep/apps/shared/run_retryable.h"

#include <gtest/gtest.h>

#include <csignal>
#include <optional>

#include "lockstep/apps/shared/stopped.h"
#include "lockstep/apps/shared/torch_program.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep::apps {
namespace {

/// Returns the exit code of a program whose training throws `error`.
template <typename Error>
int exit_code_after(int retryable, const Error& error) {
  std::string name = "train";
  char* arguments[] = {name.data(), nullptr};
  return run_torch_program("train", 1, arguments, [&](const std::string&, const std::vector<std::string>&) {
    return run_retryable(retryable, [&] { throw error; });
  });
}

TEST(RunRetryable, GivesItsCodeToFailuresThatMayNotOccurAgain) {
  EXPECT_EQ(exit_code_after(200, PeerLost("worker 1 was lost")), 200);
  EXPECT_EQ(exit_code_after(200, CollectiveAborted("no replica came within 30 s")), 200);
  EXPECT_EQ(exit_code_after(200, OutOfMemory("too large")), 200);
  EXPECT_EQ(exit_code_after(200, Failure{5, "described already"}), 200);
}

TEST(RunRetryable, LeavesPermanentFailuresTheirCodes) {
  EXPECT_EQ(exit_code_after(200, InvalidArgument("no such device")), 2);
  EXPECT_EQ(exit_code_after(200, DataError("no such file")), 3);
  EXPECT_EQ(exit_code_after(200, Failure{6, "NaN"}), 6);
  EXPECT_EQ(exit_code_after(200, std::runtime_error("anything else")), 1);
}

TEST(RunRetryable, GivesItsCodeToSigtermOnceTheTrainingIsSaved) {
  EXPECT_EQ(exit_code_after(200, Stopped{.signal = SIGTERM, .is_saved = true}), 200);
  EXPECT_EQ(exit_code_after(200, Stopped{.signal = SIGTERM}), 143);
  EXPECT_EQ(exit_code_after(200, Stopped{.signal = SIGINT, .is_saved = true}), 130);
}

TEST(RunRetryable, ChangesNothingUnlessAskedTo) {
  EXPECT_EQ(exit_code_after(0, PeerLost("worker 1 was lost")), 5);
  EXPECT_EQ(exit_code_after(0, Stopped{.signal = SIGTERM, .is_saved = true}), 143);
  EXPECT_EQ(run_retryable(200, [] {}), 0);
}

}  // namespace
}  // namespace lockstep::apps
