// Captures on the fake GPU follow CUDA's rules on what is allowed and what breaks them.
#include <torch/cuda.h>

#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/tests/gpu/fake_gpu_capture.h"
#include "lockstep/tests/gpu/fake_gpu_graph_support.h"

namespace lockstep {
namespace {

using fake_gpu::kFirstJoiningStream;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;

auto throws_error(const std::string& words) {
  return ThrowsMessage<c10::Error>(HasSubstr(words));
}

constexpr const char* kNotPermitted = "CUDA error: operation not permitted when stream is capturing";
constexpr const char* kPreviousError = "CUDA error: operation failed due to a previous error during capture";

struct Forbidden {
  std::string name;
  std::function<void(const torch::Tensor& value)> act;
};

class FakeGpuCaptureRefuses : public FakeGpuGraph, public testing::WithParamInterface<Forbidden> {};

INSTANTIATE_TEST_SUITE_P(
    HostWaits, FakeGpuCaptureRefuses,
    testing::Values(
        Forbidden{"Item", [](const auto& value) { value.sum().template item<float>(); }},
        Forbidden{"ItemOfAnotherGpu", [](const auto&) { torch::ones({1}, kGpu1).template item<float>(); }},
        Forbidden{"Nonzero", [](const auto& value) { value.nonzero(); }},
        Forbidden{"IndexByMask", [](const auto& value) { value.index({value > 0}); }},
        Forbidden{"IndexOnTheHost",
                  [](const auto& value) {
                    value.index({torch::tensor({1, 2})});
                  }},
        Forbidden{"ValuesOnTheHost",
                  [](const auto& value) {
                    value.gather(0, torch::tensor({1, 2}));
                  }},
        Forbidden{"CopyFromUnpinned",
                  [](const auto& value) { value.copy_(torch::ones({4}), /*non_blocking=*/true); }},
        Forbidden{"BlockingCopyFromPinned",
                  [](const auto& value) { value.copy_(torch::ones({4}).pin_memory()); }},
        Forbidden{"CopyToTheHost", [](const auto& value) { value.cpu(); }},
        Forbidden{"CopyToUnpinned",
                  [](const auto& value) { torch::empty({4}).copy_(value, /*non_blocking=*/true); }},
        Forbidden{"Stream", [](const auto&) { current_stream(kGpu0).synchronize(); }},
        Forbidden{"AnotherStream", [](const auto&) { stream_from_pool(kGpu0).synchronize(); }},
        Forbidden{"QueryOfAStream", [](const auto&) { current_stream(kGpu0).query(); }},
        Forbidden{"Device", [](const auto&) { torch::cuda::synchronize(0); }},
        Forbidden{"StreamFromAnotherThread",
                  [](const auto&) {
                    std::exception_ptr error;
                    const auto stream = current_stream(kGpu0);
                    std::thread([&] {
                      try {
                        stream.synchronize();
                      } catch (const c10::Error&) {
                        error = std::current_exception();
                      }
                    }).join();
                    if (error) std::rethrow_exception(error);
                  }}),
    [](const auto& info) { return info.param.name; });

TEST_P(FakeGpuCaptureRefuses, WhateverMakesTheHostWait) {
  const auto value = torch::ones({4}, kGpu0);
  const auto graph = pool_->make_graph();
  Capturing capturing(*graph);
  value.add_(1);
  EXPECT_THAT([&] { GetParam().act(value); }, throws_error(kNotPermitted));
  EXPECT_THAT([&] { value.add_(1); }, throws_error(kPreviousError));
  EXPECT_THAT([&] { capturing.end(); }, throws_error(kPreviousError));
  EXPECT_THAT([&] { graph->replay(); }, throws_error("without a preceding successful capture"));
  EXPECT_EQ(value.add_(1).sum().item<float>(), 8) << "the stream computes again";
  EXPECT_EQ(fake_gpu::captured_graphs(), 0);
}

class FakeGpuCapture : public FakeGpuGraph {
 protected:
  const std::unique_ptr<DeviceGraph> graph_ = pool_->make_graph();
};

TEST_F(FakeGpuCapture, NeedsAStreamThatIsNotTheDefaultOne) {
  const c10::StreamGuard on_default(c10::Stream(c10::Stream::DEFAULT, kGpu0));
  EXPECT_THAT([&] { graph_->begin_capture(); }, throws_error("non-default stream"));
  EXPECT_EQ(torch::ones({2}, kGpu0).sum().item<float>(), 2);
}

TEST_F(FakeGpuCapture, EndsOnItsStreamAndInItsThread) {
  Capturing capturing(*graph_);
  {
    const c10::StreamGuard on_other(stream_from_pool(kGpu0));
    EXPECT_THAT([&] { graph_->end_capture(); }, throws_error("same stream"));
  }
  EXPECT_NO_THROW(capturing.end());
  EXPECT_NO_THROW(graph_->replay());
  EXPECT_THAT([&] { graph_->begin_capture(); }, throws_error("already owns a captured graph"));
}

TEST_F(FakeGpuCapture, IsOfItsStreamOnly) {
  const auto other = stream_from_pool(kGpu0);
  torch::Tensor on_other_stream;
  torch::Tensor on_other_gpu;
  Capturing capturing(*graph_);
  {
    const c10::StreamGuard on_other(other);
    on_other_stream = torch::ones({2}, kGpu0).add_(1);
  }
  on_other_gpu = torch::ones({2}, kGpu1).add_(1);
  capturing.end();
  EXPECT_EQ(on_other_gpu.sum().item<float>(), 4);
  const c10::StreamGuard on_other(other);
  EXPECT_EQ(on_other_stream.sum().item<float>(), 4);
}

TEST_F(FakeGpuCapture, AnEventsWorkOutsideMustNotBeWaitedFor) {
  for (const bool is_done : {false, true}) {
    c10::Event event(torch::kCUDA);
    event.record(stream_from_pool(kGpu0));
    if (is_done) event.synchronize();
    const auto graph = pool_->make_graph();
    Capturing capturing(*graph);
    EXPECT_THAT([&] { event.block(stream_); }, throws_error("dependency created on uncaptured work"));
    EXPECT_THAT([&] { capturing.end(); }, throws_error(kPreviousError));
  }
}

TEST_F(FakeGpuCapture, AnEventOfItIsItsOwn) {
  c10::Event event(torch::kCUDA);
  const auto other = stream_from_pool(kGpu0);
  {
    Capturing capturing(*graph_);
    event.record(stream_);
    EXPECT_NO_THROW(event.block(stream_));
    EXPECT_NO_THROW(capturing.end());
  }
  EXPECT_THAT([&] { event.block(other); }, throws_error("event last recorded in a capturing stream"));
  EXPECT_THAT([&] { event.synchronize(); }, throws_error("event last recorded in a capturing stream"));
  event.record(stream_);
  EXPECT_NO_THROW(event.block(other)) << "recorded again";

  const auto graph = pool_->make_graph();
  Capturing capturing(*graph);
  event.record(stream_);
  EXPECT_THAT([&] { event.block(other); }, throws_error("unjoined work"));
  EXPECT_THAT([&] { capturing.end(); }, throws_error(kPreviousError));
}

// Like NCCL's stream.
TEST_F(FakeGpuCapture, AStreamThatMayJoinsByWaitingAndHasToBeWaitedForInTurn) {
  const c10::Stream joining(c10::Stream::UNSAFE, kGpu0, kFirstJoiningStream + 77);
  const auto value = torch::ones({2}, kGpu0);
  for (const bool is_joined : {true, false}) {
    const auto graph = pool_->make_graph();
    Capturing capturing(*graph);
    wait_for(joining, stream_);
    {
      const c10::StreamGuard on_joining(joining);
      value.add_(1);
    }
    if (is_joined) {
      wait_for(stream_, joining);
      value.mul_(2);
      EXPECT_NO_THROW(capturing.end());
      EXPECT_EQ(value[0].item<double>(), 1);
      graph->replay();
      graph->replay();
      EXPECT_EQ(value[0].item<double>(), ((1 + 1) * 2 + 1) * 2);
      EXPECT_THAT(fake_gpu::races(), IsEmpty());
    } else {
      EXPECT_THAT([&] { capturing.end(); }, throws_error("unjoined work"));
    }
  }
}

TEST_F(FakeGpuCapture, ReplaysFindWhatStreamsOfACaptureHaveNotWaitedFor) {
  const c10::Stream joining(c10::Stream::UNSAFE, kGpu0, kFirstJoiningStream + 78);
  const auto value = torch::ones({2}, kGpu0);
  Capturing capturing(*graph_);
  wait_for(joining, stream_);
  {
    const c10::StreamGuard on_joining(joining);
    value.add_(1);
  }
  value.mul_(2);  // before the wait
  wait_for(stream_, joining);
  capturing.end();
  EXPECT_THAT(fake_gpu::races(), IsEmpty());
  graph_->replay();
  EXPECT_THAT(fake_gpu::races(), Not(IsEmpty()));
}

TEST_F(FakeGpuCapture, CopiesBetweenGpusCrossItsBorder) {
  const auto value = torch::ones({2}, kGpu0);
  Capturing capturing(*graph_);
  EXPECT_THAT([&] { value.to(kGpu1); }, throws_error("dependency created on uncaptured work"));
}

TEST_F(FakeGpuCapture, TakesNoWorkOfAnotherThread) {
  Capturing capturing(*graph_);
  std::thread([&] {
    const c10::StreamGuard on_stream(stream_);
    EXPECT_THAT([] { torch::ones({2}, kGpu0); }, throws_error("another thread"));
  }).join();
  EXPECT_THAT([&] { capturing.end(); }, throws_error(kPreviousError));
}

TEST_F(FakeGpuCapture, GeneratorsMustBeThePoolsOrTheDevices) {
  auto generator = default_generator(kGpu0).clone();
  const auto value = torch::ones({4}, kGpu0);
  Capturing capturing(*graph_);
  EXPECT_NO_THROW(value.uniform_());
  EXPECT_THAT([&] { generator.set_current_seed(1); }, throws_error("during CUDA graph capture"));
  EXPECT_THAT([&] { value.uniform_(0, 1, generator); }, throws_error("not in capture mode"));
  EXPECT_THAT([&] { capturing.end(); }, throws_error(kPreviousError));
}

TEST_F(FakeGpuCapture, TwoThreadsCaptureWhileAThirdComputes) {
  struct Captures {
    torch::Device device;
    torch::Tensor result;
    std::unique_ptr<DeviceGraphPool> pool;
    std::unique_ptr<DeviceGraph> graph;
  };
  for (const auto& second_device : {kGpu0, kGpu1}) {
    std::vector<Captures> both;
    for (const auto& device : {kGpu0, second_device}) both.push_back({device, {}, {}, {}});
    std::latch begun(3);
    std::latch done(3);
    std::vector<std::thread> threads;
    for (auto& own : both) {
      threads.emplace_back([&begun, &done, &own] {
        const c10::StreamGuard on_stream(stream_from_pool(own.device));
        const auto value = torch::full({4}, 3.0, own.device);
        own.pool = make_device_graph_pool(own.device, default_generator(own.device));
        own.graph = captured(*own.pool, [&] {
          begun.arrive_and_wait();
          own.result = torch::full({4}, 2.0, own.device);
          for (int i = 0; i < 20; ++i) own.result = own.result + 1;
          done.arrive_and_wait();
        });
        own.graph->replay();
        value.sum().item<float>();
      });
    }
    begun.arrive_and_wait();
    EXPECT_EQ(torch::ones({4}, kGpu0).add_(1).sum().item<float>(), 8);
    done.arrive_and_wait();
    for (auto& thread : threads) thread.join();
    for (const auto& own : both) EXPECT_TRUE(torch::equal(own.result.cpu(), torch::full({4}, 22.0F)));
  }
  EXPECT_EQ(fake_gpu::captured_graphs(), 4);
}

}  // namespace
}  // namespace lockstep
