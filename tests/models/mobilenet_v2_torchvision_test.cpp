// MobileNetV2 computes what torchvision's mobilenet_v2 does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/tests/models/reference_formula.h"
#include "lockstep/tests/models/state_of.h"

namespace lockstep {
namespace {

struct StateShape {
  const char* name;
  std::vector<int64_t> shape;
};

struct EvaluationReference {
  double width_multiplier;
  int64_t image_size;
  std::vector<std::vector<double>> logits;
};

struct TrainingReference {
  double width_multiplier;
  int64_t image_size;
  std::vector<std::vector<double>> logits;
  std::map<std::string, double> buffer_digests;
  std::map<std::string, double> gradient_digests;
};

#include "lockstep/tests/models/torchvision_reference.inc"

void PrintTo(const EvaluationReference& reference, std::ostream* stream) {
  *stream << "width " << reference.width_multiplier << ", size " << reference.image_size;
}

void PrintTo(const TrainingReference& reference, std::ostream* stream) {
  *stream << "width " << reference.width_multiplier << ", size " << reference.image_size;
}

void fill_by_formula(MobileNetV2& model) {
  torch::NoGradGuard no_grad;
  const auto state = state_of(*model);
  for (uint32_t ordinal = 0; ordinal < kStateShapes.size(); ++ordinal) {
    const std::string name = kStateShapes[ordinal].name;
    if (name.ends_with("num_batches_tracked")) continue;
    const auto& tensor = state.at(name);
    tensor.copy_(state_formula(ordinal, name, tensor));
  }
}

MobileNetV2 model_by_formula(double width_multiplier, torch::Dtype dtype) {
  MobileNetV2 model(
      MobileNetV2Options{.num_classes = 10, .width_multiplier = width_multiplier, .dropout = 0});
  model->to(dtype);
  fill_by_formula(model);
  return model;
}

torch::Tensor images_by_formula(int64_t count, int64_t size, torch::Dtype dtype) {
  return formula(kInputOrdinal, {count, 3, size, size}).to(dtype);
}

double largest_difference(const torch::Tensor& values, const std::vector<std::vector<double>>& expected) {
  double largest = 0;
  for (size_t row = 0; row < expected.size(); ++row) {
    const auto difference = values[row].to(torch::kFloat64) - torch::tensor(expected[row], torch::kFloat64);
    largest = std::max(largest, difference.abs().max().item<double>());
  }
  return largest;
}

TEST(MobileNetV2Test, HasTheStateDictOfTorchvision) {
  MobileNetV2 model({.num_classes = 10});
  std::vector<std::string> parameters;
  std::vector<std::string> buffers;
  const auto state = state_of(*model);
  for (const auto& expected : kStateShapes) {
    const std::string name = expected.name;
    const bool is_buffer =
        name.find("running_") != std::string::npos || name.ends_with("num_batches_tracked");
    (is_buffer ? buffers : parameters).push_back(name);
    ASSERT_TRUE(state.contains(name)) << name;
    EXPECT_EQ(state.at(name).sizes(), torch::IntArrayRef(expected.shape)) << name;
  }
  EXPECT_EQ(model->named_parameters().keys(), parameters);
  EXPECT_EQ(model->named_buffers().keys(), buffers);
}

class MobileNetV2EvaluationTest : public testing::TestWithParam<EvaluationReference> {};

TEST_P(MobileNetV2EvaluationTest, GivesTheLogitsOfTorchvision) {
  const auto& reference = GetParam();
  torch::NoGradGuard no_grad;
  auto exact = model_by_formula(reference.width_multiplier, torch::kFloat64);
  exact->eval();
  EXPECT_LE(largest_difference(exact->forward(images_by_formula(2, reference.image_size, torch::kFloat64)),
                               reference.logits),
            1e-12);
  auto model = model_by_formula(reference.width_multiplier, torch::kFloat32);
  model->eval();
  EXPECT_LE(largest_difference(model->forward(images_by_formula(2, reference.image_size, torch::kFloat32)),
                               reference.logits),
            1e-5);
}

INSTANTIATE_TEST_SUITE_P(Widths, MobileNetV2EvaluationTest, testing::ValuesIn(kEvaluation),
                         [](const auto& info) {
                           return "Width" + std::to_string(std::lround(100 * info.param.width_multiplier)) +
                                  "Size" + std::to_string(info.param.image_size);
                         });

class MobileNetV2TrainingTest : public testing::TestWithParam<TrainingReference> {};

TEST_P(MobileNetV2TrainingTest, GivesLogitsStatisticsAndGradientsOfTorchvision) {
  const auto& reference = GetParam();
  auto model = model_by_formula(reference.width_multiplier, torch::kFloat64);
  const auto logits = model->forward(images_by_formula(4, reference.image_size, torch::kFloat64));
  EXPECT_LE(largest_difference(logits, reference.logits), 1e-12);
  (logits * formula(kLossOrdinal, logits.sizes())).sum().backward();

  for (const auto& item : model->named_buffers()) {
    if (item.key().ends_with("num_batches_tracked")) {
      EXPECT_EQ(item.value().item<int64_t>(), 1) << item.key();
    } else {
      EXPECT_NEAR(digest(item.value()), reference.buffer_digests.at(item.key()), 1e-11) << item.key();
    }
  }
  for (const auto& item : model->named_parameters()) {
    EXPECT_NEAR(digest(item.value().grad()), reference.gradient_digests.at(item.key()), 1e-9) << item.key();
  }
}

TEST_P(MobileNetV2TrainingTest, GivesTheSameInSinglePrecision) {
  const auto& reference = GetParam();
  auto model = model_by_formula(reference.width_multiplier, torch::kFloat32);
  const auto logits = model->forward(images_by_formula(4, reference.image_size, torch::kFloat32));
  EXPECT_LE(largest_difference(logits, reference.logits), 1e-5);
  auto exact = model_by_formula(reference.width_multiplier, torch::kFloat64);
  exact->forward(images_by_formula(4, reference.image_size, torch::kFloat64));
  const auto exact_state = state_of(*exact);
  for (const auto& item : model->named_buffers()) {
    // Looser than for logits: a variance squares the single-precision rounding of all layers before it.
    const auto expected = exact_state.at(item.key()).to(torch::kFloat64);
    EXPECT_TRUE(torch::allclose(item.value().to(torch::kFloat64), expected, 1e-4, 1e-5)) << item.key();
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, MobileNetV2TrainingTest, testing::ValuesIn(kTraining), [](const auto& info) {
  return "Width" + std::to_string(std::lround(100 * info.param.width_multiplier)) + "Size" +
         std::to_string(info.param.image_size);
});

}  // namespace
}  // namespace lockstep
