#pragma once

// Code that the tests of the fake GPU's graphs share.

#include <c10/core/AutogradState.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <memory>

#include "lockstep/runtime/devices/device_streams.h"
#include "lockstep/runtime/graphs/device_graph.h"
#include "lockstep/tests/gpu/fake_gpu.h"

namespace lockstep {

inline const torch::Device kGpu0(torch::kCUDA, 0);
inline const torch::Device kGpu1(torch::kCUDA, 1);

inline void wait_for(const c10::Stream& consumer, const c10::Stream& producer) {
  c10::Event event(torch::kCUDA);
  event.record(producer);
  event.block(consumer);
}

inline at::Generator default_generator(torch::Device device) {
  return at::globalContext().defaultGenerator(device);
}

/// Begins a capture, and ends it broken if the test has not.
class Capturing {
 public:
  explicit Capturing(DeviceGraph& graph) : graph_(graph) { graph_.begin_capture(); }
  ~Capturing() {
    if (is_ended_) return;
    try {
      graph_.end_capture();
    } catch (const c10::Error&) {
    }
  }
  void end() {
    is_ended_ = true;
    graph_.end_capture();
  }

 private:
  DeviceGraph& graph_;
  bool is_ended_ = false;
};

template <typename Function>
std::unique_ptr<DeviceGraph> captured(DeviceGraphPool& pool, const Function& function) {
  auto graph = pool.make_graph();
  Capturing capturing(*graph);
  function();
  capturing.end();
  return graph;
}

/// On a stream of its own; backward in the thread that calls it, as in a replica's.
class FakeGpuGraph : public testing::Test {
 protected:
  void SetUp() override {
    fake_gpu::forget();
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  void TearDown() override { c10::AutogradState::set_tls_state(before_); }

  const c10::Stream stream_ = stream_from_pool(kGpu0);
  const c10::StreamGuard on_stream_{stream_};
  const c10::AutogradState before_ = c10::AutogradState::get_tls_state();
  const std::unique_ptr<DeviceGraphPool> pool_ = make_device_graph_pool(kGpu0, default_generator(kGpu0));
};

}  // namespace lockstep
