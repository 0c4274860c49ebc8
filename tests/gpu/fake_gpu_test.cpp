// The fake GPU's own behaviour, which the tests on it rely on.
#include "lockstep/tests/gpu/fake_gpu.h"
#include "lockstep/tests/gpu/fake_gpu_graph_support.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

c10::Stream new_stream() {
  return c10::impl::VirtualGuardImpl(torch::kCUDA).getStreamFromGlobalPool(kGpu0);
}

class FakeGpu : public testing::Test {
 protected:
  void SetUp() override { fake_gpu::forget(); }
};

TEST_F(FakeGpu, ComputesWhatTheCpuDoes) {
  EXPECT_EQ(torch::cuda::device_count(), fake_gpu::kNumDevices);
  torch::manual_seed(1);
  const auto on_cpu = torch::randn({2, 3, 8, 8}, torch::kDouble).requires_grad_();
  const auto on_gpu = on_cpu.detach().to(kGpu0).requires_grad_();
  EXPECT_TRUE(on_gpu.is_cuda());
  const auto weight = torch::randn({4, 3, 3, 3}, torch::kDouble);
  const auto f = [&](const torch::Tensor& x) {
    return torch::relu(torch::conv2d(x, weight.to(x.device()))).mean({2, 3}).pow(2).sum();
  };
  f(on_cpu).backward();
  f(on_gpu).backward();
  EXPECT_TRUE(on_gpu.grad().is_cuda());
  EXPECT_TRUE(torch::allclose(on_gpu.grad().cpu(), on_cpu.grad(), 1e-12, 1e-14));
}

TEST_F(FakeGpu, MakesATensorWhereItIsAskedFor) {
  const torch::Device last(torch::kCUDA, 1);
  const auto indices = torch::tril_indices(3, 3, 0, torch::dtype(torch::kLong).device(last));
  EXPECT_EQ(indices.device(), last);
  EXPECT_TRUE(torch::equal(indices.cpu(), torch::tril_indices(3, 3)));
}

TEST_F(FakeGpu, NotesAnAccessThatNoEventOrdersAfterAnothersWrite) {
  const auto a = new_stream();
  const auto b = new_stream();
  for (const bool waits : {true, false}) {
    fake_gpu::forget();
    torch::Tensor value;
    {
      const c10::StreamGuard on_stream(a);
      value = torch::zeros({4}, kGpu0);
    }
    if (waits) wait_for(b, a);
    const c10::StreamGuard on_stream(b);
    const auto doubled = value * 2;
    if (waits) {
      EXPECT_THAT(fake_gpu::races(), IsEmpty());
    } else {
      EXPECT_THAT(fake_gpu::races(),
                  ElementsAre(AllOf(HasSubstr("aten::mul reads"), HasSubstr("aten::zero_ writes"))));
    }
  }
}

TEST_F(FakeGpu, NotesAWriteThatNoEventOrdersAfterAnothersRead) {
  const auto a = new_stream();
  const auto b = new_stream();
  const auto value = torch::zeros({4}, kGpu0);
  const auto now = c10::impl::VirtualGuardImpl(torch::kCUDA).getStream(kGpu0);
  wait_for(a, now);
  wait_for(b, now);
  {
    const c10::StreamGuard on_stream(a);
    const auto doubled = value * 2;
  }
  {
    const c10::StreamGuard on_stream(b);
    value.narrow(0, 0, 2).add_(1);
  }
  EXPECT_THAT(fake_gpu::races(),
              ElementsAre(AllOf(HasSubstr("aten::add writes"), HasSubstr("aten::mul reads"))));
}

TEST_F(FakeGpu, LeavesDifferentPartsOfAMemoryAlone) {
  const auto a = new_stream();
  const auto value = torch::zeros({4}, kGpu0);
  wait_for(a, c10::impl::VirtualGuardImpl(torch::kCUDA).getStream(kGpu0));
  {
    const c10::StreamGuard on_stream(a);
    value.narrow(0, 0, 2).add_(1);
  }
  value.narrow(0, 2, 2).add_(1);
  EXPECT_THAT(fake_gpu::races(), IsEmpty());
}

TEST_F(FakeGpu, NotesMemoryThatIsTakenAgainWhileAnotherStreamUsesIt) {
  for (const bool is_recorded : {true, false}) {
    fake_gpu::forget();
    const auto user = new_stream();
    {
      auto value = torch::zeros({4}, kGpu0);
      wait_for(user, c10::impl::VirtualGuardImpl(torch::kCUDA).getStream(kGpu0));
      const c10::StreamGuard on_stream(user);
      const auto doubled = value * 2;
      if (is_recorded) value.record_stream(user);
    }
    const auto next = torch::empty({4}, kGpu0);
    if (is_recorded) {
      EXPECT_THAT(fake_gpu::races(), IsEmpty());
    } else {
      EXPECT_THAT(fake_gpu::races(), ElementsAre(HasSubstr("taken again")));
    }
  }
}

TEST_F(FakeGpu, CountsWhatMakesTheHostWait) {
  const auto value = torch::ones({4}, kGpu0);
  const auto in_pinned_memory = torch::ones({4}).pin_memory();
  EXPECT_TRUE(in_pinned_memory.is_pinned());
  fake_gpu::forget();
  in_pinned_memory.to(kGpu0, /*non_blocking=*/true);
  value.add_(1);
  EXPECT_THAT(fake_gpu::host_waits(), IsEmpty());
  value.sum().item<float>();
  EXPECT_THAT(fake_gpu::host_waits(), SizeIs(1));
  torch::ones({4}).to(kGpu0, /*non_blocking=*/true);
  EXPECT_THAT(fake_gpu::host_waits(), SizeIs(2));
  value.cpu();
  EXPECT_THAT(fake_gpu::host_waits(), SizeIs(3));
}

TEST_F(FakeGpu, ShowsACopyToPinnedMemoryOnceTheHostHasWaited) {
  const auto value = torch::ones({4}, kGpu0);
  const auto stream = c10::impl::VirtualGuardImpl(torch::kCUDA).getStream(kGpu0);
  for (const bool asks : {false, true}) {
    auto copy = torch::empty({4}, torch::TensorOptions().pinned_memory(true));
    copy.copy_(value, /*non_blocking=*/true);
    value.add_(1);
    EXPECT_TRUE(copy.isnan().all().item<bool>());
    if (asks) {
      EXPECT_TRUE(stream.query());
    } else {
      stream.synchronize();
    }
    EXPECT_TRUE(copy.eq(asks ? 2 : 1).all().item<bool>());
  }
}

TEST_F(FakeGpu, RefusesMemoryBeyondItsLimit) {
  fake_gpu::limit_memory(0, 1 << 20);
  EXPECT_THROW(torch::empty({1 << 20}, kGpu0), c10::OutOfMemoryError);
  EXPECT_NO_THROW(torch::empty({1 << 10}, kGpu0));
  fake_gpu::limit_memory(0, -1);
  EXPECT_NO_THROW(torch::empty({1 << 20}, kGpu0));
}

}  // namespace
}  // namespace lockstep
