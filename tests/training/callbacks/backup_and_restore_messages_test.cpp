#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/callbacks/early_stopping.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::interrupt_after;
using ::testing::Not;

class BackupMessages : public ::testing::Test {
 protected:
  struct SetUp {
    int64_t epochs = 2;
    int64_t width = 4;  // of the model's hidden layer
  };

  /// Returns what a fit with a backup writes to standard error.
  std::string said_by_fit(Callbacks callbacks, const SetUp& set_up) {
    MirroredStrategy strategy(cpu_devices(1), {.intra_op_threads = 1});
    Trainer trainer(
        strategy,
        [&](ReplicaContext&) {
          torch::nn::Sequential model(torch::nn::Linear(6, set_up.width), torch::nn::Linear(set_up.width, 3));
          model->to(torch::kDouble);
          return model;
        },
        momentum_sgd(), cross_entropy);
    callbacks.push_back(
        std::make_shared<BackupAndRestore>(BackupOptions{.folder = folder_.path() + "/backup"}));
    ::testing::internal::CaptureStderr();
    trainer.fit(data_.data, data_.target,
                {.epochs = set_up.epochs,
                 .callbacks = callbacks,
                 .batches = {.global_batch_size = kBatchSize, .shuffle_seed = 1}});
    return ::testing::internal::GetCapturedStderr();
  }

  testing::TemporaryFolder folder_;
  Example data_ = examples_of_three_classes();
};

TEST_F(BackupMessages, AFinishedFitThatIsStartedAgainSaysSo) {
  EXPECT_THAT(said_by_fit({interrupt_after(1)}, {}), Not(HasSubstr("finished")));
  EXPECT_THAT(said_by_fit({}, {}), AllOf(HasSubstr("resumes after step 1 "), Not(HasSubstr("finished"))));
  EXPECT_THAT(
      said_by_fit({}, {}),
      HasSubstr("this run had already finished: epoch 2 of 2; to train on, raise FitOptions::epochs"));
  EXPECT_THAT(said_by_fit({}, {.epochs = 3}), Not(HasSubstr("finished")));
}

TEST_F(BackupMessages, AFitThatStoppedEarlySaysWhyItTrainsNothing) {
  const auto never_better = [] {
    return std::make_shared<EarlyStopping>(
        EarlyStoppingOptions{.monitor = {.name = "loss", .min_delta = 1000}, .patience = 2});
  };
  EXPECT_THAT(said_by_fit({never_better()}, {.epochs = 9}), Not(HasSubstr("finished")));
  EXPECT_THAT(
      said_by_fit({never_better()}, {.epochs = 9}),
      HasSubstr("this run had already finished: epoch 3 of 9, as it stopped early: loss is not better "
                "than in epoch 1 since 2 epochs; "));
}

TEST_F(BackupMessages, ABackupOfAnotherModelTellsTheWayOut) {
  said_by_fit({}, {.width = 4});
  const auto message = message_of<CheckpointError>([&] { said_by_fit({}, {.width = 5}); });
  ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(message,
              AllOf(HasSubstr("state.pt: "), HasSubstr("[5, 6]"), HasSubstr("[4, 6]"),
                    ::testing::EndsWith("; the checkpoint is of another model or optimizer than this "
                                        "one: to train anew, name another folder for the backup")));
}

}  // namespace
}  // namespace lockstep
