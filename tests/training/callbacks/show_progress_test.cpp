#include "lockstep/training/callbacks/show_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ShowProgressTest : public ::testing::Test {
 protected:
  History fit(DisplayOptions display, ShowProgressOptions options = {}) {
    display.clock = [this] { return now_ += 1; };  // always due
    const detail::TensorPairs pairs(data_.data, data_.target);
    return trainer_.fit(pairs, {.epochs = 2,
                                .validation = strategy_.distribute_dataset(pairs, {.global_batch_size = 7}),
                                .callbacks = {std::make_shared<ShowProgress>(bar_, lines_, display, options)},
                                .batches = {.global_batch_size = kBatchSize}});
  }

  double now_ = 0;
  std::ostringstream bar_, lines_;
  DefaultStrategy strategy_;
  Example data_ = examples_of_three_classes();
  Trainer<TanhNet> trainer_{strategy_, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(),
                            cross_entropy};
};

TEST_F(ShowProgressTest, DrawsABarForTrainingAndValidation) {
  fit({.bar = true, .width = [] { return 100; }});
  EXPECT_THAT(bar_.str(), HasSubstr("\repoch 1/2   33%|"));
  EXPECT_THAT(bar_.str(), HasSubstr("| 2/3 ["));
  EXPECT_THAT(bar_.str(), HasSubstr("\repoch 2/2 validation   50%|"));
  EXPECT_TRUE(bar_.str().ends_with("\r\033[K"));
}

TEST_F(ShowProgressTest, WritesALineForEachEpochAndATable) {
  const auto history = fit({.is_silent = true}, {.text = {.names = {"loss", "validation_loss"}}});
  const auto expected = epoch_line(1, 2, history.epochs[0], {.names = {"loss", "validation_loss"}}) + "\n" +
                        epoch_line(2, 2, history.epochs[1], {.names = {"loss", "validation_loss"}}) + "\n\n" +
                        fit_table(1, history.epochs, {.names = {"loss", "validation_loss"}});
  EXPECT_EQ(lines_.str(), expected);
  EXPECT_EQ(bar_.str(), "");
}

TEST_F(ShowProgressTest, WritesNoControlCharactersWhereThereIsNoTerminal) {
  now_ = 1000;
  fit({.bar = false}, {.table = false});
  EXPECT_EQ((bar_.str() + lines_.str()).find_first_of("\r\033"), std::string::npos);
  EXPECT_THAT(lines_.str(), Not(HasSubstr("best")));
}

TEST_F(ShowProgressTest, TheTableOfAResumedFitHasTheEarlierEpochs) {
  const testing::TemporaryFolder folder;
  const detail::TensorPairs pairs(data_.data, data_.target);
  const auto fit_until = [&](const std::shared_ptr<Callback>& callback) {
    lines_.str("");
    torch::manual_seed(17);
    Trainer<TanhNet> trainer(
        strategy_, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
    const ShowProgressOptions options{.text = {.names = {"loss", "validation_loss"}}};
    return trainer.fit(
        pairs,
        {.epochs = 4,
         .validation = pairs,
         .callbacks = {callback,
                       std::make_shared<ShowProgress>(bar_, lines_, DisplayOptions{.is_silent = true},
                                                      options),
                       std::make_shared<BackupAndRestore>(BackupOptions{
                           .folder = folder.path() + "/backup", .on_message = [](const std::string&) {}})},
         .batches = {.global_batch_size = kBatchSize}});
  };
  fit_until(testing::interrupt_after(8));  // in the third epoch of 3 steps
  EXPECT_THAT(lines_.str(), ::testing::EndsWith("\ninterrupted in epoch 3/4 after step 8: enough\n"));
  EXPECT_THAT(lines_.str(), Not(HasSubstr("stopped early")));
  const auto history = fit_until(std::make_shared<Callback>());
  ASSERT_EQ(history.epochs.size(), 4U);
  EXPECT_THAT(lines_.str(), ::testing::EndsWith("\n\n" + fit_table(1, history.epochs,
                                                                   {.names = {"loss", "validation_loss"}})));
}

TEST_F(ShowProgressTest, CountsThePartsOfExamplesAndAddsValuesToTheBar) {
  const auto add = [](const FitState& state, Logs& shown) {
    shown.set("model_flop_utilization", 0.125 * static_cast<double>(state.epoch));
  };
  const auto history =
      fit({.bar = true, .width = [] { return 200; }},
          {.text = {.unit = "tokens", .units_per_example = 10, .names = {"examples_per_second"}},
           .bar_names = {"loss"},
           .add_values = add});
  EXPECT_THAT(bar_.str(), ::testing::AllOf(HasSubstr("tokens/s, loss "), HasSubstr(", MFU 12.5 %]"),
                                           HasSubstr(", MFU 25.0 %]")));
  EXPECT_THAT(lines_.str(),
              HasSubstr("epoch 1/2  " +
                        std::to_string(std::lround(10 * history.epochs.front().at("examples_per_second"))) +
                        " tokens/s"));
}

TEST_F(ShowProgressTest, SaysWhyAFitStoppedEarly) {
  const auto progress = std::make_shared<ShowProgress>(bar_, lines_, DisplayOptions{.is_silent = true});
  const auto stop = testing::after_step(4, [](FitState& state) { state.stop("that is enough"); });
  trainer_.fit(data_.data, data_.target,
               {.epochs = 5, .callbacks = {stop, progress}, .batches = {.global_batch_size = kBatchSize}});
  EXPECT_THAT(lines_.str(), ::testing::EndsWith("\nstopped early: that is enough\n"));
}

}  // namespace
}  // namespace lockstep
