#include "lockstep/training/state/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/checkpoint_files.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Registers its own tensor after its children, and one tensor under two names.
class TiedNetImpl : public torch::nn::Module {
 public:
  explicit TiedNetImpl(int64_t outputs = 2) {
    body_ =
        register_module("body", torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4)));
    head_ = register_module("head", torch::nn::Linear(4, outputs));
    counter_ = register_buffer("counter", torch::tensor({7, 8}));
    scale_ = register_parameter("scale", torch::ones({2}));
    register_parameter("same_scale", scale_);
    register_parameter("absent", torch::Tensor(), /*requires_grad=*/false);
  }

 private:
  torch::nn::Sequential body_;
  torch::nn::Linear head_{nullptr};
  torch::Tensor counter_;
  torch::Tensor scale_;
};
TORCH_MODULE(TiedNet);

std::vector<std::string> state_names(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

NamedTensors random_state_like(const NamedTensors& tensors) {
  NamedTensors copy;
  for (const auto& [name, tensor] : tensors)
    copy.emplace_back(name, tensor.is_floating_point() ? torch::randn_like(tensor) : tensor + 5);
  return copy;
}

torch::Tensor& state_tensor(NamedTensors& tensors, const std::string& name) {
  for (auto& [candidate, tensor] : tensors)
    if (candidate == name) return tensor;
  throw std::logic_error("no tensor " + name);
}

/// As in Python: a module's parameters, its buffers, then its children.
TEST(StateDictTest, NamesAndOrderArePythons) {
  TiedNet net;
  EXPECT_THAT(state_names(state_dict(*net)),
              ElementsAre("scale", "same_scale", "counter", "body.0.weight", "body.0.bias", "body.1.weight",
                          "body.1.bias", "body.1.running_mean", "body.1.running_var",
                          "body.1.num_batches_tracked", "head.weight", "head.bias"));
}

TEST(StateDictTest, TensorsShareTheModulesMemoryWithoutGradient) {
  TiedNet net;
  const auto state = state_dict(*net);
  for (const auto& [name, tensor] : state) EXPECT_FALSE(tensor.requires_grad()) << name;
  EXPECT_EQ(state[0].second.data_ptr(), net->named_parameters()["scale"].data_ptr());
}

TEST(StateDictTest, LoadsEverythingInPlace) {
  TiedNet net;
  const auto parameters = net->named_parameters();
  auto state = random_state_like(state_dict(*net));
  state_tensor(state, "same_scale") = state_tensor(state, "scale");
  const auto report = load_state_dict(*net, state);
  EXPECT_TRUE(report.is_complete());
  EXPECT_EQ(report.loaded, state_names(state_dict(*net)));
  for (auto& [name, tensor] : state_dict(*net))
    EXPECT_TRUE(torch::equal(tensor, state_tensor(state, name))) << name;
  for (const auto& parameter : net->named_parameters()) {
    EXPECT_EQ(parameter.value().data_ptr(), parameters[parameter.key()].data_ptr());
    EXPECT_TRUE(parameter.value().requires_grad());
  }
}

TEST(StateDictTest, FloatingTypesConvertAndOthersDoNot) {
  TiedNet net;
  auto state = state_dict(*net);
  state_tensor(state, "head.bias") = torch::tensor({0.5, -2.0}, torch::kFloat64);
  state_tensor(state, "scale") = torch::tensor({0.25, 4.0}, torch::kBFloat16);
  EXPECT_TRUE(load_state_dict(*net, state).is_complete());
  EXPECT_TRUE(torch::equal(net->named_parameters()["head.bias"], torch::tensor({0.5F, -2.0F})));
  state_tensor(state, "counter") = torch::tensor({1.5, 2.5});
  EXPECT_THAT(error_of<CheckpointError>([&] { load_state_dict(*net, state, {.source = "a.pt"}); }),
              HasSubstr("a.pt: tensor 'counter': expected Long [2], but got Float [2]"));
  EXPECT_EQ(load_state_dict(*net, state, {.strict = false}).differing.at(0).name, "counter");
}

/// Names the first difference in the module's order, with both shapes.
TEST(StateDictTest, StrictRefusesWhatDiffersAndChangesNothing) {
  TiedNet net;
  const auto before = torch::cat({net->named_parameters()["scale"].detach().clone()});
  const auto refused = [&](NamedTensors state) {
    state_tensor(state, "scale") = torch::full({2}, 9.0);
    return error_of<CheckpointError>([&] { load_state_dict(*net, state, {.source = "a.safetensors"}); });
  };
  auto state = state_dict(*TiedNet(5));
  EXPECT_EQ(refused(state),
            "a.safetensors: tensor 'head.weight': expected Float [2, 4], but got Float [5, 4]");
  state = state_dict(*net);
  state.erase(state.begin() + 4);
  EXPECT_EQ(refused(state),
            "a.safetensors: tensor 'body.0.bias': expected Float [4], but got no such tensor");
  state = state_dict(*net);
  state.emplace_back("head.extra", torch::ones({3}));
  EXPECT_EQ(refused(state),
            "a.safetensors: tensor 'head.extra': expected no such tensor in this model, but got Float [3]");
  state = state_dict(*net);
  state.emplace_back("head.bias", torch::ones({2}));
  EXPECT_EQ(refused(state),
            "a.safetensors: tensor 'head.bias': expected one tensor of this name, but got two");
  EXPECT_TRUE(torch::equal(net->named_parameters()["scale"], before));
}

TEST(StateDictTest, OtherwiseWhatMatchesIsLoadedAndTheRestIsListed) {
  TiedNet net;
  auto state = random_state_like(state_dict(*TiedNet(5)));
  state.erase(state.begin() + 3);
  state.emplace_back("extra", torch::ones({3}));
  const auto head = net->named_parameters()["head.weight"].detach().clone();
  const auto report = load_state_dict(*net, state, {.strict = false});
  EXPECT_FALSE(report.is_complete());
  EXPECT_THAT(report.missing, ElementsAre("body.0.weight"));
  EXPECT_THAT(report.unexpected, ElementsAre("extra"));
  EXPECT_THAT(report.describe(),
              ElementsAre("body.0.weight: not in the file",
                          "head.weight: expected Float [2, 4], but got Float [5, 4]",
                          "head.bias: expected Float [2], but got Float [5]", "extra: not in the model"));
  EXPECT_EQ(report.loaded.size(), 9U);
  EXPECT_TRUE(torch::equal(net->named_parameters()["head.weight"], head));
  EXPECT_TRUE(torch::equal(net->named_parameters()["body.0.bias"], state_tensor(state, "body.0.bias")));
}

/// A file may have any names of tensors, and any number of them.
TEST(StateDictTest, NamesThatAreNoTextAreEscapedAndLongListsEnd) {
  TiedNet net;
  auto state = state_dict(*net);
  const std::string hostile = "\x1b[2J\n" + std::string(1000, 'x');
  for (int i = 0; i < 60; ++i) state.emplace_back(hostile + std::to_string(i), torch::ones({3}));
  const auto message =
      error_of<CheckpointError>([&] { load_state_dict(*net, state, {.source = "a.safetensors"}); });
  EXPECT_THAT(message, HasSubstr("tensor '\\x1b[2J\\x0axxx"));
  EXPECT_LT(message.size(), 250U);
  const auto lines = load_state_dict(*net, state, {.strict = false}).describe();
  ASSERT_EQ(lines.size(), 51U);
  EXPECT_THAT(lines[0], ::testing::StartsWith("\\x1b[2J\\x0axxx"));
  EXPECT_LT(lines[0].size(), 110U);
  EXPECT_EQ(lines[50], "and 10 more");
  state.emplace_back(hostile + "0", torch::ones({3}));
  EXPECT_THAT(error_of<CheckpointError>([&] { load_state_dict(*net, state); }),
              HasSubstr("tensor '\\x1b[2J\\x0axxx"));
}

TEST(StateDictTest, LoadsIntoEveryReplica) {
  MirroredStrategy strategy(cpu_devices(2));
  auto model = strategy.scope([](ReplicaContext&) { return TiedNet(); });
  auto state = random_state_like(state_dict(*model.primary()));
  state_tensor(state, "same_scale") = state_tensor(state, "scale");
  EXPECT_THAT(load_state_dict(model, state).describe(), IsEmpty());
  for (const auto& replica : model.local_values()) {
    for (auto& [name, tensor] : state_dict(*replica))
      EXPECT_TRUE(torch::equal(tensor.cpu(), state_tensor(state, name).cpu())) << name;
  }
}

}  // namespace
}  // namespace lockstep
