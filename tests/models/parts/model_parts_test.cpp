// Models of wrapped parts: each part is wrapped once, in its place, and computes the same.
#include "lockstep/models/parts/model_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/tests/models/state_of.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Stands for a part, with its tensors under their names.
struct StandInImpl : torch::nn::Module {
  explicit StandInImpl(const torch::nn::Module& part) {
    for (const auto& item : part.named_parameters(false)) register_parameter(item.key(), item.value());
    for (const auto& item : part.named_buffers(false)) register_buffer(item.key(), item.value());
    for (const auto& child : part.named_children()) register_module(child.key(), child.value());
  }
};

/// Notes the parts and their calls.
struct NotedParts {
  PartWrapper wrapper() {
    return [this](const ModelPart& part) {
      made.push_back(part.name);
      return WrappedPart{std::make_shared<StandInImpl>(*part.module),
                         [this, name = part.name](const PartFunction& function, const torch::Tensor& x) {
                           called.push_back(name);
                           return function(x);
                         }};
    };
  }
  std::vector<std::string> made, called;
};

/// Expects that a model of wrapped parts has the tensors of `plain`, in the same order, and computes the
/// same.
template <typename Model>
void expect_the_same(Model& plain, Model& wrapped, const torch::Tensor& images) {
  EXPECT_EQ(wrapped->named_parameters().keys(), plain->named_parameters().keys());
  EXPECT_EQ(wrapped->named_buffers().keys(), plain->named_buffers().keys());
  const auto state = state_of(*wrapped);
  for (const auto& [name, tensor] : state_of(*plain)) EXPECT_TRUE(state.at(name).equal(tensor)) << name;
  const auto expected = plain->forward(images);
  const auto given = wrapped->forward(images);
  EXPECT_TRUE(given.equal(expected));
  expected.sum().backward();
  given.sum().backward();
  for (const auto& item : plain->named_parameters())
    EXPECT_TRUE(wrapped->named_parameters()[item.key()].grad().equal(item.value().grad())) << item.key();
}

TEST(ModelPartsTest, MobileNetV2WrapsItsConvolutionsBlocksAndClassifier) {
  for (const auto head : {MobileNetV2Head::kGlobalAverage, MobileNetV2Head::kFlattenedDense}) {
    const MobileNetV2Options options{
        .num_classes = 3, .width_multiplier = 0.25, .dropout = 0, .head = head, .image_size = 33};
    NotedParts noted;
    torch::manual_seed(4);
    MobileNetV2 plain(options);
    torch::manual_seed(4);
    MobileNetV2 wrapped(options, noted.wrapper());
    std::vector<std::string> names;
    for (int i = 0; i < 19; ++i) names.push_back("features." + std::to_string(i));
    names.emplace_back("classifier");
    EXPECT_EQ(noted.made, names);
    expect_the_same(plain, wrapped, torch::randn({2, 3, 33, 33}));
    EXPECT_EQ(noted.called, names);
  }
}

TEST(ModelPartsTest, SimpleCnnWrapsItsLayers) {
  NotedParts noted;
  torch::manual_seed(4);
  SimpleCnn plain(SimpleCnnOptions{.num_classes = 3, .image_size = 8});
  torch::manual_seed(4);
  SimpleCnn wrapped(SimpleCnnOptions{.num_classes = 3, .image_size = 8}, noted.wrapper());
  EXPECT_THAT(noted.made, ElementsAre("convolution", "dense", "classifier"));
  expect_the_same(plain, wrapped, torch::randn({2, 1, 8, 8}));
  EXPECT_THAT(noted.called, ElementsAre("convolution", "dense", "classifier"));
}

TEST(ModelPartsTest, APartWithoutAModuleIsRefusedByName) {
  const PartWrapper empty = [](const ModelPart&) { return WrappedPart{}; };
  EXPECT_THAT(message_of<std::invalid_argument>([&] { SimpleCnn(SimpleCnnOptions{}, empty); }),
              HasSubstr("'convolution'"));
  EXPECT_THAT(message_of<std::invalid_argument>([&] { MobileNetV2(MobileNetV2Options{}, empty); }),
              HasSubstr("'features.0'"));
}

template <typename Model>
void expect_a_clone_of_its_own(const Model& model, const torch::Tensor& images) {
  const auto clone = std::dynamic_pointer_cast<typename Model::Impl>(model->clone());
  const auto expected = model.ptr()->forward(images);
  EXPECT_TRUE(clone->forward(images).equal(expected));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : clone->parameters()) parameter.zero_();
  EXPECT_EQ(clone->forward(images).abs().max().template item<float>(), 0);
  EXPECT_TRUE(model.ptr()->forward(images).equal(expected));
}

TEST(ModelPartsTest, ClonesComputeWithWrappedPartsOfTheirOwn) {
  const PartWrapper same = [](const ModelPart& part) { return WrappedPart{part.module}; };
  const MobileNetV2Options options{.num_classes = 3, .width_multiplier = 0.25, .dropout = 0};
  expect_a_clone_of_its_own(MobileNetV2(options, same), torch::randn({2, 3, 33, 33}));
  expect_a_clone_of_its_own(SimpleCnn(SimpleCnnOptions{}, same), torch::randn({2, 1, 28, 28}));
}

TEST(ModelPartsTest, APartThatIsNotWrappedIsCalledDirectly) {
  const PartWrapper same = [](const ModelPart& part) { return WrappedPart{part.module}; };
  torch::manual_seed(4);
  SimpleCnn plain;
  torch::manual_seed(4);
  SimpleCnn wrapped(SimpleCnnOptions{}, same);
  expect_the_same(plain, wrapped, torch::randn({2, 1, 28, 28}));
}

}  // namespace
}  // namespace lockstep
