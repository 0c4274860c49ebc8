#include "lockstep/training/state/internal/checkpoint_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/support/checkpoint_files.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

/// The bytes of each tensor by its name.
std::map<std::string, uint64_t> sizes_in(const StateValue::Dict& state) {
  std::map<std::string, uint64_t> sizes;
  visit_tensors(StateValue(state), [&](const std::string& name, const torch::Tensor& tensor) {
    EXPECT_TRUE(sizes.emplace(name, tensor.nbytes()).second) << name;
  });
  return sizes;
}

uint64_t sum_of(const std::map<std::string, uint64_t>& sizes) {
  uint64_t sum = 0;
  for (const auto& [name, size] : sizes) sum += size;
  return sum;
}

std::vector<std::string> keys_of(const StateValue::Dict& dict) {
  std::vector<std::string> keys;
  for (const auto& entry : dict.entries) {
    const auto* text = std::get_if<std::string>(&entry.key);
    keys.push_back(text != nullptr ? *text : std::to_string(std::get<int64_t>(entry.key)));
  }
  return keys;
}

/// State as optimizers keep it: numbers, tensors by integers, and some in lists.
StateValue::Dict example_state() {
  StateValue::Dict model, of_optimizer, groups, moments, state;
  for (int64_t i = 0; i < 11; ++i) {
    model.add("layer" + std::to_string(i), torch::full({i + 1}, static_cast<double>(i)));
    StateValue::Dict moment;
    moment.add("step", i);
    moment.add("average", torch::full({2 * i}, -static_cast<double>(i)));
    moments.add(i, moment);
  }
  groups.add("lr", 0.5);
  of_optimizer.add("state", moments);
  of_optimizer.add("param_groups", StateValue::List{groups, torch::ones({100})});
  of_optimizer.add("nothing", StateValue::Dict());
  state.add("model", model);
  state.add("optimizer", of_optimizer);
  state.add("format", 1);
  return state;
}

TEST(CheckpointShards, HoldEachTensorOnce) {
  const auto state = example_state();
  for (const int count : {1, 2, 3, 7, 40}) {
    std::map<std::string, uint64_t> all;
    for (int index = 0; index < count; ++index)
      for (const auto& [name, size] : sizes_in(shard_of(state, {index, count})))
        EXPECT_TRUE(all.emplace(name, size).second) << name << " in two of " << count;
    EXPECT_EQ(all, sizes_in(state)) << count;
  }
}

TEST(CheckpointShards, AreOfAboutTheSameSize) {
  StateValue::Dict state;
  uint64_t largest = 0;
  for (int64_t i = 0; i < 100; ++i) {
    const auto tensor = torch::zeros({1 + (i * 37) % 64});
    largest = std::max<uint64_t>(largest, tensor.nbytes());
    state.add("tensor" + std::to_string(i), tensor);
  }
  const uint64_t whole = sum_of(sizes_in(state));
  for (const int count : {2, 3, 8}) {
    for (int index = 0; index < count; ++index) {
      // Either end of a shard may have half of the largest tensor too much or too little.
      const auto size = static_cast<double>(sum_of(sizes_in(shard_of(state, {index, count}))));
      EXPECT_NEAR(size, static_cast<double>(whole) / count, static_cast<double>(largest)) << index;
    }
  }
}

TEST(CheckpointShards, TheFirstHoldsAllThatIsNoTensorOfADict) {
  const auto state = example_state();
  const auto first = shard_of(state, {0, 3});
  EXPECT_THAT(keys_of(first), ElementsAre("model", "optimizer", "format"));
  const auto& of_optimizer = *first.find("optimizer")->get_if<StateValue::Dict>();
  EXPECT_EQ(of_optimizer.find("param_groups")->get_if<StateValue::List>()->size(), 2);
  EXPECT_EQ(of_optimizer.find("nothing")->get_if<StateValue::Dict>()->entries.size(), 0);
  EXPECT_EQ(of_optimizer.find("state")->get_if<StateValue::Dict>()->entries.size(), 11);
  const auto last = shard_of(state, {2, 3});
  EXPECT_THAT(keys_of(last), ElementsAre("optimizer"));
  EXPECT_THAT(keys_of(*last.find("optimizer")->get_if<StateValue::Dict>()), ElementsAre("state"));
}

TEST(CheckpointShards, MergedAreTheState) {
  const auto state = example_state();
  for (const int count : {1, 2, 3, 7}) {
    StateValue::Dict merged;
    for (int index = 0; index < count; ++index)
      merged = merge_shards(merged, shard_of(state, {index, count}), "state.pt");
    EXPECT_THAT(keys_of(merged), UnorderedElementsAre("model", "optimizer", "format"));
    EXPECT_EQ(sizes_in(merged), sizes_in(state));
    const auto& moments = *merged.find("optimizer")->get_if<StateValue::Dict>()->find("state");
    for (int64_t i = 0; i < 11; ++i) {
      const auto& moment = *moments.get_if<StateValue::Dict>()->find(i)->get_if<StateValue::Dict>();
      EXPECT_EQ(*moment.find("step")->get_if<int64_t>(), i);
      EXPECT_TRUE(torch::equal(*moment.find("average")->get_if<torch::Tensor>(),
                               torch::full({2 * i}, -static_cast<double>(i))));
    }
  }
}

TEST(CheckpointShards, AnEntryOfTwoFilesIsNamed) {
  const auto state = example_state();
  EXPECT_THAT(error_of<CheckpointError>([&] {
                merge_shards(shard_of(state, {1, 2}), shard_of(state, {1, 2}), "state-1.pt");
              }),
              AllOf(HasSubstr("state-1.pt: "), HasSubstr("in one file of the checkpoint")));
  StateValue::Dict other;
  other.add("model", 3);
  EXPECT_THAT(error_of<CheckpointError>([&] { merge_shards(state, other, "state-1.pt"); }),
              HasSubstr("state-1.pt: model: "));
}

TEST(CheckpointShards, WithoutTensorsAllIsInTheFirst) {
  StateValue::Dict state;
  state.add("empty", torch::empty({0}));
  state.add("number", 3);
  EXPECT_THAT(keys_of(shard_of(state, {0, 2})), ElementsAre("empty", "number"));
  EXPECT_THAT(keys_of(shard_of(state, {1, 2})), ElementsAre());
}

}  // namespace
}  // namespace lockstep
