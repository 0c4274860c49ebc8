#include "lockstep/runtime/collectives/internal/packed_tensors.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

namespace lockstep {
namespace {

/// Overwrites the packed tensors as a backend would, and expects the values to return to the list.
void expect_round_trip(const std::vector<at::Tensor>& tensors, size_t num_flat) {
  std::vector<at::Tensor> expected;
  for (const auto& tensor : tensors) expected.push_back(tensor.detach() + tensor.detach());
  const PackedTensors packed(tensors);
  EXPECT_EQ(packed.flat().size(), num_flat);
  for (auto flat : packed.flat()) {
    EXPECT_TRUE(flat.is_contiguous() && flat.dim() == 1 && flat.numel() > 0 && !flat.is_complex());
    flat.mul_(2);
  }
  packed.copy_back();
  for (size_t i = 0; i < tensors.size(); ++i)
    EXPECT_TRUE(torch::equal(tensors[i].detach(), expected[i])) << i;
}

TEST(PackedTensors, AreWrittenBackWhateverTheirShapesStridesAndDtypes) {
  const auto large = torch::randn({PackedTensors::kSmallBytes});
  expect_round_trip({large}, 1);
  expect_round_trip({torch::randn({3, 4}).t()}, 1);
  expect_round_trip({torch::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast)}, 1);
  expect_round_trip({torch::randn({3}, torch::kComplexFloat)}, 1);
  expect_round_trip(
      {torch::randn({3, 2}, torch::kComplexFloat).conj().t(), torch::randn({2}, torch::kComplexFloat)}, 1);
  expect_round_trip(
      {torch::randn({}), large, torch::arange(4), torch::randn({5}), torch::arange(6).narrow(0, 1, 3)}, 3);
  expect_round_trip({torch::ones({0}), torch::ones({2, 0})}, 0);
  expect_round_trip({}, 0);
}

TEST(PackedTensors, AContiguousTensorIsHandedOverAsItIs) {
  const auto tensor = torch::ones({4, 5});
  const PackedTensors packed({tensor});
  EXPECT_EQ(packed.flat()[0].const_data_ptr(), tensor.const_data_ptr());
}

TEST(PackedTensors, TheOrderComesFromShapesAndDtypesAlone) {
  const auto sizes = [](const std::vector<at::Tensor>& tensors) {
    const PackedTensors packed(tensors);
    std::vector<int64_t> sizes;
    for (const auto& flat : packed.flat()) sizes.push_back(flat.numel());
    return sizes;
  };
  const auto large = torch::ones({300, 400});
  EXPECT_EQ(sizes({torch::ones({2, 3}), large, torch::ones({4})}), (std::vector<int64_t>{10, 120000}));
  EXPECT_EQ(sizes({torch::ones({3, 2}).t(), large.t().contiguous().t(), torch::ones({4})}),
            (std::vector<int64_t>{10, 120000}));
}

TEST(PackedTensors, KeepNoHistoryAlive) {
  // If autograd tracked the view, it would keep its base and the graph alive as long as a backend holds it.
  const auto leaf = torch::ones({4}, torch::requires_grad());
  auto result = (leaf * 2).detach();
  const PackedTensors packed({result});
  EXPECT_FALSE(packed.flat()[0].is_view());
  EXPECT_TRUE(packed.flat()[0].is_alias_of(result));
}

}  // namespace
}  // namespace lockstep
