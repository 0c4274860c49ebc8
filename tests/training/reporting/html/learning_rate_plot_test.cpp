#include "lockstep/training/reporting/html/learning_rate_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

LearningRateSweep sweep_of_four() {
  return {.learning_rates = {1e-4, 1e-3, 1e-2, 1e-1},
          .losses = {3, 2, 1, 9},
          .smoothed_losses = {3, 2.5, 1.5, 8},
          .has_diverged = true,
          .suggestion = 1e-3};
}

TEST(LearningRatePlot, ShowsTheLossOverPowersOfTenAndTheSuggestion) {
  const auto html = learning_rate_html(sweep_of_four());
  EXPECT_THAT(html, HasSubstr("Suggested learning rate: 0.001"));
  EXPECT_THAT(html, HasSubstr("too large"));
  for (const std::string power : {"1e-4", "1e-3", "1e-2", "1e-1"}) EXPECT_THAT(html, HasSubstr(">" + power));
  EXPECT_THAT(html, HasSubstr("loss, learning rate 0.01: 1.5"));
  EXPECT_THAT(html, HasSubstr("suggestion, learning rate 0.001"));
}

TEST(LearningRatePlot, SaysThatThereIsNoSuggestion) {
  auto sweep = sweep_of_four();
  sweep.suggestion.reset();
  sweep.has_diverged = false;
  const auto html = learning_rate_html(sweep);
  EXPECT_THAT(html, HasSubstr("No suggestion"));
  EXPECT_THAT(html, Not(HasSubstr("too large")));
  EXPECT_THAT(html, Not(HasSubstr("suggestion, learning rate")));
}

TEST(LearningRatePlot, IsDrawnWithLossesThatAreNotFinite) {
  auto sweep = sweep_of_four();
  sweep.smoothed_losses.back() = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(learning_rate_html(sweep), HasSubstr("NaN or infinite"));
}

TEST(LearningRatePlot, IsWrittenToAFile) {
  const testing::TemporaryFolder folder;
  write_learning_rate_plot(sweep_of_four(), folder.file("plot.html"));
  EXPECT_EQ(testing::read_text(folder.file("plot.html")), learning_rate_html(sweep_of_four()));
}

}  // namespace
}  // namespace lockstep
