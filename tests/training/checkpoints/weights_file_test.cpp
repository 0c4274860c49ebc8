#include "lockstep/training/checkpoints/weights_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/training/formats/safetensors.h"
#include "lockstep/training/formats/state_file.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST(WeightsFileTest, EitherFormatIsKnownByItsContent) {
  const TemporaryFolder folder;
  const NamedTensors weights = {{"weight", torch::randn({2, 3})}, {"bias", torch::randn({2})}};
  for (const char* name : {"weights.safetensors", "weights.pt", "weights.pth"}) {
    save_weights(folder.file(name), weights);
    const auto renamed = folder.write("renamed", bytes_of(folder.file(name)));
    torch::nn::Linear model(3, 2);
    EXPECT_TRUE(init_weights(*model, renamed).is_complete());
    EXPECT_TRUE(torch::equal(model->weight, weights[0].second)) << name;
    EXPECT_TRUE(torch::equal(model->bias, weights[1].second)) << name;
  }
}

TEST(WeightsFileTest, EveryReplicaGetsThem) {
  const TemporaryFolder folder;
  const auto path = folder.file("weights.pt");
  const auto weight = torch::randn({2, 3});
  save_weights(path, {{"weight", weight}});
  MirroredStrategy strategy(cpu_devices(2));
  auto model = strategy.scope([](ReplicaContext&) { return torch::nn::Linear(3, 2); });
  EXPECT_THAT(error_of<CheckpointError>([&] { init_weights(model, path); }),
              HasSubstr(path + ": tensor 'bias': expected Float [2], but got no such tensor"));
  EXPECT_EQ(init_weights(model, path, {.strict = false}).missing, std::vector<std::string>{"bias"});
  for (const auto& replica : model.local_values()) EXPECT_TRUE(torch::equal(replica->weight.cpu(), weight));
}

TEST(WeightsFileTest, TheWeightsOfATrainingStateAreFound) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  StateValue::Dict weights;
  weights.add("weight", torch::ones({2}));
  for (const char* key : {"model", "state_dict", "model_state_dict"}) {
    StateValue::Dict state;
    state.add("epoch", 3);
    state.add(key, weights);
    save_state_file(path, state);
    EXPECT_EQ(load_weights(path).at(0).first, "weight") << key;
  }
}

TEST(WeightsFileTest, FilesWithoutWeightsAreRefused) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  const auto refused = [&](const StateValue& value) {
    save_state_file(path, value);
    return error_of<CheckpointError>([&] { load_weights(path); });
  };
  EXPECT_EQ(refused(7), path + ": weights: expected a dict, but got another value");
  StateValue::Dict dict;
  dict.add(3, torch::ones({1}));
  EXPECT_EQ(refused(dict), path + ": weights: expected names, but got 3");
  dict.entries[0].key = "epoch";
  dict.entries[0].value = 3;
  EXPECT_EQ(refused(dict), path + ": weights 'epoch': expected a tensor, but got another value");
  EXPECT_THAT(error_of<CheckpointError>([&] { load_weights(folder.file("absent")); }),
              HasSubstr("cannot open"));
  EXPECT_THAT(error_of<CheckpointError>([&] { load_weights(folder.write("empty", "")); }),
              HasSubstr("file size"));
}

TEST(WeightsFileTest, OtherEndingsAreRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of<InvalidArgument>([&] { save_weights(folder.file("weights.bin"), {}); }),
              HasSubstr("expected a name that ends in .safetensors, .pt or .pth"));
  EXPECT_EQ(folder.num_files(), 0U);
}

}  // namespace
}  // namespace lockstep
