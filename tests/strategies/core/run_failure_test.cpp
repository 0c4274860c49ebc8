#include "lockstep/strategies/core/internal/run_failure.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const Devices kDevices{{c10::DeviceType::CPU, 0}, {c10::DeviceType::CPU, 1}};

template <typename Error>
std::exception_ptr error_of(const Error& error) {
  return std::make_exception_ptr(error);
}

std::exception_ptr module_error() {
  try {
    TORCH_CHECK(false, "Expected more than 1 value per channel");
  } catch (...) {
    return std::current_exception();
  }
}

TEST(RunFailure, HasNotHappenedUntilAnErrorIsRecorded) {
  RunFailure failure;
  EXPECT_FALSE(failure.happened());
  failure.record(0, error_of(std::runtime_error("x")));
  EXPECT_TRUE(failure.happened());
}

TEST(RunFailure, KeepsTheCauseWhetherItComesBeforeOrAfterItsConsequences) {
  for (const bool cause_first : {true, false}) {
    RunFailure failure;
    const auto cause = error_of(std::out_of_range("the cause"));
    const auto consequence = error_of(CollectiveAborted("released"));
    failure.record(cause_first ? 1 : 0, cause_first ? cause : consequence);
    failure.record(cause_first ? 0 : 1, cause_first ? consequence : cause);
    EXPECT_EQ(failure.reason(), "replica 1 failed: the cause");
    EXPECT_THROW(failure.rethrow("MirroredStrategy", kDevices, std::nullopt), std::out_of_range);
  }
}

TEST(RunFailure, TakesABackendsErrorForAConsequenceOfAnother) {
  for (const bool backend_first : {true, false}) {
    RunFailure failure;
    const auto backend = error_of(BackendError("a rank is gone"));
    const auto device = error_of(DeviceFailure("the device has failed"));
    failure.record(0, error_of(CollectiveAborted("released")));
    failure.record(0, backend_first ? backend : device);
    failure.record(1, backend_first ? device : backend);
    EXPECT_THROW(failure.rethrow("MirroredStrategy", kDevices, std::nullopt), DeviceFailure);
  }
}

TEST(RunFailure, KeepsTheFirstOfSeveralCauses) {
  RunFailure failure;
  failure.record(1, error_of(std::runtime_error("first")));
  failure.record(0, error_of(std::runtime_error("second")));
  EXPECT_EQ(failure.reason(), "replica 1 failed: first");
}

TEST(RunFailure, KeepsTheFirstConsequenceWhereThereIsNoCause) {
  RunFailure failure;
  failure.record(0, error_of(CollectiveAborted("timed out")));
  failure.record(1, error_of(CollectiveAborted("released")));
  EXPECT_EQ(failure.reason(), "replica 0 failed: timed out");
  EXPECT_THROW(failure.rethrow("MirroredStrategy", kDevices, std::nullopt), CollectiveAborted);
}

TEST(RunFailure, NamesARankByItsCoordinatesIfModelsAreCut) {
  const Mesh cut{{"data", 2}, {"tensor", 2}};
  RunFailure failure(2, 0, &cut);
  failure.record(1, std::make_exception_ptr(std::runtime_error("cause")));
  EXPECT_EQ(failure.reason(), "rank 3 (data=1,tensor=1) failed: cause");
  const Mesh plain{{"data", 2}, {"shard", 2}};
  RunFailure other(2, 0, &plain);
  other.record(1, std::make_exception_ptr(std::runtime_error("cause")));
  EXPECT_EQ(other.reason(), "replica 3 failed: cause");
}

TEST(RunFailure, TellsWhatIsThrownThatIsNoException) {
  RunFailure failure;
  failure.record(0, error_of(7));
  EXPECT_EQ(failure.reason(), "replica 0 failed: an exception that is no std::exception");
  EXPECT_THROW(failure.rethrow("MirroredStrategy", kDevices, std::nullopt), int);
}

TEST(RunFailure, SaysThatTheShardWasTooSmallForTheModule) {
  for (const int64_t shard : {0, 1}) {
    RunFailure failure;
    failure.record(1, module_error());
    const BatchSizes sizes{.global = 5, .local = {5 - shard, shard}};
    const auto message =
        message_of<std::runtime_error>([&] { failure.rethrow("MirroredStrategy", kDevices, sizes); });
    EXPECT_THAT(message,
                AllOf(StartsWith("[MirroredStrategy] replica 1 (cpu:1) failed on a shard of " +
                                 std::to_string(shard) + " of the 5 examples in its global batch: "),
                      HasSubstr("more than 1 value per channel"), HasSubstr(".drop_remainder = true")));
  }
}

TEST(RunFailure, SaysWhatToWriteForAViewOfNoExamples) {
  RunFailure failure;
  try {
    torch::zeros({0, 3, 2}).view({0, -1});
  } catch (...) {
    failure.record(0, std::current_exception());
  }
  const BatchSizes sizes{.global = 1, .local = {0, 1}};
  EXPECT_THAT(
      message_of<std::runtime_error>([&] { failure.rethrow("MirroredStrategy", kDevices, sizes); }),
      AllOf(StartsWith("[MirroredStrategy] replica 0 (cpu:0) failed on a shard of 0 of the 1 examples"),
            HasSubstr("Write x.flatten(1) for x.view({x.size(0), -1})"), Not(HasSubstr("drop_remainder"))));
  EXPECT_EQ(torch::zeros({0, 3, 2}).flatten(1).sizes(), (std::vector<int64_t>{0, 6})) << "as it advises";
}

TEST(RunFailure, AMismatchNamesItsRunWhoeverFoundIt) {
  for (const int replica : {0, -1}) {
    RunFailure failure(/*first_replica=*/2, /*run=*/7);
    failure.record(replica, error_of(CollectiveMismatch("they differ")));
    EXPECT_EQ(
        message_of<CollectiveMismatch>([&] { failure.rethrow("MirroredStrategy", kDevices, std::nullopt); }),
        "[MirroredStrategy] run #7: they differ");
  }
}

TEST(RunFailure, LeavesErrorsAloneThatAreNotAboutASmallShard) {
  const BatchSizes small{.global = 5, .local = {4, 1}};
  const auto rethrown_by = [&](int replica, const std::exception_ptr& error,
                               const std::optional<BatchSizes>& sizes) {
    RunFailure failure;
    failure.record(replica, error);
    failure.rethrow("MirroredStrategy", kDevices, sizes);
  };
  EXPECT_THROW(rethrown_by(0, module_error(), small), c10::Error) << "its shard had four examples";
  EXPECT_THROW(rethrown_by(1, module_error(), std::nullopt), c10::Error) << "no batch was given";
  EXPECT_THROW(rethrown_by(-1, module_error(), small), c10::Error) << "of the run as a whole";
  EXPECT_THROW(rethrown_by(1, module_error(), BatchSizes{.global = 6, .local = {4, 2}}), c10::Error)
      << "two examples are enough for BatchNorm";
  EXPECT_THROW(rethrown_by(1, error_of(c10::OutOfMemoryError({}, "memory")), small), OutOfMemory);
  EXPECT_THROW(rethrown_by(1, error_of(c10::AcceleratorError({}, 710, "device")), small), DeviceFailure);
  EXPECT_THROW(rethrown_by(1, error_of(c10::DistError({}, "network")), small), c10::DistError);
  EXPECT_THROW(rethrown_by(1, error_of(std::invalid_argument("mine")), small), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
