#include "lockstep/training/callbacks/show_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/one_device_equivalence.h"
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

}  // namespace
}  // namespace lockstep
