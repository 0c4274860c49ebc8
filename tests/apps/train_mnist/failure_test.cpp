#include "lockstep/apps/train_mnist/failure.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <new>
#include <system_error>

#include "lockstep/apps/train_mnist/training.h"
#include "lockstep/apps/train_mnist/usage_error.h"
#include "lockstep/datasets/data_error.h"

namespace lockstep::apps {
namespace {

template <typename Error>
Failure of(const Error& error) {
  return describe_failure(std::make_exception_ptr(error));
}

TEST(Failure, SortsErrorsIntoTheExitCodes) {
  EXPECT_EQ(of(UsageError("x")).exit_code, 2);
  EXPECT_EQ(of(InvalidArgument("x")).exit_code, 2);
  EXPECT_EQ(of(std::invalid_argument("x")).exit_code, 2);
  EXPECT_EQ(of(DataError("x")).exit_code, 3);
  EXPECT_EQ(of(CollectiveAborted("x")).exit_code, 5);
  EXPECT_EQ(of(CollectiveMismatch("x")).exit_code, 5);
  EXPECT_EQ(of(NumbersError("x")).exit_code, 6);
  EXPECT_EQ(of(InconsistentReplicas("x")).exit_code, 6);
  EXPECT_EQ(of(std::bad_alloc()).exit_code, 7);
  EXPECT_EQ(of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))).exit_code,
            7);
  EXPECT_EQ(of(std::runtime_error("x")).exit_code, 1);
}

TEST(Failure, KeepsTheFirstLineOfTheMessage) {
  EXPECT_EQ(of(DataError("file: bad\nwhere it arose")).message, "file: bad");
}

TEST(Failure, TellsLibTorchRunningOutOfMemoryFromItsOtherErrors) {
  const auto thrown = [](const auto& run) {
    try {
      run();
    } catch (...) {
      return describe_failure(std::current_exception());
    }
    return Failure{};
  };
  const Failure memory = thrown([] { torch::empty({int64_t{1} << 60}, torch::kByte); });
  EXPECT_EQ(memory.exit_code, 7) << memory.message;
  EXPECT_EQ(memory.message.find('\n'), std::string::npos);
  EXPECT_EQ(thrown([] { torch::ones({2}).view({3}); }).exit_code, 1);
}

}  // namespace
}  // namespace lockstep::apps
