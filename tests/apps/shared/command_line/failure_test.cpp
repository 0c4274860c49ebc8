#include "lockstep/apps/shared/command_line/failure.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <new>
#include <system_error>

#include "lockstep/apps/shared/command_line/numbers_error.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/shared/writable_folder.h"
#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/folder_lock.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/strategies/coordinator/cluster_coordinator.h"
#include "lockstep/training/callbacks/nan_guard.h"
#include "lockstep/training/reporting/records/run_directory.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename Error>
Failure of(const Error& error) {
  return describe_failure(std::make_exception_ptr(error));
}

TEST(Failure, SortsErrorsIntoTheExitCodes) {
  EXPECT_EQ(of(UsageError("x")).exit_code, 2);
  EXPECT_EQ(of(InvalidArgument("x")).exit_code, 2);
  EXPECT_EQ(of(std::invalid_argument("x")).exit_code, 2);
  EXPECT_EQ(of(DataError("x")).exit_code, 3);
  EXPECT_EQ(of(CheckpointError("x")).exit_code, 4);
  EXPECT_EQ(of(RunDirectoryError("x")).exit_code, 4);
  EXPECT_EQ(of(FolderInUse("x")).exit_code, 4);
  EXPECT_EQ(of(NotFinite({.epoch = 1, .step = 2, .device = "cpu:0"})).exit_code, 6);
  EXPECT_EQ(of(CollectiveAborted("x")).exit_code, 5);
  EXPECT_EQ(of(CollectiveMismatch("x")).exit_code, 5);
  EXPECT_EQ(of(ClosureCancelled("x")).exit_code, 5);
  EXPECT_EQ(of(BackendError("x")).exit_code, 5);
  EXPECT_EQ(of(ClusterError("x")).exit_code, 5);
  EXPECT_EQ(of(PeerLost("x")).exit_code, 5);
  EXPECT_EQ(of(NumbersError("x")).exit_code, 6);
  EXPECT_EQ(of(InconsistentReplicas("x")).exit_code, 6);
  EXPECT_EQ(of(OutOfMemory("x")).exit_code, 7);
  EXPECT_EQ(of(DeviceFailure("x")).exit_code, 7);
  EXPECT_EQ(of(std::bad_alloc()).exit_code, 7);
  EXPECT_EQ(of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))).exit_code,
            7);
  EXPECT_EQ(of(std::system_error(std::make_error_code(std::errc::no_space_on_device))).exit_code, 7);
  EXPECT_EQ(of(std::system_error(std::make_error_code(std::errc::permission_denied))).exit_code, 4);
  EXPECT_EQ(of(std::system_error(std::make_error_code(std::errc::read_only_file_system))).exit_code, 4);
  EXPECT_EQ(of(FolderError("x")).exit_code, 4);
  EXPECT_EQ(of(std::runtime_error("x")).exit_code, 1);
}

TEST(Failure, KeepsTheFirstLineOfTheMessage) {
  EXPECT_EQ(of(DataError("file: bad\nwhere it arose")).message, "file: bad");
}

// The advice for a shard that is too small is meant for programmers: train_images has no flag for it.
TEST(Failure, LeavesOutAdviceThatNoFlagCanFollow) {
  const auto made = choose_strategy({.strategy = "one_device", .devices = {"cpu:0"}});
  auto batches = made.strategy->distribute_dataset(TensorDataset(torch::zeros({1, 1}), torch::zeros({1})),
                                                   {.global_batch_size = 1});
  const auto refuse = [](ReplicaContext&, const Example&) { TORCH_CHECK(false, "too few values"); };
  std::exception_ptr error;
  try {
    made.strategy->run(refuse, *batches.begin());
  } catch (const std::exception& caught) {
    EXPECT_THAT(caught.what(), HasSubstr("\n")) << "else there is nothing to leave out";
    error = std::current_exception();
  }
  ASSERT_NE(error, nullptr);
  EXPECT_THAT(describe_failure(error).message,
              AllOf(HasSubstr("failed on a shard of 1"), HasSubstr("too few values"),
                    Not(HasSubstr("drop_remainder")), Not(HasSubstr("\n"))));
}

TEST(Failure, NamesTheWorkerThatItAroseIn) {
  const auto in_cluster = [](const auto& error, std::vector<std::string> hosts) {
    const SimpleClusterResolver cluster(std::move(hosts), 0);
    return describe_failure(std::make_exception_ptr(error), &cluster).message;
  };
  const std::vector<std::string> two{"a:1", "b:1"};
  EXPECT_EQ(in_cluster(DataError("no such file"), two), "worker 0: no such file");
  EXPECT_EQ(in_cluster(DataError("no such file"), {"a:1"}), "no such file");
  EXPECT_EQ(in_cluster(PeerLost("worker 1 (b) was lost"), two), "worker 1 (b) was lost");
  EXPECT_EQ(describe_failure(std::make_exception_ptr(DataError("no such file")), nullptr).message,
            "no such file");
}

// Work finishes after it is launched, so a device error may appear where the replica is unknown.
TEST(Failure, CountsADeviceThatFailedOutsideOfARunAsAResource) {
  const c10::SourceLocation somewhere{"a test", __FILE__, __LINE__};
  const Failure failure = of(c10::AcceleratorError(somewhere, 700, "CUDA error: an illegal memory access"));
  EXPECT_EQ(failure.exit_code, 7);
  EXPECT_EQ(failure.message, "a device failed: CUDA error: an illegal memory access");
  const Failure memory = of(c10::AcceleratorError(somewhere, 2, "CUDA error: out of memory"));
  EXPECT_EQ(memory.exit_code, 7);
  EXPECT_EQ(memory.message,
            "out of memory; a smaller batch or image size needs less: CUDA error: out of memory");
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
