#include "lockstep/strategies/communication/cross_device_ops.h"

#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

const LogicalDevice kGpu0{c10::DeviceType::CUDA, 0};
const LogicalDevice kGpu1{c10::DeviceType::CUDA, 1};
const LogicalDevice kCpu0{c10::DeviceType::CPU, 0};

class AnyCrossDeviceOps : public testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<CrossDeviceOps> ops_ = make_cross_device_ops(GetParam());
};

TEST_P(AnyCrossDeviceOps, ReducesToEveryDestinationWithATensorOfItsOwn) {
  const std::vector<torch::Tensor> values{torch::tensor({1.0, 2.0}), torch::tensor({3.0, 4.0}),
                                          torch::tensor({5.0, 9.0})};
  const auto sums = ops_->reduce(ReduceOp::kSum, values, logical_cpus(2));
  ASSERT_EQ(sums.size(), 2U);
  for (const auto& sum : sums) EXPECT_TRUE(torch::equal(sum, torch::tensor({9.0, 15.0})));
  EXPECT_FALSE(sums[0].is_alias_of(sums[1]));
  EXPECT_TRUE(
      torch::equal(ops_->reduce(ReduceOp::kMean, values, logical_cpus(1))[0], torch::tensor({3.0, 5.0})));
  EXPECT_TRUE(torch::equal(values[0], torch::tensor({1.0, 2.0}))) << "the values stay as they are";
}

TEST_P(AnyCrossDeviceOps, OneReplicasValueStaysItself) {
  const auto value = torch::ones({3});
  EXPECT_TRUE(ops_->reduce(ReduceOp::kMean, {value}, logical_cpus(1))[0].is_same(value));
  EXPECT_TRUE(
      ops_->batch_reduce(ReduceOp::kSum, {{value}, {torch::ones({1})}}, logical_cpus(1))[0][0].is_same(
          value));
  EXPECT_TRUE(ops_->broadcast(value, logical_cpus(1))[0].is_same(value));
}

TEST_P(AnyCrossDeviceOps, BroadcastsACopyToEachDestination) {
  const auto value = torch::arange(4);
  const auto copies = ops_->broadcast(value, logical_cpus(3));
  ASSERT_EQ(copies.size(), 3U);
  for (const auto& copy : copies) EXPECT_TRUE(torch::equal(copy, value));
  EXPECT_FALSE(copies[1].is_alias_of(copies[0]));
  EXPECT_FALSE(copies[2].is_alias_of(copies[1]));
}

TEST_P(AnyCrossDeviceOps, BatchReduceEqualsReducingOneByOne) {
  torch::manual_seed(1);
  // Tensors of several shapes, including a scalar and an empty one, and of two types.
  std::vector<std::vector<torch::Tensor>> values;
  for (const auto& shape : std::vector<std::vector<int64_t>>{{2, 3}, {}, {0, 4}, {5}})
    values.push_back({torch::randn(shape), torch::randn(shape), torch::randn(shape)});
  for (const bool mixed : {false, true}) {
    if (mixed) values.push_back({torch::tensor({1, 2}), torch::tensor({3, 4}), torch::tensor({5, 6})});
    for (const auto op : {ReduceOp::kSum, ReduceOp::kMean}) {
      const auto results = ops_->batch_reduce(op, values, logical_cpus(2));
      ASSERT_EQ(results.size(), values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const auto expected = ops_->reduce(op, values[i], logical_cpus(1))[0];
        ASSERT_EQ(results[i].size(), 2U);
        for (const auto& result : results[i]) {
          EXPECT_EQ(result.sizes(), expected.sizes());
          EXPECT_TRUE(torch::equal(result, expected)) << i;
        }
        EXPECT_TRUE(expected.numel() == 0 || !results[i][0].is_alias_of(results[i][1]));
      }
    }
  }
  EXPECT_TRUE(ops_->batch_reduce(ReduceOp::kSum, {}, logical_cpus(1)).empty());
}

TEST_P(AnyCrossDeviceOps, BatchReduceTakesValuesOfDifferentNumbersOfReplicas) {
  const auto one = torch::ones({2});
  const auto results = ops_->batch_reduce(ReduceOp::kSum, {{one, one}, {one, one, one}}, logical_cpus(1));
  EXPECT_EQ(results[0][0][0].item<float>(), 2.0F);
  EXPECT_EQ(results[1][0][0].item<float>(), 3.0F);
}

TEST_P(AnyCrossDeviceOps, RefusesNoDestinationNoValueAndDifferentShapes) {
  const auto one = torch::ones({2});
  EXPECT_THROW(ops_->reduce(ReduceOp::kSum, {one, one}, {}), InvalidArgument);
  EXPECT_THROW(ops_->batch_reduce(ReduceOp::kSum, {{one, one}}, {}), InvalidArgument);
  EXPECT_THROW(ops_->broadcast(one, {}), InvalidArgument);
  EXPECT_THROW(ops_->reduce(ReduceOp::kSum, {}, logical_cpus(1)), InvalidArgument);
  const auto message = message_of<InvalidArgument>([&] {
    ops_->batch_reduce(ReduceOp::kSum, {{one, one}, {one, torch::ones({3})}}, logical_cpus(1));
  });
  EXPECT_NE(message.find("replica 0 has [2] and replica 1 has [3]"), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Ops, AnyCrossDeviceOps,
                         testing::Values("hierarchical_copy", "reduction_to_one_device"),
                         [](const auto& info) { return info.param; });

/// Records the lengths of the tensors that are summed.
class CountingOps : public HierarchicalCopyAllReduce {
 public:
  using HierarchicalCopyAllReduce::HierarchicalCopyAllReduce;
  mutable std::vector<int64_t> lengths;

 protected:
  torch::Tensor sum(const std::vector<torch::Tensor>& values,
                    const LogicalDevice& destination) const override {
    lengths.push_back(values[0].numel());
    return CrossDeviceOps::sum(values, destination);
  }
};

TEST(CrossDeviceOpsPacking, CutsIntoEqualPacksWithTheRemainderInTheLast) {
  const auto lengths_with = [](int num_packs) {
    const CountingOps ops({.num_packs = num_packs});
    const std::vector<std::vector<torch::Tensor>> values{{torch::ones({4}), torch::ones({4})},
                                                         {torch::ones({6}), torch::ones({6})}};
    for (const auto& result : ops.batch_reduce(ReduceOp::kSum, values, logical_cpus(1)))
      EXPECT_TRUE(result[0].eq(2).all().item<bool>());
    return ops.lengths;
  };
  EXPECT_EQ(lengths_with(0), (std::vector<int64_t>{4, 6})) << "unpacked";
  EXPECT_EQ(lengths_with(1), (std::vector<int64_t>{10}));
  EXPECT_EQ(lengths_with(3), (std::vector<int64_t>{3, 3, 4}));
  EXPECT_EQ(lengths_with(99), std::vector<int64_t>(10, 1)) << "no more packs than elements";
}

TEST(CrossDeviceOpsPacking, RefusesANegativeNumberOfPacks) {
  const auto message = message_of<InvalidArgument>([] { HierarchicalCopyAllReduce({.num_packs = -1}); });
  EXPECT_NE(message.find("num_packs of 0 or more, but got -1"), std::string::npos) << message;
  EXPECT_THROW(NcclAllReduce({.num_packs = -2}), InvalidArgument);
}

TEST(ReductionToOneDevice, SumsWithTheCallersOwnFunction) {
  const ReductionToOneDevice largest({.accumulation = [](const std::vector<torch::Tensor>& values) {
    return std::get<0>(torch::stack(values).max(0));
  }});
  const std::vector<torch::Tensor> values{torch::tensor({1.0, 7.0}), torch::tensor({3.0, 2.0})};
  EXPECT_TRUE(
      torch::equal(largest.reduce(ReduceOp::kSum, values, logical_cpus(1))[0], torch::tensor({3.0, 7.0})));
}

TEST(ReductionToOneDevice, RefusesAnUnknownDeviceAtConstruction) {
  const auto message =
      message_of<InvalidArgument>([] { ReductionToOneDevice({.reduce_to_device = "gpu:77"}); });
  EXPECT_NE(message.find("'gpu:77'"), std::string::npos) << message;
  EXPECT_NO_THROW(ReductionToOneDevice({.reduce_to_device = "cpu:3"}));
}

TEST(NcclAllReduce, NamesTheDeviceThatItCannotServe) {
  const NcclAllReduce nccl;
  const auto on_cpu = message_of<InvalidArgument>([&] { nccl.check_devices({kGpu0, kCpu0}); });
  EXPECT_NE(on_cpu.find("replica 1 is on cpu:0"), std::string::npos) << on_cpu;
  const auto shared = message_of<InvalidArgument>([&] { nccl.check_devices({kGpu0, kGpu0}); });
  EXPECT_NE(shared.find("gpu:0 has two"), std::string::npos) << shared;
#ifndef LOCKSTEP_WITH_CUDA
  const auto absent = message_of<InvalidArgument>([&] { nccl.check_devices({kGpu0, kGpu1}); });
  EXPECT_NE(absent.find("no NCCL"), std::string::npos) << absent;
#endif
}

TEST(MakeCrossDeviceOps, KnowsItsNames) {
  EXPECT_EQ(make_cross_device_ops("nccl")->name(), "NcclAllReduce");
  EXPECT_EQ(make_cross_device_ops("hierarchical_copy")->name(), "HierarchicalCopyAllReduce");
  EXPECT_EQ(make_cross_device_ops("reduction_to_one_device")->name(), "ReductionToOneDevice");
  EXPECT_EQ(make_cross_device_ops("auto"), nullptr) << "the strategy chooses";
  const auto message = message_of<InvalidArgument>([] { make_cross_device_ops("ncl"); });
  EXPECT_NE(message.find("hierarchical_copy"), std::string::npos) << message;
  EXPECT_NE(message.find("'ncl'"), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep
