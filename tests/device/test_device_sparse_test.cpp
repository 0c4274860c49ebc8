// Sparse tensors and gradients: LibTorch's CPU is the oracle, bit for bit.
#include "lockstep/tests/device/test_device_test_support.h"

namespace lockstep {
namespace {

using Tensors = std::vector<torch::Tensor>;

using TestDeviceSparse = EachTestDevice;
INSTANTIATE_TEST_SUITE_P(Each, TestDeviceSparse, testing::Range(0, TestDevice::kNumTestDevices));

torch::Tensor sparse_gradient(const torch::Tensor& table, const torch::Tensor& rows) {
  const auto leaf = table.detach().set_requires_grad(true);
  torch::embedding(leaf, rows, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false, /*sparse=*/true)
      .square()
      .sum()
      .backward();
  return leaf.grad();
}

const torch::Tensor kRows = torch::tensor({3, 1, 3}, torch::kLong);

TEST_P(TestDeviceSparse, GradientsOfTables) {
  const auto table = seeded_normal({5, 2}, 1);
  const auto expected = sparse_gradient(table, kRows);
  const auto gradient = sparse_gradient(table.to(device()), kRows.to(device()));
  ASSERT_TRUE(gradient.is_sparse());
  expect_same(gradient, expected);
  expect_same(gradient._indices(), expected._indices());
  expect_same(gradient._values(), expected._values());
  const auto sums = gradient.coalesce();
  EXPECT_TRUE(sums.is_coalesced());
  EXPECT_EQ(sums._nnz(), 2);
  expect_same(sums.indices(), expected.coalesce().indices());
  expect_same(sums.values(), expected.coalesce().values());
}

TEST_P(TestDeviceSparse, Arithmetic) {
  expect_same_on_device(
      [](const Tensors& in) {
        const auto gradient = sparse_gradient(in[0], in[1]);
        auto scaled = gradient.clone();
        scaled.mul_(3);
        auto grown = gradient.coalesce();
        grown.add_(sparse_gradient(in[0], in[1] + 1));
        auto zero = gradient.clone();
        zero.zero_();
        return Tensors{in[0].clone().add_(gradient, -0.1),
                       gradient + gradient,
                       scaled,
                       grown,
                       zero,
                       gradient.to_dense(),
                       torch::sparse_coo_tensor(in[1].view({1, 3}), in[0].slice(0, 0, 3), {9, 2})};
      },
      {seeded_normal({5, 2}, 2), kRows});
}

TEST_P(TestDeviceSparse, CopiesBetweenDevices) {
  const auto expected = sparse_gradient(seeded_normal({5, 2}, 3), kRows);
  const auto gradient = expected.to(device());
  expect_same(gradient, expected);
  for (int other = 0; other < kNumTestDevices; ++other) {
    const auto copy = gradient.to(test_device::device(other));
    EXPECT_EQ(copy._values().device(), test_device::device(other));
    EXPECT_TRUE(torch::equal(copy.cpu().to_dense(), expected.to_dense()));
  }
}

TEST_P(TestDeviceSparse, OptimizersTakeThem) {
  const auto trained = [](torch::Tensor table, const torch::Tensor& rows) {
    table = table.clone().set_requires_grad(true);
    torch::optim::SGD sgd({table}, 0.1);
    torch::optim::Adagrad adagrad({table}, 0.1);
    for (int i = 0; i < 3; ++i) {
      table.mutable_grad() = sparse_gradient(table, rows);
      sgd.step();
      adagrad.step();
    }
    return table.detach();
  };
  const auto table = seeded_normal({5, 2}, 4);
  expect_same(trained(table.to(device()), kRows.to(device())), trained(table, kRows));
}

}  // namespace
}  // namespace lockstep
