// WideAndDeep and Dlrm: shared behaviour is tested in the same way for both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/models/dlrm.h"
#include "lockstep/models/wide_and_deep.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int64_t kNumbers = 3;
constexpr int64_t kCategories = 4;
constexpr int64_t kColumns = 2;

struct Inputs {
  explicit Inputs(int64_t count)
      : numbers(torch::randn({count, kNumbers}, torch::kDouble)),
        wide(torch::randn({count}, torch::kDouble)),
        embedded(torch::randn({count, kCategories, kColumns}, torch::kDouble)) {
    wide.requires_grad_();
    embedded.requires_grad_();
  }
  torch::Tensor numbers, wide, embedded;
};

WideAndDeep make_wide_and_deep() {
  torch::manual_seed(2);
  WideAndDeep model(WideAndDeepOptions{.num_numbers = kNumbers,
                                       .num_categories = kCategories,
                                       .embedding_dim = kColumns,
                                       .hidden_units = {7, 5}});
  model->to(torch::kDouble);
  return model;
}

Dlrm make_dlrm() {
  torch::manual_seed(2);
  Dlrm model(DlrmOptions{.num_numbers = kNumbers,
                         .num_categories = kCategories,
                         .embedding_dim = kColumns,
                         .bottom_units = {6},
                         .top_units = {7, 5}});
  model->to(torch::kDouble);
  return model;
}

/// Dense layers written with ATen alone, with ReLU between them.
torch::Tensor plain_layers(const torch::nn::Module& model, const std::string& name, int count,
                           torch::Tensor values) {
  const auto parameters = model.named_parameters();
  for (int layer = 0; layer < count; ++layer) {
    const std::string prefix = name + "." + std::to_string(2 * layer);
    if (layer > 0) values = torch::relu(values);
    values = torch::linear(values, parameters[prefix + ".weight"], parameters[prefix + ".bias"]);
  }
  return values;
}

torch::Tensor plain_wide_and_deep(const WideAndDeep& model, const Inputs& inputs) {
  const auto parameters = model->named_parameters();
  const auto deep =
      plain_layers(*model, "deep", 3, torch::cat({inputs.numbers, inputs.embedded.flatten(1)}, 1));
  const auto linear = torch::linear(inputs.numbers, parameters["linear.weight"], parameters["linear.bias"]);
  return linear.select(1, 0) + deep.select(1, 0) + inputs.wide;
}

torch::Tensor plain_dlrm(const Dlrm& model, const Inputs& inputs) {
  const auto bottom = torch::relu(plain_layers(*model, "bottom", 2, inputs.numbers));
  std::vector<torch::Tensor> vectors{bottom};
  for (int64_t i = 0; i < kCategories; ++i) vectors.push_back(inputs.embedded.select(1, i));
  std::vector<torch::Tensor> features{bottom};
  for (size_t i = 0; i < vectors.size(); ++i)
    for (size_t j = 0; j < i; ++j) features.push_back((vectors[i] * vectors[j]).sum(1, /*keepdim=*/true));
  return plain_layers(*model, "top", 3, torch::cat(features, 1)).select(1, 0);
}

/// Expects that logits and all gradients agree.
void expect_equal(const torch::nn::Module& model, const torch::Tensor& logits, const torch::Tensor& expected,
                  const std::vector<torch::Tensor>& inputs) {
  EXPECT_TRUE(torch::allclose(logits, expected, 0, 1e-12));
  auto variables = model.parameters();
  variables.insert(variables.end(), inputs.begin(), inputs.end());
  const auto weights = torch::randn(logits.sizes(), torch::kDouble);
  const auto gradients = torch::autograd::grad({(logits * weights).sum()}, variables);
  const auto expected_gradients = torch::autograd::grad({(expected * weights).sum()}, variables);
  for (size_t i = 0; i < gradients.size(); ++i)
    EXPECT_TRUE(torch::allclose(gradients[i], expected_gradients[i], 0, 1e-12)) << i;
}

TEST(WideAndDeepTest, EqualsTheFormulaInValuesAndGradients) {
  const Inputs inputs(6);
  auto model = make_wide_and_deep();
  expect_equal(*model, model(inputs.numbers, inputs.wide, inputs.embedded),
               plain_wide_and_deep(model, inputs), {inputs.wide, inputs.embedded});
}

TEST(DlrmTest, EqualsTheFormulaInValuesAndGradients) {
  const Inputs inputs(6);
  auto model = make_dlrm();
  expect_equal(*model, model(inputs.numbers, inputs.embedded), plain_dlrm(model, inputs), {inputs.embedded});
}

TEST(ClickModelsTest, AnEmptyShardGivesZeroGradients) {
  const Inputs inputs(0);
  auto wide_and_deep = make_wide_and_deep();
  auto dlrm = make_dlrm();
  wide_and_deep(inputs.numbers, inputs.wide, inputs.embedded).sum().backward();
  dlrm(inputs.numbers, inputs.embedded).sum().backward();
  for (const torch::nn::Module* model :
       {static_cast<torch::nn::Module*>(wide_and_deep.get()), static_cast<torch::nn::Module*>(dlrm.get())}) {
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_EQ(item.value().grad().abs().max().item<double>(), 0) << item.key();
    }
  }
}

TEST(ClickModelsTest, ClonesAreDeepAndComputeTheSame) {
  const Inputs inputs(3);
  auto wide_and_deep = make_wide_and_deep();
  WideAndDeep copy(std::dynamic_pointer_cast<WideAndDeepImpl>(wide_and_deep->clone()));
  EXPECT_TRUE(copy(inputs.numbers, inputs.wide, inputs.embedded)
                  .equal(wide_and_deep(inputs.numbers, inputs.wide, inputs.embedded)));
  auto dlrm = make_dlrm();
  Dlrm other(std::dynamic_pointer_cast<DlrmImpl>(dlrm->clone()));
  EXPECT_TRUE(other(inputs.numbers, inputs.embedded).equal(dlrm(inputs.numbers, inputs.embedded)));
  EXPECT_NE(other->parameters()[0].data_ptr(), dlrm->parameters()[0].data_ptr());
}

TEST(ClickModelsTest, RefuseOptionsAndShapesByName) {
  EXPECT_THAT([] { Dlrm(DlrmOptions{.embedding_dim = 0}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("[Dlrm] expected 1 or more")));
  EXPECT_THAT(
      [] {
        Dlrm(DlrmOptions{.top_units = {8, 0}});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("1 or more units of a dense layer, but got 0")));
  EXPECT_THAT([] { WideAndDeep(WideAndDeepOptions{.num_numbers = 0}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("[WideAndDeep] expected 1 or more")));
  const Inputs inputs(3);
  const Inputs other(4);
  auto dlrm = make_dlrm();
  EXPECT_THAT(
      [&] { dlrm(inputs.numbers, other.embedded); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("embedded [N, 4, 2], but got [3, 3] and [4, 4, 2]")));
  auto wide_and_deep = make_wide_and_deep();
  EXPECT_THAT([&] { wide_and_deep(inputs.numbers, other.wide, inputs.embedded); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("wide [N]")));
}

}  // namespace
}  // namespace lockstep
