#include "lockstep/training/callbacks/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::names_in;
using ::testing::Not;
using testing::read_text;

/// Returns the bytes of the training's events after a fit of one step, in which `tensorboard` was given
/// `step`.
std::string events_with(const StepRecord& step) {
  const testing::TemporaryFolder folder;
  const auto tensorboard = std::make_shared<TensorBoard>(
      TensorBoardOptions{.folder = folder.path(), .log_every = 1000, .histograms = false});
  MirroredStrategy strategy(cpu_devices(1), {.intra_op_threads = 1});
  Trainer<TanhNet> trainer(
      strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
  const Example data = examples_of_three_classes();
  FitOptions<> options{
      .callbacks = {tensorboard, testing::after_step(1, [&](FitState&) { tensorboard->add_step(step); })},
      .batches = {.global_batch_size = kBatchSize}};
  options.steps_per_epoch = 1;
  trainer.fit(data.data, data.target, options);
  const std::string train = folder.path() + "/train";
  return read_text(train + "/" + names_in(train).at(0));
}

TEST(TensorBoardCallback, WritesOfAStepTheValuesThatItHas) {
  const auto all = events_with({.step = 1, .loss = 0.5, .learning_rate = 0.1, .images_per_second = 7});
  for (const char* tag : {"step/loss", "step/learning_rate", "step/images_per_second"})
    EXPECT_THAT(all, HasSubstr(tag));
  const auto only_loss = events_with({.step = 1, .loss = 0.5});
  EXPECT_THAT(only_loss, HasSubstr("step/loss"));
  EXPECT_THAT(only_loss, Not(HasSubstr("step/learning_rate")));
  EXPECT_THAT(only_loss, Not(HasSubstr("step/images_per_second")));
}

TEST(TensorBoardCallback, LeavesNoFileOfAFinishedFitThatIsStartedAgain) {
  const testing::TemporaryFolder folder;
  const auto fit = [&] {
    MirroredStrategy strategy(cpu_devices(1), {.intra_op_threads = 1});
    Trainer<TanhNet> trainer(
        strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
    const Example data = examples_of_three_classes();
    return trainer.fit(
        data.data, data.target,
        {.callbacks = {std::make_shared<TensorBoard>(TensorBoardOptions{.folder = folder.path() + "/tb"}),
                       std::make_shared<BackupAndRestore>(BackupOptions{
                           .folder = folder.path() + "/backup", .on_message = [](const std::string&) {}})},
         .batches = {.global_batch_size = kBatchSize}});
  };
  EXPECT_EQ(fit().steps, 3);
  const auto files = names_in(folder.path() + "/tb/train");
  EXPECT_EQ(files.size(), 1U);
  EXPECT_EQ(fit().steps, 0);
  EXPECT_EQ(names_in(folder.path() + "/tb/train"), files);
}

}  // namespace
}  // namespace lockstep
