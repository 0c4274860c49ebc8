#include "lockstep/parameter_server/shards/shard_assembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int64_t kTableRows = 10;

/// The shard that those rows would have saved, cut out of a shard of all rows.
SavedShard cut_out(const ParameterShard::Saved& whole, const RowRange& rows) {
  SavedShard part{rows, whole};
  const auto cut = [&](at::Tensor& tensor) {
    if (tensor.dim() > 0) tensor = tensor.narrow(0, rows.begin, rows.size()).clone();
  };
  cut(part.saved.values);
  for (auto& [name, tensor] : part.saved.optimizer) cut(tensor);
  return part;
}

/// The shards of a trained variable.
std::vector<SavedShard> trained(int64_t num_shards, const UpdateRule& rule) {
  torch::manual_seed(4);
  ParameterShard whole("whole", torch::randn({kTableRows, 3}), rule);
  for (uint64_t step = 0; step < 4; ++step)
    whole.push(torch::randn({kTableRows, 3}), {.id = {step, 0}, .lr = 0.1, .version = step});
  std::vector<SavedShard> parts;
  for (const auto& rows : cut_rows(kTableRows, num_shards)) parts.push_back(cut_out(whole.save(), rows));
  return parts;
}

void expect_same(const ParameterShard::Saved& got, const ParameterShard::Saved& expected) {
  EXPECT_TRUE(got.values.equal(expected.values));
  ASSERT_EQ(got.optimizer.size(), expected.optimizer.size());
  for (size_t i = 0; i < got.optimizer.size(); ++i) {
    EXPECT_EQ(got.optimizer[i].first, expected.optimizer[i].first);
    EXPECT_TRUE(got.optimizer[i].second.equal(expected.optimizer[i].second)) << got.optimizer[i].first;
  }
  EXPECT_EQ(got.version, expected.version);
  EXPECT_EQ(got.pushes, expected.pushes);
}

TEST(ShardAssembly, GivesWhatShardsOfAnotherCutWouldHaveBeen) {
  const std::vector<UpdateRule> rules{SgdRule{.momentum = 0.9}, AdagradRule{}, AdamRule{.amsgrad = true}};
  for (const auto& rule : rules) {
    for (const int64_t before : {1, 2, 3, 10}) {
      auto parts = trained(before, rule);
      std::reverse(parts.begin(), parts.end());
      for (const int64_t after : {1, 2, 4, 7, 10})
        for (const auto& expected : trained(after, rule))
          expect_same(assemble_shard(parts, expected.rows), expected.saved);
    }
  }
}

TEST(ShardAssembly, CanBeRestored) {
  const auto saved = assemble_shard(trained(3, AdamRule{}), {2, 9});
  ParameterShard shard("part", torch::zeros({7, 3}), AdamRule{});
  shard.restore(saved);
  EXPECT_TRUE(shard.pull().values.equal(saved.values));
  EXPECT_EQ(shard.push(torch::zeros({7, 3}), {.id = {3, 0}}).outcome, PushOutcome::kRepeated);
}

TEST(ShardAssembly, TakesNoUpdateTwiceWhereShardsWereSavedAtOtherTimes) {
  auto parts = trained(2, AdagradRule{});
  ParameterShard ahead("part", torch::zeros({5, 3}), AdagradRule{});
  ahead.restore(parts[1].saved);
  ahead.push(torch::ones({5, 3}), {.id = {8, 2}, .lr = 0.1, .version = 4});
  parts[1].saved = ahead.save();
  const auto whole = assemble_shard(parts, {0, kTableRows});
  EXPECT_EQ(whole.version, 5U);
  EXPECT_EQ(whole.optimizer.at(0).second.item<float>(), 5);
  EXPECT_EQ(whole.pushes.back(), (PushId{8, 2}));
  EXPECT_EQ(whole.pushes.size(), 1U + 4 + 1);
}

TEST(ShardAssembly, KeepsAScalarThatIsNoRow) {
  ParameterShard scalar("temperature", torch::full({}, 2.F), SgdRule{});
  EXPECT_EQ(assemble_shard({{{0, 1}, scalar.save()}}, {0, 1}).values.item<float>(), 2);
}

TEST(ShardAssembly, NamesTheRowThatIsMissingOrThereTwice) {
  auto parts = trained(3, SgdRule{});  // rows 0 to 3, 4 to 6, 7 to 9
  const auto assemble = [&](const RowRange& rows) { return [&, rows] { assemble_shard(parts, rows); }; };
  EXPECT_THAT(assemble({8, 11}), ThrowsMessage<InvalidArgument>(HasSubstr("got no row 10")));
  EXPECT_THAT(assemble({20, 22}), ThrowsMessage<InvalidArgument>(HasSubstr("got no row 20")));
  parts.push_back(parts[1]);
  EXPECT_THAT(assemble({0, 10}), ThrowsMessage<InvalidArgument>(HasSubstr("got row 4 twice")));
  parts.resize(3);
  parts.erase(parts.begin() + 1);
  EXPECT_THAT(assemble({0, 10}), ThrowsMessage<InvalidArgument>(HasSubstr("got no row 4")));
  parts[0].rows.end = 5;
  EXPECT_THAT(assemble({1, 3}), ThrowsMessage<InvalidArgument>(HasSubstr(
                                    "values: expected rows 0 to 4, but got a tensor of shape [4, 3]")));
}

TEST(ShardAssembly, RefusesPartsOfDifferentVariables) {
  const auto one = trained(2, AdamRule{});
  const auto refuses = [&](SavedShard other, const std::string& text) {
    EXPECT_THAT(
        [&] {
          assemble_shard({one[0], other}, {0, kTableRows});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refuses(trained(2, AdagradRule{})[1], "expected 3 tensors of an optimizer, but got 2");
  refuses({{5, 10}, ParameterShard("", torch::zeros({5, 3}, torch::kDouble), AdamRule{}).save()},
          "values: expected CPUFloatType of rows of shape [3], but got CPUDoubleType");
  refuses({{5, 10}, ParameterShard("", torch::zeros({5, 2}), AdamRule{}).save()},
          "but got CPUFloatType of [2]");
  auto renamed = one[1];
  renamed.saved.optimizer[1].first = "sum";
  refuses(renamed, "expected exp_avg, but got sum");
}

}  // namespace
}  // namespace lockstep
