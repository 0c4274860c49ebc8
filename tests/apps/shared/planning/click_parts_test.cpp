#include "lockstep/apps/shared/planning/click_parts.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/dlrm.h"
#include "lockstep/models/wide_and_deep.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/planning/module_recorder.h"
#include "lockstep/training/planning/planned_record.h"

namespace lockstep::apps {
namespace {

struct PlannedClickCase {
  std::string name;
  PlannedClickModel model;
};

const std::vector<PlannedClickCase>& click_cases() {
  static const std::vector<PlannedClickCase> cases{
      {"Dlrm", {.is_dlrm = true}},
      {"DlrmWide", {.is_dlrm = true, .embedding_dim = 64}},
      {"DlrmNarrow", {.is_dlrm = true, .embedding_dim = 4, .bottom_units = {512, 128}, .top_units = {1024}}},
      {"DlrmDeep",
       {.is_dlrm = true, .embedding_dim = 32, .num_categories = 8, .top_units = {256, 256, 256, 64}}},
      {"WideAndDeep", {}},
      {"WideAndDeepWide", {.embedding_dim = 64, .hidden_units = {1024, 512, 256}}},
      {"WideAndDeepNarrow", {.embedding_dim = 2, .num_categories = 5, .hidden_units = {32}}}};
  return cases;
}

RecordedStep recorded_network(const PlannedClickModel& of) {
  at::set_num_threads(1);
  ModuleRecorder recorder({.fewer_examples = 32, .more_examples = 64, .records_halves = false});
  const auto batch_of = [&](int64_t examples) {
    auto embedded = torch::rand({examples, of.num_categories, of.embedding_dim});
    return std::vector{torch::rand({examples, of.num_numbers}), embedded.requires_grad_(),
                       torch::rand({examples}).requires_grad_(),
                       torch::randint(2, {examples}).to(torch::kFloat)};
  };
  const auto record = [&](auto& model, const auto& logits_of) {
    return recorder.record(*model, batch_of, [&](const std::vector<torch::Tensor>& batch) {
      const auto logits = recorder.call(
          "network", [&](const auto& numbers) { return logits_of(numbers, batch); }, batch[0]);
      return sigmoid_cross_entropy(logits, batch[3]).mean();
    });
  };
  if (of.is_dlrm) {
    Dlrm model(DlrmOptions{.num_numbers = of.num_numbers,
                           .num_categories = of.num_categories,
                           .embedding_dim = of.embedding_dim,
                           .bottom_units = of.bottom_units,
                           .top_units = of.top_units});
    return record(model,
                  [&](const auto& numbers, const auto& batch) { return model->forward(numbers, batch[1]); });
  }
  WideAndDeep model(WideAndDeepOptions{.num_numbers = of.num_numbers,
                                       .num_categories = of.num_categories,
                                       .embedding_dim = of.embedding_dim,
                                       .hidden_units = of.hidden_units});
  return record(model, [&](const auto& numbers, const auto& batch) {
    return model->forward(numbers, batch[2], batch[1]);
  });
}

class ClickPartsTest : public testing::TestWithParam<size_t> {
 protected:
  const PlannedClickModel& clicks() const { return click_cases()[GetParam()].model; }
};

TEST_P(ClickPartsTest, HaveTheParametersOfTheModules) {
  const auto planned = planned_clicks(clicks());
  const auto record = recorded_network(clicks());
  double elements = 0, largest = 0;
  for (const auto& parameter : record.parameters) {
    elements += static_cast<double>(parameter.elements);
    largest = std::max(largest, static_cast<double>(parameter.elements));
  }
  EXPECT_EQ(planned.kinds[0].elements.sum(), elements);
  EXPECT_EQ(planned.kinds[0].largest_tensor.sum(), largest);
  const auto columns = static_cast<double>(clicks().embedding_dim + (clicks().is_dlrm ? 0 : 1));
  EXPECT_EQ(planned.elements(), elements + static_cast<double>(clicks().table_rows) * columns);
}

TEST_P(ClickPartsTest, KeepAndComputeWhatTheRecorderSees) {
  const auto part = planned_clicks(clicks()).kinds[0];
  const auto recorded = planned_model(recorded_network(clicks())).kinds[0];
  EXPECT_DOUBLE_EQ(part.forward.flops.sum(), recorded.forward.flops.sum());
  EXPECT_DOUBLE_EQ(part.backward.flops.sum(), recorded.backward.flops.sum());
  // The lookups, which are not recorded here: rows of ids, and the rows themselves.
  const auto categories = static_cast<double>(clicks().num_categories);
  const double ids = 8 * categories * (clicks().is_dlrm ? 1 : 3);
  const double rows = 4 * categories * static_cast<double>(clicks().embedding_dim);
  // And besides it, what the loss keeps of a few numbers of each example.
  constexpr double kFew = 6 * 4;
  EXPECT_NEAR(part.saved.sum() - ids, recorded.saved.sum(), kFew);
  EXPECT_NEAR(part.forward_extra.sum() - rows + part.saved.sum() - ids,
              recorded.forward_extra.sum() + recorded.saved.sum(), kFew);
  EXPECT_NEAR(part.backward_extra.sum() + part.saved.sum() - ids,
              recorded.backward_extra.sum() + recorded.saved.sum(), kFew);
}

TEST(PlannedClicks, HaveTwiceTheBytesInFloat64) {
  for (const bool is_dlrm : {false, true}) {
    const auto narrow = planned_clicks({.is_dlrm = is_dlrm});
    const auto wide = planned_clicks({.is_dlrm = is_dlrm, .numbers = PlannedNumbers::kFloat64});
    EXPECT_EQ(wide.elements(), narrow.elements());
    const double ids = 8 * 26 * (is_dlrm ? 1 : 3);
    // The numbers of float32 that the batch has are converted.
    EXPECT_DOUBLE_EQ(wide.kinds[0].saved.sum() - ids, 2 * (narrow.kinds[0].saved.sum() - ids) + 8 * 13);
  }
}

INSTANTIATE_TEST_SUITE_P(Clicks, ClickPartsTest, testing::Range(size_t{0}, click_cases().size()),
                         [](const auto& test) { return click_cases()[test.param].name; });

}  // namespace
}  // namespace lockstep::apps
