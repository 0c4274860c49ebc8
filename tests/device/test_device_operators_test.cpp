// Families of operators: LibTorch's CPU is the oracle, bit for bit.
#include "lockstep/tests/device/test_device_test_support.h"

namespace lockstep {
namespace {

using Tensors = std::vector<torch::Tensor>;

using TestDeviceOperators = EachTestDevice;
INSTANTIATE_TEST_SUITE_P(Each, TestDeviceOperators, testing::Range(0, TestDevice::kNumTestDevices));

TEST_P(TestDeviceOperators, Elementwise) {
  expect_same_with_gradients(
      [](const Tensors& in) {
        const auto &x = in[0], &y = in[1];
        return Tensors{x + y,
                       x * y - 3,
                       x / (y.abs() + 1),
                       torch::exp(x),
                       torch::tanh(y),
                       torch::gelu(x),
                       torch::silu(y),
                       torch::mish(x),
                       torch::sigmoid(x),
                       torch::relu(y),
                       torch::pow(x, 3),
                       x.clamp(-1, 1),
                       torch::lerp(x, x * 2, 0.3),
                       torch::addcmul(x, x, y, 2),
                       torch::where(x > 0, x, x * 0.1),
                       torch::leaky_relu(x),
                       torch::softplus(x),
                       -x.abs()};
      },
      {seeded_normal({4, 5}, 1), seeded_normal({5}, 2)});
}

TEST_P(TestDeviceOperators, OtherTypes) {
  expect_same_on_device(
      [](const Tensors& in) {
        const auto& x = in[0];
        Tensors results;
        for (const auto type : {torch::kDouble, torch::kHalf, torch::kBFloat16, torch::kInt, torch::kLong,
                                torch::kUInt8, torch::kBool})
          results.push_back((x.to(type) + 1) * x.to(type));
        results.push_back(x.to(torch::kLong).bitwise_and(3));
        results.push_back(torch::eq(x, 2).logical_or(x > 5));
        return results;
      },
      {torch::arange(12, torch::kFloat).view({3, 4})});
}

TEST_P(TestDeviceOperators, InPlaceAndIntoAResult) {
  expect_same_on_device(
      [](const Tensors& in) {
        auto x = in[0];
        x.add_(1).mul_(x).clamp_min_(0.2);
        x.select(0, 1).zero_();
        x.slice(1, 0, 2).fill_(7);
        x.t().add_(x.new_ones({2}));
        auto empty = torch::empty({0}, x.options());
        torch::mm_out(empty, x, x.t());
        auto wrong_shape = torch::empty({0}, x.options());
        torch::add_out(wrong_shape, x, x);
        return Tensors{x, empty, wrong_shape, torch::zeros_like(x).copy_(x.sum(0))};
      },
      {seeded_normal({2, 5}, 3)});
}

TEST_P(TestDeviceOperators, Reductions) {
  expect_same_with_gradients(
      [](const Tensors& in) {
        const auto& x = in[0];
        return Tensors{x.sum(),
                       x.mean(1),
                       x.var(0),
                       x.norm(2),
                       std::get<0>(x.max(1)),
                       x.amin({0, 2}),
                       x.logsumexp(-1),
                       x.cumsum(1),
                       x.prod(2),
                       torch::softmax(x, -1),
                       torch::log_softmax(x, 1)};
      },
      {seeded_normal({3, 4, 5}, 4)});
  expect_same_on_device(
      [](const Tensors& in) {
        return Tensors{in[0].argmax(1),
                       in[0].gt(0).any(),
                       in[0].gt(0).sum(1),
                       in[0].median(),
                       std::get<1>(in[0].sort(1)),
                       std::get<0>(in[0].topk(2, 1)),
                       in[0].histc(4, -2, 2),
                       in[0].std(1)};
      },
      {seeded_normal({6, 7}, 5)});
}

TEST_P(TestDeviceOperators, MatrixProducts) {
  expect_same_with_gradients(
      [](const Tensors& in) {
        const auto &a = in[0], &b = in[1], &c = in[2];
        return Tensors{torch::mm(a, b),
                       torch::addmm(c, a, b, 0.5, 2),
                       torch::matmul(a, b.select(1, 0)),
                       torch::linear(a, b.t(), c),
                       torch::bmm(a.expand({2, 3, 4}), b.expand({2, 4, 5})),
                       torch::einsum("ij,jk->ik", {a, b})};
      },
      {seeded_normal({3, 4}, 6), seeded_normal({4, 5}, 7), seeded_normal({5}, 8)});
  expect_same_on_device(
      [](const Tensors& in) {
        const auto positive = torch::mm(in[0], in[0].t()) + torch::eye(4, in[0].options());
        return Tensors{torch::linalg_cholesky(positive), torch::linalg_inv(positive),
                       torch::linalg_solve(positive, in[0]), torch::linalg_det(positive)};
      },
      {seeded_normal({4, 4}, 9)});
}

TEST_P(TestDeviceOperators, IndicesAndMasks) {
  const auto rows = torch::tensor({2, 0, 2}, torch::kLong);
  expect_same_with_gradients(
      [](const Tensors& in) {
        const auto &x = in[0], &rows = in[1];
        return Tensors{x.index({rows}),
                       x.index_select(0, rows),
                       x.gather(0, rows.view({3, 1}).expand({3, 4})),
                       x.masked_fill(x > 0, 3),
                       x.masked_select(x > 0),
                       torch::embedding(x, rows),
                       x.index_add(0, rows, x),
                       x.index_put({rows}, x, /*accumulate=*/true),
                       x.scatter_add(0, rows.view({3, 1}).expand({3, 4}), x)};
      },
      {seeded_normal({3, 4}, 10), rows});
  expect_same_on_device(
      [](const Tensors& in) {
        auto x = in[0].clone();
        x.index_put_({in[1]}, torch::ones({3, 4}, x.options()));
        return Tensors{x.nonzero(),
                       std::get<0>(at::_unique2(in[1])),
                       x.argwhere(),
                       torch::bincount(in[1]),
                       torch::one_hot(in[1], 4),
                       torch::searchsorted(in[0].flatten(), in[0]),
                       x.tril(),
                       x.triu(1)};
      },
      {seeded_normal({3, 4}, 11), rows});
  // Indices may be on the CPU.
  const auto x = seeded_normal({3, 4}, 12);
  expect_same(x.to(device()).index({rows}), x.index({rows}));
}

TEST_P(TestDeviceOperators, Views) {
  expect_same_with_gradients(
      [](const Tensors& in) {
        const auto& x = in[0];
        return Tensors{x.t(),
                       x.view({3, 4}),
                       x.reshape({2, 6}).transpose(0, 1),
                       x.permute({1, 0}).contiguous(),
                       x.slice(0, 1, 4, 2),
                       x.select(1, 1),
                       x.unsqueeze(0).expand({2, 6, 2}),
                       x.unfold(0, 3, 2),
                       x.as_strided({2, 2}, {3, 1}, 1),
                       x.diagonal(),
                       x.split(2, 0)[1],
                       torch::cat({x, x}, 1),
                       torch::stack({x, x * 2}),
                       x.flip(0),
                       x.roll(1, 0),
                       x.repeat({2, 1}),
                       torch::constant_pad_nd(x, {1, 2}, 4)};
      },
      {seeded_normal({6, 2}, 13)});
}

TEST_P(TestDeviceOperators, AViewSharesTheDevicesMemory) {
  const auto x = torch::zeros({3, 4}, device());
  x.t().select(0, 2).add_(5);
  EXPECT_TRUE(x.view({4, 3}).is_alias_of(x));
  EXPECT_EQ(x.sum().item<float>(), 15);
}

TEST_P(TestDeviceOperators, ComplexNumbers) {
  expect_same_on_device(
      [](const Tensors& in) {
        const auto z = torch::view_as_complex(in[0]);
        return Tensors{z * z.conj(),      torch::view_as_real(z.exp()), z.abs(), torch::mm(z, z.conj().t()),
                       torch::fft_fft(z), z.conj().resolve_conj()};
      },
      {seeded_normal({3, 4, 2}, 14)});
}

TEST_P(TestDeviceOperators, CopiesOfAnyLayout) {
  const auto x = seeded_normal({2, 3, 4, 5}, 15);
  expect_same(x.to(device()), x);
  expect_same(x.transpose(0, 1).to(device(), torch::kDouble), x.transpose(0, 1).to(torch::kDouble));
  const auto channels_last = seeded_normal({2, 3, 4, 5}, 16).contiguous(at::MemoryFormat::ChannelsLast);
  expect_same(channels_last.to(device()), channels_last);
  for (int other = 0; other < kNumTestDevices; ++other)
    expect_same(channels_last.to(test_device::device(other)).to(device()), channels_last);
  auto part = torch::zeros({4, 4}, device());
  part.slice(1, 1, 3).copy_(torch::ones({4, 1}));
  EXPECT_EQ(part.sum().item<float>(), 8);
  auto on_cpu = torch::zeros({4, 4});
  on_cpu.t().copy_(part);
  EXPECT_TRUE(torch::equal(on_cpu, part.cpu().t()));
}

TEST_P(TestDeviceOperators, ListsOfTensors) {
  expect_same_on_device(
      [](const Tensors& in) {
        const std::vector<torch::Tensor> list{in[0], in[1]};
        at::_foreach_mul_(list, 0.5);
        at::_foreach_add_(list, list, 2);
        Tensors results = at::_foreach_norm(list);
        for (const auto& sum : at::_foreach_add(list, 1)) results.push_back(sum);
        at::_foreach_copy_(list, results[0].new_ones({2, 3}).unbind());
        results.insert(results.end(), list.begin(), list.end());
        return results;
      },
      {seeded_normal({3}, 17), seeded_normal({3}, 18)});
}

TEST_P(TestDeviceOperators, FusedOptimizers) {
  expect_same_on_device(
      [](const Tensors& in) {
        const auto& parameter = in[0];
        const auto& gradient = in[1];
        const auto mean = torch::zeros_like(parameter), square = torch::zeros_like(parameter);
        const auto step = torch::zeros({}, parameter.options());
        for (int i = 1; i <= 3; ++i) {
          step.add_(1);
          at::_fused_adam_({parameter}, {gradient}, {mean}, {square}, {}, {step}, /*lr=*/1e-2, 0.9, 0.999,
                           0.1, 1e-8,
                           /*amsgrad=*/false, /*maximize=*/false);
        }
        const auto momentum = torch::zeros_like(parameter);
        at::_fused_sgd_({parameter}, {gradient}, {momentum}, 0, 0.9, /*lr=*/1e-2, 0, false, false, true);
        return Tensors{parameter, mean, square, momentum};
      },
      {seeded_normal({40}, 19), seeded_normal({40}, 20)});
}

TEST_P(TestDeviceOperators, UnderInferenceMode) {
  expect_same_on_device(
      [](const Tensors& in) {
        const c10::InferenceMode guard;
        auto x = in[0].clone();
        x.add_(1).select(0, 0).zero_();
        return Tensors{torch::linear(x, x).relu()};
      },
      {seeded_normal({3, 4}, 21)});
}

TEST_P(TestDeviceOperators, SecondDerivatives) {
  expect_same_on_device(
      [](const Tensors& in) {
        auto x = in[0].clone().set_requires_grad(true);
        const auto y = (x.tanh() * x.exp()).sum();
        const auto first =
            torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
        return Tensors{torch::autograd::grad({(first * first).sum()}, {x})[0]};
      },
      {seeded_normal({5}, 22)});
}

}  // namespace
}  // namespace lockstep
